"""Find the files of a task's splits in a folder."""

import os
from collections.abc import Sequence

from electra_tf.errors import InputError
from electra_tf.text.compression import SUFFIXES

STEMS = {"train": ("train",), "dev": ("dev", "valid", "validation"), "test": ("test",)}
"""Names of a split's file, without the ending."""


def find_split(folder: str, split: str, endings: Sequence[str]) -> str | None:
    """Find the file of a split.

    Returns:
        Its path; None if there is none.
    """
    names = [
        f"{stem}{ending}{suffix}"
        for stem in STEMS[split]
        for ending in endings
        for suffix in SUFFIXES
    ]
    paths = [os.path.join(folder, name) for name in names]
    paths = [path for path in paths if os.path.isfile(path)]
    if len(paths) > 1:
        raise InputError(
            f"{folder} must contain one file of {split}",
            ", ".join(map(os.path.basename, paths)),
            "Remove all but one of them",
        )
    return paths[0] if paths else None
