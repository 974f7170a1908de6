"""The models that ship with this package.

A preset is a folder: a checkpoint of float16 weights without optimizer slots, the facts
that `electra-tf presets` prints, and a model card.
"""

import json
import os
import pathlib
from typing import Any

FOLDER = pathlib.Path(__file__).parent
FACTS = "preset.json"


def preset_names() -> list[str]:
    """Return the names of all presets."""
    return sorted(path.parent.name for path in FOLDER.glob(f"*/{FACTS}"))


def preset_folder(name: str | os.PathLike) -> str | None:
    """Return the folder of a preset, or None for any other name."""
    text = os.fspath(name)
    if text not in preset_names() or os.path.exists(text):
        return None
    return str(FOLDER / text)


def preset_facts(name: str) -> dict[str, Any]:
    """Return what is known of a preset."""
    return json.loads((FOLDER / name / FACTS).read_text(encoding="utf-8"))
