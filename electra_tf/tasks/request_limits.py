"""Limits of the requests that served graphs accept, asserted inside the graph."""

import tensorflow as tf

MAX_POSITIONS = 2**16
"""Maximum number of positions of a request: 128 rows of 512, or 512 of 128."""
MAX_PARTS = 1024
"""Maximum number of parts, one row each, that the texts of a request are split into."""


def assert_max_positions(rows: tf.Tensor, longest: tf.Tensor) -> tf.Operation:
    """Assert that a request has at most `MAX_POSITIONS` positions.

    Args:
        rows: int32, number of rows.
        longest: int32, positions of the longest row.

    Returns:
        An operation for a control dependency. It raises `InvalidArgumentError` at run
        time if rows times positions exceed the limit, without int32 overflow.
    """
    positions = tf.cast(rows, tf.int64) * tf.cast(longest, tf.int64)
    return tf.debugging.Assert(
        positions <= MAX_POSITIONS,
        [f"A request must have at most {MAX_POSITIONS} positions, rows times the "
         "longest. Received:", rows, longest, "Send several smaller requests."],
    )  # fmt: skip


def assert_max_parts(count: tf.Tensor) -> tf.Operation:
    """Assert that the texts of a request are split into at most `MAX_PARTS` parts.

    Args:
        count: int32, number of parts of all texts.

    Returns:
        An operation for a control dependency. It raises `InvalidArgumentError` at run
        time if there are more.
    """
    return tf.debugging.Assert(
        count <= MAX_PARTS,
        [f"The texts of a request must be split into at most {MAX_PARTS} parts. "
         "Received:", count, "Send several smaller requests."],
    )  # fmt: skip
