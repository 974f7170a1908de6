"""Read texts with labels or scores: GLUE, and tables of any columns."""

import collections
import dataclasses
import functools
from collections.abc import Sequence

import numpy as np

from electra_tf.config.finetuning import DataConfig
from electra_tf.errors import InputError, format_list
from electra_tf.tasks import glue
from electra_tf.tasks.classifier import TextClassifier, TextRegressor
from electra_tf.tasks.labels import other_spelling, suspicious_labels
from electra_tf.tasks.metrics import REGRESSION_METRICS, classification_metrics
from electra_tf.tasks.score import LabelScorer
from electra_tf.tasks.splits import (
    Split,
    check_split_column,
    divide,
    find_splits,
    hold_out,
    rows_by_split,
    unused_split_column,
)
from electra_tf.tasks.tables import (
    FORMATS,
    TFDS,
    Row,
    has_tfds,
    read_rows,
    require_columns,
)
from electra_tf.tasks.task_data import (
    SPLITS,
    TFDS_SPLITS,
    Notify,
    TaskData,
    format_counts,
)
from electra_tf.text.data_errors import DataError, DataErrorLog


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
    return TaskData(name, splits, scorer, model, unordered, format_counts(counts))


def read_glue(name: str, data: str, log: DataErrorLog) -> TaskData:
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


def read_csv(
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
            for split, name in TFDS_SPLITS.items()
            if split == "train" or has_tfds(data.removeprefix(TFDS), name)
        }
    files = find_splits(data, SPLITS, FORMATS)
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
