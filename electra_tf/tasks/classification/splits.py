"""A table's rows: warnings about labels and empty texts, the dev part of classes."""

import collections
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from electra_tf.config.finetuning import DataConfig
from electra_tf.errors import InputError, listed
from electra_tf.tasks.data.tables import Row
from electra_tf.tasks.task import Split

_EMPTY = frozenset(
    ["nan", "null", "none", "na", "n/a", "<na>", "nat", "undefined", "#n/a"]
)
_NUMBER = re.compile(r"[+-]?\d+(?:\.\d*)?")


def suspicious_labels(rows: Sequence[Row], column: str) -> list[str]:
    """Find labels that are probably mistakes of the file.

    Args:
        rows: The training rows.
        column: The column of the labels.

    Returns:
        A line for each suspicion: labels that stand for empty cells, one number or one
        word written in several ways, and spaces around labels.
    """
    found = [row.values.get(column, "") for row in rows]
    counts = collections.Counter(value.strip() for value in found if value.strip())
    lines = [
        f"the label {label!r} ({counts[label]:,} rows) is a class of its own here; it "
        "is probably an empty cell, as pandas writes one: delete these rows, or label "
        "them"
        for label in sorted(counts)
        if label.casefold() in _EMPTY
    ]
    for kind, key in (("number", _as_number), ("word", _as_word)):
        groups: dict[Any, list[str]] = {}
        for label in sorted(counts):
            if (same := key(label)) is not None:
                groups.setdefault(same, []).append(label)
        for group in groups.values():
            if len(group) > 1:
                shown = ", ".join(f"{x!r} ({counts[x]:,} rows)" for x in group[:10])
                lines.append(
                    f"the labels {shown} are different classes here; they are probably "
                    f"one {kind} written in several ways: write them alike"
                )
    quoted = [label for label in sorted(counts) if label[0] == label[-1] == '"']
    if quoted:
        lines.append(
            f"the labels {listed(quoted)} hold quotes, which a .tsv keeps as they are: "
            "remove the quotes from the file, or convert it to .csv"
        )
    spaced = [value for value in found if value.strip() and value != value.strip()]
    if spaced:
        lines.append(
            f"{len(spaced):,} labels have spaces around them, such as {spaced[0]!r}; "
            f"they were read without, as {spaced[0].strip()!r}"
        )
    return lines


def empty_texts(part: Split) -> list[str]:
    """Find texts that hold nothing but white space.

    Args:
        part: Texts or pairs, with their places.

    Returns:
        A line if there are any.
    """
    pairs = zip(part.items, part.places or (), strict=True)
    empty = [
        place
        for item, place in pairs
        if not all(map(str.strip, [item] if isinstance(item, str) else item))
    ]
    if not empty:
        return []
    return [
        f"rows with an empty text, which stay: {len(empty):,} of {len(part):,}, the "
        f"first one {empty[0]}"
    ]


def split_dev(
    train: Split,
    settings: DataConfig,
    scores: bool,
    tell: Callable[[str], None] = print,
) -> dict[str, Split]:
    """Split dev off, the same share of every class.

    Each class gives its own rounded share. Where that makes no row at all, the share of
    all rows is divided among the classes by largest remainder. No class loses its last
    training row.

    Args:
        train: All labelled rows, with their places.
        settings: The share and the seed.
        scores: Whether targets are numbers, which are split as one class.
        tell: Called with a line about the sizes, and where dev lacks classes.

    Returns:
        `train` and `dev`, in the order of the rows.

    Raises:
        InputError: No class has a row to spare.
    """
    share = settings.dev_share
    draw = np.random.default_rng(settings.split_seed)
    groups: dict[Any, list[int]] = {}
    for place, target in enumerate(train.targets or ()):
        groups.setdefault(None if scores else target, []).append(place)
    sizes = [len(group) for group in groups.values()]
    counts = [min(round(size * share), size - 1) for size in sizes]
    if not any(counts):
        counts = _by_remainders(sizes, share, draw)
    held_out: set[int] = set()
    classes = dict(zip(groups, counts, strict=True))
    for group, count in zip(groups.values(), counts, strict=True):
        held_out.update(int(p) for p in draw.permutation(group)[:count])
    if not held_out:
        raise InputError(
            "To split dev off, a class must have two rows or more, one of which stays "
            "in the training data",
            f"{len(train):,} rows of {len(groups):,} classes, each with one row"
            if not scores
            else f"{len(train):,} rows",
            "Give more rows, or a folder with train.csv and dev.csv",
        )
    _tell_split(train, settings, len(held_out), {} if scores else classes, tell)

    rest = [place for place in range(len(train)) if place not in held_out]
    return {"train": _some(train, rest), "dev": _some(train, sorted(held_out))}


def _some(part: Split, places: Sequence[int]) -> Split:
    columns = part.items, part.targets or (), part.places or ()
    return Split(*([column[p] for p in places] for column in columns))


def _tell_split(
    train: Split,
    settings: DataConfig,
    rows: int,
    classes: Mapping[Any, int],
    tell: Callable[[str], None],
) -> None:
    """Print how many rows dev has, and which classes it lacks."""
    tell(
        f"csv: no dev file; held out as dev: {rows:,} of {len(train):,} rows "
        f"(data.dev_share {settings.dev_share:g}, data.split_seed "
        f"{settings.split_seed})"
    )
    bare = [label for label, count in classes.items() if not count]
    if bare:
        tell(
            f"csv: warning: {len(bare):,} of {len(classes):,} classes have too few "
            f"rows for one in dev: {listed(bare)}"
        )


def _by_remainders(
    sizes: Sequence[int], share: float, draw: np.random.Generator
) -> list[int]:
    """Divide the share of all rows among classes by largest remainder.

    Equal remainders are drawn; a class of one row gives none.
    """
    wanted = [size * share for size in sizes]
    counts = [
        min(int(part), size - 1) for part, size in zip(wanted, sizes, strict=True)
    ]
    missing = max(1, round(sum(wanted))) - sum(counts)
    order = draw.permutation(len(sizes)).tolist()
    order.sort(key=lambda place: counts[place] - wanted[place])  # stable
    able = [place for place in order if counts[place] < sizes[place] - 1]
    for place in able[: max(0, missing)]:
        counts[place] += 1
    return counts


def _as_number(label: str) -> float | None:
    return float(label) if _NUMBER.fullmatch(label) else None


def _as_word(label: str) -> str | None:
    """The word without differences of case and spaces; None for numbers."""
    return None if _NUMBER.fullmatch(label) else " ".join(label.casefold().split())
