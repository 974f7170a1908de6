"""Every kind of model learns, predicts in any order and batches, and is saved."""

import functools

import keras
import numpy as np
import pytest

import electra_tf
from electra_tf.tasks.choice_classifier import ChoiceClassifier
from electra_tf.tasks.classifier import TextClassifier, TextRegressor
from electra_tf.tasks.question_answerer import QuestionAnswerer
from electra_tf.tasks.spans import QAPrediction
from electra_tf.tasks.token_classifier import TokenClassifier
from tests import tiny

DRAW = np.random.default_rng(0)
TEXTS, LABELS = tiny.texts(24, longest=11, shortest=10)
WORDS = [
    DRAW.choice(["the", "of", "in", "and"], DRAW.integers(1, 14)).tolist()
    for _ in range(24)
]
TAGS = [[{"the": "A", "of": "B"}.get(word, "C") for word in row] for row in WORDS]


def pairs():
    """Return pairs and answers: `the`, or None for every other pair."""
    contexts = [DRAW.choice(tiny.FILLERS, DRAW.integers(3, 20)) for _ in range(24)]
    for words in contexts[1::2]:
        words[DRAW.integers(len(words))] = "the"
    contexts = [" ".join(words) for words in contexts]
    answers = [("the", t.index("the")) if "the" in t else None for t in contexts]
    return [("of", text) for text in contexts], answers


def choices():
    """Return texts that begin with a word, with choices of which one ends with it."""
    words, rows = ["the", "of", "and", "in", "file", "user"], []
    for number in range(24):
        word = words[number % 6]
        ends = [*DRAW.permutation([w for w in words if w != word])[:2]]
        ends.insert(number % 3, word)
        rows.append((f"{word} can", [f"is {end}" for end in ends]))
    return rows, [number % 3 for number in range(24)]


# Sentences and contexts need several inputs.
TAGGING = {"data_max_length": 8}
ANSWERS = {"data_max_length": 16, "data_doc_stride": 6, "model_start_n_top": 4}
KINDS = {  # class and arguments, settings, inputs, targets
    "classes": (TextClassifier, {"labels": ["bad", "good"]}, {}, TEXTS, LABELS),
    "scores": (TextRegressor, {"low": 1, "high": 5}, {}, TEXTS,
               [1.0 + 4 * label for label in LABELS]),
    "tags": (TokenClassifier, {"tags": [*"ABC"]}, TAGGING, WORDS, TAGS),
    "answers": (QuestionAnswerer, {"null_threshold": 0.0}, ANSWERS, *pairs()),
    "choices": (ChoiceClassifier, {"num_choices": 3}, {}, *choices()),
}  # fmt: skip


@functools.cache
def trained(kind):
    """Return a trained model, inputs and targets."""
    cls, arguments, changes, x, y = KINDS[kind]
    settings = tiny.settings(**tiny.NO_DROPOUT, **changes)
    model = cls(tiny.start(), **arguments, settings=settings)
    model.compile(keras.optimizers.Adam(5e-3))
    model.fit(x, y, epochs=40, verbose=0)
    return model, x, y


def right(kind, predictions, targets):
    """Return whether each prediction is right."""
    if kind == "scores":
        return np.abs(predictions - targets) < 1
    if kind == "answers":
        targets = [answer[0] if answer else "" for answer in targets]
    elif kind != "tags":
        predictions = np.argmax(predictions, -1)
    return np.array([p == t for p, t in zip(predictions, targets, strict=True)])


def assert_close(one, other):
    if isinstance(one, list):
        assert one == other
    else:
        np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_learns_and_is_saved(kind, tmp_path):
    model, x, y = trained(kind)
    predictions = model.predict(x)
    assert np.mean(right(kind, predictions, y)) > 0.9
    assert_close(model.predict(x[::-1], batch_size=5)[::-1], predictions)
    path = tmp_path / "model.keras"
    model.save(path)
    for load in (electra_tf.load_model, type(model).from_preset):
        other = load(path)
        for name in model.own_arguments:
            assert getattr(other, name) == getattr(model, name)
        assert_close(other.predict(x), predictions)


def test_inputs_are_as_many_as_a_text_needs():
    for kind in ("tags", "answers"):
        model, x, y = trained(kind)
        assert len(model.examples(x, y)) > len(x)
    assert trained("tags")[0].predict([["the"], []]) == [["A"], []]


def test_null_threshold_selects_the_empty_answers():
    model, x, y = trained("answers")
    best = model.predict_nbest(x)
    assert all(isinstance(one, QAPrediction) for one in best)
    texts = [one.text for one in best]
    assert texts[1::2] == ["the"] * 12
    expected = ["the" if answer else "" for answer in y]
    for threshold, answers in ((-1e9, [""] * 24), (1e9, texts), (None, texts)):
        model.null_threshold = threshold
        assert model.predict(x) == answers
    model.null_threshold = 0.0
    assert model.predict(x) == expected
