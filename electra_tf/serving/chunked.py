"""Compute large requests in chunks of rows, so that their memory is bounded."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from electra_tf.serving.inference_encoder import InferenceEncoder
from electra_tf.serving.signatures import IDS

CHUNK_POSITIONS = 1024
"""Positions of a chunk, at most, but at least one row. The results of the encoder's
element-wise operations fit into a CPU's cache. A head for answers needs some 100 kB for
each position."""
CHUNK_SCORES = 512 * 512
"""Attention scores of one head in a chunk, at most, but at least one row. They fit into
a CPU's cache, too."""
MAX_TRANSPOSED_POSITIONS = 192
"""Positions up to which an encoder on a CPU is faster with positions as columns."""

Inputs = dict[str, tf.Tensor]


def chunked(function: Callable[[Inputs], Any]) -> Callable[[Inputs], Any]:
    """Return a function that calls `function` for chunks of rows.

    A long text has many parts, each of which is a row, and memory grows with the number
    of rows that are computed together. The function maps inputs, int32 [P, L], to
    tensors with one entry per row, in any structure. A chunk has at most
    `CHUNK_POSITIONS` positions and `CHUNK_SCORES` scores.
    """
    spec = {name: tf.TensorSpec([None, None], tf.int32) for name in IDS}
    traced = tf.function(function, input_signature=[spec])
    structure = traced.get_concrete_function().structured_outputs

    def in_chunks(inputs: Inputs) -> Any:
        rows, length = tf.unstack(tf.shape(inputs[IDS[0]]))
        chunk_rows = _rows_per_chunk(length)
        chunks = tf.maximum(1, (rows + chunk_rows - 1) // chunk_rows)
        arrays = [
            tf.TensorArray(
                tensor.dtype, chunks, infer_shape=False, element_shape=tensor.shape
            )
            for tensor in tf.nest.flatten(structure)
        ]

        def body(chunk: tf.Tensor, arrays: list[tf.TensorArray]) -> tuple:
            begin = chunk * chunk_rows
            chunk_inputs = {
                name: ids[begin : begin + chunk_rows] for name, ids in inputs.items()
            }
            outputs = tf.nest.flatten(traced(chunk_inputs))
            pairs = zip(arrays, outputs, strict=True)
            return chunk + 1, [array.write(chunk, tensor) for array, tensor in pairs]

        _, arrays = tf.while_loop(
            lambda chunk, _: chunk < chunks, body, (0, arrays), parallel_iterations=1
        )
        return tf.nest.pack_sequence_as(structure, [array.concat() for array in arrays])

    return in_chunks


def chunked_encoder(encoder: InferenceEncoder) -> Callable[..., tf.Tensor]:
    """Return a function that calls an encoder for chunks of rows.

    For the target `cpu`, inputs of up to `MAX_TRANSPOSED_POSITIONS` positions are
    computed as columns, and longer ones in the form for oneDNN. For the target `any`,
    all are computed in the plain form.
    """
    on_cpu = encoder.target == "cpu"
    in_chunks = chunked(lambda inputs: encoder(**inputs, onednn_graph=on_cpu))

    def encode(**inputs: tf.Tensor) -> tf.Tensor:
        if not on_cpu:
            return in_chunks(inputs)
        return tf.cond(
            tf.size(inputs[IDS[0]]) <= MAX_TRANSPOSED_POSITIONS,
            lambda: encoder.call_transposed(**inputs),
            lambda: in_chunks(inputs),
        )

    return encode


def _rows_per_chunk(length: tf.Tensor) -> tf.Tensor:
    length = tf.maximum(1, length)
    # Two divisions, because the square of a length may exceed 32 bits.
    return tf.maximum(
        1, tf.minimum(CHUNK_POSITIONS // length, CHUNK_SCORES // length // length)
    )
