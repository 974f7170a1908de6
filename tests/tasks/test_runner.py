"""Trials: files, resuming, selection and statistics of trials."""

import dataclasses
import functools
import json
import math

import keras
import numpy as np
import pytest
import tiny
from training.toy import one_device

from electra_tf.errors import InputError
from electra_tf.tasks.classifier import TextClassifier
from electra_tf.tasks.score import LabelScorer
from electra_tf.tasks.splits import Split
from electra_tf.tasks.task_data import TaskData
from electra_tf.tasks.trials import Trial, Trials, format_summary, summary
from electra_tf.training.checkpoint import saved_steps

TEXTS, NUMBERS = tiny.texts(32, longest=11, shortest=10)
LABELS = [("bad", "good")[number] for number in NUMBERS]


class KilledError(Exception):
    """Simulates the end of a process."""


class Scorer(LabelScorer):
    """The second trial is degenerate, and may be killed."""

    model, killed = None, False

    def predict(self, model, items):
        self.model = model
        return super().predict(model, items)

    def degenerate(self, split, predictions):
        return "made up" if int(self.model.seed) == 6 else None

    def write(self, split, predictions, path):
        if self.killed and "trial_2" in path:
            raise KilledError
        super().write(split, predictions, path)


def sorting(texts=TEXTS, name="sorting"):
    """Return good and bad texts."""
    splits = {
        "train": Split(texts[:16], LABELS[:16]),
        "dev": Split(texts[16:], LABELS[16:]),
        "test": Split(texts[:4], None),
    }
    labels = ("bad", "good")
    scorer = Scorer(("accuracy", "mcc"), labels)
    model = functools.partial(TextClassifier, labels=labels)
    return TaskData(name, splits, scorer, model)


def make_runner(folder, lines=None, task=None, **changes):
    settings = tiny.settings(training_seed=5, training_keep="best", **changes)
    log = (lambda line: None) if lines is None else lines.append
    task = task or sorting()
    return Trials(task, tiny.start(), settings, str(folder), one_device(), log)


def read_trials(folder):
    lines = (folder / "trials.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    return [{k: v for k, v in r.items() if k != "seconds"} for r in records]


def saved_model(folder):
    model = keras.saving.load_model(folder / "model.keras")
    return int(model.seed), tiny.weights(model), model


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """Three trials and the lines they logged."""
    folder, lines = tmp_path_factory.mktemp("trials"), []
    return folder, make_runner(folder, lines).run(3), lines


def test_one_device_trains_outside_the_strategy(tmp_path):
    # A strategy's data set has autotuning, which delays the end of each pass.
    task = sorting()
    model = make_runner(tmp_path, task=task)._initial_model(5)
    assert not isinstance(model.distribute_strategy, type(one_device()))


def test_each_seed_has_its_line(uninterrupted):
    folder, done, lines = uninterrupted
    assert [(t.number, t.seed) for t in done] == [(1, 5), (2, 6), (3, 7)]
    assert [t.degenerate for t in done] == [None, "made up", None]
    assert read_trials(folder) == [
        {k: v for k, v in dataclasses.asdict(t).items() if k != "seconds"} for t in done
    ]
    assert all(list(t.scores) == ["dev_accuracy", "dev_mcc"] for t in done)
    assert all(len(t.epochs) == 2 for t in done)
    assert all(
        t.scores["dev_accuracy"] == max(e["dev_accuracy"] for e in t.epochs)
        for t in done
    )
    results = [line for line in lines if "of 3 (seed" in line]
    assert ["DEGENERATE: made up" in line for line in results] == [False, True, False]
    assert "16 training examples, 4 steps in 2 epochs; dev 16" in lines[0]


def test_unknown_wordpieces_and_truncation_of_each_split_are_logged(tmp_path):
    texts, lines = [f"{text} كتاب" for text in TEXTS], []
    make_runner(tmp_path, lines, sorting(texts), data_max_length=8)._initial_model(5)
    for name, count in (("train", 16), ("dev", 16), ("test", 4)):
        (line,) = [line for line in lines if f"{name}: {count} of {count}" in line]
        assert "truncated to data.max_length=8" in line
    lines.clear()
    make_runner(tmp_path, lines, sorting(texts))._initial_model(5)
    unknown = [line for line in lines if "[UNK]" in line]
    for name, count in (("train", 16), ("dev", 16), ("test", 4)):
        assert sum(f"{name}: {count} of " in line for line in unknown) == 1
    assert len(unknown) == 3


def test_run_writes_predictions_and_the_best_model(uninterrupted):
    folder, done, _ = uninterrupted
    best = max(done, key=lambda t: t.scores["dev_accuracy"])
    seed, _, model = saved_model(folder)
    assert seed == best.seed
    predicted = np.argmax(model.predict(TEXTS[16:]), -1)
    accuracy = 100 * np.mean(predicted == NUMBERS[16:])
    assert accuracy == pytest.approx(best.scores["dev_accuracy"])
    rows = (folder / f"trial_{best.number}" / "dev.tsv").read_text().splitlines()
    assert [row.split("\t")[1] for row in rows[1:]] == [
        ("bad", "good")[number] for number in predicted
    ]
    assert len((folder / "trial_1" / "test.tsv").read_text().splitlines()) == 5
    assert not list(folder.glob("trial_*/checkpoints"))
    assert not list(folder.glob("trial_*/best"))


def test_finished_trials_are_not_repeated(uninterrupted):
    folder, done, _ = uninterrupted
    before = (folder / "trials.jsonl").read_bytes()
    lines = []
    assert make_runner(folder, lines).run(2) == done[:2]
    assert lines == []
    assert (folder / "trials.jsonl").read_bytes() == before


def test_a_killed_run_resumes_to_the_same_result(uninterrupted, tmp_path):
    folder, _, _ = uninterrupted
    task = sorting()
    task.scorer.killed = True
    with pytest.raises(KilledError):
        make_runner(tmp_path, task=task).run(3)
    assert len(read_trials(tmp_path)) == 1
    assert saved_steps(str(tmp_path / "trial_2" / "checkpoints"))
    with (tmp_path / "trials.jsonl").open("a") as file:
        file.write('{"number": 2, "se')  # an incomplete line
    lines = []
    make_runner(tmp_path, lines).run(3)
    assert any("trial 2: resuming after 2 epochs" in line for line in lines)
    assert read_trials(tmp_path) == read_trials(folder)
    seed, weights, _ = saved_model(tmp_path)
    expected_seed, expected_weights, _ = saved_model(folder)
    assert seed == expected_seed
    assert tiny.distance(weights, expected_weights) == 0


def test_other_settings_checkpoints_and_data_are_rejected(uninterrupted):
    folder, _, _ = uninterrupted
    with pytest.raises(InputError, match=r"epochs: 3\. "):
        make_runner(folder, training_epochs=3).run(3)
    with pytest.raises(InputError, match="data with other contents"):
        make_runner(folder, task=sorting([*TEXTS[:-1], "in"])).run(3)
    task = sorting(name="csv")
    with pytest.raises(InputError, match="the task 'csv', not 'sorting'"):
        make_runner(folder, task=task).run(3)
    runner = make_runner(folder)
    runner._start = dataclasses.replace(tiny.start(), identity="another")
    with pytest.raises(InputError, match="Received: another checkpoint"):
        runner.run(3)


def test_invalid_settings_write_no_config(tmp_path):
    with pytest.raises(InputError, match="64 positions"):
        make_runner(tmp_path, data_max_length=65).run(1)
    assert not list(tmp_path.iterdir())


def trial(number, value, degenerate=None):
    scores = {"dev_f1": value, "dev_total": 5.0, "dev_f1_thresh": 1.0}
    return Trial(number, number, scores, degenerate, [], 1.0)


def test_summary_by_hand():
    done = [trial(1, 1.0), trial(2, 2.0, "always says x"), trial(3, 6.0)]
    assert summary(done, "dev_f1") == {
        "median": 2.0,
        "mean": 3.0,
        "sd": pytest.approx(math.sqrt(7)),
        "min": 1.0,
        "max": 6.0,
        "trials": 3,
        "degenerate": 1,
    }
    assert summary(done[:1], "dev_f1")["sd"] == 0
    assert format_summary(done, "rte") == (
        "rte dev_f1: median 2.00  mean 3.00  sd 2.65  min 1.00  max 6.00  "
        "(3 trials, 1 degenerate)"
    )


def test_nan_is_the_lowest_score(tmp_path):
    runner = make_runner(tmp_path)
    runner._task.scorer.metric = "f1"
    values = [runner._monitored(trial(1, value)) for value in (math.nan, 0.0, -1.0)]
    assert sorted(values) == [values[0], -1.0, 0.0]
    assert values[0] > -math.inf
