"""Files of text: paths, globs and TFDS names, compressed files, and other formats."""

import contextlib
import glob
import gzip
import lzma
import os
import re
import shlex
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO

from electra_tf.errors import InputError
from electra_tf.storage.mirror import local_glob
from electra_tf.storage.objects import ObjectFolder, is_url, split_url

_TFDS_PREFIX = "tfds:"
_OPENERS: dict[str, Callable[..., BinaryIO]] = {".gz": gzip.open, ".xz": lzma.open}
_MAGIC = {".gz": b"\x1f\x8b", ".xz": b"\xfd7zXZ"}
SUFFIXES = ("", *_OPENERS)
"""Compressed suffixes, and the empty suffix of a plain file."""
BROKEN = (EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile)
"""Exceptions raised while reading a truncated or invalid archive."""
HEAD_BYTES = 512
"""Bytes from the start of a file that the format is recognised by."""
_PROGRAMS = {".gz": "gzip -dc", ".xz": "xz -dc"}
_DECODE = "convert it: {cat} {file} | iconv -f %s -t UTF-8 > NEW"
_UNPACK = "unpack it and name the files in it: %s {file}"
_DECOMPRESS = "decompress it: %s -dc {file} > NEW"
_STANDARD_INPUT = "standard input"
_SAVE = "save or export its text in UTF-8"
# First bytes, name and remedy; the first match counts.
_FORMATS = (
    (rb"\xff\xfe\0\0|\0\0\xfe\xff", "UTF-32 text", _DECODE % "UTF-32"),
    (rb"\xff\xfe|\xfe\xff", "UTF-16 text", _DECODE % "UTF-16"),
    (rb"(?:[\t-~\xa0-\xff]\0){4}", "UTF-16 text", _DECODE % "UTF-16LE"),
    (rb"(?:\0[\t-~\xa0-\xff]){4}", "UTF-16 text", _DECODE % "UTF-16BE"),
    (rb"(?s:.{257})ustar", "a tar archive", _UNPACK % "tar -xf"),
    (rb"\x1f\x8b\x08", "a gzip file", _DECOMPRESS % "gzip"),
    (rb"\xfd7zXZ\0", "an xz file", _DECOMPRESS % "xz"),
    (rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)", "a bzip2 file", _DECOMPRESS % "bzip2"),
    (rb"\x28\xb5\x2f\xfd", "a zstd file", _DECOMPRESS % "zstd"),
    (rb"\x04\x22\x4d\x18", "an lz4 file", _DECOMPRESS % "lz4"),
    (
        rb"PK(?:\x03\x04|\x05\x06)",
        "a zip archive or an office document",
        f"{_UNPACK % 'unzip'}, or {_SAVE}",
    ),
    (rb"7z\xbc\xaf\x27\x1c", "a 7z archive", _UNPACK % "7z x"),
    (rb"Rar!\x1a\x07", "a RAR archive", _UNPACK % "unrar x"),
    (rb"%PDF-", "a PDF document", _SAVE),
    (rb"\{\\rtf", "an RTF document", _SAVE),
    (rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "a document of old Office", _SAVE),
    (rb"PAR1", "a Parquet file", "name it .parquet, not compressed"),
    (rb"ARROW1|FEA1", "an Arrow file", "write its rows as .parquet"),
    (rb"\x89HDF\r\n\x1a\n", "an HDF5 file", _SAVE),
    (rb"SQLite format 3\0", "an SQLite database", _SAVE),
    (
        rb"[^\n]*\r[^\n]+\r[^\n]*\Z",
        "text whose lines end with carriage returns",
        "convert it: {cat} {file} | tr '\\r' '\\n' > NEW",
    ),
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

    With `fetch`, objects at URLs are copied to local files; other URLs stay URLs. The
    sources have no duplicates.
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
                f"{pattern!r} must match files, at least one, but matches "
                f"{match}; for a folder write 'FOLDER/*.txt' in quotes, or "
                "'FOLDER/**/*.txt' to include its subfolders"
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


def load_tfds(name: str, split: str) -> tuple[Any, Any]:
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
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise InputError(
            f"The split {split!r} of the data set {name!r} must be prepared on this "
            f"machine ({reason}): run `tfds build {name}` on a machine with a network "
            "and copy its folder ~/tensorflow_datasets here, or set TFDS_DATA_DIR"
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


def open_compressed(path: str | os.PathLike, file: BinaryIO | None = None) -> BinaryIO:
    """Open a text file, decompressed. Reading may raise one of `BROKEN`."""
    suffix = os.path.splitext(path)[1].lower()
    opener = _OPENERS.get(suffix)
    if opener:
        with open(path, "rb") if file is None else contextlib.nullcontext(file) as raw:
            if not (head := raw.peek(HEAD_BYTES)).startswith(_MAGIC[suffix]):
                check_format(path, head)
        stream = opener(path if file is None else file, "rb")
    else:
        stream = open(path, "rb") if file is None else file  # noqa: SIM115 - returned
    try:
        check_format(path, stream.peek(HEAD_BYTES), is_decompressed=bool(opener))
    except BaseException:
        if file is None:
            stream.close()
        raise
    return stream


def read_lines(path: str | None) -> Iterator[tuple[str, str]]:
    """Yield place and text of each line of a file, or of standard input."""
    name, standard = path or _STANDARD_INPUT, contextlib.nullcontext(sys.stdin.buffer)
    try:
        with open_compressed(path) if path else standard as file:
            for number, line in enumerate(file, 1):
                if number == 1 and path is None:
                    check_format(name, line)
                try:
                    text = line.decode()
                except UnicodeDecodeError as error:
                    raise InputError(
                        f"{name}, line {number} must be UTF-8: {error}; "
                        f"{encoding_remedy(path)}"
                    ) from error
                yield f"{name}, line {number}", text.rstrip("\r\n")
    except (OSError, *BROKEN) as error:
        reason = str(error) or type(error).__name__
        raise InputError(f"{name} must be readable to its end: {reason}") from error


def inner_suffix(path: str | os.PathLike) -> str:
    """Return the suffix of the decompressed file: ".csv" for "a.CSV.gz"."""
    stem, suffix = os.path.splitext(os.fspath(path).lower())
    return os.path.splitext(stem)[1] if suffix in _OPENERS else suffix


class FileFormatError(InputError):
    """Error for a file of another format than text."""

    name, remedy = "", ""
    """Name of the format, and what to do."""

    @classmethod
    def of(cls, path: str, name: str, remedy: str) -> "FileFormatError":
        """Return the error of a file."""
        rule = "must be UTF-8 text, plain, .gz or .xz"
        error = cls(f"{path} {rule}, not {name}; {remedy}")
        error.name, error.remedy = name, remedy
        return error


def check_format(
    path: str | os.PathLike, head: bytes, is_decompressed: bool = False
) -> None:
    """Raise an error if the first bytes of a file are those of another format."""
    path = os.fspath(path)
    for pattern, name, remedy in _FORMATS:
        if re.match(pattern, head):
            name += ", compressed" * is_decompressed
            file = "FILE" if path == _STANDARD_INPUT else path
            raise FileFormatError.of(path, name, _fill(remedy, file))


def check_markup(path: str, suffix: str, head: bytes) -> None:
    """Raise an error for a corpus in a format of text that is not read."""
    for suffixes, mark, name in _MARKUP:
        if re.fullmatch(suffixes, suffix or " ") or re.match(mark, head, re.IGNORECASE):
            remedy = "extract its text into .txt, or into .jsonl, a document a row"
            raise FileFormatError.of(path, name, remedy)


def encoding_remedy(path: str | os.PathLike | None) -> str:
    """Return how to convert a file, or standard input, that is not UTF-8."""
    return _fill(_DECODE % "WINDOWS-1252", os.fspath(path or "FILE")) + (
        ", or from the encoding that it was saved in, such as GB18030"
    )


def _fill(remedy: str, path: str) -> str:
    cat = _PROGRAMS.get(os.path.splitext(path)[1].lower(), "cat")
    return remedy.format(cat=cat, file=shlex.quote(path))
