"""Hidden states -> what a task asks for, always float32 (spans: `span_head.py`)."""

from typing import Any

import keras

from electra_tf.model.chains import Chains, Tensor
from electra_tf.model.saving import PACKAGE, layer_from
from electra_tf.model.transformer import Seeds


@keras.saving.register_keras_serializable(PACKAGE)
class SentenceHead(keras.layers.Layer):
    """One product with the [CLS] vector, for classes or for a score.

    The vector is taken as it is, without BERT's pooler, as the original does.

    Args:
        width: Of the hidden states.
        units: Classes, or 1 for a score.
        dropout: Share of the vector zeroed in training.
        seed: Decides the initial values.
        name: Of the layer.
    """

    def __init__(
        self,
        width: int,
        units: int,
        dropout: float = 0.1,
        seed: int = 0,
        name: str = "head",
    ):
        super().__init__(name=name, dtype="float32")
        self.width, self.seed = width, seed
        self.dropout = keras.layers.Dropout(dropout, dtype="float32")
        self.dense = _product(units, seed)

    def build(self, input_shape: Any = None) -> None:
        """Makes the weights of the product."""
        self.dense.build((None, self.width))

    def call(
        self, x_BLD: Tensor, training: bool | None = None, chains: Chains | None = None
    ) -> Tensor:
        """From [B, L, D] to float32 [B, C]."""
        cls_BD = keras.ops.cast(x_BLD[:, 0], "float32")
        return self.dense((chains or Chains(training)).drop(cls_BD, self.dropout))

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of an equal head, as JSON."""
        config = super().get_config() | {
            "width": self.width,
            "units": self.dense.units,
            "dropout": self.dropout.rate,
            "seed": self.seed,
        }
        config.pop("dtype")  # always float32
        return config

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "SentenceHead":
        """Make a head of the same widths and initial values."""
        return layer_from(cls, config)


@keras.saving.register_keras_serializable(PACKAGE)
class TokenHead(keras.layers.Layer):
    """The same product with every vector, for tags.

    Args:
        width: Of the hidden states.
        units: Tags.
        seed: Decides the initial values.
        name: Of the layer.
    """

    def __init__(self, width: int, units: int, seed: int = 0, name: str = "head"):
        super().__init__(name=name, dtype="float32")
        self.width, self.seed = width, seed
        self.dense = _product(units, seed)

    def build(self, input_shape: Any = None) -> None:
        """Makes the weights of the product."""
        self.dense.build((None, None, self.width))

    def call(self, x_BLD: Tensor) -> Tensor:
        """From [B, L, D] to float32 [B, L, C]."""
        return self.dense(x_BLD)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of an equal head, as JSON."""
        config = super().get_config() | {
            "width": self.width,
            "units": self.dense.units,
            "seed": self.seed,
        }
        config.pop("dtype")  # always float32
        return config

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "TokenHead":
        """Make a head of the same widths and initial values."""
        return layer_from(cls, config)


def _product(units: int, seed: int) -> keras.layers.Dense:
    """Return the one product of a head, in float32 whatever Keras's global policy."""
    return keras.layers.Dense(
        units, kernel_initializer=Seeds(seed).glorot(), name="dense", dtype="float32"
    )
