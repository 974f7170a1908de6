"""Describe the modules of sentence-transformers that follow an encoder.

Sources: `modules.json` and the `config.json` of pooling, as versions 2 to 5 of
sentence-transformers write them.
"""

import os

from electra_tf.errors import report_damage
from electra_tf.untrusted_files import read_json

MODULES, SENTENCE_CONFIG = "modules.json", "sentence_bert_config.json"
POOLING = "*_Pooling/config.json"  # glob of the settings of pooling modules
# Ends of the keys `pooling_mode_*`, or values of `pooling_mode`.
_POOLINGS = {"mean_tokens": "mean", "mean": "mean", "cls_token": "cls", "cls": "cls"}


def sentence_notes(folder: str) -> list[str]:
    """Return a note on how sentence-transformers makes vectors of a folder's model."""
    path = os.path.join(folder, MODULES)
    if not os.path.isfile(path):
        return []
    arguments, ends, lost = [], "", []
    with report_damage(path):
        for module in read_json(path, list):
            kind, name = str(module["type"]).rsplit(".", 1)[-1], str(module["path"])
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
    path_of_length = os.path.join(folder, SENTENCE_CONFIG)
    if os.path.isfile(path_of_length):
        length = read_json(path_of_length).get("max_seq_length")
        arguments += [f"max_length={length}"] * (type(length) is int)
    call = ", ".join(["texts", *arguments])
    return [
        f"{path}: its vectors are those of Encoder.embed({call}){ends}; their "
        "cosines compare two texts without fine-tuning"
    ]


def _pooling(folder: str, name: str) -> str:
    """Return `mean`, `cls`, or the names of another pooling."""
    if name != os.path.basename(name) or name in ("", ".", ".."):
        raise ValueError(f"{name!r:.80} is no folder of its own")
    config = read_json(os.path.join(folder, name, "config.json"))
    modes, start = config.get("pooling_mode"), "pooling_mode_"
    if modes is None:
        keys = (key for key, value in config.items() if value is True)
        modes = [key.removeprefix(start) for key in keys if key.startswith(start)]
    modes = [modes] if isinstance(modes, str) else map(str, modes)
    return " and ".join(_POOLINGS.get(mode, mode) for mode in modes) or "no pooling"
