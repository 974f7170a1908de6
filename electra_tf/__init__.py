"""ELECTRA for TensorFlow 2 and Keras 3: pre-train, fine-tune, export.

The names below are imported when they are first used, so `import electra_tf` is fast
and does not start TensorFlow. The first use of one that needs Keras registers all
classes of this package with Keras.
"""

import difflib
import importlib
from typing import TYPE_CHECKING, Any

from electra_tf import errors

if TYPE_CHECKING:
    from electra_tf.config.finetuning import FinetuningConfig
    from electra_tf.config.loader import load_config
    from electra_tf.config.pretraining import PretrainingConfig
    from electra_tf.errors import InputError
    from electra_tf.model.electra import Electra, MaskedLanguageModel
    from electra_tf.model.encoder import Encoder
    from electra_tf.pretraining.pretrainer import Pretrainer
    from electra_tf.runs.conversion import convert_checkpoint
    from electra_tf.runs.scoring import TextScorer
    from electra_tf.serving.export import export_saved_model
    from electra_tf.tasks.answerer import QuestionAnswerer
    from electra_tf.tasks.choice import ChoiceClassifier
    from electra_tf.tasks.classifier import TextClassifier, TextRegressor
    from electra_tf.tasks.load import load_model
    from electra_tf.tasks.tagger import TokenClassifier
    from electra_tf.text.pipeline import training_batches
    from electra_tf.text.record_set import open_records
    from electra_tf.text.tokenizer import Tokenizer
    from electra_tf.text.vocab import Vocabulary
    from electra_tf.training.optimizer import create_optimizer
    from electra_tf.training.schedule import WarmupPolynomialDecay

__version__ = "0.1.0"

__all__ = [
    "ChoiceClassifier",
    "Electra",
    "Encoder",
    "FinetuningConfig",
    "InputError",
    "MaskedLanguageModel",
    "Pretrainer",
    "PretrainingConfig",
    "QuestionAnswerer",
    "TextClassifier",
    "TextRegressor",
    "TextScorer",
    "TokenClassifier",
    "Tokenizer",
    "Vocabulary",
    "WarmupPolynomialDecay",
    "__version__",
    "convert_checkpoint",
    "create_optimizer",
    "export_saved_model",
    "load_config",
    "load_model",
    "open_records",
    "training_batches",
]

# Modules of the public names. The modules in `_KERAS` register classes with Keras.
_NO_KERAS = {
    "FinetuningConfig": "config.finetuning",
    "InputError": "errors",
    "PretrainingConfig": "config.pretraining",
    "Tokenizer": "text.tokenizer_files",
    "Vocabulary": "text.vocab",
    "load_config": "config.loader",
    "open_records": "text.record_set",
    "training_batches": "text.pipeline",
}
_KERAS = {
    "ChoiceClassifier": "tasks.choice",
    "Electra": "model.electra",
    "Encoder": "model.encoder",
    "MaskedLanguageModel": "model.electra",
    "Pretrainer": "pretraining.pretrainer",
    "QuestionAnswerer": "tasks.answerer",
    "TextClassifier": "tasks.classifier",
    "TextRegressor": "tasks.classifier",
    "TokenClassifier": "tasks.tagger",
    "WarmupPolynomialDecay": "training.schedule",
    "create_optimizer": "training.optimizer",
    "load_model": "tasks.load",
}
_SERVING = {
    "TextScorer": "runs.scoring",
    "convert_checkpoint": "runs.conversion",
    "export_saved_model": "serving.export",
}


# Ends of the names of classes of transformers and KerasHub.
_OTHER_LIBRARIES = {
    "ForPreTraining": "Electra",
    "ForMaskedLM": "MaskedLanguageModel",
    "Tokenizer": "Tokenizer",
    "TokenizerFast": "Tokenizer",
    "Backbone": "Encoder",
    "Model": "Encoder",
}


def __getattr__(name: str) -> Any:
    """Import a public name; if it needs Keras, import all registered classes."""
    modules = _NO_KERAS | _KERAS | _SERVING
    if name not in modules:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(f"{message}{_suggestion(name)}")
    if name not in _NO_KERAS:
        _import_keras_classes()
    value = getattr(importlib.import_module(f"{__name__}.{modules[name]}"), name)
    if name == "Tokenizer":
        from electra_tf.text.tokenizer import Tokenizer

        Tokenizer.from_preset = classmethod(_tokenizer_from_preset)
        _add_misnomers(Tokenizer)
    globals()[name] = value
    return value


@errors.with_suggestions
def _tokenizer_from_preset(
    cls: type["Tokenizer"], path_or_name: Any, vocabulary: Any = None
) -> "Tokenizer":
    """Load the tokenizer of a model.

    Args:
        path_or_name: A source as for `Encoder.from_preset`, or a vocabulary as for
            `read`.
        vocabulary: Path of the vocabulary; only for a config or another library.

    Raises:
        InputError: The source is damaged, or its kind is unknown.
    """
    # Importing the readers takes seconds.
    from electra_tf.sources import tokenizer_from_preset

    return tokenizer_from_preset(cls, path_or_name, vocabulary)


def _suggestion(name: str) -> str:
    """Return a sentence with the public name that a name may mean."""
    # Importing the table of heads imports NumPy.
    from electra_tf.interop.task_heads import TASK_HEADS

    heads = {kind.transformers: kind.model for kind in reversed(TASK_HEADS.values())}
    known = heads | _OTHER_LIBRARIES
    ends = [ours for end, ours in known.items() if name.endswith(end)]
    near = ends or difflib.get_close_matches(name, __all__, n=1)
    return f". Did you mean {near[0]!r}?" if near else ""


def _add_misnomers(*classes: type) -> None:
    """Let Hugging Face's names of methods raise errors that name this package's."""
    for cls in classes:
        cls.from_pretrained = errors.Misnomer("from_pretrained", "from_preset")
        cls.save_pretrained = errors.Misnomer("save_pretrained", "save")


def _import_keras_classes() -> None:
    """Import the classes, and set the methods that are above their layers."""
    for module in _KERAS.values():
        importlib.import_module(f"{__name__}.{module}")
    from electra_tf.model.electra import Electra, MaskedLanguageModel
    from electra_tf.model.encoder import Encoder
    from electra_tf.serving.export import export_model
    from electra_tf.tasks import pretrained_models, pretrained_texts
    from electra_tf.tasks.text_model import TextModel

    Encoder.from_preset = classmethod(pretrained_models.encoder_from_preset)
    Electra.from_preset = classmethod(pretrained_models.electra_from_preset)
    MaskedLanguageModel.from_preset = classmethod(
        pretrained_models.masked_lm_from_preset
    )
    Encoder.embed = pretrained_texts.embed
    Electra.replaced_tokens = pretrained_texts.replaced_tokens
    MaskedLanguageModel.fill_mask = pretrained_texts.fill_mask
    TextModel.export = export_model
    _add_misnomers(TextModel, Encoder, Electra, MaskedLanguageModel)


def __dir__() -> list[str]:
    """Return the public names."""
    return list(__all__)
