"""Sentences of tagged words, and their files of columns, one word on each line."""

import dataclasses
import os
import re
import sys
from collections.abc import Callable, Sequence
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
_Blocks = Sequence[list[_Line]]  # lines by sentence
_Fields = Callable[[str], list[str]]  # function that divides a line into columns


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
    blocks = _blocks(path)
    fields = _divider(blocks, inner_suffix(path))
    comments = _take_comments(blocks, tag_column, fields)
    skipped = {
        "comments": comments,
        "ranges and empty nodes of CoNLL-U": _take_surfaces(blocks),
    }
    parse = _parser(path, blocks, fields, word_column, tag_column)
    sentences = [_sentence(path, block, parse) for block in blocks if block]
    if tag_column is None:
        sentences = [dataclasses.replace(one, tags=None) for one in sentences]
    for kind, lines in skipped.items():
        if lines:
            number, text = lines[0]
            notify(
                f"{path}: {len(lines):,} lines skipped as {kind}, "
                f"the first is line {number}, {text!r:.60}"
            )
    _check_words(path, sentences, blocks, fields, word_column, tag_column)
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


def _blocks(path: str) -> _Blocks:
    """Return numbers and texts of the lines of each sentence."""
    blocks: list[list[_Line]] = [[]]
    with opened(path) as file:
        for number, line in numbered_lines(file):
            if number == 1 and begins_json(line):
                raise InputError(f"{path} must be named .jsonl or .json, as it is JSON")
            if line.strip(_BLANKS) and not line.startswith(_DOCUMENT):
                blocks[-1].append((number, line))
            elif blocks[-1]:
                blocks.append([])
    return blocks


def _divider(blocks: _Blocks, suffix: str) -> _Fields:
    """Return the function that divides a line into columns."""
    lines = [line for block in blocks for _, line in block if line[0] != _HASH]
    if not lines or not all("\t" in line for line in lines):
        return _fields
    if suffix != ".conllu" and len({len(_fields(line)) for line in lines}) == 1:
        return _fields
    return lambda line: [field.strip(" ") for field in line.split("\t")]


def _take_surfaces(blocks: _Blocks) -> list[_Line]:
    """Remove and return ranges and empty nodes, if all other lines are numbered."""
    taken = [row for block in blocks for row in block if _SURFACE.match(row[1])]
    words = [[row for row in block if not _SURFACE.match(row[1])] for block in blocks]
    indices = [[line.partition("\t")[0] for _, line in rows] for rows in words if rows]
    if not taken or not indices or not all(map(_counts_up, indices)):
        return []
    for block, rows in zip(blocks, words, strict=True):
        block[:] = rows
    return taken


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


def _check_words(
    path: str,
    sentences: Sequence[Sentence],
    blocks: _Blocks,
    fields: _Fields,
    word: int,
    tag: int | None,
) -> None:
    """Raise an error if the column of the words has none, and name the one to take."""
    reason = _no_words([sentence.words for sentence in sentences])
    if not reason:
        return
    rows = [[fields(line) for _, line in block] for block in blocks if block]
    width, known = len(rows[0][0]), [word] if tag is None else [word, tag]
    others = set(range(width)) - {number % width for number in known}
    columns = {n: [[row[n] for row in block] for block in rows] for n in sorted(others)}
    place = next((n for n, column in columns.items() if not _no_words(column)), None)
    if width == 1 or (place is None and reason.startswith("one")):
        return
    first = sentences[0]
    remedy = "name the column of the words with data.word_column"
    if place is not None:
        more = " --set data.tag_column=3" * (width == 10 and tag == -1)
        remedy = f"pass --set data.word_column={place}{more} to finetune"
    raise InputError(
        f"{path}:{first.line} must have words in column {word % width}, and it has "
        f"{reason}, {format_list(first.words[:3])}; {remedy}"
    )


def _take_comments(blocks: _Blocks, tag: int | None, fields: _Fields) -> list[_Line]:
    """Remove and return the comments before the first word of each sentence."""

    def has_hash(line: str) -> bool:
        return fields(line)[0] == _HASH

    def tag_of(line: str) -> str | None:
        row = fields(line)
        if tag is None:  # words alone
            return _HASH if len(row) == 1 else None
        return row[tag] if -len(row) <= tag < len(row) else None

    tags: set[str | None] = {_HASH}
    heads = [block[0][1] for block in blocks if block]
    if any(has_hash(head) and not _COMMENT.match(head) for head in heads):
        lines = (line for block in blocks for _, line in block)
        tags.update(tag_of(line) for line in lines if not has_hash(line))
        if tag is not None:
            tags.discard(None)  # of lines that are too short

    def is_comment(line: str) -> bool:
        is_known = _COMMENT.match(line)
        return bool(is_known) or (has_hash(line) and tag_of(line) not in tags)

    taken = []
    for block in blocks:
        while block and is_comment(block[0][1]):
            taken.append(block.pop(0))
    return taken


def _fields(line: str) -> list[str]:
    return re.split(f"[{_BLANKS}]+", line.strip(_BLANKS))


def _parser(
    path: str, blocks: _Blocks, fields: _Fields, word: int, tag: int | None
) -> Callable[[int, str], tuple[str, str]]:
    """Return a function that returns word and tag of a line of the first one's form."""
    columns = [word] if tag is None else [word, tag]
    least = max(-c if c < 0 else c + 1 for c in columns)
    if min(columns) < 0 <= max(columns):  # the two must not be one
        least = max(least, max(columns) + 1 - min(columns))
    number, line = next((row for block in blocks for row in block), (0, ""))
    width, first = len(fields(line)), f"line {number}, {line[:60]!r}"

    def parse(number: int, line: str) -> tuple[str, str]:
        row, shown = fields(line), f"{line[:60]!r} has"
        if match := re.search("[\0\r]", line):
            error = "NUL" if match[0] == "\0" else "carriage return", "within the line"
        elif len(row) < least:
            detail = f"{shown} {len(row)}, and must have {least} or more"
            error = "too few columns", detail
        elif len(row) != width:
            detail = f"{shown} {len(row)}, and {first}, has {width}"
            error = "another number of columns", detail
        elif not row[word]:
            error = "no word", f"{shown} none in column {word}"
        else:
            own = "" if tag is None else row[tag]
            return sys.intern(row[word]), sys.intern(own)
        raise data_error(path, number, *error)

    return parse


def _sentence(
    path: str, block: Sequence[_Line], parse: Callable[[int, str], tuple[str, str]]
) -> Sentence:
    words, tags = zip(*(parse(number, line) for number, line in block), strict=True)
    numbers = [number for number, _ in block]
    lines = range(numbers[0], numbers[-1] + 1)  # takes little memory
    lines = lines if len(lines) == len(numbers) else numbers
    return Sentence(words, tags, path, numbers[0], lines=lines)


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
