"""Test texts with [MASK] in a graph."""

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


def expected_ids(tokenizer, text, max_length):
    """Return the ids of the segments between masks, joined by the id of [MASK]."""
    special, ids = tokenizer.vocabulary.ids, []
    for number, segment in enumerate(text.split(MASK)):
        ids += [special[MASK]] * (number > 0) + tokenizer.encode(segment)
    return [special[CLS], *ids[: max_length - 2], special[SEP]]


@pytest.mark.parametrize("max_length", [4, 16])
def test_masks_are_special_tokens(vocabulary, max_length):
    tokenizer = Tokenizer(vocabulary)
    preprocess = tf.function(GraphMasks(tokenizer, max_length).with_cut)
    inputs, cut_B = preprocess(tf.constant(TEXTS))
    lengths = [len(expected_ids(tokenizer, text, 99)) for text in TEXTS]
    assert cut_B.numpy().tolist() == [max(0, n - max_length) for n in lengths]
    for row, text in enumerate(TEXTS):
        expected = expected_ids(tokenizer, text, max_length)
        padding = [0] * (inputs["token_ids"].shape[1] - len(expected))
        assert inputs["token_ids"][row].numpy().tolist() == expected + padding
        mask = inputs["padding_mask"][row].numpy().tolist()
        assert mask == [1] * len(expected) + padding
    assert not inputs["segment_ids"].numpy().any()
    masks = (inputs["token_ids"].numpy() == vocabulary.ids[MASK]).sum(axis=1)
    assert masks.tolist() == [1, 1, 2, 0, 0, 0]
    assert preprocess(tf.constant([], tf.string))[0]["token_ids"].shape[0] == 0


def test_too_many_positions_are_rejected(vocabulary):
    preprocess = tf.function(GraphMasks(Tokenizer(vocabulary), 64).with_cut)
    few, many = (tf.constant([("[MASK] " * 70).encode()] * n) for n in (1024, 1025))
    assert preprocess(few)[0]["token_ids"].shape == [1024, 64]
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"\[1025\] \[64\]"):
        preprocess(many)
