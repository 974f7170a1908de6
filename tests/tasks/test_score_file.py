"""Scores of files of predictions, and errors for files that do not match."""

import json

import pytest

from electra_tf.errors import InputError
from electra_tf.tasks.score import score_predictions

GOLD = "index\tsentence1\tsentence2\tlabel\n" + "".join(
    f"{n}\ta\tb\t{label}\n"
    for n, label in enumerate(["entailment", "not_entailment"] * 2)
)
LABELS = ["entailment", "not_entailment", "entailment", "entailment"]


@pytest.fixture
def gold(tmp_path):
    (tmp_path / "dev.tsv").write_text(GOLD)
    return str(tmp_path / "dev.tsv")


def predictions(tmp_path, text):
    (tmp_path / "predictions").write_text(text)
    return str(tmp_path / "predictions")


def test_glue_predictions_with_and_without_index(gold, tmp_path):
    indexed = "index\tprediction\n" + "".join(
        f"{n}\t{w}\n" for n, w in enumerate(LABELS)
    )
    for text in (indexed, "\n".join(LABELS) + "\n", "\r\n".join(LABELS)):
        assert score_predictions("rte", gold, predictions(tmp_path, text)) == {
            "accuracy": 75.0
        }


def test_predictions_are_aligned_by_the_column_place(gold, tmp_path):
    # finetune wrote no prediction for the second row, which was invalid.
    lines = ["index\tprediction\tplace"]
    for number, (row, word) in enumerate(
        [(2, LABELS[0]), (4, LABELS[2]), (5, LABELS[3])]
    ):
        lines.append(f"{number}\t{word}\tdev.tsv:{row}")
    found = score_predictions("rte", gold, predictions(tmp_path, "\n".join(lines)))
    assert found == {"accuracy": pytest.approx(200 / 3)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("entailment\n", "4 rows in .*, 1 in .*predictions"),
        (
            "\n".join([*LABELS[:3], "maybe"]),
            "'entailment', 'not_ent.*'maybe' in row 4",
        ),
        ("index\tprediction\nx\tentailment\n", r"predictions:2: 'x\\tentailment'"),
        ("index\tprediction\n1\n", "predictions:2: '1'"),
        ("index\tlabel\n1\tentailment\n", "'index', 'label'"),
        ("index,prediction\n1,entailment\n", "tabs.*'index,prediction'"),
    ],
)
def test_invalid_glue_predictions(gold, tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        score_predictions("rte", gold, predictions(tmp_path, text))


def test_predictions_are_aligned_by_their_index(gold, tmp_path):
    rows = list(enumerate(LABELS))
    for order in ([1, 0, 3, 2], [0, 1, 2, 3], [2, 3, 1, 0]):
        lines = [f"{n}\t{word}" for n, word in (rows[place] for place in order)]
        path = predictions(tmp_path, "\n".join(["index\tprediction", *lines]))
        assert score_predictions("rte", gold, path) == {"accuracy": 75.0}
        lines = [f"{word}\t{n}" for n, word in (rows[place] for place in order)]
        path = predictions(tmp_path, "\n".join(["prediction\tindex", *lines]))
        assert score_predictions("rte", gold, path) == {"accuracy": 75.0}


@pytest.mark.parametrize(
    ("indexes", "words"),
    [
        ((0, 1, 1, 3), "more than once: 1; .*without a prediction: 2"),
        ((1, 2, 3, 4), "does not have: 4; .*without a prediction: 0"),
        ((0, 1), "without a prediction: 2, 3"),
        ((0, 1, 2, 3, 3), "more than once: 3"),
    ],
)
def test_invalid_indexes(gold, tmp_path, indexes, words):
    lines = [f"{index}\tentailment" for index in indexes]
    path = predictions(tmp_path, "\n".join(["index\tprediction", *lines]))
    with pytest.raises(InputError, match=words) as caught:
        score_predictions("rte", gold, path)
    assert "leave" not in str(caught.value).lower()


def test_invalid_lines(gold, tmp_path):
    text = "index\tprediction\tplace\n0\tentailment\tdev.tsv:2\n"
    text += "1\tentailment\tdev.tsv:9\n"
    with pytest.raises(InputError, match=r"lines that .* does not have: 9"):
        score_predictions("rte", gold, predictions(tmp_path, text))


def test_glue_labels_are_found_in_a_folder(gold, tmp_path):
    lines, path = [], predictions(tmp_path, "\n".join(LABELS))
    folder = str(tmp_path)
    assert score_predictions("rte", folder, path, log=lines.append) == {
        "accuracy": 75.0
    }
    assert lines == [f"labels: {gold}"]
    with pytest.raises(InputError, match=r"rte's dev\.tsv"):
        score_predictions("rte", str(tmp_path.parent), path)
    (tmp_path / "mnli").mkdir()
    for stem, label in (("dev_matched", "neutral"), ("dev_mismatched", "entailment")):
        with pytest.raises(InputError, match="dev_matched"):
            score_predictions("mnli", f"{folder}/mnli", path)
        (tmp_path / "mnli" / f"{stem}.tsv").write_text(f"gold_label\n{label}\n")
        (tmp_path / f"{stem}.tsv").write_text("neutral\n")
        found = score_predictions(
            "mnli", f"{folder}/mnli", f"{folder}/{stem}.tsv", log=print
        )
        assert found == {"accuracy": 100.0 * (label == "neutral")}
        if stem == "dev_matched":  # the only one there is
            path = predictions(tmp_path, "neutral\n")
            assert score_predictions("mnli", f"{folder}/mnli", path)["accuracy"] == 100
            (tmp_path / "mnli" / "dev_mismatched.tsv").touch()
    with pytest.raises(InputError, match="'dev_matched', 'dev_mismatched'"):
        score_predictions("mnli", f"{folder}/mnli", predictions(tmp_path, "neutral\n"))
    with pytest.raises(InputError, match="ax has no published labels"):
        score_predictions("ax", folder, path)


def test_labels_of_other_tasks_are_found_in_a_folder(tmp_path):
    (tmp_path / "data").mkdir()
    folder, lines = str(tmp_path / "data"), []
    path = predictions(tmp_path, "a N\nb N\n")
    with pytest.raises(InputError, match=r"a folder with dev\.txt"):
        score_predictions("tagging", folder, path)
    with pytest.raises(InputError, match=r"a folder with dev\.json"):
        score_predictions("squad2", folder, path)
    (tmp_path / "data" / "dev.txt").write_text("token tag\na N\nb V\n")
    (tmp_path / "data" / "test.txt").write_text("a N\nb N\n")
    assert (
        score_predictions("tagging", folder, path, log=lines.append)["accuracy"] == 50
    )
    assert any("dev.txt:1: 'token'" in line for line in lines)
    (tmp_path / "test.txt").write_text("a N\nb N\n")
    found = score_predictions("tagging", folder, str(tmp_path / "test.txt"))
    assert found["accuracy"] == 100


def test_spans_and_tags_of_words_are_scored(tmp_path):
    (tmp_path / "gold").write_text("a X B-NP\nb X I-NP\nc X O\n\nd X B-VP\n")
    path = predictions(tmp_path, "a B-NP\nb I-NP\nc B-NP\n\nd B-VP\n")
    found = score_predictions("chunking", str(tmp_path / "gold"), path)
    assert (found["gold"], found["predicted"], found["correct"]) == (2, 3, 2)
    assert found["precision"] == pytest.approx(200 / 3)
    (tmp_path / "gold").write_text("a N\nb V\n")
    found = score_predictions(
        "tagging", str(tmp_path / "gold"), predictions(tmp_path, "a N\nb N\n")
    )
    assert found["accuracy"] == 50.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a N\nc V\n", "the same words.*predictions:1"),
        ("a N\n\nb V\n", "the same words|sente"),
    ],
)
def test_sentences_must_match(tmp_path, text, message):
    (tmp_path / "gold").write_text("a N\nb V\n")
    with pytest.raises(InputError, match=message):
        score_predictions(
            "tagging", str(tmp_path / "gold"), predictions(tmp_path, text)
        )


def test_other_formats_and_missing_labels_are_named(tmp_path):
    gold = tmp_path / "gold.jsonl"
    gold.write_text('{"tokens": ["a"], "ner_tags": ["O"]}\n')
    with pytest.raises(InputError, match=r"gold\.jsonl"):
        score_predictions("tagging", str(gold), predictions(tmp_path, "a O\n"))
    record = {"sentence1": "a", "sentence2": "b", "label": "entailment"}
    records = [record, {**record, "label": None}]
    gold.write_text("\n".join(map(json.dumps, records)))
    with pytest.raises(InputError, match=r"'' in .*gold\.jsonl:2"):
        score_predictions("rte", str(gold), predictions(tmp_path, "entailment\n" * 2))


def test_squad_scores_ignore_offsets(tmp_path):
    paragraph = {
        "context": "It was John.",
        "qas": [
            {
                "id": "1",
                "question": "Who?",
                "answers": [{"text": "John", "answer_start": -1}],
                "is_impossible": False,
            },
            {"id": "2", "question": "Why?", "answers": [], "is_impossible": True},
        ],
    }
    data = {"version": "v2.0", "data": [{"title": "t", "paragraphs": [paragraph]}]}
    (tmp_path / "dev.json").write_text(json.dumps(data))
    path = predictions(tmp_path, json.dumps({"1": "the John!", "2": "cold"}))
    odds = tmp_path / "odds"
    odds.write_text(json.dumps({"1": -1.0, "2": 2.0}))
    found = score_predictions("squad2", str(tmp_path / "dev.json"), path, str(odds))
    assert (found["exact"], found["HasAns_f1"], found["NoAns_exact"]) == (100, 100, 100)
    assert (found["best_exact"], found["best_exact_thresh"]) == (100, -1.0)
    found = score_predictions("squad2", str(tmp_path / "dev.json"), path)
    assert (found["exact"], found["NoAns_exact"]) == (50, 0)


def test_invalid_squad_predictions(tmp_path, gold):
    answer = {"text": "John", "answer_start": 7}
    qas = [{"id": "1", "question": "Who?", "answers": [answer]}]
    paragraph = {"context": "It was John.", "qas": qas}
    data = {"data": [{"title": "t", "paragraphs": [paragraph]}]}
    (tmp_path / "dev.json").write_text(json.dumps(data))
    for text, words in (("{", "JSON"), ("[]", "a list")):
        with pytest.raises(InputError, match=words):
            score_predictions(
                "squad1", str(tmp_path / "dev.json"), predictions(tmp_path, text)
            )
    with pytest.raises(InputError, match=r"--na_prob.*--task=rte"):
        score_predictions("rte", gold, gold, na_prob=gold)


def test_scores_of_published_predictions(data):
    found = score_predictions(
        "squad1",
        str(data / "squad" / "dev-v1.1.rebuilt.json.gz"),
        str(data / "squad" / "predictions" / LOGISTIC),
        log=(lines := []).append,
    )
    assert found == {"exact_match": 40.14191106906339, "f1": 50.98153647324461}
    assert any("13 questions" in line for line in lines)


LOGISTIC = "1.1_Logistic_Regression_Baseline_Stanford_University.json.gz"
