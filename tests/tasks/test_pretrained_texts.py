"""Texts in, vectors out: methods of pre-trained networks."""

import numpy as np
import pytest
from tiny import GOLDEN, texts

import electra_tf
from electra_tf.errors import InputError

VOCABULARY = str(GOLDEN / "vocab.txt")


@pytest.fixture(scope="module")
def encoder():
    return electra_tf.Encoder.from_preset("tiny", VOCABULARY, seed=1)


def test_a_vector_is_that_of_the_text_alone(encoder):
    """By hand, one text at a time without padding: order and padding have no effect."""
    rows, _ = texts(9, longest=40)
    rows.insert(3, "")
    ids = encoder.tokenizer.vocabulary.ids
    vectors = {
        arguments: encoder.embed(rows, *arguments, batch_size=4)
        for arguments in (("mean", -1), ("cls", -1), ("mean", 1), ("cls", 0))
    }
    for index, text in enumerate(rows):
        row = [ids["[CLS]"], *encoder.tokenizer.encode(text), ids["[SEP]"]]
        ids_1L = np.array([row])
        zeros, ones = np.zeros_like(ids_1L), np.ones_like(ids_1L)
        states = encoder(ids_1L, zeros, ones, output_hidden_states=True)
        for (pooling, layer), vectors_ND in vectors.items():
            state_LD = states["hidden_states"][layer][0].numpy()
            expected_D = state_LD.mean(0) if pooling == "mean" else state_LD[0]
            assert vectors_ND.dtype == np.float32
            np.testing.assert_allclose(vectors_ND[index], expected_D, atol=5e-6)


def test_pairs_arrays_and_empty_lists_are_taken(encoder):
    pairs = encoder.embed([("the cat", "a dog"), ("a", "b")])
    columns = encoder.embed((["the cat", "a"], ["a dog", "b"]))
    np.testing.assert_array_equal(pairs, columns)
    assert np.abs(pairs[0] - encoder.embed(["the cat a dog"])[0]).max() > 1e-3
    words = np.array(["the cat", "a"])
    np.testing.assert_array_equal(encoder.embed(words), encoder.embed(words.tolist()))
    assert encoder.embed([]).shape == (0, encoder.shape.width)


def test_long_texts_are_truncated_with_a_warning(encoder):
    with pytest.warns(UserWarning, match="1 of 2 texts were truncated to 8"):
        vectors = encoder.embed(["a b c d e f g h i", "a b"], max_length=8)
    expected = encoder.embed(["a b c d e f"])
    np.testing.assert_allclose(vectors[:1], expected, atol=5e-6)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"texts": "a text"}, "'a text' alone"),
        ({"texts": [3]}, "3 at index 0"),
        ({"pooling": "max"}, "mean or cls.*'max'"),
        ({"layer": 9}, "-3 to 2.*9"),
        ({"batch_size": 0}, "batch_size.*0"),
        ({"max_length": 10**6}, "max_length.*1000000"),
    ],
)
def test_invalid_arguments_are_errors(encoder, arguments, named):
    with pytest.raises(InputError, match=named):
        encoder.embed(**{"texts": ["a"], **arguments})


def test_an_encoder_without_tokenizer_is_an_error(encoder):
    with pytest.raises(InputError, match=r"Encoder\.from_preset"):
        electra_tf.Encoder(encoder.shape).embed(["a"])
