"""Names of models: which exist, without reading a file or starting TensorFlow."""

import difflib
import glob
import os

from electra_tf.config import loader
from electra_tf.errors import InputError
from electra_tf.interop.hub import check_package, is_hub_id
from electra_tf.preset_files import preset_folder, preset_names
from electra_tf.storage.objects import is_url


def check_exists(name: str | os.PathLike | None) -> None:
    """Raise an InputError if a path does not exist and is no other name of a model."""
    for part in split_pair(os.fspath(name or "")):
        check_package(part)
        if part and not _exists(part):
            near = difflib.get_close_matches(part, preset_names(), 1, 0.8)
            state = f"which does not exist. Did you mean {near[0]!r}?" if near else None
            raise no_model(part, state or "which does not exist")


def no_model(name: str, state: str) -> InputError:
    """Return the error of a name that is none of a model."""
    return InputError(
        "A model must be a checkpoint or run of pretrain, the --output of finetune or "
        "a .keras file, a Hugging Face folder (config.json with model.safetensors or "
        "pytorch_model.bin) or hub id OWNER/NAME, a prefix of a TensorFlow 1 or Model "
        "Garden checkpoint, a KerasHub preset, a URL of one of these, a preset "
        f"({', '.join(preset_names()) or 'none ships'}), or a config's name or .yaml "
        f"file with a vocabulary, not {name!r}, {state}"
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
