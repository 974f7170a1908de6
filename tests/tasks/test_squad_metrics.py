"""Scores of SQuAD: published, by hand, and equal to the official scripts'."""

import gzip
import json
import random

import pytest

from electra_tf.tasks.data.squad_json import Answer, Question, read_squad
from electra_tf.tasks.squad_metrics import score_v1, score_v2

# Published predictions, with the output of the official scripts.
BERT = "v2.0_BERT_single_model_Google_AI_Language"
V2 = {  # exact, f1, HasAns_exact, HasAns_f1, NoAns_exact
    BERT: (
        78.74168280973637, 81.77528052374723, 74.10593792172739, 80.18183293833508,
        83.36417157275021,
    ),
}  # fmt: skip
V1 = {  # exact_match, f1, ids without a prediction
    "1.1_BERT_ensemble_Google_AI_Language": (86.20624408703878, 92.19557978351145, 0),
    "1.1_Logistic_Regression_Baseline_Stanford_University": (
        40.14191106906339, 50.98153647324461, 13,
    ),
}  # fmt: skip


def question(name, *texts, impossible=None):
    impossible = not texts if impossible is None else impossible
    gold = tuple(Answer(text, 0) for text in texts)
    return Question(name, "w", "c", gold, impossible)


@pytest.fixture(scope="module")
def files(data):
    paths = {v: data / "squad" / f"dev-v{v}.0.rebuilt.json.gz" for v in "12"}
    paths["1"] = data / "squad" / "dev-v1.1.rebuilt.json.gz"
    return {version: read_squad(path) for version, path in paths.items()}


@pytest.fixture(scope="module")
def published(data):
    def read(name):
        path = data / "squad" / "predictions" / f"{name}.json.gz"
        return json.loads(gzip.open(path).read())

    return read


@pytest.mark.parametrize("name", V1, ids=lambda name: name[:12])
def test_published_predictions_of_version_1(files, published, name):
    *expected, missing = V1[name]
    predictions = published(name)
    scores = score_v1(files["1"], predictions)
    assert list(scores.items()) == list(
        zip(("exact_match", "f1"), expected, strict=True)
    )
    assert sum(q.id not in predictions for q in files["1"]) == missing


def v2(exact, f1, has_exact, has_f1, no, counts=(5928, 5945)):
    has = {"HasAns_exact": has_exact, "HasAns_f1": has_f1, "HasAns_total": counts[0]}
    none = {"NoAns_exact": no, "NoAns_f1": no, "NoAns_total": counts[1]}
    return {"exact": exact, "f1": f1, "total": sum(counts), **has, **none}


@pytest.mark.parametrize("name", V2, ids=lambda name: name[:12])
def test_published_predictions_of_version_2(files, published, name):
    scores = score_v2(files["2"], published(name))
    assert list(scores.items()) == list(v2(*V2[name]).items())


def test_empty_and_gold_predictions(files):
    nothing = score_v2(files["2"], {q.id: "" for q in files["2"]})
    assert nothing == v2(50.07159100480081, 50.07159100480081, 0, 0, 100)
    first = {q.id: q.answers[0].text if q.answers else "" for q in files["2"]}
    assert score_v2(files["2"], first) == v2(100, 100, 100, 100, 100)


def test_thresholds_by_hand():
    questions = [question("a", "cat"), question("b", "black dog"), question("c")]
    predictions = {"a": "cat", "b": "dog", "c": "cow"}
    odds = {"a": -3.0, "b": 1.0, "c": 0.5}
    scores = score_v2(questions, predictions, odds, na_threshold=-2.75)
    expected = v2(200 / 3, 200 / 3, 50, 50, 100, (2, 1))
    expected |= {"best_exact": 200 / 3, "best_exact_thresh": -3.0}
    expected |= {"best_f1": 200 / 3, "best_f1_thresh": -3.0}
    assert scores == pytest.approx(expected)
    assert list(scores) == list(expected)
    # At 0.75 only b is empty. At 1.0 none is: 1 is not above 1.
    assert score_v2(questions, predictions, odds, 0.75)["f1"] == pytest.approx(100 / 3)
    assert score_v2(questions, predictions, odds)["f1"] == pytest.approx(500 / 9)
    scores = score_v2(questions, predictions, odds | {"c": 2.0})
    best = [
        scores[f"best_{name}"] for name in ("exact", "exact_thresh", "f1", "f1_thresh")
    ]
    assert best == pytest.approx([200 / 3, -3.0, 800 / 9, 1.0])
    none = score_v2(questions[2:], predictions, {"c": 2.0})  # no answer is best
    assert (none["best_f1"], none["best_f1_thresh"]) == (100, 0)


def test_the_best_threshold_reaches_its_score(files, published):
    questions, predictions = files["2"], published(BERT)
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


WORDS = "the a cat Cat, dog's An end. \u00e9t\u00e9 2 - black"


def random_questions(version):
    """Return questions and predictions with articles, punctuation and empty texts."""
    rng = random.Random(version)

    def text():
        return " ".join(rng.choices(WORDS.split(), k=rng.randint(1, 5)))

    questions, predictions, odds = [], {}, {}
    for number in range(300):
        is_answerable = version == 1 or rng.random() < 0.6
        gold = [text() for _ in range(rng.randint(1, 3))] if is_answerable else []
        questions.append(question(f"q{number}", *gold))
        near = rng.choice(gold) if gold and rng.random() < 0.5 else text()
        predictions[f"q{number}"] = near if version == 1 or rng.random() < 0.7 else ""
        odds[f"q{number}"] = round(rng.gauss(0, 2), 1) + number * 1e-6
    rows = [
        {"id": q.id, "answers": [{"text": answer.text} for answer in q.answers]}
        for q in questions
    ]
    return questions, [{"paragraphs": [{"qas": rows}]}], predictions, odds


def test_scores_of_version_1_equal_the_official_script():
    squad_evaluate = pytest.importorskip("official.nlp.tools.squad_evaluate_v1_1")
    questions, articles, predictions, _ = random_questions(1)
    expected = squad_evaluate.evaluate(articles, predictions)
    scores = score_v1(questions, predictions)
    assert scores["exact_match"] == pytest.approx(100 * expected["exact_match"])
    assert scores["f1"] == pytest.approx(100 * expected["final_f1"])
    assert 10 < scores["exact_match"] < scores["f1"] < 90


def test_scores_of_version_2_equal_the_official_script():
    squad_evaluate = pytest.importorskip("official.nlp.tools.squad_evaluate_v2_0")
    questions, articles, predictions, odds = random_questions(2)
    expected = squad_evaluate.evaluate(articles, predictions, odds)
    scores = score_v2(questions, predictions, odds)
    for name in ("exact", "exact_thresh", "f1", "f1_thresh"):
        expected[f"best_{name}"] = expected.pop(f"final_{name}")
    assert scores == pytest.approx({name: expected[name] for name in scores})
    assert set(expected) - set(scores) == {"pr_exact_ap", "pr_f1_ap", "pr_oracle_ap"}
    assert scores["best_f1"] > scores["f1"]
