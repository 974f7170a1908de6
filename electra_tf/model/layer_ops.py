"""What stands between a tower's products: chains of element-wise operations.

These are the plain ones. Who has random numbers of his own, or a faster way, gives the
towers other chains with the same methods.
"""

from typing import Any

import keras
from keras import ops

from electra_tf.model.saving import PACKAGE

Tensor = Any


@keras.saving.register_keras_serializable(PACKAGE)
def gelu(x: Tensor) -> Tensor:
    """The exact form, x times the normal distribution function of x."""
    return 0.5 * x * (1.0 + ops.erf(x * 0.5**0.5))


class LayerOps:
    """The chains in Keras's own operations and with its dropout.

    Args:
        training: Whether anything is dropped; None: as Keras knows from the call.
    """

    def __init__(self, training: bool | None = None):
        self._training = training

    def embedding_lookup(self, table_VE: Tensor, ids: Tensor) -> Tensor:
        """The rows of a table that `ids` tell."""
        return ops.take(table_VE, ids, axis=0)

    def vocab_logits(self, x_XE: Tensor, table_VE: Tensor, bias_V: Tensor) -> Tensor:
        """Each vector's product with each row of a table, and its bias, float32."""
        table_VE = ops.convert_to_tensor(table_VE, "float32")
        return ops.matmul(x_XE, ops.transpose(table_VE)) + bias_V

    def matmul(self, x: Tensor, kernel: Tensor) -> Tensor:
        """The product of each vector of [B, L, ...] with a kernel."""
        return ops.matmul(x, kernel)

    def dropout(self, x: Tensor, dropout: keras.layers.Dropout) -> Tensor:
        """`x`, of any shape, with values dropped."""
        return dropout(x, training=self._training)

    def bias_gelu(self, x: Tensor, bias: Tensor) -> Tensor:
        """The bias of a product, then its activation."""
        return gelu(x + bias)

    def attention(
        self,
        queries_BNLH: Tensor,
        keys_BNKH: Tensor,
        bias_B11K: Tensor,
        values_BNKH: Tensor,
        dropout: keras.layers.Dropout,
    ) -> Tensor:
        """What each query takes of the keys' values; softmax in float32.

        Returns [B, L, N, H].
        """
        keys_BNHK = ops.transpose(keys_BNKH, (0, 1, 3, 2))
        scores_BNLK = ops.matmul(queries_BNLH, keys_BNHK)
        scores_BNLK = ops.cast(scores_BNLK, "float32") + ops.cast(bias_B11K, "float32")
        weights_BNLK = ops.cast(ops.softmax(scores_BNLK), values_BNKH.dtype)
        seen_BNLH = ops.matmul(self.dropout(weights_BNLK, dropout), values_BNKH)
        return ops.transpose(seen_BNLH, (0, 2, 1, 3))

    def bias_dropout_add_norm(
        self,
        x: Tensor,
        bias: Tensor,
        residual: Tensor,
        dropout: keras.layers.Dropout,
        norm: keras.layers.LayerNormalization,
    ) -> Tensor:
        """The bias of a product, dropout, the sum with what went in, its norm."""
        return norm(residual + self.dropout(x + bias, dropout))
