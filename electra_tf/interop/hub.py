"""Find models of the Hugging Face hub in its cache, and download them."""

import os
import re

from electra_tf.errors import InputError, cause_of
from electra_tf.interop.huggingface_config import CONFIG, MODULES, POOLING
from electra_tf.interop.tensors import SAFETENSORS, TORCH, find_weights
from electra_tf.text.tokenizer_files import VOCABULARY_FILES

_ID = re.compile(r"(?P<name>[\w.-]+/[\w.-]+)(@(?P<revision>[\w.-]+))?")
# Weights are downloaded as safetensors or, if there are none, as pickles.
_WEIGHTS = (
    (SAFETENSORS, f"{SAFETENSORS}.index.json", "model-*.safetensors"),
    (TORCH, f"{TORCH}.index.json", "pytorch_model-*.bin"),
)


def is_hub_id(path: str) -> bool:
    """Return whether a path can only be `OWNER/NAME` or `OWNER/NAME@REVISION`."""
    if not _ID.fullmatch(path) or os.path.exists(path):
        return False
    owner = path.split("/")[0]
    return owner not in (".", "..") and not os.path.isdir(owner)


def local_folder(path: str) -> str:
    """Return the folder of a hub id's files, cached or downloaded, or another path.

    These are config, tokenizer, and weights as safetensors or else `pytorch_model.bin`.
    """
    if not is_hub_id(path):
        return path
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError

    match = _ID.fullmatch(path)
    files = CONFIG, *VOCABULARY_FILES, MODULES, POOLING
    for weights in _WEIGHTS:
        try:
            folder = snapshot_download(
                match["name"],
                revision=match["revision"],
                allow_patterns=[*files, *weights],
            )
        except (HfHubHTTPError, OSError, ValueError) as error:
            cause = f"{type(error).__name__}: {cause_of(error)}"
            raise _unavailable(path, cause) from error
        if find_weights(folder) is not None:
            return folder
    raise _unavailable(path, f"no weights for PyTorch in {sorted(os.listdir(folder))}")


def _unavailable(path: str, cause: str) -> InputError:
    return InputError(
        f"{path!r} is not a local path, and it cannot be downloaded as a model of the "
        f"Hugging Face hub: {cause}; run `hf download {path.partition('@')[0]} "
        "--local-dir FOLDER` on a machine with access, copy FOLDER here, and pass its "
        "path"
    )
