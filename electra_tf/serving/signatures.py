"""Build signatures whose graph validates the sizes and ids of requests."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from electra_tf.config.pretraining import EncoderConfig
from electra_tf.serving.export_spec import IDS
from electra_tf.serving.request_limits import (
    LIMITS,
    RequestLimits,
    assert_max_positions,
)


def text_signature(
    function: Callable[..., dict[str, tf.Tensor]],
    names: Sequence[str],
    limits: RequestLimits = LIMITS,
) -> Any:
    """Return a function of strings with an input signature and limits.

    Args:
        function: From tensors of strings [B] to tensors by name.
        names: Names of its inputs, in order.
        limits: Of a request.

    Returns:
        A `tf.function` for any number of rows. It raises `InvalidArgumentError` at run
        time if the inputs' numbers of rows differ or exceed `limits.rows`, or all
        strings together exceed `limits.bytes`. The function's operations run after
        these checks.
    """
    spec = [tf.TensorSpec([None], tf.string, name=name) for name in names]

    def checked(*texts: tf.Tensor) -> dict[str, tf.Tensor]:
        # A server does not compare requests with the shapes of the signature.
        texts = [tf.ensure_shape(text_B, [None]) for text_B in texts]
        sizes = [tf.size(text_B) for text_B in texts]
        same = [
            tf.debugging.Assert(
                tf.equal(sizes[0], size),
                [f"{' and '.join(names)} must have the same number of rows. Received:",
                 *sizes],
            )
            for size in sizes[1:]
        ]  # fmt: skip
        with tf.control_dependencies([*same, *_assert_small(texts, limits)]):
            return function(*map(tf.identity, texts))

    return tf.function(checked, input_signature=spec)


def token_signature(
    function: Callable[[dict], dict[str, tf.Tensor]],
    shape: EncoderConfig,
    limits: RequestLimits = LIMITS,
) -> Any:
    """Return a function of ids with an input signature and limits.

    Args:
        function: From `token_ids`, `segment_ids` and `padding_mask`, int32 [B, L], by
            name to tensors by name.
        shape: The encoder's sizes, which limit the ids.
        limits: Of a request.
    """
    spec = [tf.TensorSpec([None, None], tf.int32, name=name) for name in IDS]

    @tf.function(input_signature=spec)
    def tokens(token_ids, segment_ids, padding_mask):
        return function(check_ids(token_ids, segment_ids, padding_mask, shape, limits))

    return tokens


def check_ids(
    token_ids: tf.Tensor,
    segment_ids: tf.Tensor,
    padding_mask: tf.Tensor,
    shape: EncoderConfig,
    limits: RequestLimits = LIMITS,
) -> dict[str, tf.Tensor]:
    """Validate token ids sent by clients.

    A lookup beyond the end of a table is an error on a CPU but returns zeros on a GPU,
    and the error message of an operation deep in the graph does not help a client.

    Args:
        token_ids: int32 [B, L].
        segment_ids: int32 [B, L].
        padding_mask: int32 [B, L], 1 at real tokens.
        shape: The encoder's sizes.
        limits: Of a request.

    Returns:
        The inputs by name. `InvalidArgumentError` at run time if shapes differ, ids
        are outside their range, or a row has too many positions.
    """
    inputs = token_ids, segment_ids, padding_mask
    inputs = [tf.ensure_shape(ids_BL, [None, None]) for ids_BL in inputs]
    inputs = dict(zip(IDS, inputs, strict=True))
    entries = shape.vocabulary_size - shape.spare_rows
    ends = dict(zip(IDS, (entries, shape.segments, 2), strict=True))
    size = tf.shape(inputs[IDS[0]])
    # Sizes first: a check of values has a tensor as large as its input.
    sizes = [assert_max_positions(size[0], size[1], limits)]
    sizes += [
        tf.debugging.Assert(
            tf.reduce_all(tf.equal(tf.shape(ids_BL), size)),
            [f"{name} must have the shape of token_ids. Received:", tf.shape(ids_BL),
             size],
        )
        for name, ids_BL in inputs.items()
        if name != IDS[0]
    ]  # fmt: skip
    sizes.append(
        tf.debugging.Assert(
            (size[1] <= shape.max_positions) & ((size[1] > 0) | (size[0] == 0)),
            [f"A row must have 1 to {shape.max_positions} positions. Received:",
             size[1]],
        )
    )  # fmt: skip
    with tf.control_dependencies(sizes):
        inputs = {name: tf.identity(ids_BL) for name, ids_BL in inputs.items()}
    checks = [
        tf.debugging.Assert(
            tf.reduce_all((ids_BL >= 0) & (ids_BL < ends[name])),
            [f"{name} must be from 0 to {ends[name] - 1}. Received, minimum and "
             "maximum:", tf.reduce_min(ids_BL), tf.reduce_max(ids_BL)],
        )
        for name, ids_BL in inputs.items()
    ]  # fmt: skip
    with tf.control_dependencies(checks):
        return check_request_size(inputs, limits)


def check_request_size(
    inputs: Mapping[str, tf.Tensor], limits: RequestLimits = LIMITS
) -> dict[str, tf.Tensor]:
    """Assert that a request fits into memory.

    Args:
        inputs: Tensors [B, L] by name.
        limits: Of a request.

    Returns:
        The inputs. A request without rows and positions gets one position, because the
        encoder reads the first. `InvalidArgumentError` at run time if rows times
        positions exceed `limits.positions`.
    """
    rows, length = tf.unstack(tf.shape(inputs[IDS[0]]))
    missing = tf.cast(length == 0, tf.int32)
    with tf.control_dependencies([assert_max_positions(rows, length, limits)]):
        return {
            name: tf.pad(ids_BL, [[0, 0], [0, missing]])
            for name, ids_BL in inputs.items()
        }


def _assert_small(
    texts: Sequence[tf.Tensor], limits: RequestLimits
) -> list[tf.Operation]:
    """Assert that a request of strings has few rows and few bytes."""
    rows = tf.size(texts[0])
    lengths = [tf.cast(tf.strings.length(text_B), tf.int64) for text_B in texts]
    size = tf.add_n([tf.reduce_sum(length_B) for length_B in lengths])
    # An int64 in the message would add a branch to the graph, an int32 does not.
    reported = tf.cast(tf.minimum(size, tf.int32.max), tf.int32)
    return [
        tf.debugging.Assert(
            rows <= limits.rows,
            [f"A request must have at most {limits.rows} rows. Received:", rows,
             "Send it in parts."],
        ),
        tf.debugging.Assert(
            size <= limits.bytes,
            [f"The strings of a request must have at most {limits.bytes} bytes "
             "together. Received:", reported, "Send it in parts."],
        ),
    ]  # fmt: skip
