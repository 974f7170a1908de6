"""Sentences of tagged words, and their files of columns, one word on each line."""

import dataclasses
import itertools
import os
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from electra_tf.errors import InputError, format_list
from electra_tf.tasks.data.files import Notify, opened, refuse_binary
from electra_tf.tasks.data.schemes import is_span_scheme, to_bioes
from electra_tf.tasks.data.span_records import SpanForm
from electra_tf.text.data_errors import data_error
from electra_tf.text.files import inner_suffix
from electra_tf.text.lines import numbered_lines
from electra_tf.text.rows import begins_json

COLUMN_SUFFIXES = (".conll", ".conllu", ".bio", ".iob", ".iob2")
"""Suffixes that only column files have."""
_NO_COLUMNS = (".csv", ".parquet", ".xlsx", ".xls", ".ods", ".xml", ".html")
_DOCUMENT = "-DOCSTART-"
_BLANKS = " \t"
# `# sent_id = 1` of CoNLL-U, `#begin document` of CoNLL-2012, `#Text=` of WebAnno.
_COMMENT = re.compile(
    r"# +(?:[\w.:]+ *=|new(?:doc|par)\b)|#(?:begin|end) document\b"
    "|#(?:FORMAT|T_SP|T_CH|T_RL|Text|Sentence[.]id)="
)
_HASH = "#"
_SURFACE = re.compile(r"\d+[-.]\d+\t")  # of several words, or of a word left out
_RANGE = re.compile(r"\d+-\d+")
# Names of columns, which a first line must not have.
_HEADER = re.compile(
    "(?:(?:word|token)s?|form|text|surface) "
    "(?:(?:(?:pos|ner|chunk)_)?tags?|labels?|[ux]?pos|ner|chunks?|iob|bio)"
)

_Line = tuple[int, str]  # its number and its text


@dataclasses.dataclass(frozen=True, slots=True)
class Sentence:
    """Words of one sentence and, where the file has them, their tags."""

    words: tuple[str, ...]
    tags: tuple[str, ...] | None  # one for each word, unchanged; None: unlabelled
    source: str
    line: int  # line number of the first word, from 1
    text: str | None = dataclasses.field(default=None, repr=False)
    """The text that was split into the words; None: the words were given."""
    offsets: Sequence[tuple[int, int]] = dataclasses.field(default=(), repr=False)
    """Characters (start, end) of each word in the text."""
    lines: Sequence[int] = dataclasses.field(default=(), repr=False)
    """Line number of each word; empty: all are on the first one's line."""
    form: SpanForm | None = dataclasses.field(default=None, repr=False)
    """The form of its record; None: not one of spans of characters."""

    @property
    def texts(self) -> tuple[str, ...]:
        """The text, or the words with spaces between them."""
        return (self.text or " ".join(self.words),)

    @property
    def place(self) -> str:
        """File and line."""
        return f"{self.source}:{self.line}"

    def line_of(self, index: int) -> int:
        """Return the line number of a word."""
        return self.lines[index] if self.lines else self.line


def as_sentence(
    item: Any, tags: tuple[str, ...] | None = None, index: int = 0
) -> Sentence:
    """Return an element of `x` as a valid sentence with these tags."""
    words = item.words if isinstance(item, Sentence) else item
    if isinstance(words, str) or not all(isinstance(word, str) for word in words):
        raise InputError(
            f"a sentence must be a list of words, not {words!r:.80} at index {index}; "
            "use sentence.split(); entities(texts) takes raw texts"
        )
    if tags is not None and len(tags) != len(words):
        raise InputError(
            f"each word must have a tag, and index {index} has {len(words)} words and "
            f"{len(tags)} tags"
        )
    if isinstance(item, Sentence):
        return dataclasses.replace(item, tags=tags)
    return Sentence(tuple(words), tags, "the given sentences", index + 1)


def require_sentences(sentences: list[Sentence], path: str) -> list[Sentence]:
    """Return the sentences of a file; raise an error if there are none."""
    if not sentences:
        raise InputError(f"{path} must have a valid sentence, and has none")
    return sentences


def read_conll(
    path: str | os.PathLike,
    word_column: int,
    tag_column: int | None,
    notify: Notify = print,
) -> list[Sentence]:
    """Read a file with one word per line and a blank line between sentences.

    A line that begins with `-DOCSTART-` also ends a sentence. Comments before the first
    word of a sentence are skipped: those of CoNLL-U and CoNLL-2012, and lines whose
    first column is `#`, but whose tag is no tag of other lines. `# # B-NP` is a word.
    Ranges (1-2) and empty nodes (3.1) of CoNLL-U are skipped. Tabs alone divide columns
    if each line has one and words have spaces.
    """
    path = os.fspath(path)
    _check_arguments(path, word_column, tag_column)
    file = _Columns(path, word_column, tag_column)
    skipped = {
        "comments": file.take_comments(),
        "ranges and empty nodes of CoNLL-U": file.take_surfaces(),
    }
    sentences = file.sentences()
    for kind, lines in skipped.items():
        if lines:
            number, text = lines[0]
            notify(
                f"{path}: {len(lines):,} lines skipped as {kind}, "
                f"the first is line {number}, {text!r:.60}"
            )
    file.check_words(sentences)
    first = require_sentences(sentences, path)[0]
    head = f"{first.words[0]} {first.tags[0]}".lower() if first.tags else ""
    if _HEADER.fullmatch(head):
        raise InputError(
            f"{path}:{first.line} must be a word and its tag, and {head!r} are names "
            "of columns; delete that line"
        )
    return sentences


def _check_arguments(path: str, word: int, tag: int | None) -> None:
    """Raise an error for a file without columns of words, and for one column twice."""
    refuse_binary(path)
    if inner_suffix(path) in _NO_COLUMNS:
        raise InputError(
            f"{path} must be columns (.txt, .conll, .tsv): a word, a tab and its tag "
            "on each line, and a blank line after each sentence"
        )
    if word == tag:
        raise InputError(
            f"data.word_column and data.tag_column must differ, and both are {tag}"
        )


class _Columns:
    """Lines of a file by sentence, with the columns of words and tags."""

    def __init__(self, path: str, word: int, tag: int | None):
        self._path, self._word, self._tag = path, word, tag
        self._blocks: list[list[_Line]] = [[]]
        with opened(path) as file:
            for number, line in numbered_lines(file):
                if number == 1 and begins_json(line):
                    raise InputError(
                        f"{path} must be named .jsonl or .json, as it is JSON"
                    )
                if line.strip(_BLANKS) and not line.startswith(_DOCUMENT):
                    self._blocks[-1].append((number, line))
                elif self._blocks[-1]:
                    self._blocks.append([])
        lines = [line for _, line in self._lines() if line[0] != _HASH]
        has_tabs = bool(lines) and all("\t" in line for line in lines)
        # Words have spaces where these would give lines of different widths.
        self._has_spaces = has_tabs and (
            inner_suffix(path) == ".conllu" or len({len(_split(x)) for x in lines}) > 1
        )

    def _lines(self) -> Iterator[_Line]:
        return itertools.chain.from_iterable(self._blocks)

    def _fields(self, line: str) -> list[str]:
        """Return the columns of a line."""
        if self._has_spaces:
            return [field.strip(" ") for field in line.split("\t")]
        return _split(line)

    def take_surfaces(self) -> list[_Line]:
        """Remove and return ranges and empty nodes, if other lines are numbered."""
        taken = [row for row in self._lines() if _SURFACE.match(row[1])]
        words = [
            [row for row in block if not _SURFACE.match(row[1])]
            for block in self._blocks
        ]
        indices = [[line.partition("\t")[0] for _, line in rows] for rows in words]
        indices = list(filter(None, indices))
        if not taken or not indices or not all(map(_counts_up, indices)):
            return []
        self._blocks = words
        return taken

    def take_comments(self) -> list[_Line]:
        """Remove and return the comments before the first word of each sentence."""
        tags: set[str | None] = {_HASH}
        heads = [block[0][1] for block in self._blocks if block]
        if any(self._has_hash(h) and not _COMMENT.match(h) for h in heads):
            others = (x for _, x in self._lines() if not self._has_hash(x))
            tags.update(map(self._tag_of, others))
            if self._tag is not None:
                tags.discard(None)  # of lines that are too short
        taken = []
        for block in self._blocks:
            while block and (
                _COMMENT.match(line := block[0][1])
                or (self._has_hash(line) and self._tag_of(line) not in tags)
            ):
                taken.append(block.pop(0))
        return taken

    def _has_hash(self, line: str) -> bool:
        return self._fields(line)[0] == _HASH

    def _tag_of(self, line: str) -> str | None:
        row, tag = self._fields(line), self._tag
        if tag is None:  # words alone
            return _HASH if len(row) == 1 else None
        return row[tag] if -len(row) <= tag < len(row) else None

    def sentences(self) -> list[Sentence]:
        """Return words and tags of the lines, which must have the first one's form."""
        columns = [self._word] if self._tag is None else [self._word, self._tag]
        least = max(-c if c < 0 else c + 1 for c in columns)
        if min(columns) < 0 <= max(columns):  # the two must not be one
            least = max(least, max(columns) + 1 - min(columns))
        first = next(self._lines(), (0, ""))
        width, found = len(self._fields(first[1])), []
        for block in filter(None, self._blocks):
            rows = [self._fields(line) for _, line in block]
            for line, row in zip(block, rows, strict=True):
                if error := self._error(line, row, least, width, first):
                    raise data_error(self._path, line[0], *error)
            words = tuple(sys.intern(row[self._word]) for row in rows)
            tags = None
            if self._tag is not None:
                tags = tuple(sys.intern(row[self._tag]) for row in rows)
            numbers = [number for number, _ in block]
            lines = range(numbers[0], numbers[-1] + 1)  # takes little memory
            lines = lines if len(lines) == len(numbers) else numbers
            found.append(Sentence(words, tags, self._path, numbers[0], lines=lines))
        return found

    def _error(
        self, line: _Line, row: list[str], least: int, width: int, first: _Line
    ) -> tuple[str, str] | None:
        """Return kind and detail of the error of a line; None: it is valid."""
        shown = f"{line[1][:60]!r} has"
        if match := re.search("[\0\r]", line[1]):
            return "NUL" if match[0] == "\0" else "carriage return", "within the line"
        if len(row) < least:
            detail = f"{shown} {len(row)}, and must have {least} or more"
            return "too few columns", detail
        if len(row) != width:
            other = f"line {first[0]}, {first[1][:60]!r}, has {width}"
            return "another number of columns", f"{shown} {len(row)}, and {other}"
        if not row[self._word]:
            return "no word", f"{shown} none in column {self._word}"
        return None

    def check_words(self, sentences: Sequence[Sentence]) -> None:
        """Raise an error if the column of the words has none; name the one to take."""
        reason = _no_words([sentence.words for sentence in sentences])
        if not reason:
            return
        word, tag = self._word, self._tag
        rows = [[self._fields(line) for _, line in block] for block in self._blocks]
        rows = list(filter(None, rows))
        width, known = len(rows[0][0]), [word] if tag is None else [word, tag]
        others = set(range(width)) - {number % width for number in known}
        columns = {n: [[r[n] for r in block] for block in rows] for n in sorted(others)}
        place = next((n for n in columns if not _no_words(columns[n])), None)
        if width == 1 or (place is None and reason.startswith("one")):
            return
        first = sentences[0]
        remedy = "name the column of the words with data.word_column"
        if place is not None:
            more = " --set data.tag_column=3" * (width == 10 and tag == -1)
            remedy = f"pass --set data.word_column={place}{more} to finetune"
        raise InputError(
            f"{self._path}:{first.line} must have words in column {word % width}, and "
            f"it has {reason}, {format_list(first.words[:3])}; {remedy}"
        )


def _split(line: str) -> list[str]:
    return re.split(f"[{_BLANKS}]+", line.strip(_BLANKS))


def _counts_up(words: Sequence[str]) -> bool:
    """Return whether words are numbers, each one more than the one before."""
    if not (words[0].isdecimal() and len(words[0]) < 10):
        return False
    first = int(words[0])
    return list(words) == [str(first + index) for index in range(len(words))]


def _no_words(column: Sequence[Sequence[str]]) -> str:
    """Return why a column cannot be the words of sentences; empty: it can."""
    if all(len(values) < 2 for values in column):
        return ""
    if all(map(_counts_up, column)):
        return "numbers that count up"
    if all(_RANGE.fullmatch(value) for values in column for value in values):
        return "pairs of numbers"
    is_one = all(len(set(values)) == 1 for values in column)
    return "one value in each sentence" if is_one else ""


def is_column_file(lines: Sequence[str], tags: Sequence[str]) -> bool:
    """Return whether the first lines of a file are words with tags, not sentences."""
    rows = [line.split() for line in lines if line.strip() and line[0] != "#"]
    if rows and rows[0][0] == _DOCUMENT:
        return True
    if len(rows) < 2 or len(rows[0]) < 2 or len({len(row) for row in rows}) != 1:
        return False
    last = {row[-1] for row in rows}
    # Sentences of one length that all end with "." are not columns of punctuation.
    if is_span_scheme(last) or to_bioes(dict.fromkeys(last, 1)):
        return True
    return len(last) > 1 and last <= set(tags)
