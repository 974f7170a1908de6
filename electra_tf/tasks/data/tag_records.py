"""Sentences in the rows of a table: lists of words and tags, or texts with spans."""

import dataclasses
import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from electra_tf.errors import InputError, format_list
from electra_tf.tasks.data.conll import Sentence, require_sentences
from electra_tf.tasks.data.schemes import to_scheme, write_spans
from electra_tf.tasks.data.span_records import find_form, to_word_spans
from electra_tf.tasks.data.splits import Split
from electra_tf.tasks.data.table import Table
from electra_tf.tasks.labels import has_half_surrogate, is_like_list, parse_cell
from electra_tf.text.rows import TEXT
from electra_tf.text.tokenizer import WordPieceTokenizer
from electra_tf.text.vocab import SPECIAL_TOKENS, Vocabulary

if TYPE_CHECKING:
    from electra_tf.tasks.task_data import Reading

WORD_KEYS = ("words", "tokens")
_NAMING = "pass the names of integers in their order: --tag_names=O,B-PER,I-PER"
_AS_COLUMNS = (
    "write one word for each line as .conll: the word, a tab and its tag, without a "
    "header, and a blank line after each sentence"
)
_WORD = re.compile("[^ \t\r\n]+")
_TAG_KEYS = (
    "ner_tags", "tags", "labels", "chunk_tags", "pos_tags", "upos", "xpos", "ner",
)  # fmt: skip


_Record = Mapping[str, Any]


class _Reader:
    """Reader of the rows of one table, with the keys that they have."""

    def __init__(self, table: Table, reading: "Reading"):
        settings = reading.settings
        self.source, self.rows = table.source, table.records(_parse_cell)
        self.keys = list(dict.fromkeys(key for _, row in self.rows for key in row))
        words = settings.text_columns or WORD_KEYS
        tags = [settings.label_column] if settings.label_column else _TAG_KEYS
        self.words = [key for key in words if key in self.keys]
        self.tags = [key for key in tags if key in self.keys]
        self._names = settings.tag_names  # of tags that are numbers
        rules = Vocabulary(SPECIAL_TOKENS, "BERT's rules")
        self._tokenizer = reading.tokenizer or WordPieceTokenizer(rules)
        rows = [
            row for _, row in self.rows if settings.spans_column or not _has_words(row)
        ]
        text = next(iter(settings.text_columns), TEXT)
        key = settings.spans_column or settings.label_column
        self.form = find_form(rows, text, key)
        """The form of texts with spans; None: there are none."""

    def spans(self, record: _Record, line: int) -> Sentence:
        """Return a text with spans; ValueError: it is none."""
        text, spans = self.form.parse(record)
        sentence = self._text(text, line)
        words = to_word_spans(spans, text, sentence.offsets)
        tags = _checked(write_spans(words, len(sentence.words)))
        return dataclasses.replace(sentence, tags=tags)

    def _text(self, text: str, line: int) -> Sentence:
        """Return a text, split into words."""
        if has_half_surrogate(text):
            raise ValueError(f"{text!r:.80}, with half of a surrogate pair")
        offsets = self._tokenizer.word_offsets(text)
        words = tuple(text[start:end] for start, end in offsets)
        return Sentence(words, None, self.source, line, text, offsets, form=self.form)

    def tagged(self, record: _Record, line: int, words: str, tags: str) -> Sentence:
        """Return the lists of two keys as words and tags; ValueError: they are none."""
        for key in (words, tags):
            values = record.get(key)
            if not isinstance(values, list) or not values:
                value = f"is {values!r:.60}" if key in record else "is missing"
                raise ValueError(f"{key!r} {value}, not a list with items")
            for value in values:
                if type(value) is int and key == tags:
                    if not 0 <= value < len(self._names):
                        names = f"{len(self._names)} --tag_names"
                        raise ValueError(f"{key!r} has {value}, of {names}; {_NAMING}")
                elif not isinstance(value, str) or not _WORD.fullmatch(value):
                    reason = "not a string without white space"
                    raise ValueError(f"{key!r} has {value!r:.60}, {reason}")
        if len(record[words]) != len(record[tags]):
            counts = f"{len(record[words])} {words!r} and {len(record[tags])} {tags!r}"
            raise ValueError(counts)
        named = (self._names[t] if type(t) is int else t for t in record[tags])
        return Sentence(tuple(record[words]), _checked(named), self.source, line)

    def unlabelled(
        self, record: _Record, line: int, keys: Sequence[str]
    ) -> tuple[Sentence, Callable[[], Sentence] | None]:
        """Return the words or the text of one of some keys, and what adds its labels.

        The function may raise ValueError; None: there are no labels.
        """
        text = self.form and self.form.text_of(record)
        if text and (self.form.has_spans(record) or not _has_words(record)):
            has_spans = self.form.has_spans(record)
            add = functools.partial(self.spans, record, line) if has_spans else None
            return self._text(text, line), add
        key = next((key for key in keys if _is_input(record.get(key))), None)
        if key is None:
            raise ValueError(
                f"{record!r:.80} must have {' or '.join(keys)}, a list of words or one "
                "text; name another key with --text_columns"
            )
        words, tags = record[key], next((k for k in self.tags if k in record), None)
        if isinstance(words, list):
            sentence = Sentence(tuple(words), None, self.source, line)
            add = functools.partial(self.tagged, record, line, key, tags)
            return sentence, add if tags else None
        is_word = key in WORD_KEYS and _WORD.fullmatch(words)
        if is_word and isinstance(record.get(tags), str):
            raise ValueError(
                f"a row must have a sentence, not the word {words!r:.60} alone; "
                f"{_AS_COLUMNS}"
            )
        return dataclasses.replace(self._text(words, line), form=None), None

    def split(self, sentences: Sequence[Sentence]) -> Split:
        """Return the sentences of the rows, with the columns beside words and tags."""
        used = {*WORD_KEYS, TEXT, *self.words, *self.tags}
        columns = {
            name: [row.get(name) for _, row in self.rows]
            for name in self.keys
            if name not in used
        }
        columns = {
            name: values
            for name, values in columns.items()
            if not any(isinstance(value, list | dict) for value in values)
        }
        table = Table(columns, [line for line, _ in self.rows], self.source)
        return Split(sentences, None, table)


def _checked(tags: Iterable[str]) -> tuple[str, ...]:
    """Return tags; ValueError: one cannot be saved."""
    tags = tuple(tags)
    for tag in filter(has_half_surrogate, tags):
        raise ValueError(f"the tag {tag!a:.80}, with half of a surrogate pair")
    return tags


def parse_labelled(table: Table, reading: "Reading") -> Split:
    """Return the rows of a table of words with tags, or of texts with spans."""
    reader, settings = _Reader(table, reading), reading.settings
    path, records = table.source, [record for _, record in reader.rows]
    if reader.form and (settings.spans_column or not any(map(_has_words, records))):
        parse, kind = reader.spans, "no spans of words"
        reading.notify(
            f"{path}: texts with spans of characters, key {reader.form.spans!r}"
        )
    else:
        keys = _keys_of_lists(reader, records)
        parse, kind = functools.partial(reader.tagged, **keys), "no sentence"
    sentences = []
    for line, record in reader.rows:
        try:
            sentences.append(parse(record, line))
            if not sentences[-1].words:
                raise ValueError(f"{sentences[-1].text!r:.60} has no word")
        except ValueError as error:
            raise InputError(f"{path}:{line}: {kind}: {error}") from error
    return reader.split(require_sentences(sentences, path))


def _keys_of_lists(reader: _Reader, records: Sequence[_Record]) -> dict[str, str]:
    """Return the keys of the lists of words and of tags."""
    keys = format_list(reader.keys, 30) or "none"
    if not any(map(_has_list, records)):
        raise InputError(
            f"{reader.source} must have a sentence in each row, as lists of words and "
            f"tags, and has no list in the columns {keys}; {_AS_COLUMNS}"
        )
    if len(reader.words) != 1 or len(reader.tags) != 1:
        raise InputError(
            f"{reader.source} must have one list of words and one of tags in each "
            "record, or a text and its spans, and has words: "
            f"{format_list(reader.words) or 'none'}, tags: "
            f"{format_list(reader.tags) or 'none'}, of the keys {keys}; name them, for "
            "example --text_columns=tokens --label_column=ner_tags, or "
            "--spans_column=entities"
        )
    return {"words": reader.words[0], "tags": reader.tags[0]}


def parse_unlabelled(
    table: Table, reading: "Reading", scheme: str, is_given: bool = False
) -> Split:
    """Return words or a text of each row, with valid tags if any.

    Spans are tags of a scheme. `is_given`: only the keys in `text_columns` may have the
    words or the text, none of the usual ones.
    """
    reader = _Reader(table, reading)
    keys = [*reading.settings.text_columns, *[*WORD_KEYS, TEXT] * (not is_given)]
    items, wrong = [], []
    for line, record in reader.rows:
        place = f"{table.source}:{line}"
        try:
            sentence, add_labels = reader.unlabelled(record, line, keys)
        except ValueError as error:
            raise InputError(f"{place}: {error}") from error
        try:
            sentence = add_labels() if add_labels else sentence
        except ValueError as error:  # predictions do not need labels
            wrong.append(f"{place}: {error}")
        if sentence.form and sentence.tags:
            tags = tuple(to_scheme(sentence.tags, scheme))
            sentence = dataclasses.replace(sentence, tags=tags)
        items.append(sentence)
    if wrong:
        reading.notify(
            f"note: {len(wrong):,} of {len(items):,} inputs have labels that cannot be "
            f"read; predictions do not need them: {wrong[0]}"
        )
    return reader.split(items)


def _parse_cell(name: str, cell: str) -> Any:
    """Return the list in a cell, or the cell."""
    if name == TEXT or cell[:1] not in ("[", "("):
        return cell
    try:
        value = parse_cell(cell)
    except ValueError:
        return cell
    return value if isinstance(value, list) else cell  # (9) is a text


def _is_input(value: Any) -> bool:
    """Return whether a value is a text or a list of words."""
    values = value if isinstance(value, list) else [value]
    return all(isinstance(one, str) for one in values)


def _has_list(record: _Record) -> bool:
    """Return whether a record has a list, or a text like one that is broken."""
    values = record.values()
    is_text = (isinstance(value, str) and is_like_list(value) for value in values)
    return any(isinstance(value, list) for value in values) or any(is_text)


def _has_words(record: _Record) -> bool:
    """Return whether a record has words; some tools have tokens as objects."""
    lists = [record.get(k) for k in WORD_KEYS]
    return any(isinstance(v, list) and v and isinstance(v[0], str) for v in lists)
