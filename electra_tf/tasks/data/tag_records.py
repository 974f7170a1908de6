"""Sentences in the rows of a table: lists of words and tags, or texts with spans."""

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from electra_tf.config.finetuning import DataConfig
from electra_tf.errors import InputError, format_list
from electra_tf.tasks.data.conll import Sentence, require_sentences
from electra_tf.tasks.data.files import Notify
from electra_tf.tasks.data.schemes import write_spans
from electra_tf.tasks.data.span_records import SpanForm, find_form, to_word_spans
from electra_tf.tasks.data.table import Table
from electra_tf.tasks.labels import has_half_surrogate, is_like_list, parse_cell
from electra_tf.text.data_errors import data_error
from electra_tf.text.rows import TEXT
from electra_tf.text.tokenizer import WordPieceTokenizer
from electra_tf.text.vocab import SPECIAL_TOKENS, Vocabulary

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


@dataclasses.dataclass(frozen=True)
class _Parser:
    """Parser of the records of one file."""

    source: str
    words: Sequence[str]  # keys of the words or the text, of which the first one counts
    tags: Sequence[str]  # keys of the tags of words
    names: Sequence[str]  # names of tags that are numbers
    form: SpanForm | None  # the form of texts with spans; None: there are none
    tokenizer: WordPieceTokenizer

    def spans(self, record: _Record, line: int) -> Sentence:
        """Return a text with spans; ValueError: it is none."""
        text, spans = self.form.parse(record)
        sentence = self.text(text, line)
        words = to_word_spans(spans, text, sentence.offsets)
        tags = _checked(write_spans(words, len(sentence.words)))
        return dataclasses.replace(sentence, tags=tags, form=self.form)

    def text(self, text: str, line: int) -> Sentence:
        """Return a text, split into words."""
        if has_half_surrogate(text):
            raise ValueError(f"{text!r:.80}, with half of a surrogate pair")
        offsets = self.tokenizer.word_offsets(text)
        words = tuple(text[start:end] for start, end in offsets)
        return Sentence(words, None, self.source, line, text, offsets)

    def labelled(self, record: _Record, line: int) -> Sentence:
        """Return lists of words and tags; ValueError: they are none."""
        columns = []
        for key in (self.words[0], self.tags[0]):
            values = record.get(key)
            if not isinstance(values, list) or not values:
                value = f"is {values!r:.60}" if key in record else "is missing"
                raise ValueError(f"{key!r} {value}, not a list with items")
            for value in values:
                if type(value) is int and columns:
                    if not 0 <= value < len(self.names):
                        names = f"{len(self.names)} --tag_names"
                        raise ValueError(f"{key!r} has {value}, of {names}; {_NAMING}")
                elif not isinstance(value, str) or not _WORD.fullmatch(value):
                    reason = "not a string without white space"
                    raise ValueError(f"{key!r} has {value!r:.60}, {reason}")
            columns.append(values)
        words, tags = columns
        if len(words) != len(tags):
            keys = f"{self.words[0]!r} and {len(tags)} {self.tags[0]!r}"
            raise ValueError(f"{len(words)} {keys}")
        named = _checked(self.names[t] if isinstance(t, int) else t for t in tags)
        return Sentence(tuple(words), named, self.source, line)

    def unlabelled(self, record: _Record, line: int) -> tuple[Sentence, str]:
        """Return words or a text, with its labels, and why it has none; mostly "".

        ValueError: it is neither. Labels are not needed, so wrong ones are left out.
        """
        text = self.form and self.form.text_of(record)
        if text and (self.form.has_spans(record) or not _has_words(record)):
            bare = dataclasses.replace(self.text(text, line), form=self.form)
            if not self.form.has_spans(record):
                return bare, ""
            return self._labelled_or(bare, lambda: self.spans(record, line))
        word_key = next((k for k in self.words if _is_input(record.get(k))), None)
        if word_key is None:
            keys = " or ".join(self.words)
            raise ValueError(
                f"{record!r:.80} must have {keys}, a list of words or one text; name "
                "another key with --text_columns"
            )
        words = record[word_key]
        tag_key = next((key for key in self.tags if key in record), None)
        if isinstance(words, str):
            is_word = word_key in WORD_KEYS and _WORD.fullmatch(words)
            if is_word and isinstance(record.get(tag_key), str):
                raise ValueError(
                    f"a row must have a sentence, not the word {words!r:.60} alone; "
                    f"{_AS_COLUMNS}"
                )
            return self.text(words, line), ""
        bare = Sentence(tuple(words), None, self.source, line)
        if tag_key is None:
            return bare, ""
        parser = dataclasses.replace(self, words=[word_key], tags=[tag_key])
        return self._labelled_or(bare, lambda: parser.labelled(record, line))

    def _labelled_or(
        self, bare: Sentence, parse: Callable[[], Sentence]
    ) -> tuple[Sentence, str]:
        """Return a labelled sentence, or the bare one and why its labels are wrong."""
        try:
            return parse(), ""
        except ValueError as error:
            return bare, str(error)


def _checked(tags: Iterable[str]) -> tuple[str, ...]:
    """Return tags; ValueError: one cannot be saved."""
    tags = tuple(tags)
    for tag in filter(has_half_surrogate, tags):
        raise ValueError(f"the tag {tag!a:.80}, with half of a surrogate pair")
    return tags


def parse_labelled(
    table: Table,
    settings: DataConfig,
    notify: Notify,
    tokenizer: WordPieceTokenizer | None,
) -> list[Sentence]:
    """Return the rows of a table of words with tags, or of texts with spans."""
    path, values = table.source, table.records(_parse_cell)
    records = [value for _, value in values]
    has_spans = settings.spans_column or not any(map(_has_words, records))
    form = _form(records, settings) if has_spans else None
    parser = _parser(path, records, settings, form, tokenizer)
    parse, kind = parser.labelled, "no sentence"
    if parser.form:
        parse, kind = parser.spans, "no spans of words"
        notify(f"{path}: texts with spans of characters, key {parser.form.spans!r}")
    elif not any(map(_has_list, records)):
        raise InputError(
            f"{path} must have a sentence in each row, as lists of words and tags, and "
            f"has no list in the columns {format_list(_keys(records), 30) or 'none'}; "
            f"{_AS_COLUMNS}"
        )
    elif len(parser.words) != 1 or len(parser.tags) != 1:
        raise InputError(
            f"{path} must have one list of words and one of tags in each record, or a "
            "text and its spans, and has words: "
            f"{format_list(parser.words) or 'none'}, tags: "
            f"{format_list(parser.tags) or 'none'}, of the keys "
            f"{format_list(_keys(records), 30) or 'none'}; name them, for example "
            "--text_columns=tokens --label_column=ner_tags, or --spans_column=entities"
        )
    sentences = []
    for line, value in values:
        try:
            sentence = parse(value, line)
            if not sentence.words:
                raise ValueError(f"{sentence.text!r:.60} has no word")
            sentences.append(sentence)
        except ValueError as error:
            raise data_error(path, line, kind, str(error)) from error
    return require_sentences(sentences, path)


def parse_unlabelled(
    table: Table,
    settings: DataConfig,
    tokenizer: WordPieceTokenizer,
    notify: Notify,
    is_given: bool = False,
) -> list[tuple[Sentence, Any]]:
    """Return words or a text of each row, with valid tags if any, and its id.

    `is_given`: only the keys in `text_columns` may have the words or the text, none of
    the usual ones.
    """
    source, values = table.source, table.records(_parse_cell)
    records = [value for _, value in values]
    form = _form([one for one in records if not _has_words(one)], settings)
    parser = _parser(source, records, settings, form, tokenizer)
    keys = [*settings.text_columns, *[*WORD_KEYS, TEXT] * (not is_given)]
    parser = dataclasses.replace(parser, words=keys)
    items, wrong = [], []
    for line, value in values:
        try:
            sentence, reason = parser.unlabelled(value, line)
        except ValueError as error:
            raise InputError(f"{source}:{line}: {error}") from error
        items.append((sentence, value.get("id")))
        wrong += [f"{source}:{line}: {reason}"] * bool(reason)
    if wrong:
        notify(
            f"note: {len(wrong):,} of {len(items):,} inputs have labels that cannot be "
            f"read; predictions do not need them: {wrong[0]}"
        )
    return items


def _parse_cell(name: str, cell: str) -> Any:
    """Return the list in a cell, or the cell."""
    if name == TEXT or cell[:1] not in ("[", "("):
        return cell
    try:
        value = parse_cell(cell)
    except ValueError:
        return cell
    return value if isinstance(value, list) else cell  # (9) is a text


def _parser(
    source: str,
    records: Sequence[_Record],
    settings: DataConfig,
    form: SpanForm | None,
    tokenizer: WordPieceTokenizer | None,
) -> _Parser:
    """Return the parser of records, with the keys that they have."""
    known = _keys(records)
    tags = [settings.label_column] if settings.label_column else _TAG_KEYS
    words = settings.text_columns or WORD_KEYS
    return _Parser(
        source,
        [key for key in words if key in known],
        [key for key in tags if key in known],
        settings.tag_names,
        form,
        tokenizer or WordPieceTokenizer(Vocabulary(SPECIAL_TOKENS, "BERT's rules")),
    )


def _form(records: Sequence[_Record], settings: DataConfig) -> SpanForm | None:
    """Return the form of texts with spans; None: they have none."""
    text = next(iter(settings.text_columns), TEXT)
    return find_form(records, text, settings.spans_column or settings.label_column)


def _keys(records: Sequence[_Record]) -> list[str]:
    """Return the keys of records, in their order."""
    return list(dict.fromkeys(key for record in records for key in record))


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
