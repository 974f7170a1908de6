"""Scores of models' predictions and of files; files that do not match are errors."""

import json

import numpy as np
import pytest

from electra_tf.errors import InputError
from electra_tf.tasks import registry
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


# Files of predictions.

GOLD = "index\tsentence1\tsentence2\tlabel\n" + "".join(
    f"{n}\ta\tb\t{label}\n"
    for n, label in enumerate(["entailment", "not_entailment"] * 2)
)
LABELS = ["entailment", "not_entailment", "entailment", "entailment"]


def rows(*cells):
    return "".join("\t".join(map(str, row)) + "\n" for row in cells)


def indexed(order, *columns):
    """Return labels in an order of their rows, with an index."""
    return rows(("index", "prediction"), *((n, LABELS[n]) for n in order))


@pytest.fixture
def score(write):
    """Return a function that scores the text of a file of predictions."""

    def of(task, gold, text, name="predictions", notify=print, **options):
        path = write(name, text)
        more = options.get("na_prob")
        return registry.named(task).score_file(task, gold, path, more, notify)

    return of


@pytest.fixture
def gold(write):
    return write("dev.tsv", GOLD)


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(LABELS) + "\n",
        "\r\n".join(LABELS),
        rows(["prediction"], *([label] for label in LABELS)),
        indexed([0, 1, 2, 3]),
        indexed([2, 3, 1, 0]),
        rows(("prediction", "index"), *((LABELS[n], n) for n in (1, 0, 3, 2))),
    ],
)
def test_predictions_of_glue(score, gold, text):
    assert score("rte", gold, text) == {"accuracy": 75.0}


def test_predictions_with_places_leave_out_rows(score, gold):
    # finetune wrote no prediction for the second row, which was invalid.
    places = ((0, LABELS[0], "d:2"), (1, LABELS[2], "d:4"), (2, LABELS[3], "d:5"))
    text, notes = rows(("index", "prediction", "place"), *places), []
    found = score("rte", gold, text, notify=notes.append)
    assert found == {"accuracy": pytest.approx(200 / 3)}
    assert notes == ["3 of 4 rows have a prediction and are scored"]


GLUE_ERRORS = {
    "one label": ("entailment\n", "4 rows and 1 predictions"),
    "another label": (
        "\n".join([*LABELS[:3], "x"]),
        r"row 4.*'entailment', 'not_.*'x'",
    ),
    "no number": ("index\tprediction\nx\ta\n", "unknown: x"),
    "a header alone": ("index\tprediction\n", "missing: "),
    "no prediction": ("index\tprediction\n1\n", "predictions:2 .*is '1'"),
    "an index twice": (indexed([0, 1, 2, 3, 3]), "more than once: 3"),
    "from one": (
        rows(("index", "prediction"), *((n, "entailment") for n in (1, 2, 3, 4))),
        "unknown: 4; missing: 0",
    ),
    "a line that is not there": (
        rows(("index", "prediction", "place"), (0, "entailment", "dev.tsv:9")),
        "unknown: 9",
    ),
}


@pytest.mark.parametrize(("text", "words"), GLUE_ERRORS.values(), ids=GLUE_ERRORS)
def test_invalid_predictions_of_glue(score, gold, text, words):
    with pytest.raises(InputError, match=words):
        score("rte", gold, text)


def test_labels_of_glue_are_found_in_a_folder(score, gold, write, tmp_path):
    notes, folder = [], str(tmp_path)
    text = "\n".join(LABELS)
    assert score("rte", folder, text, notify=notes.append) == {"accuracy": 75.0}
    assert notes == [f"labels: {gold}"]
    write("mnli/dev_matched.tsv", "gold_label\nneutral\n")
    mnli = f"{folder}/mnli"
    assert score("mnli", mnli, "neutral\n")["accuracy"] == 100  # the only one there is
    write("mnli/dev_mismatched.tsv", "gold_label\nentailment\n")
    for name, accuracy in (("dev_matched.tsv", 100), ("dev_mismatched.tsv", 0)):
        assert score("mnli", mnli, "neutral\n", name)["accuracy"] == accuracy
    for task, data, words in (
        ("rte", str(tmp_path.parent), r"rte's dev\.tsv"),
        ("mnli", folder, "dev_matched"),
        ("mnli", mnli, "'dev_matched', 'dev_mismatched'"),
        ("ax", folder, "ax has no published labels"),
    ):
        with pytest.raises(InputError, match=words):
            score(task, data, text)


def test_labels_of_other_tasks_are_found_in_a_folder(score, write, tmp_path):
    folder, notes, text = str(tmp_path), [], "a N\nb N\n"
    for task, words in (("tagging", r"dev\.txt"), ("squad2", r"dev\.json")):
        with pytest.raises(InputError, match=f"a folder with {words}"):
            score(task, folder, text)
    write("dev.txt", "a N\nb V\n")
    write("test.conll", text)
    found = score("tagging", folder, text, notify=notes.append)
    assert found["accuracy"] == 50
    assert any("dev.txt" in note for note in notes)
    assert score("tagging", folder, text, "test.x")["accuracy"] == 100


def test_spans_and_tags_of_words_are_scored(score, write):
    path = write("gold", "a X B-NP\nb X I-NP\nc X O\n\nd X B-VP\n")
    found = score("chunking", path, "a B-NP\nb I-NP\nc B-NP\n\nd B-VP\n")
    assert (found["gold"], found["predicted"], found["correct"]) == (2, 3, 2)
    assert found["precision"] == pytest.approx(200 / 3)
    path = write("gold", "a N\nb V\n")
    assert score("tagging", path, "a N\nb N\n")["accuracy"] == 50.0


def squad(impossible=True):
    answers = [{"text": "John", "answer_start": -1}]
    qas = [{"id": "1", "question": "Who?", "answers": answers, "is_impossible": False}]
    if impossible:
        qas.append(
            {"id": "2", "question": "Why?", "answers": [], "is_impossible": True}
        )
    paragraph = {"context": "It was John.", "qas": qas}
    return {"data": [{"title": "t", "paragraphs": [paragraph]}]}


def test_scores_of_squad_ignore_offsets(score, write):
    path, odds = write("dev.json", squad()), write("odds", {"1": -1.0, "2": 2.0})
    text = json.dumps({"1": "the John!", "2": "cold"})
    found = score("squad2", path, text, na_prob=odds)
    assert (found["exact"], found["HasAns_f1"], found["NoAns_exact"]) == (100, 100, 100)
    assert (found["best_exact"], found["best_exact_thresh"]) == (100, -1.0)
    found = score("squad2", path, text)
    assert (found["exact"], found["NoAns_exact"]) == (50, 0)
    path = write("dev.json", squad(False))
    assert score("squad1", path, '{"1": "he"}') == {"exact_match": 0, "f1": 0}


RECORD = {"sentence1": "a", "sentence2": "b", "label": "entailment"}
ERRORS = {  # task, content and name of the labelled file, predictions, words
    "other words": ("tagging", "a N\nb V\n", "x", "a N\nc V\n", "ions:1 .*same.*x:1"),
    "fewer sentences": ("tagging", "a N\n\nb V\n", "x", "a N\n", "2 and 1"),
    "JSON of tags": ("tagging", {"tokens": []}, "x.jsonl", "a O\n", "must be columns"),
    "no gold label": (
        "rte", [RECORD, {**RECORD, "label": None}], "x.json", "entailment\n" * 2,
        r"x\.json:1: .*, not ''",
    ),
    "answers that are cut": ("squad1", squad(False), "x.json", "{", "JSON"),
    "a list of answers": ("squad1", squad(False), "x.json", "[]", "a list"),
}  # fmt: skip


@pytest.mark.parametrize("case", ERRORS)
def test_files_that_do_not_match(score, write, case):
    task, content, name, text, words = ERRORS[case]
    with pytest.raises(InputError, match=words):
        score(task, write(name, content), text)


def test_tasks_without_official_metrics_are_refused(score, gold):
    for task in ("csv", "choice"):
        with pytest.raises(InputError, match=f"--task={task}"):
            score(task, gold, "a\n")
