"""Targets, predictions and argument checks of TextClassifier and TextRegressor."""

import keras
import numpy as np
import pytest
import tiny

from electra_tf.errors import InputError
from electra_tf.tasks.classifier import TextClassifier, TextRegressor

TEXTS, LABELS = tiny.texts(8, longest=11, shortest=10)
SCORES = [1.0, 2.5, 5.0, 4.0, 3.0, 1.5, 2.0, 5.0]


@pytest.fixture(scope="module")
def regressor():
    return TextRegressor(tiny.start(), 1, 5, tiny.settings(**tiny.NO_DROPOUT))


def test_targets_may_be_names_indices_and_bytes():
    model = TextClassifier(tiny.start(), ("bad", "good"), tiny.settings())
    targets = ["bad", b"good", 1, np.int64(0), np.str_("good")]
    assert model.examples(TEXTS[:5], targets).targets == [0, 1, 1, 0, 1]
    assert model.examples(TEXTS[:2], np.array([0, 1])).targets == [0, 1]


@pytest.mark.parametrize(
    ("labels", "y", "targets"),
    [
        ([1, 2, 3], [1, 3, 2], [0, 2, 1]),
        (["1", "0"], [1, 0, 0], [0, 1, 1]),
        (["-1", "1"], [-1.0, 1.0, "-1"], [0, 1, 0]),
        (np.array(["bad", "good"]), [True, 0.0, np.bool_(True)], [1, 0, 1]),
    ],
)
def test_integer_names_have_precedence_over_indices(labels, y, targets):
    model = TextClassifier(tiny.start(), labels, tiny.settings())
    assert model.examples(TEXTS[:3], y).targets == targets
    assert model.labels == tuple(map(str, labels))
    for invalid in (7, 0.5, float("inf"), None, {}, [0]):
        with pytest.raises(InputError, match="at index 2"):
            model.examples(TEXTS[:3], [*y[:2], invalid])


def test_rejected_texts_do_not_change_pairs():
    model = TextClassifier(tiny.start(), ("bad", "good"), tiny.settings())
    model.examples(TEXTS[:2], [0, 1])
    assert model.pairs is False
    pairs = [("a", "b"), ("c", "d")]
    for method in (model.predict, lambda x: model.evaluate(x, [0, 1])):
        with pytest.raises(InputError, match=r"single texts.*pairs of texts"):
            method(pairs)
    with pytest.raises(InputError, match="one of 'bad', 'good', an integer below 2"):
        model.fit(pairs, [0, 2], verbose=0)
    assert model.pairs is False


def test_scores_are_scaled_in_training_and_back_in_predictions(regressor):
    targets = regressor.examples(TEXTS, SCORES).targets
    assert targets == pytest.approx([0, 0.375, 1, 0.75, 0.5, 0.125, 0.25, 1])
    inputs, targets_B, _ = regressor.examples(TEXTS, SCORES).batch(range(8), 8)
    assert targets_B.dtype == np.float32
    outputs_B1 = np.array(regressor.predict(inputs, verbose=0))
    predictions = regressor.predict(TEXTS)
    np.testing.assert_allclose(predictions, 1 + 4 * outputs_B1[:, 0], atol=1e-5)
    assert (predictions.shape, predictions.dtype) == ((8,), np.float32)
    scores = regressor.evaluate(TEXTS, SCORES, return_dict=True, verbose=0)
    mse = np.mean((predictions - SCORES) ** 2)
    assert scores == pytest.approx({"loss": mse / 16, "mse": mse}, rel=1e-4)
    assert regressor.predict([]).shape == (0,)


def test_regressor_learns_and_can_be_saved(regressor, tmp_path):
    before, _ = regressor.evaluate(TEXTS, SCORES, verbose=0)
    regressor.fit(TEXTS, SCORES, epochs=15, verbose=0)
    after, _ = regressor.evaluate(TEXTS, SCORES, verbose=0)
    assert after < before / 2
    regressor.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert (loaded.low, loaded.high) == (1.0, 5.0)
    np.testing.assert_array_equal(loaded.predict(TEXTS), regressor.predict(TEXTS))


@pytest.mark.parametrize("score", [float("nan"), float("inf"), "1.5", None, [1.0]])
def test_invalid_score_is_an_error(regressor, score):
    with pytest.raises(InputError, match=r"finite number.* at index 1"):
        regressor.examples(TEXTS[:2], [1.0, score])


@pytest.mark.parametrize("bounds", [(1, 1), (2, 1), (0, float("inf"))])
def test_invalid_bounds_are_an_error(bounds):
    with pytest.raises(InputError, match=f"low={bounds[0]}, high={bounds[1]}"):
        TextRegressor(tiny.start(), *bounds, settings=tiny.settings())


@pytest.mark.parametrize("labels", [[], ["a"], ["a", "a"], ["a", "b", "a"]])
def test_repeated_or_single_labels_are_an_error(labels):
    with pytest.raises(InputError, match=r"labels must be.*labels="):
        TextClassifier(tiny.start(), labels, tiny.settings())


@pytest.mark.parametrize(
    "arguments", [{}, {"num_classes": 2, "labels": ["a", "b"]}, {"num_classes": "2"}]
)
def test_from_preset_requires_num_classes_or_labels(arguments):
    with pytest.raises(InputError, match=r"num_classes.*labels=.*exactly one"):
        TextClassifier.from_preset("nowhere", **arguments)
