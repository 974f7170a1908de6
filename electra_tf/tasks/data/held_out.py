"""Hold dev out of the training data, equal texts on one side."""

import random
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from electra_tf.errors import InputError
from electra_tf.tasks.data.duplicates import EqualTexts
from electra_tf.tasks.data.splits import Split

if TYPE_CHECKING:
    from electra_tf.tasks.task_data import Reading

_FEW = 30  # rows of dev


def with_dev(
    splits: dict[str, Split],
    task: str,
    noun: str,
    reading: "Reading",
    classes: Sequence[Hashable] | None = None,
) -> dict[str, Split]:
    """Return the splits, with a share of each class held out if dev is missing.

    Examples with equal texts are on one side. A note counts them, and those of other
    splits that train has.
    """
    settings, notify, train = reading.settings, reading.notify, splits["train"]
    equal, dev = EqualTexts(splits, reading.tokenizer), []
    if "dev" not in splits:
        groups = [0] * len(train) if classes is None else classes
        share, seed = settings.dev_share, settings.split_seed
        dev = hold_out(groups, share, seed, equal.train)
        if not dev:
            of = f" of {len(set(groups)):,} classes" * (classes is not None)
            least = f"there must be two different {noun} or more"
            least += ", of one class" * bool(of)
            raise InputError(
                f"{task}: to hold dev out {least}, and there are "
                f"{len(set(equal.train)):,} {noun}{of}; add {noun}, or a dev file"
            )
        few = ", too few to compare scores" if len(dev) < _FEW else ""
        notify(
            f"{task}: no dev file; held out as dev: {len(dev):,} of {len(train):,} "
            f"{noun}{few} (data.dev_share {settings.dev_share:g}, data.split_seed "
            f"{settings.split_seed})"
        )
    for line in equal.lines(task, noun, dev):
        notify(line)
    if not dev:
        return splits
    moved = train.divided(dev)
    return moved | splits | moved  # in this order


def hold_out(
    classes: Sequence[Hashable],
    share: float,
    seed: int,
    first_equal: np.ndarray | None = None,
) -> list[int]:
    """Return sorted indices of items for dev, with the same share of every class.

    Each class contributes its own rounded share. If all of these are 0, the share of
    all items is divided among the classes by largest remainder. Every class keeps an
    item.

    `first_equal` has the index of the first equal item of each one. Equal items have
    the class of the first one and stay together, so that the share is approximate.
    """
    rng = np.random.default_rng(seed)
    first_N = np.arange(len(classes)) if first_equal is None else first_equal
    sizes_N = np.bincount(first_N, minlength=len(classes))
    groups: dict[Any, list[int]] = {}
    for index in np.flatnonzero(sizes_N).tolist():
        groups.setdefault(classes[index], []).append(index)
    sizes = [int(sizes_N[group].sum()) for group in groups.values()]
    counts = [min(round(size * share), size - 1) for size in sizes]
    if not any(counts):
        counts = _largest_remainders(sizes, share, rng)
    chosen: list[int] = []
    for group, count in zip(groups.values(), counts, strict=True):
        chosen += _fill(rng.permutation(group), sizes_N, count)
    if not chosen:
        several = [index for g in groups.values() if len(g) > 1 for index in g]
        chosen = sorted(several, key=sizes_N.__getitem__)[:1]
    is_dev_N = np.zeros(len(classes), bool)
    is_dev_N[chosen] = True
    return np.flatnonzero(is_dev_N[first_N]).tolist()


def _fill(order: np.ndarray, sizes_N: np.ndarray, count: int) -> list[int]:
    """Return items, in this order, whose equal ones are `count` in all, or nearly.

    One that would exceed the count by more than half of its size is left out, and so
    is one that would be the last of its class.
    """
    chosen, left = [], int(sizes_N[order].sum())
    for index, size in zip(order.tolist(), sizes_N[order].tolist(), strict=True):
        if count <= 0:
            break
        if size <= 2 * count and size < left:
            chosen.append(index)
            count, left = count - size, left - size
    return chosen


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


def join_groups(groups: Sequence[Hashable], first_equal: np.ndarray) -> list[Hashable]:
    """Return the group of each item, the earliest of those with equal items.

    `first_equal` is that of `hold_out`.
    """
    earlier: dict[Hashable, Hashable] = {}

    def earliest(group: Hashable) -> Hashable:
        while group in earlier:
            group = earlier[group]
        return group

    for group, index in zip(groups, first_equal.tolist(), strict=True):
        first, second = earliest(groups[index]), earliest(group)
        if first != second:
            earlier[second] = first
    return list(map(earliest, groups))
