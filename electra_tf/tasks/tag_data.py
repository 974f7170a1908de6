"""Read sentences whose words have tags."""

import collections
import functools
from collections.abc import Callable, Mapping, Sequence

from electra_tf.errors import InputError, format_list
from electra_tf.tasks.data import splits, tag_records
from electra_tf.tasks.data.conll import (
    COLUMN_SUFFIXES,
    Sentence,
    read_conll,
    with_usual_tags,
)
from electra_tf.tasks.data.schemes import (
    BIOES,
    OUTSIDE,
    STRAY,
    is_span_scheme,
    learned_scheme,
    scheme_of,
    to_scheme,
)
from electra_tf.tasks.data.splits import Split
from electra_tf.tasks.labels import suspicious_labels, unknown_name
from electra_tf.tasks.score import TagScorer
from electra_tf.tasks.tagger import TokenClassifier, tag_vocabulary
from electra_tf.tasks.task_data import Reading, TaskData, format_counts
from electra_tf.text.data_errors import DataErrorLog
from electra_tf.text.files import inner_suffix
from electra_tf.text.rows import JSON_SUFFIXES

ENDINGS = (".txt", ".tsv", *COLUMN_SUFFIXES, "", *JSON_SUFFIXES)
"""Endings of files of sentences: columns, or JSON."""
_KEYS = ("text_columns", "label_column", "spans_column", "tag_names")


def read_tagging(name: str, data: str, reading: Reading) -> TaskData:
    """Read files of sentences with tags."""
    settings, log, notify = reading.settings, reading.log, reading.notify
    paths = splits.find_training(data, ENDINGS)
    require_json(paths["train"], [key for key in _KEYS if getattr(settings, key)])
    parts = read_tagged(paths, reading)
    train = parts["train"]
    heads = {s.words[:2] for s in train.items if len(s.words) > 1}
    if settings.word_column == 0 and heads == {("1", "2")}:
        raise InputError(
            f"{paths['train']} must have words in its first column, not numbers; for "
            "CoNLL-U pass --set data.word_column=1 and --set data.tag_column=3"
        )
    parts["train"] = _without_stray_tags(train, log)
    parts = splits.with_dev(parts, name, "sentences", settings, notify)
    train = parts["train"]
    tags = tag_vocabulary(train.items)
    for split in [name for name in parts if name != "train"]:
        parts[split] = with_known_tags(parts[split], tags, log)
    if "dev" in paths:
        kinds, noun = _kinds(parts)
        splits.warn_of_missing_classes(kinds, name, noun, notify)
    counts = collections.Counter(tag for own in train.targets for tag in own)
    for line in suspicious_labels(counts, "tags", "words"):
        notify(f"{name}: warning: {line}")
    scheme, misfits = BIOES, []
    if is_span_scheme(tags):
        scheme, misfits = scheme_of(train.targets)
    notify(f"{name}: {_describe_tags(tags, scheme)}")
    if misfits:
        odd = train.items[misfits[0]]
        notify(
            f"{name}: {len(misfits):,} of {len(train):,} sentences have tags that "
            f"{scheme} would write otherwise, the first at {odd.source}:{odd.line}"
        )
    label_counts = format_counts({f"tag {t}": n for t, n in counts.most_common()})
    model = functools.partial(TokenClassifier, tags=tags, scheme=scheme)
    return TaskData(name, parts, TagScorer(tags), model, label_counts=label_counts)


def require_json(path: str, keys: Sequence[str]) -> None:
    """Raise an error if a file has no keys, which flags name."""
    if keys and inner_suffix(path) not in JSON_SUFFIXES:
        flags = ", ".join(f"--{key}" for key in keys)
        raise InputError(f"{flags} must be used with JSON, and {path!r} is columns")


def read_tagged(
    paths: Mapping[str, str], reading: Reading, known: Sequence[str] = ()
) -> dict[str, Split]:
    """Read the files of all splits.

    `known`: tags of a model, whose spelling the tags keep.
    """
    files = {split: read_sentences(path, reading) for split, path in paths.items()}
    files = with_usual_tags(files, known, reading.notify)
    return {
        split: Split(sentences, [sentence.tags for sentence in sentences])
        for split, sentences in files.items()
    }


def read_sentences(path: str, reading: Reading) -> list[Sentence]:
    """Read a labelled file of columns or JSON."""
    settings, log, notify = reading.settings, reading.log, reading.notify
    if inner_suffix(path) in JSON_SUFFIXES:
        return tag_records.read_labelled(path, settings, log, notify, reading.tokenizer)
    return read_conll(path, settings.word_column, settings.tag_column, log, notify)


def _kinds(parts: Mapping[str, Split]) -> tuple[dict[str, set[str]], str]:
    """Return the types of spans, or the tags, of each split, and what they are."""
    tags = {n: {t for tags in s.targets for t in tags} for n, s in parts.items()}
    if not is_span_scheme(tags["train"]):
        return tags, "tags"
    kinds = {n: {t.partition("-")[2] for t in own} - {""} for n, own in tags.items()}
    return kinds, "types of spans"


def _without_stray_tags(train: Split, log: DataErrorLog) -> Split:
    """Drop sentences with a tag that marks no span, if nearly all tags mark spans."""
    tags = [tag for tags in train.targets for tag in tags]
    strays = {tag for tag in set(tags) if not is_span_scheme({tag})}
    count = sum(tag in strays for tag in tags)
    if count > max(1, STRAY * len(tags)) or set(tags) <= {OUTSIDE, *strays}:
        return train
    return _without(
        train, train.targets, strays.__contains__, "a tag that marks no span", repr, log
    )


def with_known_tags(split: Split, tags: Sequence[str], log: DataErrorLog) -> Split:
    """Return the sentences whose tags a model has; report those that it lacks."""
    converted, source = split.targets, split.items[0].source
    if is_span_scheme(tags):
        scheme = learned_scheme(tags)
        converted = [
            to_scheme(own, scheme) if is_span_scheme(own) else own for own in converted
        ]
    describe = functools.partial(unknown_name, known=tags)
    kind = "a tag training does not have"
    known = _without(split, converted, lambda t: t not in tags, kind, describe, log)
    if not len(known):
        raise InputError(
            f"{source} must have sentences with known tags only, and has none; known: "
            f"{format_list(tags)}"
        )
    return known


def _without(
    split: Split,
    converted: Sequence[Sequence[str]],
    is_wrong: Callable[[str], bool],
    kind: str,
    describe: Callable[[str], str],
    log: DataErrorLog,
) -> Split:
    """Drop the sentences with a wrong tag, and report the first one of each."""
    good = []
    for index, (sentence, tags) in enumerate(zip(split.items, converted, strict=True)):
        wrong = [place for place, tag in enumerate(tags) if is_wrong(tag)]
        if not wrong:
            good.append(index)
            continue
        tag, line = sentence.tags[wrong[0]], sentence.line_of(wrong[0])
        detail = f"{describe(tag)}; its sentence is dropped"
        log.add(sentence.source, line, kind, detail)
    return split.subset(good)


def _describe_tags(tags: Sequence[str], scheme: str) -> str:
    if is_span_scheme(tags):
        return (
            f"the tags mark spans, in the scheme {scheme}: scored by F1 of whole "
            f"spans, predictions are written in {scheme}"
        )
    why = "F1 of spans needs tags such as B-NP, I-NP and O"
    return f"{len(tags):,} tags, scored by accuracy ({why})"
