"""Group examples of similar lengths into padded batches.

A batch is as long as its longest example, rounded up to one of a few lengths, so that
few shapes are compiled. Batches are a function of (seed, epoch). Padding rows of the
last batch have the weight 0.
"""

import dataclasses
import hashlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf.errors import InputError
from electra_tf.kernels.weak_functions import weak_function
from electra_tf.text.encoding import RaggedRows, pad_rows

LENGTHS = (
    *(8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128),
    *range(160, 513, 32),
)
IGNORE_LABEL = -1  # target of a position without a label
_WINDOW = 50  # batches per window; examples are sorted by length within a window

IdRows = Mapping[str, Any]  # token_ids, segment_ids, padding_mask: int32 [B, L]


@dataclasses.dataclass(frozen=True)
class EncodedExamples:
    """Token ids and targets of examples, not yet padded."""

    ids: RaggedRows
    """Token ids with [CLS] and [SEP], a row for each example, or `num_choices` rows;
    lists are converted."""
    segments: RaggedRows  # segment ids of the same lengths
    max_length: int  # largest number of positions of an example
    targets: Any = None
    """An array with a number or a row of numbers for each example; `RaggedRows` with a
    number for each position; or a dictionary of such. Lists are converted. None:
    unlabelled."""
    truncated: int = 0  # number of examples that were truncated to `max_length`
    origins: Sequence[Any] = ()  # source of each example, if not one for each item
    items: Sequence[int] | None = None  # index of each one's item; None: the same
    weights: np.ndarray | None = None  # in losses and metrics, float32 [N]; None: ones
    pairs: bool | None = None  # of texts; False: single texts; None: neither
    num_choices: int | None = None  # rows of ids of an example; None: one

    def __post_init__(self):
        for name in ("ids", "segments"):
            object.__setattr__(self, name, RaggedRows.of(getattr(self, name)))
        if isinstance(targets := self.targets, Mapping):
            targets = {name: self._column(v) for name, v in targets.items()}
        elif targets is not None:
            targets = self._column(targets)
        object.__setattr__(self, "targets", targets)
        if self.weights is None:
            object.__setattr__(self, "weights", np.ones(len(self), np.float32))

    def __len__(self) -> int:
        return len(self.ids) // (self.num_choices or 1)

    @property
    def num_items(self) -> int:
        """Number of items, as far as the examples show: the last ones may have none."""
        return len(self) if self.items is None else max(self.items, default=-1) + 1

    @property
    def lengths(self) -> np.ndarray:
        """int64 [N]: positions of each example, or of its longest choice."""
        return self.ids.lengths.reshape(-1, self.num_choices or 1).max(1)

    def hashes(self) -> np.ndarray:
        """Return a hash of the ids of each example, uint64 [N]."""
        digests = (hashlib.blake2b(ids, digest_size=8).digest() for ids in self.ids)
        rows_R = np.frombuffer(b"".join(digests), np.uint64)
        return rows_R.reshape(-1, self.num_choices or 1).sum(1)

    def num_equal(self, hashes: np.ndarray) -> int:
        """Return the number of items whose examples all have one of some hashes."""
        items = np.arange(len(self)) if self.items is None else np.asarray(self.items)
        others = items[~np.isin(self.hashes(), hashes)]
        return len(np.unique(items)) - len(np.unique(others))

    def weighted(self, weights: Any) -> "EncodedExamples":
        """Return the same examples, each with the weight of its item."""
        items = range(len(self)) if self.items is None else self.items
        values = np.asarray(weights, np.float32)
        return dataclasses.replace(self, weights=values[list(items)])

    def batch(self, rows: Sequence[int], size: int) -> tuple[IdRows, Any, np.ndarray]:
        """Return padded inputs, targets and weights.

        Inputs are [B, L], or [B, N, L] of choices. Targets are numbers [B], or [B, L]
        padded with `IGNORE_LABEL`, or rows [B, C]; without any, zeros. Weights are
        float32 [B], 0 in padding rows.
        """
        rows, count = np.asarray(rows), self.num_choices or 1
        of_ids = (rows[:, None] * count + np.arange(count)).ravel()
        longest = int(self.ids.lengths[of_ids].max())
        length = min(padded_length(longest), max(self.max_length, longest))
        inputs = pad_rows(self.ids, self.segments, of_ids, (size * count, length))
        if self.num_choices is not None:
            inputs = {n: ids.reshape(size, count, length) for n, ids in inputs.items()}

        def padded(values: np.ndarray | RaggedRows) -> np.ndarray:
            if isinstance(values, RaggedRows):
                return values.padded(rows, (size, length))
            padded = np.zeros((size, *values.shape[1:]), values.dtype)
            padded[: len(rows)] = values[rows]
            return padded

        if isinstance(targets := self.targets, Mapping):
            targets = {name: padded(values) for name, values in targets.items()}
        else:
            targets = np.zeros(size, np.int32) if targets is None else padded(targets)
        return inputs, targets, padded(self.weights)

    def _column(self, values: Any) -> np.ndarray | RaggedRows:
        """Return numbers as an array, and lists with one for each position as rows."""
        if isinstance(values, list) and values and isinstance(values[0], list):
            values = RaggedRows.of(values, IGNORE_LABEL)
            if not np.array_equal(values.lengths, self.ids.lengths):
                raise ValueError(
                    f"a target of {values.lengths[0]} numbers for {len(self.ids[0])} "
                    "positions; pass several numbers as a dictionary of lists"
                )
        if isinstance(values, RaggedRows):
            return values
        array = np.asarray(values)
        return array.astype(np.float32 if array.dtype.kind == "f" else np.int32)


def check_num_targets(x: Sequence[Any], y: Sequence[Any] | None, items: str) -> None:
    """Raise an error unless there is a target for each item."""
    if y is not None and len(y) != len(x):
        raise InputError(
            f"y must have one target for each: {len(x)} {items} and {len(y)} targets"
        )


def padded_length(length: int) -> int:
    """Round a length up to one of `LENGTHS`, or to a multiple of 128."""
    return next((n for n in LENGTHS if length <= n), -(-length // 128) * 128)


def training_batch_indices(
    lengths: np.ndarray, size: int, seed: int, epoch: int
) -> list[np.ndarray]:
    """Return the indices of the examples of each batch of an epoch.

    The examples are shuffled, as a function of (seed, epoch). Each window of 50 batches
    is sorted by length and cut into batches of `size`; one batch may be
    smaller. The order of all batches is shuffled again.
    """
    # The smaller batch is a random one of the last window. If it always had the longest
    # examples, a mean over the batch would give these a larger weight in each epoch.
    rng = np.random.default_rng([seed, epoch])
    order = rng.permutation(len(lengths))
    batches = []
    for at in range(0, len(order), _WINDOW * size):
        window = order[at : at + _WINDOW * size]
        window = window[np.argsort(lengths[window], kind="stable")]
        ends = np.arange(size, len(window), size)
        short = rng.integers(len(ends) + 1)
        ends[short:] -= -len(window) % size
        batches += np.split(window, ends)
    return [batches[number] for number in rng.permutation(len(batches))]


def prediction_batch_indices(lengths: np.ndarray, size: int) -> list[np.ndarray]:
    """Assign examples to batches, the longest first: memory errors show at once."""
    order = np.argsort(-lengths, kind="stable")
    return [order[at : at + size] for at in range(0, len(order), size)]


def epoch_batch_indices(
    lengths: np.ndarray,
    size: int,
    state: Callable[[], tuple[int, int]],
    *,
    shuffle: bool = True,
) -> Iterator[list[np.ndarray]]:
    """Yield the batches of successive epochs, endlessly."""
    if not shuffle:
        rows = np.arange(len(lengths))
        batches = [rows[at : at + size] for at in range(0, len(rows), size)]
        yield from itertools.repeat(batches)
    steps = len(prediction_batch_indices(lengths, size))
    while True:
        seed, updates = state()
        yield training_batch_indices(lengths, size, seed, updates // steps)


def check_replicas(size: int, strategy: tf.distribute.Strategy) -> None:
    """Raise an error unless each replica gets the same number of rows of a batch."""
    replicas = strategy.num_replicas_in_sync
    if size % replicas:
        multiple = -(-size // replicas) * replicas
        raise InputError(
            f"batch_size={size} must be a multiple of the {replicas} replicas; set "
            f"training.batch_size={multiple}"
        )


def training_dataset(
    examples: EncodedExamples, size: int, epochs: Iterator[list[np.ndarray]]
) -> tf.data.Dataset:
    """Return padded batches; each pass over the data set is the next epoch."""
    if not len(examples):
        raise InputError("There must be one or more examples")

    def next_epoch() -> Iterator[Any]:
        for rows in next(epochs):
            yield examples.batch(rows, size)

    batches = len(prediction_batch_indices(examples.lengths, size))
    return generated_dataset(next_epoch, examples.batch([0], size), batches, size)


def generated_dataset(
    next_pass: Callable[[], Iterator[Any]],
    batch: Any,
    count: int,
    rows: int | None = None,
) -> tf.data.Dataset:
    """Return a data set of batches as one of them, made while others are trained on.

    `count`: batches of a pass, or a constant of TensorFlow for an unknown number;
    `rows`: those of every batch, None if they vary.
    """
    signature = tf.nest.map_structure(
        lambda array: tf.TensorSpec([rows, *[None] * (array.ndim - 1)], array.dtype),
        batch,
    )
    dataset = tf.data.Dataset.from_generator(
        weak_function(next_pass), output_signature=signature
    )
    dataset.owned_function = next_pass
    if count != tf.data.UNKNOWN_CARDINALITY:
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(count))
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = (
        tf.data.experimental.AutoShardPolicy.OFF
    )
    options.autotune.enabled = False  # the tuner delays the end of a pass by seconds
    return dataset.prefetch(2).with_options(options)


def eval_dataset(examples: EncodedExamples, size: int) -> tf.data.Dataset:
    """Return padded batches of similar lengths, the same ones in each pass."""
    batches = prediction_batch_indices(examples.lengths, size)
    return training_dataset(examples, size, itertools.repeat(batches))
