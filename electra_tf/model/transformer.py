"""Layers of BERT's encoder, with layer norm after each residual sum.

A layer has weights, and passes them to `layer_ops`, which implements attention, matmuls
and element-wise operations including dropout (see `layer_ops.py`). `dtype` is a Keras
dtype policy.
"""

import contextlib
import contextvars
import hashlib
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
from keras import ops

from electra_tf.config.model import EncoderConfig
from electra_tf.errors import InputError
from electra_tf.model.layer_ops import LayerOps, Tensor

DELTA = "_delta"  # end of the names of `DisentangledEmbeddings`' weights
_zeros = contextvars.ContextVar("zeros", default=False)


@contextlib.contextmanager
def weights_of_zeros() -> Iterator[None]:
    """Make layers whose initial weights are zeros, because others will be loaded.

    The random numbers of a base model take as long as reading its weights.
    """
    token = _zeros.set(True)
    try:
        yield
    finally:
        _zeros.reset(token)


class InitializerFactory:
    """Factory of initialisers with different seeds, derived from one seed."""

    def __init__(self, seed: int, stddev: float = 0.02):
        self._seed, self._stddev, self._drawn = seed, stddev, 0

    def normal(self) -> keras.initializers.Initializer:
        """Return BERT's initialiser: normal, truncated at two standard deviations."""
        if _zeros.get():
            return keras.initializers.Zeros()
        return keras.initializers.TruncatedNormal(
            stddev=self._stddev, seed=self._next()
        )

    def glorot(self) -> keras.initializers.Initializer:
        """Return Glorot-uniform, the released code's default initialiser."""
        if _zeros.get():
            return keras.initializers.Zeros()
        return keras.initializers.GlorotUniform(seed=self._next())

    def _next(self) -> int:
        self._drawn += 1
        digest = hashlib.sha256(f"{self._seed}:{self._drawn}".encode()).digest()
        return int.from_bytes(digest[:4], "big") >> 1


def layer_norm(
    name: str, epsilon: float, dtype: Any
) -> keras.layers.LayerNormalization:
    """Return a layer normalisation."""
    return keras.layers.LayerNormalization(epsilon=epsilon, name=name, dtype=dtype)


class Embeddings(keras.layers.Layer):
    """Sum of token, segment and position embeddings, normalised."""

    def __init__(
        self, shape: EncoderConfig, seeds: InitializerFactory, dtype: Any = None
    ):
        super().__init__(name="embeddings", dtype=dtype)
        self._rows = {
            "word_embeddings": shape.vocabulary_size,
            "segment_embeddings": shape.segments,
            "position_embeddings": shape.max_positions,
        }
        self._initializers = {name: seeds.normal() for name in self._rows}
        self.width = shape.embedding
        self.row_of_id: np.ndarray | None = None
        """Row of each token id in a table without some rows; None: the id."""
        self.layer_norm = layer_norm("layer_norm", shape.layer_norm_epsilon, dtype)
        self.dropout = keras.layers.Dropout(shape.dropout, dtype=dtype)

    def build(self, input_shape: Any = None) -> None:
        """Create the embedding tables."""
        for name, rows in self._rows.items():
            initializer = self._initializers[name]
            shape = (rows, self.width)
            # With autocast, Keras would round a shared table for all its uses.
            table = self.add_weight(
                name=name, shape=shape, initializer=initializer, autocast=False
            )
            setattr(self, name, table)
        self.layer_norm.build((None, None, self.width))

    def call(
        self,
        token_ids: Tensor,
        segment_ids: Tensor,
        layer_ops: LayerOps,
    ) -> Tensor:
        """Embed token and segment ids [B, L] as [B, L, E]."""
        length, longest = token_ids.shape[1], self._rows["position_embeddings"]
        if length is not None and length > longest:
            raise InputError(
                f"The input has {length} positions, more than the encoder's {longest}; "
                f"cut the texts: tokenizer(texts, max_length={longest})"
            )
        words_BLE = self._look_up_words(token_ids, layer_ops)
        segments_BLE = ops.take(self.segment_embeddings, segment_ids, axis=0)
        positions_LE = self.position_embeddings[: ops.shape(token_ids)[1]]
        words_BLE, segments_BLE, positions_LE = (
            ops.cast(x, self.compute_dtype)
            for x in (words_BLE, segments_BLE, positions_LE)
        )
        x_BLE = self.layer_norm(words_BLE + segments_BLE + positions_LE)
        return layer_ops.dropout(x_BLE, self.dropout)

    def _look_up_words(self, token_ids: Tensor, layer_ops: LayerOps) -> Tensor:
        if self.row_of_id is not None:
            token_ids = ops.take(self.row_of_id, token_ids, axis=0)
        return layer_ops.embedding_lookup(self.word_embeddings, token_ids)


class DisentangledEmbeddings(Embeddings):
    """Embeddings whose tables are another's plus a trained difference, 0 at first.

    The other tables get no gradient from here (gradient-disentangled embedding sharing,
    DeBERTa v3). The layer norm is this layer's own.
    """

    def __init__(
        self,
        shape: EncoderConfig,
        seeds: InitializerFactory,
        base: Embeddings,
        dtype: Any = None,
    ):
        super().__init__(shape, seeds, dtype)
        # Keras would list the weights of an attribute as weights of this layer.
        self._base = lambda: base

    def build(self, input_shape: Any = None) -> None:
        """Create the differences, `word_embeddings_delta` and so on."""
        self._deltas = {
            name: self.add_weight(
                name=name + DELTA,
                shape=(rows, self.width),
                initializer="zeros",
                autocast=False,
            )
            for name, rows in self._rows.items()
        }
        self.layer_norm.build((None, None, self.width))

    def _sum(self, name: str) -> Tensor:
        base = ops.stop_gradient(ops.convert_to_tensor(getattr(self._base(), name)))
        return base + ops.convert_to_tensor(self._deltas[name])

    word_embeddings = property(lambda self: self._sum("word_embeddings"))
    segment_embeddings = property(lambda self: self._sum("segment_embeddings"))
    position_embeddings = property(lambda self: self._sum("position_embeddings"))

    def _look_up_words(self, token_ids: Tensor, layer_ops: LayerOps) -> Tensor:
        table_VE = self._base().word_embeddings
        base_BLE = ops.stop_gradient(layer_ops.embedding_lookup(table_VE, token_ids))
        return base_BLE + ops.take(self._deltas["word_embeddings"], token_ids, axis=0)


class SelfAttention(keras.layers.Layer):
    """Multi-head self-attention."""

    def __init__(
        self, shape: EncoderConfig, seeds: InitializerFactory, dtype: Any = None
    ):
        super().__init__(name="attention", dtype=dtype)
        self.width, self.heads = shape.width, shape.heads
        self.head_width = shape.width // shape.heads
        self.query, self.key, self.value, self.output_dense = (
            keras.layers.Dense(
                shape.width, kernel_initializer=seeds.normal(), name=name, dtype=dtype
            )
            for name in ("query", "key", "value", "output")
        )
        self.dropout = keras.layers.Dropout(shape.attention_dropout, dtype=dtype)

    def build(self, input_shape: Any = None) -> None:
        """Create the weights of the query, key, value and output layers."""
        for dense in (self.query, self.key, self.value, self.output_dense):
            dense.build((None, None, self.width))

    def call(
        self,
        x_BLD: Tensor,
        bias_B11K: Tensor,
        layer_ops: LayerOps,
        cls_only: bool = False,
    ) -> Tensor:
        """Return the output layer's matmul without its bias, which the caller adds.

        With `cls_only`, [CLS] alone attends to the others: [B, 1, D].
        """
        dense = self.query, self.key, self.value
        context_BLD = layer_ops.self_attention(
            x_BLD,
            {one.name: (one.kernel, one.bias) for one in dense},
            bias_B11K,
            self.heads,
            self.dropout,
            cls_only,
        )
        return layer_ops.matmul(context_BLD, self.output_dense.kernel)


class Block(keras.layers.Layer):
    """Transformer layer: self-attention and feed-forward network with residuals."""

    def __init__(
        self,
        shape: EncoderConfig,
        seeds: InitializerFactory,
        name: str,
        dtype: Any = None,
    ):
        super().__init__(name=name, dtype=dtype)
        self.width, self.inner = shape.width, shape.feed_forward
        self.attention = SelfAttention(shape, seeds, dtype)
        self.attention_layer_norm = layer_norm(
            "attention_layer_norm", shape.layer_norm_epsilon, dtype
        )
        self.intermediate, self.output_dense = (
            keras.layers.Dense(
                size, kernel_initializer=seeds.normal(), name=name, dtype=dtype
            )
            for name, size in (("intermediate", self.inner), ("output", self.width))
        )
        self.output_layer_norm = layer_norm(
            "output_layer_norm", shape.layer_norm_epsilon, dtype
        )
        self.attention_drop = keras.layers.Dropout(shape.dropout, dtype=dtype)
        self.output_drop = keras.layers.Dropout(shape.dropout, dtype=dtype)

    def build(self, input_shape: Any = None) -> None:
        """Create the weights of attention, feed-forward network and norms."""
        hidden = (None, None, self.width)
        self.attention.build(hidden)
        self.attention_layer_norm.build(hidden)
        self.intermediate.build(hidden)
        self.output_dense.build((None, None, self.inner))
        self.output_layer_norm.build(hidden)

    @property
    def dropouts(self) -> tuple[keras.layers.Dropout, ...]:
        """Return the dropout layers, in the order of their calls."""
        return self.attention.dropout, self.attention_drop, self.output_drop

    def call(
        self,
        x_BLD: Tensor,
        bias_B11K: Tensor,
        layer_ops: LayerOps,
        cls_only: bool = False,
    ) -> Tensor:
        """Return the next hidden states, [B, L, D]; with `cls_only` the first, L = 1.

        `cls_only` requires a bias with one row for all positions, or that of [CLS].
        """
        attended_BLD = self.attention(
            x_BLD, bias_B11K, layer_ops=layer_ops, cls_only=cls_only
        )
        x_BLD = layer_ops.bias_dropout_add_norm(
            attended_BLD,
            self.attention.output_dense.bias,
            x_BLD[:, :1] if cls_only else x_BLD,
            self.attention_drop,
            self.attention_layer_norm,
        )
        outputs_BLD = layer_ops.feed_forward(
            x_BLD,
            self.intermediate.kernel,
            self.intermediate.bias,
            self.output_dense.kernel,
        )
        return layer_ops.bias_dropout_add_norm(
            outputs_BLD,
            self.output_dense.bias,
            x_BLD,
            self.output_drop,
            self.output_layer_norm,
        )
