"""Files of predictions get the official scores, or one paragraph."""

import json

import pytest

from electra_tf.errors import InputError
from electra_tf.tasks.score_file import score_predictions

GOLD = "index\tsentence1\tsentence2\tlabel\n" + "".join(
    f"{n}\ta\tb\t{label}\n"
    for n, label in enumerate(["entailment", "not_entailment"] * 2)
)
SAID = ["entailment", "not_entailment", "entailment", "entailment"]


@pytest.fixture
def gold(tmp_path):
    (tmp_path / "dev.tsv").write_text(GOLD)
    return str(tmp_path / "dev.tsv")


def predictions(tmp_path, text):
    (tmp_path / "said").write_text(text)
    return str(tmp_path / "said")


def test_the_leaderboards_form_and_bare_labels_score_alike(gold, tmp_path):
    indexed = "index\tprediction\n" + "".join(f"{n}\t{w}\n" for n, w in enumerate(SAID))
    for text in (indexed, "\n".join(SAID) + "\n", "\r\n".join(SAID)):
        assert score_predictions("rte", gold, predictions(tmp_path, text)) == {
            "accuracy": 75.0
        }


def test_predictions_that_tell_their_lines_are_held_against_those(gold, tmp_path):
    # As finetune leaves them where the second row was a bad one.
    lines = ["index\tprediction\tplace"]
    for number, (row, word) in enumerate([(2, SAID[0]), (4, SAID[2]), (5, SAID[3])]):
        lines.append(f"{number}\t{word}\tdev.tsv:{row}")
    found = score_predictions("rte", gold, predictions(tmp_path, "\n".join(lines)))
    assert found == {"accuracy": pytest.approx(200 / 3)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("entailment\n", "4 rows in .*, 1 in .*said"),
        (
            "\n".join([*SAID[:3], "maybe"]),
            "Labels are 'entailment', 'not_ent.*'maybe' in row 4",
        ),
        ("index\tprediction\nx\tentailment\n", r"said:2: 'x\\tentailment'"),
        ("index\tprediction\n1\n", "said:2: '1'"),
        ("index\tlabel\n1\tentailment\n", "'index', 'label'"),
        ("index,prediction\n1,entailment\n", "tabs.*'index,prediction'"),
    ],
)
def test_predictions_that_do_not_fit_are_told(gold, tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        score_predictions("rte", gold, predictions(tmp_path, text))


def test_predictions_are_aligned_by_their_index(gold, tmp_path):
    rows = list(enumerate(SAID))
    for order in ([1, 0, 3, 2], [0, 1, 2, 3], [2, 3, 1, 0]):
        lines = [f"{n}\t{word}" for n, word in (rows[place] for place in order)]
        said = predictions(tmp_path, "\n".join(["index\tprediction", *lines]))
        assert score_predictions("rte", gold, said) == {"accuracy": 75.0}
        lines = [f"{word}\t{n}" for n, word in (rows[place] for place in order)]
        said = predictions(tmp_path, "\n".join(["prediction\tindex", *lines]))
        assert score_predictions("rte", gold, said) == {"accuracy": 75.0}


@pytest.mark.parametrize(
    ("indexes", "words"),
    [
        ((0, 1, 1, 3), "more than once: 1; .*without a prediction: 2"),
        ((1, 2, 3, 4), "does not have: 4; .*without a prediction: 0"),
        ((0, 1), "without a prediction: 2, 3"),
        ((0, 1, 2, 3, 3), "more than once: 3"),
    ],
)
def test_indexes_that_do_not_fit_are_told(gold, tmp_path, indexes, words):
    lines = [f"{index}\tentailment" for index in indexes]
    said = predictions(tmp_path, "\n".join(["index\tprediction", *lines]))
    with pytest.raises(InputError, match=words) as caught:
        score_predictions("rte", gold, said)
    assert "leave" not in str(caught.value).lower()


def test_lines_that_do_not_fit_are_told(gold, tmp_path):
    text = "index\tprediction\tplace\n0\tentailment\tdev.tsv:2\n"
    text += "1\tentailment\tdev.tsv:9\n"
    with pytest.raises(InputError, match=r"lines that .* does not have: 9"):
        score_predictions("rte", gold, predictions(tmp_path, text))


def test_the_labels_are_found_in_a_folder(gold, tmp_path):
    lines, said = [], predictions(tmp_path, "\n".join(SAID))
    folder = str(tmp_path)
    assert score_predictions("rte", folder, said, tell=lines.append) == {
        "accuracy": 75.0
    }
    assert lines == [f"right answers: {gold}"]
    with pytest.raises(InputError, match=r"rte's dev\.tsv"):
        score_predictions("rte", str(tmp_path.parent), said)
    (tmp_path / "mnli").mkdir()
    for stem, label in (("dev_matched", "neutral"), ("dev_mismatched", "entailment")):
        with pytest.raises(InputError, match="dev_matched"):
            score_predictions("mnli", f"{folder}/mnli", said)
        (tmp_path / "mnli" / f"{stem}.tsv").write_text(f"gold_label\n{label}\n")
        (tmp_path / f"{stem}.tsv").write_text("neutral\n")
        found = score_predictions(
            "mnli", f"{folder}/mnli", f"{folder}/{stem}.tsv", tell=print
        )
        assert found == {"accuracy": 100.0 * (label == "neutral")}
        if stem == "dev_matched":  # the only one there is
            said = predictions(tmp_path, "neutral\n")
            assert score_predictions("mnli", f"{folder}/mnli", said)["accuracy"] == 100
            (tmp_path / "mnli" / "dev_mismatched.tsv").touch()
    with pytest.raises(InputError, match="'dev_matched', 'dev_mismatched'"):
        score_predictions("mnli", f"{folder}/mnli", predictions(tmp_path, "neutral\n"))
    with pytest.raises(InputError, match="ax has no published labels"):
        score_predictions("ax", folder, said)


def test_files_of_other_tasks_are_found_in_a_folder(tmp_path):
    (tmp_path / "data").mkdir()
    folder, lines = str(tmp_path / "data"), []
    said = predictions(tmp_path, "a N\nb N\n")
    with pytest.raises(InputError, match=r"a folder with dev\.txt"):
        score_predictions("tagging", folder, said)
    with pytest.raises(InputError, match=r"a folder with dev\.json"):
        score_predictions("squad2", folder, said)
    (tmp_path / "data" / "dev.txt").write_text("token tag\na N\nb V\n")
    (tmp_path / "data" / "test.txt").write_text("a N\nb N\n")
    assert (
        score_predictions("tagging", folder, said, tell=lines.append)["accuracy"] == 50
    )
    assert any("dev.txt:1: 'token'" in line for line in lines)
    (tmp_path / "test.txt").write_text("a N\nb N\n")
    found = score_predictions("tagging", folder, str(tmp_path / "test.txt"))
    assert found["accuracy"] == 100


def test_spans_and_tags_of_words_are_scored(tmp_path):
    (tmp_path / "gold").write_text("a X B-NP\nb X I-NP\nc X O\n\nd X B-VP\n")
    said = predictions(tmp_path, "a B-NP\nb I-NP\nc B-NP\n\nd B-VP\n")
    found = score_predictions("chunking", str(tmp_path / "gold"), said)
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
        ("a N\nc V\n", "the same words.*said:1"),
        ("a N\n\nb V\n", "the same words|sente"),
    ],
)
def test_other_words_are_told(tmp_path, text, message):
    (tmp_path / "gold").write_text("a N\nb V\n")
    with pytest.raises(InputError, match=message):
        score_predictions(
            "tagging", str(tmp_path / "gold"), predictions(tmp_path, text)
        )


def test_squad_is_scored_whatever_the_offsets(tmp_path):
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
    said = predictions(tmp_path, json.dumps({"1": "the John!", "2": "cold"}))
    odds = tmp_path / "odds"
    odds.write_text(json.dumps({"1": -1.0, "2": 2.0}))
    found = score_predictions("squad2", str(tmp_path / "dev.json"), said, str(odds))
    assert (found["exact"], found["HasAns_f1"], found["NoAns_exact"]) == (100, 100, 100)
    assert (found["best_exact"], found["best_exact_thresh"]) == (100, -1.0)
    found = score_predictions("squad2", str(tmp_path / "dev.json"), said)
    assert (found["exact"], found["NoAns_exact"]) == (50, 0)


def test_what_is_no_json_is_told(tmp_path, gold):
    answer = {"text": "John", "answer_start": 7}
    qas = [{"id": "1", "question": "Who?", "answers": [answer]}]
    paragraph = {"context": "It was John.", "qas": qas}
    data = {"data": [{"title": "t", "paragraphs": [paragraph]}]}
    (tmp_path / "dev.json").write_text(json.dumps(data))
    for text, words in (("{", "are JSON"), ("[]", "a list")):
        with pytest.raises(InputError, match=words):
            score_predictions(
                "squad1", str(tmp_path / "dev.json"), predictions(tmp_path, text)
            )
    with pytest.raises(InputError, match="--na_prob goes with --task=squad2"):
        score_predictions("rte", gold, gold, na_prob=gold)


def test_real_predictions_get_their_scores(data):
    found = score_predictions(
        "squad1",
        str(data / "squad" / "dev-v1.1.rebuilt.json.gz"),
        str(data / "squad" / "predictions" / LOGISTIC),
        tell=(said := []).append,
    )
    assert found == {"exact_match": 40.14191106906339, "f1": 50.98153647324461}
    assert any("13 questions" in line for line in said)


LOGISTIC = "1.1_Logistic_Regression_Baseline_Stanford_University.json.gz"
