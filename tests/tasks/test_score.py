"""Scores of predictions, and tables of classes and of types of spans, by hand."""

import types

import numpy as np
import pytest

from electra_tf.tasks.class_report import (
    class_report,
    format_class_report,
    label_set_report,
    span_report,
    tag_report,
)
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


# Tables of classes and of types of spans.

LABELS = ("in", "of")


def row(precision, recall, f1, support):
    rates = {"precision": precision, "recall": recall, "f1": f1}
    return pytest.approx({**rates, "support": support})


def test_classes_by_hand():
    gold = ["accuracy", "accuracy", "差评", "accuracy"]
    predicted = ["accuracy", "差评", "差评", "only predicted"]
    labels = ["accuracy", "差评", "never", "only predicted"]
    report = class_report(gold, predicted, labels)
    assert report["classes"] == {
        "accuracy": row(100, 100 / 3, 50, 3),
        "差评": row(50, 100, 200 / 3, 1),
        "only predicted": row(0, 0, 0, 0),
    }
    averages = report["averages"]
    assert averages["macro avg"] == row(50, 400 / 9, 350 / 9, 4)
    assert averages["weighted avg"] == row(87.5, 50, 325 / 6, 4)
    assert report["accuracy"] == 50
    counts = {"accuracy": 1, "差评": 1, "only predicted": 1}
    rows = {"accuracy": counts, "差评": {"差评": 1}, "only predicted": {}}
    assert report["confusion"] == rows


@pytest.mark.parametrize("classes", [1, 2])
def test_sets_of_classes_by_hand(classes):
    gold, predicted = np.float32([[[1, 1], [1, 0]], [[1, 1], [0, 1]]])
    sides = gold[:, :classes], predicted[:, :classes]
    report = label_set_report(*sides, LABELS[:classes])
    rows = [row(100, 50, 200 / 3, 2), row(50, 100, 200 / 3, 1)]
    assert report["classes"] == dict(zip(LABELS, rows[:classes], strict=False))
    assert list(report["averages"]) == ["micro avg", "macro avg", "weighted avg"]
    assert report["averages"]["micro avg"]["f1"] == pytest.approx(200 / 3)
    assert report["averages"]["macro avg"]["support"] == gold[:, :classes].sum()
    assert "accuracy" not in report


def test_types_of_spans_by_hand():
    gold = [["B-PER", "I-PER", "O"], ["B-LOC"], ["S-PER"]]
    report = span_report(gold, [["B-PER", "I-PER", "B-LOC"], ["O"], ["S-PER"]])
    assert report["classes"] == {"LOC": row(0, 0, 0, 1), "PER": row(100, 100, 100, 2)}
    assert report["averages"] == {
        "micro avg": row(200 / 3, 200 / 3, 200 / 3, 3),
        "macro avg": row(50, 50, 50, 3),
        "weighted avg": row(200 / 3, 200 / 3, 200 / 3, 3),
    }
    rows = {"O": {"LOC": 1}, "LOC": {"O": 1}, "PER": {"PER": 3}}
    assert report["confusion"] == rows


def test_tags_of_words_are_classes():
    gold, predicted = [["NN", "VB"], ["NN"]], [["NN", "NN"], ["NN"]]
    report = tag_report(gold, predicted, ["VB", "NN", "XX"])
    assert report == class_report(["NN", "VB", "NN"], ["NN"] * 3, ["NN", "VB", "XX"])
    assert report["classes"]["VB"]["support"] == 1
    assert report["confusion"] == {"NN": {"NN": 2}, "VB": {"NN": 1}}


def test_a_printed_table_and_matrix():
    report = class_report(
        ["a", "b", "b", "差评"], ["a", "a", "b", "b"], ["a", "b", "差评"]
    )
    lines = format_class_report(report).splitlines()
    cells = [line.split() for line in lines]
    assert cells[0] == ["precision", "recall", "f1", "support"]
    assert cells[1] == ["a", "50.00", "100.00", "66.67", "1"]
    assert ["accuracy", "50.00", "4"] in cells
    start = next(n for n, line in enumerate(lines) if line.startswith("confusion"))
    assert lines[-1] == "Always answering 'b' would score 50.0% accuracy."
    assert cells[start + 1 : -1] == [
        ["a", "b", "差评"],
        ["a", "1", "0", "0"],
        ["b", "1", "1", "0"],
        ["差评", "0", "1", "0"],
    ]


def test_the_most_frequent_errors_are_printed_for_many_classes():
    names = [f"c{n:02}" for n in range(30)]
    gold = names * 2 + ["c00"] * 4
    predicted = names * 2 + ["c01", "c01", "c01", "c02"]
    lines = format_class_report(class_report(gold, predicted, names)).splitlines()
    start = lines.index("most confused classes (gold -> predicted):")
    assert [line.split() for line in lines[start + 1 : -1]] == [
        ["3", "c00", "->", "c01", "(50%", "of", "c00)"],
        ["1", "c00", "->", "c02", "(17%", "of", "c00)"],
    ]
