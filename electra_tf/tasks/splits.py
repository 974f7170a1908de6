"""Make splits from the rows of a table, split off dev, and warn about bad labels."""

import collections
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from electra_tf.config.finetuning import DataConfig
from electra_tf.errors import InputError, format_list
from electra_tf.tasks.spelling import other_spelling, several_spellings
from electra_tf.tasks.tables import Row
from electra_tf.tasks.task import Split
from electra_tf.text.data_errors import DataError, DataErrorLog

_EMPTY_VALUES = frozenset(
    ["nan", "null", "none", "na", "n/a", "<na>", "nat", "undefined", "#n/a"]
)


def make_split(
    rows: Sequence[Row],
    text_columns: Sequence[str],
    target_column: str | None,
    log: DataErrorLog,
    *,
    has_scores: bool,
    labels: Sequence[str] | None = None,
    bounds: tuple[float, float] = (-np.inf, np.inf),
) -> Split:
    """Return the texts and targets of the good rows of a table."""
    items, targets, places = [], [], []
    for row in rows:
        missing = [column for column in text_columns if column not in row.values]
        nested = [c for c in (*text_columns, target_column) if c in row.nested]
        kind, detail, value = None, "", None
        if missing:
            kind, detail = "no text", f"without {format_list(missing)}"
        elif nested:
            value = row.values[nested[0]]
            kind = "a nested value"
            detail = f"{nested[0]!r} is a list or an object: {value:.60}"
        elif target_column is not None:
            text = row.values.get(target_column, "")
            value, kind = _parse_target(text, has_scores, labels, bounds)
            detail = f"{target_column!r} is {row.values.get(target_column)!r}"
            detail += (
                "" if kind is None else _allowed(value, has_scores, labels, bounds)
            )
        if kind:
            remedy = "Correct that row"
            if nested:
                remedy += "; of pandas: to_json(FILE, orient='records', lines=True)"
            log.add(DataError(row.source, row.line, kind, detail, remedy))
            continue
        targets.append(value)
        places.append(str(row))
        texts = tuple(row.values[column] for column in text_columns)
        items.append(texts[0] if len(texts) == 1 else texts)
    if not items:
        raise InputError(
            f"{rows[0].source} must contain at least one usable row",
            f"{len(rows)} rows, all of them bad",
            "Correct the rows that were reported, or name other columns",
        )
    return Split(items, None if target_column is None else targets, places)


def drop_places(split: Split, path: str, bad_rows: int) -> Split:
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


def suspicious_labels(rows: Sequence[Row], column: str) -> list[str]:
    """Find labels that are probably mistakes of the file.

    Returns:
        A line for each kind of mistake: labels that represent empty cells, one number
        or word in several spellings, quotes, and spaces around labels.
    """
    values = [row.values.get(column, "") for row in rows]
    counts = collections.Counter(value.strip() for value in values if value.strip())
    lines = [
        f"the label {label!r} ({counts[label]:,} rows) is a separate class; it is "
        "probably an empty cell, as pandas writes one: delete or label these rows"
        for label in sorted(counts)
        if label.casefold() in _EMPTY_VALUES
    ]
    lines += several_spellings(counts, "labels", "rows")
    quoted = [label for label in sorted(counts) if label[0] == label[-1] == '"']
    if quoted:
        lines.append(
            f"the labels {format_list(quoted)} contain quotes, which are part of the "
            "label: remove the quotes"
        )
    spaced = [value for value in values if value.strip() and value != value.strip()]
    if spaced:
        lines.append(
            f"{len(spaced):,} labels have spaces around them, such as {spaced[0]!r}; "
            f"they were read without spaces, as {spaced[0].strip()!r}"
        )
    return lines


def empty_texts(split: Split) -> list[str]:
    """Find texts of nothing but white space.

    Returns:
        One line with their number, if there are any.
    """
    pairs = zip(split.items, split.places or (), strict=True)
    empty = [
        place
        for item, place in pairs
        if not all(map(str.strip, [item] if isinstance(item, str) else item))
    ]
    if not empty:
        return []
    return [
        f"{len(empty):,} of {len(split):,} rows have an empty text and are used; the "
        f"first is {empty[0]}"
    ]


def split_dev(
    train: Split,
    settings: DataConfig,
    has_scores: bool,
    print_line: Callable[[str], None] = print,
) -> dict[str, Split]:
    """Split dev off, with the same share of every class.

    Each class contributes its own rounded share. If all of these are 0, the share of
    all rows is divided among the classes by largest remainder. Every class keeps a
    training row.

    Returns:
        `train` and `dev`, in the order of the rows.
    """
    share = settings.dev_share
    rng = np.random.default_rng(settings.split_seed)
    groups: dict[Any, list[int]] = {}
    for index, target in enumerate(train.targets or ()):
        groups.setdefault(None if has_scores else target, []).append(index)
    sizes = [len(group) for group in groups.values()]
    counts = [min(round(size * share), size - 1) for size in sizes]
    if not any(counts):
        counts = _largest_remainders(sizes, share, rng)
    dev: set[int] = set()
    classes = dict(zip(groups, counts, strict=True))
    for group, count in zip(groups.values(), counts, strict=True):
        dev.update(int(index) for index in rng.permutation(group)[:count])
    if not dev:
        raise InputError(
            "To split dev off, a class must have two rows or more, because one stays "
            "in the training data",
            f"{len(train):,} rows of {len(groups):,} classes, each with one row"
            if not has_scores
            else f"{len(train):,} rows",
            "Add rows, or pass a folder with train.csv and dev.csv",
        )
    _print_sizes(train, settings, len(dev), {} if has_scores else classes, print_line)

    rest = [index for index in range(len(train)) if index not in dev]
    return {"train": _subset(train, rest), "dev": _subset(train, sorted(dev))}


def _subset(split: Split, indices: Sequence[int]) -> Split:
    columns = split.items, split.targets or (), split.places or ()
    return Split(*([column[index] for index in indices] for column in columns))


def _print_sizes(
    train: Split,
    settings: DataConfig,
    dev_rows: int,
    dev_counts: Mapping[Any, int],
    print_line: Callable[[str], None],
) -> None:
    """Print the number of rows in dev, and the classes that it lacks."""
    print_line(
        f"csv: no dev file; held out as dev: {dev_rows:,} of {len(train):,} rows "
        f"(data.dev_share {settings.dev_share:g}, data.split_seed "
        f"{settings.split_seed})"
    )
    missing = [label for label, count in dev_counts.items() if not count]
    if missing:
        print_line(
            f"csv: warning: {len(missing):,} of {len(dev_counts):,} classes have too "
            f"few rows for one in dev: {format_list(missing)}"
        )


def _largest_remainders(
    sizes: Sequence[int], share: float, rng: np.random.Generator
) -> list[int]:
    """Divide the share of all rows among classes by largest remainder.

    Ties are broken at random. A class of one row contributes none.
    """
    exact = [size * share for size in sizes]
    counts = [
        min(int(value), size - 1) for value, size in zip(exact, sizes, strict=True)
    ]
    missing = max(1, round(sum(exact))) - sum(counts)
    order = rng.permutation(len(sizes)).tolist()
    order.sort(key=lambda index: counts[index] - exact[index])  # stable
    eligible = [index for index in order if counts[index] < sizes[index] - 1]
    for index in eligible[: max(0, missing)]:
        counts[index] += 1
    return counts


def _parse_target(
    text: str,
    has_scores: bool,
    labels: Sequence[str] | None,
    bounds: tuple[float, float],
) -> tuple[Any, str | None]:
    """Return a class without surrounding spaces, or a score, and the kind of error."""
    if not has_scores:
        label = text.strip()
        if not label:
            return label, "no label"
        known = labels is None or label in labels
        return label, None if known else "an unknown label"
    try:
        score = float(text)
    except ValueError:
        return text, "no number"
    if not np.isfinite(score):
        return text, "no finite number"
    in_range = bounds[0] <= score <= bounds[1]
    return score, None if in_range else "a score out of range"


def _allowed(
    value: Any,
    has_scores: bool,
    labels: Sequence[str] | None,
    bounds: tuple[float, float],
) -> str:
    """Return the allowed targets as the end of a message."""
    if has_scores and np.all(np.isfinite(bounds)):
        return f"; scores are from {bounds[0]:g} to {bounds[1]:g}"
    if has_scores or labels is None:
        return ""
    return other_spelling(value, labels) + f"; known: {format_list(labels)}"
