"""Names of models: which exist, without reading a file or starting TensorFlow."""

import difflib
import glob
import os

from electra_tf.config import loader
from electra_tf.errors import InputError
from electra_tf.interop import MODEL, formats
from electra_tf.interop.hub import is_hub_id
from electra_tf.interop.huggingface_config import CONFIG
from electra_tf.interop.tensors import WEIGHTS, find_weights
from electra_tf.preset_files import preset_folder, preset_names
from electra_tf.storage.objects import is_url

_EXPORTED = "is a SavedModel; name the --output of finetune that it was exported from"
# Globs by which a path without a model is known, and what it is.
_DEFECTS = {
    "{}.index": "is a TensorFlow checkpoint of another model",
    "{}.data-*": "lacks its .index file",
    "{}/trial_1": f"has no {MODEL} yet; run the same finetune command again until a "
    "trial is finished",
    "{}/saved_model.pb": _EXPORTED,
    "{}/*/saved_model.pb": _EXPORTED,
    f"{{}}/*_Transformer/{CONFIG}": "has its encoder in {folder}; pass that",
    "{}/model-*-of-*.safetensors": "has {count} shards of weights without their index, "
    "model.safetensors.index.json; copy it beside them",
    "{}/pytorch_model-*-of-*.bin": "has {count} shards of weights without their index, "
    "pytorch_model.bin.index.json; copy it beside them",
    f"{{}}/{CONFIG}": f"has {CONFIG} without weights, {' or '.join(WEIGHTS)}",
}


def check_exists(name: str | os.PathLike | None) -> None:
    """Raise an InputError if a path does not exist and is no other name of a model."""
    for part in split_pair(os.fspath(name or "")):
        if part and not _exists(part):
            if near := difflib.get_close_matches(part, preset_names(), 1, 0.8):
                raise InputError(f"{part!r} does not exist. Did you mean {near[0]!r}?")
            raise no_model(part, "does not exist")


def no_model(name: str, state: str) -> InputError:
    """Return the error of a name that is none of a model.

    `state`: the predicate of the name, such as "does not exist".
    """
    return InputError(
        f"{name!r} {state}; pass the --output of finetune or a .keras file, a run or "
        f"checkpoint of pretrain, a preset ({', '.join(preset_names()) or 'none'}), an "
        "id OWNER/NAME of the Hugging Face hub, a model of Hugging Face (config.json "
        "with model.safetensors or pytorch_model.bin), TensorFlow 1, KerasHub or Model "
        "Garden, a URL of one of these, or a config with a vocabulary"
    )


def no_model_at(path: str) -> InputError:
    """Return the error of a path that exists and is of no known format."""
    if state := _known_defect(path):
        return InputError(f"{path!r} {state}")
    kind = "folder" if os.path.isdir(path) else "file"
    return no_model(path, f"is a {kind} of another kind")


def _known_defect(path: str) -> str:
    """Return what a path without a known format is or lacks; empty: unknown."""
    folder = path if os.path.isdir(path) else os.path.dirname(path) or "."
    if find_weights(folder) and not os.path.isfile(os.path.join(folder, CONFIG)):
        return f"lacks the model's {CONFIG}"
    for pattern, state in _DEFECTS.items():
        if found := glob.glob(pattern.format(glob.escape(path))):
            return state.format(count=len(found), folder=os.path.dirname(found[0]))
    is_part = folder != path and formats.format_of(folder)
    return f"is one file of {folder}; pass that" if is_part else ""


def split_pair(name: str) -> list[str]:
    """Return the parts of DISCRIMINATOR,GENERATOR."""
    return [name] if os.path.exists(name) else name.split(",")


def is_config(name: str) -> bool:
    """Return whether a name is that of a config of pre-training."""
    if name.endswith((".yaml", ".yml")) and os.path.isfile(name):
        return True
    is_known = name in loader.installed() and not name.startswith("finetune")
    return is_known and not os.path.exists(name)


def _exists(name: str) -> bool:
    if os.path.exists(name) or is_url(name) or is_hub_id(name) or is_config(name):
        return True
    patterns = (f"{glob.escape(name)}.{end}" for end in ("index", "data-*"))
    return bool(any(map(glob.glob, patterns)) or preset_folder(name))
