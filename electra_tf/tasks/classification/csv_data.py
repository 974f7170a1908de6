"""Read a table of texts with a column of classes or scores (`--task=csv`)."""

import os
from collections.abc import Callable, Sequence

from electra_tf.config.finetuning import DataConfig
from electra_tf.errors import InputError
from electra_tf.tasks.classification.task import ClassificationTask
from electra_tf.tasks.metrics import (
    REGRESSION_METRICS,
    classification_metrics,
)
from electra_tf.tasks.split_column import (
    require_one_file,
    require_splits,
    split_rows,
    unused_split_column,
)
from electra_tf.tasks.split_files import STEMS, find_split
from electra_tf.tasks.splits import (
    drop_places,
    empty_texts,
    make_split,
    split_dev,
    suspicious_labels,
)
from electra_tf.tasks.tables import (
    FORMATS,
    TFDS,
    Row,
    has_tfds,
    read_rows,
    require_columns,
)
from electra_tf.tasks.task import Split
from electra_tf.text.data_errors import DataErrorLog


def csv_task(
    data: str,
    settings: DataConfig,
    log: DataErrorLog,
    print_line: Callable[[str], None] = print,
) -> ClassificationTask:
    """Read a table, or a folder of tables, as a task."""
    target, has_scores = _target_column(settings), settings.label_column is None
    splits: dict[str, Split] = {}
    labels = None
    for name, (rows, bad_rows) in _read(data, settings, log, print_line).items():
        errors_before, path = log.counts.total(), rows[0].source
        target_values = (row.values.get(target, "") for row in rows)
        labelled = name != "test" or any(map(str.strip, target_values))
        columns = (*settings.text_columns, *([target] if labelled else []))
        require_columns(rows, columns)
        split = make_split(
            rows,
            settings.text_columns,
            target if labelled else None,
            log,
            has_scores=has_scores,
            labels=labels,
        )
        for line in empty_texts(split):
            print_line(f"csv: warning: {line}")
        if name == "train" or settings.split_column:
            splits[name] = split  # with its places, which a dev split needs
        else:
            bad_rows += log.counts.total() - errors_before
            splits[name] = drop_places(split, path, bad_rows)
        if name == "train" and not has_scores:
            labels = sorted(set(split.targets))
            for line in suspicious_labels(rows, target):
                print_line(f"csv: warning: {path}: {line}")
    if "dev" not in splits:
        new_splits = split_dev(splits.pop("train"), settings, has_scores, print_line)
        splits = new_splits | splits
    if labels is None:
        return _score_task(splits, target, print_line)
    return _class_task(splits, labels, target, print_line)


def _read(
    data: str,
    settings: DataConfig,
    log: DataErrorLog,
    print_line: Callable[[str], None],
) -> dict[str, tuple[list[Row], int]]:
    """Return the rows of each split, train first, and the number of bad rows."""
    column, result = settings.split_column, {}
    if column and not os.path.isfile(data):
        require_one_file(column, data)
    for name, path in _find_files(data).items():
        errors_before = log.counts.total()
        rows = read_rows(path, log, print_line)
        result[name] = rows, log.counts.total() - errors_before
    rows, bad_rows = result["train"]
    if column:
        require_columns(rows, [column])
        splits = split_rows(rows, column, log)
        require_splits(splits, ["train"], data)
        sizes = ", ".join(f"{name} {len(part):,}" for name, part in splits.items())
        print_line(f"csv: rows by {column!r}: {sizes}")
        return {name: (part, bad_rows) for name, part in splits.items()}
    used = (*settings.text_columns, settings.label_column, settings.score_column)
    if unused := unused_split_column([row.values for row in rows], used):
        print_line(
            f"csv: warning: the column {unused!r} of {rows[0].source} holds names of "
            "splits, but is not used: rows of dev and test are trained on. Pass this "
            f"file as --data and --split_column={unused}"
        )
    return result


def _score_task(
    splits: dict[str, Split], target: str, print_line: Callable[[str], None]
) -> ClassificationTask:
    scores = splits["train"].targets
    bounds = float(min(scores)), float(max(scores))
    if bounds[0] == bounds[1]:
        raise InputError(
            f"The column {target!r} must contain different scores",
            f"all are {bounds[0]}",
            "Name a column with different scores as --score_column",
        )
    print_line(
        f"csv: {target!r} contains scores, scored by "
        f"{', '.join(REGRESSION_METRICS)}; spearman compares trials"
    )
    # Scores of other splits may exceed those of train, so they are not clipped.
    return ClassificationTask(
        "csv", splits, REGRESSION_METRICS, None, bounds, clipped=False
    )


def _class_task(
    splits: dict[str, Split],
    labels: Sequence[str],
    target: str,
    print_line: Callable[[str], None],
) -> ClassificationTask:
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
    print_line(
        f"csv: scored by {', '.join(metrics)}; {reason}; accuracy compares trials"
    )
    return ClassificationTask("csv", splits, metrics, labels)


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


def _find_files(data: str) -> dict[str, str]:
    """Return the files by split, train first."""
    if data.startswith(TFDS):
        tfds_splits = {"train": "train", "dev": "validation", "test": "test"}
        name = data.removeprefix(TFDS)
        return {
            split: f"{data}@{tfds_split}"
            for split, tfds_split in tfds_splits.items()
            if split == "train" or has_tfds(name, tfds_split)
        }
    if os.path.isfile(data):
        return {"train": data}
    paths = {name: find_split(data, name, FORMATS) for name in STEMS}
    files = {name: path for name, path in paths.items() if path}
    if "train" not in files:
        raise InputError(
            "--data must be a table, or a folder with a train.csv (or "
            f"{', '.join(FORMATS)})",
            f"{data!r}, where there is no such file",
            "Check the path, or rename the file of the training data to train.csv (or "
            "train with its own suffix)",
        )
    return files
