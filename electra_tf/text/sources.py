"""What `--input` names: paths, globs and data sets that TFDS has prepared."""

import glob
import os
from collections.abc import Iterable, Iterator
from typing import Any

from electra_tf.errors import InputError

_TFDS_PREFIX = "tfds:"


def is_tfds(source: str) -> bool:
    """Whether a source is a TFDS name and not a path."""
    return source.startswith(_TFDS_PREFIX)


def expand(patterns: Iterable[str]) -> list[str]:
    """Turns paths, globs and TFDS names into a list of sources, in order.

    Args:
        patterns: What `--input` was given, split at commas.

    Returns:
        File paths and `tfds:` names, each once.

    Raises:
        InputError: There is no pattern, or one that matches no file.
    """
    sources: list[str] = []
    for pattern in patterns:
        if is_tfds(pattern):
            sources.append(pattern)
            continue
        exact = os.path.lexists(pattern)  # a name may hold what a glob takes for a set
        found = [pattern] if exact else sorted(glob.glob(pattern, recursive=True))
        if "**" in pattern:
            found = [path for path in found if not os.path.isdir(path)]
        others = [path for path in found if not os.path.isfile(path)]
        if others or not found:
            what = f"{others[0]}, which is no file" if others else "no file"
            raise InputError(
                "Each path or glob of the input matches files, at least one",
                f"{pattern!r}, which matches {what}",
                "Check the spelling; for a folder write 'FOLDER/*.txt', in quotes, or "
                "'FOLDER/**/*.txt' for those below it too",
            )
        sources += found
    if not sources:
        raise InputError(
            "--input names at least one file, glob or tfds: name",
            "nothing",
            "Give --input='corpus/*.txt'",
        )
    unique: dict[str, str] = {}
    for source in sources:  # the same file by another name or link is read once
        unique.setdefault(
            source if is_tfds(source) else os.path.realpath(source), source
        )
    return list(unique.values())


def load_tfds(name: str, split: str) -> tuple[Any, Any]:
    """Opens a split of a data set that TFDS has prepared on this machine.

    Args:
        name: As TFDS has it, `glue/cola`.
        split: `train`, `validation`, `train[:1%]`, ...

    Returns:
        TFDS's data set, and what it says of it.

    Raises:
        InputError: It is not prepared here.
    """
    import tensorflow_datasets as tfds

    try:
        # Never download: offline, TFDS retries for minutes before it says so.
        return tfds.load(
            name,
            split=split,
            data_dir=os.environ.get("TFDS_DATA_DIR"),
            download=False,
            try_gcs=False,
            shuffle_files=False,
            with_info=True,
        )
    except (AssertionError, ValueError, ImportError, OSError) as error:
        raise InputError(
            f"The data set `{name}` is prepared on this machine, with a split {split}",
            str(error).strip().partition("\n")[0] or type(error).__name__,
            f"Run `tfds build {name}` on a machine with network, copy its folder "
            "~/tensorflow_datasets here, and name another place in TFDS_DATA_DIR",
        ) from error


class TfdsSource:
    """One split of a data set that TFDS has prepared on this machine.

    Args:
        source: `tfds:NAME[/CONFIG][@SPLIT]`; the split `train` unless given.

    Raises:
        InputError: There is no such data set, or it is not prepared.
    """

    def __init__(self, source: str):
        name, _, split = source.removeprefix(_TFDS_PREFIX).partition("@")
        self._dataset, info = load_tfds(name, split or "train")
        examples = sum(part.num_examples for part in info.splits.values())
        share = info.splits[split or "train"].num_examples / max(1, examples)
        self.bytes = int(info.dataset_size * share)
        """Bytes of the split, about."""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self._dataset.as_numpy_iterator())
