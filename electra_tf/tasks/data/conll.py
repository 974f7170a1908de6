"""Tagged text in columns, as the CoNLL tasks have it: one token a line -> sentences."""

import collections
import dataclasses
import os
import pathlib
import re
from collections.abc import Callable, Mapping

from electra_tf.errors import InputError
from electra_tf.tasks.tagging.schemes import is_span_scheme
from electra_tf.text.compression import BROKEN, SUFFIXES, open_compressed
from electra_tf.text.data_errors import DataError, DataErrorLog

_DOCUMENT = "-DOCSTART-"
_BLANKS = " \t"
# `# sent_id = 1` of CoNLL-U; `# # B-NP` is a word of CoNLL-2000.
_COMMENT = re.compile(r"# +(?:[\w.:]+ *=|new(?:doc|par)\b)")
_ENDINGS = (".txt", ".conll", ".tsv", ".bio", ".iob2", "")
# Names of columns in header lines.
_WORD_NAMES = frozenset(["word", "words", "token", "tokens", "form", "text", "surface"])
_TAG_NAMES = frozenset(
    [
        "tag",
        "tags",
        "label",
        "labels",
        "pos",
        "upos",
        "xpos",
        "pos_tag",
        "pos_tags",
        "ner",
        "ner_tag",
        "ner_tags",
        "chunk",
        "chunks",
        "chunk_tag",
        "chunk_tags",
        "iob",
        "bio",
    ]
)


@dataclasses.dataclass(frozen=True, slots=True)
class Sentence:
    """Words of one sentence and, where the file has them, their tags."""

    words: tuple[str, ...]
    tags: tuple[str, ...] | None
    """One for each word, as the file writes them; None: not labelled."""
    source: str
    line: int
    """Number of the first word's line, from 1; word i stands on line `line` + i."""


def read_conll(
    path: str | pathlib.Path,
    word_column: int,
    tag_column: int | None,
    log: DataErrorLog,
    separator: str | None = None,
    tell: Callable[[str], None] = print,
) -> list[Sentence]:
    """Reads a file with a token on each line and a blank line between sentences.

    Lines that begin with `-DOCSTART-` are no words and end a sentence. Comments are
    CoNLL-U's (`# sent_id = 1`) before a first word; any other `#` is a word. Where the
    log lets the run go on, a sentence with a bad line is left out whole.

    Args:
        path: UTF-8 text with or without a byte-order mark; .gz and .xz are unpacked.
        word_column: From 0; negative ones count from the end (-1: the last).
        tag_column: Likewise; None: without tags.
        log: Where bad lines are told.
        separator: What stands between columns; None: any run of spaces and tabs, and
            of nothing else (a no-break space is part of a word). Give a tab for words
            that hold spaces; spaces at the ends of a column do not belong to it.
        tell: Called with a line about the comments of a file.

    Returns:
        The sentences, in order.

    Raises:
        InputError: The file cannot be opened, word and tag are the same column, the
            separator is empty, or the log stops at the first problem.
    """
    if separator == "" or word_column == tag_column:
        raise InputError(
            "Words and tags are two columns, with a separator between them",
            f"word column {word_column}, tag column {tag_column}, "
            f"separator {separator!r}",
            "Count the columns of the file from 0, or from -1 at its end",
        )
    reader = _Reader(str(path), word_column, tag_column, log, separator)
    known = log.counts.total()
    reader.read()
    if not reader.sentences and log.counts.total() == known:
        log.add(DataError(str(path), 0, "empty file", "no token in it", "Remove it"))
    if reader.comments:
        number, text = reader.comments[0]
        tell(
            f"{path}: {len(reader.comments):,} lines skipped as comments of CoNLL-U, "
            f"the first one line {number}, {text!r:.60}"
        )
    return reader.sentences


def find_columns(data: str, part: str) -> str | None:
    """Find the file of a part.

    Args:
        data: A folder; or a file, which is `train`.
        part: `train`, `dev` or `test`.

    Returns:
        Its path; None if there is none.
    """
    if os.path.isfile(data):
        return data if part == "train" else None
    for ending in _ENDINGS:
        for suffix in SUFFIXES:
            path = os.path.join(data, f"{part}{ending}{suffix}")
            if os.path.isfile(path):
                return path
    return None


def without_headers(
    files: Mapping[str, list[Sentence]], tell: Callable[[str], None] = print
) -> dict[str, list[Sentence]]:
    """Remove header lines such as `token tag`, and report each.

    The first line of a file is a header where both fields are usual names of columns;
    also where one is and the tag occurs in no other line.

    Args:
        files: Tagged sentences by the name of their part.
        tell: Called with a line for each header, and for a first line that may be one.

    Returns:
        The same files without header lines.
    """
    counts = collections.Counter(
        tag for found in files.values() for s in found for tag in s.tags or ()
    )
    firsts = {part: found[0] for part, found in files.items() if found}
    first_counts = collections.Counter(s.tags[0] for s in firsts.values() if s.tags)
    kept = dict(files)
    for part, first in firsts.items():
        if first.tags is None:
            continue
        word, tag = first.words[0], first.tags[0]
        named = word.lower() in _WORD_NAMES, tag.lower() in _TAG_NAMES
        once = counts[tag] == first_counts[tag]
        place = f"{first.source}:{first.line}: {word!r} with the tag {tag!r}"
        if all(named) or (once and any(named) and tag == tag.lower()):
            rest = dataclasses.replace(
                first, words=first.words[1:], tags=first.tags[1:], line=first.line + 1
            )
            kept[part] = [*([rest] if rest.words else []), *kept[part][1:]]
            tell(f"{place} was taken as a header line, not as a word")
        elif once and not is_span_scheme({tag}):
            tell(f"{place}: no other line has it; delete the line if it is a header")
    return kept


class _Reader:
    """Collects the rows of one file into sentences."""

    def __init__(
        self,
        path: str,
        word_column: int,
        tag_column: int | None,
        log: DataErrorLog,
        separator: str | None,
    ):
        self.sentences: list[Sentence] = []
        self.comments: list[tuple[int, str]] = []  # numbers and texts of lines
        self._path, self._log, self._separator = path, log, separator
        self._word, self._tag = word_column, tag_column
        self._needed = _needed(word_column, tag_column)
        self._width: tuple[int, int, str] | None = None  # the first row's, with line
        self._begin()

    def _begin(self) -> None:
        self._rows: list[list[str]] = []
        self._first, self._whole = 0, True

    def read(self) -> None:
        try:
            with open_compressed(self._path) as file:
                for number, raw in enumerate(file, 1):  # ended by \n and nothing else
                    self._take(number, raw)
            self._end()
        except BROKEN as error:
            self._report(
                0,
                "broken archive",
                f"{error}; the sentences before were read",
                "Copy or compress it again",
            )
        except OSError as error:
            raise InputError(
                "Each file of a task can be read",
                str(error),
                "Check its path and permissions",
            ) from error

    def _take(self, number: int, raw: bytes) -> None:
        line = self._decode(number, raw)
        if line is not None and (not line.strip(_BLANKS) or line.startswith(_DOCUMENT)):
            self._end()
            return
        if line is not None and not self._first and _COMMENT.match(line):
            self.comments.append((number, line))
            return
        row = None if line is None else self._row(number, line)
        self._first = self._first or number
        if row is None:
            self._whole = False
        else:
            self._rows.append(row)

    def _end(self) -> None:
        """A sentence is over, if one was begun."""
        if self._rows and self._whole:
            words = tuple(row[self._word] for row in self._rows)
            tags = None
            if self._tag is not None:
                tags = tuple(row[self._tag] for row in self._rows)
            self.sentences.append(Sentence(words, tags, self._path, self._first))
        self._begin()

    def _decode(self, number: int, raw: bytes) -> str | None:
        """The line without its end; None where it is no text, which is told."""
        try:
            line = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            self._bad(
                number,
                "invalid UTF-8",
                f"byte {error.start} of the line",
                "Convert it to UTF-8",
            )
            return None
        if number == 1:
            line = line.removeprefix("\ufeff")
        line = line.removesuffix("\n").removesuffix("\r")
        for sign, name in (("\0", "NUL"), ("\r", "carriage return")):
            if sign in line:
                self._bad(number, name, "within the line", "Remove it")
                return None
        return line

    def _row(self, number: int, line: str) -> list[str] | None:
        """The line's columns; None where they are not as they should be."""
        if self._separator is None:
            row = re.split(f"[{_BLANKS}]+", line.strip(_BLANKS))
        else:
            row = [column.strip(" ") for column in line.split(self._separator)]
        self._width = self._width or (len(row), number, line)
        width, first, first_line = self._width
        fault = None
        if len(row) < self._needed:
            fault = "too few columns", f"{len(row)} of {self._needed} or more"
        elif len(row) != width:
            fault = (
                "another number of columns",
                f"{len(row)}, while line {first}, {first_line[:60]!r}, has {width}"
                + _spaces_within({first: first_line, number: line}),
            )
        elif not row[self._word] or (self._tag is not None and not row[self._tag]):
            fault = "empty column", "nothing where a word or its tag should be"
        if fault is None:
            return row
        self._bad(
            number,
            fault[0],
            f"{fault[1]}: {line[:60]!r}",
            "Correct or delete the line (a header or a comment is no token), or set "
            "the right data.word_column and data.tag_column",
        )
        return None

    def _bad(self, number: int, kind: str, detail: str, remedy: str) -> None:
        self._report(number, kind, f"{detail}; its sentence not read", remedy)

    def _report(self, number: int, kind: str, detail: str, remedy: str) -> None:
        self._log.add(DataError(self._path, number, kind, detail, remedy))


def _spaces_within(lines: Mapping[int, str]) -> str:
    """Name columns between tabs that hold a space, which separates columns too."""
    found = [
        f"; line {number} has a space within {column!r:.60}: write '_' instead of it"
        for number, line in lines.items()
        for column in line.split("\t")
        if "\t" in line and " " in column.strip(_BLANKS)
    ]
    return "".join(found[:1])


def _needed(word: int, tag: int | None) -> int:
    """How many columns there must be, so that word and tag are two of them."""
    columns = [word] if tag is None else [word, tag]
    least = max(-column if column < 0 else column + 1 for column in columns)
    if min(columns) < 0 <= max(columns):
        least = max(least, max(columns) + 1 - min(columns))
    return least
