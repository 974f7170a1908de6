"""Questions: files, scores, thresholds, prediction files; the model and its loss."""

import dataclasses
import json
import math
import pathlib
import shutil

import numpy as np
import pytest

from electra_tf.config.finetuning import DataConfig
from electra_tf.errors import InputError
from electra_tf.tasks import registry
from electra_tf.tasks.question_answerer import QuestionAnswerer
from electra_tf.tasks.score import ScoredSplit
from electra_tf.tasks.spans import Candidate, QAPrediction
from tests import tiny

ANSWER = {"text": "the and", "answer_start": 3}


def squad(articles=5, first=0, labelled=True):
    """Return articles, each with an answerable and an impossible question."""
    data = []
    for number in range(first, first + articles):
        qas = [{"id": f"{number}{name}", "question": "the"} for name in "ab"]
        if labelled:
            qas[0] |= {"answers": [ANSWER], "is_impossible": False}
            qas[1] |= {"answers": [], "is_impossible": True}
        paragraphs = [{"context": "in the and of to for with on", "qas": qas}]
        data.append({"title": f"title {number}", "paragraphs": paragraphs})
    return {"data": data}


@pytest.fixture
def read(write, tmp_path):
    """Return a function that reads a task from a file, or a folder of files."""

    def of(files, name="squad2", **settings):
        shutil.rmtree(tmp_path / "data", ignore_errors=True)
        for file, content in files.items():
            path = write(f"data/{file}", content)
        data = path if "all.json" in files else str(pathlib.Path(path).parent)
        return tiny.read_task(name, data, DataConfig(**settings))

    return of


@pytest.fixture
def task(read):
    test = squad(1, 7, labelled=False)
    files = {
        "train-v2.0.json": squad(),
        "dev-v2.0.json": squad(2, 5),
        "test.json": test,
    }
    return read(files)


@pytest.fixture
def model(task):
    settings = tiny.settings(data_max_length=16)
    return task.model(tiny.start(), settings=settings, seed=0)


@pytest.fixture
def scored(task, model):
    """Return a function that scores answers to the questions of dev."""

    def of(*odds, text="the and", task=task, model=model):
        nbest = (Candidate(text, 0.75, -1.0, -0.5), Candidate("b", 0.25, -2.0, -0.6))
        details = [QAPrediction(text, value, nbest) for value in odds]
        names, split = task.metrics, task.splits["dev"]
        return ScoredSplit(registry.of(model), model, split, details, names)

    return of


def test_splits_and_training_examples(task, model):
    sizes = {name: len(part) for name, part in task.splits.items()}
    assert sizes == {"train": 10, "dev": 4, "test": 2}
    assert list(task.eval_splits) == ["dev"]
    assert task.monitor == "dev_best_f1"
    located = task.splits["train"].targets
    assert [[a.text for a in answers] for answers in located] == [["the and"], []] * 5
    examples = task.training_examples(model)
    assert list(examples.targets["impossible"]) == [0, 1] * 5
    assert examples.targets["start"][0] == 4  # [CLS] the [SEP] in THE
    for part in task.splits.values():
        predicted = model.predict_details(part.items)
        assert len(predicted) == len(part)
        assert all(one.text for one in predicted)


def test_the_tuned_threshold_is_used_in_scores_and_files(model, scored, tmp_path):
    odds = -3.0, 2.0, -2.0, -1.0
    before = scored(*odds).scores
    assert next(iter(before)) == "best_f1"
    assert not [name for name in before if name.endswith("total")]
    assert before["exact"] == before["f1"] == 75.0  # the last question is impossible
    assert (before["HasAns_exact"], before["NoAns_exact"]) == (100.0, 50.0)
    assert (before["best_f1"], before["best_f1_thresh"]) == (100.0, -2.0)
    assert model.null_threshold == 0.0
    dev = scored(*odds)
    mistakes = [mistake[:4] for mistake in dev.mistakes]
    assert mistakes == [("the", "no answer", "the and", 0.75)]
    dev.task.tune(dev)
    assert model.null_threshold == -2.0
    assert dev.scores["f1"] == dev.scores["best_f1"] == 100.0
    dev.task.write(dev, str(tmp_path / "dev"))
    texts = json.loads((tmp_path / "dev" / "predictions.json").read_text())
    assert texts == {"5a": "the and", "5b": "", "6a": "the and", "6b": ""}
    odds = json.loads((tmp_path / "dev" / "null_odds.json").read_text())
    assert odds == {"5a": -3.0, "5b": 2.0, "6a": -2.0, "6b": -1.0}
    nbest = json.loads((tmp_path / "dev" / "nbest.json").read_text())
    first = {
        "text": "the and",
        "probability": 0.75,
        "start_logit": -1,
        "end_logit": -0.5,
    }
    assert (nbest["5b"][0], nbest["6b"][1]["text"]) == (first, "b")


@pytest.mark.parametrize(
    ("odds", "words"),
    [
        ([1.0] * 4, "predicts no answer to any question"),
        ([-1.0] * 4, "always predicts 'the and'"),
        ([-1.0, 1.0, 1.0, 1.0], None),
    ],
)
def test_degenerate_answers(scored, odds, words):
    assert scored(*odds).degenerate == words


def test_no_answer_to_any_question(model, scored, tmp_path):
    nan = scored(*[float("nan")] * 4)
    assert nan.scores["exact"] == nan.scores["f1"] == 50
    nan.task.write(nan, str(tmp_path / "dev"))
    odds = json.loads((tmp_path / "dev" / "null_odds.json").read_text())
    assert set(odds.values()) == {None}  # not NaN, which is no JSON
    dev = scored(float("nan"), -10.0, -11.0, -12.0, text="no answer of any")
    dev.task.tune(dev)
    assert model.null_threshold == -13
    assert dev.scores["f1"] == dev.scores["best_f1"] > 0


def test_version_1_has_no_threshold(read, scored):
    content = squad(2, 5)
    for article in content["data"]:
        del article["paragraphs"][0]["qas"][1]
    # The published name is preferred to dev.json.
    files = {"train.json": squad(2), "dev.json": squad(2), "dev-v1.1.json": content}
    task = read(files, "squad1")
    assert (len(task.splits["dev"]), task.monitor) == (2, "dev_f1")
    model = task.model(tiny.start(), settings=tiny.settings(data_max_length=16), seed=0)
    dev = scored(9.0, 9.0, task=task, model=model)
    dev.task.tune(dev)
    assert model.null_threshold is None
    assert dev.scores == {"exact_match": 100.0, "f1": 100.0}
    # `the` is an article, so `and` is the only gold word.
    details = [dev.details[0], QAPrediction("the", 9.0, ())]
    half = dataclasses.replace(dev, details=details)
    assert half.scores == {"exact_match": 50.0, "f1": 50.0}


def test_a_single_file_is_split_by_article(read):
    devs, content = [], squad(10)
    for article in content["data"]:
        for one in article["paragraphs"][0]["qas"]:
            one["question"] = f"the {one['id']}"
    for seed in (0, 0, 1):
        splits = read({"all.json": content}, dev_share=0.3, split_seed=seed).splits
        titles = {name: {q.title for q in part.items} for name, part in splits.items()}
        assert (len(titles["train"]), len(titles["dev"])) == (7, 3)
        assert not titles["train"] & titles["dev"]
        assert len(splits["dev"]) == 6
        devs.append(titles["dev"])
    assert devs[0] == devs[1] != devs[2]


def test_articles_with_equal_questions_on_equal_contexts_are_on_one_side(read, capsys):
    content = squad(20)
    for number, article in enumerate(content["data"]):
        for one in article["paragraphs"][0]["qas"]:
            one["question"] = ("The ", "the")[number % 2] + f" {number // 2}"
    for seed in range(5):
        splits = read({"all.json": content}, split_seed=seed).splits
        sides = ({q.question.lower() for q in splits[side].items} for side in splits)
        assert not set.intersection(*sides)
    assert "squad2: 30 of 40 questions repeat the texts" in capsys.readouterr().out


ERRORS = {  # files, words of the error
    "dev without labels": (
        {"train.json": squad(), "dev.json": squad(1, 5, labelled=False)},
        "labelled beside train: none",
    ),
    "one article": ({"all.json": squad(1)}, "two different articles or more"),
}


@pytest.mark.parametrize(("files", "words"), ERRORS.values(), ids=ERRORS)
def test_data_that_is_an_error(read, files, words):
    with pytest.raises(InputError, match=words):
        read(files)


# The model.


def test_targets_of_pairs(model):
    pairs = [("of", "in the and"), ("of", "in")]
    examples = model.examples(pairs, [("the", 3), None])
    names = {"start": [4, 0], "end": [4, 0], "impossible": [0, 1]}  # [CLS] of [SEP] in
    assert {n: list(v) for n, v in examples.targets.items()} == names


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (["of"], [None], "'of' at index 0"),
        ([("of", "in", "the")], [None], "at index 0"),
        ([("of", "in")], ["the"], "'the' at index 0"),
        ([("of", "in")], [("the",)], r"\('the',\) at index 0"),
        ([("of", "in")], [("the", 0.0)], r"\('the', 0.0\),\) at index 0"),
        ([("of", "in")] * 2, [None], "2 questions and 1 targets"),
        ([("of", "in the")], [("the", 0)], "question 0: none of its 1 answers"),
    ],
)
def test_examples_validates_questions_and_answers(model, x, y, message):
    with pytest.raises(InputError, match=message):
        model.examples(x, y)


@pytest.mark.parametrize("weight", [0.5, 2.0])
def test_loss_by_hand(weight):
    settings = tiny.settings(model_answerable_weight=weight)
    outputs = {
        "start_logits_BL": np.log([[0.5, 0.25, 0.25], [0.1, 0.8, 0.1]]) + 3.0,
        "end_logits_BL": np.log([[0.2, 0.2, 0.6], [0.3, 0.3, 0.4]]),
        "answerable_logit_B": np.array([math.log(3.0), 0.0]),  # no answer: 3/4, 1/2
    }
    outputs = {name: np.float32(logits) for name, logits in outputs.items()}
    targets = {"start": [1, 1], "end": [2, 0], "impossible": [1, 0]}
    span = -math.log(0.25) - math.log(0.6), -math.log(0.8) - math.log(0.3)
    empty = -math.log(0.75), math.log(2)
    model, weights_B = QuestionAnswerer(tiny.start(), 0.0, settings), [1.0, 3.0]
    found = model.task_loss(outputs, targets, np.float32(weights_B))
    with_empty = [s / 2 + weight * e for s, e in zip(span, empty, strict=True)]
    np.testing.assert_allclose(found.total, np.dot(weights_B, with_empty), rtol=1e-6)
    assert found.weight == 4
    del outputs["answerable_logit_B"]
    found = model.task_loss(outputs, targets, np.float32(weights_B))
    np.testing.assert_allclose(found.total, np.dot(weights_B, span) / 2, rtol=1e-6)
