"""Classes and scores: labels in, probabilities and numbers out."""

import keras
import numpy as np
import pytest

from electra_tf.errors import InputError
from electra_tf.tasks.classification.model import TextClassifier, TextRegressor
from tasks import tiny

TEXTS, LABELS = tiny.texts(8, longest=11, shortest=10)
SCORES = [1.0, 2.5, 5.0, 4.0, 3.0, 1.5, 2.0, 5.0]


@pytest.fixture(scope="module")
def regressor():
    return TextRegressor(tiny.start(), 1, 5, tiny.settings(**tiny.NO_DROPOUT))


def test_labels_come_as_names_numbers_and_bytes():
    model = TextClassifier(tiny.start(), ("bad", "good"), tiny.settings())
    given = ["bad", b"good", 1, np.int64(0), np.str_("good")]
    assert model.examples(TEXTS[:5], given).targets == [0, 1, 1, 0, 1]
    same = model.examples(TEXTS[:2], np.array([0, 1])).targets
    assert same == [0, 1]


@pytest.mark.parametrize(
    ("labels", "y", "targets"),
    [
        ([1, 2, 3], [1, 3, 2], [0, 2, 1]),
        (["1", "0"], [1, 0, 0], [0, 1, 1]),
        (["-1", "1"], [-1.0, 1.0, "-1"], [0, 1, 0]),
        (np.array(["bad", "good"]), [True, 0.0, np.bool_(True)], [1, 0, 1]),
    ],
)
def test_names_that_are_numbers_go_before_places(labels, y, targets):
    model = TextClassifier(tiny.start(), labels, tiny.settings())
    assert model.examples(TEXTS[:3], y).targets == targets
    assert model.labels == tuple(map(str, labels))
    for strange in (7, 0.5, float("inf"), None, {}, [0]):
        with pytest.raises(InputError, match="at place 2"):
            model.examples(TEXTS[:3], [*y[:2], strange])


def test_what_is_refused_does_not_change_what_a_model_takes():
    model = TextClassifier(tiny.start(), ("bad", "good"), tiny.settings())
    model.examples(TEXTS[:2], [0, 1])
    assert model.pairs is False
    pairs = [("a", "b"), ("c", "d")]
    for asked in (model.predict, lambda x: model.evaluate(x, [0, 1])):
        with pytest.raises(InputError, match="asked about single texts"):
            asked(pairs)
    with pytest.raises(InputError, match="one of 'bad', 'good', a number below 2"):
        model.fit(pairs, [0, 2], verbose=0)
    assert model.pairs is False


def test_scores_are_learnt_between_0_and_1_and_told_in_their_units(regressor):
    targets = regressor.examples(TEXTS, SCORES).targets
    assert targets == pytest.approx([0, 0.375, 1, 0.75, 0.5, 0.125, 0.25, 1])
    inputs, goals_B, _ = regressor.examples(TEXTS, SCORES).batch(range(8), 8)
    assert goals_B.dtype == np.float32
    outputs_B1 = np.array(regressor.predict(inputs, verbose=0))
    said = regressor.predict(TEXTS)
    np.testing.assert_allclose(said, 1 + 4 * outputs_B1[:, 0], atol=1e-5)
    assert (said.shape, said.dtype) == ((8,), np.float32)
    found = regressor.evaluate(TEXTS, SCORES, return_dict=True, verbose=0)
    wanted = np.mean((said - SCORES) ** 2)
    assert found == pytest.approx({"loss": wanted / 16, "mse": wanted}, rel=1e-4)
    assert regressor.predict([]).shape == (0,)


def test_a_regressor_learns_and_can_be_saved(regressor, tmp_path):
    before, _ = regressor.evaluate(TEXTS, SCORES, verbose=0)
    regressor.fit(TEXTS, SCORES, epochs=15, verbose=0)
    after, _ = regressor.evaluate(TEXTS, SCORES, verbose=0)
    assert after < before / 2
    regressor.save(tmp_path / "model.keras")
    other = keras.saving.load_model(tmp_path / "model.keras")
    assert (other.low, other.high) == (1.0, 5.0)
    np.testing.assert_array_equal(other.predict(TEXTS), regressor.predict(TEXTS))


@pytest.mark.parametrize("score", [float("nan"), float("inf"), "1.5", None, [1.0]])
def test_a_score_that_is_no_number_is_told(regressor, score):
    with pytest.raises(InputError, match=r"finite number.* at place 1"):
        regressor.examples(TEXTS[:2], [1.0, score])


@pytest.mark.parametrize("bounds", [(1, 1), (2, 1), (0, float("inf"))])
def test_bounds_that_are_none_are_told(bounds):
    with pytest.raises(InputError, match="the lower one first"):
        TextRegressor(tiny.start(), *bounds, settings=tiny.settings())


@pytest.mark.parametrize("labels", [[], ["a"], ["a", "a"], ["a", "b", "a"]])
def test_labels_that_tell_nothing_apart_are_told(labels):
    with pytest.raises(InputError, match="two classes or more"):
        TextClassifier(tiny.start(), labels, tiny.settings())


@pytest.mark.parametrize(
    "given", [{}, {"num_classes": 2, "labels": ["a", "b"]}, {"num_classes": "2"}]
)
def test_from_checkpoint_is_told_classes_once(given):
    with pytest.raises(InputError, match="Pass one of the two"):
        TextClassifier.from_preset("nowhere", **given)
