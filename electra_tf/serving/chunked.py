"""Many inputs of one request, a few at a time: what one of them needs bounds memory."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from electra_tf.serving.export_spec import IDS
from electra_tf.serving.inference_encoder import InferenceEncoder
from electra_tf.tasks.request_limits import assert_max_parts

CHUNK_INPUTS = 32
"""Rows that a head sees together."""
CHUNK_POSITIONS = 1024
"""Those that an encoder computes together, or one row: what stands between its products
then stays near the processor, which took 4 to 10% off requests of 4,096 and more."""
CHUNK_SCORES = 512 * 512
"""Attention scores of a head that are computed together, or those of one row; they too
are to stay near: 2% off requests of 8 x 512."""
MAX_TRANSPOSED_POSITIONS = 192
"""Positions up to which an encoder is sooner with each as a column."""

Inputs = dict[str, tf.Tensor]


def chunked(function: Callable[[Inputs], Any]) -> Callable[[Inputs], Any]:
    """The same function of rows, which takes them some at a time.

    A text that is read in parts may have any number of them, and memory grows with the
    rows whose outputs are held together.

    Args:
        function: From `token_ids`, `segment_ids` and `padding_mask`, int32 [P, L], to
            tensors with a row for each, in any structure.

    Returns:
        A function of up to `MOST` rows; with more, `InvalidArgumentError` at run time.
    """
    joined = _joined(function, lambda length: tf.constant(CHUNK_INPUTS))

    def parts(inputs: Inputs) -> Any:
        with tf.control_dependencies([assert_max_parts(tf.shape(inputs[IDS[0]])[0])]):
            return joined({name: tf.identity(of) for name, of in inputs.items()})

    return parts


def chunked_encoder(network: InferenceEncoder) -> Callable[..., tf.Tensor]:
    """The same encoder, some rows at a time: of `POSITIONS` and `SCORES` at most.

    Args:
        network: From `token_ids`, `segment_ids` and `padding_mask`, int32 [B, L], to
            vectors [B, L, D].

    Returns:
        A function of the same arguments; up to `FEW` positions are columns.
    """
    joined = _joined(lambda inputs: network(**inputs, native=True), _at_once)

    def encoded(**inputs: tf.Tensor) -> tf.Tensor:
        return tf.cond(
            tf.size(inputs[IDS[0]]) <= MAX_TRANSPOSED_POSITIONS,
            lambda: network.columns(**inputs),
            lambda: joined(inputs),
        )

    return encoded


def _at_once(length: tf.Tensor) -> tf.Tensor:
    """Rows of a length that an encoder takes together."""
    length = tf.maximum(1, length)
    # Divided twice: the square of a length may be beyond 32 bits.
    return tf.maximum(
        1, tf.minimum(CHUNK_POSITIONS // length, CHUNK_SCORES // length // length)
    )


def _joined(
    function: Callable[[Inputs], Any], at_once: Callable[[tf.Tensor], tf.Tensor]
) -> Callable[[Inputs], Any]:
    """A function of rows, called for `at_once(length)` of them again and again."""
    spec = {name: tf.TensorSpec([None, None], tf.int32) for name in IDS}
    traced = tf.function(function, input_signature=[spec])
    outputs = traced.get_concrete_function().structured_outputs

    def joined(inputs: Inputs) -> Any:
        rows, length = tf.unstack(tf.shape(inputs[IDS[0]]))
        some = at_once(length)
        times = tf.maximum(1, (rows + some - 1) // some)
        arrays = [
            tf.TensorArray(of.dtype, times, infer_shape=False, element_shape=of.shape)
            for of in tf.nest.flatten(outputs)
        ]

        def more(number: tf.Tensor, arrays: list[tf.TensorArray]) -> tuple:
            begin = number * some
            part = {name: of[begin : begin + some] for name, of in inputs.items()}
            found = tf.nest.flatten(traced(part))
            pairs = zip(arrays, found, strict=True)
            return number + 1, [array.write(number, of) for array, of in pairs]

        _, arrays = tf.while_loop(
            lambda number, _: number < times, more, (0, arrays), parallel_iterations=1
        )
        return tf.nest.pack_sequence_as(outputs, [array.concat() for array in arrays])

    return joined
