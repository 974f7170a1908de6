"""Splits of a task's data: their files, or a column of them."""

import dataclasses
import glob
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from electra_tf.errors import InputError, format_list
from electra_tf.tasks.data.files import Notify, has_tfds
from electra_tf.tasks.data.table import Table
from electra_tf.text.files import COMPRESSION_SUFFIXES, is_tfds
from electra_tf.text.rows import READERS

_STEMS = {"train": ("train",), "dev": ("dev", "valid", "validation"), "test": ("test",)}
_WORDS = {"train": "train", "test": "test"}
_WORDS |= dict.fromkeys(["dev", "valid", "validation", "val"], "dev")


@dataclasses.dataclass(frozen=True)
class Split:
    """A split of a task's data."""

    items: Sequence[Any]  # inputs of the model's `examples` and `predict`
    targets: Sequence[Any] | None  # target of each item; None: unlabelled
    table: Table | None = dataclasses.field(default=None, compare=False)
    """The row of each item in its file, if that is a table."""
    is_whole: bool = dataclasses.field(default=False, compare=False)
    """True if the items are all rows of their file: an index is a row's number."""

    def __len__(self) -> int:
        return len(self.items)

    @property
    def places(self) -> list[str] | None:
        """FILE:LINE of each row of a table, unless its index finds it."""
        if self.table is None or self.is_whole:
            return None
        return list(map(self.table.place, range(len(self))))

    def target(self, index: int) -> Any:
        """Return the target of an item; None: it has none."""
        return None if self.targets is None else self.targets[index]

    def place(self, index: int) -> str:
        """Return the file of an item, with its line if that is known."""
        if self.table is not None:
            return self.table.place(index)
        return getattr(self.items[index], "place", f"row {index + 1}")

    def subset(self, indices: Sequence[int]) -> "Split":
        """Return the items with these indices."""
        targets = self.targets and [self.targets[index] for index in indices]
        table = self.table and self.table.take(indices)
        return Split([self.items[index] for index in indices], targets, table)

    def divided(self, dev: Sequence[int]) -> dict[str, "Split"]:
        """Return the items with these indices as dev, and the others as train."""
        held = set(dev)
        rest = [index for index in range(len(self)) if index not in held]
        return {"train": self.subset(rest), "dev": self.subset(dev)}


def texts_of(item: Any) -> tuple[str, ...]:
    """Return the texts of an item: a text, several, or an object that has `texts`.

    The last of several may be a list of choices.
    """
    if isinstance(item, str):
        return (item,)
    if hasattr(item, "texts"):
        return item.texts
    texts = tuple(item)
    if texts and not isinstance(texts[-1], str):
        return *texts[:-1], *texts[-1]
    return texts


# Files.


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
            names = ", ".join(map(os.path.basename, paths))
            raise InputError(f"{folder} must have one file of {what}, and has {names}")
        if paths:
            return paths[0]
    return None


def find_splits(
    data: str,
    is_training: bool,
    endings: Sequence[str] = (),
    published: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the files of a folder by split: dev, test and, to train on, train.

    A file itself, as `tfds:NAME@SPLIT`, is `train`, or to score a model on `data`;
    `tfds:NAME` has the splits that are prepared. A file of a published name comes
    before those of usual names, which end as those of tables by default.
    """
    splits = ("train", "dev", "test") if is_training else ("dev", "test")
    if os.path.isfile(data) or (is_tfds(data) and "@" in data):
        return {"train" if is_training else "data": data}
    if is_tfds(data):
        names = {split: f"{data}@{_STEMS[split][-1]}" for split in splits}
        found = {s: name for s, name in names.items() if has_tfds(name)}
        return found or {splits[0]: names[splits[0]]}  # an error when it is read
    paths, endings, published = {}, endings or [*READERS], published or {}
    for split in splits:
        names = [f"{stem}{end}" for stem in _STEMS[split] for end in endings]
        groups = [[name + suffix for name in names for suffix in COMPRESSION_SUFFIXES]]
        if name := published.get(split):
            groups = [*([name + suffix] for suffix in COMPRESSION_SUFFIXES), *groups]
        if path := find_file(data, split, *groups):
            paths[split] = path
    if not paths or (is_training and "train" not in paths):
        names = [f"{splits[0]}{ending}" for ending in endings]
        names = filter(None, [published.get(splits[0]), *names])
        raise InputError(
            f"--data must be a file, or a folder with one of {', '.join(names)}, and "
            f"{data!r} has none"
        )
    return paths


# Columns.


def split_rows(
    table: Table,
    column: str,
    needed: Collection[str],
    notify: Notify,
) -> dict[str, Table]:
    """Return the rows of each split that a column names: train, dev, test."""
    table.require([column])
    rows: dict[str, list[int]] = {"train": [], "dev": [], "test": []}
    for index, word in enumerate(table.columns[column]):
        split = _split_of(word)
        if split is None:
            detail = f"{column!r} is {word!r}"
            remedy = f"write one of {', '.join(_WORDS)}"
            raise table.error(index, "no split", detail, remedy)
        rows[split].append(index)
    rows = {name: part for name, part in rows.items() if part}
    if rows.keys().isdisjoint(needed):
        raise InputError(
            f"{table.source} must have rows of {' or '.join(needed)} by {column!r}, "
            f"and has those of {format_list(rows) or 'no split'}"
        )
    sizes = ", ".join(f"{name} {len(part):,}" for name, part in rows.items())
    notify(f"rows by {column!r}: {sizes}")
    return {name: table.take(part) for name, part in rows.items()}


def warn_of_unused_splits(
    table: Table, used: Collection[str | None], notify: Notify
) -> None:
    """Warn of a column that holds names of several splits and nothing else."""
    for column in [name for name in table.columns if name not in used]:
        splits: set[str | None] = set()
        for word in table.columns[column]:
            splits.add(_split_of(word))
            if None in splits:
                break
        if len(splits) > 1 and None not in splits:
            notify(
                f"warning: {table.source}: {column!r} holds names of splits, which are "
                f"not used: pass the file as --data with --split_column={column}"
            )


def _split_of(word: Any) -> str | None:
    return _WORDS.get(word.strip().casefold()) if isinstance(word, str) else None
