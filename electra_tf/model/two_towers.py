"""Cloze model of Electric: one tower reads from the left, the other from the right."""

from typing import Any

import keras
from keras import ops

from electra_tf.config.pretraining import EncoderConfig
from electra_tf.model.heads import MaskedLMHead
from electra_tf.model.layer_ops import LayerOps, Tensor
from electra_tf.model.transformer import Embeddings, Encoder, InitializerFactory

_RIGHT_TOWER = 2**32  # added to the seed of the left tower


class TwoTowerGenerator(keras.layers.Layer):
    """Predictor of each token from the tokens before and after it (Electric, 2020).

    The towers have a causal mask each, from the left and from the right. The prediction
    at position t uses the state of t - 1 of one tower and that of t + 1 of the other,
    so a single pass over an unmasked text predicts all its tokens.

    Args:
        shape: Shape of each tower.
        seed: Seed of the left tower's initial values.
        head_seed: Seed of the head's initial values.
        embeddings: Embeddings that both towers share; None: each has its own.
        dtype: Keras dtype policy.
        name: Name of the layer.
    """

    def __init__(
        self,
        shape: EncoderConfig,
        seed: int,
        head_seed: int,
        embeddings: Embeddings | None = None,
        dtype: Any = None,
        name: str = "cloze",
    ):
        super().__init__(name=name, dtype="float32")
        self.shape = shape
        self.left, self.right = (
            Encoder(shape, number, embeddings, name, dtype)
            for number, name in (
                (seed, "left_encoder"),
                (seed + _RIGHT_TOWER, "right_encoder"),
            )
        )
        self.head = MaskedLMHead(
            2 * shape.width,
            self.left.embeddings.width,
            shape.vocabulary_size,
            InitializerFactory(head_seed, shape.initializer_range),
            dtype,
            layer_norm_epsilon=shape.layer_norm_epsilon,
            spare_rows=shape.spare_rows,
        )

    def build(self, input_shape: Any = None) -> None:
        """Create the weights, except those of embeddings that are already built."""
        for part in (self.left, self.right, self.head):
            part.build()

    def call(
        self,
        token_ids: Tensor,
        segment_ids: Tensor,
        padding_mask: Tensor,
        training: bool | None = None,
        layer_ops: LayerOps | None = None,
    ) -> Tensor:
        """Return the vectors to multiply with `table` at every position.

        Args:
            token_ids: int32 [B, L], not masked.
            segment_ids: int32 [B, L].
            padding_mask: [B, L], 1 at real tokens.
            training: Whether dropout is applied; ignored if `layer_ops` is given.
            layer_ops: Implementation of the operations; None uses Keras operations.

        Returns:
            float32 [B * L, E]. As in the original, the first position sees the left
            tower's state of the last one, and the last position the right tower's of
            the first.
        """
        inputs = token_ids, segment_ids, padding_mask
        left_BLD, right_BLD = (
            tower(*inputs, training=training, layer_ops=layer_ops, attends_to=direction)
            for tower, direction in ((self.left, "left"), (self.right, "right"))
        )
        states = ops.roll(left_BLD, 1, axis=1), ops.roll(right_BLD, -1, axis=1)
        return self.head.outputs(ops.concatenate(states, -1))

    @property
    def table(self) -> Tensor:
        """Return the output matrix, float32 [V, E]: the left tower's token table."""
        return self.left.embeddings.word_embeddings
