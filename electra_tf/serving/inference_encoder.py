"""Inference-optimised encoder with the same outputs as the Keras encoder.

For a short text, reading weights and starting operations takes most of the time.
Therefore matmuls are 2-D, query, key and value are one matmul, and the weights of all
layers are stacked.

The forward pass has positions as rows or as columns. With rows, TensorFlow's optimizer
fuses a matmul with its bias. But oneDNN packs the right operand of a matmul on every
call, and with rows that is the kernel, which takes a quarter of a short text's time.
With columns it is the text; kernels [out, in] serve both.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf.model.encoder import TransformerEncoder
from electra_tf.model.layer_ops import gelu
from electra_tf.model.transformer import Block
from electra_tf.serving.export_options import IDS, TARGETS

_MASKED = -10000.0  # added to the scores of keys that are padding, as in BERT
CHUNK_POSITIONS = 1024
"""Positions of a chunk, at most, but at least one row. The results of the encoder's
element-wise operations fit into a CPU's cache. A head for answers needs some 100 kB for
each position."""
CHUNK_SCORES = 512 * 512
"""Attention scores of one head in a chunk, at most, but at least one row. They fit into
a CPU's cache, too."""
MAX_COLUMNS = 192
"""Positions up to which an encoder is faster with positions as columns, on a CPU."""

IdTensors = dict[str, tf.Tensor]  # by the names in `IDS`


class Rows:
    """Positions as rows, [X, D]."""

    features = -1  # axis
    from_rows = to_rows = staticmethod(tf.identity)

    @staticmethod
    def vectors(stacked: tf.Tensor) -> tf.Tensor:
        """Return biases or norms, [..., D], so that they broadcast to positions."""
        return stacked

    @staticmethod
    def dense(x_XD: tf.Tensor, kernel_FD: tf.Tensor, bias_F: tf.Tensor) -> tf.Tensor:
        """Return x times the kernel, plus the bias."""
        return tf.nn.bias_add(tf.matmul(x_XD, kernel_FD, transpose_b=True), bias_F)

    @staticmethod
    def masked(scores_NBLK: tf.Tensor, bias_1B1K: tf.Tensor) -> tf.Tensor:
        """Return attention scores with the bias of padding."""
        return scores_NBLK + bias_1B1K

    @classmethod
    def attend(
        cls,
        inward_X3D: tf.Tensor,
        heads: Sequence[int],
        size: list,
        bias_1B1K: tf.Tensor,
    ) -> tf.Tensor:
        """Return the attended values of all heads, [X, D]."""
        split_BLMH = tf.reshape(inward_X3D, [*size, *heads])
        # A split of the first axis copies nothing.
        split_MBLH = tf.transpose(split_BLMH, [2, 0, 1, 3])
        q_NBLH, k_NBKH, v_NBKH = tf.split(split_MBLH, 3, axis=0)
        scores_NBLK = tf.matmul(q_NBLH, k_NBKH, transpose_b=True)
        weights_NBLK = tf.nn.softmax(cls.masked(scores_NBLK, bias_1B1K))
        attended_NBLH = tf.matmul(weights_NBLK, v_NBKH)
        attended_BLNH = tf.transpose(attended_NBLH, [1, 2, 0, 3])
        return tf.reshape(attended_BLNH, [-1, heads[0] // 3 * heads[1]])


class RowsOnCpu(Rows):
    """Positions as rows, where a branch skips the mask of texts without padding."""

    @staticmethod
    def masked(scores_NBLK: tf.Tensor, bias_1B1K: tf.Tensor) -> tf.Tensor:
        """Return attention scores with the bias of padding, if there is any."""
        is_padded = tf.reduce_any(bias_1B1K < 0)
        return tf.cond(is_padded, lambda: scores_NBLK + bias_1B1K, lambda: scores_NBLK)


class Columns:
    """Positions as columns, [D, X]."""

    features = 0
    from_rows = to_rows = staticmethod(tf.transpose)

    @staticmethod
    def vectors(stacked: tf.Tensor) -> tf.Tensor:
        """Return biases or norms, [..., D], as columns."""
        return tf.expand_dims(stacked, -1)

    @staticmethod
    def dense(x_DX: tf.Tensor, kernel_FD: tf.Tensor, bias_F1: tf.Tensor) -> tf.Tensor:
        """Return the kernel times x, plus the bias."""
        return tf.matmul(kernel_FD, x_DX) + bias_F1

    @staticmethod
    def attend(
        inward_3DX: tf.Tensor, heads: Sequence[int], size: list, bias_1B1K: tf.Tensor
    ) -> tf.Tensor:
        """Return the attended values of all heads, [D, X]."""
        split_MHBL = tf.reshape(inward_3DX, [*heads, *size])
        split_MBHL = tf.transpose(split_MHBL, [0, 2, 1, 3])
        q_NBHL, k_NBHK, v_NBHK = tf.split(split_MBHL, 3, axis=0)
        scores_NBLK = tf.matmul(q_NBHL, k_NBHK, transpose_a=True) + bias_1B1K
        weights_NBLK = tf.nn.softmax(scores_NBLK)
        attended_NBHL = tf.matmul(v_NBHK, weights_NBLK, transpose_b=True)
        attended_NHBL = tf.transpose(attended_NBHL, [0, 2, 1, 3])
        return tf.reshape(attended_NHBL, [heads[0] // 3 * heads[1], -1])


class InferenceEncoder(tf.Module):
    """Encoder in plain TensorFlow with the weights of a trained Keras encoder.

    The embedding tables are the variables of the Keras encoder, so that two encoders
    can share them. The weights of the layers are copied.
    """

    def __init__(self, encoder: TransformerEncoder, target: str = TARGETS[0]):
        super().__init__()
        self.target = target
        tables, project = encoder.embeddings, encoder.embeddings_project
        self._words_VE = tables.word_embeddings.value
        self._segments = tables.segment_embeddings.value
        self._positions_LE = tables.position_embeddings.value
        norm = tables.layer_norm
        self._norm = norm.gamma.value, norm.beta.value
        self._project = project and (project.kernel.value, project.bias.value)
        shape = encoder.shape
        self._epsilon = shape.layer_norm_epsilon
        self._heads = 3 * shape.heads, shape.width // shape.heads
        layers = [_weights(block) for block in encoder.blocks]
        kernels, biases, norms = zip(*layers, strict=True)
        self._kernels = [
            tf.Variable(np.stack(of_layers).transpose(0, 2, 1), trainable=False)
            for of_layers in zip(*kernels, strict=True)
        ]
        biases = [bias for of_layer in biases for bias in of_layer]
        self._sizes = [len(bias) for bias in biases]
        self._biases = tf.Variable(np.concatenate(biases), trainable=False)
        self._norms = tf.Variable(np.concatenate(norms), trainable=False)

    def __call__(
        self,
        token_ids: tf.Tensor,
        segment_ids: tf.Tensor,
        padding_mask: tf.Tensor,
        layout: type[Rows | Columns] = Rows,
    ) -> tf.Tensor:
        """Compute the hidden states of the last layer, float32 [B, L, D].

        The inputs are int32 [B, L], the mask 1 at real tokens.
        """
        size = tf.unstack(tf.shape(token_ids))
        bias_1B1K = _bias(padding_mask)
        dense, axis = layout.dense, layout.features
        x = layout.from_rows(self._embedded(token_ids, segment_ids))
        for kernels, biases, norms in self._layers(layout):
            inward, outward, widen, narrow = zip(kernels, biases, strict=True)
            attended = layout.attend(dense(x, *inward), self._heads, size, bias_1B1K)
            x = self._normalized(x + dense(attended, *outward), *norms[:2], axis)
            x = self._normalized(
                x + dense(gelu(dense(x, *widen)), *narrow), *norms[2:], axis
            )
        return tf.reshape(layout.to_rows(x), [*size, x.shape[axis]])

    def _embedded(self, token_ids: tf.Tensor, segment_ids: tf.Tensor) -> tf.Tensor:
        words_BLE = tf.gather(self._words_VE, token_ids)
        segments_BLE = tf.gather(self._segments, segment_ids)
        positions_LE = self._positions_LE[: tf.shape(token_ids)[1]]
        x_BLE = words_BLE + segments_BLE + positions_LE
        x_XE = tf.reshape(x_BLE, [-1, x_BLE.shape[-1]])
        x_XE = self._normalized(x_XE, *self._norm)
        if not self._project:
            return x_XE
        kernel_ED, bias_D = self._project
        return tf.nn.bias_add(tf.matmul(x_XE, kernel_ED), bias_D)

    def _layers(self, layout: type[Rows | Columns]) -> Iterator[Sequence[tf.Tensor]]:
        """Yield the four kernels, biases and vectors of norms of each layer."""
        kernels = zip(*map(tf.unstack, self._kernels), strict=True)
        biases = tf.split(layout.vectors(self._biases), self._sizes)
        norms = tf.unstack(layout.vectors(self._norms))
        for layer, layer_kernels in enumerate(kernels):
            four = slice(4 * layer, 4 * layer + 4)
            yield layer_kernels, biases[four], norms[four]

    def _normalized(
        self, x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, axis: int = -1
    ) -> tf.Tensor:
        """Apply a layer norm."""
        centred = x - tf.reduce_mean(x, axis, keepdims=True)
        variance = tf.reduce_mean(tf.square(centred), axis, keepdims=True)
        return centred * (tf.math.rsqrt(variance + self._epsilon) * gamma) + beta


def _bias(padding_mask: tf.Tensor) -> tf.Tensor:
    """Return the bias of attention scores that masks padding, [1, B, 1, K]."""
    real_BL = tf.cast(padding_mask, tf.float32)
    # LiteRT has no slice with new axes, and a reshape in ONNX allows only the first
    # axis to be empty.
    real_1B1K = tf.expand_dims(tf.expand_dims(real_BL, 0), 2)
    return (1.0 - real_1B1K) * _MASKED


def _weights(block: Block) -> tuple[list[np.ndarray], list[np.ndarray], np.ndarray]:
    """Return kernels, biases and norms of a layer in the order of their use.

    Kernel and bias of the query are multiplied by the scale of the scores.
    """
    attention, scale = block.attention, block.attention.head_width**-0.5
    projections = attention.query, attention.key, attention.value
    denses = attention.output_dense, block.intermediate, block.output_dense
    norms = block.attention_layer_norm, block.output_layer_norm

    def concatenated(name: str) -> np.ndarray:
        query, *others = (_array(getattr(dense, name)) for dense in projections)
        return np.concatenate([query * np.float32(scale), *others], axis=-1)

    kernels = [concatenated("kernel"), *(_array(dense.kernel) for dense in denses)]
    biases = [concatenated("bias"), *(_array(dense.bias) for dense in denses)]
    vectors = [_array(vector) for norm in norms for vector in (norm.gamma, norm.beta)]
    return kernels, biases, np.stack(vectors)


def _array(variable: Any) -> np.ndarray:
    return np.asarray(variable.numpy(), np.float32)


def chunked(function: Callable[[IdTensors], Any]) -> Callable[[IdTensors], Any]:
    """Return a function that calls `function` for chunks of rows.

    A long text has many parts, each of which is a row, and memory grows with the number
    of rows that are computed together. The function maps inputs, int32 [P, L], to
    tensors with one entry per row, in any structure. A chunk has at most
    `CHUNK_POSITIONS` positions and `CHUNK_SCORES` scores.
    """
    spec = {name: tf.TensorSpec([None, None], tf.int32) for name in IDS}
    traced = tf.function(function, input_signature=[spec])
    structure = traced.get_concrete_function().structured_outputs

    def in_chunks(inputs: IdTensors) -> Any:
        rows, length = tf.unstack(tf.shape(inputs[IDS[0]]))
        longest = tf.maximum(1, length)
        # Two divisions, because the square of a length may exceed 32 bits.
        fitting = tf.minimum(CHUNK_POSITIONS, CHUNK_SCORES // longest) // longest
        chunk_rows = tf.maximum(1, fitting)
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

    For the target `cpu`, inputs of up to `MAX_COLUMNS` positions are computed as
    columns, others as rows; for `any`, all as rows.
    """
    is_any = encoder.target == "any"
    layout = Rows if is_any else RowsOnCpu
    in_chunks = chunked(lambda inputs: encoder(**inputs, layout=layout))

    def encode(**inputs: tf.Tensor) -> tf.Tensor:
        if is_any:
            return in_chunks(inputs)
        return tf.cond(
            tf.size(inputs[IDS[0]]) <= MAX_COLUMNS,
            lambda: encoder(**inputs, layout=Columns),
            lambda: in_chunks(inputs),
        )

    return encode
