"""Examples of their own lengths -> batches of like length.

A batch is as long as its longest example, rounded up to one of few lengths, so that
few shapes are compiled. Batches are a function of (seed, epoch), and a row that only
fills up the last one has the weight 0.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf.errors import InputError

LENGTHS = (
    *(8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128),
    *range(160, 513, 32),
)
IGNORE_LABEL = -1  # the target of a position that none is asked of
_WINDOW = 50  # batches whose examples are sorted by length among each other

Inputs = Mapping[str, Any]
"""`token_ids`, `segment_ids`, `padding_mask`, each int32 [B, L]."""


@dataclasses.dataclass(frozen=True)
class EncodedExamples:
    """What an encoder reads and what its head should say, not yet padded."""

    ids: Sequence[Sequence[int]]
    """Token ids with [CLS] and [SEP], one sequence for each example."""
    segments: Sequence[Sequence[int]]
    """Segment ids of the same lengths."""
    max_length: int
    """Positions of the longest example there may be."""
    targets: Sequence[Any] | Mapping[str, Sequence[Any]] | None = None
    """A number for each example, or one for each of its positions; or several such
    by name; None: not known."""
    truncated: int = 0
    """How many of them lost pieces, as they were longer."""
    origins: Sequence[Any] = ()
    """What each was made of, where items and examples are not one to one."""
    items: Sequence[int] | None = None
    """The place of the item that each was made of; None: they are one to one."""
    weights: Sequence[float] | None = None
    """What each counts for in losses and scores; None: 1."""

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def lengths(self) -> np.ndarray:
        """int64 [N]: positions of each example."""
        return np.fromiter(map(len, self.ids), np.int64, len(self.ids))

    def weighted(self, weights: Any) -> "EncodedExamples":
        """Return the same examples, each with the weight of its item.

        Args:
            weights: float32, one for each item.

        Returns:
            New examples; several of one item have its weight each.

        Raises:
            InputError: Another number of weights than of items.
        """
        items = range(len(self)) if self.items is None else self.items
        found = np.asarray(weights, np.float32)
        known = len(self) if self.items is None else max(items, default=-1) + 1
        if (
            found.ndim != 1
            or len(found) < known
            or (self.items is None and len(found) != known)
        ):
            raise InputError(
                "There must be a weight for each item",
                f"weights of the shape {list(found.shape)} for {known} items",
                "Pass as many weights as items",
            )
        return dataclasses.replace(self, weights=found[list(items)])

    @functools.cached_property
    def _kinds(self) -> Mapping[str | None, type]:
        """Of the targets, by name: one for all batches, whatever a batch holds."""
        several = isinstance(self.targets, Mapping)
        named = self.targets if several else {None: self.targets}
        return {name: _kind(values) for name, values in named.items()}

    def batch(self, rows: Sequence[int], size: int) -> tuple[Inputs, Any, np.ndarray]:
        """Pads some examples to a batch.

        Args:
            rows: Which examples.
            size: Rows of the batch; those beyond the examples have the weight 0.

        Returns:
            Inputs, targets (numbers [B], or [B, L] filled up with `IGNORE_LABEL`; zeros
            where none are known) and weights, float32 [B].
        """
        longest = max(len(self.ids[row]) for row in rows)
        length = min(padded_length(longest), max(self.max_length, longest))
        ids_BL, segments_BL, mask_BL = np.zeros((3, size, length), np.int32)
        for place, row in enumerate(rows):
            end = len(self.ids[row])
            ids_BL[place, :end] = self.ids[row]
            segments_BL[place, :end] = self.segments[row]
            mask_BL[place, :end] = 1
        targets: Any = np.zeros(size, np.int32)
        if isinstance(self.targets, Mapping):
            targets = {
                name: _stack([of[row] for row in rows], size, length, self._kinds[name])
                for name, of in self.targets.items()
            }
        elif self.targets is not None:
            chosen = [self.targets[row] for row in rows]
            targets = _stack(chosen, size, length, self._kinds[None])
        weights_B = np.zeros(size, np.float32)
        weights_B[: len(rows)] = 1 if self.weights is None else self.weights[list(rows)]
        inputs = {
            "token_ids": ids_BL,
            "segment_ids": segments_BL,
            "padding_mask": mask_BL,
        }
        return inputs, targets, weights_B


def padded_length(length: int) -> int:
    """The least of `LENGTHS`, or multiple of 128, that is not shorter.

    Args:
        length: Positions of a batch's longest example.

    Returns:
        Positions of the batch.
    """
    for known in LENGTHS:
        if length <= known:
            return known
    return -(-length // 128) * 128


def training_batch_indices(
    lengths: np.ndarray, size: int, seed: int, epoch: int, bucketed: bool = True
) -> list[np.ndarray]:
    """Which examples make up which batch of an epoch.

    The examples are shuffled; within a window of 50 batches they are sorted by length
    and parted into batches, whose order is shuffled again.

    Args:
        lengths: Positions of each example.
        size: Examples of a batch.
        seed: Decides the order, with the epoch.
        epoch: Number of the pass, from 0.
        bucketed: False: the shuffled examples one after the other.

    Returns:
        Rows of each batch; each example is in one of them. One batch, any of the last
        window's, may have fewer: were it always that of the longest examples, a mean
        over the batch would let these weigh more in each epoch.
    """
    draw = np.random.default_rng([seed, epoch])
    order = draw.permutation(len(lengths))
    if not bucketed:
        return [order[at : at + size] for at in range(0, len(order), size)]
    batches = []
    for at in range(0, len(order), _WINDOW * size):
        window = order[at : at + _WINDOW * size]
        window = window[np.argsort(lengths[window], kind="stable")]
        ends = np.arange(size, len(window), size)
        short = draw.integers(len(ends) + 1)
        ends[short:] -= -len(window) % size
        batches += np.split(window, ends)
    return [batches[number] for number in draw.permutation(len(batches))]


def prediction_batch_indices(lengths: np.ndarray, size: int) -> list[np.ndarray]:
    """Batches of all examples, the longest first, so that memory is told at once.

    Args:
        lengths: Positions of each example.
        size: Examples of a batch.

    Returns:
        Rows of each batch.
    """
    order = np.argsort(-lengths, kind="stable")
    return [order[at : at + size] for at in range(0, len(order), size)]


def epoch_batch_indices(
    lengths: np.ndarray,
    size: int,
    state: Callable[[], tuple[int, int]],
    *,
    shuffle: bool = True,
    bucketed: bool = True,
) -> Iterator[list[np.ndarray]]:
    """Yield the batches of one epoch after the other, without end.

    Args:
        lengths: Positions of each example.
        size: Examples per batch.
        state: Returns the model's seed and its number of updates; the order of an
            epoch depends on both, so that a training can be resumed.
        shuffle: False: the examples in their order.
        bucketed: As for `training_batch_indices`.

    Yields:
        Rows of each batch of an epoch.
    """
    if not shuffle:
        rows = np.arange(len(lengths))
        batches = [rows[at : at + size] for at in range(0, len(rows), size)]
        yield from itertools.repeat(batches)
    steps = len(prediction_batch_indices(lengths, size))
    while True:
        seed, updates = state()
        yield training_batch_indices(lengths, size, seed, updates // steps, bucketed)


def check_replicas(size: int, strategy: tf.distribute.Strategy) -> None:
    """Raise an error unless each replica gets the same number of rows of a batch.

    Args:
        size: Rows of a batch.
        strategy: Strategy of the model.

    Raises:
        InputError: The number of replicas does not divide `size`.
    """
    replicas = strategy.num_replicas_in_sync
    if size % replicas:
        raise InputError(
            f"The batch size must be a multiple of the {replicas} replicas",
            f"batches of {size}",
            f"Set training.batch_size={-(-size // replicas) * replicas}",
        )


def single_batch(examples: EncodedExamples) -> tuple[Inputs, Any, tf.Tensor]:
    """Pad all examples to one batch.

    Args:
        examples: One example or more.

    Returns:
        Inputs, targets and weights as tensors.

    Raises:
        InputError: There are no examples.
    """
    if not len(examples):
        raise InputError("A batch must have a text or more", "no text", "Pass texts")
    batch = examples.batch(range(len(examples)), len(examples))
    return tf.nest.map_structure(tf.convert_to_tensor, batch)


def training_dataset(
    examples: EncodedExamples, size: int, plans: Iterator[list[np.ndarray]]
) -> tf.data.Dataset:
    """Batches for Keras; each pass over the data set takes the next plan.

    Args:
        examples: What to pad.
        size: Rows of a batch.
        plans: One for each pass.

    Returns:
        Pairs of inputs and targets with weights, as `Examples.batch` makes them.

    Raises:
        InputError: There are no examples.
    """
    if not len(examples):
        raise InputError(
            "There is one example or more", "none", "Check the file that was named"
        )

    def passing() -> Iterator[Any]:
        for rows in next(plans):
            yield examples.batch(rows, size)

    probe = examples.batch([0], size)
    signature = tf.nest.map_structure(_spec, probe)
    batches = len(prediction_batch_indices(examples.lengths, size))
    found = tf.data.Dataset.from_generator(passing, output_signature=signature)
    found = found.apply(tf.data.experimental.assert_cardinality(batches))
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = (
        tf.data.experimental.AutoShardPolicy.OFF
    )
    options.autotune.enabled = False  # it holds up the end of a pass for seconds
    return found.prefetch(2).with_options(options)


def eval_dataset(examples: EncodedExamples, size: int) -> tf.data.Dataset:
    """All examples in batches of like length, the same ones in each pass.

    Args:
        examples: What to pad.
        size: Rows of a batch.

    Returns:
        As `dataset`.
    """
    plan = prediction_batch_indices(examples.lengths, size)
    return training_dataset(examples, size, itertools.repeat(plan))


def _spec(array: np.ndarray) -> tf.TensorSpec:
    shape = [len(array), *[None] * (array.ndim - 1)]
    return tf.TensorSpec(shape, array.dtype)


def _kind(values: Sequence[Any]) -> type:
    floats = any(isinstance(value, float | np.floating) for value in values)
    return np.float32 if floats else np.int32


def _stack(values: list[Any], size: int, length: int, kind: type) -> np.ndarray:
    if np.ndim(values[0]):
        filled = np.full((size, length), IGNORE_LABEL, np.int32)
        for place, row in enumerate(values):
            filled[place, : len(row)] = row
        return filled
    filled = np.zeros(size, kind)
    filled[: len(values)] = values
    return filled
