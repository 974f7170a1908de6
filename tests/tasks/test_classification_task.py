"""Scores, files and failure checks of a classification task's predictions."""

import numpy as np
import pytest

from electra_tf.tasks.score import LabelScorer
from electra_tf.tasks.splits import Split

PREDICTED = ["no", "yes", "yes", "no"]
LABELLED = Split(["a", "b", "c", "d"], ["no", "yes", "no", "no"])
CLASSES = LabelScorer(("accuracy", "mcc", "f1"), ("no", "yes"))
SCORED = Split("abc", [0.0, 2.0, 5.0])
SCORES = LabelScorer(("spearman", "mse"), None, (0.0, 5.0))


class Model:
    """A model of given predictions."""

    labels = CLASSES.labels

    def predict(self, items):
        return items


def test_scores_by_hand():
    # 3 of 4 are correct; one "no" of three is predicted as "yes".
    mcc = (1 * 2 - 1 * 0) / (2 * 1 * 3 * 2) ** 0.5
    expected = {"accuracy": 75, "mcc": 100 * mcc, "f1": 100 * 2 / 3}
    assert CLASSES.score(LABELLED, PREDICTED) == pytest.approx(expected)


def test_predictions_are_written_in_the_format_of_glue(tmp_path):
    CLASSES.write(LABELLED, PREDICTED, str(tmp_path / "dev"))
    assert (tmp_path / "dev.tsv").read_text() == (
        "index\tprediction\n0\tno\n1\tyes\n2\tyes\n3\tno\n"
    )
    SCORES.write(SCORED, [0.0, 2.34567, 5.0], str(tmp_path / "dev"))
    lines = (tmp_path / "dev.tsv").read_text().splitlines()
    assert lines[1:] == ["0\t0", "1\t2.34567", "2\t5"]


def test_the_best_label_is_predicted():
    assert CLASSES.predict(Model(), [[0.9, 0.1], [0.4, 0.6]]) == ["no", "yes"]


def test_scores_are_clipped_before_they_are_compared():
    predictions = SCORES.predict(Model(), np.float32([-1.0, 2.0, 7.0]))
    scores = SCORES.score(SCORED, predictions)
    assert scores == pytest.approx({"spearman": 100, "mse": 0})


def test_degenerate_describes_constant_and_infinite_predictions():
    assert CLASSES.degenerate(LABELLED, PREDICTED) is None
    constant = ["yes"] * 4
    assert CLASSES.degenerate(LABELLED, constant) == "always predicts yes"
    same = Split(["a", "b"], ["yes", "yes"])
    assert CLASSES.degenerate(same, constant[:2]) is None
    dev = SCORED
    assert SCORES.degenerate(dev, np.float32([1, 2, 3])) is None
    assert SCORES.degenerate(dev, np.float32([2.5] * 3)) == "always predicts 2.5"
    broken = SCORES.degenerate(dev, np.float32([1, np.nan, 3]))
    assert "no finite number for 1 of 3" in broken
