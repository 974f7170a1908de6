"""Metrics by hand, also where a library has no value; spans as conlleval counts."""

import collections
import math
import random
import warnings

import numpy as np
import pytest

from electra_tf.tasks.data.conll import read_conll
from electra_tf.tasks.data.schemes import to_scheme
from electra_tf.tasks.metrics import (
    METRICS,
    describe_degenerate,
    score_spans,
    tag_accuracy,
)


@pytest.fixture(autouse=True)
def no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.mark.parametrize(
    ("name", "labels", "predictions", "score"),
    [
        # 4 of 6 are correct; class 1 has 2 true positives, 1 false negative, 1 false
        # positive.
        ("accuracy", [1, 1, 1, 0, 0, 0], [1, 1, 0, 1, 0, 0], 400 / 6),
        ("f1", [1, 1, 1, 0, 0, 0], [1, 1, 0, 1, 0, 0], 200 / 3),
        ("mcc", [1, 1, 1, 0, 0, 0], [1, 1, 0, 1, 0, 0], 100 / 3),
        ("accuracy", [1], [0], 0),
        ("f1", [0, 0, 0], [0, 1, 0], 0),
        ("f1", [2, 0, 1], [1, 0, 1], 200 / 3),  # of class 1 against all others
        ("mcc", [0, 1, 1, 0], [1, 1, 1, 1], 0),
        ("mcc", [1, 1, 1], [1, 1, 1], 0),
        # F1 of 0: 4/5, of 1: 1, of 2: 0.
        ("macro_f1", [0, 0, 1, 2], [0, 0, 1, 0], 60),
        ("micro_f1", [[1, 0], [1, 1]], [[1, 1], [0, 1]], 200 / 3),
        ("subset_accuracy", [[1, 0], [1, 1]], [[1, 0], [0, 1]], 50),
        ("mse", [0.0, 1.0], [0.5, 3.0], 2.125),
        ("mse", [0.0, 1.0, 2.0], [1e308, 0.0, 0.0], math.inf),
        ("mse", [0.0, 1.0, 2.0], [math.nan, 0.0, 0.0], math.inf),
        ("pearson", [1, 2, 3], [30, 20, 10], -100),
        ("spearman", [1, 2, 3], [1, 10, 1000], 100),
        ("spearman", [1, 2, 3], [2, 2, 5], 50 * 3**0.5),
    ],
)
def test_metrics_by_hand(name, labels, predictions, score):
    found = METRICS[name](np.array(labels), np.array(predictions))
    assert (type(found), found) == (float, pytest.approx(score))


@pytest.mark.parametrize("name", ["pearson", "spearman"])
def test_correlations_at_their_limits(name):
    labels, correlation = [0.0, 1.0, 2.0], METRICS[name]
    for undefined in (
        [0.1, 0.1, 0.1],  # their mean in float64 is not 0.1
        [0.0, 0.0, 0.0],
        [math.nan, 1.0, 2.0],
        [math.inf, 1.0, -math.inf],
    ):
        assert correlation(labels, undefined) == correlation(undefined, labels) == 0.0
    assert correlation([1.0], [2.0]) == 0.0
    for scale in (1e308, 5e-324):  # sums that overflow, products that underflow
        scores = np.array([-1.0, 0.0, 1.0]) * scale
        assert correlation(labels, scores) == pytest.approx(100)
    sums = np.array([1.0, 0.5, 1.7])
    expected = correlation(labels, sums)
    assert correlation(labels, sums * 1e308) == pytest.approx(expected)
    close = [3.0, np.nextafter(3.0, 4), np.nextafter(3.0, 2)]
    assert math.isfinite(correlation(labels, close))
    rng = np.random.default_rng(0)
    for _ in range(200):
        scores = rng.normal(size=30)
        assert 99.999 < correlation(scores, scores) <= 100
        assert -100 <= correlation(scores, -scores) < -99.999


SINGLE = np.float32([2.5, np.nextafter(np.float32(2.5), 3), 2.5])


@pytest.mark.parametrize(
    ("predictions", "labels", "words"),
    [
        (np.array([1, 1, 1]), [0, 1, 1], "always predicts 1"),
        ([0, 0], [1, 1], "always predicts 0"),
        ([1, 1, 0], [0, 1, 1], None),
        ([1, 1], [1, 1], None),  # correct
        ([1], [0], None),
        ([], [], None),
        (["a", "a"], ["a", "b"], "always predicts a"),
        ([2.5, 2.5, 2.5], [0.0, 2.5, 5.0], "always predicts 2.5"),
        (SINGLE, [0.0, 2.5, 5.0], "always predicts 2.5"),
        ([0.0, 0.0, 0.0], [0.0, 2.5, 5.0], "always predicts 0"),
        ([2.5, 2.501, 2.5], [0.0, 2.5, 5.0], None),
        ([1.0, 1.0], [1.0, 1.0], None),
        (
            [math.nan, 1.0, math.inf],
            [0, 1, 2],
            "predicts no finite number for 2 of 3 ex",
        ),
        ([-1e308, 1e308], [0.0, 1.0], None),
    ],
)
def test_constants_and_infinity_are_degenerate(predictions, labels, words):
    found = describe_degenerate(predictions, labels)
    assert found == words or found.startswith(words)


# Random tags, some of them inconsistent, with the output of conlleval.pl (2004-01-26):
# numbers of gold, predicted and correct spans; number of correct tags.
CONLLEVAL = [
    (
        "B-NP B-VP B-NP I-NP I-NP O O I-VP B-NP|B-NP I-VP B-VP I-VP B-VP I-NP O|"
        "I-NP I-VP B-VP I-NP I-NP O I-NP B-VP B-NP O",
        "I-NP B-VP I-NP I-NP I-NP O O B-NP O|B-NP I-VP B-VP I-VP B-VP I-NP I-VP|"
        "I-NP I-VP B-VP O I-VP O I-NP I-VP I-VP O",
        {"all": (17, 16, 12), "NP": (9, 7, 6), "VP": (8, 9, 6)},
        17,
    ),
    (
        "I-NP O I-NP O O I-VP E-VP E-VP E-NP|I-NP I-VP I-NP O O I-NP E-VP|"
        "E-VP E-VP E-VP O I-NP E-NP E-NP E-VP E-VP O",
        "I-NP O I-NP O O I-VP E-VP O E-VP|I-NP I-VP I-NP O O I-NP E-VP|"
        "E-VP O E-VP O E-VP E-NP E-NP E-VP I-NP O",
        {"all": (17, 16, 12), "NP": (8, 8, 6), "VP": (9, 8, 6)},
        21,
    ),
]


def sentences(text):
    return [sentence.split() for sentence in text.split("|")]


@pytest.mark.parametrize(("gold", "predicted", "counts", "correct_tags"), CONLLEVAL)
def test_counts_equal_conlleval(gold, predicted, counts, correct_tags):
    score = score_spans(sentences(gold), sentences(predicted))
    assert list(score["types"]) == ["NP", "VP"]
    for kind, (gold_spans, predicted_spans, correct) in counts.items():
        assert (score if kind == "all" else score["types"][kind]).items() >= {
            "gold": gold_spans,
            "predicted": predicted_spans,
            "correct": correct,
            "precision": pytest.approx(100 * correct / predicted_spans),
            "recall": pytest.approx(100 * correct / gold_spans),
            "f1": pytest.approx(200 * correct / (gold_spans + predicted_spans)),
        }.items()
    assert score["accuracy"] == pytest.approx(100 * correct_tags / 26)


def test_conll_2000_baseline_has_its_published_scores(data):
    # Tjong Kim Sang and Buchholz (2000): each word gets the most frequent chunk tag of
    # its part of speech in the training data.
    def column(name, number):
        path = data / f"tagging/conll2000/{name}.txt.gz"
        return [s.tags for s in read_conll(path, 0, number)]

    tag_counts = collections.defaultdict(collections.Counter)
    for parts, tags in zip(column("train", 1), column("train", 2), strict=True):
        for part, tag in zip(parts, tags, strict=True):
            tag_counts[part][tag] += 1
    best = {part: counts.most_common(1)[0][0] for part, counts in tag_counts.items()}
    predicted = [[best[part] for part in parts] for parts in column("test", 1)]
    score = score_spans(column("test", 2), predicted)
    rounded = [round(score[name], 2) for name in ("precision", "recall", "f1")]
    assert rounded == [72.58, 82.14, 77.07]
    assert score["gold"] == 23_852


def test_correct_and_empty_predictions():
    gold, nothing = sentences("B-A I-A O|B-B O O"), [["O"] * 3] * 2
    score = score_spans(gold, gold)
    assert [score[n] for n in ("precision", "recall", "f1", "accuracy")] == [100.0] * 4
    score = score_spans(gold, nothing)
    assert [score[n] for n in ("precision", "recall", "f1")] == [0.0] * 3
    assert score["accuracy"] == 50.0
    assert score_spans(nothing, gold)["types"]["A"]["precision"] == 0.0
    assert score_spans(nothing, nothing) == {
        **dict.fromkeys(("precision", "recall", "f1"), 0.0),
        **dict.fromkeys(("gold", "predicted", "correct"), 0),
        "accuracy": 100.0,
        "types": {},
    }
    assert score_spans([], [])["accuracy"] == 0.0
    # A span ends with its sentence.
    score = score_spans([["B-A"], ["I-A"]], [["B-A"], ["B-A"]])
    assert (score["gold"], score["correct"]) == (2, 2)


def test_gold_and_predicted_schemes_may_differ():
    rng = random.Random(0)
    gold = [rng.choices(["O", "B-A", "I-A", "B-B", "I-B"], k=8) for _ in range(50)]
    predicted = [[t if rng.random() < 0.8 else "O" for t in s] for s in gold]
    in_bioes = list(map(to_scheme, gold)), list(map(to_scheme, predicted))
    score = score_spans(*in_bioes)
    assert score_spans(gold, in_bioes[1]) == score
    assert score_spans(gold, in_bioes[0])["accuracy"] == 100.0
    assert 0 < score["f1"] < 100
    other = score_spans(gold, predicted)
    assert other.pop("accuracy") != score.pop("accuracy")
    assert other == score


def test_scores_of_single_tags():
    gold = [["DT", "NN", "VB"], ["NN", "."]]
    assert tag_accuracy(gold, [["DT", "VB", "VB"], ["NN", "NN"]]) == 60.0
