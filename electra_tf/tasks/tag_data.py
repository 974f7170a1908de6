"""Read sentences whose words have tags."""

import collections
import functools
import re
from collections.abc import Sequence

from electra_tf.config.finetuning import DataConfig
from electra_tf.errors import InputError, format_list
from electra_tf.tasks.conll import (
    ENDINGS,
    Sentence,
    read_sentences,
    require_json,
    without_headers,
)
from electra_tf.tasks.labels import other_spelling, several_spellings
from electra_tf.tasks.schemes import (
    BIOES,
    OUTSIDE,
    is_span_scheme,
    scheme_of,
    to_bioes,
)
from electra_tf.tasks.score import TagScorer
from electra_tf.tasks.splits import (
    Split,
    divide,
    find_splits,
    hold_out,
)
from electra_tf.tasks.tagger import TokenClassifier, tag_vocabulary
from electra_tf.tasks.task_data import (
    SPLITS,
    Notify,
    TaskData,
    format_counts,
)
from electra_tf.text.data_errors import DataError, DataErrorLog

_MARKED = re.compile("[A-Z]-.")
_STRAY = 0.01  # up to this share, tags that mark no span are errors


def sentence_split(sentences: Sequence[Sentence]) -> Split:
    """Return sentences as a split, with their tags as targets."""
    return Split(sentences, [sentence.tags for sentence in sentences])


def read_tagging(
    name: str,
    data: str,
    settings: DataConfig,
    log: DataErrorLog,
    notify: Notify,
) -> TaskData:
    """Read files of sentences with tags."""
    files = _read_sentence_files(data, settings, log, notify)
    files["train"] = _drop_stray_tags(files["train"], log)
    splits = {split: sentence_split(part) for split, part in files.items()}
    if "dev" not in splits:
        train = splits.pop("train")
        dev, _ = hold_out([0] * len(train), settings.dev_share, settings.split_seed)
        if not dev:
            raise InputError(
                "Training data without a dev file must have two or more sentences",
                f"{len(train)} in {data}",
                "Add sentences, or a dev file",
            )
        notify(
            f"{name}: no dev file; held out as dev: {len(dev):,} of {len(train):,} "
            f"sentences (data.dev_share {settings.dev_share:g}, data.split_seed "
            f"{settings.split_seed})"
        )
        splits = divide(train, dev) | splits
    train = splits["train"]
    tags = tag_vocabulary(train.items)
    splits |= {
        split: _with_known_tags(split, part, tags, log)
        for split, part in splits.items()
        if split != "train"
    }
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


def _read_sentence_files(
    data: str, settings: DataConfig, log: DataErrorLog, notify: Notify
) -> dict[str, list[Sentence]]:
    """Read the files of all splits, without header lines."""
    paths = find_splits(data, SPLITS, ENDINGS)
    if "train" not in paths:
        raise InputError(
            "--data must be a file of sentences, or a folder with train.txt and "
            "optionally dev.txt and test.txt (also .conll, .tsv, .bio, .jsonl, .gz, "
            ".xz)",
            f"{data!r} without train",
            "Check the path, or rename the file of the training data to train.txt (or "
            "train with its own suffix)",
        )
    if settings.text_columns or settings.label_column or settings.tag_names:
        require_json(paths["train"])
    files = {s: read_sentences(p, settings, log, notify) for s, p in paths.items()}
    files = without_headers(files, notify)
    for split, sentences in files.items():
        if not sentences:
            raise InputError(
                "Each file must have one or more valid sentences",
                f"{paths[split]} with none",
                "Correct the reported errors",
            )
    longer = [s.words[:2] for s in files["train"] if len(s.words) > 1]
    if settings.word_column == 0 and longer and set(longer) == {("1", "2")}:
        raise InputError(
            "The word column must contain words",
            f"{paths['train']} with the words '1', '2', ... in each sentence",
            "Set the right columns; for CoNLL-U pass --set data.word_column=1 and "
            "--set data.tag_column=3",
        )
    return files


def _drop_stray_tags(sentences: list[Sentence], log: DataErrorLog) -> list[Sentence]:
    """Drop sentences with a tag that marks no span, if nearly all tags mark spans."""
    tags = [tag for sentence in sentences for tag in sentence.tags]
    strays = [tag for tag in tags if not is_span_scheme({tag})]
    are_errors = len(strays) <= max(1, _STRAY * len(tags))
    if not are_errors or set(tags) <= {OUTSIDE, *strays}:
        return sentences
    valid = []
    for sentence in sentences:
        odd = [n for n, t in enumerate(sentence.tags) if not is_span_scheme({t})]
        if not odd:
            valid.append(sentence)
            continue
        detail = f"{sentence.tags[odd[0]]!r}; its sentence is dropped"
        remedy = (
            "Correct that line, or delete it if it is a header; nearly all other tags "
            "are O, or B, I, E or S with a hyphen and a type"
        )
        where = sentence.source, sentence.line_of(odd[0])
        log.add(DataError(*where, "a tag that marks no span", detail, remedy))
    if not valid:
        raise InputError(
            "Each file must have one or more valid sentences",
            f"{sentences[0].source} with none",
            "Correct its tags",
        )
    return valid


def _with_known_tags(
    name: str, split: Split, tags: Sequence[str], log: DataErrorLog
) -> Split:
    """Return the sentences whose tags train has; report one that it lacks."""
    known = []
    for sentence in split.items:
        converted = sentence.tags
        if is_span_scheme(tags) and is_span_scheme(converted):
            converted = to_bioes(converted)
        index = next((n for n, tag in enumerate(converted) if tag not in tags), None)
        if index is None:
            known.append(sentence)
            continue
        tag = sentence.tags[index]
        detail = f"{tag!r}{other_spelling(tag, tags)}; its sentence is dropped"
        remedy = "Correct it, or add it to the training data; known: "
        where = sentence.source, sentence.line_of(index)
        kind = "a tag training does not have"
        log.add(DataError(*where, kind, detail, remedy + format_list(tags)))
    if not known:
        raise InputError(
            f"The tags of {name} must be tags of train",
            f"no sentence of {name} with known tags only; known: {format_list(tags)}",
            f"Write the tags of {name} as those of train, or name other columns",
        )
    return sentence_split(known)


def _describe_tags(
    train: Split, tags: Sequence[str], scheme: str, misfits: Sequence[int]
) -> list[str]:
    """Return lines on the detected scheme and the scoring of the tags."""
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
