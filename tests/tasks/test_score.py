"""Scores of models' predictions."""

import numpy as np
import pytest

from electra_tf.tasks.data.splits import Split
from electra_tf.tasks.score import LabelScorer

CLASSES = LabelScorer(("accuracy", "mcc", "f1"), ("no", "yes"))
LABELLED, PREDICTED = (
    Split("abcd", ["no", "yes", "no", "no"]),
    ["no", "yes", "yes", "no"],
)
NUMBERS = LabelScorer(("spearman", "mse"), None, (0.0, 5.0))
SCORED = Split("abc", [0.0, 2.0, 5.0])


class Model:
    """A model whose outputs are given."""

    labels = CLASSES.labels


def test_the_best_label_is_predicted_and_scored():
    assert CLASSES.best(Model(), [[0.9, 0.1], [0.4, 0.6]]) == ["no", "yes"]
    # 3 of 4 are correct; one "no" of three is predicted as "yes".
    mcc = (1 * 2 - 1 * 0) / (2 * 1 * 3 * 2) ** 0.5
    expected = {"accuracy": 75, "mcc": 100 * mcc, "f1": 100 * 2 / 3}
    assert CLASSES.score(LABELLED, PREDICTED) == pytest.approx(expected)


def test_predictions_that_are_no_better_than_chance_are_degenerate():
    gold, found = ["no"] * 57 + ["yes"] * 3, ["yes"] + ["no"] * 59
    split = Split(range(60), gold)
    assert "no better than chance (mcc -2.99)" in CLASSES.degenerate(split, found)
    assert CLASSES.degenerate(split, found[::-1]) is None
    assert CLASSES.degenerate(Split("abc", ["no", "no", "yes"]), found[:3]) is None


def test_numbers_are_clipped_before_they_are_compared():
    predictions = NUMBERS.best(Model(), np.float32([-1.0, 2.0, 7.0]))
    scores = NUMBERS.score(SCORED, predictions)
    assert scores == pytest.approx({"spearman": 100, "mse": 0})


def test_predictions_are_written_in_the_format_of_glue(tmp_path):
    CLASSES.write(LABELLED, PREDICTED, str(tmp_path / "dev"))
    lines = ["index\tprediction", "0\tno", "1\tyes", "2\tyes", "3\tno"]
    assert (tmp_path / "dev.tsv").read_text() == "\n".join(lines) + "\n"
    NUMBERS.write(SCORED, [0.0, 2.34567, 5.0], str(tmp_path / "dev"))
    lines = (tmp_path / "dev.tsv").read_text().splitlines()
    assert lines[1:] == ["0\t0", "1\t2.34567", "2\t5"]
