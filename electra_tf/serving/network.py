"""The encoder in plain TensorFlow, as it is served: the same numbers, sooner.

A short text's time goes into reading the weights and into starting operations, of
which Keras's layers have over twice as many. Here products are of two axes, so that
TensorFlow's optimizer joins them with the biases, sums and activations that follow;
query, key and value are one product; and what the layers have is stacked, so that it is
read from five variables instead of from sixteen for each layer.

oneDNN copies the right side of a product into an order of its own. With positions as
rows that is the kernel, whose copy is a quarter of a short text's time; with positions
as columns it is the text. So kernels stand as [out, in], which both can take.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf.model.chains import gelu
from electra_tf.model.transformer import Block, Encoder

_EPSILON = 1e-12  # of layer norm
_MASKED = -10000.0  # added to the score of a key that is padding, as BERT does


class Network(tf.Module):
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
        kernels, vectors = zip(*layers, strict=True)
        self._kernels = [
            tf.Variable(np.stack(of_layers).transpose(0, 2, 1), trainable=False)
            for of_layers in zip(*kernels, strict=True)
        ]
        self._sizes = [len(vector) for vector in vectors[0]]
        self._vectors = tf.Variable(
            np.concatenate([v for of_layer in vectors for v in of_layer]),
            trainable=False,
        )

    def __call__(
        self,
        token_ids: tf.Tensor,
        segment_ids: tf.Tensor,
        padding_mask: tf.Tensor,
        branching: bool = False,
    ) -> tf.Tensor:
        """Hidden states of the last layer, as the Keras encoder's without dropout.

        Args:
            token_ids: int32 [B, L].
            segment_ids: int32 [B, L].
            padding_mask: int32 [B, L], 1 at real tokens.
            branching: Whether the graph may have branches; it then masks no scores
                where nothing is padding.

        Returns:
            float32 [B, L, D].
        """
        size = tf.unstack(tf.shape(token_ids))
        bias_B11K = _bias(padding_mask, size)
        padded = tf.reduce_any(padding_mask < 1) if branching else None
        x_XD = self._embedded(token_ids, segment_ids)
        for kernels, vectors in self._layers():
            inward_3DD, outward_DD, widen_FD, narrow_DF = kernels
            bias_3D, bias_D, *norm, bias_F, last_D, gamma_D, beta_D = vectors
            inward_X3D = _dense(x_XD, inward_3DD, bias_3D)
            parted_BLMH = tf.reshape(inward_X3D, [*size, *self._parts])
            parted_BMLH = tf.transpose(parted_BLMH, [0, 2, 1, 3])
            q_BNLH, k_BNKH, v_BNKH = tf.split(parted_BMLH, 3, axis=1)
            scores_BNLK = tf.matmul(q_BNLH, k_BNKH, transpose_b=True)
            scores_BNLK = _masked(scores_BNLK, bias_B11K, padded)
            seen_BNLH = tf.matmul(tf.nn.softmax(scores_BNLK), v_BNKH)
            seen_BLNH = tf.transpose(seen_BNLH, [0, 2, 1, 3])
            seen_XD = tf.reshape(seen_BLNH, [-1, self._width])
            x_XD = _normal(x_XD + _dense(seen_XD, outward_DD, bias_D), *norm)
            inner_XF = gelu(_dense(x_XD, widen_FD, bias_F))
            outer_XD = _dense(inner_XF, narrow_DF, last_D)
            x_XD = _normal(x_XD + outer_XD, gamma_D, beta_D)
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
        bias_B11K = _bias(padding_mask, size)
        x_DX = tf.transpose(self._embedded(token_ids, segment_ids))
        for kernels, vectors in self._layers():
            inward_3DD, outward_DD, widen_FD, narrow_DF = kernels
            inward_3D1, bias_D1, *norm, bias_F1, last_D1, gamma_D1, beta_D1 = (
                vector[:, tf.newaxis] for vector in vectors
            )
            inward_3DX = tf.matmul(inward_3DD, x_DX) + inward_3D1
            parted_MHBL = tf.reshape(inward_3DX, [*self._parts, *size])
            parted_BMHL = tf.transpose(parted_MHBL, [2, 0, 1, 3])
            q_BNHL, k_BNHK, v_BNHK = tf.split(parted_BMHL, 3, axis=1)
            scores_BNLK = tf.matmul(q_BNHL, k_BNHK, transpose_a=True) + bias_B11K
            weights_BNLK = tf.nn.softmax(scores_BNLK)
            seen_BNHL = tf.matmul(v_BNHK, weights_BNLK, transpose_b=True)
            seen_NHBL = tf.transpose(seen_BNHL, [1, 2, 0, 3])
            seen_DX = tf.reshape(seen_NHBL, [self._width, -1])
            outward_DX = tf.matmul(outward_DD, seen_DX) + bias_D1
            x_DX = _normal(x_DX + outward_DX, *norm, axis=0)
            inner_FX = gelu(tf.matmul(widen_FD, x_DX) + bias_F1)
            outer_DX = tf.matmul(narrow_DF, inner_FX) + last_D1
            x_DX = _normal(x_DX + outer_DX, gamma_D1, beta_D1, axis=0)
        return tf.reshape(tf.transpose(x_DX), [*size, self._width])

    def _embedded(self, token_ids: tf.Tensor, segment_ids: tf.Tensor) -> tf.Tensor:
        words_BLE = tf.gather(self._words_VE, token_ids)
        segments_BLE = tf.gather(self._segments, segment_ids)
        positions_LE = self._positions_LE[: tf.shape(token_ids)[1]]
        x_BLE = words_BLE + segments_BLE + positions_LE
        x_XE = _normal(tf.reshape(x_BLE, [-1, x_BLE.shape[-1]]), *self._norm)
        if not self._project:
            return x_XE
        kernel_ED, bias_D = self._project
        return tf.nn.bias_add(tf.matmul(x_XE, kernel_ED), bias_D)

    def _layers(self) -> Iterator[tuple[Sequence[tf.Tensor], Sequence[tf.Tensor]]]:
        """Kernels and vectors of each layer, views of the whole."""
        kernels = zip(*(tf.unstack(kernel) for kernel in self._kernels), strict=True)
        each = len(self._sizes)
        depth = self._kernels[0].shape[0]
        vectors = tf.split(self._vectors, self._sizes * depth)
        for layer, of_layer in enumerate(kernels):
            yield of_layer, vectors[layer * each : (layer + 1) * each]


def _bias(padding_mask: tf.Tensor, size: Sequence[tf.Tensor]) -> tf.Tensor:
    """What is added to a key's scores [B, 1, 1, K]."""
    real_BL = tf.cast(padding_mask, tf.float32)
    # A slice with new axes has no counterpart in LiteRT.
    real_B11K = tf.reshape(real_BL, [size[0], 1, 1, size[1]])
    return (1.0 - real_B11K) * _MASKED


def _masked(
    scores_BNLK: tf.Tensor, bias_B11K: tf.Tensor, padded: tf.Tensor | None
) -> tf.Tensor:
    """Scores with padding far below; `padded`, if known, tells whether there is any."""
    if padded is None:
        return scores_BNLK + bias_B11K
    return tf.cond(padded, lambda: scores_BNLK + bias_B11K, lambda: scores_BNLK)


def _dense(x: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    return tf.nn.bias_add(tf.matmul(x, kernel, transpose_b=True), bias)


def _normal(
    x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, axis: int = -1
) -> tf.Tensor:
    """Layer norm of an axis."""
    centred = x - tf.reduce_mean(x, axis, keepdims=True)
    variance = tf.reduce_mean(tf.square(centred), axis, keepdims=True)
    return centred * (tf.math.rsqrt(variance + _EPSILON) * gamma) + beta


def _weights(block: Block) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Kernels and vectors of a layer in the order in which they are used.

    Queries come scaled, as scores are to be.
    """
    attention, scale = block.attention, block.attention.head_width**-0.5
    three = attention.query, attention.key, attention.value
    products = attention.output_dense, block.intermediate, block.output_dense
    norms = block.attention_layer_norm, block.output_layer_norm

    def joined(name: str) -> np.ndarray:
        query, *others = (_array(getattr(dense, name)) for dense in three)
        return np.concatenate([query * np.float32(scale), *others], axis=-1)

    outward, widen, narrow = (_array(dense.bias) for dense in products)
    first, last = ([_array(norm.gamma), _array(norm.beta)] for norm in norms)
    kernels = [joined("kernel"), *(_array(dense.kernel) for dense in products)]
    return kernels, [joined("bias"), outward, *first, widen, narrow, *last]


def _array(variable: Any) -> np.ndarray:
    return np.asarray(variable.numpy(), np.float32)
