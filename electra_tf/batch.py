"""Batches of pre-training, and the suffixes of tensor shapes.

The name of a tensor ends with the letters of its axes, outermost first:

    B  batch (rows)            L  length (positions of a row)
    M  masked positions        D  width of the encoder
    E  width of the embedding  N  attention heads
    H  width of a head         F  width of the feed-forward layer
    V  vocabulary              K  keys (positions attended to); blocks in sampling
    X  rows and positions in one axis
    W  words; places of a block in sampling

`input_ids_BL[b, l]` is the token id at position l of row b.
"""

from typing import Any, NamedTuple

Tensor = Any  # a tf.Tensor or a NumPy array; this module imports neither


class Batch(NamedTuple):
    """Rows of packed text before masking; int32 tensors of one static shape.

    The last batch of an evaluation is padded with rows of zeros. Their input mask
    is 0, so that they have no weight in losses and metrics.
    """

    input_ids_BL: Tensor
    """Token ids: [CLS] A [SEP], or [CLS] A [SEP] B [SEP]; any id at padding."""
    input_mask_BL: Tensor
    """1 at real tokens, 0 at padding."""
    segment_ids_BL: Tensor
    """0 in [CLS] A [SEP] and at padding, 1 in B [SEP]."""


class MaskedBatch(NamedTuple):
    """A batch with masked positions for the generator."""

    input_ids_BL: Tensor
    """Token ids of the text, not masked."""
    input_mask_BL: Tensor
    """As in `Batch`."""
    segment_ids_BL: Tensor
    """As in `Batch`."""
    masked_ids_BL: Tensor
    """Input of the generator: [MASK] at the masked positions."""
    positions_BM: Tensor
    """int32: the masked positions; 0 in unused slots."""
    labels_BM: Tensor
    """int32: the tokens of the text at these positions; 0 in unused slots."""
    weights_BM: Tensor
    """float32: 1 in used slots, 0 in unused slots."""


class CorruptedBatch(NamedTuple):
    """Input and labels of the discriminator."""

    corrupted_ids_BL: Tensor
    """int32: the text with the generator's samples at the masked positions."""
    is_fake_BL: Tensor
    """int32: 1 where the token differs from the text. A sample equal to the text's
    token has the label 0."""
