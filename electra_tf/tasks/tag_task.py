"""Tags of words, and the entities that they mark, in columns or JSON."""

import dataclasses
import itertools
import json
import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from electra_tf.config.finetuning import DataConfig
from electra_tf.errors import InputError, format_list
from electra_tf.tasks.data.conll import (
    COLUMN_SUFFIXES,
    ENDINGS,
    TAG_KEYS,
    WORD_KEYS,
    Sentence,
    as_sentence,
    has_words,
    is_column_file,
    read_conll,
    with_usual_tags,
)
from electra_tf.tasks.data.files import STANDARD_INPUT, Notify
from electra_tf.tasks.data.records import read_json, read_lines_or_objects
from electra_tf.tasks.data.schemes import OUTSIDE, respelled, write_spans
from electra_tf.tasks.data.span_records import (
    CharacterSpan,
    SpanForm,
    find_form,
    to_word_spans,
)
from electra_tf.tasks.data.splits import Split, find_labelled
from electra_tf.tasks.data.table import print_note, read
from electra_tf.tasks.score import TagScorer
from electra_tf.tasks.tag_data import (
    read_tagged,
    read_tagging,
    require_json,
    with_known_tags,
)
from electra_tf.tasks.tagger import TaggedWords, TokenClassifier, split_text
from electra_tf.tasks.task import ID, READABLE, Item, Labelled, Task, probability_cells
from electra_tf.tasks.task_data import Reading, TaskData
from electra_tf.text.data_errors import DataErrorLog
from electra_tf.text.files import inner_suffix, read_lines
from electra_tf.text.rows import JSON_SUFFIXES, describe_json

_RULE = "The data must be labelled, for the task that the model was trained on"
_REMEDY = "Check that both files belong to the same data"
_HEAD_LINES = 100  # by which columns of words are recognised


class TagTask(Task):
    """A tag for each word; spans of words are entities."""

    models = (TokenClassifier,)
    columns = ("text_columns", "label_column", "spans_column", "tag_names")

    def training_data(self, name: str, data: str, reading: Reading) -> TaskData:
        """Read files of sentences."""
        return read_tagging(name, data, reading)

    def labelled_data(
        self,
        model: TokenClassifier,
        name: str | None,
        data: str,
        given: Mapping[str, Any],
        notify: Notify,
    ) -> Labelled:
        """Read sentences, whose tags must be the model's."""
        settings = dataclasses.replace(model.settings.data, **given)
        errors = DataErrorLog("stop", "", _RULE)
        files = find_labelled(data, ENDINGS)
        for file in files.values() if given else ():
            require_json(file)
        parts = read_tagged(
            files, settings, errors, notify, model.tags, model.tokenizer
        )
        splits = {
            split: with_known_tags(split, part, model.tags, errors)
            for split, part in parts.items()
        }
        return Labelled(name or "tagging", splits, TagScorer(model.tags))

    def score_file(
        self, name: str, data: str, predictions: str, more: str | None, notify: Notify
    ) -> dict[str, Any]:
        """Score columns of words and predicted tags."""
        if os.path.isdir(data):
            files = find_labelled(data, ENDINGS)
            stem = pathlib.Path(predictions).name.split(".")[0]
            data = files.get(stem) or next(iter(files.values()))
            notify(f"labels: {data}")
        return _score_columns(data, predictions, notify)

    def inputs(
        self,
        model: TokenClassifier,
        path: str | None,
        columns: Sequence[str] | None = None,
        stored: DataConfig | None = None,
    ) -> list[Item]:
        """Read texts, lists of words, or columns of words."""
        if columns and len(columns) > 1:
            raise InputError(
                "--text_columns must name 1 column for a TokenClassifier",
                f"--text_columns={','.join(columns)}",
                "Name the column of the texts, or the key of the words",
            )
        return list(_Inputs(model, path, columns).items())

    def line(self, model: TokenClassifier, item: Any, prediction: TaggedWords) -> str:
        """Return words with tags, or the entities of a text."""
        sentence, entities = as_sentence(item), prediction.entities
        if entities is None or OUTSIDE not in model.tags:
            pairs = zip(sentence.words, prediction.tags, strict=True)
            return " ".join(map("/".join, pairs))
        return "\t".join(
            f"{' '.join(one.text.split())} "
            f"({f'{one.type} {one.start}:{one.end}'.strip()}, {one.score:.2f})"
            for one in entities
        )

    def record(
        self,
        model: TokenClassifier,
        item: Any,
        prediction: TaggedWords,
        nbest: int | None = None,
    ) -> Any:
        """Return words, tags and entities, in the form of a text with spans."""
        sentence, entities = as_sentence(item), prediction.entities
        record = {"words": list(sentence.words), "tags": prediction.tags}
        if entities is None:
            return record
        found = [entity._asdict() for entity in entities]
        record = {"text": sentence.text, "entities": found, **record}
        if sentence.form is None:
            return record
        spans = [CharacterSpan(one.start, one.end, one.type) for one in entities]
        written = sentence.form.write(sentence.text, spans)
        return written if isinstance(written, list) else record | written

    def text_cells(self, item: Any) -> dict[str, str]:
        """Return nothing: other columns have the words."""
        return {}

    def rows(
        self,
        model: TokenClassifier,
        index: int,
        item: Any,
        prediction: TaggedWords,
        gold: Any = None,
        columns: Mapping[str, Any] | None = None,
    ) -> list[dict[str, Any]]:
        """Return a row for each word, with the probabilities of the learned tags."""
        sentence, rows = as_sentence(item), []
        more = {ID: columns[ID]} if ID in (columns or {}) else {}
        for number, word in enumerate(sentence.words):
            row: dict[str, Any] = {**more, "sentence": index, "word": word}
            if sentence.offsets:
                row["start"], row["end"] = sentence.offsets[number]
            if gold is not None:
                row["gold"] = gold[number]
            row["prediction"] = prediction.tags[number]
            probabilities_C = prediction.probabilities[number]
            rows.append(row | probability_cells(model.tags, probabilities_C))
        return rows


class _Inputs:
    """Items of one file, by its suffix and its first lines."""

    def __init__(
        self, model: TokenClassifier, path: str | None, columns: Sequence[str] | None
    ):
        self._model, self._path = model, path
        self._data, self._form = model.settings.data, None
        self._key = next(iter(columns or ()), None)
        label = self._data.label_column
        self._tag_keys = TAG_KEYS if label is None else (label,)
        stored = [*(columns or self._data.text_columns)]
        self._word_keys = stored if columns else [*stored, *WORD_KEYS, "text"]

    def items(self) -> Iterator[Item]:
        """Yield the items; a .tsv is a table if the column of its texts is named."""
        suffix = inner_suffix(self._path) if self._path else ""
        if suffix in (".csv", ".parquet"):
            return self._table_items()
        log = DataErrorLog("stop", "", READABLE)
        if suffix in JSON_SUFFIXES:
            return self._value_items(read_json(self._path, log))
        if self._path:
            lines = itertools.islice(read_lines(self._path), _HEAD_LINES)
            head = [text for _, text in lines]
            header = head[0].split("\t") if head else []
            if suffix == ".tsv" and {*header} & {*self._word_keys}:
                return self._table_items()
            if suffix in COLUMN_SUFFIXES or is_column_file(head, self._model.tags):
                return self._column_items(head)
        return self._value_items(read_lines_or_objects(self._path, log))

    def _value_items(self, values: Iterable[tuple[int, Any]]) -> Iterator[Item]:
        """Yield the items of values of JSON, each with the number of its line."""
        for number, value in values:
            yield self._value_item(value, f"{self._path or STANDARD_INPUT}:{number}")

    def _table_items(self) -> Iterator[Item]:
        table = read(self._path, DataErrorLog("stop", "", READABLE))
        names = [key for key in self._word_keys if key in table.columns]
        if not names:
            raise InputError(
                f"A table of texts must have the column {self._word_keys[-1]!r}",
                f"{self._path} with {format_list(list(table.columns))}",
                "Name the column of its texts with --text_columns",
            )
        ids = table.columns.get(ID)
        for index, text in enumerate(table.texts(names[0])):
            columns = {ID: ids[index]} if ids else None
            yield Item(self._split(text, table.place(index)), None, columns)

    def _column_items(self, head: Sequence[str]) -> Iterator[Item]:
        with_tags = any(len(line.split()) > 1 for line in head)
        columns = 0, None
        if with_tags:
            columns = self._data.word_column, self._data.tag_column
        log = DataErrorLog("stop", "", "Columns must be even")
        sentences = read_conll(self._path, *columns, log, notify=print_note)
        if with_tags:
            known = self._model.tags
            sentences = with_usual_tags({"": sentences}, known, print_note)[""]
        print_note(
            f"{self._path}: read as columns, word {columns[0]}; its tags are not used, "
            "but copied as gold with --format=csv and jsonl"
        )
        return (Item(list(sentence.words), sentence.tags) for sentence in sentences)

    def _split(self, text: str, place: str) -> Sentence:
        """Split a text into words by the tokenizer's rule."""
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise InputError(
                "A text must be Unicode",
                f"{place}: {text!r:.80}, with half of a surrogate pair",
                "Correct it",
            )
        return split_text(text, self._model.tokenizer)

    def _value_item(self, value: Any, place: str) -> Item:
        """Convert a value of JSON, or a text."""
        columns = None
        if isinstance(value, dict) and value.get(ID) is not None:
            columns = {ID: value[ID]}
        is_split = isinstance(value, dict) and has_words(value)
        if not is_split and (form := self._find_form(value)):
            return self._span_item(value, form, place, columns)
        if isinstance(value, str):
            return Item(self._split(value, place), None, columns)
        if not isinstance(value, dict):
            raise InputError(
                "A record of JSON must be an object or a string",
                f"{place}: {describe_json(value)}",
                "Write it as an object with the keys of its texts",
            )
        words = next((value[key] for key in self._word_keys if key in value), None)
        if isinstance(words, str):
            return Item(self._split(words, place), None, columns)
        if not isinstance(words, list):
            raise InputError(
                f"A record must have {' or '.join(self._word_keys)}, a list of words "
                "or one text",
                f"{place}: {json.dumps(value, ensure_ascii=False)!r:.80}",
                "Correct the record, or name the key with --text_columns",
            )
        return Item(words, self._gold(value, words), columns)

    def _find_form(self, value: Any) -> SpanForm | None:
        """Return the form of a text with spans of characters; None: it has none."""
        text = self._key or next(iter(self._data.text_columns), None)
        key = self._data.spans_column or self._data.label_column
        form = find_form([value], text, key) or find_form([value]) or self._form
        if form is None or (form == self._form and isinstance(form.parse(value), str)):
            return None
        return form

    def _span_item(
        self, value: Any, form: SpanForm, place: str, columns: dict[str, Any] | None
    ) -> Item:
        """Return a text with spans, in whose form the predictions are written."""
        parts = form.parse(value)
        if isinstance(parts, str):
            raise InputError(
                "A text with spans of characters must have valid ones",
                f"{place}: {parts}",
                "Correct the record, or leave the spans out",
            )
        self._form, gold = form, None
        sentence = self._split(parts[0], place)
        spans = to_word_spans(parts[1], parts[0], sentence.offsets)
        if isinstance(spans, str):
            print_note(f"{place}: {spans}; written without gold")
        else:
            words = len(sentence.words)
            gold = tuple(write_spans(spans, words, self._model.scheme))
        return Item(dataclasses.replace(sentence, form=form), gold, columns)

    def _gold(self, record: Mapping[str, Any], words: Sequence[Any]) -> Any:
        """Return the tags of the words of a record; None: it has none."""
        tags = next((record[key] for key in self._tag_keys if key in record), None)
        if not isinstance(tags, list):
            return None
        names = self._data.tag_names
        if not all(isinstance(tag, str) for tag in tags) and names:
            is_id = [isinstance(t, int) and 0 <= t < len(names) for t in tags]
            tags = [names[tag] for tag in tags] if all(is_id) else []
        if len(tags) != len(words) or not all(isinstance(tag, str) for tag in tags):
            return tags if len(tags) == len(words) else None
        is_usual = not respelled(dict.fromkeys(self._model.tags, 1))
        new = respelled(dict.fromkeys(tags, 1)) if is_usual else {}
        return [new.get(tag, tag) for tag in tags]


def _score_columns(data: str, predictions: str, notify: Notify) -> dict[str, Any]:
    """Score a column file by the tags of another one, which has the same words."""
    errors = DataErrorLog("stop", "", "Columns must be words and tags")
    for path in (data, predictions):
        if inner_suffix(path) in (*JSON_SUFFIXES, ".csv"):
            raise InputError(
                "Tags must be columns: a word and its tag on each line",
                f"{path!r}, a file of another format",
                "Write them as columns; finetune writes its predictions so, with tags",
            )
    sides = [read_conll(path, 0, -1, errors, notify) for path in (data, predictions)]
    gold, predicted = (with_usual_tags({"": s}, notify=notify)[""] for s in sides)
    for expected, sentence in itertools.zip_longest(gold, predicted):
        words = [one and one.words for one in (expected, sentence)]
        if words[0] != words[1]:
            received = f"{len(gold)} and {len(predicted)} sentences"
            if None not in words:
                received = (
                    f"{sentence.source}:{sentence.line}, a sentence that is not the "
                    f"one at {expected.source}:{expected.line}"
                )
            raise InputError("Both files must have the same words", received, _REMEDY)
    split = Split(gold, [sentence.tags for sentence in gold])
    scorer = TagScorer(tag for tags in split.targets for tag in tags)
    return scorer.all_scores(split, [sentence.tags for sentence in predicted])
