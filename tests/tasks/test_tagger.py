"""`TokenClassifier`: training, prediction, saving and errors."""

import json
import zipfile

import keras
import numpy as np
import pytest
import tiny

from electra_tf.errors import InputError
from electra_tf.tasks.conll import Sentence
from electra_tf.tasks.examples import IGNORE_LABEL
from electra_tf.tasks.schemes import to_scheme
from electra_tf.tasks.tagger import TokenClassifier

TAGS = ("A", "B", "C")
TAG_BY_WORD = {"the": "A", "of": "B"}


def sentences(count=24, seed=0):
    rng = np.random.default_rng(seed)
    texts = [
        rng.choice(["the", "of", "in", "and"], rng.integers(1, 14)).tolist()
        for _ in range(count)
    ]
    return texts, [[TAG_BY_WORD.get(word, "C") for word in words] for words in texts]


WORDS, GOLD = sentences()


@pytest.fixture(scope="module")
def model():
    """Return a trained tagger whose inputs have room for six words."""
    settings = tiny.settings(data_max_length=8, training_epochs=20, **tiny.NO_DROPOUT)
    model = TokenClassifier(tiny.start(), TAGS, settings)
    model.compile(keras.optimizers.Adam(5e-3))
    model.fit(WORDS, GOLD, verbose=0)
    return model


def test_predict_returns_a_tag_for_every_word(model):
    assert max(map(len, WORDS)) > 12  # needs three inputs
    assert model.predict(WORDS) == GOLD
    assert model.predict(WORDS[::-1], batch_size=5) == GOLD[::-1]
    assert model.predict([["the"], []]) == [["A"], []]


def test_loss_uses_first_wordpieces_only(model):
    pieces = model.tokenizer.encode("unaffable")
    assert len(pieces) > 1
    sentence = ["the", "unaffable", "of"][: 2 if len(pieces) > 4 else 3]
    examples = model.examples([sentence], [["A", "C", "B"][: len(sentence)]])
    row = examples.targets[0]
    assert [tag for tag in row if tag != IGNORE_LABEL] == [0, 2, 1][: len(sentence)]
    assert row[0] == IGNORE_LABEL
    assert row[3] == IGNORE_LABEL  # second wordpiece of a word
    inputs, tags_BL, _ = examples.batch([0], 1)
    logits_BLC = model.predict(inputs, verbose=0)[0].astype(np.float64)
    labelled_L = tags_BL[0] != IGNORE_LABEL
    probabilities_LC = np.exp(logits_BLC) / np.exp(logits_BLC).sum(-1, keepdims=True)
    label_probabilities = probabilities_LC[labelled_L, tags_BL[0][labelled_L]]
    expected = -np.log(label_probabilities).mean()
    metrics = model.evaluate([sentence], [["A", "C", "B"][: len(sentence)]], verbose=0)
    assert metrics[0] == pytest.approx(expected, rel=1e-4)


def test_predict_accepts_sentences_of_files(model):
    sentences = [Sentence(tuple(words), None, "file", 1) for words in WORDS]
    assert model.predict(sentences) == GOLD


def test_a_saved_tagger_loads(model, tmp_path):
    model.save(tmp_path / "model.keras")
    other = keras.saving.load_model(tmp_path / "model.keras")
    assert other.tags == TAGS
    assert other.predict(WORDS) == GOLD
    with zipfile.ZipFile(tmp_path / "model.keras") as file:
        config = json.loads(file.read("config.json"))
    assert config["registered_name"] == "electra_tf>TokenClassifier"


def test_the_registered_name_of_release_0_1_loads(model):
    stored = keras.saving.serialize_keras_object(model) | {
        "module": "electra_tf.tasks.tagger",
        "class_name": "TextTagger",
        "registered_name": "electra_tf>TextTagger",
    }
    assert type(keras.saving.deserialize_keras_object(stored)) is TokenClassifier


def test_predictions_have_the_configured_scheme(tmp_path):
    tags = ("B-A", "E-A", "I-A", "O", "S-A")
    model = TokenClassifier(tiny.start(), tags, tiny.settings(), scheme="IOB2")
    plain = TokenClassifier(tiny.start(), tags, tiny.settings())
    for variable, value in zip(plain.weights, model.weights, strict=True):
        variable.assign(value)
    bioes = plain.predict(WORDS)
    assert {tag[0] for tags in bioes for tag in tags} & {"E", "S"}
    expected = [to_scheme(tags, "IOB2") for tags in bioes]
    assert model.predict(WORDS) == expected
    assert model.clone_with_seed(tiny.start(), 1).scheme == "IOB2"
    model.save(tmp_path / "model.keras")
    assert keras.saving.load_model(tmp_path / "model.keras").predict(WORDS) == expected
    old = model.get_config()
    del old["scheme"]  # release 0.1 did not save it
    assert TokenClassifier.from_config(old).scheme == "BIOES"
    with pytest.raises(InputError, match="'BILOU'"):
        TokenClassifier(tiny.start(), tags, tiny.settings(), scheme="BILOU")


@pytest.mark.parametrize(
    ("words", "tags", "message"),
    [
        (["the of"], [["A"]], "'the of' at index 0"),
        ([["the", "of"]], [["A"]], "2 words and 1 tags at index 0"),
        ([Sentence(("the", "of"), None, "f", 1)], [["A"]], "2 words and 1 tags"),
        ([["the"], ["of"]], [["A"]], "2 sentences and 1 lists"),
        ([["the"]], [["X"]], "'X'"),
    ],
)
def test_sentences_and_tags_of_different_lengths_are_an_error(
    model, words, tags, message
):
    with pytest.raises(InputError, match=message):
        model.examples(words, tags)


@pytest.mark.parametrize("tags", [(), ("A", "A")])
def test_missing_or_repeated_tags_are_an_error(tags):
    with pytest.raises(InputError, match=r"Received: \("):
        TokenClassifier(tiny.start(), tags, tiny.settings())
