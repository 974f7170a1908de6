"""The in-graph encoding equals the Python encoding."""

import itertools

import pytest
import tensorflow as tf
from tokenizers import Tokenizer as FastTokenizer

from electra_tf.config.loader import load_config
from electra_tf.interop import huggingface
from electra_tf.serving.text_graph import GraphEncoder
from electra_tf.tasks.classifier import encode_texts
from electra_tf.text.tokenizer import WordPieceTokenizer


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
    inputs, cut_B = GraphEncoder(tokenizer).texts(
        max_length, *map(tf.constant, zip(*pairs, strict=True))
    )
    excess = [max(0, first + second - max_length + 3) for first, second in lengths]
    assert cut_B.numpy().tolist() == excess
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
