"""Read training data of texts: GLUE, and tables of any columns."""

import collections
import dataclasses
import functools
import os
from collections.abc import Sequence
from typing import Any

from electra_tf.config.finetuning import DataConfig
from electra_tf.errors import InputError, format_list
from electra_tf.tasks.classifier import TextClassifier, TextRegressor
from electra_tf.tasks.data import glue
from electra_tf.tasks.data.files import Notify, conversion
from electra_tf.tasks.data.splits import (
    Split,
    check_split_column,
    find_splits,
    hold_out,
    move_to_dev,
    rows_by_split,
    unread_file,
    warn_of_missing_classes,
    warn_of_unused_splits,
)
from electra_tf.tasks.data.table import READERS, Table, cell_text, read
from electra_tf.tasks.labels import (
    SEPARATOR,
    THRESHOLD,
    parse_list,
    rarest_labels,
    suspicious_labels,
)
from electra_tf.tasks.metrics import (
    LABEL_SET_METRICS,
    REGRESSION_METRICS,
    classification_metrics,
)
from electra_tf.tasks.score import LabelScorer, LabelSetScorer
from electra_tf.tasks.task_data import SPLITS, Reading, TaskData, format_counts
from electra_tf.tasks.text_rows import (
    UNBOUNDED,
    Columns,
    glue_columns,
    has_values,
    read_texts,
)
from electra_tf.text.data_errors import DataErrorLog


def split_rows(
    rows: Table,
    split: str,
    settings: DataConfig,
    needed: Sequence[str],
    log: DataErrorLog,
    notify: Notify,
) -> dict[str, Table]:
    """Return the rows as one split, or those of each split in `split_column`."""
    if column := settings.split_column:
        rows.require([column])
        parts = rows_by_split(rows, column, needed, log)
        sizes = ", ".join(f"{name} {len(part):,}" for name, part in parts.items())
        notify(f"csv: rows by {column!r}: {sizes}")
        return parts
    used = (*settings.text_columns, settings.label_column, settings.score_column)
    warn_of_unused_splits(rows.columns, used, rows.source, notify, is_table=True)
    return {split: rows}


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
    columns: Columns,
    limits: tuple[float, float],
    unordered: bool = False,
) -> TaskData:
    labels, counts = columns.labels, {}
    scorer = text_scorer(columns, metrics, limits)
    if columns.separator is not None:
        model = functools.partial(TextClassifier, labels=labels, multi_label=True)
        targets = splits["train"].targets
        numbers = collections.Counter(label for names in targets for label in names)
        counts = {f"class {label!r}": numbers[label] for label in labels}
        counts["no class"] = sum(not names for names in targets)
    elif labels is None:
        low, high = columns.bounds
        model = functools.partial(TextRegressor, low=low, high=high)
    else:
        model = functools.partial(TextClassifier, labels=labels)
        numbers = collections.Counter(splits["train"].targets)
        counts = {f"class {label!r}": numbers[label] for label in labels}
    return TaskData(name, splits, scorer, model, unordered, format_counts(counts))


def text_scorer(
    columns: Columns, metrics: Sequence[str], limits: tuple[float, float] = UNBOUNDED
) -> LabelScorer:
    """Return the scorer of the targets of columns; sets of classes have their own."""
    if columns.separator is not None:
        return LabelSetScorer(columns.labels, columns.separator)
    return LabelScorer(metrics, columns.labels, limits)


def read_glue(name: str, data: str, log: DataErrorLog) -> TaskData:
    """Read the files of a GLUE task; the diagnostic set has MNLI's training data."""
    training_name = "mnli" if name == "ax" else name
    if name == "ax":
        glue.require(data, name, glue.TASKS[name].test[0])
    task = glue.TASKS[training_name]
    required = ("train", task.dev[0])
    paths = {stem: glue.require(data, training_name, stem) for stem in required}
    tests = dict.fromkeys(task.test, training_name)
    if training_name == "mnli":
        tests |= dict.fromkeys(glue.TASKS["ax"].test, "ax")
    for stem in (*task.dev, *tests):
        if path := glue.find(data, tests.get(stem, training_name), stem):
            paths[stem] = path
    columns, splits = glue_columns(task), {}
    for stem, path in paths.items():
        errors_before = log.counts.total()
        rows = glue.read(path, tests.get(stem, training_name), log)
        split = read_texts(rows, columns, log, stem not in tests)
        bad_rows = log.counts.total() - errors_before
        splits[stem] = _without_places(split, path, bad_rows)
    return _text_task(name, splits, task.metrics, columns, task.range, task.unordered)


def read_csv(data: str, reading: Reading) -> TaskData:
    """Read a table, or a folder of tables, with a column of classes or scores."""
    settings, log, notify = reading.settings, reading.log, reading.notify
    columns, splits = _columns(settings), {}
    for name, path in _find_tables(data, settings).items():
        errors_before = log.counts.total()
        rows = read(path, log, notify=notify)
        parts = {name: rows}
        if name == "train":
            parts = split_rows(rows, name, settings, ["train"], log, notify)
        for part, rows in parts.items():
            if part == "train":
                columns = _with_separator(columns, rows, notify)
            is_labelled = part != "test" or has_values(rows, columns.target)
            split = read_texts(rows, columns, log, is_labelled)
            _note_empty(split, notify)
            if part == "train":
                columns = _with_values(columns, split, rows, notify)
            elif not settings.split_column:
                bad_rows = log.counts.total() - errors_before
                split = _without_places(split, path, bad_rows)
            splits[part] = split  # train with its places, which a dev split needs
    if "dev" not in splits:
        splits = _hold_out_rows(splits, settings, columns, notify)
    elif columns.labels is not None:
        warn_of_missing_classes(_classes(splits, columns), "csv", "classes", notify)
    return _csv_task(splits, columns, notify)


def _classes(splits: dict[str, Split], columns: Columns) -> dict[str, set[str]]:
    """Return the classes of each labelled split."""
    targets = {name: split.targets for name, split in splits.items() if split.targets}
    if columns.separator is None:
        return {name: set(values) for name, values in targets.items()}
    return {name: set().union(*values) for name, values in targets.items()}


def _find_tables(data: str, settings: DataConfig) -> dict[str, str]:
    """Return the files by split, train first."""
    if settings.split_column:
        check_split_column(settings.split_column, data)
    files = find_splits(data, SPLITS, [*READERS])
    if "train" not in files:
        other = unread_file(data)
        remedy = (
            "Check the path, or rename the file of the training data to train.csv (or "
            "train with its own suffix, one of these)"
        )
        if other:
            remedy = conversion(other) or "Write its rows to a train.csv"
        raise InputError(
            "--data must be a table, or a folder with a train.csv (or "
            f"{', '.join(READERS)})",
            f"{data!r} with {os.path.basename(other)}"
            if other
            else f"{data!r}, where there is no such file",
            remedy,
        )
    return files


def _columns(settings: DataConfig) -> Columns:
    """Return the columns of texts and target; raise for a wrong set of columns."""
    texts = settings.text_columns
    targets = [c for c in (settings.label_column, settings.score_column) if c]
    if len(texts) not in (1, 2) or len(targets) != 1 or targets[0] in texts:
        raise InputError(
            "--task=csv must get one or two --text_columns, and either --label_column "
            "or --score_column, a different column",
            f"--text_columns={','.join(texts)}, --label_column={settings.label_column},"
            f" --score_column={settings.score_column}",
            "Pass --text_columns=review --label_column=label, or --score_column=stars",
        )
    separator = settings.label_separator
    if settings.score_column and separator is not None:
        raise InputError(
            "--label_separator must be used with --label_column",
            f"--label_separator={separator} with --score_column",
            "Leave it out",
        )
    bounds = None if settings.label_column else UNBOUNDED
    return Columns(texts, targets[0], None, bounds, separator)


def _with_separator(columns: Columns, rows: Table, notify: Notify) -> Columns:
    """Return the columns for sets of classes if all cells of the target are lists."""
    if columns.bounds is not None or columns.separator is not None:
        return columns
    values = rows.columns.get(columns.target, ())
    cells = [n for n, value in enumerate(values) if cell_text(value).strip()]
    lists = [n for n in cells if _is_list(values[n])]
    if lists and len(lists) == len(cells):
        notify(
            f"csv: the cells of {columns.target!r} are lists: a text has any number of "
            "classes"
        )
        return columns._replace(separator=SEPARATOR)
    if lists:
        notify(
            f"csv: warning: {len(lists):,} of {len(cells):,} cells of "
            f"{columns.target!r} are lists, the first is {rows.place(lists[0])}; as "
            "others are not, each cell is one class: write all as lists, or pass "
            "--label_separator"
        )
    return columns


def _is_list(cell: Any) -> bool:
    if isinstance(cell, str):
        return parse_list(cell) is not None
    return isinstance(cell, list)


def _with_values(
    columns: Columns, train: Split, rows: Table, notify: Notify
) -> Columns:
    """Return the columns with the classes of the training data."""
    if columns.bounds is not None:
        return columns
    values = rows.texts(columns.target)
    targets = train.targets
    if columns.separator is not None:
        if all(len(names) < 2 for names in targets):
            notify(
                f"csv: warning: no row of {rows.source} has two classes or more in "
                f"{columns.target!r}, separated by {columns.separator!r}"
            )
        targets = values = [name for names in targets for name in names]
        if set(targets) == {"0", "1"}:
            notify(
                f"csv: warning: the classes of {columns.target!r} are '0' and '1': "
                "write names of classes instead of rows of zeros and ones"
            )
    for line in suspicious_labels(values):
        notify(f"csv: warning: {rows.source}: {line}")
    return columns._replace(labels=sorted(set(targets)))


def _csv_task(splits: dict[str, Split], columns: Columns, notify: Notify) -> TaskData:
    values, labels = splits["train"].targets, columns.labels
    if labels is None:
        columns = columns._replace(bounds=(float(min(values)), float(max(values))))
        if columns.bounds[0] == columns.bounds[1]:
            raise InputError(
                f"The column {columns.target!r} must contain different scores",
                f"all are {columns.bounds[0]}",
                "Name a column with different scores as --score_column",
            )
        metrics = REGRESSION_METRICS
        notify(
            f"csv: {columns.target!r} contains scores, scored by {', '.join(metrics)}; "
            "spearman compares trials"
        )
    elif columns.separator is not None and labels:
        metrics = LABEL_SET_METRICS
        notify(
            f"csv: scored by {', '.join(metrics)}; a text has the classes whose "
            f"probabilities exceed {THRESHOLD:g}; {metrics[0]} compares trials"
        )
    elif len(labels) < 2:
        raise InputError(
            f"The column {columns.target!r} must contain at least two classes",
            f"only {labels}",
            "Name a column with two classes or more as --label_column",
        )
    else:
        metrics = classification_metrics(labels)
        reason = (
            "f1 is that of the class '1', because the classes are '0' and '1'"
            if "f1" in metrics
            else f"macro_f1 is the mean F1 of the {len(labels):,} classes, because "
            "these are not '0' and '1'"
        )
        line = f"{', '.join(metrics)}; {reason}; accuracy compares trials"
        notify(f"csv: scored by {line}")
    # Scores of other splits may exceed those of train, so they are not clipped.
    return _text_task("csv", splits, metrics, columns, UNBOUNDED)


def _note_empty(split: Split, notify: Notify) -> None:
    """Warn of texts of nothing but white space."""
    empty = [
        index
        for index, item in enumerate(split.items)
        if not all(map(str.strip, [item] if isinstance(item, str) else item))
    ]
    if empty:
        notify(
            f"csv: warning: {len(empty):,} of {len(split):,} rows have an empty text "
            f"and are used; the first is {split.places[empty[0]]}"
        )


def _hold_out_rows(
    splits: dict[str, Split], settings: DataConfig, columns: Columns, notify: Notify
) -> dict[str, Split]:
    """Move the same share of every class from train to dev."""
    train, has_scores = splits["train"], columns.labels is None
    classes = [0] * len(train) if has_scores else train.targets
    if columns.separator is not None:
        classes = rarest_labels(train.targets)
    dev, counts = hold_out(classes, settings.dev_share, settings.split_seed)
    if not dev:
        raise InputError(
            "To split dev off, a class must have two rows or more, because one stays "
            "in the training data",
            f"{len(train):,} rows"
            + f" of {len(counts):,} classes, each with one row" * (not has_scores),
            "Add rows, or pass a folder with train.csv and dev.csv",
        )
    splits = move_to_dev(splits, dev, "csv", "rows", settings, notify)
    missing = [label for label, count in counts.items() if not count]
    if missing:
        notify(
            f"csv: warning: {len(missing):,} of {len(counts):,} classes have too few "
            f"rows for one in dev: {format_list(missing)}"
        )
    return splits
