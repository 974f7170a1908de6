"""Metrics equal scikit-learn's and SciPy's, and are defined at their edges."""

import math
import warnings

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics

from electra_tf.tasks.metrics import METRICS, describe_degenerate

CLASS_METRICS = ("accuracy", "mcc", "f1", "macro_f1")
SCORE_METRICS = ("pearson", "spearman", "mse")
REFERENCES = {
    "accuracy": lambda a, b: 100 * sklearn.metrics.accuracy_score(a, b),
    "mcc": lambda a, b: 100 * sklearn.metrics.matthews_corrcoef(a, b),
    "f1": lambda a, b: (
        100
        * sklearn.metrics.f1_score(
            np.equal(a, 1), np.equal(b, 1), pos_label=True, zero_division=0
        )
    ),
    "macro_f1": lambda a, b: (
        100 * sklearn.metrics.f1_score(a, b, average="macro", zero_division=0)
    ),
    "pearson": lambda a, b: 100 * scipy.stats.pearsonr(a, b).statistic,
    "spearman": lambda a, b: 100 * scipy.stats.spearmanr(a, b).statistic,
    "mse": sklearn.metrics.mean_squared_error,
}
EDGES = [
    ([0, 1, 1, 0], [1, 1, 1, 1]),
    ([1, 1, 1], [1, 1, 1]),
    ([1, 1, 1], [0, 0, 0]),
    ([0, 0, 0], [0, 1, 0]),
    ([0], [0]),
    ([1], [0]),
    ([2, 0, 2, 5], [5, 0, 2, 2]),
]


@pytest.fixture(autouse=True)
def no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def reference(name, labels, predictions):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return REFERENCES[name](labels, predictions)


def test_every_metric_has_a_reference():
    assert set(METRICS) == set(REFERENCES) == {*CLASS_METRICS, *SCORE_METRICS}


@pytest.mark.parametrize("name", CLASS_METRICS)
@pytest.mark.parametrize("classes", [2, 3, 7])
def test_class_metrics_equal_scikit_learn(name, classes):
    rng = np.random.default_rng(classes)
    for size in (2, 5, 40, 1000):
        for _ in range(20):
            labels = rng.integers(classes, size=size)
            noise = rng.integers(classes, size=size)
            predictions = np.where(rng.random(size) < 0.6, labels, noise)
            expected = reference(name, labels, predictions)
            found = METRICS[name](labels, predictions)
            assert found == pytest.approx(expected, abs=1e-9)
            assert isinstance(found, float)


@pytest.mark.parametrize("name", CLASS_METRICS)
@pytest.mark.parametrize("sides", EDGES)
def test_class_metrics_at_the_edges(name, sides):
    found = METRICS[name](*sides)
    assert found == pytest.approx(reference(name, *sides), abs=1e-9)


@pytest.mark.parametrize("name", SCORE_METRICS)
def test_score_metrics_equal_scipy(name):
    rng = np.random.default_rng(0)
    for size in (2, 5, 40, 1000):
        for scale in (1e-30, 1.0, 1e30):
            labels = rng.integers(6, size=size) / 5  # many ties
            labels[0] = 2.0  # not all the same
            predictions = scale * (labels + rng.normal(size=size))
            expected = reference(name, labels, predictions)
            found = METRICS[name](labels, predictions)
            assert found == pytest.approx(expected, rel=1e-9, abs=1e-9)
            single = predictions.astype(np.float32)
            if scale == 1:
                assert METRICS[name](labels, single) == pytest.approx(
                    expected, rel=1e-4, abs=1e-4
                )


def test_metrics_by_hand():
    # 4 of 6 are correct; class 1 has 2 true positives, 1 false negative, 1 false
    # positive.
    labels, predictions = [1, 1, 1, 0, 0, 0], [1, 1, 0, 1, 0, 0]
    assert METRICS["accuracy"](labels, predictions) == pytest.approx(400 / 6)
    assert METRICS["f1"](labels, predictions) == pytest.approx(200 / 3)
    assert METRICS["mcc"](labels, predictions) == pytest.approx(100 / 3)
    assert METRICS["mse"]([0.0, 1.0], [0.5, 3.0]) == pytest.approx(2.125)
    assert METRICS["pearson"]([1, 2, 3], [30, 20, 10]) == pytest.approx(-100)
    assert METRICS["spearman"]([1, 2, 3], [1, 10, 1000]) == pytest.approx(100)
    assert METRICS["spearman"]([1, 2, 3], [2, 2, 5]) == pytest.approx(50 * 3**0.5)


@pytest.mark.parametrize("name", ["pearson", "spearman"])
@pytest.mark.parametrize(
    "predictions",
    [
        [0.1, 0.1, 0.1],  # their mean in float64 is not 0.1
        [0.0, 0.0, 0.0],
        [math.nan, 1.0, 2.0],
        [math.inf, 1.0, -math.inf],
    ],
)
def test_undefined_correlation_is_0(name, predictions):
    assert METRICS[name]([1.0, 2.0, 3.0], predictions) == 0.0
    assert METRICS[name](predictions, [1.0, 2.0, 3.0]) == 0.0
    assert METRICS[name]([1.0], [2.0]) == 0.0


def test_correlation_does_not_exceed_its_bounds():
    rng = np.random.default_rng(0)
    for _ in range(200):
        scores = rng.normal(size=30)
        assert 99.999 < METRICS["pearson"](scores, scores) <= 100
        assert -100 <= METRICS["pearson"](scores, -scores) < -99.999


def test_huge_and_tiny_scores_do_not_overflow():
    labels = [0.0, 1.0, 2.0]
    for scale in (1e308, 5e-324):
        scores = np.array([-1.0, 0.0, 1.0]) * scale
        assert METRICS["pearson"](labels, scores) == pytest.approx(100)
        assert METRICS["spearman"](labels, scores) == pytest.approx(100)
    sums = [1e308, 0.5e308, 1.7e308]  # their sum is infinite
    expected = 100 * scipy.stats.pearsonr(labels, [1, 0.5, 1.7]).statistic
    assert METRICS["pearson"](labels, sums) == pytest.approx(expected)
    close = [3.0, np.nextafter(3.0, 4), np.nextafter(3.0, 2)]
    assert math.isfinite(METRICS["pearson"](labels, close))
    assert METRICS["mse"](labels, [1e308, 0.0, 0.0]) == math.inf
    assert METRICS["mse"](labels, [math.nan, 0.0, 0.0]) == math.inf


def test_constant_classes_are_degenerate():
    assert describe_degenerate(np.array([1, 1, 1]), [0, 1, 1]) == "always predicts 1"
    assert describe_degenerate([0, 0], [1, 1]) == "always predicts 0"
    assert describe_degenerate([1, 1, 0], [0, 1, 1]) is None
    assert describe_degenerate([1, 1], [1, 1]) is None  # correct
    assert describe_degenerate([1], [0]) is None
    assert describe_degenerate([], []) is None


def test_constant_scores_are_degenerate():
    labels = [0.0, 2.5, 5.0]
    assert describe_degenerate([2.5, 2.5, 2.5], labels) == "always predicts 2.5"
    rounded = np.float32([2.5, np.nextafter(np.float32(2.5), 3), 2.5])
    assert describe_degenerate(rounded, labels) == "always predicts 2.5"
    assert describe_degenerate([0.0, 0.0, 0.0], labels) == "always predicts 0"
    assert describe_degenerate([2.5, 2.501, 2.5], labels) is None
    assert describe_degenerate([1.0, 1.0], [1.0, 1.0]) is None
    words = "predicts no finite number for 2 of 3 examples"
    assert describe_degenerate([math.nan, 1.0, math.inf], labels) == words
    assert describe_degenerate([-1e308, 1e308], [0.0, 1.0]) is None
