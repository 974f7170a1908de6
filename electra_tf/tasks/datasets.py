"""Read the data of a task: GLUE, tables, tagged sentences, SQuAD."""

import collections
import dataclasses
import functools
import hashlib
import os
import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from electra_tf.config.finetuning import DataConfig
from electra_tf.errors import InputError, format_list
from electra_tf.tasks import glue
from electra_tf.tasks.answerer import QuestionAnswerer
from electra_tf.tasks.classifier import TextClassifier, TextRegressor
from electra_tf.tasks.conll import (
    ENDINGS,
    Sentence,
    read_sentences,
    require_json,
    without_headers,
)
from electra_tf.tasks.examples import EncodedExamples
from electra_tf.tasks.labels import other_spelling, several_spellings, suspicious_labels
from electra_tf.tasks.metrics import REGRESSION_METRICS, classification_metrics
from electra_tf.tasks.schemes import (
    BIOES,
    OUTSIDE,
    is_span_scheme,
    scheme_of,
    to_bioes,
)
from electra_tf.tasks.score import AnswerScorer, LabelScorer, Scorer, TagScorer
from electra_tf.tasks.splits import (
    Split,
    check_split_column,
    divide,
    find_splits,
    hold_out,
    hold_out_groups,
    rows_by_split,
    unused_split_column,
)
from electra_tf.tasks.squad_json import (
    PUBLISHED,
    Question,
    read_squad,
    read_squad_tfds,
)
from electra_tf.tasks.squad_metrics import require_gold
from electra_tf.tasks.tables import (
    FORMATS,
    TFDS,
    Row,
    has_tfds,
    read_rows,
    require_columns,
)
from electra_tf.tasks.tagger import TokenClassifier
from electra_tf.tasks.tagging.preprocessing import tag_vocabulary
from electra_tf.tasks.text_model import TextModel
from electra_tf.text.data_errors import DataError, DataErrorLog
from electra_tf.text.json_records import SUFFIXES
from electra_tf.text.warnings import UnknownCounter

TASK_NAMES = (*glue.TASKS, "squad1", "squad2", "chunking", "tagging", "csv")
"""Tasks that `read_task` reads."""
_SPLITS = ("train", "dev", "test")
_TFDS_SPLITS = {"train": "train", "dev": "validation", "test": "test"}
_SHOWN = 20  # classes or tags per message
_MARKED = re.compile("[A-Z]-.")
_STRAY = 0.01  # up to this share, tags that mark no span are errors

Notify = Callable[[str], None]


@dataclasses.dataclass(frozen=True)
class TaskData:
    """Data of a task, validated, with its model and its scorer."""

    name: str
    splits: Mapping[str, Split]
    scorer: Scorer
    model: Callable[..., TextModel]
    """Function of the encoder, `settings` and `seed` that creates a model."""
    unordered: bool = False
    """Whether the order of the two texts has no meaning."""
    label_counts: str = ""
    """Training examples of each class; an unexpected class is usually a mistake."""

    def __post_init__(self):
        empty = "train" in self.splits and not len(self.splits["train"])
        if empty or not self.eval_splits:
            raise InputError(
                "A task must have training examples and a labelled split to evaluate "
                "on",
                ", ".join(f"{n} with {len(s)}" for n, s in self.splits.items())
                + f"; labelled beside train: {', '.join(self.eval_splits) or 'none'}",
                "Check the files, and the rows that were dropped",
            )

    @property
    def eval_splits(self) -> dict[str, Split]:
        """Return the labelled splits other than `train`; the first one is dev."""
        return {
            name: split
            for name, split in self.splits.items()
            if name != "train" and split.targets is not None and len(split)
        }

    @property
    def monitor(self) -> str:
        """Return the name of the dev split's metric, such as `dev_mcc`."""
        return f"{next(iter(self.eval_splits))}_{self.scorer.metric}"

    @property
    def fingerprint(self) -> str:
        """Return a checksum of all splits, independent of the files' locations."""
        digest = hashlib.sha256()
        for name, split in self.splits.items():
            digest.update(f"{name} {len(split)} {split.targets is None}\n".encode())
            for item in split.items:
                if dataclasses.is_dataclass(item):
                    item = dataclasses.replace(item, source="")
                digest.update(repr(item).encode())
            for target in split.targets or ():
                digest.update(repr(target).encode())
        return digest.hexdigest()

    def training_examples(self, model: TextModel) -> EncodedExamples:
        """Encode the training split, pairs of an `unordered` task in both orders."""
        train = self.splits["train"]
        items, targets = list(train.items), list(train.targets)
        if self.unordered and model.settings.data.double_unordered:
            items += [tuple(reversed(pair)) for pair in items]
            targets *= 2
        return model.examples(items, targets)


def describe_inputs(
    model: TextModel, name: str, examples: EncodedExamples
) -> list[str]:
    """Return lines about truncated inputs and [UNK] of a split."""
    # SQuAD's long contexts become several windows; only questions are truncated.
    setting = "max_query_length" if model.needs_pairs else "max_length"
    unknown = UnknownCounter(model.tokenizer)
    unknown.add(examples.ids)
    lines = unknown.lines(name)
    if examples.truncated:
        lines.append(
            f"{name}: {examples.truncated:,} of {len(examples):,} inputs were "
            f"truncated to data.{setting}={getattr(model.settings.data, setting)}"
        )
    return lines


def read_task(
    name: str,
    data: str,
    settings: DataConfig,
    log: DataErrorLog,
    notify: Notify = print,
) -> TaskData:
    """Read the data of a task, and report its bad rows to the log."""
    if name in glue.TASKS:
        return _read_glue(name, data, log)
    if name == "csv":
        return _read_csv(data, settings, log, notify)
    if name in PUBLISHED:
        return _read_squad(name, data, settings, log)
    return _read_tagging(name, data, settings, log, notify)


def _format_counts(counts: Mapping[str, int]) -> str:
    words = [f"{number:,} of {name}" for name, number in counts.items()]
    more = [f"and {len(words) - _SHOWN:,} more"] * (len(words) > _SHOWN)
    return ", ".join(words[:_SHOWN] + more)


# Texts with labels or numbers.


def read_texts(
    rows: Sequence[Row],
    texts: Sequence[str],
    target: str | None,
    log: DataErrorLog,
    *,
    has_scores: bool,
    labels: Sequence[str] | None = None,
    bounds: tuple[float, float] = (-np.inf, np.inf),
) -> Split:
    """Return the texts and targets of the good rows of a table."""
    require_columns(rows, (*texts, *([] if target is None else [target])))
    items, targets, places = [], [], []
    for row in rows:
        kind, detail, value, remedy = None, "", None, "Correct that row"
        missing = [column for column in texts if column not in row.values]
        nested = [column for column in (*texts, target) if column in row.nested]
        if missing:
            kind, detail = "no text", f"without {format_list(missing)}"
        elif nested:
            kind = "a nested value"
            detail = f"{nested[0]!r} is a list or an object: "
            detail += f"{row.values[nested[0]]:.60}"
            remedy += "; of pandas: to_json(FILE, orient='records', lines=True)"
        elif target is not None:
            text = row.values.get(target)
            parse = _parse_score if has_scores else _parse_label
            value, kind, allowed = parse(text or "", bounds if has_scores else labels)
            detail = f"{target!r} is {text!r}{allowed}"
        if kind:
            log.add(DataError(row.source, row.line, kind, detail, remedy))
            continue
        targets.append(value)
        places.append(str(row))
        item = tuple(row.values[column] for column in texts)
        items.append(item[0] if len(item) == 1 else item)
    if not items:
        raise InputError(
            f"{rows[0].source} must contain at least one usable row",
            f"{len(rows)} rows, all of them bad",
            "Correct the rows that were reported, or name other columns",
        )
    return Split(items, None if target is None else targets, places)


def _parse_label(
    text: str, labels: Sequence[str] | None
) -> tuple[str, str | None, str]:
    """Return a class, the kind of error, and what is allowed."""
    label = text.strip()
    if not label:
        return label, "no label", ""
    if labels is None or label in labels:
        return label, None, ""
    known = f"{other_spelling(label, labels)}; known: {format_list(labels)}"
    return label, "an unknown label", known


def _parse_score(
    text: str, bounds: tuple[float, float]
) -> tuple[float, str | None, str]:
    """Return a score, the kind of error, and what is allowed."""
    try:
        score = float(text)
    except ValueError:
        return np.nan, "no number", ""
    if not np.isfinite(score):
        return score, "no finite number", ""
    if bounds[0] <= score <= bounds[1]:
        return score, None, ""
    allowed = f"; scores are from {bounds[0]:g} to {bounds[1]:g}"
    return score, "a score out of range", allowed


def _without_places(split: Split, path: str, bad_rows: int) -> Split:
    """Return a split without places, unless rows of its file were left out.

    Without bad rows, the index of an item is the number of its row.
    """
    if not bad_rows:
        return dataclasses.replace(split, places=None)
    if split.targets is None:
        raise InputError(
            "All rows of an unlabelled file must be readable, because a prediction is "
            "identified by the number of its row",
            f"{path}, with {bad_rows} bad rows",
            "Correct the rows listed in the error log",
        )
    return split


def _text_task(
    name: str,
    splits: dict[str, Split],
    metrics: Sequence[str],
    labels: Sequence[str] | None,
    bounds: tuple[float, float],
    is_clipped: bool,
    unordered: bool = False,
) -> TaskData:
    if labels is None:
        model = functools.partial(TextRegressor, low=bounds[0], high=bounds[1])
        limits = bounds if is_clipped else (-np.inf, np.inf)
        scorer, counts = LabelScorer(metrics, bounds=limits), {}
    else:
        model = functools.partial(TextClassifier, labels=labels)
        scorer = LabelScorer(metrics, labels)
        numbers = collections.Counter(splits["train"].targets)
        counts = {f"class {label!r}": numbers[label] for label in labels}
    return TaskData(name, splits, scorer, model, unordered, _format_counts(counts))


def _read_glue(name: str, data: str, log: DataErrorLog) -> TaskData:
    """Read the files of a GLUE task; the diagnostic set has MNLI's training data."""
    training_name = "mnli" if name == "ax" else name
    if name == "ax":
        glue.require(data, name, glue.TASKS[name].test[0])
    task = glue.TASKS[training_name]
    paths = {"train": glue.require(data, training_name, "train")}
    glue.require(data, training_name, task.dev[0])
    tests = dict.fromkeys(task.test, training_name)
    if training_name == "mnli":
        tests |= dict.fromkeys(glue.TASKS["ax"].test, "ax")
    for stem in (*task.dev, *tests):
        if path := glue.find(data, tests.get(stem, training_name), stem):
            paths[stem] = path
    splits = {}
    for stem, path in paths.items():
        errors_before = log.counts.total()
        rows = glue.read(path, tests.get(stem, training_name), log)
        target = None if stem in tests else task.label
        split = read_texts(
            rows,
            task.texts,
            target,
            log,
            has_scores=task.labels is None,
            labels=task.labels,
            bounds=task.range,
        )
        bad_rows = log.counts.total() - errors_before
        splits[stem] = _without_places(split, path, bad_rows)
    return _text_task(
        name, splits, task.metrics, task.labels, task.range, True, task.unordered
    )


def _read_csv(
    data: str, settings: DataConfig, log: DataErrorLog, notify: Notify
) -> TaskData:
    """Read a table, or a folder of tables, with a column of classes or scores."""
    target, has_scores = _target_column(settings), settings.label_column is None
    splits, labels = {}, None
    for name, (rows, bad_rows) in _read_tables(data, settings, log, notify).items():
        errors_before, path = log.counts.total(), rows[0].source
        labelled = name != "test" or has_values(rows, target)
        split = read_texts(
            rows,
            settings.text_columns,
            target if labelled else None,
            log,
            has_scores=has_scores,
            labels=labels,
        )
        if line := _describe_empty(split):
            notify(f"csv: warning: {line}")
        if name != "train" and not settings.split_column:
            bad_rows += log.counts.total() - errors_before
            split = _without_places(split, path, bad_rows)
        splits[name] = split  # train with its places, which a dev split needs
        if name == "train" and not has_scores:
            labels = sorted(set(split.targets))
            values = [row.values.get(target, "") for row in rows]
            for line in suspicious_labels(values):
                notify(f"csv: warning: {path}: {line}")
    if "dev" not in splits:
        splits = _hold_out_rows(splits, settings, has_scores, notify)
    return _csv_task(splits, labels, target, notify)


def has_values(rows: Sequence[Row], column: str | None) -> bool:
    """Return whether a column has a value in a row or more."""
    return any(row.values.get(column, "").strip() for row in rows)


def _csv_task(
    splits: dict[str, Split], labels: list[str] | None, target: str, notify: Notify
) -> TaskData:
    values = splits["train"].targets
    if labels is None:
        bounds = float(min(values)), float(max(values))
        if bounds[0] == bounds[1]:
            raise InputError(
                f"The column {target!r} must contain different scores",
                f"all are {bounds[0]}",
                "Name a column with different scores as --score_column",
            )
        notify(
            f"csv: {target!r} contains scores, scored by "
            f"{', '.join(REGRESSION_METRICS)}; spearman compares trials"
        )
        # Scores of other splits may exceed those of train, so they are not clipped.
        return _text_task("csv", splits, REGRESSION_METRICS, None, bounds, False)
    if len(labels) < 2:
        raise InputError(
            f"The column {target!r} must contain at least two classes",
            f"only {labels}",
            "Name a column with two classes or more as --label_column",
        )
    metrics = classification_metrics(labels)
    reason = (
        "f1 is that of the class '1', because the classes are '0' and '1'"
        if "f1" in metrics
        else f"macro_f1 is the mean F1 of the {len(labels):,} classes, because these "
        "are not '0' and '1'"
    )
    notify(f"csv: scored by {', '.join(metrics)}; {reason}; accuracy compares trials")
    return _text_task("csv", splits, metrics, labels, (0.0, 1.0), False)


def _read_tables(
    data: str, settings: DataConfig, log: DataErrorLog, notify: Notify
) -> dict[str, tuple[list[Row], int]]:
    """Return the rows of each split, train first, and the number of bad rows."""
    column, result = settings.split_column, {}
    if column:
        check_split_column(column, data)
    for name, path in _find_tables(data).items():
        errors_before = log.counts.total()
        rows = read_rows(path, log, notify)
        result[name] = rows, log.counts.total() - errors_before
    rows, bad_rows = result["train"]
    if column:
        require_columns(rows, [column])
        splits = rows_by_split(rows, column, ["train"], log)
        sizes = ", ".join(f"{name} {len(part):,}" for name, part in splits.items())
        notify(f"csv: rows by {column!r}: {sizes}")
        return {name: (part, bad_rows) for name, part in splits.items()}
    used = (*settings.text_columns, settings.label_column, settings.score_column)
    if unused := unused_split_column([row.values for row in rows], used):
        notify(
            f"csv: warning: the column {unused!r} of {rows[0].source} holds names of "
            "splits, but is not used: rows of dev and test are trained on. Pass this "
            f"file as --data and --split_column={unused}"
        )
    return result


def _find_tables(data: str) -> dict[str, str]:
    """Return the files by split, train first."""
    if data.startswith(TFDS):
        return {
            split: f"{data}@{name}"
            for split, name in _TFDS_SPLITS.items()
            if split == "train" or has_tfds(data.removeprefix(TFDS), name)
        }
    files = find_splits(data, _SPLITS, FORMATS)
    if "train" not in files:
        raise InputError(
            "--data must be a table, or a folder with a train.csv (or "
            f"{', '.join(FORMATS)})",
            f"{data!r}, where there is no such file",
            "Check the path, or rename the file of the training data to train.csv (or "
            "train with its own suffix)",
        )
    return files


def _target_column(settings: DataConfig) -> str:
    """Return the column of classes or scores; raise for a wrong set of columns."""
    texts = settings.text_columns
    targets = [c for c in (settings.label_column, settings.score_column) if c]
    if len(texts) in (1, 2) and len(targets) == 1 and targets[0] not in texts:
        return targets[0]
    raise InputError(
        "--task=csv must get one or two --text_columns, and either --label_column or "
        "--score_column, a different column",
        f"--text_columns={','.join(texts)}, --label_column={settings.label_column}, "
        f"--score_column={settings.score_column}",
        "Pass --text_columns=review --label_column=label, or --score_column=stars",
    )


def _describe_empty(split: Split) -> str | None:
    """Return a line about texts of nothing but white space, if there are any."""
    empty = [
        place
        for item, place in zip(split.items, split.places, strict=True)
        if not all(map(str.strip, [item] if isinstance(item, str) else item))
    ]
    if not empty:
        return None
    return (
        f"{len(empty):,} of {len(split):,} rows have an empty text and are used; the "
        f"first is {empty[0]}"
    )


def _hold_out_rows(
    splits: dict[str, Split], settings: DataConfig, has_scores: bool, notify: Notify
) -> dict[str, Split]:
    """Move the same share of every class from train to dev."""
    train = splits.pop("train")
    classes = [0] * len(train) if has_scores else train.targets
    dev, counts = hold_out(classes, settings.dev_share, settings.split_seed)
    if not dev:
        raise InputError(
            "To split dev off, a class must have two rows or more, because one stays "
            "in the training data",
            f"{len(train):,} rows"
            + f" of {len(counts):,} classes, each with one row" * (not has_scores),
            "Add rows, or pass a folder with train.csv and dev.csv",
        )
    notify(
        f"csv: no dev file; held out as dev: {len(dev):,} of {len(train):,} rows "
        f"(data.dev_share {settings.dev_share:g}, data.split_seed "
        f"{settings.split_seed})"
    )
    missing = [label for label, count in counts.items() if not count]
    if missing:
        notify(
            f"csv: warning: {len(missing):,} of {len(counts):,} classes have too few "
            f"rows for one in dev: {format_list(missing)}"
        )
    return divide(train, dev) | splits


# Sentences with tags.


def sentence_split(sentences: Sequence[Sentence]) -> Split:
    """Return sentences as a split, with their tags as targets."""
    return Split(sentences, [sentence.tags for sentence in sentences])


def _read_tagging(
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
    label_counts = _format_counts({f"tag {t}": n for t, n in counts.most_common()})
    model = functools.partial(TokenClassifier, tags=tags, scheme=scheme)
    scorer = TagScorer(tags)
    return TaskData(name, splits, scorer, model, label_counts=label_counts)


def _read_sentence_files(
    data: str, settings: DataConfig, log: DataErrorLog, notify: Notify
) -> dict[str, list[Sentence]]:
    """Read the files of all splits, without header lines."""
    paths = find_splits(data, _SPLITS, ENDINGS)
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


# Questions.


def question_split(questions: Sequence[Question]) -> Split:
    """Return questions as a split, without targets if no question has gold."""
    is_labelled = any(q.answers or q.impossible for q in questions)
    return Split(questions, [q.located for q in questions] if is_labelled else None)


def _read_squad(
    name: str, data: str, settings: DataConfig, log: DataErrorLog
) -> TaskData:
    """Read files in SQuAD's layout; a single file is split by article."""
    if data.startswith(TFDS):
        splits = {
            split: read_squad_tfds(data.removeprefix(TFDS), _TFDS_SPLITS[split])
            for split in ("train", "dev")
        }
    else:
        paths = find_splits(data, _SPLITS, SUFFIXES, PUBLISHED[name])
        splits = {split: read_squad(path, log) for split, path in paths.items()}
    if os.path.isfile(data):
        splits = _split_by_article(splits["train"], settings)
    missing = {"train", "dev"} - splits.keys()
    if missing:
        raise InputError(
            f"--data must be a file of questions, or a folder with train.json and "
            f"dev.json (or .jsonl, {PUBLISHED[name]['train']})",
            f"{data!r} without {' and '.join(sorted(missing))}",
            "Add the missing files, or name the file of questions itself, of which "
            "whole articles become dev",
        )
    splits["train"] = _drop_untrainable(splits["train"], log)
    allows_null = name == "squad2"
    parts = {split: question_split(questions) for split, questions in splits.items()}
    threshold = 0.0 if allows_null else None
    model = functools.partial(QuestionAnswerer, null_threshold=threshold)
    task = TaskData(name, parts, AnswerScorer(allows_null), model)
    for split in task.eval_splits.values():
        require_gold(split.items, allows_null)
    return task


def _split_by_article(
    questions: Sequence[Question], settings: DataConfig
) -> dict[str, list[Question]]:
    """Split questions so that each article is in train or in dev.

    Each context is an article if there are not several titles.
    """
    has_titles = len({question.title for question in questions}) > 1
    articles = [(has_titles and q.title) or q.context for q in questions]
    if len(set(articles)) < 2:
        raise InputError(
            "A split by article must have two or more articles",
            f"{len(set(articles))} articles",
            "Pass a folder with train.json and dev.json",
        )
    dev = set(hold_out_groups(articles, settings.dev_share, settings.split_seed))
    return {
        "train": [q for index, q in enumerate(questions) if index not in dev],
        "dev": [q for index, q in enumerate(questions) if index in dev],
    }


def _drop_untrainable(
    questions: Sequence[Question], log: DataErrorLog
) -> list[Question]:
    """Drop answerable questions without an answer in their context."""
    for question in questions:
        if not question.trainable:
            detail = "its context has none of its answers; left out of training"
            remedy = "Correct the answers, or remove the question"
            place = f"{question.source}, question {question.id}"
            log.add(DataError(place, 0, "untrainable", detail, remedy))
    return [question for question in questions if question.trainable]
