"""Operations of a Transformer layer in Keras.

`LayerOps` is the reference implementation. Its subclass `FusedLayerOps` in
`electra_tf.kernels` has fused kernels and reproducible dropout.
"""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from electra_tf.model.keras_layers import PACKAGE, Tensor


@keras.saving.register_keras_serializable(PACKAGE)
def gelu(x: Tensor) -> Tensor:
    """Compute the exact GELU: x times the standard normal CDF of x."""
    return 0.5 * x * (1.0 + ops.erf(x * 0.5**0.5))


class LayerOps:
    """Operations of a Transformer layer with Keras's operations and dropout."""

    def __init__(self, training: bool | None = None):
        self._training = training

    def recompute(self, call: Callable[..., Tensor], x: Tensor) -> Tensor:
        """Call a layer now, and again in the backward pass to save memory."""
        repeated = self.repeatable()
        return keras.remat(lambda x: call(x, layer_ops=repeated()))(x)

    def repeatable(self) -> Callable[[], "LayerOps"]:
        """Return a function that returns operations with the same dropout each time."""
        seeds: list[Tensor] = []
        return lambda: _RepeatedDropout(self._training, seeds)

    def embedding_lookup(self, table_VE: Tensor, ids: Tensor) -> Tensor:
        """Return the rows `ids` of a table."""
        return ops.take(table_VE, ids, axis=0)

    def vocab_logits(self, x_XE: Tensor, table_VE: Tensor, bias_V: Tensor) -> Tensor:
        """Multiply vectors with the transposed table, add the bias; float32 [X, V]."""
        table_VE = ops.convert_to_tensor(table_VE, "float32")
        return ops.matmul(x_XE, ops.transpose(table_VE)) + bias_V

    def matmul(self, x: Tensor, kernel: Tensor) -> Tensor:
        """Multiply [B, L, ...] with a kernel."""
        return ops.matmul(x, kernel)

    def dropout(self, x: Tensor, dropout: keras.layers.Dropout) -> Tensor:
        """Apply dropout to `x`."""
        return dropout(x, training=self._training)

    def bias_gelu(self, x: Tensor, bias: Tensor) -> Tensor:
        """Add the bias, then apply GELU."""
        return gelu(x + bias)

    def feed_forward(self, layer: Any, x_BLD: Tensor) -> Tensor:
        """Return the feed-forward network of a layer without its last bias."""
        return layer.feed_forward(x_BLD, self)

    def self_attention(
        self, layer: Any, x_BLD: Tensor, bias_B11K: Tensor, cls_only: bool
    ) -> Tensor:
        """Return the attention of a `SelfAttention` without its output layer."""
        return layer.context(x_BLD, bias_B11K, self, cls_only)

    def attention(
        self,
        queries_BNLH: Tensor,
        keys_BNKH: Tensor,
        bias_B11K: Tensor,
        values_BNKH: Tensor,
        dropout: keras.layers.Dropout,
    ) -> Tensor:
        """Return dot-product attention [B, L, N, H], with the softmax in float32."""
        weights_BNLK = self.attention_weights(queries_BNLH, keys_BNKH, bias_B11K)
        weights_BNLK = ops.cast(weights_BNLK, values_BNKH.dtype)
        context_BNLH = ops.matmul(self.dropout(weights_BNLK, dropout), values_BNKH)
        return ops.transpose(context_BNLH, (0, 2, 1, 3))

    def attention_weights(
        self, queries_BNLH: Tensor, keys_BNKH: Tensor, bias_B11K: Tensor
    ) -> Tensor:
        """Return the attention of each position to each other, float32 [B, N, L, K]."""
        keys_BNHK = ops.transpose(keys_BNKH, (0, 1, 3, 2))
        scores_BNLK = ops.matmul(queries_BNLH, keys_BNHK)
        scores_BNLK = ops.cast(scores_BNLK, "float32") + ops.cast(bias_B11K, "float32")
        return ops.softmax(scores_BNLK)

    def bias_dropout_add_norm(
        self,
        x: Tensor,
        bias: Tensor,
        residual: Tensor,
        dropout: keras.layers.Dropout,
        norm: keras.layers.LayerNormalization,
    ) -> Tensor:
        """Add the bias, apply dropout, add the residual, then normalise."""
        return norm(residual + self.dropout(x + bias, dropout))


class AttentionRecorder(LayerOps):
    """Operations that also store the attention weights of each layer."""

    def __init__(self, training: bool | None = None):
        super().__init__(training)
        self.maps: list[Tensor] = []

    def recompute(self, call: Callable[..., Tensor], x: Tensor) -> Tensor:
        """Call a layer once, as its weights are kept."""
        return call(x, layer_ops=self)

    def attention_weights(
        self, queries_BNLH: Tensor, keys_BNKH: Tensor, bias_B11K: Tensor
    ) -> Tensor:
        """Compute and keep the weights."""
        self.maps.append(super().attention_weights(queries_BNLH, keys_BNKH, bias_B11K))
        return self.maps[-1]


class _RepeatedDropout(LayerOps):
    """Operations whose dropout draws its seeds once, then uses them again."""

    def __init__(self, training: bool | None, seeds: list[Tensor]):
        super().__init__(training)
        self._seeds, self._calls = seeds, 0

    def dropout(self, x: Tensor, dropout: keras.layers.Dropout) -> Tensor:
        """Apply dropout with the seed that this call had before, or with a new one."""
        if not self._training or not dropout.rate:
            return x
        if self._calls == len(self._seeds):
            self._seeds.append(dropout.seed_generator.next())
        seed = _Seed(self._seeds[self._calls])
        self._calls += 1
        return keras.random.dropout(x, dropout.rate, seed=seed)


class _Seed(keras.random.SeedGenerator):
    """Generator of one seed, without a variable."""

    def __init__(self, seed: Tensor):
        self._seed = seed

    def next(self, ordered: bool = True) -> Tensor:
        """Return the seed."""
        return self._seed
