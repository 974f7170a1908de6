"""[MASK] in a text is the special token here, and nowhere else."""

import pytest
import tensorflow as tf

from electra_tf.serving.mask_preprocessing_graph import GraphMasks
from electra_tf.text.tokenizer import Tokenizer
from electra_tf.text.vocab import CLS, MASK, SEP

TEXTS = (
    "the [MASK] file",
    "[MASK]",
    "[MASK][MASK] of",
    "no mask",
    "",
    "[mask] [ MASK]",
)


def by_hand(tokenizer, text, longest):
    """Parts tokenised by themselves, a mask's id between each two of them."""
    special, ids = tokenizer.vocabulary.ids, []
    for number, part in enumerate(text.split(MASK)):
        ids += [special[MASK]] * (number > 0) + tokenizer.encode(part)
    return [special[CLS], *ids[: longest - 2], special[SEP]]


@pytest.mark.parametrize("longest", [4, 16])
def test_masks_stand_where_they_were_written(vocabulary, longest):
    tokenizer = Tokenizer(vocabulary)
    packed = tf.function(GraphMasks(tokenizer, longest).with_cut)
    found, cut_B = packed(tf.constant(TEXTS))
    whole = [by_hand(tokenizer, text, 99) for text in TEXTS]
    lost = [max(0, len(ids) - longest) for ids in whole]
    assert cut_B.numpy().tolist() == lost
    for row, text in enumerate(TEXTS):
        expected = by_hand(tokenizer, text, longest)
        rest = [0] * (found["token_ids"].shape[1] - len(expected))
        assert found["token_ids"][row].numpy().tolist() == expected + rest
        real = found["padding_mask"][row].numpy().tolist()
        assert real == [1] * len(expected) + rest
    assert not found["segment_ids"].numpy().any()
    masks = (found["token_ids"].numpy() == vocabulary.ids[MASK]).sum(axis=1)
    assert masks.tolist() == [1, 1, 2, 0, 0, 0]
    assert packed(tf.constant([], tf.string))[0]["token_ids"].shape[0] == 0


def test_too_many_positions_are_refused(vocabulary):
    packed = tf.function(GraphMasks(Tokenizer(vocabulary), 64).with_cut)
    few, many = (tf.constant([("[MASK] " * 70).encode()] * n) for n in (1024, 1025))
    assert packed(few)[0]["token_ids"].shape == [1024, 64]
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"\[1025\] \[64\]"):
        packed(many)
