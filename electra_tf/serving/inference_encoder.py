"""Inference-optimised encoder with the same outputs as the Keras encoder.

For a short text, reading weights and starting operations takes most of the time.
Therefore matmuls are 2-D where positions are rows, so that TensorFlow's optimizer fuses
them with what follows; query, key and value are one matmul; and the weights of all
layers are stacked.

oneDNN packs the right operand of a matmul on every call: the kernel if positions are
rows, the text if they are columns. Packing the kernels takes a quarter of a short
text's time, so short texts use columns; kernels [out, in] serve both. TensorFlow's
optimizer replaces a layer norm by oneDNN's only in the form of a batch norm. These two
forms are for the target `cpu`; the plain one is right on every device.
"""

import functools
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
MAX_TRANSPOSED_POSITIONS = 192
"""Positions up to which an encoder on a CPU is faster with positions as columns."""

IdTensors = dict[str, tf.Tensor]  # by the names in `IDS`


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
        self._width, self._epsilon = shape.width, shape.layer_norm_epsilon
        self._head_shape = 3 * shape.heads, shape.width // shape.heads
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
        onednn_graph: bool = False,
    ) -> tf.Tensor:
        """Compute the hidden states of the last layer, float32 [B, L, D].

        The inputs are int32 [B, L], the mask 1 at real tokens. With `onednn_graph`,
        layer norms have the form of batch norms, and a branch skips the mask of an
        input without padding.
        """
        size = tf.unstack(tf.shape(token_ids))
        bias_1B1K = _bias(padding_mask)
        padded = tf.reduce_any(padding_mask < 1) if onednn_graph else None
        layer_norm = _fused_layer_norm if onednn_graph else _layer_norm
        normalize = functools.partial(layer_norm, epsilon=self._epsilon)
        x_XD = self._embedded(token_ids, segment_ids, normalize)
        for kernels, biases, norms in self._layers(separate_norms=onednn_graph):
            inward_3DD, outward_DD, widen_FD, narrow_DF = kernels
            bias_3D, outward_D, bias_F, narrow_D = biases
            inward_X3D = _dense(x_XD, inward_3DD, bias_3D)
            split_BLMH = tf.reshape(inward_X3D, [*size, *self._head_shape])
            # A split of the first axis copies nothing.
            split_MBLH = tf.transpose(split_BLMH, [2, 0, 1, 3])
            q_NBLH, k_NBKH, v_NBKH = tf.split(split_MBLH, 3, axis=0)
            scores_NBLK = tf.matmul(q_NBLH, k_NBKH, transpose_b=True)
            scores_NBLK = _masked(scores_NBLK, bias_1B1K, padded)
            attended_NBLH = tf.matmul(tf.nn.softmax(scores_NBLK), v_NBKH)
            attended_BLNH = tf.transpose(attended_NBLH, [1, 2, 0, 3])
            attended_XD = tf.reshape(attended_BLNH, [-1, self._width])
            x_XD = normalize(
                x_XD + _dense(attended_XD, outward_DD, outward_D), *norms[:2]
            )
            inner_XF = gelu(_dense(x_XD, widen_FD, bias_F))
            outer_XD = _dense(inner_XF, narrow_DF, narrow_D)
            x_XD = normalize(x_XD + outer_XD, *norms[2:])
        return tf.reshape(x_XD, [*size, self._width])

    def call_transposed(
        self, token_ids: tf.Tensor, segment_ids: tf.Tensor, padding_mask: tf.Tensor
    ) -> tf.Tensor:
        """Compute the same with positions as columns, faster for few on a CPU."""
        size = tf.unstack(tf.shape(token_ids))
        bias_1B1K = _bias(padding_mask)
        normalize = functools.partial(_layer_norm, epsilon=self._epsilon)
        x_XD = self._embedded(token_ids, segment_ids, normalize)
        # A batch of one: oneDNN's batch matmul is faster up to 64 positions.
        x_1DX = tf.transpose(x_XD)[tf.newaxis]
        for kernels, biases, norms in self._transposed_layers():
            inward_13DD, outward_1DD, widen_1FD, narrow_1DF = kernels
            bias_3D1, outward_D1, bias_F1, narrow_D1 = biases
            inward_13DX = tf.matmul(inward_13DD, x_1DX) + bias_3D1
            split_MHBL = tf.reshape(inward_13DX, [*self._head_shape, *size])
            split_MBHL = tf.transpose(split_MHBL, [0, 2, 1, 3])
            q_NBHL, k_NBHK, v_NBHK = tf.split(split_MBHL, 3, axis=0)
            scores_NBLK = tf.matmul(q_NBHL, k_NBHK, transpose_a=True) + bias_1B1K
            weights_NBLK = tf.nn.softmax(scores_NBLK)
            attended_NBHL = tf.matmul(v_NBHK, weights_NBLK, transpose_b=True)
            attended_NHBL = tf.transpose(attended_NBHL, [0, 2, 1, 3])
            attended_1DX = tf.reshape(attended_NHBL, [1, self._width, -1])
            outward_1DX = tf.matmul(outward_1DD, attended_1DX) + outward_D1
            x_1DX = normalize(x_1DX + outward_1DX, *norms[:2], axis=1)
            inner_1FX = gelu(tf.matmul(widen_1FD, x_1DX) + bias_F1)
            outer_1DX = tf.matmul(narrow_1DF, inner_1FX) + narrow_D1
            x_1DX = normalize(x_1DX + outer_1DX, *norms[2:], axis=1)
        x_XD = tf.transpose(x_1DX[0])
        return tf.reshape(x_XD, [*size, self._width])

    def _embedded(
        self, token_ids: tf.Tensor, segment_ids: tf.Tensor, normalize: Callable
    ) -> tf.Tensor:
        words_BLE = tf.gather(self._words_VE, token_ids)
        segments_BLE = tf.gather(self._segments, segment_ids)
        positions_LE = self._positions_LE[: tf.shape(token_ids)[1]]
        x_BLE = words_BLE + segments_BLE + positions_LE
        x_XE = normalize(tf.reshape(x_BLE, [-1, x_BLE.shape[-1]]), *self._norm)
        if not self._project:
            return x_XE
        kernel_ED, bias_D = self._project
        return tf.nn.bias_add(tf.matmul(x_XE, kernel_ED), bias_D)

    def _layers(self, separate_norms: bool) -> Iterator[Sequence[tf.Tensor]]:
        """Yield views of kernels, biases and norms, of one or separate operations."""
        kernels = [tf.unstack(kernel) for kernel in self._kernels]
        biases = tf.split(self._biases, self._sizes)
        norms = tf.convert_to_tensor(self._norms)
        rows = range(norms.shape[0])
        norms = [norms[row] for row in rows] if separate_norms else tf.unstack(norms)
        return _by_layer(kernels, biases, norms)

    def _transposed_layers(self) -> Iterator[Sequence[tf.Tensor]]:
        """Yield the same: kernels as batches of one, biases and norms as columns."""
        depth = self._kernels[0].shape[0]
        kernels = [tf.split(kernel, depth) for kernel in self._kernels]
        biases = tf.split(tf.reshape(self._biases, [-1, 1]), self._sizes)
        norms = tf.unstack(tf.expand_dims(self._norms, -1))
        return _by_layer(kernels, biases, norms)


def _by_layer(
    kernels: list[list[tf.Tensor]], biases: list[tf.Tensor], norms: list[tf.Tensor]
) -> Iterator[Sequence[tf.Tensor]]:
    for layer, layer_kernels in enumerate(zip(*kernels, strict=True)):
        four = slice(4 * layer, 4 * layer + 4)
        yield layer_kernels, biases[four], norms[four]


def _bias(padding_mask: tf.Tensor) -> tf.Tensor:
    """Return the bias of attention scores that masks padding, [1, B, 1, K]."""
    real_BL = tf.cast(padding_mask, tf.float32)
    # LiteRT has no slice with new axes, and a reshape in ONNX allows only the first
    # axis to be empty.
    real_1B1K = tf.expand_dims(tf.expand_dims(real_BL, 0), 2)
    return (1.0 - real_1B1K) * _MASKED


def _masked(
    scores_NBLK: tf.Tensor, bias_1B1K: tf.Tensor, padded: tf.Tensor | None
) -> tf.Tensor:
    """Add the bias to the scores, unless `padded` is false at run time."""
    if padded is None:
        return scores_NBLK + bias_1B1K
    return tf.cond(padded, lambda: scores_NBLK + bias_1B1K, lambda: scores_NBLK)


def _dense(x: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    return tf.nn.bias_add(tf.matmul(x, kernel, transpose_b=True), bias)


def _layer_norm(
    x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, epsilon: float, axis: int = -1
) -> tf.Tensor:
    centred = x - tf.reduce_mean(x, axis, keepdims=True)
    variance = tf.reduce_mean(tf.square(centred), axis, keepdims=True)
    return centred * (tf.math.rsqrt(variance + epsilon) * gamma) + beta


def _fused_layer_norm(
    x_XD: tf.Tensor, gamma_D: tf.Tensor, beta_D: tf.Tensor, epsilon: float
) -> tf.Tensor:
    """Normalise the rows in the form that the optimizer replaces by oneDNN's.

    This is the layer norm of Keras 2: a batch norm of an image whose channels are the
    rows. The optimizer takes the first output of gamma's operation, so that gamma must
    be its only output.
    """
    shape = tf.shape(x_XD)
    rows, none = shape[:1], tf.constant([], tf.float32)
    image_1XD1 = tf.raw_ops.FusedBatchNormV3(
        x=tf.reshape(x_XD, [1, shape[0], shape[1], 1]),
        scale=tf.fill(rows, 1.0),
        offset=tf.fill(rows, 0.0),
        mean=none,
        variance=none,
        epsilon=epsilon,
        data_format="NCHW",
        is_training=True,
    ).y
    return tf.reshape(image_1XD1, shape) * gamma_D + beta_D


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
