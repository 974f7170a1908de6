"""ELECTRA for TensorFlow 2 and Keras 3: pre-train, fine-tune, export.

The names below are imported when they are first used, so `import electra_tf` is fast
and does not start TensorFlow. The first use of one that needs Keras registers all
classes of this package with Keras.
"""

import difflib
import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from electra_tf.config.finetuning import FinetuningConfig
    from electra_tf.config.loader import load_config
    from electra_tf.config.pretraining import PretrainingConfig
    from electra_tf.errors import InputError
    from electra_tf.pretraining.pretrainer import Pretrainer
    from electra_tf.runs.conversion import convert_checkpoint
    from electra_tf.runs.exporting import export_saved_model
    from electra_tf.runs.scoring import TextScorer
    from electra_tf.tasks.choice_classifier import ChoiceClassifier
    from electra_tf.tasks.classifier import TextClassifier, TextRegressor
    from electra_tf.tasks.encoder import Encoder
    from electra_tf.tasks.load import load_model
    from electra_tf.tasks.pretrained_heads import Electra, MaskedLanguageModel
    from electra_tf.tasks.question_answerer import QuestionAnswerer
    from electra_tf.tasks.token_classifier import TokenClassifier
    from electra_tf.tasks.tokenizer import Tokenizer
    from electra_tf.text.pipeline import training_batches
    from electra_tf.text.record_set import open_records
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

# Modules of the public names. Those in `_KERAS` register classes with Keras.
_NO_KERAS = {
    "FinetuningConfig": "config.finetuning",
    "InputError": "errors",
    "PretrainingConfig": "config.pretraining",
    "Tokenizer": "tasks.tokenizer",
    "Vocabulary": "text.vocab",
    "load_config": "config.loader",
    "open_records": "text.record_set",
    "training_batches": "text.pipeline",
}
_KERAS = {
    "ChoiceClassifier": "tasks.choice_classifier",
    "Electra": "tasks.pretrained_heads",
    "Encoder": "tasks.encoder",
    "MaskedLanguageModel": "tasks.pretrained_heads",
    "Pretrainer": "pretraining.pretrainer",
    "QuestionAnswerer": "tasks.question_answerer",
    "TextClassifier": "tasks.classifier",
    "TextRegressor": "tasks.classifier",
    "TokenClassifier": "tasks.token_classifier",
    "WarmupPolynomialDecay": "training.schedule",
    "create_optimizer": "training.optimizer",
    "load_model": "tasks.load",
}
_RUNS = {
    "TextScorer": "runs.scoring",
    "convert_checkpoint": "runs.conversion",
    "export_saved_model": "runs.exporting",
}
_MODULES = _NO_KERAS | _KERAS | _RUNS


def __getattr__(name: str) -> Any:
    """Import a public name; if it needs Keras, import all registered classes."""
    if name not in _MODULES:
        near = difflib.get_close_matches(name, __all__, n=1)
        hint = f". Did you mean {near[0]!r}?" if near else ""
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")
    if name not in _NO_KERAS:
        for module in _KERAS.values():
            importlib.import_module(f"{__name__}.{module}")
    module = importlib.import_module(f"{__name__}.{_MODULES[name]}")
    globals()[name] = value = getattr(module, name)
    return value


def __dir__() -> list[str]:
    """Return the public names."""
    return list(__all__)
