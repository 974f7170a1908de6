"""Ids from outside, refused in words where they are none."""

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from electra_tf.serving.exportable import IDS
from electra_tf.settings import Encoder as Shape

MOST_POSITIONS = 2**16
"""Of a request: 128 rows of 512, or 512 of 128. Attention's memory grows with it."""


def of_ids(function: Callable[[dict], dict[str, tf.Tensor]], shape: Shape) -> Any:
    """A function of ids as a signature takes it.

    Args:
        function: From `token_ids`, `segment_ids` and `padding_mask`, int32 [B, L], by
            name to tensors by name.
        shape: The encoder's, to tell what is an id.

    Returns:
        A `tf.function` for any number of rows and positions.
    """
    spec = [tf.TensorSpec([None, None], tf.int32, name=name) for name in IDS]

    @tf.function(input_signature=spec)
    def tokens(token_ids, segment_ids, padding_mask):
        return function(checked_ids(token_ids, segment_ids, padding_mask, shape))

    return tokens


def checked_ids(
    token_ids: tf.Tensor, segment_ids: tf.Tensor, padding_mask: tf.Tensor, shape: Shape
) -> dict[str, tf.Tensor]:
    """Stops a request whose ids the encoder does not have.

    A lookup beyond the end of a table is an error on a CPU, but zeros on a GPU; and an
    error of an operation deep in the graph tells a client nothing.

    Args:
        token_ids: int32 [B, L].
        segment_ids: int32 [B, L].
        padding_mask: int32 [B, L], 1 at real tokens.
        shape: The encoder's.

    Returns:
        The same by name; `InvalidArgumentError` at run time where something is wrong.
    """
    given = token_ids, segment_ids, padding_mask
    given = [tf.ensure_shape(of, [None, None]) for of in given]
    given = dict(zip(IDS, given, strict=True))
    limits = dict(zip(IDS, (shape.vocabulary_size, shape.segments, 2), strict=True))
    size = tf.shape(given[IDS[0]])
    # Sizes first: a check of values has a tensor as large as what it checks.
    sizes = [few_positions(size[0], size[1])]
    sizes += [
        tf.debugging.Assert(
            tf.reduce_all(tf.equal(tf.shape(of), size)),
            [f"{name} and token_ids have one shape. Arrived:", tf.shape(of), size],
        )
        for name, of in given.items()
        if name != IDS[0]
    ]
    sizes.append(
        tf.debugging.Assert(
            (size[1] <= shape.max_positions) & ((size[1] > 0) | (size[0] == 0)),
            [f"A row has 1 to {shape.max_positions} positions. Arrived:", size[1]],
        )
    )
    with tf.control_dependencies(sizes):
        given = {name: tf.identity(of) for name, of in given.items()}
    checks = [
        tf.debugging.Assert(
            tf.reduce_all((of >= 0) & (of < limits[name])),
            [f"{name} lie from 0 to {limits[name] - 1}. Arrived, least and greatest:",
             tf.reduce_min(of), tf.reduce_max(of)],
        )
        for name, of in given.items()
    ]  # fmt: skip
    with tf.control_dependencies(checks):
        return bounded(given)


def bounded(inputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Stops a request that memory is not meant for.

    Args:
        inputs: By name, [B, L].

    Returns:
        The same; with one position where there are none, which may be where there are
        no rows, as the encoder reads the first. `InvalidArgumentError` at run time
        where rows times positions are more than `MOST_POSITIONS`.
    """
    rows, length = tf.unstack(tf.shape(inputs[IDS[0]]))
    none = tf.cast(length == 0, tf.int32)
    with tf.control_dependencies([few_positions(rows, length)]):
        return {name: tf.pad(of, [[0, 0], [0, none]]) for name, of in inputs.items()}


def few_positions(rows: tf.Tensor, longest: tf.Tensor) -> tf.Operation:
    """Assert that a request has `MOST_POSITIONS` at most.

    Args:
        rows: int32, how many.
        longest: int32, positions of the longest row.

    Returns:
        What a control dependency takes; `InvalidArgumentError` at run time where rows
        times positions are more, also where they are more than an int32 can hold.
    """
    positions = tf.cast(rows, tf.int64) * tf.cast(longest, tf.int64)
    return tf.debugging.Assert(
        positions <= MOST_POSITIONS,
        [f"A request must have at most {MOST_POSITIONS} positions, rows times the "
         "longest. Received:", rows, longest, "Send it in parts."],
    )  # fmt: skip
