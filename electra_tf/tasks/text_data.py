"""Tables of texts with a class, a set of classes, or a score."""

import collections
import dataclasses
import functools
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from electra_tf.config.finetuning import DataConfig
from electra_tf.errors import InputError, format_list
from electra_tf.tasks import labels as label_names
from electra_tf.tasks import metrics
from electra_tf.tasks.classifier import TextClassifier, TextRegressor
from electra_tf.tasks.data import splits
from electra_tf.tasks.data.columns import Columns
from electra_tf.tasks.data.held_out import with_dev
from electra_tf.tasks.data.missing import REMEDY, complete_rows, fill_missing
from electra_tf.tasks.data.splits import Split
from electra_tf.tasks.data.table import Table, cell_text, read
from electra_tf.tasks.task_data import UNBOUNDED, Reading, TaskData, format_counts


def read_tables(name: str, data: str, reading: Reading) -> TaskData:
    """Read a table, or a folder of tables, with a column of classes or scores."""
    settings = reading.settings
    columns, found = _named_columns(name, settings), {}
    for part, rows in read_parts(data, reading, is_training=True):
        is_labelled = part != "test" or rows.has_values(columns.target)
        if part == "train":
            columns = _with_separator(name, columns, rows, reading)
        split = columns.read(rows, is_labelled)
        if part == "train":
            if columns.bounds is None:
                labels = sorted(_classes(split.targets))
                columns = dataclasses.replace(columns, labels=labels)
        elif not settings.split_column and settings.missing_text != "skip":
            split = dataclasses.replace(split, is_whole=True)
        found[part] = split  # train with its places, which a dev split needs
    targets = found["train"].targets
    if columns.separator is not None:
        targets = label_names.rarest_labels(targets)
    classes = targets if columns.bounds is None else None
    found = with_dev(found, name, "rows", reading, classes)
    return _table_task(name, found, columns, reading)


def read_parts(
    data: str, reading: Reading, is_training: bool
) -> Iterator[tuple[str, Table]]:
    """Yield the rows of each file as a split, or those of each split of a column.

    To score a model, only a column that a flag names is required.
    """
    settings, notify = reading.settings, reading.notify
    column = settings.split_column
    is_required = column and (is_training or "split_column" in reading.given)
    if is_required and not os.path.isfile(data):
        raise InputError(
            f"--split_column={column} must be used with one table as --data, and "
            f"{data!r} is none"
        )
    needed = ["train"] if is_training else ["dev", "test"]
    used = (*settings.text_columns, settings.label_column, settings.score_column)
    for name, path in splits.find_splits(data, is_training).items():
        rows = read(path, notify=notify)
        rows = complete_table(rows, settings.text_columns, reading)
        if is_required or column in rows.columns:
            yield from splits.split_rows(rows, column, needed, notify).items()
        else:
            splits.warn_of_unused_splits(rows, used, notify)
            yield name, rows


def complete_table(table: Table, texts: Sequence[str], reading: Reading) -> Table:
    """Return the rows whose texts are not missing, by `data.missing_text`."""
    rule, columns = reading.settings.missing_text, dict(table.columns)
    names = [name for name in texts if name in columns]
    if rule == "keep":
        columns |= {name: fill_missing(columns[name], rule) for name in names}
        return dataclasses.replace(table, columns=columns)
    columns, named = [columns[name] for name in names], ", ".join(map(repr, names))
    rows = columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
    kept, detail = complete_rows(
        rows,
        rule,
        lambda index, detail: table.error(
            index, "no text", f"{named}: {detail}", REMEDY
        ),
    )
    if kept is None:
        return table
    reading.notify(f"{table.source}: {detail}; they are left out")
    return table.take(kept)


def _named_columns(name: str, settings: DataConfig) -> Columns:
    """Return the columns of texts and target; raise for a wrong set of columns."""
    texts, separator = settings.text_columns, settings.label_separator
    targets = [c for c in (settings.label_column, settings.score_column) if c]
    if len(texts) not in (1, 2) or len(targets) != 1 or targets[0] in texts:
        raise InputError(
            f"--task={name} must get one or two --text_columns, and a --label_column "
            "or a --score_column, a different one, not "
            f"--text_columns={','.join(texts)}, "
            f"--label_column={settings.label_column}, "
            f"--score_column={settings.score_column}"
        )
    if settings.score_column and separator is not None:
        raise InputError("--label_separator must be used with --label_column")
    bounds = None if settings.label_column else UNBOUNDED
    return Columns(texts, targets[0], None, bounds, separator)


def _with_separator(
    name: str, columns: Columns, rows: Table, reading: Reading
) -> Columns:
    """Return the columns for sets of classes if a cell of the target is a list.

    A plain cell beside lists is a list of one class, and must not have several.
    """
    if columns.bounds is not None or columns.separator is not None:
        return columns
    cells = list(map(cell_text, rows.columns.get(columns.target, ())))
    different = set(filter(str.strip, cells))
    plain = {cell for cell in different if label_names.parse_list(cell) is None}
    if plain == different:
        return columns
    if several := {cell for cell in plain if label_names.SEPARATOR in cell}:
        index = min(map(cells.index, several))
        raise rows.error(
            index,
            "no list beside lists",
            f"{columns.target!r} is {cells[index]!r:.60}",
            "for several classes in a cell pass "
            f"--label_separator={label_names.SEPARATOR!r}",
        )
    text = f"{name}: the cells of {columns.target!r} are lists"
    if plain:
        text += f", and {len(plain):,} of {len(different):,} different ones, such as "
        text += f"{min(plain)!r:.60}, lists of one class"
    reading.notify(f"{text}: a text has any number of classes")
    return dataclasses.replace(columns, separator=label_names.SEPARATOR)


def _classes(targets: Sequence[Any]) -> Mapping[str, int]:
    """Return the number of texts of each class."""
    if targets and isinstance(targets[0], tuple):
        targets = [name for names in targets for name in names]
    return collections.Counter(targets)


def _table_task(
    name: str, found: dict[str, Split], columns: Columns, reading: Reading
) -> TaskData:
    values, labels = found["train"].targets, columns.labels
    if labels is None:
        low, high = float(min(values)), float(max(values))
        columns = dataclasses.replace(columns, bounds=(low, high))
        if low == high:
            raise InputError(
                f"the column {columns.target!r} must have different scores, and all "
                f"are {low}"
            )
    elif columns.separator is None and len(labels) < 2:
        raise InputError(
            f"the column {columns.target!r} must have two classes or more, and has "
            f"only {format_list(labels)}"
        )
    names = metric_names(columns)
    text = f"{name}: scored by {', '.join(names)}; {names[0]} compares trials"
    if labels is not None and columns.separator is None:
        largest, count = collections.Counter(found["dev"].targets).most_common(1)[0]
        share = 100 * count / len(found["dev"])
        text += f". Always answering {largest!r:.40} would score {share:.1f}% accuracy"
    reading.notify(text)
    return task_data(name, found, names, columns)


def metric_names(columns: Columns) -> Sequence[str]:
    """Return the metrics of the targets of a table."""
    if columns.labels is None:
        return metrics.REGRESSION_METRICS
    if columns.separator is not None:
        return metrics.LABEL_SET_METRICS
    return metrics.classification_metrics(columns.labels)


def task_data(
    name: str,
    found: dict[str, Split],
    names: Sequence[str],
    columns: Columns,
    **options: Any,
) -> TaskData:
    """Return splits with the model of their columns."""
    labels, counts = columns.labels, {}
    if labels is None:
        low, high = columns.bounds
        model = functools.partial(TextRegressor, low=low, high=high)
    else:
        targets = found["train"].targets
        numbers = _classes(targets)
        counts = {f"class {label!r}": numbers[label] for label in labels}
        is_set = columns.separator is not None
        if is_set:
            counts["no class"] = targets.count(())
        model = functools.partial(TextClassifier, labels=labels, multi_label=is_set)
    counts = format_counts(counts)
    return TaskData(name, found, names, model, label_counts=counts, **options)
