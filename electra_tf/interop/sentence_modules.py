"""Describe the modules of sentence-transformers that follow an encoder.

Sources: `modules.json` and the `config.json` of pooling, as versions 2 to 5 of
sentence-transformers write them.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from electra_tf.errors import InputError, report_damage
from electra_tf.untrusted_files import parse_small_json, read_json, read_small_file

MODULES, SETTINGS = "modules.json", "sentence_bert_config.json"
POOLING = "*_Pooling/config.json"
"""Files that are read, and a pattern of those of pooling."""
_MAX_BYTES = 1 << 16
_REMEDY = "Copy or download it again, or delete it: the encoder does not need it"
# Ends of the keys `pooling_mode_*`, or values of `pooling_mode`.
_POOLINGS = {"mean_tokens": "mean", "mean": "mean", "cls_token": "cls", "cls": "cls"}


def sentence_notes(folder: str) -> list[str]:
    """Return a note on how sentence-transformers makes vectors of a folder's model."""
    path = os.path.join(folder, MODULES)
    if not os.path.isfile(path):
        return []
    with report_damage(f"{path!r} must list modules", _REMEDY):
        modules = parse_small_json(read_small_file(path, _MAX_BYTES), path)
        kinds = [(str(m["type"]).rsplit(".", 1)[-1], str(m["path"])) for m in modules]
    arguments, ends, lost = [], "", []
    for kind, name in kinds:
        if kind == "Pooling":
            pooling = _pooling(folder, name)
            if pooling in _POOLINGS.values():
                arguments.append(f'pooling="{pooling}"')
            else:
                lost.append(f"{name or kind} ({pooling})")
        elif kind == "Normalize":
            ends = ", divided by their lengths"
        elif kind != "Transformer":
            lost.append(name or kind)
    if lost:
        return [
            f"{path}: the encoder alone is read, without {' and '.join(lost)}. "
            "Encoder.embed returns other vectors than sentence-transformers"
        ]
    if not arguments:
        return []
    call = ", ".join(["texts", *arguments, *_limit(folder)])
    return [f"{path}: its vectors are those of Encoder.embed({call}){ends}"]


def _pooling(folder: str, name: str) -> str:
    """Return `mean`, `cls`, or the names of another pooling."""
    if name != os.path.basename(name) or name in ("", ".", ".."):
        raise InputError(
            f"{os.path.join(folder, MODULES)!r} must name folders of its own",
            f"{name!r:.80}",
            _REMEDY,
        )
    config = read_json(os.path.join(folder, name, "config.json"))
    modes = _modes(config)
    return " and ".join(_POOLINGS.get(mode, mode) for mode in modes) or "no pooling"


def _modes(config: Mapping[str, Any]) -> Sequence[str]:
    modes, start = config.get("pooling_mode"), "pooling_mode_"
    if modes is not None:
        return [modes] if isinstance(modes, str) else list(map(str, modes))
    return [
        key.removeprefix(start)
        for key, value in config.items()
        if key.startswith(start) and value is True
    ]


def _limit(folder: str) -> list[str]:
    """Return the argument of the length at which texts are cut."""
    path = os.path.join(folder, SETTINGS)
    length = read_json(path).get("max_seq_length") if os.path.isfile(path) else None
    return [f"max_length={length}"] if type(length) is int else []
