"""Read tagged sentences from column files of the CoNLL tasks, one token per line."""

import collections
import dataclasses
import os
import pathlib
import re
import sys
from collections.abc import Callable, Mapping

from electra_tf.errors import InputError
from electra_tf.tasks.schemes import is_span_scheme
from electra_tf.tasks.split_files import find_split
from electra_tf.text.compression import BROKEN, open_compressed
from electra_tf.text.data_errors import DataError, DataErrorLog
from electra_tf.text.file_formats import encoding_remedy
from electra_tf.text.json_records import SUFFIXES

DOCUMENT = "-DOCSTART-"
_BLANKS = " \t"
# `# sent_id = 1` of CoNLL-U; `# # B-NP` is a word of CoNLL-2000.
_COMMENT = re.compile(r"# +(?:[\w.:]+ *=|new(?:doc|par)\b)")
COLUMN_SUFFIXES = (".conll", ".conllu", ".bio", ".iob", ".iob2")
"""Suffixes that only column files have."""
ENDINGS = (".txt", ".tsv", *COLUMN_SUFFIXES, "", *SUFFIXES)
"""Endings of files of sentences: columns, or JSON."""
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
    """One tag for each word, unchanged from the file; None: unlabelled."""
    source: str
    line: int
    """Line number of the first word, from 1."""
    is_one_line: bool = dataclasses.field(default=False, repr=False)
    """Whether all words are on that line; otherwise word i is on line `line` + i."""

    def line_of(self, index: int) -> int:
        """Return the line number of a word."""
        return self.line if self.is_one_line else self.line + index


def read_conll(
    path: str | pathlib.Path,
    word_column: int,
    tag_column: int | None,
    log: DataErrorLog,
    separator: str | None = None,
    notify: Callable[[str], None] = print,
) -> list[Sentence]:
    """Read a file with one token per line and a blank line between sentences.

    A line that begins with `-DOCSTART-` also ends a sentence. A line such as
    `# sent_id = 1` before the first word of a sentence is a comment of CoNLL-U; any
    other `#` is a word. A sentence with a bad line is dropped as a whole.
    """
    if separator == "" or word_column == tag_column:
        raise InputError(
            "Words and tags must be two columns with a separator between them",
            f"word column {word_column}, tag column {tag_column}, "
            f"separator {separator!r}",
            "Count the columns of the file from 0, or from -1 at its end",
        )
    reader = _Reader(str(path), word_column, tag_column, log, separator)
    errors_before = log.counts.total()
    reader.read()
    if not reader.sentences and log.counts.total() == errors_before:
        remedy = "Write sentences into it, or remove it if it is not the training data"
        log.add(DataError(str(path), 0, "empty file", "no tokens", remedy))
    if reader.comments:
        number, text = reader.comments[0]
        notify(
            f"{path}: {len(reader.comments):,} lines skipped as comments of CoNLL-U, "
            f"the first is line {number}, {text!r:.60}"
        )
    return reader.sentences


def find_columns(data: str, split: str) -> str | None:
    """Find the file of a split's sentences.

    Returns:
        Path of the file; None if there is none.
    """
    if os.path.isfile(data):
        return data if split == "train" else None
    return find_split(data, split, ENDINGS)


def without_headers(
    files: Mapping[str, list[Sentence]], notify: Callable[[str], None] = print
) -> dict[str, list[Sentence]]:
    """Remove header lines such as `token tag`, and report each.

    The first line of a file is a header if both fields are usual column names, or if
    one is and the tag, in lower case, occurs on no other line.

    Returns:
        The same files without header lines.
    """
    counts = collections.Counter(
        tag for sentences in files.values() for s in sentences for tag in s.tags or ()
    )
    firsts = {split: sentences[0] for split, sentences in files.items() if sentences}
    first_counts = collections.Counter(s.tags[0] for s in firsts.values() if s.tags)
    result = dict(files)
    for split, first in firsts.items():
        if first.tags is None or first.is_one_line:
            continue
        word, tag = first.words[0], first.tags[0]
        is_name = word.lower() in _WORD_NAMES, tag.lower() in _TAG_NAMES
        is_unique = counts[tag] == first_counts[tag]
        place = f"{first.source}:{first.line}: {word!r} with the tag {tag!r}"
        if all(is_name) or (is_unique and any(is_name) and tag == tag.lower()):
            rest = dataclasses.replace(
                first, words=first.words[1:], tags=first.tags[1:], line=first.line + 1
            )
            result[split] = [*([rest] if rest.words else []), *result[split][1:]]
            notify(f"{place} is read as a header line, not as a word")
        elif is_unique and not is_span_scheme({tag}):
            notify(f"{place}: no other line has it; delete the line if it is a header")
    return result


class _Reader:
    """Reader that groups the rows of one file into sentences."""

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
        self._min_columns = _min_columns(word_column, tag_column)
        self._width: tuple[int, int, str] | None = None  # first row: columns, line
        self._start_sentence()

    def _start_sentence(self) -> None:
        self._rows: list[tuple[str, str]] = []  # words and tags
        self._first, self._is_valid = 0, True

    def read(self) -> None:
        """Read the file into `sentences`."""
        try:
            with open_compressed(self._path) as file:  # lines end with \n only
                for number, raw in enumerate(file, 1):
                    self._add_line(number, raw)
            self._end_sentence()
        except BROKEN as error:
            self._report(
                0,
                "broken archive",
                f"{error}; only the sentences before the damage are read",
                "Copy or compress the file again",
            )
        except OSError as error:
            raise InputError(
                "Each file of a task must be readable",
                str(error),
                "Check its path and permissions",
            ) from error

    def _add_line(self, number: int, raw: bytes) -> None:
        line = self._decode(number, raw)
        if line is not None and (not line.strip(_BLANKS) or line.startswith(DOCUMENT)):
            self._end_sentence()
            return
        if line is not None and not self._first and _COMMENT.match(line):
            self.comments.append((number, line))
            return
        row = None if line is None else self._row(number, line)
        self._first = self._first or number
        if row is None:
            self._is_valid = False
        else:
            self._rows.append(row)

    def _end_sentence(self) -> None:
        """Append the current sentence, unless it is empty or has a bad line."""
        if self._rows and self._is_valid:
            words, tags = map(tuple, zip(*self._rows, strict=True))
            tags = None if self._tag is None else tags
            self.sentences.append(Sentence(words, tags, self._path, self._first))
        self._start_sentence()

    def _decode(self, number: int, raw: bytes) -> str | None:
        """Return a line without its ending; report an invalid one and return None."""
        try:
            line = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            self._report_line(
                number,
                "invalid UTF-8",
                f"byte {error.start} of the line",
                encoding_remedy(self._path),
            )
            return None
        if number == 1:
            line = line.removeprefix("\ufeff")
        line = line.removesuffix("\n").removesuffix("\r")
        for character, name in (("\0", "NUL"), ("\r", "carriage return")):
            if character in line:
                self._report_line(number, name, "within the line", "Remove it")
                return None
        return line

    def _row(self, number: int, line: str) -> tuple[str, str] | None:
        """Return word and tag of a line; report invalid ones and return None."""
        if self._separator is None:
            row = re.split(f"[{_BLANKS}]+", line.strip(_BLANKS))
        else:
            row = [column.strip(" ") for column in line.split(self._separator)]
        self._width = self._width or (len(row), number, line)
        width, first, first_line = self._width
        problem = None
        if len(row) < self._min_columns:
            problem = (
                "too few columns",
                f"{len(row)}, must be {self._min_columns} or more",
            )
        elif len(row) != width:
            problem = (
                "another number of columns",
                f"{len(row)}, while line {first}, {first_line[:60]!r}, has {width}"
                + _spaces_within({first: first_line, number: line}),
            )
        elif not row[self._word] or (self._tag is not None and not row[self._tag]):
            problem = "empty column", "no word or no tag"
        if problem is None:
            tag = "" if self._tag is None else row[self._tag]
            return sys.intern(row[self._word]), sys.intern(tag)
        self._report_line(
            number,
            problem[0],
            f"{problem[1]}: {line[:60]!r}",
            "Correct the line; delete it if it is a header or comment; or set "
            "data.word_column and data.tag_column",
        )
        return None

    def _report_line(self, number: int, kind: str, detail: str, remedy: str) -> None:
        self._report(number, kind, f"{detail}; its sentence is dropped", remedy)

    def _report(self, number: int, kind: str, detail: str, remedy: str) -> None:
        self._log.add(DataError(self._path, number, kind, detail, remedy))


def _spaces_within(lines: Mapping[int, str]) -> str:
    """Describe a column between tabs with a space, which also separates columns."""
    hints = [
        f"; line {number} has a space within {column!r:.60}: write '_' instead of it"
        for number, line in lines.items()
        for column in line.split("\t")
        if "\t" in line and " " in column.strip(_BLANKS)
    ]
    return "".join(hints[:1])


def _min_columns(word: int, tag: int | None) -> int:
    """Return the least number of columns, for word and tag to be two of them."""
    columns = [word] if tag is None else [word, tag]
    least = max(-column if column < 0 else column + 1 for column in columns)
    if min(columns) < 0 <= max(columns):
        least = max(least, max(columns) + 1 - min(columns))
    return least
