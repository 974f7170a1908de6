"""Copy models at URLs to this machine: only the files that a reader needs."""

import os
import posixpath
import re

from electra_tf.errors import InputError
from electra_tf.interop import MODEL
from electra_tf.interop.huggingface import CONFIG
from electra_tf.interop.keras_hub import WEIGHTS as KERAS_HUB_WEIGHTS
from electra_tf.interop.tensors import WEIGHTS as LIBRARY_WEIGHTS
from electra_tf.storage.mirror import fetch, local_path
from electra_tf.storage.objects import ObjectFolder, ObjectInfo, split_url
from electra_tf.text.tokenizer_files import VOCABULARY
from electra_tf.training.checkpoint import (
    CHECKPOINT_FILES,
    CHECKPOINTS,
    MANIFEST,
    SLOTS,
    parse_manifest,
)

_FILES = (*CHECKPOINT_FILES, *LIBRARY_WEIGHTS, CONFIG, KERAS_HUB_WEIGHTS)
_STEP = re.compile(rf"(?:{CHECKPOINTS}/)?step_(\d+)/{MANIFEST}")


def fetch_model(url: str) -> str:
    """Return the local path of the model at a URL; a run is its newest checkpoint."""
    parent, name = split_url(url)
    source, folder = ObjectFolder(url), ObjectFolder(parent)
    objects = source.find()
    steps = {int(m[1]): m[0] for m in map(_STEP.fullmatch, objects) if m}
    if MANIFEST in objects or steps:
        manifest = MANIFEST if MANIFEST in objects else steps[max(steps)]
        return _fetch_checkpoint(source, objects, manifest)
    if MODEL in objects:
        objects = {n: info for n, info in objects.items() if "/" not in n}
        return os.path.join(fetch(source, objects), name)
    if not objects and name in _FILES and name in folder.find():
        return fetch_model(parent)
    if not objects and (files := _with_prefix(folder, name)):
        return os.path.join(fetch(folder, files, folder="."), name)
    return local_path(url)


def _fetch_checkpoint(
    source: ObjectFolder, objects: dict[str, ObjectInfo], manifest: str
) -> str:
    """Fetch a checkpoint without its slots, by the sums of its manifest."""
    step = posixpath.dirname(manifest)  # empty: the URL is that of the checkpoint
    url = source.url_of(step).rstrip("/")
    files = parse_manifest(source.read(manifest) or b"", url)["files"]
    files.pop(SLOTS, None)
    sums = {posixpath.join(step, file): sha256 for file, (_, sha256) in files.items()}
    missing = sums.keys() - objects.keys()
    if missing:
        raise InputError(
            f"{source.url} must have all files of its manifest; "
            f"{', '.join(sorted(missing))} are missing"
        )
    wanted = {*sums, manifest}
    objects = {name: info for name, info in objects.items() if name in wanted}
    path = os.path.join(fetch(source, objects, sums), split_url(source.url)[1], step)
    return path.rstrip("/")


def _with_prefix(folder: ObjectFolder, prefix: str) -> dict[str, ObjectInfo]:
    """Return the files of a TensorFlow checkpoint, and what is read beside them."""
    names = f"{prefix}.", VOCABULARY
    found = {
        name: info
        for name, info in folder.find().items()
        if "/" not in name and (name.startswith(names) or name.endswith(".json"))
    }
    return found if any(name.startswith(f"{prefix}.") for name in found) else {}
