"""Scores, files and failure checks of a classification task's predictions."""

import numpy as np
import pytest

from electra_tf.tasks.classification.task import ClassificationTask
from electra_tf.tasks.task import Split

PROBABILITIES = np.array([[0.9, 0.1], [0.2, 0.8], [0.4, 0.6], [0.7, 0.3]])
LABELLED = Split(["a", "b", "c", "d"], ["no", "yes", "no", "no"])
CLASSES = ClassificationTask(
    "csv",
    {"train": LABELLED, "dev": LABELLED},
    ("accuracy", "mcc", "f1"),
    ("no", "yes"),
)
SCORED = Split("abc", [0.0, 2.0, 5.0])
SCORES = ClassificationTask(
    "stsb", {"train": SCORED, "dev": SCORED}, ("spearman", "mse"), None, (0.0, 5.0)
)


def test_scores_by_hand():
    # 3 of 4 are correct; one "no" of three is predicted as "yes".
    mcc = (1 * 2 - 1 * 0) / (2 * 1 * 3 * 2) ** 0.5
    expected = {"accuracy": 75, "mcc": 100 * mcc, "f1": 100 * 2 / 3}
    assert CLASSES.score(LABELLED, PROBABILITIES) == pytest.approx(expected)


def test_label_counts_of_scores_are_empty():
    assert SCORES.label_counts == ""


def test_predictions_are_written_in_the_format_of_glue(tmp_path):
    CLASSES.write(LABELLED, PROBABILITIES, str(tmp_path / "dev"))
    assert (tmp_path / "dev.tsv").read_text() == (
        "index\tprediction\n0\tno\n1\tyes\n2\tyes\n3\tno\n"
    )
    assert SCORES.answers(np.float32([-0.2, 2.34567, 5.5])) == [
        "0\t0", "1\t2.34567", "2\t5"
    ]  # fmt: skip


def test_scores_are_clipped_before_they_are_compared():
    scores = SCORES.score(SCORED, np.float32([-1.0, 2.0, 7.0]))
    assert scores == pytest.approx({"spearman": 100, "mse": 0})


def test_degenerate_describes_constant_and_infinite_predictions():
    assert CLASSES.degenerate(LABELLED, PROBABILITIES) is None
    constant = np.tile([0.4, 0.6], (4, 1))
    assert CLASSES.degenerate(LABELLED, constant) == "always predicts yes"
    same = Split(["a", "b"], ["yes", "yes"])
    assert CLASSES.degenerate(same, constant[:2]) is None
    dev = SCORES.splits["dev"]
    assert SCORES.degenerate(dev, np.float32([1, 2, 3])) is None
    assert SCORES.degenerate(dev, np.float32([2.5] * 3)) == "always predicts 2.5"
    broken = SCORES.degenerate(dev, np.float32([1, np.nan, 3]))
    assert "no finite number for 1 of 3" in broken
