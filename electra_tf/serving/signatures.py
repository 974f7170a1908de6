"""Ids from outside, refused in words where they are none."""

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from electra_tf.config.pretraining import EncoderConfig
from electra_tf.serving.export_spec import IDS
from electra_tf.tasks.request_limits import assert_max_positions


def token_signature(
    function: Callable[[dict], dict[str, tf.Tensor]], shape: EncoderConfig
) -> Any:
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
    token_ids: tf.Tensor,
    segment_ids: tf.Tensor,
    padding_mask: tf.Tensor,
    shape: EncoderConfig,
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
    sizes = [assert_max_positions(size[0], size[1])]
    sizes += [
        tf.debugging.Assert(
            tf.reduce_all(tf.equal(tf.shape(of), size)),
            [f"{name} and token_ids have one shape. Received:", tf.shape(of), size],
        )
        for name, of in given.items()
        if name != IDS[0]
    ]
    sizes.append(
        tf.debugging.Assert(
            (size[1] <= shape.max_positions) & ((size[1] > 0) | (size[0] == 0)),
            [f"A row has 1 to {shape.max_positions} positions. Received:", size[1]],
        )
    )
    with tf.control_dependencies(sizes):
        given = {name: tf.identity(of) for name, of in given.items()}
    checks = [
        tf.debugging.Assert(
            tf.reduce_all((of >= 0) & (of < limits[name])),
            [f"{name} lie from 0 to {limits[name] - 1}. Received, least and greatest:",
             tf.reduce_min(of), tf.reduce_max(of)],
        )
        for name, of in given.items()
    ]  # fmt: skip
    with tf.control_dependencies(checks):
        return check_request_size(given)


def check_request_size(inputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Stops a request that memory is not meant for.

    Args:
        inputs: By name, [B, L].

    Returns:
        The same; with one position where there are none, which may be where there are
        no rows, as the encoder reads the first. `InvalidArgumentError` at run time
        where rows times positions are more than `MAX_POSITIONS`.
    """
    rows, length = tf.unstack(tf.shape(inputs[IDS[0]]))
    none = tf.cast(length == 0, tf.int32)
    with tf.control_dependencies([assert_max_positions(rows, length)]):
        return {name: tf.pad(of, [[0, 0], [0, none]]) for name, of in inputs.items()}
