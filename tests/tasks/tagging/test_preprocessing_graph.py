"""Words, parts and tags in the graph are those of the tagger."""

import functools
import random

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.errors import InputError
from electra_tf.tasks.request_limits import MAX_PARTS
from electra_tf.tasks.tagging.model import TokenClassifier
from electra_tf.tasks.tagging.preprocessing_graph import (
    MAX_WORDS,
    GraphWords,
    opens_part,
    split_words,
)
from electra_tf.text.tokenizer import Tokenizer
from tasks import tiny

TAGS = ("A", "B", "C", "D")
WORDS = (
    *("the", "file", "configuration", "ΟΔΟΣ", "中文", "café", "x", "e.g.", "\u200b"),
    *("unaffable" * 9, "a" * 201, "\0", "\u0301"),
)
SPACES = (" ", "  ", "\u3000", "\n", "\x1c", "\x85", "\xa0", " \t")


def texts(count=40, seed=0):
    rng = random.Random(seed)
    made = []
    for _ in range(count):
        words = rng.choices(WORDS, k=rng.randint(0, 25))
        made.append("".join(word + rng.choice(SPACES) for word in words))
    return [*made, "", " ", "the", " \u2003of\r"]


@functools.cache
def served(max_length, segment):
    """A tagger and what a signature does: strings in, inputs and tags out."""
    changes = {"data_max_length": max_length, "data_tagging_segment": segment}
    settings = tiny.settings(**changes, **tiny.NO_DROPOUT)
    model = TokenClassifier(tiny.start(128), TAGS, settings)
    words = GraphWords(model.tokenizer, max_length, segment)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def serve(text_B):
        inputs, parts = words(text_B)
        return inputs, words.tags(model(inputs), parts, TAGS)

    return model, serve


def rows(array):
    """Strings of each row, without the padding."""
    return [[x.decode() for x in row if x] for row in array.numpy()]


def test_words_are_those_of_str_split_at_every_code_point():
    codes = (code for code in range(0x110000) if not 0xD800 <= code < 0xE000)
    text = "a".join(chr(c) for c in codes if c < 0x3100 or c % 64 == 0 or c > 0xFFF00)
    cases = [text, "", " ", "\0a \0 b", "\u3000a\x1f"]
    found = split_words(tf.constant(cases)).to_list()
    assert [[w.decode() for w in words] for words in found] == [
        case.split() for case in cases
    ]
    assert len(found[0]) == 30  # at each of 29 characters


def test_a_part_ends_before_the_first_word_that_does_not_fit():
    words = tf.ragged.constant([[2, 2, 1], [], [9, 1, 4, 4, 5], [5]], dtype=tf.int32)
    found = opens_part(words.values, words, 5).numpy().astype(int).tolist()
    assert found == [1, 0, 0, *[1, 1, 0, 1, 1], 1]
    # As many parts as words: the steps double, so a few passes reach them all.
    many = tf.RaggedTensor.from_row_lengths(tf.fill([5000], 3), [4000, 1000])
    assert opens_part(many.values, many, 3).numpy().all()
    assert not opens_part(many.values, many, 3000 * 6).numpy()[1:4000].any()


@pytest.mark.parametrize(("max_length", "segment"), [(8, 0), (16, 1), (128, 0)])
def test_tags_equal_those_of_predict(max_length, segment):
    model, serve = served(max_length, segment)
    given = texts()
    inputs, said = serve(tf.constant(given))
    split = [text.split() for text in given]
    assert rows(said["words"]) == split
    labels = rows(said["labels"])
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


def test_probabilities_are_of_the_returned_label(vocabulary):
    words = GraphWords(Tokenizer(vocabulary), 4, 0)  # two pieces, here words, a part
    inputs, parts = words(tf.constant(["the of the", "of"]))
    assert inputs["token_ids"].shape == (3, 4)
    draw = np.random.default_rng(0)
    logits_PLC = draw.normal(size=(3, 4, 4)).astype(np.float32)
    said = words.tags(tf.constant(logits_PLC), parts, TAGS)
    places = [[(0, 1), (0, 2), (1, 1)], [(2, 1)]]
    for row, asked in enumerate(places):
        for column, place in enumerate(asked):
            powers = np.exp(logits_PLC[place].astype(np.float64))
            assert said["labels"].numpy()[row, column] == TAGS[powers.argmax()].encode()
            wanted = powers.max() / powers.sum()
            found = float(said["probabilities"][row, column])
            assert found == pytest.approx(wanted, 1e-5)
    assert said["words"].numpy()[1].tolist() == [b"of", b"", b""]
    assert said["labels"].numpy()[1, 1:].tolist() == [b"", b""]
    assert said["probabilities"].numpy()[1, 1:].tolist() == [0, 0]


def test_no_rows_no_words_and_bad_bytes_are_answered():
    model, serve = served(16, 1)
    for given, shape in (([], (0, 0)), ([b"", b" "], (2, 0)), ([b"\xff"], (1, 0))):
        inputs, said = serve(tf.constant(given, tf.string))
        assert all(array.shape == (0, 2) for array in inputs.values())
        assert all(array.shape == shape for array in said.values())
    _, said = serve(tf.constant([b"the\xff \xe2\x80 of\0 \xc0\xaf"]))
    assert rows(said["words"]) == [["the", "of\0"]]
    assert rows(said["labels"]) == model.predict([["the", "of\0"]])


def test_bad_arguments_are_rejected(vocabulary):
    with pytest.raises(InputError, match=r"max_length .* Received: 2"):
        GraphWords(Tokenizer(vocabulary), 2, 0)
    words = GraphWords(Tokenizer(vocabulary), 8, 0)
    _, parts = words(tf.constant(["the"]))
    with pytest.raises(InputError, match="4 names and 3 logits"):
        words.tags(tf.zeros([1, 3, 3]), parts, TAGS)


def test_an_answer_that_is_too_large_is_refused(vocabulary):
    words = tf.function(GraphWords(Tokenizer(vocabulary), 16, 0).__call__)
    with pytest.raises(tf.errors.InvalidArgumentError) as found:
        words(tf.constant([""] * 2000 + ["the " * 8000]))
    assert f"at most {MAX_WORDS} words" in str(found.value)
    assert "[2001] [8000]" in str(found.value)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"\[32768\] \[65536\]"):
        words(tf.constant([""] * (2**15 - 1) + ["x " * 2**16]))  # 2^31 in all


def test_a_request_of_too_many_parts_is_refused(vocabulary):
    words = tf.function(GraphWords(Tokenizer(vocabulary), 16, 0).__call__)
    assert len(words(tf.constant(["the"] * MAX_PARTS))[0]["token_ids"]) == MAX_PARTS
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"{MAX_PARTS} parts"):
        words(tf.constant(["the"] * (MAX_PARTS + 1)))
