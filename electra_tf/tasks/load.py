"""Load fine-tuned models from files of this package and of other libraries."""

import os

import keras

from electra_tf import sources
from electra_tf.errors import InputError
from electra_tf.interop import MODEL
from electra_tf.interop.model import PretrainedModel
from electra_tf.sources import Source
from electra_tf.tasks import registry
from electra_tf.tasks.saved_models import build_model, load_file
from electra_tf.tasks.text_model import TextModel

MODELS: dict[str, type[TextModel]] = {one.kind: one for one in registry.models()}
"""Classes of models by kind; Keras finds those that were imported."""


def load(source: Source) -> TextModel:
    """Load a fine-tuned model, not compiled; `fit` compiles it."""
    if source.kind == "fine_tuned":
        return load_file(source.file, TextModel)
    if source.fine_tuned is None:
        is_read = source.kind == "networks"
        other = source.pretrained.other_head if is_read else None
        raise InputError(
            f"{source.path!r} must be a fine-tuned model, a folder with {MODEL} or a "
            ".keras file, and is "
            + (f"one with {other}" if other else "a pre-trained model")
            + "; fine-tune it with electra-tf finetune --checkpoint"
        )
    return build_model(MODELS[source.head.role], source.fine_tuned)


def load_model(path: str | os.PathLike) -> keras.Model:
    """Load a model that `save` wrote, compiled as it was.

    This is `keras.saving.load_model` in its safe mode, for a folder too. It imports the
    classes of this package; import those of your own before.

    Args:
        path: A `.keras` file, or a folder with `model.keras`, as finetune writes it.

    Returns:
        A model of a task, or any Keras model with layers of this package.

    Raises:
        InputError: There is no such file, or it is damaged.

    Example:
        import electra_tf

        model = electra_tf.load_model("model.keras")
        model.predict(["a fine film"])
    """
    source = sources.open_source(path)
    if source.kind != "fine_tuned":
        raise InputError(
            f"{os.fspath(path)!r} must be a .keras file, or a folder with {MODEL}; "
            "load a checkpoint with from_preset of a model class"
        )
    return load_file(source.file, keras.Model, compile=True)


def write(model: PretrainedModel, path: str) -> None:
    """Write a folder that commands take as `--model`."""
    os.makedirs(path, exist_ok=True)
    built = build_model(MODELS[model.head.role], model)
    built.save(os.path.join(path, MODEL))
