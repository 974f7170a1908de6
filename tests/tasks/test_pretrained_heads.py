"""Texts in; vectors, replaced tokens and tokens for masks out."""

import warnings

import numpy as np
import pytest

import electra_tf
from electra_tf.errors import InputError
from tests.conftest import GOLDEN, RUN
from tests.tiny import texts

VOCABULARY = str(GOLDEN / "vocab.txt")
DISCRIMINATOR, GENERATOR = (
    str(GOLDEN / "interop" / f"huggingface_{name}")
    for name in ("discriminator", "generator")
)


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


def test_an_encoder_that_was_only_pre_trained_warns(tmp_path):
    encoder = electra_tf.Encoder.from_preset(DISCRIMINATOR)
    with pytest.warns(UserWarning, match="only pre-trained.*all-MiniLM-L6-v2"):
        encoder.embed(["a b"])
    electra_tf.TextRegressor.from_preset(DISCRIMINATOR).save(tmp_path / "m.keras")
    fine_tuned = electra_tf.Encoder.from_preset(tmp_path / "m.keras")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fine_tuned.embed(["a b"])


def test_long_texts_are_truncated_with_a_warning(encoder):
    with pytest.warns(UserWarning, match="1 of 2 texts were truncated to 8"):
        vectors = encoder.embed(["a b c d e f g h i", "a b"], max_length=8)
    expected = encoder.embed(["a b c d e f"])
    np.testing.assert_allclose(vectors[:1], expected, atol=5e-6)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"texts": "a text"}, "list.*'a text'"),
        ({"texts": [3]}, "3 at index 0"),
        ({"texts": {"a", "b"}}, "a set"),
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
    with pytest.raises(InputError, match="from_preset"):
        electra_tf.Encoder(encoder.shape).embed(["a"])


@pytest.fixture(scope="module")
def electra():
    return electra_tf.Electra.from_preset(RUN)


@pytest.fixture(scope="module")
def masked_lm():
    return electra_tf.MaskedLanguageModel.from_preset(RUN)


def test_replaced_tokens_have_the_probabilities_that_texts_are_scored_with(electra):
    rows = [*texts(3, longest=11, shortest=10)[0], "a"]
    scores = electra_tf.TextScorer.from_preset(RUN).score(rows)
    replaced = electra.replaced_tokens([*rows, ""], batch_size=2)
    assert replaced.pop() == []
    for tokens, (score, count) in zip(replaced, scores, strict=True):
        originality = np.log1p([-token.probability for token in tokens]).sum()
        assert (len(tokens), originality) == (count, pytest.approx(score, rel=1e-4))
    assert electra.replaced_tokens([]) == []


def test_tokens_have_the_characters_of_the_text(electra):
    family = "\N{MAN}\u200d\N{GIRL}"
    text = f"The {family} o\u0301f\r\n  \u0627\u0644 in,\ud800 and"
    (tokens,) = electra.replaced_tokens([text])
    covered = [text[token.start : token.end] for token in tokens]
    words = ["The", family, "o\u0301f", "\u0627\u0644", "in", ",", "and"]
    assert [c for c in covered if c in words] == words
    assert "".join(covered) == "".join(words)
    known = {"The": "the", "o\u0301f": "of", "in": "in", "and": "and"}
    for token, part in zip(tokens, covered, strict=True):
        assert token.token in (known.get(part, "[UNK]"), part, f"##{part}")


def test_masks_are_filled_with_the_most_likely_tokens(masked_lm):
    """By hand, from the logits of each text alone."""
    rows = ["the [MASK] of a", "[MASK]", "a [MASK] and to the of in [MASK]."]
    tokenizer = masked_lm.encoder.tokenizer
    entries, special = tokenizer.vocabulary.tokens, tokenizer.vocabulary.ids
    results = masked_lm.fill_mask(rows, top_k=3, batch_size=2)
    for text, result in zip(rows, results, strict=True):
        ids = [special["[CLS]"]]
        for number, part in enumerate(text.split("[MASK]")):
            ids += [special["[MASK]"]] * bool(number) + tokenizer.encode(part)
        ids_1L = np.array([[*ids, special["[SEP]"]]])
        positions = np.flatnonzero(ids_1L[0] == special["[MASK]"])
        inputs = {
            "token_ids": ids_1L,
            "segment_ids": np.zeros_like(ids_1L),
            "padding_mask": np.ones_like(ids_1L),
        }
        logits_MV = masked_lm(inputs, positions=positions[None])[0].numpy()
        powers_MV = np.exp(logits_MV - logits_MV.max(-1, keepdims=True))
        by_mask = [result] if len(positions) == 1 else result
        for slot, proposals in enumerate(by_mask):
            p_V = powers_MV[slot] / powers_MV[slot].sum()
            best = np.argsort(-p_V)[:3]
            assert [p.token for p in proposals] == [entries[i] for i in best]
            values = [p.probability for p in proposals]
            np.testing.assert_allclose(values, p_V[best], rtol=1e-4)
        parts = text.split("[MASK]")
        filled = by_mask[-1][0].token.removeprefix("##").join(parts[-2:])
        assert by_mask[-1][0].text == "[MASK]".join([*parts[:-2], filled])
    alone = masked_lm.fill_mask(rows[0], top_k=1)
    assert [p[:1] for p in alone] == [p[:1] for p in results[0][:1]]


def test_networks_load_from_a_run_and_from_other_libraries(electra, masked_lm):
    generator = [weight.numpy() for weight in electra.generator.weights]
    for weight, expected in zip(masked_lm.weights, generator, strict=True):
        np.testing.assert_array_equal(weight, expected)
    assert electra.generator.fill_mask("[MASK]") == masked_lm.fill_mask("[MASK]")
    assert masked_lm.from_config(masked_lm.get_config()).name == masked_lm.name
    pair = electra_tf.Electra.from_preset(f"{DISCRIMINATOR},{GENERATOR}", name="pair")
    alone = electra_tf.Electra.from_preset(
        DISCRIMINATOR, dtype="mixed_bfloat16", trainable=False
    )
    assert (pair.name, alone.generator, alone.trainable_variables) == ("pair", None, [])
    assert alone.encoder.compute_dtype == "bfloat16"
    for cls, path in ("Electra", GENERATOR), ("MaskedLanguageModel", DISCRIMINATOR):
        with pytest.raises(InputError, match=r"Load|load .*from_preset"):
            getattr(electra_tf, cls).from_preset(path)


@pytest.mark.parametrize(
    ("texts", "named"),
    [("[mask]", "index 0, '.mask.'"), (["[MASK]", 3], "3 at index 1"),
     ("[MASK] " * 999, "index 0.*999")],
)  # fmt: skip
def test_invalid_texts_with_masks_are_errors(masked_lm, texts, named):
    with pytest.raises(InputError, match=named):
        masked_lm.fill_mask(texts)
