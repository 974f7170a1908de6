"""Recognise files that are not UTF-8 text by their first bytes."""

import os
import re
import shlex

from electra_tf.errors import InputError

HEAD_BYTES = 512
"""Bytes from the start of a file that the format is recognised by."""
_PROGRAMS = {".gz": "gzip", ".xz": "xz"}
_COMPRESSED = (*_PROGRAMS, ".bz2", ".zst", ".lz4")
_FILES = "Unpack it and name the files in it:"
_TAR = f"{_FILES} mkdir unpacked && tar -xf {{file}} -C unpacked"
_EXTRACT = "Extract its text into .txt, or into .jsonl, a document a row"
_EXPORT = "Save or export its text in UTF-8"
_UNPACK = "Decompress it: {0} -dc < {{file}} > {{new}}"
_PANDAS = (
    "Write its rows as .jsonl, for example with pandas: read_{0}(FILE)"
    ".to_json('converted.jsonl', orient='records', lines=True)"
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
    (rb"PAR1", "a Parquet file", _PANDAS.format("parquet")),
    (rb"ARROW1|FEA1", "an Arrow file", _PANDAS.format("feather")),
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


class FileFormatError(InputError):
    """Error for a file of another format than text."""

    def __init__(self, path: str, name: str, remedy: str):
        required = "The file must be UTF-8 text, plain, .gz or .xz"
        super().__init__(required, f"{path}: {name}", remedy)
        self.name = name


def check_format(path: str | os.PathLike, head: bytes, is_decompressed: bool) -> None:
    """Raise an error if the first bytes of a file are those of another format.

    Args:
        path: The file.
        head: Its first bytes.
        is_decompressed: Whether the file is compressed and `head` is not.
    """
    path = os.fspath(path)
    if name_and_remedy := _recognise(path, head):
        name, remedy = name_and_remedy
        name += ", compressed" * is_decompressed
        raise FileFormatError(path, name, _fill(remedy, path, is_decompressed))


def check_markup(path: str, suffix: str, head: bytes) -> None:
    """Raise an error for a corpus in a format of text that is not read.

    Args:
        path: The file.
        suffix: Its suffix, decompressed.
        head: Its first bytes, decompressed.
    """
    for suffixes, mark, name, remedy in _MARKUP:
        if re.fullmatch(suffixes, suffix or " ") or re.match(mark, head, re.IGNORECASE):
            raise FileFormatError(path, name, remedy)


def encoding_remedy(path: str | os.PathLike | None, data: bytes = b"") -> str:
    """Return how to convert a file that is not UTF-8.

    Args:
        path: The file; None: standard input.
        data: Its first bytes, if `check_format` has not seen them.
    """
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
