"""The encoder in plain TensorFlow, as it is served: the same numbers, sooner.

A short text's time goes into reading the weights and into starting operations, of
which Keras's layers have over twice as many. Here rows' products are of two axes, so
that TensorFlow's optimizer joins them with the biases, sums and activations that
follow; query, key and value are one product; and what the layers have is stacked, so
that it is read from six variables instead of from sixteen for each layer.

oneDNN copies the right side of a product into an order of its own. With positions as
rows that is the kernel, whose copy is a quarter of a short text's time; with positions
as columns it is the text. So kernels stand as [out, in], which both can take.

Many texts' time goes into products and into what stands between them: layer norm, which
becomes oneDNN's only in the form that TensorFlow's optimizer knows, and copies.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf.model.layer_ops import gelu
from electra_tf.model.transformer import Block, Encoder

_EPSILON = 1e-12  # of layer norm
_MASKED = -10000.0  # added to the score of a key that is padding, as BERT does


class InferenceEncoder(tf.Module):
    """A trained encoder's numbers and what is done with them.

    Tables that need no other order are the Keras encoder's own variables, so that
    towers which share them go on doing so; the layers' are copied.

    Args:
        encoder: Built; what it learns later is not seen.
    """

    def __init__(self, encoder: Encoder):
        super().__init__()
        tables, project = encoder.embeddings, encoder.embeddings_project
        self._words_VE = tables.word_embeddings.value
        self._segments = tables.segment_embeddings.value
        self._positions_LE = tables.position_embeddings.value
        norm = tables.layer_norm
        self._norm = norm.gamma.value, norm.beta.value
        self._project = project and (project.kernel.value, project.bias.value)
        self._width = encoder.shape.width
        self._parts = 3 * encoder.shape.heads, self._width // encoder.shape.heads
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
        native: bool = False,
    ) -> tf.Tensor:
        """Hidden states of the last layer, as the Keras encoder's without dropout.

        Args:
            token_ids: int32 [B, L].
            segment_ids: int32 [B, L].
            padding_mask: int32 [B, L], 1 at real tokens.
            native: Whether TensorFlow itself runs the graph, not a converted one: it
                then masks no scores where nothing is padding, which is a branch, and
                its layer norm is oneDNN's.

        Returns:
            float32 [B, L, D].
        """
        size = tf.unstack(tf.shape(token_ids))
        bias_1B1K = _bias(padding_mask)
        padded = tf.reduce_any(padding_mask < 1) if native else None
        normal = _fused_normal if native else _normal
        x_XD = self._embedded(token_ids, segment_ids, normal)
        for kernels, biases, norms in self._layers(apart=native):
            inward_3DD, outward_DD, widen_FD, narrow_DF = kernels
            bias_3D, outward_D, bias_F, narrow_D = biases
            inward_X3D = _dense(x_XD, inward_3DD, bias_3D)
            parted_BLMH = tf.reshape(inward_X3D, [*size, *self._parts])
            # What is split on its first axis is not copied.
            parted_MBLH = tf.transpose(parted_BLMH, [2, 0, 1, 3])
            q_NBLH, k_NBKH, v_NBKH = tf.split(parted_MBLH, 3, axis=0)
            scores_NBLK = tf.matmul(q_NBLH, k_NBKH, transpose_b=True)
            scores_NBLK = _masked(scores_NBLK, bias_1B1K, padded)
            seen_NBLH = tf.matmul(tf.nn.softmax(scores_NBLK), v_NBKH)
            seen_BLNH = tf.transpose(seen_NBLH, [1, 2, 0, 3])
            seen_XD = tf.reshape(seen_BLNH, [-1, self._width])
            x_XD = normal(x_XD + _dense(seen_XD, outward_DD, outward_D), *norms[:2])
            inner_XF = gelu(_dense(x_XD, widen_FD, bias_F))
            outer_XD = _dense(inner_XF, narrow_DF, narrow_D)
            x_XD = normal(x_XD + outer_XD, *norms[2:])
        return tf.reshape(x_XD, [*size, self._width])

    def columns(
        self, token_ids: tf.Tensor, segment_ids: tf.Tensor, padding_mask: tf.Tensor
    ) -> tf.Tensor:
        """The same, sooner for few positions: each is a column.

        Args:
            token_ids: int32 [B, L].
            segment_ids: int32 [B, L].
            padding_mask: int32 [B, L], 1 at real tokens.

        Returns:
            float32 [B, L, D].
        """
        size = tf.unstack(tf.shape(token_ids))
        bias_1B1K = _bias(padding_mask)
        x_XD = self._embedded(token_ids, segment_ids, _normal)
        # A batch of one: oneDNN's product of batches is sooner up to 64 positions.
        x_1DX = tf.transpose(x_XD)[tf.newaxis]
        for kernels, biases, norms in self._layers_for_columns():
            inward_13DD, outward_1DD, widen_1FD, narrow_1DF = kernels
            bias_3D1, outward_D1, bias_F1, narrow_D1 = biases
            inward_13DX = tf.matmul(inward_13DD, x_1DX) + bias_3D1
            parted_MHBL = tf.reshape(inward_13DX, [*self._parts, *size])
            parted_MBHL = tf.transpose(parted_MHBL, [0, 2, 1, 3])
            q_NBHL, k_NBHK, v_NBHK = tf.split(parted_MBHL, 3, axis=0)
            scores_NBLK = tf.matmul(q_NBHL, k_NBHK, transpose_a=True) + bias_1B1K
            weights_NBLK = tf.nn.softmax(scores_NBLK)
            seen_NBHL = tf.matmul(v_NBHK, weights_NBLK, transpose_b=True)
            seen_NHBL = tf.transpose(seen_NBHL, [0, 2, 1, 3])
            seen_1DX = tf.reshape(seen_NHBL, [1, self._width, -1])
            outward_1DX = tf.matmul(outward_1DD, seen_1DX) + outward_D1
            x_1DX = _normal(x_1DX + outward_1DX, *norms[:2], axis=1)
            inner_1FX = gelu(tf.matmul(widen_1FD, x_1DX) + bias_F1)
            outer_1DX = tf.matmul(narrow_1DF, inner_1FX) + narrow_D1
            x_1DX = _normal(x_1DX + outer_1DX, *norms[2:], axis=1)
        x_XD = tf.transpose(x_1DX[0])
        return tf.reshape(x_XD, [*size, self._width])

    def _embedded(
        self, token_ids: tf.Tensor, segment_ids: tf.Tensor, normal: Callable
    ) -> tf.Tensor:
        words_BLE = tf.gather(self._words_VE, token_ids)
        segments_BLE = tf.gather(self._segments, segment_ids)
        positions_LE = self._positions_LE[: tf.shape(token_ids)[1]]
        x_BLE = words_BLE + segments_BLE + positions_LE
        x_XE = normal(tf.reshape(x_BLE, [-1, x_BLE.shape[-1]]), *self._norm)
        if not self._project:
            return x_XE
        kernel_ED, bias_D = self._project
        return tf.nn.bias_add(tf.matmul(x_XE, kernel_ED), bias_D)

    def _layers(self, apart: bool) -> Iterator[Sequence[tf.Tensor]]:
        """Kernels, biases and norms of each layer, views of the whole.

        With `apart` each of the norms is an operation's only output.
        """
        kernels = [tf.unstack(kernel) for kernel in self._kernels]
        biases = tf.split(self._biases, self._sizes)
        norms = tf.convert_to_tensor(self._norms)
        places = range(norms.shape[0])
        norms = [norms[place] for place in places] if apart else tf.unstack(norms)
        return _by_layer(kernels, biases, norms)

    def _layers_for_columns(self) -> Iterator[Sequence[tf.Tensor]]:
        """The same: kernels as batches of one, biases and norms as columns."""
        depth = self._kernels[0].shape[0]
        kernels = [tf.split(kernel, depth) for kernel in self._kernels]
        biases = tf.split(tf.reshape(self._biases, [-1, 1]), self._sizes)
        norms = tf.unstack(tf.expand_dims(self._norms, -1))
        return _by_layer(kernels, biases, norms)


def _by_layer(
    kernels: list[list[tf.Tensor]], biases: list[tf.Tensor], norms: list[tf.Tensor]
) -> Iterator[Sequence[tf.Tensor]]:
    for layer, of_layer in enumerate(zip(*kernels, strict=True)):
        here = slice(4 * layer, 4 * layer + 4)
        yield of_layer, biases[here], norms[here]


def _bias(padding_mask: tf.Tensor) -> tf.Tensor:
    """What is added to a key's scores [1, B, 1, K]."""
    real_BL = tf.cast(padding_mask, tf.float32)
    # A slice with new axes has no counterpart in LiteRT, and in ONNX a reshape knows no
    # empty axis but the first.
    real_1B1K = tf.expand_dims(tf.expand_dims(real_BL, 0), 2)
    return (1.0 - real_1B1K) * _MASKED


def _masked(
    scores_NBLK: tf.Tensor, bias_1B1K: tf.Tensor, padded: tf.Tensor | None
) -> tf.Tensor:
    """Scores with padding far below; `padded`, if known, tells whether there is any."""
    if padded is None:
        return scores_NBLK + bias_1B1K
    return tf.cond(padded, lambda: scores_NBLK + bias_1B1K, lambda: scores_NBLK)


def _dense(x: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    return tf.nn.bias_add(tf.matmul(x, kernel, transpose_b=True), bias)


def _normal(
    x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, axis: int = -1
) -> tf.Tensor:
    """Layer norm of an axis."""
    centred = x - tf.reduce_mean(x, axis, keepdims=True)
    variance = tf.reduce_mean(tf.square(centred), axis, keepdims=True)
    return centred * (tf.math.rsqrt(variance + _EPSILON) * gamma) + beta


def _fused_normal(x_XD: tf.Tensor, gamma_D: tf.Tensor, beta_D: tf.Tensor) -> tf.Tensor:
    """Layer norm as Keras 2 wrote it, of which TensorFlow's optimizer makes oneDNN's.

    It is the batch norm of an image whose channels are the rows. The optimizer takes
    the first output of the operation that gamma comes from, whichever gamma was.
    """
    shape = tf.shape(x_XD)
    rows, none = shape[:1], tf.constant([], tf.float32)
    image_1XD1 = tf.raw_ops.FusedBatchNormV3(
        x=tf.reshape(x_XD, [1, shape[0], shape[1], 1]),
        scale=tf.fill(rows, 1.0),
        offset=tf.fill(rows, 0.0),
        mean=none,
        variance=none,
        epsilon=_EPSILON,
        data_format="NCHW",
        is_training=True,
    ).y
    return tf.reshape(image_1XD1, shape) * gamma_D + beta_D


def _weights(block: Block) -> tuple[list[np.ndarray], list[np.ndarray], np.ndarray]:
    """Kernels, biases and norms of a layer in the order in which they are used.

    Queries come scaled, as scores are to be.
    """
    attention, scale = block.attention, block.attention.head_width**-0.5
    three = attention.query, attention.key, attention.value
    products = attention.output_dense, block.intermediate, block.output_dense
    norms = block.attention_layer_norm, block.output_layer_norm

    def joined(name: str) -> np.ndarray:
        query, *others = (_array(getattr(dense, name)) for dense in three)
        return np.concatenate([query * np.float32(scale), *others], axis=-1)

    kernels = [joined("kernel"), *(_array(dense.kernel) for dense in products)]
    biases = [joined("bias"), *(_array(dense.bias) for dense in products)]
    vectors = [_array(vector) for norm in norms for vector in (norm.gamma, norm.beta)]
    return kernels, biases, np.stack(vectors)


def _array(variable: Any) -> np.ndarray:
    return np.asarray(variable.numpy(), np.float32)
