"""Hidden states -> what a task asks for, always float32 (spans: `span_head.py`)."""

from typing import Any

import keras

from electra_tf.model.chains import Chains, Tensor
from electra_tf.model.transformer import Seeds


class SentenceHead(keras.layers.Layer):
    """One product with the [CLS] vector, for classes or for a score.

    The vector is taken as it is, without BERT's pooler, as the original does.

    Args:
        width: Of the hidden states.
        units: Classes, or 1 for a score.
        dropout: Share of the vector zeroed in training.
        seed: Decides the initial values.
    """

    def __init__(self, width: int, units: int, dropout: float = 0.1, seed: int = 0):
        super().__init__(name="head", dtype="float32")
        self.width = width
        self.dropout = keras.layers.Dropout(dropout)
        self.dense = keras.layers.Dense(
            units, kernel_initializer=Seeds(seed).glorot(), name="dense"
        )

    def build(self, input_shape: Any = None) -> None:
        """Makes the weights of the product."""
        self.dense.build((None, self.width))

    def call(
        self, x_BLD: Tensor, training: bool | None = None, chains: Chains | None = None
    ) -> Tensor:
        """From [B, L, D] to float32 [B, C]."""
        cls_BD = keras.ops.cast(x_BLD[:, 0], "float32")
        return self.dense((chains or Chains(training)).drop(cls_BD, self.dropout))


class TokenHead(keras.layers.Layer):
    """The same product with every vector, for tags.

    Args:
        width: Of the hidden states.
        units: Tags.
        seed: Decides the initial values.
    """

    def __init__(self, width: int, units: int, seed: int = 0):
        super().__init__(name="head", dtype="float32")
        self.width = width
        self.dense = keras.layers.Dense(
            units, kernel_initializer=Seeds(seed).glorot(), name="dense"
        )

    def build(self, input_shape: Any = None) -> None:
        """Makes the weights of the product."""
        self.dense.build((None, None, self.width))

    def call(self, x_BLD: Tensor) -> Tensor:
        """From [B, L, D] to float32 [B, L, C]."""
        return self.dense(x_BLD)
