import gzip
import json
import random

import pytest

from electra_tf.errors import InputError
from electra_tf.tasks.squad_json import Answer, Question, read_squad
from electra_tf.tasks.squad_metrics import exact, f1, normalize, score_v1, score_v2
from electra_tf.text.data_errors import DataErrorLog

V2 = (  # exact, f1, HasAns_exact, HasAns_f1, NoAns_exact; official script's output
    (
        "v2.0_BERT_single_model_Google_AI_Language",
        (
            78.74168280973637,
            81.77528052374723,
            74.10593792172739,
            80.18183293833508,
            83.36417157275021,
        ),
    ),
    (
        "v2.0_BiDAF__Self_Attention__ELMo_single_model_Allen_Institute_for_Artificial"
        "_Intelligence_modified_by_Stanford",
        (
            65.70369746483618,
            67.87648921451334,
            61.42037786774629,
            65.77219238257676,
            69.97476871320437,
        ),
    ),
)
V1 = (  # exact_match, f1, ids without a prediction
    ("1.1_BERT_ensemble_Google_AI_Language", (86.20624408703878, 92.19557978351145), 0),
    (
        "1.1_Match-LSTM_with_Ans-Ptr_BoundaryEnsemble_Singapore_Management_University",
        (67.63481551561021, 76.75556184979695),
        0,
    ),
    (
        "1.1_Logistic_Regression_Baseline_Stanford_University",
        (40.14191106906339, 50.98153647324461),
        13,
    ),
)


def question(name, *texts, impossible=None):
    impossible = not texts if impossible is None else impossible
    gold = tuple(Answer(text, 0) for text in texts)
    return Question(name, "w", "c", gold, impossible, "", "file.json", 1)


@pytest.fixture(scope="session")
def files(data, tmp_path_factory):
    def read(name):
        log = DataErrorLog("stop", tmp_path_factory.mktemp("log") / "problems.txt")
        return read_squad(data / "squad" / f"{name}.json.gz", log)

    return {name: read(f"dev-{name}.rebuilt") for name in ("v1.1", "v2.0")}


def predictions_of(data, name):
    path = data / "squad" / "predictions" / f"{name}.json.gz"
    return json.loads(gzip.open(path).read())


def test_normalize_by_hand():
    assert normalize("The  A-Team's, an\tEND") == "ateams end"
    assert normalize("a.n the") == ""  # punctuation goes before the articles
    assert normalize("\u00c9t\u00e9 \u201cA\u201d") == "\u00e9t\u00e9 \u201c \u201d"
    assert normalize("theatre an1 a_b") == "theatre an1 ab"


def test_exact_and_f1_by_hand():
    assert exact("The cat!", "cat") == 1
    assert exact("cat", "cats") == 0
    assert f1("a black cat sat", "cat cat sat on") == pytest.approx(2 * 2 / (3 + 4))
    assert f1("cat", "dog") == 0
    assert (f1("", "the"), f1("", "cat"), f1("cat", "")) == (1, 0, 0)
    assert f1("the", "a", empty_agrees=False) == 0
    assert f1("cat cat", "cat", empty_agrees=False) == pytest.approx(2 / 3)


@pytest.mark.parametrize(("name", "expected", "missing"), V1, ids=lambda v: str(v)[:12])
def test_published_predictions_of_version_1(data, files, name, expected, missing):
    warnings = []
    found = score_v1(files["v1.1"], predictions_of(data, name), warnings.append)
    assert found == dict(zip(("exact_match", "f1"), expected, strict=True))
    assert list(found) == ["exact_match", "f1"]
    about = [line for line in warnings if "without a prediction" in line]
    assert len(about) == bool(missing)
    if missing:
        assert about[0].startswith(f"{missing} questions (")


def v2(exact, f1, has_exact, has_f1, no, counts=(5928, 5945)):
    return {
        "exact": exact,
        "f1": f1,
        "total": sum(counts),
        "HasAns_exact": has_exact,
        "HasAns_f1": has_f1,
        "HasAns_total": counts[0],
        "NoAns_exact": no,
        "NoAns_f1": no,
        "NoAns_total": counts[1],
    }


@pytest.mark.parametrize(("name", "expected"), V2, ids=lambda v: str(v)[:12])
def test_published_predictions_of_version_2(data, files, name, expected):
    found = score_v2(files["v2.0"], predictions_of(data, name))
    assert found == v2(*expected)
    assert list(found) == list(v2(*expected))


def test_empty_and_gold_predictions(files):
    questions = files["v2.0"]
    nothing = score_v2(questions, {q.id: "" for q in questions})
    assert nothing == v2(50.07159100480081, 50.07159100480081, 0, 0, 100)
    first = {q.id: q.answers[0].text if q.answers else "" for q in questions}
    assert score_v2(questions, first) == v2(100, 100, 100, 100, 100)


def test_thresholds_by_hand():
    questions = [question("a", "cat"), question("b", "black dog"), question("c")]
    predictions = {"a": "cat", "b": "dog", "c": "cow"}
    odds = {"a": -3.0, "b": 1.0, "c": 0.5}
    found = score_v2(questions, predictions, odds, na_threshold=-2.75)
    expected = {"exact": 200 / 3, "f1": 200 / 3, "total": 3}
    expected |= {"HasAns_exact": 50, "HasAns_f1": 50, "HasAns_total": 2}
    expected |= {"NoAns_exact": 100, "NoAns_f1": 100, "NoAns_total": 1}
    expected |= {"best_exact": 200 / 3, "best_exact_thresh": -3.0}
    expected |= {"best_f1": 200 / 3, "best_f1_thresh": -3.0}
    assert found == pytest.approx(expected)
    assert list(found) == list(expected)
    # At 0.75 only b is empty. At 1.0 none is: 1 is not above 1.
    assert score_v2(questions, predictions, odds, 0.75)["f1"] == pytest.approx(100 / 3)
    assert score_v2(questions, predictions, odds)["f1"] == pytest.approx(500 / 9)
    odds["c"] = 2.0
    found = score_v2(questions, predictions, odds)
    assert (found["best_exact"], found["best_exact_thresh"]) == (
        pytest.approx(200 / 3),
        -3.0,
    )
    assert (found["best_f1"], found["best_f1_thresh"]) == (pytest.approx(800 / 9), 1.0)


def test_the_best_threshold_reaches_its_score(data, files):
    questions = files["v2.0"]
    predictions = predictions_of(data, V2[0][0])
    # Odds that correlate with the gold: the length of the answer, ties by order.
    odds = {q.id: -len(predictions[q.id]) - i * 1e-6 for i, q in enumerate(questions)}
    best = score_v2(questions, predictions, odds)
    for name in ("exact", "f1"):
        threshold = best[f"best_{name}_thresh"]
        reached = score_v2(questions, predictions, odds, threshold)[name]
        assert reached == pytest.approx(best[f"best_{name}"], abs=1e-9)


def test_gold_that_normalizes_to_an_empty_text():
    questions = [question("a", "the", "cat", impossible=False), question("b", "a")]
    predictions = {"a": "cat", "b": ""}
    assert score_v2(questions, predictions)["exact"] == 100
    assert score_v2(questions, {"a": "the", "b": ""})["exact"] == 50
    assert score_v1(questions, predictions) == {"exact_match": 100, "f1": 50}
    assert "NoAns_exact" not in score_v2(questions, predictions)
    assert "HasAns_exact" not in score_v2([question("c")], {"c": ""})


def test_missing_and_surplus_ids_are_reported(capsys):
    questions = [question(f"q{i}", "cat") for i in range(6)]
    predictions = {"q0": "cat", "x": "dog"}
    warnings = []
    assert score_v1(questions, predictions, warnings.append) == {
        "exact_match": pytest.approx(100 / 6),
        "f1": pytest.approx(100 / 6),
    }
    assert warnings == [
        "1 prediction (x) without a question; not scored",
        "5 questions (q1, q2, q3, ...) without a prediction; each scores 0",
    ]
    score_v1(questions, predictions)
    assert capsys.readouterr().err.splitlines() == warnings
    with pytest.raises(InputError, match=r"5 questions \(q1, q2, q3, \.\.\.\)"):
        score_v2(questions, predictions, warn=warnings.append)
    all_of_them = {f"q{i}": "cat" for i in range(6)} | {"x": "dog"}
    warnings.clear()
    assert score_v2(questions, all_of_them, warn=warnings.append)["exact"] == 100
    assert warnings == ["1 prediction (x) without a question; not scored"]


def test_invalid_predictions_and_gold_raise():
    questions = [question("a", "cat"), question("b")]
    predictions = {"a": "cat", "b": ""}
    for odds in ({"a": 1.0}, {"a": 1.0, "b": float("nan")}, {"a": 1.0, "b": "x"}):
        with pytest.raises(InputError, match=r"1 question \(b\) without"):
            score_v2(questions, predictions, odds)
    with pytest.raises(InputError, match=r"1 other \(a\), the first None"):
        score_v2(questions, {"a": None, "b": ""})
    with pytest.raises(InputError, match=r"1 question \(b\)"):
        score_v1(questions, predictions)
    unlabelled = [question("a", impossible=False)]
    for score in (score_v1, score_v2):
        with pytest.raises(InputError, match="gold"):
            score(unlabelled, {"a": ""})
        with pytest.raises(InputError, match="gold"):
            score([], {})


WORDS = "the a cat Cat, dog's An end. \u00e9t\u00e9 2 - black"


def as_squad(questions):
    """Return questions in the layout that the official scripts read."""
    rows = [
        {"id": q.id, "answers": [{"text": answer.text} for answer in q.answers]}
        for q in questions
    ]
    return [{"paragraphs": [{"qas": rows}]}]


def random_questions(version):
    """Return questions and predictions with articles, punctuation and empty texts."""
    rng = random.Random(version)
    words = WORDS.split()

    def text():
        return " ".join(rng.choices(words, k=rng.randint(1, 5)))

    questions, predictions, odds = [], {}, {}
    for number in range(300):
        is_answerable = version == 1 or rng.random() < 0.6
        gold = [text() for _ in range(rng.randint(1, 3))] if is_answerable else []
        questions.append(question(f"q{number}", *gold))
        near = rng.choice(gold) if gold and rng.random() < 0.5 else text()
        predictions[f"q{number}"] = near if version == 1 or rng.random() < 0.7 else ""
        odds[f"q{number}"] = round(rng.gauss(0, 2), 1) + number * 1e-6
    return questions, predictions, odds


def test_scores_of_version_1_equal_the_official_script():
    from official.nlp.tools import squad_evaluate_v1_1

    questions, predictions, _ = random_questions(1)
    expected = squad_evaluate_v1_1.evaluate(as_squad(questions), predictions)
    found = score_v1(questions, predictions)
    assert found["exact_match"] == pytest.approx(100 * expected["exact_match"])
    assert found["f1"] == pytest.approx(100 * expected["final_f1"])
    assert 10 < found["exact_match"] < found["f1"] < 90


def test_scores_of_version_2_equal_the_official_script():
    from official.nlp.tools import squad_evaluate_v2_0

    questions, predictions, odds = random_questions(2)
    expected = squad_evaluate_v2_0.evaluate(as_squad(questions), predictions, odds)
    found = score_v2(questions, predictions, odds)
    for name in ("exact", "exact_thresh", "f1", "f1_thresh"):
        expected[f"best_{name}"] = expected.pop(f"final_{name}")
    assert found == pytest.approx({name: expected[name] for name in found})
    assert set(expected) - set(found) == {"pr_exact_ap", "pr_f1_ap", "pr_oracle_ap"}
    assert found["best_f1"] > found["f1"]
