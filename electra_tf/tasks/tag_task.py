"""Tags of words, and the entities that they mark, in columns or tables."""

import collections
import dataclasses
import functools
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from electra_tf.config.finetuning import DataConfig
from electra_tf.errors import InputError
from electra_tf.tasks import metrics
from electra_tf.tasks.class_report import ClassReport, span_report, tag_report
from electra_tf.tasks.data import conll, schemes, splits, tag_records
from electra_tf.tasks.data.conll import Sentence
from electra_tf.tasks.data.files import Notify, opened
from electra_tf.tasks.data.held_out import with_dev
from electra_tf.tasks.data.schemes import Span
from electra_tf.tasks.data.splits import Split
from electra_tf.tasks.data.table import json_text, one_line, read
from electra_tf.tasks.labels import unknown_name
from electra_tf.tasks.score import Mistake, ScoredSplit
from electra_tf.tasks.task import (
    Task,
    check_count,
    float_scores,
    probability_cells,
    write_lines,
)
from electra_tf.tasks.task_data import Labelled, Reading, TaskData, format_counts
from electra_tf.tasks.token_classifier import (
    TaggedWords,
    TokenClassifier,
    tag_vocabulary,
)
from electra_tf.text.data_errors import data_error
from electra_tf.text.files import inner_suffix, is_tfds
from electra_tf.text.lines import Lines
from electra_tf.text.rows import READERS, TEXT

_ENDINGS = (".txt", *conll.COLUMN_SUFFIXES, "", *READERS)
_HEAD_LINES = 100  # by which columns of words are recognised


class TagTask(Task):
    """A tag for each word; spans of words are entities."""

    models = (TokenClassifier,)
    columns = ("text_columns", "label_column", "spans_column", "tag_names")
    published: ClassVar = {"chunking": {"epochs": 3, "max_length": 256}}

    def training_data(self, name: str, data: str, reading: Reading) -> TaskData:
        """Read files of sentences with tags."""
        settings, notify = reading.settings, reading.notify
        paths = splits.find_splits(data, True, _ENDINGS)
        keys = [key for key in self.columns if getattr(settings, key)]
        _require_table(paths["train"], keys, settings)
        parts = _read_tagged(paths, reading)
        train = parts["train"]
        _check_stray_tags(train)
        parts = with_dev(parts, name, "sentences", reading)
        train = parts["train"]
        tags = tag_vocabulary(train.items)
        for split in [name for name in parts if name != "train"]:
            _check_known_tags(parts[split], tags)
        counts = collections.Counter(tag for own in train.targets for tag in own)
        scheme, misfits = schemes.BIOES, []
        if schemes.is_span_scheme(tags):
            scheme, misfits = schemes.scheme_of(train.targets)
        notify(f"{name}: {_describe_tags(tags, scheme)}")
        if misfits:
            odd = train.items[misfits[0]]
            notify(
                f"{name}: {len(misfits):,} of {len(train):,} sentences have tags that "
                f"{scheme} would write otherwise, the first at {odd.source}:{odd.line}"
            )
        label_counts = format_counts({f"tag {t}": n for t, n in counts.most_common()})
        model = functools.partial(TokenClassifier, tags=tags, scheme=scheme)
        return TaskData(name, parts, _metrics(tags), model, label_counts=label_counts)

    def labelled_data(
        self, model: TokenClassifier, name: str | None, data: str, reading: Reading
    ) -> Labelled:
        """Read sentences, whose tags must be the model's."""
        files = splits.find_splits(data, False, _ENDINGS)
        for file in files.values():
            _require_table(file, list(reading.given), reading.settings)
        found = _read_tagged(files, reading, model.tags)
        for part in found.values():
            _check_known_tags(part, model.tags)
        return Labelled(name or "tagging", found, _metrics(model.tags))

    def inputs(
        self, model: TokenClassifier, path: str | None, reading: Reading
    ) -> Split:
        """Read texts, lists of words, or columns of words."""
        settings, is_given = reading.settings, "text_columns" in reading.given
        if reading.given:
            check_count(settings.text_columns, [1], model)
        if path and not _is_table(path, settings, is_labelled=False):
            head = _head(path)
            is_named = inner_suffix(path) in conll.COLUMN_SUFFIXES
            if is_named or conll.is_column_file(head, model.tags):
                found = Split(_read_columns(path, head, reading), None)
                return _with_targets({"": found}, model.tags, reading.notify)[""]
        table = read(path, notify=reading.notify)
        found = tag_records.parse_unlabelled(table, reading, model.scheme, is_given)
        return _with_targets({"": found}, model.tags, reading.notify)[""]

    def line(self, model: TokenClassifier, item: Any, details: TaggedWords) -> str:
        """Return words with tags, or the entities of a text."""
        sentence, entities = conll.as_sentence(item), details.entities
        if entities is None or schemes.OUTSIDE not in model.tags:
            pairs = zip(sentence.words, details.tags, strict=True)
            return " ".join(map("/".join, pairs))
        return "\t".join(
            f"{one_line(one.text)} "
            f"({f'{one.type} {one.start}:{one.end}'.strip()}, {one.score:.2f})"
            for one in entities
        )

    def record(self, model: TokenClassifier, item: Any, details: TaggedWords) -> Any:
        """Return words, tags and entities, in the form of a text with spans."""
        sentence, entities = conll.as_sentence(item), details.entities
        record = {"words": list(sentence.words), "tags": details.tags}
        if entities is None:
            return record
        found = [entity._asdict() for entity in entities]
        record = {"text": sentence.text, "entities": found, **record}
        if sentence.form is None:
            return record
        return record | sentence.form.write(sentence.text, entities)

    def texts(self, item: Any) -> dict[str, str]:
        """Return nothing: other columns have the words."""
        return {}

    def rows(
        self,
        model: TokenClassifier,
        index: int,
        item: Any,
        details: TaggedWords,
        target: Any,
    ) -> list[dict[str, Any]]:
        """Return a row for each word, with the probabilities of the learned tags."""
        sentence, gold, rows = conll.as_sentence(item), getattr(item, "tags", None), []
        for number, word in enumerate(sentence.words):
            row: dict[str, Any] = {"sentence": index, "word": word}
            if sentence.offsets:
                row["start"], row["end"] = sentence.offsets[number]
            if gold is not None:
                row["gold"] = gold[number]
            row["prediction"] = details.tags[number]
            probabilities_C = details.probabilities[number]
            rows.append(row | probability_cells(model.tags, probabilities_C))
        return rows

    # Scores: of spans, or of single tags.

    def predictions(self, scored: ScoredSplit) -> list[list[str]]:
        """Return the tags of each sentence."""
        return [sentence.tags for sentence in scored.details]

    def scores(self, scored: ScoredSplit) -> dict[str, float]:
        """Compute the scores of conlleval, or the accuracy of tags."""
        sides = scored.split.targets, scored.predictions
        if schemes.is_span_scheme(scored.model.tags):
            return float_scores(metrics.score_spans(*sides), scored.metrics)
        return {"accuracy": metrics.tag_accuracy(*sides)}

    def class_report(self, scored: ScoredSplit) -> ClassReport:
        """Return the scores of each type of span, or of each tag."""
        sides, tags = (scored.split.targets, scored.predictions), scored.model.tags
        if schemes.is_span_scheme(tags):
            return span_report(*sides)
        return tag_report(*sides, tags)

    def mistakes(self, scored: ScoredSplit) -> Iterator[Mistake]:
        """Yield sentences with wrong spans, or wrong tags of words."""
        has_spans = schemes.is_span_scheme(scored.model.tags)
        find = schemes.conlleval_spans if has_spans else _words
        columns = scored.split.targets, scored.predictions, scored.details
        rows = zip(scored.split.items, *columns, strict=True)
        for sentence, gold, predicted, details in rows:
            spans, words = (find(gold), find(predicted)), sentence.words
            sides = [_format(words, *both) for both in (spans, spans[::-1])]
            if any(sides):
                wrong = [a != b for a, b in zip(gold, predicted, strict=True)]
                size = float(np.max(details.probabilities.max(-1)[wrong], initial=0))
                shown = (side or "nothing" for side in sides)
                yield Mistake(" ".join(words), *shown, size)

    def degenerate(self, scored: ScoredSplit) -> str | None:
        """Describe predictions of one tag only, or of one span per sentence."""
        predicted = {tag for tags in scored.predictions for tag in tags}
        if predicted == {schemes.OUTSIDE}:
            return "predicts no span"
        if len(predicted) == 1:
            return f"always predicts {predicted.pop()}"
        has_spans = schemes.is_span_scheme(scored.model.tags)
        return _one_span(scored.predictions) if has_spans else None

    def write(self, scored: ScoredSplit, path: str) -> None:
        """Write `PATH.txt`: word, gold tag if there is one, and predicted tag.

        Also write `PATH.jsonl` for texts with spans of characters, in their form.
        """
        lines, records, items = [], [], scored.split.items
        for sentence, details in zip(items, scored.details, strict=True):
            gold = [] if sentence.tags is None else [sentence.tags]
            rows = zip(sentence.words, *gold, details.tags, strict=True)
            lines += [" ".join(row) for row in rows] + [""]
            if sentence.form:
                record = sentence.form.write(sentence.text, details.entities)
                records.append(json_text(record))
        write_lines(f"{path}.txt", lines)
        if schemes.is_span_scheme(scored.model.tags) and len(records) == len(items):
            write_lines(f"{path}.jsonl", records)


def _metrics(tags: Sequence[str]) -> tuple[str]:
    return ("f1" if schemes.is_span_scheme(tags) else "accuracy",)


def _words(tags: Sequence[str]) -> list[Span]:
    return [Span(number, number, tag) for number, tag in enumerate(tags)]


def _format(words: Sequence[str], spans: Sequence[Span], others: Sequence[Span]) -> str:
    """Format the spans that are not among others."""
    return ", ".join(
        f"{' '.join(words[span.first : span.last + 1])}/{span.kind}"
        for span in spans
        if span not in others
    )


def _one_span(predictions: Any) -> str | None:
    """Describe predictions of I-X for all words: one span in each sentence."""
    kinds = set()
    for tags in filter(len, predictions):
        spans = schemes.conlleval_spans(tags)
        if [span[:2] for span in spans] != [(0, len(tags) - 1)]:
            return None
        kinds.add(spans[0].kind)
    return f"always predicts one span of {kinds.pop()}" if len(kinds) == 1 else None


def _read_columns(path: str, head: Sequence[str], reading: Reading) -> list[Sentence]:
    columns: tuple[int, int | None] = 0, None
    if any(len(line.split()) > 1 for line in head):
        columns = reading.settings.word_column, reading.settings.tag_column
    sentences = conll.read_conll(path, *columns, reading.notify)
    reading.notify(
        f"{path}: read as columns, word {columns[0]}; its tags are not used, but "
        "copied as gold with --format=csv and jsonl"
    )
    return sentences


def _head(path: str) -> list[str]:
    """Return the first lines of a file."""
    with opened(path) as file:
        lines = itertools.islice(Lines(file), _HEAD_LINES)
        return [line.rstrip("\r\n") for line in lines]


def _is_table(path: str, settings: DataConfig, is_labelled: bool) -> bool:
    """Return whether a file is a table of sentences, and not columns of words.

    A .tsv is one if its header has a name of words or texts; labelled, also lists.
    """
    if inner_suffix(path) != ".tsv":
        return is_tfds(path) or inner_suffix(path) in READERS
    names = {*settings.text_columns, *tag_records.WORD_KEYS, TEXT}
    head = _head(path)[:2]
    is_named = not names.isdisjoint("".join(head[:1]).split("\t"))
    return is_named and ("[" in head[-1] or not is_labelled)


def _require_table(path: str, keys: Sequence[str], settings: DataConfig) -> None:
    """Raise an error if a file has no columns with names, which flags name."""
    if keys and not _is_table(path, settings, is_labelled=True):
        flags = ", ".join(f"--{key}" for key in keys)
        raise InputError(
            f"{flags} must be used with JSON or a table, and {path!r} is columns"
        )


def _read_tagged(
    paths: Mapping[str, str], reading: Reading, known: Sequence[str] = ()
) -> dict[str, Split]:
    """Read the files of all splits; tags keep the letters of a model's."""
    files = {split: read_sentences(path, reading) for split, path in paths.items()}
    return _with_targets(files, known, reading.notify)


def read_sentences(path: str, reading: Reading) -> Split:
    """Read the sentences of a labelled file of columns, or of a table."""
    settings, notify = reading.settings, reading.notify
    if _is_table(path, settings, is_labelled=True):
        return tag_records.parse_labelled(read(path, notify=notify), reading)
    columns = settings.word_column, settings.tag_column
    return Split(conll.read_conll(path, *columns, notify), None)


def _with_targets(
    splits: Mapping[str, Split], known: Sequence[str], notify: Notify
) -> dict[str, Split]:
    """Return splits whose targets are their tags, BIOES instead of BILOU and BMES.

    `known`: tags of a model; one that has learned other letters needs them unchanged.
    """
    sentences = [sentence for split in splits.values() for sentence in split.items]
    counts = collections.Counter(tag for one in sentences for tag in one.tags or ())
    new = schemes.to_bioes(counts, max(1, schemes.STRAY * counts.total()))
    if schemes.to_bioes(dict.fromkeys(known, 1)):
        new = {}
    if new:
        shown = ", ".join(f"{old!r} as {tag!r}" for old, tag in list(new.items())[:3])
        notify(f"{sentences[0].source}: tags are read as BIOES, {shown}")

    def convert(sentence: Sentence) -> Sentence:
        tags = sentence.tags and tuple(new.get(tag, tag) for tag in sentence.tags)
        return dataclasses.replace(sentence, tags=tags)

    found = {}
    for name, split in splits.items():
        items = list(map(convert, split.items)) if new else split.items
        targets = [sentence.tags for sentence in items]
        found[name] = dataclasses.replace(split, items=items, targets=targets)
    return found


def _check_stray_tags(train: Split) -> None:
    """Raise an error for a tag that marks no span, if nearly all tags mark spans."""
    tags = [tag for tags in train.targets for tag in tags]
    strays = {tag for tag in set(tags) if not schemes.is_span_scheme({tag})}
    count = sum(tag in strays for tag in tags)
    known = {schemes.OUTSIDE, *strays}
    if count > max(1, schemes.STRAY * len(tags)) or known.issuperset(tags):
        return
    _check_tags(train, train.targets, strays, "a tag that marks no span")


def _check_known_tags(split: Split, tags: Sequence[str]) -> None:
    """Raise an error for a tag that a model lacks."""
    converted, shown = split.targets, tags
    if schemes.is_span_scheme(tags):
        scheme = schemes.learned_scheme(tags)
        converted = [
            schemes.to_scheme(own, scheme) if schemes.is_span_scheme(own) else own
            for own in converted
        ]
        marks = {tag[:1] for own in split.targets for tag in own}  # those of the file
        shown = [tag for tag in tags if tag[:1] in marks] or tags
    unknown = {tag for own in converted for tag in own} - set(tags)
    _check_tags(split, converted, unknown, "a tag training does not have", shown)


def _check_tags(
    split: Split,
    converted: Sequence[Sequence[str]],
    wrong: Collection[str],
    kind: str,
    known: Sequence[str] = (),
) -> None:
    """Raise an error for the first word with a wrong tag."""
    for sentence, tags in zip(split.items, converted, strict=True):
        for place, tag in enumerate(tags if wrong else ()):
            if tag in wrong:
                line, tag = sentence.line_of(place), sentence.tags[place]
                detail = unknown_name(tag, known) if known else repr(tag)
                raise data_error(sentence.source, line, kind, detail)


def _describe_tags(tags: Sequence[str], scheme: str) -> str:
    if schemes.is_span_scheme(tags):
        return (
            f"the tags mark spans, in the scheme {scheme}: scored by F1 of whole "
            f"spans, predictions are written in {scheme}"
        )
    why = "F1 of spans needs tags such as B-NP, I-NP and O"
    return f"{len(tags):,} tags, scored by accuracy ({why})"
