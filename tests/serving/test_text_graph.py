"""The in-graph encoding equals the Python encoding."""

import itertools
import random

import numpy as np
import pytest
import tensorflow as tf
from tokenizers import Tokenizer as FastTokenizer

from electra_tf.config.loader import load_config
from electra_tf.interop import huggingface
from electra_tf.serving.text_graph import GraphInputs, GraphMasks
from electra_tf.tasks.classifier import encode_texts
from electra_tf.text.tokenizer import WordPieceTokenizer
from electra_tf.text.vocab import CLS, MASK, SEP

WORDS = ["the", "file", "configuration", "ΟΔΟΣ", "中文", "café", "x", ",", "\u200b"]


def texts(count, seed=0):
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randint(0, 30))) for _ in range(count)]


@pytest.mark.parametrize("max_length", [8, 128])
def test_single_texts_and_pairs_equal_the_python_encoding(vocabulary, max_length):
    tokenizer = WordPieceTokenizer(vocabulary)
    encode = tf.function(GraphInputs(tokenizer, max_length).__call__)
    first, second = texts(200), texts(200, seed=1)
    for rows in (first, list(zip(first, second, strict=True))):
        columns = [rows] if rows is first else [first, second]
        inputs, _ = encode(*map(tf.constant, columns))
        examples = encode_texts(tokenizer, rows, max_length)
        expected, *_ = examples.batch(range(200), 200)
        for name, array in expected.items():
            array = array[:, : max(examples.lengths)]
            np.testing.assert_array_equal(inputs[name].numpy(), array, name)


def client_pair(tokenizer, first, second, max_length):
    """Return the ids and segments of a pair as docs/how_to has a client cut it."""
    first, second = (
        tokenizer.encode(text, add_special_tokens=False) for text in (first, second)
    )
    room = max_length - 3
    kept = min(len(first), max(room - len(second), (room + 1) // 2))
    first.truncate(kept)
    second.truncate(room - kept)
    row = tokenizer.post_process(first, second)
    return row.ids, row.type_ids


@pytest.mark.parametrize("max_length", [5, 8, 15, 16])
def test_pairs_of_all_lengths_in_python_the_graph_and_tokenizer_json(
    vocabulary, max_length, tmp_path
):
    """The library's own truncation gives the odd position to the second text."""
    tokenizer = WordPieceTokenizer(vocabulary)
    shape = load_config("tiny", [f"model.vocabulary_size={len(vocabulary)}"])
    huggingface.write_tokenizer(tokenizer, shape.model.encoder, str(tmp_path))
    theirs = FastTokenizer.from_file(str(tmp_path / huggingface.TOKENIZER))
    lengths = list(itertools.product(range(max_length + 4), repeat=2))
    pairs = [("the " * first, "file " * second) for first, second in lengths]
    inputs, _ = GraphInputs(tokenizer, max_length)(
        *map(tf.constant, zip(*pairs, strict=True))
    )
    examples = encode_texts(tokenizer, pairs, max_length)
    ours = list(zip(examples.ids.tolist(), examples.segments.tolist(), strict=True))
    for row, (ids, segments) in enumerate(ours):
        assert inputs["token_ids"][row, : len(ids)].numpy().tolist() == ids
        assert inputs["segment_ids"][row, : len(ids)].numpy().tolist() == segments
        assert client_pair(theirs, *pairs[row], max_length) == (ids, segments)
    theirs.enable_truncation(max_length)
    encoded = [theirs.encode(*pair) for pair in pairs]
    differing = {
        length
        for length, row, (ids, segments) in zip(lengths, encoded, ours, strict=True)
        if (row.ids, row.type_ids) != (ids, segments)
    }
    half = (max_length - 3) // 2
    is_odd = (max_length - 3) % 2
    assert differing == {(a, b) for a, b in lengths if is_odd and half < a <= b}


MASKED = (
    "the [MASK] file",
    "[MASK]",
    "[MASK][MASK] of",
    "no mask",
    "",
    "[mask] [ MASK]",
)


def masked_ids(tokenizer, text, max_length):
    """Return the ids of the segments between masks, joined by the id of [MASK]."""
    special, ids = tokenizer.vocabulary.ids, []
    for number, segment in enumerate(text.split(MASK)):
        ids += [special[MASK]] * (number > 0) + tokenizer.encode(segment)
    return [special[CLS], *ids[: max_length - 2], special[SEP]]


@pytest.mark.parametrize("max_length", [4, 16])
def test_masks_are_special_tokens(vocabulary, max_length):
    tokenizer = WordPieceTokenizer(vocabulary)
    encode = tf.function(GraphMasks(tokenizer, max_length).__call__)
    inputs, cut_B = encode(tf.constant(MASKED))
    lengths = [len(masked_ids(tokenizer, text, 99)) for text in MASKED]
    assert cut_B.numpy().tolist() == [max(0, n - max_length) for n in lengths]
    for row, text in enumerate(MASKED):
        expected = masked_ids(tokenizer, text, max_length)
        padding = [0] * (inputs["token_ids"].shape[1] - len(expected))
        assert inputs["token_ids"][row].numpy().tolist() == expected + padding
        mask = inputs["padding_mask"][row].numpy().tolist()
        assert mask == [1] * len(expected) + padding
    assert not inputs["segment_ids"].numpy().any()
    assert encode(tf.constant([], tf.string))[0]["token_ids"].shape[0] == 0


@pytest.mark.parametrize(("graph", "word"), [(GraphInputs, "the "), (GraphMasks, MASK)])
def test_too_many_positions_are_an_error(vocabulary, graph, word):
    encode = tf.function(graph(WordPieceTokenizer(vocabulary), 64).__call__)
    few, many = (tf.constant([(word * 70).encode()] * rows) for rows in (1024, 1025))
    assert encode(few)[0]["token_ids"].shape == [1024, 64]
    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        encode(many)
    assert "at most 65536 positions" in str(error.value)
    assert "[1025] [64]" in str(error.value)
