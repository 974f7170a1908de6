"""Sources of `--input`: paths, globs and prepared TFDS data sets."""

import glob
import os
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

from electra_tf.errors import InputError
from electra_tf.storage.mirror import local_glob
from electra_tf.storage.objects import ObjectFolder, is_url, split_url

_TFDS_PREFIX = "tfds:"


def is_tfds(source: str) -> bool:
    """Return whether a source is a TFDS name and not a path."""
    return source.startswith(_TFDS_PREFIX)


def open_source(path: str) -> BinaryIO:
    """Open a file or an object for reading, as it is stored."""
    if is_url(path):
        folder, name = split_url(path)
        return ObjectFolder(folder).open(name)
    return open(path, "rb")


def source_size(path: str) -> int:
    """Return the bytes of a file or an object, as it is stored."""
    if is_url(path):
        folder, name = split_url(path)
        return ObjectFolder(folder).info(name).size
    return os.path.getsize(path)


def expand(patterns: Iterable[str], fetch: bool = True) -> list[str]:
    """Expand paths, globs, URLs and TFDS names to a list of sources, in order.

    Args:
        patterns: The paths, globs, URLs and names.
        fetch: Copy objects at URLs to local files.

    Returns:
        File paths, URLs that were not fetched, and `tfds:` names, without duplicates.
    """
    sources: list[str] = []
    for pattern in patterns:
        paths = [pattern] if is_tfds(pattern) else _find(pattern, fetch)
        others = [
            p for p in paths if not (is_tfds(p) or is_url(p) or os.path.isfile(p))
        ]
        if others or not paths:
            match = f"{others[0]!r}, which is not a file" if others else "no file"
            raise InputError(
                "Each path or glob of --input must match files, at least one",
                f"{pattern!r}, which matches {match}",
                "Check the spelling; for a folder write 'FOLDER/*.txt' in quotes, or "
                "'FOLDER/**/*.txt' to include its subfolders",
            )
        sources += paths
    if not sources:
        raise InputError(
            "--input must name at least one file, glob or tfds: data set",
            "an empty list",
            "Pass --input='corpus/*.txt'",
        )
    unique: dict[str, str] = {}
    for source in sources:  # a file reached by several names or links is read once
        is_path = not is_tfds(source) and not is_url(source)
        unique.setdefault(os.path.realpath(source) if is_path else source, source)
    return list(unique.values())


def _find(pattern: str, fetch: bool) -> list[str]:
    """Return the paths that a path or a glob matches, sorted; folders, too."""
    if is_url(pattern) and fetch:
        return local_glob(pattern)
    if is_url(pattern):
        folder, name = split_url(pattern)
        source = ObjectFolder(folder)
        return [source.url_of(match) for match in source.glob(name)]
    if os.path.lexists(pattern):  # a file name may contain "[" or "*"
        return [pattern]
    paths = sorted(glob.glob(pattern, recursive=True))
    if "**" in pattern:
        paths = [path for path in paths if not os.path.isdir(path)]
    return paths


def load_tfds(name: str, split: str) -> tuple[Any, Any]:
    """Open a split of a data set that TFDS has prepared on this machine.

    Returns:
        The data set and its `tfds.core.DatasetInfo`.
    """
    import tensorflow_datasets as tfds

    try:
        # TFDS without a network retries a download for minutes before it fails.
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
            f"The split {split!r} of the data set {name!r} must be prepared on this "
            "machine",
            str(error).strip().partition("\n")[0] or type(error).__name__,
            f"Run `tfds build {name}` on a machine with a network and copy its folder "
            "~/tensorflow_datasets here; for another folder, set TFDS_DATA_DIR",
        ) from error


class TfdsSource:
    """Rows of one split of a data set that TFDS has prepared on this machine."""

    def __init__(self, source: str):
        name, _, split = source.removeprefix(_TFDS_PREFIX).partition("@")
        self._dataset, info = load_tfds(name, split or "train")
        examples = sum(part.num_examples for part in info.splits.values())
        share = info.splits[split or "train"].num_examples / max(1, examples)
        self.bytes = int(info.dataset_size * share)
        """Estimated bytes of the split."""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self._dataset.as_numpy_iterator())
