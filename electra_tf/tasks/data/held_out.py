"""Hold dev out of the training data, equal texts on one side, and count these."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from electra_tf.config.finetuning import DataConfig
from electra_tf.errors import InputError
from electra_tf.tasks.data.duplicates import first_equal_items
from electra_tf.tasks.data.splits import Split, texts_of

if TYPE_CHECKING:
    from electra_tf.tasks.task_data import Reading

_FEW = 30  # rows of dev


def with_dev(
    splits: dict[str, Split],
    task: str,
    noun: str,
    reading: "Reading",
    classes: Sequence[Hashable] | None = None,
    articles: Sequence[Hashable] | None = None,
) -> dict[str, Split]:
    """Return the splits, with a share of each class held out if dev is missing.

    Examples with equal texts are on one side, and so are those of one article. Notes
    count equal texts within train, and those of other splits that train has.
    """
    train, dev, notes = splits["train"], [], []
    splits = {"train": train, **splits}
    items = [item for split in splits.values() for item in split.items]
    first_N = first_equal_items(items, reading.tokenizer)
    if not any(name.startswith("dev") for name in splits):
        groups_N, unit = first_N[: len(train)], noun
        if articles is not None:
            groups_N, unit = _joined(articles, groups_N), "articles"
        dev = _choose_dev(f"{task}: ", unit, reading.settings, classes, groups_N)
        few = ", too few to compare scores" if len(dev) < _FEW else ""
        notes.append(
            f"no dev file; held out as dev: {len(dev):,} of {len(train):,} {noun}{few} "
            f"(data.dev_share {reading.settings.dev_share:g}, data.split_seed "
            f"{reading.settings.split_seed})"
        )
    for note in (*notes, *_describe_equal(splits, first_N, noun, dev)):
        reading.notify(f"{task}: {note}")
    if not dev:
        return splits
    moved = train.divided(dev)
    return moved | splits | moved  # in this order


def _choose_dev(
    prefix: str,
    noun: str,
    settings: DataConfig,
    classes: Sequence[Hashable] | None,
    groups_N: np.ndarray,
) -> list[int]:
    """Return the rows of dev; raise an error if there are none."""
    groups = [0] * len(groups_N) if classes is None else classes
    dev = hold_out(groups, settings.dev_share, settings.split_seed, groups_N)
    if not dev:
        of = f" of {len(set(groups)):,} classes" * (classes is not None)
        raise InputError(
            f"{prefix}to hold dev out there must be two different {noun} or more"
            f"{', of one class' * bool(of)}, and there are {len(set(groups_N)):,} "
            f"{noun}{of}; add {noun}, or a dev file"
        )
    return dev


def _joined(articles: Sequence[Hashable], first_N: np.ndarray) -> np.ndarray:
    """Return the index of the first example of each one's article, int64 [N].

    Articles with equal examples, whose first ones are given, are one.
    """
    from scipy.sparse import coo_array, csgraph  # slow to import

    numbers = {article: n for n, article in enumerate(dict.fromkeys(articles))}
    numbers_N = np.array([numbers[article] for article in articles])
    edges = np.ones(len(numbers_N)), (numbers_N, numbers_N[first_N])
    graph = coo_array(edges, shape=[len(numbers)] * 2)
    _, joined = csgraph.connected_components(graph, directed=False)
    _, firsts, places_N = np.unique(
        joined[numbers_N], return_index=True, return_inverse=True
    )
    return firsts[places_N]


def _describe_equal(
    splits: Mapping[str, Split], first_N: np.ndarray, noun: str, dev: Sequence[int]
) -> Iterator[str]:
    """Yield lines about equal texts, and equal texts with different labels.

    `first_N`: the index of the first example of all splits with the texts of each one;
    `dev`: the rows of train that became dev.
    """
    ends = np.cumsum([len(split) for split in splits.values()])
    parts = dict(zip(splits, np.split(first_N, ends[:-1]), strict=True))
    train, own_N = splits["train"], parts.pop("train")
    repeated = np.flatnonzero(own_N != np.arange(len(train))).tolist()
    if repeated:
        text = f"{len(repeated):,} of {len(train):,} {noun} repeat the texts of others"
        yield text + ", and are on the same side of train and dev" * bool(dev)
    different: dict[int, int] = {}
    for index in repeated if train.targets else ():
        if train.targets[index] != train.targets[own_N[index]]:
            different.setdefault(int(own_N[index]), index)
    for pair in list(different.items())[:1]:
        sides = (f"{train.targets[n]!r:.60} at {train.place(n)}" for n in pair)
        yield (
            f"warning: {len(different):,} texts have different labels, such as "
            f"{' | '.join(texts_of(train.items[pair[0]]))!r:.60}: {', '.join(sides)}"
        )
    is_trained = np.zeros(len(first_N), bool)
    is_trained[own_N] = True
    is_trained[own_N[dev]] = False
    for name, part_N in parts.items():
        if count := int(is_trained[part_N].sum()):
            yield (
                f"warning: {count:,} of {len(part_N):,} {noun} of {name} have texts of "
                "train: scores of new texts may be lower"
            )


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
