"""The nouns that travel from the input to the loss, and the legend of shapes.

A tensor's name ends with the letters of its axes, outermost first:

    B  batch (rows)            L  length (positions of a row)
    M  masked positions        D  width of the encoder
    E  width of the embedding  N  attention heads
    H  width of a head         F  width of the feed-forward layer
    V  vocabulary              K  keys (positions attended to)
    X  rows and positions in one axis

`input_ids_BL[b, l]` is the token id at position l of row b.
"""

from typing import Any, NamedTuple

Tensor = Any  # a tf.Tensor or a NumPy array; this floor imports neither


class Batch(NamedTuple):
    """Rows of packed text, before masking. All int32, all of one static shape.

    A row that only fills up the last batch of an evaluation is all zero: its mask
    gives every one of its positions the weight 0, in each loss and each metric.
    """

    input_ids_BL: Tensor
    """Token ids: [CLS] A [SEP], or [CLS] A [SEP] B [SEP]; 0 beyond the end."""
    input_mask_BL: Tensor
    """1 at real tokens, 0 at padding."""
    segment_ids_BL: Tensor
    """0 in [CLS] A [SEP] and at padding, 1 in B [SEP]."""


class MaskedBatch(NamedTuple):
    """A batch and the positions the generator fills in."""

    input_ids_BL: Tensor
    """The text as it is."""
    input_mask_BL: Tensor
    """As in `Batch`."""
    segment_ids_BL: Tensor
    """As in `Batch`."""
    masked_ids_BL: Tensor
    """What the generator reads: [MASK] at the masked positions."""
    positions_BM: Tensor
    """int32: the masked positions; 0 in slots that a row does not use."""
    labels_BM: Tensor
    """int32: the tokens of the text there; 0 in unused slots."""
    weights_BM: Tensor
    """float32: 1 in used slots, else 0."""


class CorruptedBatch(NamedTuple):
    """What the discriminator reads and what it should say."""

    corrupted_ids_BL: Tensor
    """int32: the text with the generator's samples at the masked positions."""
    is_fake_BL: Tensor
    """int32: 1 where the token differs from the text's; a sample that happens to be
    right is real."""
