"""Tests of the question answering model."""

import math

import keras
import numpy as np
import pytest

from electra_tf.errors import InputError
from electra_tf.tasks.question_answerer import QuestionAnswerer
from electra_tf.tasks.spans import QAPrediction
from tests import tiny


def make_pairs(count=24, seed=0):
    """Return pairs and answers: `the`, or None for every other pair."""
    draw = np.random.default_rng(seed)
    pairs, gold = [], []
    for number in range(count):
        words = draw.choice(tiny.FILLERS, draw.integers(3, 20)).tolist()
        if number % 2:
            words[draw.integers(len(words))] = "the"
        context = " ".join(words)
        pairs.append(("of", context))
        gold.append(("the", context.index("the")) if number % 2 else None)
    return pairs, gold


PAIRS, GOLD = make_pairs()


@pytest.fixture(scope="module")
def model():
    """Return a trained model whose windows have room for 12 words of the context."""
    changes = {"data_max_length": 16, "data_doc_stride": 6, "model_start_n_top": 4}
    settings = tiny.settings(training_epochs=20, **changes, **tiny.NO_DROPOUT)
    model = QuestionAnswerer(tiny.start(), 0.0, settings)
    model.compile(keras.optimizers.Adam(1e-2))
    model.fit(PAIRS, GOLD, verbose=0)
    return model


@pytest.mark.parametrize("weight", [0.5, 2.0])
def test_loss_by_hand(weight):
    settings = tiny.settings(model_answerable_weight=weight)
    outputs = {
        "start_logits_BL": np.log([[0.5, 0.25, 0.25], [0.1, 0.8, 0.1]]) + 3.0,
        "end_logits_BL": np.log([[0.2, 0.2, 0.6], [0.3, 0.3, 0.4]]),
        "answerable_logit_B": np.array([math.log(3.0), 0.0]),  # no answer: 3/4, 1/2
    }
    outputs = {name: np.float32(logits) for name, logits in outputs.items()}
    targets = {"start": [1, 1], "end": [2, 0], "impossible": [1, 0]}
    span = -math.log(0.25) - math.log(0.6), -math.log(0.8) - math.log(0.3)
    empty = -math.log(0.75), math.log(2)
    model, weights_B = QuestionAnswerer(tiny.start(), 0.0, settings), [1.0, 3.0]
    found = model.task_loss(outputs, targets, np.float32(weights_B))
    with_empty = [s / 2 + weight * e for s, e in zip(span, empty, strict=True)]
    np.testing.assert_allclose(found.total, np.dot(weights_B, with_empty), rtol=1e-6)
    assert found.weight == 4
    del outputs["answerable_logit_B"]
    found = model.task_loss(outputs, targets, np.float32(weights_B))
    np.testing.assert_allclose(found.total, np.dot(weights_B, span) / 2, rtol=1e-6)


def test_predict_and_evaluate_over_several_windows(model):
    examples = model.examples(PAIRS, GOLD)
    assert len(examples) > len(PAIRS)  # windows
    expected = ["the" if gold else "" for gold in GOLD]
    assert model.predict(PAIRS) == expected
    assert model.predict(PAIRS[::-1], batch_size=3) == expected[::-1]
    scores = model.evaluate(PAIRS, GOLD, return_dict=True, verbose=0)
    assert scores["accuracy"] == 1


def test_null_threshold_selects_the_empty_answers(model):
    predictions = model.predict_nbest(PAIRS)
    assert all(isinstance(p, QAPrediction) for p in predictions)
    texts = [p.text for p in predictions]
    assert texts[1::2] == ["the"] * 12
    for threshold, expected in ((-1e9, [""] * 24), (1e9, texts), (None, texts)):
        model.null_threshold = threshold
        assert model.predict(PAIRS) == expected
    model.null_threshold = 0.0


def test_saved_model_keeps_its_threshold(model, tmp_path):
    model.null_threshold = 0.25
    model.save(tmp_path / "model.keras")
    other = keras.saving.load_model(tmp_path / "model.keras")
    assert other.null_threshold == 0.25
    assert other.predict_nbest(PAIRS) == model.predict_nbest(PAIRS)
    model.null_threshold = 0.0


def test_reinitialize_restores_the_initial_threshold():
    model = QuestionAnswerer(tiny.start(), 0.0, tiny.settings())
    model.null_threshold = 3.0
    assert model.clone_with_seed(tiny.start(), 1).null_threshold == 3.0
    model.reinitialize(tiny.start(), 1)
    assert model.null_threshold == 0.0


def test_targets_of_pairs(model):
    examples = model.examples([("of", "in the and"), ("of", "in")], [("the", 3), None])
    names = {"start": [4, 0], "end": [4, 0], "impossible": [0, 1]}  # [CLS] of [SEP] in
    assert {n: list(v) for n, v in examples.targets.items()} == names


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (["of"], [None], "'of' at index 0"),
        ([("of", "in", "the")], [None], "at index 0"),
        (PAIRS[:1], ["the"], "'the' at index 0"),
        (PAIRS[:1], [("the",)], r"\('the',\) at index 0"),
        (PAIRS[:1], [("the", 0.0)], r"\('the', 0.0\),\) at index 0"),
        (PAIRS[:2], [None], "2 questions and 1 targets"),
        ([("of", "in the")], [("the", 0)], "question 0: none of its 1 answers"),
    ],
)
def test_examples_validates_questions_and_answers(model, x, y, message):
    with pytest.raises(InputError, match=message):
        model.examples(x, y)
