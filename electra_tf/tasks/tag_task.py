"""Tags of words, and the entities that they mark, in columns or JSON."""

import dataclasses
import itertools
import os
import pathlib
from collections.abc import Sequence
from typing import Any

from electra_tf.errors import InputError
from electra_tf.tasks.data.conll import (
    COLUMN_SUFFIXES,
    Sentence,
    as_sentence,
    is_column_file,
    read_conll,
    with_usual_tags,
)
from electra_tf.tasks.data.files import STANDARD_INPUT, Notify, opened, print_note
from electra_tf.tasks.data.records import read_json, read_lines_or_objects
from electra_tf.tasks.data.schemes import OUTSIDE, to_scheme
from electra_tf.tasks.data.span_records import CharacterSpan
from electra_tf.tasks.data.splits import Split, find_labelled
from electra_tf.tasks.data.table import read
from electra_tf.tasks.data.tag_records import parse_unlabelled
from electra_tf.tasks.score import TagScorer
from electra_tf.tasks.tag_data import (
    ENDINGS,
    read_tagged,
    read_tagging,
    require_json,
    with_known_tags,
)
from electra_tf.tasks.tagger import TaggedWords, TokenClassifier
from electra_tf.tasks.task import ID, Item, Task, check_count, probability_cells
from electra_tf.tasks.task_data import Labelled, Reading, TaskData
from electra_tf.text.data_errors import DataErrorLog
from electra_tf.text.delimited import Lines
from electra_tf.text.files import inner_suffix
from electra_tf.text.rows import JSON_SUFFIXES

_HEAD_LINES = 100  # by which columns of words are recognised


class TagTask(Task):
    """A tag for each word; spans of words are entities."""

    models = (TokenClassifier,)
    columns = ("text_columns", "label_column", "spans_column", "tag_names")

    def training_data(self, name: str, data: str, reading: Reading) -> TaskData:
        """Read files of sentences."""
        return read_tagging(name, data, reading)

    def labelled_data(
        self, model: TokenClassifier, name: str | None, data: str, reading: Reading
    ) -> Labelled:
        """Read sentences, whose tags must be the model's."""
        files = find_labelled(data, ENDINGS)
        for file in files.values():
            require_json(file, list(reading.given))
        splits = {
            split: with_known_tags(part, model.tags, reading.log)
            for split, part in read_tagged(files, reading, model.tags).items()
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
        log = DataErrorLog("stop")
        for path in (data, predictions):
            if inner_suffix(path) in JSON_SUFFIXES:
                raise InputError(
                    f"{path} must be columns, a word and its tag on each line, not JSON"
                )
        sides = [read_conll(path, 0, -1, log, notify) for path in (data, predictions)]
        gold, predicted = (with_usual_tags({"": s}, notify=notify)[""] for s in sides)
        for expected, sentence in itertools.zip_longest(gold, predicted):
            if None in (expected, sentence):
                counts = f"{len(gold)} and {len(predicted)} sentences"
                raise InputError(f"{data} and {predictions} have {counts}")
            if expected.words != sentence.words:
                place = f"{expected.source}:{expected.line}"
                raise InputError(
                    f"{sentence.source}:{sentence.line} must have the same words as "
                    f"{place}"
                )
        split = Split(gold, [sentence.tags for sentence in gold])
        scorer = TagScorer(tag for tags in split.targets for tag in tags)
        return scorer.all_scores(split, [sentence.tags for sentence in predicted])

    def inputs(
        self, model: TokenClassifier, path: str | None, reading: Reading
    ) -> list[Item]:
        """Read texts, lists of words, or columns of words."""
        settings, log, head = reading.settings, reading.log, []
        if reading.given:
            check_count(settings.text_columns, [1], model)
        suffix, source = inner_suffix(path or ""), path or STANDARD_INPUT
        if path and suffix not in (".csv", ".parquet", *JSON_SUFFIXES):
            with opened(path) as file:
                lines = itertools.islice(Lines(file), _HEAD_LINES)
                head = [line.rstrip("\r\n") for line in lines]
        is_given = "text_columns" in reading.given
        usual = () if is_given else ("words", "tokens", "text")
        names = {*settings.text_columns, *usual}
        is_table = suffix in (".csv", ".parquet") or (
            suffix == ".tsv" and head and not names.isdisjoint(head[0].split("\t"))
        )
        if is_table:
            table = read(path, log)
            values = zip(table.lines, map(table.row, range(len(table))), strict=True)
        elif suffix in JSON_SUFFIXES:
            values = read_json(path, log)
        elif suffix in COLUMN_SUFFIXES or is_column_file(head, model.tags):
            return _column_items(model, path, head, reading)
        else:
            values = read_lines_or_objects(path, log)
        found = parse_unlabelled(source, values, settings, model.tokenizer, is_given)
        return _items(model, found)

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
        self, model: TokenClassifier, index: int, item: Item, prediction: TaggedWords
    ) -> list[dict[str, Any]]:
        """Return a row for each word, with the probabilities of the learned tags."""
        sentence, rows = as_sentence(item.value), []
        more = {} if item.id is None else {ID: item.id}
        for number, word in enumerate(sentence.words):
            row: dict[str, Any] = {**more, "sentence": index, "word": word}
            if sentence.offsets:
                row["start"], row["end"] = sentence.offsets[number]
            if item.gold is not None:
                row["gold"] = item.gold[number]
            row["prediction"] = prediction.tags[number]
            probabilities_C = prediction.probabilities[number]
            rows.append(row | probability_cells(model.tags, probabilities_C))
        return rows


def _column_items(
    model: TokenClassifier, path: str, head: Sequence[str], reading: Reading
) -> list[Item]:
    columns: tuple[int, int | None] = 0, None
    if any(len(line.split()) > 1 for line in head):
        columns = reading.settings.word_column, reading.settings.tag_column
    sentences = read_conll(path, *columns, reading.log, print_note)
    print_note(
        f"{path}: read as columns, word {columns[0]}; its tags are not used, but "
        "copied as gold with --format=csv and jsonl"
    )
    return _items(model, [(sentence, None) for sentence in sentences])


def _items(model: TokenClassifier, found: Sequence[tuple[Sentence, Any]]) -> list[Item]:
    """Return sentences with their ids as inputs; tags become gold ones."""
    sentences = [
        dataclasses.replace(one, tags=tuple(to_scheme(one.tags, model.scheme)))
        if one.form and one.tags
        else one
        for one, _ in found
    ]
    sentences = with_usual_tags({"": sentences}, model.tags, print_note)[""]
    return [
        Item(sentence, sentence.tags, None if name is None else {ID: name})
        for sentence, (_, name) in zip(sentences, found, strict=True)
    ]
