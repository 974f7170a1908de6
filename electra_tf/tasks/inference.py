"""Load a fine-tuned model."""

import os
import zipfile

import keras

from electra_tf.errors import InputError
from electra_tf.interop.conversion import is_foreign
from electra_tf.interop.task_heads import MODEL, is_finished
from electra_tf.tasks import answerer, classifier, tagger  # noqa: F401 - registers them
from electra_tf.tasks.saved_file import check_saved_file, load_saved_file
from electra_tf.tasks.text_model import TextModel
from electra_tf.training.checkpoint import foreign_weights, is_checkpoint

_SAVED_MODEL = "saved_model.pb"


def load(path: str) -> TextModel:
    """Load a model that fine-tuning wrote.

    Returns:
        The model, not compiled; `fit` compiles it with the published optimizer.
    """
    if not is_finished(path) and is_foreign(path):
        # Imported here, as that module imports this one.
        from electra_tf.tasks.finished_models import load_finished

        if (model := load_finished(path)) is not None:
            return model
    file = os.path.join(path, MODEL) if os.path.isdir(path) else path
    _check_file(path, file)
    name = check_saved_file(file)
    kind = keras.saving.get_registered_object(name)
    if not (isinstance(kind, type) and issubclass(kind, TextModel)):
        raise InputError(
            f"{file} must be a model that finetune wrote",
            f"a model of class {name!r:.100}",
            "Name the --output of finetune",
        )
    return load_saved_file(file)


def _check_file(path: str, file: str) -> None:
    """Raise an error for a path without a .keras archive that describes the path."""
    rule = f"--model must be a folder of finetune with a {MODEL}, or a .keras file"
    remedy = "Name the --output of finetune"
    found = None
    if library := foreign_weights(path):
        found = library
        remedy = (
            "Fine-tune it with electra_tf.finetune --checkpoint, and name its --output"
        )
    elif is_checkpoint(path):
        found = "a pre-trained checkpoint"
        remedy = "Fine-tune it with electra_tf.finetune, and name its --output"
    elif os.path.isdir(path) and not os.path.isfile(file):
        names = {name for _, _, files in os.walk(path) for name in files}
        found = f"a folder without a {MODEL}"
        if _SAVED_MODEL in names:
            found = "a folder of a SavedModel, which cannot be loaded here"
        elif os.path.isdir(os.path.join(path, "trial_1")):
            found += " yet"
            remedy = "Run the same finetune command again until a trial is finished"
    elif not os.path.isfile(file):
        found = "which does not exist"
    elif not file.endswith(".keras"):
        found = "a file of another kind"
    elif not zipfile.is_zipfile(file):  # Keras would raise "File not found"
        found = f"{os.path.getsize(file):,} bytes that are not a .keras archive"
        remedy = "Copy it again, or train it again"
    if found:
        raise InputError(rule, f"{path!r}, {found}", remedy)
