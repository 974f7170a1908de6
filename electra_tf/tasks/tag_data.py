"""Read sentences whose words have tags."""

import collections
import functools
import re
from collections.abc import Callable, Mapping, Sequence

from electra_tf.config.finetuning import DataConfig
from electra_tf.errors import InputError, format_list
from electra_tf.tasks.data.conll import (
    ENDINGS,
    has_no_columns,
    read_sentences,
    with_usual_tags,
)
from electra_tf.tasks.data.files import Notify
from electra_tf.tasks.data.schemes import (
    BIOES,
    OUTSIDE,
    STRAY,
    is_span_scheme,
    learned_scheme,
    scheme_of,
    to_scheme,
)
from electra_tf.tasks.data.splits import (
    Split,
    find_splits,
    hold_out,
    move_to_dev,
    unread_file,
    warn_of_missing_classes,
)
from electra_tf.tasks.labels import other_spelling, several_spellings
from electra_tf.tasks.score import TagScorer
from electra_tf.tasks.tagger import TokenClassifier, tag_vocabulary
from electra_tf.tasks.task_data import SPLITS, Reading, TaskData, format_counts
from electra_tf.text.data_errors import DataErrorLog
from electra_tf.text.files import inner_suffix
from electra_tf.text.rows import JSON_SUFFIXES
from electra_tf.text.tokenizer import WordPieceTokenizer

_MARKED = re.compile("[A-Z]-.")


def read_tagging(name: str, data: str, reading: Reading) -> TaskData:
    """Read files of sentences with tags."""
    settings, log, notify = reading.settings, reading.log, reading.notify
    paths = find_splits(data, SPLITS, ENDINGS)
    other = unread_file(data)
    if "train" not in paths and other and has_no_columns(other):
        paths["train"] = other  # for the error of its format
    if "train" not in paths:
        raise InputError(
            "--data must be a file of sentences, or a folder with train.txt and "
            "optionally dev.txt and test.txt (also .conll, .tsv, .bio, .jsonl, .gz, "
            ".xz)",
            f"{data!r} without train",
            "Check the path, or rename the file of the training data to train.txt (or "
            "train with its own suffix, one of these)",
        )
    keys = settings.text_columns, settings.label_column, settings.spans_column
    if any(keys) or settings.tag_names:
        require_json(paths["train"])
    splits = read_tagged(paths, settings, log, notify, tokenizer=reading.tokenizer)
    _check_words(splits["train"], settings)
    splits["train"] = _without_stray_tags(splits["train"], log)
    if "dev" not in splits:
        classes = [0] * len(splits["train"])
        dev, _ = hold_out(classes, settings.dev_share, settings.split_seed)
        if not dev:
            raise InputError(
                "Training data without a dev file must have two or more sentences",
                f"{len(classes)} in {data}",
                "Add sentences, or a dev file",
            )
        splits = move_to_dev(splits, dev, name, "sentences", settings, notify)
    train = splits["train"]
    tags = tag_vocabulary(train.items)
    splits |= {
        split: with_known_tags(split, part, tags, log)
        for split, part in splits.items()
        if split != "train"
    }
    if "dev" in paths:
        kinds, noun = _kinds(splits)
        warn_of_missing_classes(kinds, name, noun, notify)
    scheme, misfits = BIOES, []
    if is_span_scheme(tags):
        scheme, misfits = scheme_of(train.targets)
    for line in _describe_tags(train, tags, scheme, misfits):
        notify(f"{name}: {line}")
    counts = collections.Counter(tag for tags_ in train.targets for tag in tags_)
    label_counts = format_counts({f"tag {t}": n for t, n in counts.most_common()})
    model = functools.partial(TokenClassifier, tags=tags, scheme=scheme)
    scorer = TagScorer(tags)
    return TaskData(name, splits, scorer, model, label_counts=label_counts)


def _kinds(splits: Mapping[str, Split]) -> tuple[dict[str, set[str]], str]:
    """Return the types of spans, or the tags, of each split, and what they are."""
    tags = {n: {t for tags in s.targets for t in tags} for n, s in splits.items()}
    if not is_span_scheme(tags["train"]):
        return tags, "tags"
    kinds = {
        name: {tag.partition("-")[2] for tag in own} - {""}
        for name, own in tags.items()
    }
    return kinds, "types of spans"


def require_json(path: str) -> None:
    """Raise an error if a file has no keys, which flags name."""
    if inner_suffix(path) not in JSON_SUFFIXES:
        raise InputError(
            "--text_columns, --label_column, --spans_column and --tag_names must be "
            "used with JSON",
            f"{path!r}, a column file",
            "Leave them out; in training, data.word_column and data.tag_column number "
            "the columns",
        )


def read_tagged(
    paths: Mapping[str, str],
    settings: DataConfig,
    log: DataErrorLog,
    notify: Notify,
    known: Sequence[str] = (),
    tokenizer: WordPieceTokenizer | None = None,
) -> dict[str, Split]:
    """Read the files of all splits.

    `known`: tags of a model, whose spelling the tags keep.
    """
    files = {
        split: read_sentences(path, settings, log, notify, tokenizer)
        for split, path in paths.items()
    }
    files = with_usual_tags(files, known, notify)
    return {
        split: Split(sentences, [sentence.tags for sentence in sentences])
        for split, sentences in files.items()
    }


def _check_words(train: Split, settings: DataConfig) -> None:
    """Raise an error for numbers of words in the column of the words."""
    longer = [s.words[:2] for s in train.items if len(s.words) > 1]
    if settings.word_column == 0 and longer and set(longer) == {("1", "2")}:
        raise InputError(
            "The word column must contain words",
            f"{train.items[0].source} with the words '1', '2', ... in each sentence",
            "Set the right columns; for CoNLL-U pass --set data.word_column=1 and "
            "--set data.tag_column=3",
        )


def _without_stray_tags(train: Split, log: DataErrorLog) -> Split:
    """Drop sentences with a tag that marks no span, if nearly all tags mark spans."""
    tags = [tag for tags in train.targets for tag in tags]
    strays = {tag for tag in set(tags) if not is_span_scheme({tag})}
    count = sum(tag in strays for tag in tags)
    if count > max(1, STRAY * len(tags)) or set(tags) <= {OUTSIDE, *strays}:
        return train
    remedy = (
        "Correct that line, or delete it if it is a header; nearly all other tags are "
        "O, or B, I, E or S with a hyphen and a type"
    )
    kind = "a tag that marks no span"
    return _without(train, train.targets, strays.__contains__, kind, remedy, log)


def with_known_tags(
    name: str, split: Split, tags: Sequence[str], log: DataErrorLog
) -> Split:
    """Return the sentences whose tags a model has; report those that it lacks."""
    converted = split.targets
    if is_span_scheme(tags):
        scheme = learned_scheme(tags)
        converted = [
            to_scheme(own, scheme) if is_span_scheme(own) else own for own in converted
        ]
    remedy = f"Correct it, or add it to the training data; known: {format_list(tags)}"
    kind = "a tag training does not have"
    known = _without(split, converted, lambda t: t not in tags, kind, remedy, log, tags)
    if not len(known):
        raise InputError(
            f"The tags of {name} must be tags of train",
            f"no sentence of {name} with known tags only; known: {format_list(tags)}",
            f"Write the tags of {name} as those of train, or name other columns",
        )
    return known


def _without(
    split: Split,
    converted: Sequence[Sequence[str]],
    is_wrong: Callable[[str], bool],
    kind: str,
    remedy: str,
    log: DataErrorLog,
    known: Sequence[str] = (),
) -> Split:
    """Drop the sentences with a wrong tag, and report the first one of each."""
    good = []
    for index, (sentence, tags) in enumerate(zip(split.items, converted, strict=True)):
        wrong = [place for place, tag in enumerate(tags) if is_wrong(tag)]
        if not wrong:
            good.append(index)
            continue
        tag, line = sentence.tags[wrong[0]], sentence.line_of(wrong[0])
        detail = f"{tag!r}{other_spelling(tag, known)}; its sentence is dropped"
        log.add(sentence.source, line, kind, detail, remedy)
    return split.subset(good)


def _describe_tags(
    train: Split, tags: Sequence[str], scheme: str, misfits: Sequence[int]
) -> list[str]:
    counts = collections.Counter(tag for tags_ in train.targets for tag in tags_)
    spellings = several_spellings(counts, "tags", "words")
    lines = [f"warning: {line}" for line in spellings]
    if not is_span_scheme(tags):
        marked = [tag for tag in tags if _MARKED.match(tag)]
        odd = [tag for tag in marked if not is_span_scheme({tag})]
        why = "F1 of spans needs tags such as B-NP, I-NP and O"
        if odd and {OUTSIDE, *marked} == {OUTSIDE, *tags}:
            why += f"; {format_list(odd, 3)} have another mark than B, I, E and S"
        return [*lines, f"{len(tags):,} tags, scored by accuracy ({why})"]
    lines.append(
        f"the tags mark spans, in the scheme {scheme}: scored by F1 of whole spans, "
        f"predictions are written in {scheme}"
    )
    if misfits:
        odd = train.items[misfits[0]]
        lines.append(
            f"{len(misfits):,} of {len(train):,} sentences have tags that {scheme} "
            f"would write otherwise, the first at {odd.source}:{odd.line}"
        )
    return lines
