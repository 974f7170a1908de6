"""Limits of the requests that served graphs accept, asserted inside the graph."""

import tensorflow as tf

MAX_POSITIONS = 2**16
"""Positions of a request: 128 rows of 512, or 512 of 128."""
MAX_PARTS = 1024
"""Rows that the texts of a request may be split into."""


def assert_max_positions(rows: tf.Tensor, longest: tf.Tensor) -> tf.Operation:
    """Assert that a request has `MAX_POSITIONS` at most.

    Args:
        rows: int32, how many.
        longest: int32, positions of the longest row.

    Returns:
        What a control dependency takes; `InvalidArgumentError` at run time where rows
        times positions are more, also where they are more than an int32 can hold.
    """
    positions = tf.cast(rows, tf.int64) * tf.cast(longest, tf.int64)
    return tf.debugging.Assert(
        positions <= MAX_POSITIONS,
        [f"A request must have at most {MAX_POSITIONS} positions, rows times the "
         "longest. Received:", rows, longest, "Send it in parts."],
    )  # fmt: skip


def assert_max_parts(count: tf.Tensor) -> tf.Operation:
    """Assert that the texts of a request are read in `MOST` parts at most.

    Args:
        count: int32, the parts of all texts.

    Returns:
        What a control dependency takes; `InvalidArgumentError` at run time where there
        are more.
    """
    return tf.debugging.Assert(
        count <= MAX_PARTS,
        [f"The texts of a request must be read in at most {MAX_PARTS} parts. Received:",
         count, "Send it in parts."],
    )  # fmt: skip
