"""All tasks: the one place where a kind of model, or the name of a task, is found."""

from typing import TYPE_CHECKING

from electra_tf.tasks.answerer import QuestionAnswerer
from electra_tf.tasks.classifier import TextClassifier, TextRegressor
from electra_tf.tasks.tagger import TokenClassifier

if TYPE_CHECKING:
    from electra_tf.tasks.text_model import TextModel

_MODELS = (TextClassifier, TextRegressor, TokenClassifier, QuestionAnswerer)
MODELS: dict[str, type["TextModel"]] = {model.kind: model for model in _MODELS}
"""Class of the models of each kind."""
