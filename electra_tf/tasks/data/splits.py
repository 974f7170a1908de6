"""Splits of a task's data: their files, a column of them, and a dev split held out."""

import dataclasses
import glob
import os
import random
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from electra_tf.config.finetuning import DataConfig
from electra_tf.errors import InputError, format_list
from electra_tf.tasks.data.files import TFDS, has_tfds
from electra_tf.tasks.data.table import Table
from electra_tf.text.data_errors import DataErrorLog
from electra_tf.text.files import SUFFIXES

_STEMS = {
    "train": ("train",),
    "dev": ("dev", "valid", "validation"),
    "test": ("test",),
}
_TFDS_SPLITS = {"train": "train", "dev": "validation", "test": "test"}
_WORDS = {"train": "train", "test": "test"}
_WORDS |= dict.fromkeys(["dev", "valid", "validation", "val"], "dev")


class Places(Sequence[str]):
    """FILE:LINE of rows, which are written when they are asked for."""

    def __init__(self, sources: Sequence[str], lines: Sequence[int]):
        self._sources, self._lines = sources, lines

    def __getitem__(self, index: int) -> str:
        """Return the place of a row."""
        return f"{self._sources[index]}:{self._lines[index]}"

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._lines)

    def __eq__(self, other: object) -> bool:
        """Return whether another sequence has the same places."""
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None

    def subset(self, indices: Sequence[int]) -> "Places":
        """Return the places of the rows with these indices."""
        columns = self._sources, self._lines
        return Places(*([column[i] for i in indices] for column in columns))


@dataclasses.dataclass(frozen=True)
class Split:
    """A split of a task's data."""

    items: Sequence[Any]
    """Inputs of the model's `examples` and `predict`."""
    targets: Sequence[Any] | None
    """Target of each item; None: unlabelled."""
    places: Places | None = dataclasses.field(default=None, compare=False)
    """FILE:LINE of each item; None: row numbers equal the indices of the items."""

    def __len__(self) -> int:
        return len(self.items)

    def subset(self, indices: Sequence[int]) -> "Split":
        """Return the items with these indices."""
        columns = self.items, self.targets or ()
        items, targets = ([c[i] for i in indices] if c else None for c in columns)
        places = self.places and self.places.subset(indices)
        return Split(items or [], targets, places)


def texts_of(item: Any) -> tuple[str, ...]:
    """Return the texts of an item: a text, a pair, or an object that has `texts`."""
    if isinstance(item, str):
        return (item,)
    return getattr(item, "texts", None) or tuple(item)


def find_file(folder: str, what: str, *groups: Sequence[str]) -> str | None:
    """Return the file of the first group of globs that has one; None: no file."""
    for patterns in groups:
        paths = [
            path
            for pattern in patterns
            for path in sorted(glob.glob(os.path.join(glob.escape(folder), pattern)))
            if os.path.isfile(path)
        ]
        if len(paths) > 1:
            raise InputError(
                f"{folder} must contain one file of {what}",
                ", ".join(map(os.path.basename, paths)),
                "Remove all but one of them",
            )
        if paths:
            return paths[0]
    return None


def find_splits(
    data: str,
    splits: Sequence[str],
    endings: Sequence[str],
    published: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the files of a folder by split, or the splits of a data set of TFDS.

    A file itself is the first split. One of a published name comes before those of
    usual names. TFDS must have the first split, and may have others.
    """
    if os.path.isfile(data):
        return {splits[0]: data}
    if data.startswith(TFDS):
        names = {split: _TFDS_SPLITS[split] for split in splits}
        return {
            split: f"{data}@{name}"
            for split, name in names.items()
            if split == splits[0] or has_tfds(data.removeprefix(TFDS), name)
        }
    paths = {}
    for split in splits:
        names = [f"{stem}{end}" for stem in _STEMS[split] for end in endings]
        groups = [[name + suffix for name in names for suffix in SUFFIXES]]
        if name := (published or {}).get(split):
            groups = [*([name + suffix] for suffix in SUFFIXES), *groups]
        if path := find_file(data, split, *groups):
            paths[split] = path
    return paths


def find_labelled(
    data: str, endings: Sequence[str], published: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the file as `data`, or dev and test of a folder or of TFDS, by split."""
    if os.path.isfile(data) or (data.startswith(TFDS) and "@" in data):
        return {"data": data}
    if files := find_splits(data, ("dev", "test"), endings, published):
        return files
    raise InputError(
        f"--data must be a labelled file, or a folder with dev{endings[0]} or "
        f"test{endings[0]}",
        f"{data!r}" + ("" if os.path.isdir(data) else ", which does not exist"),
        "Check the path, or name the file itself",
    )


def unread_file(data: str) -> str | None:
    """Return the training file of a folder whatever its format; None: there is none."""
    paths = glob.glob(os.path.join(glob.escape(data), "train.*"))
    return next(iter(sorted(filter(os.path.isfile, paths))), None)


def warn_of_missing_classes(
    names: Mapping[str, Collection[str]],
    task: str,
    noun: str,
    notify: Callable[[str], None],
) -> None:
    """Warn of classes of train that another labelled split lacks.

    `names`: the classes of each split.
    """
    for split, known in names.items():
        if missing := sorted(set(names["train"]).difference(known)):
            notify(
                f"{task}: warning: {split} lacks {len(missing):,} of the "
                f"{len(names['train']):,} {noun} of train: {format_list(missing)}"
            )


def rows_by_split(
    table: Table, column: str, needed: Collection[str], log: DataErrorLog
) -> dict[str, Table]:
    """Return the rows of each split that occurs in a column: train, dev, test."""
    splits: dict[str, list[int]] = {"train": [], "dev": [], "test": []}
    for index, word in enumerate(table.columns[column]):
        if split := _split_of(word):
            splits[split].append(index)
            continue
        detail = f"{column!r} is {word!r}; the row is left out"
        remedy = f"Write one of {', '.join(_WORDS)}"
        log.add(table.source, table.lines[index], "no split", detail, remedy)
    splits = {name: part for name, part in splits.items() if part}
    if splits.keys().isdisjoint(needed):
        raise InputError(
            f"The column of splits must have rows of {' or '.join(needed)}",
            f"{table.source} with {format_list(splits) or 'none'}",
            "Check the column, or leave --split_column out",
        )
    return {name: table.take(part) for name, part in splits.items()}


def check_split_column(column: str, data: str) -> None:
    """Raise an error unless the data is one file, as a column of splits needs."""
    if not os.path.isfile(data):
        raise InputError(
            "--split_column must be used with one table as --data",
            f"--split_column={column} with {data!r}",
            "Name the file, or leave --split_column out",
        )


def warn_of_unused_splits(
    columns: Mapping[str, Sequence[Any]],
    used: Collection[str | None],
    path: str,
    notify: Callable[[str], None],
    is_table: bool = False,
) -> None:
    """Warn of a column that holds names of several splits and nothing else."""
    for column in [name for name in columns if name not in used]:
        splits = set(map(_split_of, columns[column]))
        if len(splits) > 1 and None not in splits:
            remedy = "write each split to a file, train.jsonl, dev.jsonl and test.jsonl"
            if is_table:
                remedy = f"pass the file as --data with --split_column={column}"
            notify(
                f"warning: {path}: {column!r} holds names of splits, but is not used, "
                f"so that the rows of all splits are one: {remedy}"
            )


def _split_of(word: Any) -> str | None:
    return _WORDS.get(word.strip().casefold()) if isinstance(word, str) else None


def hold_out(
    classes: Sequence[Hashable], share: float, seed: int
) -> tuple[list[int], dict[Any, int]]:
    """Choose items for dev, with the same share of every class.

    Each class contributes its own rounded share. If all of these are 0, the share of
    all items is divided among the classes by largest remainder. Every class keeps an
    item. Return the sorted indices of the items, and the number of each class.
    """
    rng = np.random.default_rng(seed)
    groups: dict[Any, list[int]] = {}
    for index, name in enumerate(classes):
        groups.setdefault(name, []).append(index)
    sizes = [len(group) for group in groups.values()]
    counts = [min(round(size * share), size - 1) for size in sizes]
    if not any(counts):
        counts = _largest_remainders(sizes, share, rng)
    indices: list[int] = []
    for group, count in zip(groups.values(), counts, strict=True):
        indices += rng.permutation(group)[:count].tolist()
    return sorted(indices), dict(zip(groups, counts, strict=True))


def _largest_remainders(
    sizes: Sequence[int], share: float, rng: np.random.Generator
) -> list[int]:
    """Divide the share of all items among classes; ties are broken at random."""
    exact = [size * share for size in sizes]
    counts = [min(int(v), size - 1) for v, size in zip(exact, sizes, strict=True)]
    missing = max(1, round(sum(exact))) - sum(counts)
    order = rng.permutation(len(sizes)).tolist()
    order.sort(key=lambda index: counts[index] - exact[index])  # stable
    eligible = [index for index in order if counts[index] < sizes[index] - 1]
    for index in eligible[: max(0, missing)]:
        counts[index] += 1
    return counts


def hold_out_groups(groups: Sequence[Hashable], share: float, seed: int) -> list[int]:
    """Choose the items of whole groups, in random order, until the share is reached."""
    sizes: dict[Hashable, int] = {}
    for group in groups:
        sizes[group] = sizes.get(group, 0) + 1
    order = list(sizes)
    random.Random(seed).shuffle(order)
    chosen, count = set(), 0
    for group in order[:-1]:
        if count >= share * len(groups):
            break
        chosen.add(group)
        count += sizes[group]
    return [index for index, group in enumerate(groups) if group in chosen]


def move_to_dev(
    splits: dict[str, Split],
    dev: Sequence[int],
    task: str,
    noun: str,
    settings: DataConfig,
    notify: Callable[[str], None],
) -> dict[str, Split]:
    """Return the splits with these items of train as dev, and report their number."""
    train, held = splits["train"], set(dev)
    notify(
        f"{task}: no dev file; held out as dev: {len(dev):,} of {len(train):,} {noun} "
        f"(data.dev_share {settings.dev_share:g}, data.split_seed "
        f"{settings.split_seed})"
    )
    rest = [index for index in range(len(train)) if index not in held]
    moved = {"train": train.subset(rest), "dev": train.subset(dev)}
    return moved | splits | moved  # in this order
