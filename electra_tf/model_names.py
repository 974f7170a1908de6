"""Names of models: which exist, without reading a file or starting TensorFlow."""

import difflib
import glob
import os

from electra_tf.config import loader
from electra_tf.errors import InputError
from electra_tf.interop.hub import is_hub_id
from electra_tf.preset_files import preset_folder, preset_names
from electra_tf.storage.objects import is_url


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
