"""Operations of a Transformer layer in Keras.

They take tensors and weights, and call no layers but Keras's dropout and norm.
`LayerOps` is the reference implementation. Its subclass `FusedLayerOps` in
`electra_tf.kernels` has fused kernels and reproducible dropout.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
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

    def reserve(self, dropouts: Sequence[keras.layers.Dropout]) -> Any:
        """Return the seeds of the next call of each layer, and skip that call."""
        generators = [d.seed_generator for d in dropouts if d.rate and self._training]
        return [(generator.state, generator.next()) for generator in generators]

    @contextlib.contextmanager
    def starting_at(self, seeds: Any) -> Iterator["LayerOps"]:
        """Yield operations with seeds of `reserve`, however often they are called."""
        with keras.StatelessScope(state_mapping=seeds):
            yield self

    def embedding_lookup(self, table_VE: Tensor, ids: Tensor) -> Tensor:
        """Return the rows `ids` of a table."""
        return ops.take(table_VE, ids, axis=0)

    def vocab_logits(self, x_XE: Tensor, table_VE: Tensor, bias_V: Tensor) -> Tensor:
        """Multiply vectors with the transposed table, add the bias; float32 [X, V]."""
        table_VE = ops.convert_to_tensor(table_VE, "float32")
        return ops.matmul(x_XE, ops.transpose(table_VE)) + bias_V

    def matmul(self, x: Tensor, kernel: Tensor) -> Tensor:
        """Multiply [B, L, ...] with a kernel."""
        return ops.matmul(x, ops.convert_to_tensor(kernel))

    def dropout(self, x: Tensor, dropout: keras.layers.Dropout) -> Tensor:
        """Apply dropout to `x`."""
        return dropout(x, training=self._training)

    def bias_gelu(self, x: Tensor, bias: Tensor) -> Tensor:
        """Add the bias, then apply GELU."""
        return gelu(x + bias)

    def feed_forward(
        self, x_BLD: Tensor, kernel_DF: Tensor, bias_F: Tensor, kernel_FD: Tensor
    ) -> Tensor:
        """Multiply, add the bias, apply GELU, and multiply again."""
        inner_BLF = self.bias_gelu(self.matmul(x_BLD, kernel_DF), bias_F)
        return self.matmul(inner_BLF, kernel_FD)

    def self_attention(
        self,
        x_BLD: Tensor,
        weights: Mapping[str, tuple[Tensor, Tensor]],
        bias_B11K: Tensor,
        heads: int,
        dropout: keras.layers.Dropout,
        cls_only: bool = False,
    ) -> Tensor:
        """Return what the positions read from each other, [B, L, D].

        `weights` are kernel and bias of `query`, `key` and `value`. With `cls_only`,
        [CLS] alone reads: [B, 1, D].
        """
        length, width = ops.shape(x_BLD)[1], x_BLD.shape[-1]
        shape = heads, width // heads
        # The weights are scaled, because they are fewer than the queries.
        query = (ops.convert_to_tensor(w) * shape[1] ** -0.5 for w in weights["query"])
        x_XD = ops.reshape(x_BLD, (-1, width))
        k_BNKH, v_BNKH = (
            _heads(x_XD, *weights[name], length, shape, name)
            for name in ("key", "value")
        )
        if cls_only:
            x_XD, length = x_BLD[:, 0], 1
        q_BNLH = _heads(x_XD, *query, length, shape, "query")
        context_BLNH = self.attention(q_BNLH, k_BNKH, bias_B11K, v_BNKH, dropout)
        return ops.reshape(context_BLNH, (-1, length, width))

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

    def attention_weights(
        self, queries_BNLH: Tensor, keys_BNKH: Tensor, bias_B11K: Tensor
    ) -> Tensor:
        """Compute and keep the weights."""
        self.maps.append(super().attention_weights(queries_BNLH, keys_BNKH, bias_B11K))
        return self.maps[-1]


def _heads(
    x_XD: Tensor,
    kernel_DD: Tensor,
    bias_D: Tensor,
    length: int,
    shape: tuple[int, int],
    name: str,
) -> Tensor:
    """Return the queries, keys or values of all heads, [B, N, L, H]."""
    with keras.name_scope(name):
        # TensorFlow fuses matmul and bias only in 2-D, and not a matmul with `+`.
        x_XD = ops.add(ops.matmul(x_XD, kernel_DD), bias_D)
    return ops.transpose(ops.reshape(x_XD, (-1, length, *shape)), (0, 2, 1, 3))
