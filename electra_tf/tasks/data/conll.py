"""Read tagged sentences: columns, one word per line, or JSON with lists of both."""

import collections
import dataclasses
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from electra_tf.config.finetuning import DataConfig
from electra_tf.errors import InputError, format_list
from electra_tf.tasks.data.files import Notify, has_bad_bytes, read_text
from electra_tf.tasks.data.records import read_json
from electra_tf.tasks.data.schemes import STRAY, is_span_scheme, respelled, write_spans
from electra_tf.tasks.data.span_records import (
    SpanForm,
    complete_annotations,
    find_form,
    is_rejected,
    to_word_spans,
)
from electra_tf.tasks.data.splits import warn_of_unused_splits
from electra_tf.text.data_errors import DataErrorLog
from electra_tf.text.files import inner_suffix
from electra_tf.text.rows import JSON_SUFFIXES, begins_json, describe_json
from electra_tf.text.tokenizer import WordPieceTokenizer
from electra_tf.text.vocab import SPECIAL_TOKENS, Vocabulary

COLUMN_SUFFIXES = (".conll", ".conllu", ".bio", ".iob", ".iob2")
"""Suffixes that only column files have."""
ENDINGS = (".txt", ".tsv", *COLUMN_SUFFIXES, "", *JSON_SUFFIXES)
"""Endings of files of sentences: columns, or JSON."""
WORD_KEYS = ("words", "tokens")
"""Usual keys of the words of a sentence in JSON."""
TAG_KEYS = ("ner_tags", "tags", "labels", "chunk_tags", "pos_tags", "upos", "xpos")
"""Usual keys of their tags."""
_NO_COLUMNS = (".csv", ".parquet", ".xlsx", ".xls", ".ods", ".xml", ".html")
_DOCUMENT = "-DOCSTART-"
_BLANKS = " \t"
# `# sent_id = 1` of CoNLL-U, and `#begin document` of CoNLL-2012.
_COMMENT = re.compile(r"# +(?:[\w.:]+ *=|new(?:doc|par)\b)|#(?:begin|end) document\b")
_HASH = "#"
# Names of columns, which a first line must not have.
_WORD_NAME = re.compile("(?:word|token)s?|form|text|surface")
_TAG_NAME = re.compile(
    "(?:(?:pos|ner|chunk)_)?tags?|labels?|[ux]?pos|ner|chunks?|iob|bio"
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
    text: str | None = dataclasses.field(default=None, repr=False)
    """The text that was split into the words; None: the words were given."""
    offsets: Sequence[tuple[int, int]] = dataclasses.field(default=(), repr=False)
    """Characters (start, end) of each word in the text."""
    form: SpanForm | None = dataclasses.field(default=None, repr=False)
    """The form of its record; None: not one of spans of characters."""

    @property
    def texts(self) -> tuple[str, ...]:
        """The text, or the words with spaces between them."""
        return (self.text or " ".join(self.words),)

    def line_of(self, index: int) -> int:
        """Return the line number of a word."""
        return self.line if self.is_one_line else self.line + index


def as_sentence(
    item: Any, tags: tuple[str, ...] | None = None, index: int = 0
) -> Sentence:
    """Return an element of `x` as a valid sentence with these tags."""
    words = item.words if isinstance(item, Sentence) else item
    if isinstance(words, str) or not all(isinstance(word, str) for word in words):
        raise InputError(
            "A sentence must be a list of words",
            f"{words!r:.80} at index {index}",
            "Split it: sentence.split(); entities(texts) takes raw texts",
        )
    if tags is not None and len(tags) != len(words):
        raise InputError(
            "Each word must have a tag",
            f"{len(words)} words and {len(tags)} tags at index {index}",
            "Pass lists of one length",
        )
    if isinstance(item, Sentence):
        return dataclasses.replace(item, tags=tags)
    return Sentence(tuple(words), tags, "the given sentences", index + 1)


def read_sentences(
    path: str,
    settings: DataConfig,
    log: DataErrorLog,
    notify: Notify = print,
    tokenizer: WordPieceTokenizer | None = None,
) -> list[Sentence]:
    """Read a labelled file of columns or JSON.

    `tokenizer` splits texts with spans of characters; None: BERT's rules.
    """
    kind = inner_suffix(path)
    if kind in JSON_SUFFIXES:
        return _read_json_sentences(path, settings, log, notify, tokenizer)
    if has_no_columns(path):
        raise InputError(
            "Sentences with tags must be a column file (.txt, .conll, .tsv) with a "
            "word on each line, or JSON lines (.jsonl) with lists of words and tags",
            f"{path!r}, a {kind} file",
            "Convert it: a line is a word, a tab and its tag; a blank line ends a "
            "sentence",
        )
    columns = settings.word_column, settings.tag_column
    return read_conll(path, *columns, log, notify)


def has_no_columns(path: str) -> bool:
    """Return whether a file has a suffix of other formats than columns and JSON."""
    return inner_suffix(path) in _NO_COLUMNS


# Column files.


def read_conll(
    path: str | os.PathLike,
    word_column: int,
    tag_column: int | None,
    log: DataErrorLog,
    notify: Notify = print,
) -> list[Sentence]:
    """Read a file with one word per line and a blank line between sentences.

    A line that begins with `-DOCSTART-` also ends a sentence. Comments before the first
    word of a sentence are skipped (see `_Comments`); any other `#` is a word. A
    sentence with a bad line is dropped as a whole.
    """
    path = os.fspath(path)
    if word_column == tag_column:
        raise InputError(
            "Words and tags must be two columns",
            f"word column {word_column} and tag column {tag_column}",
            "Count the columns of the file from 0, or from -1 at its end",
        )
    parser = _Columns(path, word_column, tag_column, log)
    comments, sentences = [], []
    blocks = list(_blocks(read_text(path, log), path))
    is_comment = _Comments(
        [[line for _, line in block] for block in blocks], tag_column
    )
    for block in blocks:
        while block and is_comment(block[0][1]):
            comments.append(block.pop(0))
        rows = [parser.parse(number, line) for number, line in block]
        if rows and all(rows):
            words, tags = map(tuple, zip(*rows, strict=True))
            tags = None if tag_column is None else tags
            sentences.append(Sentence(words, tags, path, block[0][0]))
    if comments:
        number, text = comments[0]
        notify(
            f"{path}: {len(comments):,} lines skipped as comments, "
            f"the first is line {number}, {text!r:.60}"
        )
    _reject_header(_required(sentences, path)[0])
    return sentences


def _reject_header(first: Sentence) -> None:
    """Raise an error for a first line of names of columns, such as `token tag`."""
    if first.tags is None:
        return
    fields = first.words[0].lower(), first.tags[0].lower()
    if _WORD_NAME.fullmatch(fields[0]) and _TAG_NAME.fullmatch(fields[1]):
        raise InputError(
            "The first line of a column file must be a word and its tag",
            f"{first.source}:{first.line}: {fields[0]!r} and {fields[1]!r}, names of "
            "columns",
            "Delete that line",
        )


def _required(sentences: list[Sentence], path: str) -> list[Sentence]:
    if not sentences:
        raise InputError(
            "Each file must have one or more valid sentences",
            f"{path} with none",
            "Correct the reported errors, or remove the file",
        )
    return sentences


def _blocks(text: str, path: str) -> Iterator[list[tuple[int, str]]]:
    """Yield numbers and texts of the lines of each sentence."""
    block: list[tuple[int, str]] = []
    for number, line in enumerate(text.removesuffix("\n").split("\n"), 1):
        if number == 1 and begins_json(line):
            raise InputError(
                "A file of JSON must be named .jsonl or .json",
                f"{path!r}, whose first line is JSON",
                "Rename the file",
            )
        line = line.removesuffix("\r")
        if line.strip(_BLANKS) and not line.startswith(_DOCUMENT):
            block.append((number, line))
        else:
            yield block
            block = []
    yield block


class _Comments:
    """Test of the lines before the first word of a sentence.

    Comments are those of CoNLL-U and CoNLL-2012, such as `# sent_id = 1`. A line whose
    first column is `#` is also one if its tag is no tag of other words, and its number
    of columns is another than theirs, or most sentences begin with such a line:
    `# id cd61 domain=en` is a comment, `# # B-NP` is a word.
    """

    def __init__(self, sentences: Sequence[Sequence[str]], tag: int | None):
        self._tag, self._width, self._tags, self._is_usual = tag, 0, set(), False
        sentences = [lines for lines in sentences if lines]
        heads = [lines[0] for lines in sentences if _fields(lines[0])[0] == _HASH]
        if all(map(_COMMENT.match, heads)):
            return
        rows = [
            row
            for lines in sentences
            for line in lines
            if (row := _fields(line))[0] != _HASH and not _COMMENT.match(line)
        ]
        widths = collections.Counter(map(len, rows))
        self._width = max(widths, key=widths.get, default=0)
        self._tags = {_HASH, *filter(None, map(self._tag_of, rows))}
        unknown = [
            line for line in heads if self._tag_of(_fields(line)) not in self._tags
        ]
        self._is_usual = len(unknown) > len(sentences) / 2

    def __call__(self, line: str) -> bool:
        """Return whether a line is a comment."""
        if _COMMENT.match(line):
            return True
        row = _fields(line)
        if not self._width or row[0] != _HASH or self._tag_of(row) in self._tags:
            return False
        return len(row) != self._width or (len(row) > 2 and self._is_usual)

    def _tag_of(self, row: Sequence[str]) -> str | None:
        """Return the tag of a line; None: it has none."""
        try:
            return None if self._tag is None else row[self._tag]
        except IndexError:
            return None


def _fields(line: str) -> list[str]:
    return re.split(f"[{_BLANKS}]+", line.strip(_BLANKS))


class _Columns:
    """Parser of the lines of one file, which must have the same number of columns."""

    def __init__(self, path: str, word: int, tag: int | None, log: DataErrorLog):
        self._path, self._log, self._word, self._tag = path, log, word, tag
        columns = [word] if tag is None else [word, tag]
        self._least = max(-c if c < 0 else c + 1 for c in columns)
        if min(columns) < 0 <= max(columns):  # the two must not be one
            self._least = max(self._least, max(columns) + 1 - min(columns))
        self._first: tuple[int, int, str] | None = None  # columns, number, line

    def parse(self, number: int, line: str) -> tuple[str, str] | None:
        """Return word and tag of a line; report an invalid one and return None."""
        if has_bad_bytes(line):  # reported when it was read
            return None
        if match := re.search("[\0\r]", line):
            kind = "NUL" if match[0] == "\0" else "carriage return"
            return self._report(number, kind, "within the line", "Remove it")
        row = _fields(line)
        self._first = self._first or (len(row), number, line)
        width, first, first_line = self._first
        if len(row) == width and width >= self._least:
            tag = "" if self._tag is None else row[self._tag]
            return sys.intern(row[self._word]), sys.intern(tag)
        kind, detail = "too few columns", f"{len(row)}, must be {self._least} or more"
        if len(row) >= self._least:
            kind = "another number of columns"
            detail = f"{len(row)}, while line {first}, {first_line[:60]!r}, has {width}"
            detail += _space_within({first: first_line, number: line})
        remedy = (
            "Correct the line; delete it if it is a header or comment; or set "
            "data.word_column and data.tag_column"
        )
        return self._report(number, kind, f"{detail}: {line[:60]!r}", remedy)

    def _report(self, number: int, kind: str, detail: str, remedy: str) -> None:
        detail += "; its sentence is dropped"
        self._log.add(self._path, number, kind, detail, remedy)


def _space_within(lines: Mapping[int, str]) -> str:
    """Describe a column between tabs with a space, which also separates columns."""
    for number, line in lines.items():
        for column in line.split("\t"):
            if "\t" in line and " " in column.strip(_BLANKS):
                where = f"line {number} has a space within {column!r:.60}"
                return f"; {where}: write '_' instead of it"
    return ""


def is_column_file(lines: Sequence[str], tags: Sequence[str]) -> bool:
    """Return whether the first lines of a file are words with tags, not sentences."""
    rows = [line.split() for line in lines if line.strip() and line[0] != "#"]
    if rows and rows[0][0] == _DOCUMENT:
        return True
    if len(rows) < 2 or len(rows[0]) < 2 or len({len(row) for row in rows}) != 1:
        return False
    last = {row[-1] for row in rows}
    # Sentences of one length that all end with "." are not columns of punctuation.
    if is_span_scheme(last) or respelled(dict.fromkeys(last, 1)):
        return True
    return len(last) > 1 and last <= set(tags)


def with_usual_tags(
    files: Mapping[str, list[Sentence]],
    known: Sequence[str] = (),
    notify: Notify = print,
) -> dict[str, list[Sentence]]:
    """Replace span tags of other spellings, such as BILOU, by BIOES, and report it.

    `known`: tags of a model; one that has learned another spelling needs it unchanged.
    """
    counts = collections.Counter(
        tag for sentences in files.values() for s in sentences for tag in s.tags or ()
    )
    new = respelled(counts, max(1, STRAY * counts.total()))
    if not new or respelled(dict.fromkeys(known, 1)):
        return dict(files)
    examples = {
        tag[0]: f"{old!r} as {tag!r}" for old, tag in sorted(new.items(), reverse=True)
    }
    source = next(s.source for sentences in files.values() for s in sentences)
    notify(f"{source}: tags are read as BIOES, {', '.join(sorted(examples.values()))}")
    return {
        split: [
            s
            if s.tags is None
            else dataclasses.replace(s, tags=tuple(new.get(tag, tag) for tag in s.tags))
            for s in sentences
        ]
        for split, sentences in files.items()
    }


# JSON.


def _read_json_sentences(
    path: str,
    settings: DataConfig,
    log: DataErrorLog,
    notify: Notify,
    tokenizer: WordPieceTokenizer | None,
) -> list[Sentence]:
    values = list(read_json(path, log))
    records = [record for _, record in values if isinstance(record, dict)]
    if settings.spans_column or not any(map(has_words, records)):
        form = _span_form([record for _, record in values], settings)
        if form is not None:
            return _read_spans(path, values, form, log, notify, tokenizer)
    words, tags = _keys(records, settings, path)
    names, sentences = settings.tag_names, []
    for line, record in values:
        if problem := _problem(record, words, tags, names):
            detail = f"{problem}; the sentence is dropped"
            remedy = (
                "Correct the record; pass the names of integers in the order of their "
                "numbers: --tag_names=O,B-PER,I-PER (of the library datasets: "
                f"data.features[{tags!r}].feature.names)"
            )
            log.add(path, line, "no sentence", detail, remedy)
            continue
        named = tuple(names[t] if isinstance(t, int) else t for t in record[tags])
        sentences.append(Sentence(tuple(record[words]), named, path, line, True))
    columns = {key: [r.get(key) for r in records] for key in records[0]}
    warn_of_unused_splits(columns, (words, tags), path, notify)
    return _required(sentences, path)


def has_words(record: Mapping[str, Any]) -> bool:
    """Return whether a record has words; Prodigy and spaCy have tokens as objects."""
    lists = [record[key] for key in WORD_KEYS if isinstance(record.get(key), list)]
    return any(words and isinstance(words[0], str) for words in lists)


def _span_form(records: Sequence[Any], settings: DataConfig) -> SpanForm | None:
    """Return the form of records with spans of characters; None: they have none."""
    text = next(iter(settings.text_columns), None)
    return find_form(records, text, settings.spans_column or settings.label_column)


def _read_spans(
    path: str,
    values: Sequence[tuple[int, Any]],
    form: SpanForm,
    log: DataErrorLog,
    notify: Notify,
    tokenizer: WordPieceTokenizer | None,
) -> list[Sentence]:
    """Read texts with spans of characters."""
    accepted = [(line, value) for line, value in values if not is_rejected(value)]
    notify(f"{path}: texts with spans of characters, key {form.spans!r}")
    if rejected := len(values) - len(accepted):
        notify(f"{path}: {rejected:,} texts left out, whose answer is no accept")
    if several := sum(len(complete_annotations(v)) > 1 for _, v in accepted):
        notify(f"{path}: {several:,} tasks with several annotations; the first is used")
    remedy, sentences = "Correct the span, or leave the text out", []
    split = tokenizer or WordPieceTokenizer(Vocabulary(SPECIAL_TOKENS, "BERT's rules"))
    for line, record in accepted:
        sentence = _span_sentence(record, form, split, path, line)
        if isinstance(sentence, str):
            detail = f"{sentence}; the text is dropped"
            log.add(path, line, "no spans of words", detail, remedy)
        else:
            sentences.append(sentence)
    return _required(sentences, path)


def _span_sentence(
    record: Any, form: SpanForm, tokenizer: WordPieceTokenizer, path: str, line: int
) -> Sentence | str:
    """Return the words and tags of a text with spans, or why there are none."""
    parts = form.parse(record)
    if isinstance(parts, str):
        return parts
    text, spans = parts
    offsets = tokenizer.word_offsets(text)
    if not offsets:
        return f"{text!r:.60} has no word"
    found = to_word_spans(spans, text, offsets)
    if isinstance(found, str):
        return found
    words = tuple(text[start:end] for start, end in offsets)
    tags = tuple(write_spans(found, len(words)))
    return Sentence(words, tags, path, line, True, text, offsets, form)


def _keys(
    records: Sequence[Mapping[str, Any]], settings: DataConfig, path: str
) -> tuple[str, str]:
    """Return the keys of words and tags."""
    known = list(dict.fromkeys(key for record in records for key in record))
    words = settings.text_columns or [key for key in WORD_KEYS if key in known]
    tags = [key for key in TAG_KEYS if key in known]
    if settings.label_column:
        tags = [settings.label_column]
    if len(words) == len(tags) == 1 and {words[0], tags[0]} <= set(known):
        return words[0], tags[0]
    raise InputError(
        "JSON for tagging must have one list of words and one of tags in each record, "
        "or a text and its spans of characters",
        f"{path} with the keys {format_list(known, 30)}; words: "
        f"{format_list(words) or 'none'}, tags: {format_list(tags) or 'none'}",
        "Name the keys, for example --text_columns=tokens --label_column=ner_tags, or "
        "--text_columns=text --spans_column=entities",
    )


def _problem(record: Any, words: str, tags: str, names: Sequence[str]) -> str | None:
    """Return why a record is not a sentence with tags; None: it is one."""
    if not isinstance(record, dict):
        return f"{describe_json(record)}, not an object"
    for key in (words, tags):
        if not isinstance(record.get(key), list) or not record[key]:
            value = f"is {record[key]!r:.60}" if key in record else "is missing"
            return f"{key!r} {value}, not a list with items"
    counts = len(record[words]), len(record[tags])
    if counts[0] != counts[1]:
        return f"{counts[0]} {words!r} and {counts[1]} {tags!r}"
    for key in (words, tags):
        for value in record[key]:
            if key == tags and type(value) is int:
                if not 0 <= value < len(names):
                    return f"{key!r} has {value}, of {len(names)} --tag_names"
            elif not isinstance(value, str) or not re.fullmatch(r"[^ \t\r\n]+", value):
                return f"{key!r} has {value!r:.60}, not a string without white space"
    return None
