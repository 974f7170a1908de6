"""Read the inputs of `predict`: lines, tables, JSON, column files, questions."""

import dataclasses
import itertools
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from electra_tf.errors import InputError, format_list
from electra_tf.tasks.conll import (
    COLUMN_SUFFIXES,
    TAG_KEYS,
    has_words,
    is_column_file,
    read_conll,
    with_usual_tags,
    without_headers,
)
from electra_tf.tasks.schemes import respelled, write_spans
from electra_tf.tasks.span_records import find_form, to_word_spans
from electra_tf.tasks.tables import (
    conversion,
    print_note,
    read_json,
    read_table,
    require_columns,
)
from electra_tf.text.data_errors import DataErrorLog
from electra_tf.text.files import inner_suffix, read_lines
from electra_tf.text.json_file import parse_json
from electra_tf.text.rows import JSON_SUFFIXES, begins_json, describe_json

if TYPE_CHECKING:  # `predict` checks its input before TensorFlow
    from electra_tf.tasks.text_model import TextModel

ID = "id"
"""Column or key of the id of a record."""
_MARKUP = (".html", ".htm", ".xml")
_HEAD_LINES = 100  # by which the format of lines is recognised


@dataclasses.dataclass(frozen=True, slots=True)
class Item:
    """Input of a model with its id."""

    value: Any
    """An element of the argument `x` of `model.examples`."""
    id: str | int | None = None
    """Id of the record in the file; None: it has none."""
    gold: Any = None
    """Label, score, tags or answers in the file; None: it has none."""


def check_input_file(path: str | None) -> None:
    """Raise an error if a path cannot be an input."""
    if path is None:
        return
    if not os.path.isfile(path):
        reason = "a folder" if os.path.isdir(path) else "no such file"
        raise InputError(
            "--input must be a file", f"{path!r}, {reason}", "Check the path"
        )
    kind = inner_suffix(path)
    if conversion(path) or kind in _MARKUP:
        raise InputError(
            "--input must be lines of text, a table (.csv, .tsv, .jsonl, .json), a "
            "column file for a tagger (.conll), or questions in SQuAD's format (.json)",
            f"{path!r}, a {kind} file",
            conversion(path) or "Write its texts to a .txt file, one on each line",
        )


def read_items(
    model: "TextModel",
    path: str | None,
    columns: Sequence[str] | None = None,
    stored: Sequence[str] = (),
    label: str | None = None,
) -> Iterator[Item]:
    """Read the inputs of a model from a file, or from standard input.

    `columns` are those of the texts; without them `stored` ones, that the model was
    trained with, or usual names. `label` is the column that it was trained with.
    """
    check_input_file(path)
    yield from _Reader(model, path, columns, stored, label).items()


class _Reader:
    """Items of one file, by its suffix and its first lines."""

    def __init__(
        self,
        model: "TextModel",
        path: str | None,
        columns: Sequence[str] | None = None,
        stored: Sequence[str] = (),
        label: str | None = None,
    ):
        self._label, self._form = label, None
        self._tag_keys = TAG_KEYS if label is None else (label,)
        self._model, self._path, self._columns = model, path, columns
        self._name = path or "standard input"
        if columns is None:
            self._choices = [*([tuple(stored)] if stored else []), *model.input_choices]
            return
        self._choices = [tuple(columns)]
        count = len(model.input_choices[0])
        if len(columns) not in map(len, model.input_choices):
            raise InputError(
                f"--text_columns must name {count} column{'s' * (count > 1)} for this "
                f"{type(model).__name__}",
                f"--text_columns={','.join(columns)}",
                "Name a column for each text of the model",
            )

    def items(self) -> Iterator[Item]:
        """Yield the items; a .tsv for a tagger is a table if its columns are named."""
        suffix = inner_suffix(self._path) if self._path else ""
        if suffix == ".csv" or (suffix == ".tsv" and self._columns is not None):
            return self._table_items()
        if suffix == ".json":
            return self._json_items()
        lines = read_lines(self._path)
        first = list(itertools.islice(lines, _HEAD_LINES))
        head = [text for _, text in first]
        if (
            suffix in JSON_SUFFIXES
            and head
            and head[0].removeprefix("\ufeff")[:1] == "["
        ):
            return self._json_items()
        if self._is_column_file(suffix, head):
            return self._column_items(head)
        if suffix == ".tsv":
            return self._table_items()
        self._check_lines(suffix, head)
        is_json = suffix in JSON_SUFFIXES
        if self._path:  # an error in a late line would end hours of predictions
            for _ in self._line_items(read_lines(self._path), is_json):
                pass
        return self._line_items(itertools.chain(first, lines), is_json)

    def _line_items(
        self, lines: Iterable[tuple[str, str]], is_json: bool
    ) -> Iterator[Item]:
        """Yield the item of each (place, line); a line may be a JSON object, too."""
        count = 0
        for number, (place, line) in enumerate(lines):
            if not number:
                line = line.removeprefix("\ufeff")
            if is_json and not line.strip():
                continue
            count += 1
            value = _parse_line(line, place, is_json)
            if self._columns is not None and isinstance(value, str):
                raise InputError(
                    "--text_columns must be used with a table or JSON objects",
                    f"{place}, a line of text",
                    "Leave it out, or write the texts as .csv, .tsv or .jsonl",
                )
            yield self._parse_value(value, place)
        if not count and self._path:
            raise InputError(
                "--input must have one or more lines", f"{self._path!r}, an empty file",
                "Check the path",
            )  # fmt: skip
        if not count:
            print_note("standard input has no lines: no predictions")

    def _table_items(self) -> Iterator[Item]:
        log = DataErrorLog("stop", "", "A table must be readable")
        rows = read_table(self._path, log)
        columns = self._choose(rows[0].values)
        try:
            require_columns(rows, columns)
        except InputError as error:
            raise InputError(
                error.required,
                error.received,
                "Name the columns of its texts with --text_columns; a file of texts "
                "without column names must not end with .csv or .tsv",
            ) from error
        is_labelled = any(self._label in row.values for row in rows)
        for row in rows:
            texts = tuple(row.values[column] for column in columns)
            value = self._model.parse_record(texts, f"{row}")
            gold = row.values.get(self._label, "") if is_labelled else None
            yield Item(value, row.values.get(ID), gold)

    def _json_items(self) -> Iterator[Item]:
        log = DataErrorLog("stop", "", "JSON must be readable")
        is_empty = True
        for line, value in read_json(self._path, log):
            is_empty = False
            records = None
            if isinstance(value, dict):
                records = self._model.parse_document(value, self._path)
            if records is None:
                yield self._parse_value(value, f"{self._path}, line {line}")
            else:
                yield from (
                    Item(record, item_id, getattr(record, "gold", None))
                    for item_id, record in records
                )
        if is_empty:
            raise InputError(
                "--input must have one or more records", f"{self._path!r} with none",
                "Check the path",
            )  # fmt: skip

    def _is_column_file(self, suffix: str, head: Sequence[str]) -> bool:
        """Return whether an input of a tagger has a word on each line."""
        if not self._model.takes_words or suffix in JSON_SUFFIXES:
            return False
        if suffix in COLUMN_SUFFIXES:
            return True
        header = head[0].split("\t") if head else []
        if suffix == ".tsv" and any(set(c) <= set(header) for c in self._choices):
            return False
        return is_column_file(head, self._model.output_names)

    def _column_items(self, head: Sequence[str]) -> Iterator[Item]:
        path, settings = self._path, self._model.settings.data
        if path is None:
            raise InputError(
                "Standard input must be texts or JSON objects, one on each line",
                "columns of words and tags",
                "Save it as a file whose name ends with .conll, and pass that as "
                "--input",
            )
        with_tags = any(len(line.split()) > 1 for line in head)
        columns = 0, None
        if with_tags:
            columns = settings.word_column, settings.tag_column
        log = DataErrorLog("stop", "", "Columns must be even")
        sentences = read_conll(path, *columns, log, notify=print_note)
        if with_tags:
            files = without_headers({"": sentences}, print_note)
            known = self._model.output_names
            sentences = with_usual_tags(files, known, print_note)[""]
        print_note(
            f"{path}: read as columns, word {columns[0]}; its tags are not used, "
            "but copied as gold with --format=csv and jsonl"
        )
        for sentence in sentences:
            yield Item(list(sentence.words), gold=sentence.tags)

    def _check_lines(self, suffix: str, head: Sequence[str]) -> None:
        """Raise an error for lines that are parts of a JSON document, or columns."""
        first = head[0].strip().removeprefix("\ufeff") if head else ""
        are_columns = not self._model.takes_words and is_column_file(head, ())
        if suffix in COLUMN_SUFFIXES or are_columns:
            raise InputError(
                "Columns of words must be the input of a TokenClassifier",
                f"{self._name} for a {type(self._model).__name__}",
                "Write texts, one on each line of a .txt file",
            )
        is_object = first.startswith('{"')
        if suffix not in JSON_SUFFIXES and begins_json(first) and not is_object:
            raise InputError(
                "A line must be a text or a JSON object",
                f"{self._name} with the first line {first!r:.40}, which begins a JSON "
                "list or an object of several lines",
                "Save it as a file whose name ends with .json, and pass that as "
                "--input; if it is a text, write it as "
                f"{json.dumps({'text': first})!s:.80}",
            )

    def _choose(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the first choice of most columns that all exist, or the first one."""
        existing, choices = set(names), self._choices
        found = (choice for choice in choices if existing.issuperset(choice))
        return max(found, key=len, default=choices[0])

    def _parse_value(self, value: Any, place: str) -> Item:
        """Convert a JSON object or a text."""
        if self._model.takes_words and (item := self._span_item(value, place)):
            return item
        if isinstance(value, dict):
            return self._parse_record(value, place)
        if isinstance(value, str):
            return Item(self._model.parse_line(value, place))
        raise InputError(
            "A record of JSON must be an object or a string",
            f"{place}: {describe_json(value)}",
            "Write it as an object with the keys of its texts",
        )

    def _parse_record(self, record: Mapping[str, Any], place: str) -> Item:
        names, takes_words = self._choose(record), self._model.takes_words
        kinds = (str, list) if takes_words else str
        if not all(isinstance(record.get(name), kinds) for name in names):
            trees = [key for key, v in record.items() if isinstance(v, dict | list)]
            keys = f"{' and '.join(names)}, each a string"
            if takes_words:
                keys = " or ".join(name for (name,) in self._choices)
                keys += ", a list of words or one text"
            raise InputError(
                f"A record must be a JSON object with {keys}",
                f"{place}: {json.dumps(record, ensure_ascii=False)!r:.80}",
                "Correct the record, or name the keys with --text_columns"
                + f"; keys within {format_list(trees)} are not read" * bool(trees),
            )
        item_id = record.get(ID)
        if not isinstance(item_id, str | int | None):
            raise InputError(
                f"`{ID}` must be a string or a whole number",
                f"{place}: {item_id!r:.80}",
                "Correct the line",
            )
        texts = tuple(record[name] for name in names)
        value = self._model.parse_record(texts, place)
        return Item(value, item_id, self._gold(record, texts[0]))

    def _span_item(self, value: Any, place: str) -> Item | None:
        """Return a text with spans of characters; None: the value has none.

        The predictions are written in the form of the spans.
        """
        if isinstance(value, dict) and has_words(value):
            return None
        data = self._model.settings.data
        text = next(iter(self._columns or data.text_columns), None)
        key = data.spans_column or self._label
        form = find_form([value], text, key) or find_form([value]) or self._form
        parts = form.parse(value) if form else ""
        if isinstance(parts, str):
            if form is None or form == self._form:
                return None
            raise InputError(
                "A text with spans of characters must have valid ones",
                f"{place}: {parts}",
                "Correct the record, or leave the spans out",
            )
        self._form = form
        sentence = self._model.parse_line(parts[0], place)
        spans = to_word_spans(parts[1], parts[0], sentence.offsets)
        gold = None
        if isinstance(spans, str):
            print_note(f"{place}: {spans}; written without gold")
        else:
            words = len(sentence.words)
            gold = tuple(write_spans(spans, words, self._model.scheme))
        item_id = value.get(ID) if isinstance(value, dict) else None
        return Item(dataclasses.replace(sentence, form=form), item_id, gold)

    def _gold(self, record: Mapping[str, Any], words: Any) -> Any:
        """Return the label of a record, or the tags of its words; None: it has none."""
        if not self._model.takes_words:
            label = record.get(self._label)
            return label if isinstance(label, str | int | float) else None
        tags = next((record[key] for key in self._tag_keys if key in record), None)
        if not isinstance(words, list) or not isinstance(tags, list):
            return None
        names = self._model.settings.data.tag_names
        if not all(isinstance(tag, str) for tag in tags) and names:
            is_id = [isinstance(t, int) and 0 <= t < len(names) for t in tags]
            tags = [names[tag] for tag in tags] if all(is_id) else []
        if len(tags) != len(words):
            return None
        if not all(isinstance(tag, str) for tag in tags):
            return tags
        is_usual = not respelled(dict.fromkeys(self._model.output_names, 1))
        new = respelled(dict.fromkeys(tags, 1)) if is_usual else {}
        return [new.get(tag, tag) for tag in tags]


def _parse_line(line: str, place: str, is_json: bool) -> Any:
    """Return the value of a line of JSON, the JSON object of a line, or its text."""
    if not is_json and not line.startswith("{"):
        return line
    try:
        value = parse_json(line)
    except ValueError as error:
        if is_json:
            raise InputError(
                "Each line of a .jsonl must be JSON",
                f"{place}: {error}",
                "Correct the line; lines of texts belong in a .txt file",
            ) from error
        if not line.startswith('{"'):  # a text may begin with a brace
            return line
        raise InputError(
            'A line that begins with {" must be a JSON object',
            f"{place}: {error}",
            'Correct the line, or write the text itself as {"text": "..."}',
        ) from error
    return value if is_json or isinstance(value, dict) else line
