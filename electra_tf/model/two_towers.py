"""Cloze model of Electric: one tower reads from the left, the other from the right."""

from typing import Any

import keras
from keras import ops

from electra_tf.config.model import EncoderConfig
from electra_tf.model.encoder import TransformerEncoder
from electra_tf.model.heads import MaskedLMHead
from electra_tf.model.layer_ops import LayerOps, Tensor
from electra_tf.model.transformer import Embeddings

_RIGHT_TOWER = 2**32  # added to the seed of the left tower


class TwoTowerGenerator(keras.layers.Layer):
    """Predictor of each token from the tokens before and after it (Electric, 2020).

    The towers have a causal mask each, from the left and from the right. The prediction
    at position t uses the state of t - 1 of one tower and that of t + 1 of the other,
    so a single pass over an unmasked text predicts all its tokens.

    Both towers share `embeddings`; with None each has its own.
    """

    def __init__(
        self,
        shape: EncoderConfig,
        seed: int,
        head_seed: int,
        embeddings: Embeddings | None = None,
        dtype: Any = None,
    ):
        super().__init__(name="cloze", dtype="float32")
        self.left, self.right = (
            TransformerEncoder(shape, number, embeddings, name, dtype)
            for number, name in (
                (seed, "left_encoder"),
                (seed + _RIGHT_TOWER, "right_encoder"),
            )
        )
        width = self.left.embeddings.width
        self.head = MaskedLMHead(shape, width, head_seed, dtype, width=2 * shape.width)

    def build(self, input_shape: Any = None) -> None:
        """Create the weights, except those of embeddings that are already built."""
        for part in (self.left, self.right, self.head):
            part.build((None, None))

    def call(
        self,
        token_ids: Tensor,
        segment_ids: Tensor,
        padding_mask: Tensor,
        layer_ops: LayerOps | None = None,
    ) -> Tensor:
        """Return the vectors to multiply with `table` at every position.

        The token ids are not masked. The result is float32 [B * L, E]. As in the
        original, the first position sees the left tower's state of the last one, and
        the last position the right tower's of the first.
        """
        inputs = token_ids, segment_ids, padding_mask
        left_BLD, right_BLD = (
            tower(*inputs, layer_ops=layer_ops, attends_to=direction)
            for tower, direction in ((self.left, "left"), (self.right, "right"))
        )
        states = ops.roll(left_BLD, 1, axis=1), ops.roll(right_BLD, -1, axis=1)
        return self.head.outputs(ops.concatenate(states, -1))

    @property
    def table(self) -> Tensor:
        """Return the output matrix, float32 [V, E]: the left tower's token table."""
        return self.left.embeddings.word_embeddings
