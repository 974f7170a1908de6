"""Vectors -> logits, always float32.

A head is a float32 layer whatever `dtype` says: Keras lets a float32 layer inside a
mixed one read its weights in low precision, so only the hidden product is mixed.
"""

from typing import Any

import keras
from keras import ops

from electra_tf.model.chains import Chains, Tensor, gelu
from electra_tf.model.saving import PACKAGE, layer_from, policy_config
from electra_tf.model.transformer import Seeds, layer_norm


@keras.saving.register_keras_serializable(PACKAGE)
class MaskedLMHead(keras.layers.Layer):
    """Guesses the token at a position: a product with the token table (BERT).

    Args:
        width: Of the hidden states.
        embedding: Width of the token table.
        vocabulary_size: Rows of the token table.
        seeds: Decides the initial values.
        dtype: Keras dtype policy of the hidden product; the layer's is float32.
        name: Of the layer.
    """

    def __init__(
        self,
        width: int,
        embedding: int,
        vocabulary_size: int,
        seeds: Seeds,
        dtype: Any = None,
        name: str = "head",
    ):
        super().__init__(name=name, dtype="float32")
        self._seeds, self._policy = seeds.get_config(), policy_config(dtype)
        self.width, self.vocabulary_size = width, vocabulary_size
        self.dense = keras.layers.Dense(
            embedding, gelu, kernel_initializer=seeds.normal(), name="dense",
            dtype=dtype,
        )  # fmt: skip
        self.layer_norm = layer_norm("layer_norm", dtype)

    def build(self, input_shape: Any = None) -> None:
        """Makes the weights; the table is the embeddings'."""
        self.dense.build((None, None, self.width))
        self.layer_norm.build((None, None, self.dense.units))
        self.output_bias = self.add_weight(
            name="output_bias", shape=(self.vocabulary_size,), initializer="zeros"
        )

    def call(
        self, x_BMD: Tensor, table_VE: Tensor, chains: Chains | None = None
    ) -> Tensor:
        """From [B, M, D] to float32 [B, M, V]."""
        guess_BME = ops.cast(self.layer_norm(self.dense(x_BMD)), "float32")
        flat_XE = ops.reshape(guess_BME, (-1, self.dense.units))
        bias_V = ops.convert_to_tensor(self.output_bias, "float32")
        logits_XV = (chains or Chains()).scores(flat_XE, table_VE, bias_V)
        return ops.reshape(logits_XV, (-1, x_BMD.shape[1], self.vocabulary_size))

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of an equal head, as JSON."""
        return super().get_config() | {
            "width": self.width,
            "embedding": self.dense.units,
            "vocabulary_size": self.vocabulary_size,
            "seeds": self._seeds,
            "dtype": self._policy,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "MaskedLMHead":
        """Make a head of the same widths and initial values."""
        return layer_from(cls, config, seeds=Seeds)


@keras.saving.register_keras_serializable(PACKAGE)
class ReplacedTokenHead(keras.layers.Layer):
    """Says of each position whether its token was replaced (paper, section 2).

    Args:
        width: Of the hidden states.
        seeds: Decides the initial values.
        dtype: Keras dtype policy of the hidden product; the layer's is float32.
        name: Of the layer.
    """

    def __init__(self, width: int, seeds: Seeds, dtype: Any = None, name: str = "head"):
        super().__init__(name=name, dtype="float32")
        self._seeds, self._policy = seeds.get_config(), policy_config(dtype)
        self.width = width
        self.dense = keras.layers.Dense(
            width, gelu, kernel_initializer=seeds.normal(), name="dense", dtype=dtype
        )
        self.score = keras.layers.Dense(
            1, kernel_initializer=seeds.glorot(), name="score", dtype="float32"
        )

    def build(self, input_shape: Any = None) -> None:
        """Makes the weights of both products."""
        self.dense.build((None, None, self.width))
        self.score.build((None, None, self.width))

    def call(self, x_BLD: Tensor) -> Tensor:
        """From [B, L, D] to float32 [B, L]; above 0 means replaced."""
        return self.score(self.dense(x_BLD))[..., 0]

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of an equal head, as JSON."""
        return super().get_config() | {
            "width": self.width,
            "seeds": self._seeds,
            "dtype": self._policy,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "ReplacedTokenHead":
        """Make a head of the same widths and initial values."""
        return layer_from(cls, config, seeds=Seeds)
