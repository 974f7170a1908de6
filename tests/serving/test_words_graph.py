"""Words, parts, tags and entities in the graph equal those of `TokenClassifier`."""

import functools
import random

import pytest
import tensorflow as tf

from electra_tf.serving.export_options import LIMITS, RequestLimits
from electra_tf.serving.text_graph import GraphWords, split_words
from electra_tf.tasks.graph_spans import GraphSpans
from electra_tf.tasks.token_classifier import TokenClassifier
from electra_tf.text.tokenizer import WordPieceTokenizer
from tests import tiny

TAGS = ("A", "B", "C", "D")
WORDS = (
    *("the", "file", "configuration", "ΟΔΟΣ", "中文", "café", "x", "e.g.", "\u200b"),
    *("unaffable" * 9, "a" * 201, "\0", "\u0301"),
)
SPACES = (" ", "  ", "\u3000", "\n", "\x1c", "\x85", "\xa0", " \t")


def texts(count=40, seed=0):
    rng = random.Random(seed)
    lines = []
    for _ in range(count):
        words = rng.choices(WORDS, k=rng.randint(0, 25))
        lines.append("".join(word + rng.choice(SPACES) for word in words))
    return [*lines, "", " ", "the", " \u2003of\r"]


@functools.cache
def served(max_length, segment):
    """Return a tagger, and a graph that maps strings to inputs and tags."""
    changes = {"data_max_length": max_length, "data_tagging_segment": segment}
    settings = tiny.settings(**changes, **tiny.NO_DROPOUT)
    model = TokenClassifier(tiny.start(128), TAGS, settings)
    words = GraphWords(model.tokenizer, max_length, segment)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def serve(text_B):
        split = split_words(text_B)
        inputs, parts = words(split)
        tags = words.tags(model(inputs), parts)
        labels = split.with_values(GraphSpans(TAGS).labels(tags)).to_tensor()
        return inputs, {"words": split.to_tensor(), "labels": labels}

    return model, serve


def rows(array):
    """Return the strings of each row without padding."""
    return [[x.decode() for x in row if x] for row in array.numpy()]


def test_split_words_equals_str_split_at_every_code_point():
    codes = (code for code in range(0x110000) if not 0xD800 <= code < 0xE000)
    text = "a".join(chr(c) for c in codes if c < 0x3100 or c % 64 == 0 or c > 0xFFF00)
    cases = [text, "", " ", "\0a \0 b", "\u3000a\x1f"]
    split = split_words(tf.constant(cases)).to_list()
    assert [[w.decode() for w in words] for words in split] == [
        case.split() for case in cases
    ]
    assert len(split[0]) == 30  # there are 29 white space characters


@pytest.mark.filterwarnings("ignore:.*inputs were cut")
@pytest.mark.parametrize(("max_length", "segment"), [(8, 0), (128, 1)])
def test_tags_equal_those_of_predict(max_length, segment):
    model, serve = served(max_length, segment)
    lines = texts()
    inputs, outputs = serve(tf.constant(lines))
    split = [text.split() for text in lines]
    assert rows(outputs["words"]) == split
    labels = rows(outputs["labels"])
    assert labels == model.predict(split)
    assert len({label for row in labels for label in row}) > 1
    examples = model.examples(split)
    lengths = inputs["padding_mask"].numpy().sum(1)
    assert lengths.tolist() == [len(ids) for ids in examples.ids]
    assert inputs["token_ids"].shape[1] == max(lengths)
    for name, expected in (("token_ids", "ids"), ("segment_ids", "segments")):
        flat = inputs[name].numpy()[inputs["padding_mask"].numpy() == 1]
        assert flat.tolist() == [x for row in getattr(examples, expected) for x in row]
        assert inputs[name].numpy().sum() == flat.sum()  # 0 at padding


def test_empty_requests_and_invalid_bytes_have_outputs():
    model, serve = served(16, 1)
    for lines, shape in (([], (0, 0)), ([b"", b" "], (2, 0)), ([b"\xff"], (1, 0))):
        inputs, outputs = serve(tf.constant(lines, tf.string))
        assert all(array.shape == (0, 1) for array in inputs.values())
        assert all(array.shape == shape for array in outputs.values())
    _, outputs = serve(tf.constant([b"the\xff \xe2\x80 of\0 \xc0\xaf"]))
    assert rows(outputs["words"]) == [["the", "of\0"]]
    assert rows(outputs["labels"]) == model.predict([["the", "of\0"]])


def test_a_too_large_response_is_an_error(vocabulary):
    pack = GraphWords(WordPieceTokenizer(vocabulary), 16, 0)
    words = tf.function(lambda text_B: pack(split_words(text_B)))
    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        words(tf.constant([""] * 2000 + ["the " * 8000]))
    assert f"at most {LIMITS.words} words" in str(error.value)
    assert "[2001] [8000]" in str(error.value)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"\[32768\] \[65536\]"):
        words(tf.constant([""] * (2**15 - 1) + ["x " * 2**16]))  # 2^31 words


def test_a_request_of_too_many_parts_is_an_error(vocabulary):
    limits = RequestLimits(positions=300)
    pack = GraphWords(WordPieceTokenizer(vocabulary), 16, 0, limits)
    words = tf.function(lambda text_B: pack(split_words(text_B)))
    assert len(words(tf.constant(["the"] * 100))[0]["token_ids"]) == 100
    with pytest.raises(tf.errors.InvalidArgumentError, match="300 positions"):
        words(tf.constant(["the"] * 101))
    # A long sentence has several parts, the longest of 16 positions.
    longest = 18 * 14  # 18 parts of 14 words
    assert len(words(tf.constant(["the " * longest]))[0]["token_ids"]) == 18
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"\[19\] \[16\]"):
        words(tf.constant(["the " * (longest + 1)]))
