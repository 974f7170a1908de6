"""Tests of SQuAD tasks: files, official scores, thresholds, prediction files."""

import dataclasses
import json

import numpy as np
import pytest
import tiny

from electra_tf.errors import InputError
from electra_tf.tasks.datasets import read_task as squad_task
from electra_tf.tasks.score import Answers
from electra_tf.tasks.spans import QAPrediction
from electra_tf.text.data_errors import DataErrorLog


def squad_file(path, articles=5, first=0, labelled=True):
    """Write articles, each with an answerable and an impossible question."""
    data = []
    for number in range(first, first + articles):
        context = "in the and of to for with on"
        qas = [
            {"id": f"{number}a", "question": "the", "is_impossible": False},
            {"id": f"{number}b", "question": "on", "is_impossible": True},
        ]
        if labelled:
            qas[0]["answers"] = [{"text": "the and", "answer_start": 3}]
            qas[1]["answers"] = []
        else:
            qas = [{k: qa[k] for k in ("id", "question")} for qa in qas]
        paragraphs = [{"context": context, "qas": qas}]
        data.append({"title": f"title {number}", "paragraphs": paragraphs})
    path.write_text(json.dumps({"data": data}))


@pytest.fixture
def log(tmp_path):
    return DataErrorLog("stop", tmp_path / "problems.txt", "rule")


def read(data, log, name="squad2", **changes):
    return squad_task(name, str(data), tiny.settings(**changes).data, log)


@pytest.fixture
def task(tmp_path, log):
    squad_file(tmp_path / "train-v2.0.json")
    squad_file(tmp_path / "dev-v2.0.json", 2, 5)
    squad_file(tmp_path / "test.json", 1, 7, labelled=False)
    return read(tmp_path, log)


def make_predictions(odds, threshold=0.0, text="the and"):
    return Answers([QAPrediction(text, value, ()) for value in odds], threshold)


def test_splits_and_training_examples(task):
    assert {name: len(part) for name, part in task.splits.items()} == {
        "train": 10,
        "dev": 4,
        "test": 2,
    }
    assert list(task.eval_splits) == ["dev"]
    assert task.monitor == "dev_best_f1"
    located = task.splits["train"].targets
    assert [[a.text for a in answers] for answers in located] == [["the and"], []] * 5
    model = task.model(tiny.start(), settings=tiny.settings(data_max_length=16), seed=0)
    examples = task.training_examples(model)
    assert list(examples.targets["impossible"]) == [0, 1] * 5
    assert examples.targets["start"][0] == 4  # [CLS] the [SEP] in THE


def test_scores_by_hand(task):
    dev = task.splits["dev"]
    found = task.scorer.score(dev, make_predictions([-3.0, 2.0, -2.0, -1.0]))
    assert next(iter(found)) == "best_f1"
    assert not [name for name in found if name.endswith("total")]
    assert found["exact"] == found["f1"] == 75.0  # the last question is impossible
    assert found["HasAns_exact"] == 100.0
    assert found["NoAns_exact"] == 50.0
    assert found["best_f1"] == 100.0
    assert found["best_f1_thresh"] == -2.0


def test_tuned_threshold_is_used_in_scores_and_files(task, tmp_path):
    model = task.model(tiny.start(), settings=tiny.settings(data_max_length=16), seed=0)
    assert model.null_threshold == 0.0
    dev = task.splits["dev"]
    tuned = task.scorer.tune(model, dev, make_predictions([-3.0, 2.0, -2.0, -1.0]))
    assert tuned.threshold == model.null_threshold == -2.0
    found = task.scorer.score(dev, tuned)
    assert found["f1"] == found["best_f1"] == 100.0
    task.scorer.write(dev, tuned, str(tmp_path / "dev"))
    texts = json.loads((tmp_path / "dev" / "predictions.json").read_text())
    assert texts == {"5a": "the and", "5b": "", "6a": "the and", "6b": ""}
    odds = json.loads((tmp_path / "dev" / "null_odds.json").read_text())
    assert odds == {"5a": -3.0, "5b": 2.0, "6a": -2.0, "6b": -1.0}
    assert (tmp_path / "dev" / "nbest.json").exists()
    # Scores of another trial do not use it.
    assert (
        task.scorer.score(dev, make_predictions([-3.0, 2.0, -2.0, -1.0]))["f1"] == 75.0
    )


def test_predictions_of_each_question(task):
    model = task.model(tiny.start(), settings=tiny.settings(data_max_length=16), seed=0)
    model.null_threshold = 0.5
    for part in task.splits.values():
        found = task.scorer.predict(model, part.items)
        assert len(found.best) == len(part)
        assert found.threshold == 0.5
        assert all(one.text for one in found.best)


def test_degenerate_answers_are_described(task):
    dev = task.splits["dev"]
    assert (
        task.scorer.degenerate(dev, make_predictions([1.0] * 4))
        == "predicts no answer to any question"
    )
    assert (
        task.scorer.degenerate(dev, make_predictions([-1.0] * 4))
        == "always predicts 'the and'"
    )
    assert task.scorer.degenerate(dev, make_predictions([-1.0, 1.0, 1.0, 1.0])) is None


def test_nan_odds_count_as_no_answer(task):
    dev = task.splits["dev"]
    found = make_predictions([float("nan")] * len(dev))
    scores = task.scorer.score(dev, found)
    nothing = 100 * np.mean([question.impossible for question in dev.items])
    assert scores["exact"] == scores["f1"] == pytest.approx(nothing)


def test_threshold_where_no_answer_is_best(task):
    dev = task.splits["dev"]

    class Model:
        null_threshold = None

    odds = [-9.0 - place for place in range(len(dev))]
    tuned = task.scorer.tune(
        Model, dev, make_predictions(odds, text="no answer of any")
    )
    assert Model.null_threshold == tuned.threshold == min(odds) - 1
    found = task.scorer.score(dev, tuned)
    assert found["f1"] == found["best_f1"] > 0


def test_version_1_has_no_threshold(tmp_path, log):
    for name, first in (("train", 0), ("dev", 5)):
        squad_file(tmp_path / f"{name}.json", 2, first)
    content = json.loads((tmp_path / "dev.json").read_text())
    for article in content["data"]:
        del article["paragraphs"][0]["qas"][1]
    (tmp_path / "dev-v1.1.json").write_text(
        json.dumps(content)
    )  # preferred to dev.json
    task = read(tmp_path, log, "squad1")
    dev = task.splits["dev"]
    assert (len(dev), task.monitor) == (2, "dev_f1")
    model = task.model(tiny.start(), settings=tiny.settings(data_max_length=16), seed=0)
    assert model.null_threshold is None
    predictions = make_predictions([9.0, 9.0], None)
    assert task.scorer.tune(model, dev, predictions) == predictions
    assert task.scorer.score(dev, predictions) == {"exact_match": 100.0, "f1": 100.0}
    half = dataclasses.replace(predictions.best[0], text="the")
    found = task.scorer.score(dev, Answers([predictions.best[0], half], None))
    # `the` is an article, so `and` is the only gold word.
    assert found == {"exact_match": 50.0, "f1": 50.0}


def test_a_single_file_is_split_by_article(tmp_path, log):
    squad_file(tmp_path / "all.json", 10)
    task = read(tmp_path / "all.json", log, data_dev_share=0.3)
    titles = {n: {q.title for q in p.items} for n, p in task.splits.items()}
    assert (len(titles["train"]), len(titles["dev"])) == (7, 3)
    assert not titles["train"] & titles["dev"]
    assert len(task.splits["dev"]) == 6


def test_missing_files_and_labels_raise(tmp_path, log):
    squad_file(tmp_path / "train.json")
    with pytest.raises(InputError, match="without dev"):
        read(tmp_path, log)
    squad_file(tmp_path / "dev.json", 1, 5, labelled=False)
    with pytest.raises(InputError, match="labelled beside train: none"):
        read(tmp_path, log)


def test_questions_of_tfds(tmp_path, log, monkeypatch):
    import tensorflow_datasets as tfds

    builder = tfds.builder("squad/v2.0", data_dir=tmp_path, try_gcs=False)
    context = "It was John."

    def examples():
        for number, texts in enumerate((["John"], [])):
            yield (
                number,
                {
                    "id": str(number),
                    "title": "t",
                    "context": context,
                    "question": "Who?",
                    "answers": {"text": texts, "answer_start": [7] * len(texts)},
                    "plausible_answers": {"text": [], "answer_start": []},
                    "is_impossible": not texts,
                },
            )

    made = {split: examples() for split in ("train", "validation")}
    monkeypatch.setattr(type(builder), "_split_generators", lambda self, _: made)
    builder.download_and_prepare()
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    dev = read("tfds:squad/v2.0", log).splits["dev"]
    by_id = {question.id: question for question in dev.items}
    assert [a.text for a in by_id["0"].located] == ["John"]
    assert by_id["1"].impossible
    assert by_id["0"].context == context
