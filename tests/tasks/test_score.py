"""Scores of models' predictions."""

import types

import numpy as np
import pytest

from electra_tf.tasks.data.splits import Split
from electra_tf.tasks.score import ScoredSplit
from electra_tf.tasks.text_task import ClassificationTask, RegressionTask

MODEL = types.SimpleNamespace(
    output_names=("no", "yes"), labels_of=lambda p: ["no", "yes"]
)


def classes(gold, predicted):
    """Return a split with the probability 1 of predicted classes."""
    details = np.eye(2)[[MODEL.output_names.index(name) for name in predicted]]
    split, names = Split(list(gold), gold), ("accuracy", "mcc", "f1")
    return ScoredSplit(ClassificationTask(), MODEL, split, details, names)


def numbers(values):
    split = Split("abc", [0.0, 2.0, 5.0])
    names, bounds = ("spearman", "mse"), (0.0, 5.0)
    return ScoredSplit(RegressionTask(), None, split, values, names, bounds)


LABELLED = classes(["no", "yes", "no", "no"], ["no", "yes", "yes", "no"])


def test_the_best_label_is_predicted_and_scored():
    assert LABELLED.predictions == ["no", "yes", "yes", "no"]
    # 3 of 4 are correct; one "no" of three is predicted as "yes".
    mcc = (1 * 2 - 1 * 0) / (2 * 1 * 3 * 2) ** 0.5
    expected = {"accuracy": 75, "mcc": 100 * mcc, "f1": 100 * 2 / 3}
    assert LABELLED.scores == pytest.approx(expected)
    assert LABELLED.mistakes == [("no", "no", "yes", 1.0, "probability")]


def test_predictions_that_are_no_better_than_chance_are_degenerate():
    gold, found = ["no"] * 57 + ["yes"] * 3, ["yes"] + ["no"] * 59
    assert "no better than chance (mcc -2.99)" in classes(gold, found).degenerate
    assert classes(gold, found[::-1]).degenerate is None
    assert classes(["no", "no", "yes"], found[:3]).degenerate is None


def test_numbers_are_clipped_before_they_are_compared():
    scored = numbers(np.float32([-1.0, 2.0, 7.0]))
    assert scored.scores == pytest.approx({"spearman": 100, "mse": 0})


def test_predictions_are_written_in_the_format_of_glue(tmp_path):
    LABELLED.task.write(LABELLED, str(tmp_path / "dev"))
    lines = ["index\tprediction", "0\tno", "1\tyes", "2\tyes", "3\tno"]
    assert (tmp_path / "dev.tsv").read_text() == "\n".join(lines) + "\n"
    scored = numbers([0.0, 2.34567, 5.0])
    scored.task.write(scored, str(tmp_path / "dev"))
    lines = (tmp_path / "dev.tsv").read_text().splitlines()
    assert lines[1:] == ["0\t0", "1\t2.34567", "2\t5"]
