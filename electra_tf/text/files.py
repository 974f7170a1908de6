"""Files of text: paths, globs and TFDS names, compressed files, and other formats.

A file that is not UTF-8 text is recognised by its first bytes, and its error has the
command that converts it.
"""

import contextlib
import glob
import gzip
import io
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
_PROGRAMS = {".gz": "gzip", ".xz": "xz"}
_COMPRESSED = (*_PROGRAMS, ".bz2", ".zst", ".lz4")
_FILES = "Unpack it and name the files in it:"
_TAR = f"{_FILES} mkdir unpacked && tar -xf {{file}} -C unpacked"
_EXTRACT = "Extract its text into .txt, or into .jsonl, a document a row"
_EXPORT = "Save or export its text in UTF-8"
_UNPACK = "Decompress it: {0} -dc < {{file}} > {{new}}"
_FEATHER = (
    "Write its rows as .parquet, for example with pandas: read_feather(FILE)"
    ".to_parquet('converted.parquet')"
)
_UNICODE = "Convert it: iconv -f {0} -t UTF-8 {{file}} > {{new}}"
# First bytes, name and remedy; the first match counts.
_FORMATS = (
    (rb"\xff\xfe\0\0|\0\0\xfe\xff", "UTF-32 text", _UNICODE.format("UTF-32")),
    (rb"\xff\xfe|\xfe\xff", "UTF-16 text", _UNICODE.format("UTF-16")),
    (
        rb"(?:[\t-~\xa0-\xff]\0){4}",
        "UTF-16 text without mark",
        _UNICODE.format("UTF-16LE"),
    ),
    (
        rb"(?:\0[\t-~\xa0-\xff]){4}",
        "UTF-16 text without mark",
        _UNICODE.format("UTF-16BE"),
    ),
    (rb"\x1f\x8b\x08", "a gzip file", _UNPACK.format("gzip")),
    (rb"\xfd7zXZ\0", "an xz file", _UNPACK.format("xz")),
    (rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)", "a bzip2 file", _UNPACK.format("bzip2")),
    (rb"\x28\xb5\x2f\xfd", "a zstd file", _UNPACK.format("zstd")),
    (rb"\x04\x22\x4d\x18", "an lz4 file", _UNPACK.format("lz4")),
    (
        rb"PK(?:\x03\x04|\x05\x06)",
        "a zip archive",
        f"{_FILES} unzip {{file}} -d unpacked",
    ),
    (rb"7z\xbc\xaf\x27\x1c", "a 7z archive", f"{_FILES} 7z x {{file}} -ounpacked"),
    (rb"Rar!\x1a\x07", "a RAR archive", f"{_FILES} unrar x {{file}} unpacked/"),
    (rb"%PDF-", "a PDF document", _EXPORT),
    (rb"\{\\rtf", "an RTF document", _EXPORT),
    (rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "a document of old Office", _EXPORT),
    (rb"PAR1", "a Parquet file", "Name it .parquet, not compressed"),
    (rb"ARROW1|FEA1", "an Arrow file", _FEATHER),
    (rb"\x89HDF\r\n\x1a\n", "an HDF5 file", _EXPORT),
    (rb"SQLite format 3\0", "an SQLite database", _EXPORT),
)
# Formats that are text, but markup, tags or times beside it would be trained on.
_MARKUP = (
    (r"\.x?html?", rb"<!doctype html|<html", "HTML", _EXTRACT),
    (r"\.sgml?", rb"<!doctype", "SGML", _EXTRACT),
    ("", rb"<mediawiki", "a dump of MediaWiki", _EXTRACT + ": WikiExtractor --json"),
    ("", rb"<doc\b", "output of WikiExtractor", "Run WikiExtractor with --json"),
    (r"\.xml", rb"<\?xml", "XML", _EXTRACT),
    (r"\.conll.?|\.bio|\.iob2?", rb"-DOCSTART-", "words with tags", _EXTRACT),
    (r"\.srt|\.vtt", rb"WEBVTT", "subtitles with times", _EXTRACT),
    (r"\.ipynb", rb"(?!)", "a notebook", _EXTRACT),
)
_ZIPPED = {
    **dict.fromkeys([".docx", ".odt"], "a document of a word processor"),
    **dict.fromkeys([".xlsx", ".ods"], "a spreadsheet"),
    **dict.fromkeys([".pptx", ".odp"], "a presentation"),
    ".epub": "an e-book",
    ".npz": "a NumPy archive",
}


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


def open_compressed(path: str | os.PathLike, file: BinaryIO | None = None) -> BinaryIO:
    """Open a text file, decompressed; its lines end with a line feed.

    Reading may raise one of `BROKEN`.
    """
    suffix = os.path.splitext(path)[1].lower()
    is_compressed = suffix in _OPENERS
    if is_compressed:
        with open(path, "rb") if file is None else contextlib.nullcontext(file) as raw:
            if not (head := raw.peek(HEAD_BYTES)).startswith(_MAGIC[suffix]):
                check_format(path, head, is_decompressed=False)
        stream = _OPENERS[suffix](path if file is None else file, "rb")
    else:
        stream = open(path, "rb") if file is None else file  # noqa: SIM115 - returned
    try:
        head = stream.peek(HEAD_BYTES)
        check_format(path, head, is_compressed)
    except BaseException:
        if file is None:
            stream.close()
        raise
    if b"\r" in head and b"\n" not in head:
        return io.BufferedReader(_CarriageReturns(stream))
    return stream


def read_lines(path: str | None) -> Iterator[tuple[str, str]]:
    """Yield place and text of each line of a file, or of standard input."""
    name, standard = path or "standard input", contextlib.nullcontext(sys.stdin.buffer)
    try:
        with open_compressed(path) if path else standard as file:
            for number, line in enumerate(file, 1):
                place = f"{name}, line {number}"
                if number == 1 and path is None:
                    check_format("FILE", line[:HEAD_BYTES], is_decompressed=False)
                yield place, _decode(line, path, place).rstrip("\r\n")
    except (OSError, *BROKEN) as error:
        raise InputError(
            f"{name} must be readable to its end",
            str(error) or type(error).__name__,
            "Check the path and its permissions, or copy or compress the file again",
        ) from error


def _decode(line: bytes, path: str | None, place: str) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise InputError(
            "Each line must be UTF-8", f"{place}: {error}", encoding_remedy(path, line)
        ) from error


def inner_suffix(path: str | os.PathLike) -> str:
    """Return the suffix of the decompressed file: ".csv" for "a.CSV.gz"."""
    stem, suffix = os.path.splitext(os.fspath(path).lower())
    return os.path.splitext(stem)[1] if suffix in _OPENERS else suffix


class _CarriageReturns(io.RawIOBase):
    """Bytes of a file whose lines end with carriage returns, as on old Macs."""

    def __init__(self, file: BinaryIO):
        super().__init__()
        self._file, self._is_within = file, False  # between "\r" and "\n"

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        data = self._file.read(len(buffer))
        if self._is_within and data == b"\n":
            data = self._file.read(len(buffer))
        elif self._is_within:
            data = data.removeprefix(b"\n")
        self._is_within = data.endswith(b"\r")
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


class FileFormatError(InputError):
    """Error for a file of another format than text."""

    def __init__(self, path: str, name: str, remedy: str):
        required = "The file must be UTF-8 text, plain, .gz or .xz"
        super().__init__(required, f"{path}: {name}", remedy)
        self.name = name


def check_format(path: str | os.PathLike, head: bytes, is_decompressed: bool) -> None:
    """Raise an error if the first bytes of a file are those of another format."""
    path = os.fspath(path)
    if name_and_remedy := _recognise(path, head):
        name, remedy = name_and_remedy
        name += ", compressed" * is_decompressed
        raise FileFormatError(path, name, _fill(remedy, path, is_decompressed))


def check_markup(path: str, suffix: str, head: bytes) -> None:
    """Raise an error for a corpus in a format of text that is not read."""
    for suffixes, mark, name, remedy in _MARKUP:
        if re.fullmatch(suffixes, suffix or " ") or re.match(mark, head, re.IGNORECASE):
            raise FileFormatError(path, name, remedy)


def encoding_remedy(path: str | os.PathLike | None, data: bytes = b"") -> str:
    """Return how to convert a file, or standard input, that is not UTF-8."""
    path = "FILE" if path is None else os.fspath(path)
    _, remedy = _recognise(path, data) or (
        None,
        "Convert it from the encoding it was saved in, for example WINDOWS-1252 or "
        "GB18030: iconv -f WINDOWS-1252 -t UTF-8 {file} > {new}",
    )
    return _fill(remedy, path, is_decompressed=True)


def _fill(remedy: str, path: str, is_decompressed: bool) -> str:
    """Insert the names of the file and of the one to write into a remedy."""
    stem, suffix = os.path.splitext(path)
    is_compressed = suffix.lower() in _COMPRESSED
    new = "converted" + (os.path.splitext(stem)[1] if is_compressed else suffix)
    file, program = shlex.quote(path), _PROGRAMS.get(suffix.lower())
    # `tar` decompresses the archive itself.
    if not is_decompressed or not program or remedy == _TAR:
        return remedy.format(file=file, new=new)
    unpacked = new.replace("converted", "unpacked", 1)
    step = f"Decompress it: {program} -dc < {file} > {unpacked}. "
    return step + remedy.format(file=unpacked, new=new)


def _recognise(path: str, head: bytes) -> tuple[str, str] | None:
    """Return the name and the remedy of a format; None: probably text."""
    if head[257:262] == b"ustar":
        return "a tar archive", _TAR
    for pattern, name, remedy in _FORMATS:
        if not re.match(pattern, head):
            continue
        document = _ZIPPED.get(os.path.splitext(path)[1].lower())
        if document and name == "a zip archive":
            return document, _EXPORT
        return name, remedy
    return None
