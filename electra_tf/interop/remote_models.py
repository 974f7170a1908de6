"""Find models by a preset's name, and fetch them from object stores."""

import os
import re

from electra_tf.errors import InputError
from electra_tf.interop.task_heads import MODEL
from electra_tf.interop.tensor_files import WEIGHTS
from electra_tf.preset_files import preset_folder
from electra_tf.storage.cache import fetch, local_path
from electra_tf.storage.objects import ObjectFolder, ObjectInfo, is_url, split_url
from electra_tf.text.records import VOCABULARY
from electra_tf.training.checkpoint import CHECKPOINTS, FILES, MANIFEST, parse_manifest
from electra_tf.training.metric_logger import METRICS

_FILES = (*FILES, *WEIGHTS, "config.json", "model.weights.h5")
_STEP = re.compile(rf"(?:{CHECKPOINTS}/)?step_(\d+)/{MANIFEST}")


def local_model(path: str | os.PathLike) -> str:
    """Return the local path of a model, which is fetched if it is at a URL."""
    text = os.fspath(path)
    if "://" not in text:
        return ",".join(preset_folder(part) or part for part in text.split(","))
    return ",".join(p if not is_url(p) else _fetch(p) for p in text.split(","))


def _fetch(url: str) -> str:
    parent, name = split_url(url)
    source, folder = ObjectFolder(url), ObjectFolder(parent)
    objects = source.find()
    if MANIFEST in objects:
        return _fetch_checkpoint(source, objects, name)
    steps = {int(m[1]): m[0] for m in map(_STEP.fullmatch, objects) if m}
    if steps:
        return _fetch_newest(source, objects, steps[max(steps)])
    if MODEL in objects:
        objects = {n: info for n, info in objects.items() if "/" not in n}
        return os.path.join(fetch(source, objects), name)
    if not objects and name in _FILES and name in folder.find():
        return _fetch(parent)
    if not objects and (files := _with_prefix(folder, name)):
        return os.path.join(fetch(folder, files, folder="."), name)
    return local_path(url)


def _fetch_checkpoint(
    source: ObjectFolder, objects: dict[str, ObjectInfo], folder: str
) -> str:
    """Fetch a checkpoint, whose manifest has the sums of its files."""
    manifest = parse_manifest(source.read(MANIFEST) or b"", source.url)
    sums = {name: sha256 for name, (_, sha256) in manifest["files"].items()}
    missing = sums.keys() - objects.keys()
    if missing:
        raise InputError(
            "A checkpoint must have the files of its manifest",
            f"{source.url}, without {', '.join(sorted(missing))}",
            "Upload the checkpoint again",
        )
    objects = {n: i for n, i in objects.items() if n in sums or n == MANIFEST}
    return os.path.join(fetch(source, objects, sums, folder), folder)


def _fetch_newest(
    source: ObjectFolder, objects: dict[str, ObjectInfo], manifest: str
) -> str:
    """Fetch the newest checkpoint of a run, and the metrics beside it."""
    name = os.path.dirname(manifest)
    content = source.read(manifest) or b""
    parsed = parse_manifest(content, source.url_of(name))
    sums = {f"{name}/{file}": s for file, (_, s) in parsed["files"].items()}
    files = {n: i for n, i in objects.items() if n in sums or n == manifest}
    if METRICS in objects:
        files[METRICS] = objects[METRICS]
    run = split_url(source.url)[1]
    return os.path.join(fetch(source, files, sums, run), run, name)


def _with_prefix(folder: ObjectFolder, prefix: str) -> dict[str, ObjectInfo]:
    """Return the files of a TensorFlow checkpoint, and what is read beside them."""
    objects = {n: i for n, i in folder.find().items() if "/" not in n}
    if not any(name.startswith(f"{prefix}.") for name in objects):
        return {}
    return {
        name: info
        for name, info in objects.items()
        if name.startswith(f"{prefix}.") or name == VOCABULARY or name.endswith(".json")
    }
