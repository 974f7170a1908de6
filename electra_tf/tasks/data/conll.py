"""Sentences of tagged words, and their files of columns, one word on each line."""

import collections
import dataclasses
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from electra_tf.errors import InputError, format_list
from electra_tf.tasks.data.files import Notify, opened, refuse_binary
from electra_tf.tasks.data.schemes import STRAY, is_span_scheme, to_bioes
from electra_tf.tasks.data.span_records import SpanForm
from electra_tf.text.data_errors import data_error
from electra_tf.text.files import inner_suffix
from electra_tf.text.rows import begins_json, numbered_lines

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

_Blocks = Sequence[list[tuple[int, str]]]  # numbers and texts of lines by sentence
_Fields = Callable[[str], list[str]]  # function that divides a line into columns


@dataclasses.dataclass(frozen=True, slots=True)
class Sentence:
    """Words of one sentence and, where the file has them, their tags."""

    words: tuple[str, ...]
    tags: tuple[str, ...] | None  # one for each word, unchanged; None: unlabelled
    source: str
    line: int  # line number of the first word, from 1
    is_one_line: bool = dataclasses.field(default=False, repr=False)
    """Whether all words are on that line; otherwise word i is on line `line` + i."""
    text: str | None = dataclasses.field(default=None, repr=False)
    """The text that was split into the words; None: the words were given."""
    offsets: Sequence[tuple[int, int]] = dataclasses.field(default=(), repr=False)
    """Characters (start, end) of each word in the text."""
    lines: Sequence[int] = dataclasses.field(default=(), repr=False)
    """Line number of each word; empty: they follow one another."""
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
        if self.lines:
            return self.lines[index]
        return self.line if self.is_one_line else self.line + index


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
    refuse_binary(path)
    if inner_suffix(path) in _NO_COLUMNS:
        raise InputError(
            f"{path} must be columns (.txt, .conll, .tsv): a word, a tab and its tag "
            "on each line, and a blank line after each sentence"
        )
    if word_column == tag_column:
        raise InputError(
            "data.word_column and data.tag_column must differ, and both are "
            f"{tag_column}"
        )
    blocks = _blocks(path)
    fields = _divider(blocks, inner_suffix(path))
    parser = _Columns(path, word_column, tag_column, fields)
    is_comment = _comments(blocks, tag_column, fields)
    comments, sentences = [], []
    for block in blocks:
        while block and is_comment(block[0][1]):
            comments.append(block.pop(0))
    surfaces = _skip_surfaces(blocks)
    for block in blocks:
        rows = [parser.parse(number, line) for number, line in block]
        if rows:
            words, tags = map(tuple, zip(*rows, strict=True))
            tags = None if tag_column is None else tags
            first, lines = block[0][0], [number for number, _ in block]
            lines = lines if lines[-1] - first >= len(lines) else ()
            sentences.append(Sentence(words, tags, path, first, lines=lines))
    kinds = {"comments": comments, "ranges and empty nodes of CoNLL-U": surfaces}
    for kind, skipped in kinds.items():
        if skipped:
            number, text = skipped[0]
            notify(
                f"{path}: {len(skipped):,} lines skipped as {kind}, "
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


def _blocks(path: str) -> list[list[tuple[int, str]]]:
    """Return numbers and texts of the lines of each sentence."""
    blocks: list[list[tuple[int, str]]] = [[]]
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


def _skip_surfaces(blocks: _Blocks) -> list[tuple[int, str]]:
    """Remove and return ranges and empty nodes, if all other lines are numbered."""
    if not any(_SURFACE.match(line) for block in blocks for _, line in block):
        return []
    words = [[row for row in block if not _SURFACE.match(row[1])] for block in blocks]
    indices = [[line.partition("\t")[0] for _, line in block] for block in words]
    if not any(indices) or not all(_counts_up(own) for own in indices if own):
        return []
    skipped = [row for block in blocks for row in block if _SURFACE.match(row[1])]
    for block, own in zip(blocks, words, strict=True):
        block[:] = own
    return skipped


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


def _comments(blocks: _Blocks, tag: int | None, fields: _Fields) -> Any:
    """Return a test of the lines before the first word of a sentence."""

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
    return lambda line: (
        bool(_COMMENT.match(line)) or (has_hash(line) and tag_of(line) not in tags)
    )


def _fields(line: str) -> list[str]:
    return re.split(f"[{_BLANKS}]+", line.strip(_BLANKS))


class _Columns:
    """Parser of the lines of one file, which must have the same number of columns."""

    def __init__(self, path: str, word: int, tag: int | None, fields: _Fields):
        self._path, self._word, self._tag, self._fields = path, word, tag, fields
        columns = [word] if tag is None else [word, tag]
        self._least = max(-c if c < 0 else c + 1 for c in columns)
        if min(columns) < 0 <= max(columns):  # the two must not be one
            self._least = max(self._least, max(columns) + 1 - min(columns))
        self._first: tuple[int, int, str] | None = None  # columns, number, line

    def parse(self, number: int, line: str) -> tuple[str, str]:
        """Return word and tag of a line."""
        row, match = self._fields(line), re.search("[\0\r]", line)
        if not match and len(row) >= self._least:
            self._first = self._first or (len(row), number, line)
        width, first, first_line = self._first or (0, 0, "")
        if match:
            kind = "NUL" if match[0] == "\0" else "carriage return"
            detail = "within the line"
        elif len(row) == width and width >= self._least and not row[self._word]:
            kind, detail = "no word", f"{line[:60]!r} has none in column {self._word}"
        elif len(row) == width and width >= self._least:
            tag = "" if self._tag is None else row[self._tag]
            return sys.intern(row[self._word]), sys.intern(tag)
        elif len(row) < self._least:
            kind = "too few columns"
            detail = (
                f"{line[:60]!r} has {len(row)}, and must have {self._least} or more"
            )
        else:
            kind = "another number of columns"
            detail = (
                f"{line[:60]!r} has {len(row)}, and line {first}, {first_line[:60]!r}, "
                f"has {width}"
            )
        raise data_error(self._path, number, kind, detail)


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


def with_bioes_tags(
    files: Mapping[str, list[Sentence]],
    known: Sequence[str] = (),
    notify: Notify = print,
) -> dict[str, list[Sentence]]:
    """Replace tags of BILOU and BMES by those of BIOES, and report it.

    `known`: tags of a model; one that has learned other letters needs them unchanged.
    """
    counts = collections.Counter(
        tag for sentences in files.values() for s in sentences for tag in s.tags or ()
    )
    new = to_bioes(counts, max(1, STRAY * counts.total()))
    if not new or to_bioes(dict.fromkeys(known, 1)):
        return dict(files)
    source = next(s.source for sentences in files.values() for s in sentences)
    shown = ", ".join(f"{old!r} as {tag!r}" for old, tag in list(new.items())[:3])
    notify(f"{source}: tags are read as BIOES, {shown}")

    def with_new(sentence: Sentence) -> Sentence:
        if sentence.tags is None:
            return sentence
        tags = tuple(new.get(tag, tag) for tag in sentence.tags)
        return dataclasses.replace(sentence, tags=tags)

    return {split: list(map(with_new, sentences)) for split, sentences in files.items()}
