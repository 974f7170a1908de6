"""Files of text: paths, globs and TFDS names, compressed files, and other formats."""

import contextlib
import glob
import gzip
import lzma
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO

from electra_tf.errors import InputError, cause_of
from electra_tf.storage.mirror import local_glob
from electra_tf.storage.objects import ObjectFolder, is_url, split_url

TFDS_PREFIX = "tfds:"
"""Beginning of the name of a data set: tfds:NAME@SPLIT."""
_OPENERS: dict[str, Callable[..., BinaryIO]] = {".gz": gzip.open, ".xz": lzma.open}
_MAGIC = {".gz": b"\x1f\x8b", ".xz": b"\xfd7zXZ"}
COMPRESSION_SUFFIXES = ("", *_OPENERS)
"""Compressed suffixes, and the empty suffix of a plain file."""
BROKEN = (EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile)
"""Exceptions raised while reading a truncated or invalid archive."""
HEAD_BYTES = 512
"""Bytes from the start of a file that the format is recognised by."""
ENCODING_REMEDY = (
    "convert it: iconv -f ENCODING -t UTF-8 FILE > NEW, with the encoding that it was "
    "saved in, such as WINDOWS-1252 or GB18030"
)
# First bytes and name; the first match counts.
_FORMATS = (
    (rb"\xff\xfe|\xfe\xff", "UTF-16 text"),
    (rb"(?:[\t-~\xa0-\xff]\0){4}|(?:\0[\t-~\xa0-\xff]){4}", "UTF-16 text"),
    (rb"(?s:.{257})ustar", "a tar archive"),
    (rb"\x1f\x8b\x08", "a gzip file without the suffix .gz"),
    (rb"\xfd7zXZ\0", "an xz file without the suffix .xz"),
    (rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)", "a bzip2 file"),
    (rb"\x28\xb5\x2f\xfd", "a zstd file"),
    (rb"PK(?:\x03\x04|\x05\x06)", "a zip archive or an office document"),
)
# Formats of text whose markup, tags or times would be trained on: suffixes and first
# bytes.
_MARKUP = (
    (r"\.x?html?", rb"<!doctype html|<html", "HTML"),
    (r"\.sgml?", rb"<!doctype", "SGML"),
    ("", rb"<mediawiki", "a dump of MediaWiki"),
    ("", rb"<doc\b", "output of WikiExtractor without --json"),
    (r"\.xml", rb"<\?xml", "XML"),
    (r"\.conll.?|\.bio|\.iob2?", rb"-DOCSTART-", "words with tags"),
    (r"\.srt|\.vtt", rb"WEBVTT", "subtitles with times"),
    (r"\.ipynb", rb"(?!)", "a notebook"),
)


def is_tfds(source: str) -> bool:
    """Return whether a source is a TFDS name and not a path."""
    return source.startswith(TFDS_PREFIX)


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

    With `fetch`, objects at URLs are copied to local files; other URLs stay URLs. The
    sources have no duplicates.
    """
    sources: list[str] = []
    patterns = list(patterns)
    for pattern in patterns:
        paths = [pattern] if is_tfds(pattern) else _find(pattern, fetch)
        others = [
            p for p in paths if not (is_tfds(p) or is_url(p) or os.path.isfile(p))
        ]
        if others or not paths:
            match = f"{others[0]!r}, which is not a file" if others else "no file"
            escaped = pattern.replace("[", "[[]")
            remedies = f"; for a name with '[' write {escaped!r}" * ("[" in pattern)
            if len(patterns) > 1:
                name = ", ".join(patterns)
                remedies += f"; a name with a comma needs quotes: '\"{name:.60}\"'"
            raise InputError(
                f"{pattern!r} must match files, at least one, but matches "
                f"{match}; for a folder write 'FOLDER/*.txt' in quotes, or "
                f"'FOLDER/**/*.txt' to include its subfolders{remedies}"
            )
        sources += paths
    if not sources:
        raise InputError("--input must name files: pass --input='corpus/*.txt'")
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


def _load_tfds(name: str, split: str) -> tuple[Any, Any]:
    """Open a split of a data set that TFDS has prepared; return it and its info."""
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
            f"machine ({cause_of(error)}): run `tfds build {name}` on a machine with a "
            "network and copy its folder ~/tensorflow_datasets here, or set "
            "TFDS_DATA_DIR"
        ) from error


class TfdsSource:
    """Rows of one split of a data set that TFDS has prepared on this machine.

    Labels have their names, -1 is missing.
    """

    def __init__(self, source: str):
        name, _, split = source.removeprefix(TFDS_PREFIX).partition("@")
        self._dataset, info = _load_tfds(name, split or "train")
        self._features = info.features
        self._read, count = 0, info.splits[split or "train"].num_examples
        examples = sum(part.num_examples for part in info.splits.values())
        self._bytes_per_row = info.dataset_size / max(1, examples)
        self.bytes = int(self._bytes_per_row * count)
        """Estimated bytes of the split."""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for row in self._dataset.as_numpy_iterator():
            self._read += 1
            yield _plain(row, self._features)

    def tell(self) -> int:
        """Return the estimated bytes of the rows that were read."""
        return int(self._bytes_per_row * self._read)


def _plain(value: Any, feature: Any) -> Any:
    """Return a value of TFDS as one of JSON; bytes that are not UTF-8 stay bytes."""
    import numpy as np

    feature = getattr(feature, "feature", feature)  # of a sequence
    if isinstance(value, dict):
        return {name: _plain(one, feature[name]) for name, one in value.items()}
    if isinstance(value, np.ndarray):
        return [_plain(one, feature) for one in value]
    if isinstance(value, bytes):
        with contextlib.suppress(UnicodeDecodeError):
            return value.decode()
        return value
    if hasattr(feature, "int2str"):
        return feature.int2str(int(value)) if value >= 0 else None
    # 3.8 of 32 bits is 3.7999999523 of 64.
    return float(str(value)) if isinstance(value, np.floating) else value.item()


def decompressed(path: str, file: BinaryIO) -> BinaryIO:
    """Return an open file of text, decompressed. Reading may raise one of `BROKEN`."""
    suffix = os.path.splitext(path)[1].lower()
    if opener := _OPENERS.get(suffix):
        if not (head := file.peek(HEAD_BYTES)).startswith(_MAGIC[suffix]):
            check_format(path, head)
        file = opener(file, "rb")
    check_format(path, file.peek(HEAD_BYTES))
    return file


def inner_suffix(path: str | os.PathLike) -> str:
    """Return the suffix of the decompressed file: ".csv" for "a.CSV.gz"."""
    stem, suffix = os.path.splitext(os.fspath(path).lower())
    return os.path.splitext(stem)[1] if suffix in _OPENERS else suffix


class FileFormatError(InputError):
    """Error for a file of another format than text, which has a name."""

    def __init__(self, path: str | os.PathLike, name: str):
        super().__init__(f"{path} must be UTF-8 text, plain, .gz or .xz, not {name}")
        self.name = name


def check_format(path: str | os.PathLike, head: bytes) -> None:
    """Raise an error if the first bytes of a file are those of another format."""
    for pattern, name in _FORMATS:
        if re.match(pattern, head):
            raise FileFormatError(path, name)


def check_markup(path: str, suffix: str, head: bytes) -> None:
    """Raise an error for a corpus in a format of text that is not read."""
    for suffixes, mark, name in _MARKUP:
        if re.fullmatch(suffixes, suffix or " ") or re.match(mark, head, re.IGNORECASE):
            raise FileFormatError(path, name)
