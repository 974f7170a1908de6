"""Trials: data of a task, files, resuming, early stopping, selection, statistics."""

import dataclasses
import functools
import json
import math
import os
import shutil

import keras
import numpy as np
import pytest

from electra_tf.config.finetuning import FitConfig
from electra_tf.errors import InputError
from electra_tf.interop.keras_networks import path_below_encoder
from electra_tf.tasks.classifier import TextClassifier
from electra_tf.tasks.data.conll import Sentence
from electra_tf.tasks.data.splits import Split
from electra_tf.tasks.task_data import TaskData
from electra_tf.tasks.text_task import ClassificationTask
from electra_tf.tasks.trials import (
    Trial,
    TrialCheckpoint,
    Trials,
    best_trial,
    describe_better_epoch,
    format_summary,
    summary,
)
from electra_tf.text.tokenizer import WordPieceTokenizer
from electra_tf.training.checkpoint import MANIFEST, saved_steps
from tests import tiny
from tests.training.toy import one_device

# Data of a task.

TRAIN = Split(["in", "of"], ["a", "b"])


def task_of(**splits):
    return TaskData("csv", {"train": TRAIN, **splits}, ("accuracy",), None)


@dataclasses.dataclass(frozen=True)
class _Sentence(Sentence):
    """A sentence of a version with another field."""

    more: int = 1


def test_the_fingerprint_depends_on_the_data_alone():
    prints = [
        task_of(**splits).fingerprint
        for splits in (
            {"dev": TRAIN},
            {"dev": Split(["in", "of"], ["a", "b"])},
            {"dev": Split(["in", "of"], ["a", "a"])},
            {"dev": Split(["in", "to"], ["a", "b"])},
            {"valid": TRAIN},
            {"dev": TRAIN, "test": Split(["in"], None)},
        )
    ]
    assert prints[0] == prints[1]
    assert len(set(prints)) == 5
    tagging = []
    for kind, source in ((Sentence, "a.txt"), (Sentence, "b.txt"), (_Sentence, "")):
        split = Split([kind(("in",), ("A",), source, 1)], [("A",)])
        splits = {"train": split, "dev": split}
        tagging.append(TaskData("tagging", splits, ("accuracy",), None).fingerprint)
    assert len(set(tagging)) == 1


# Trials.

TEXTS, NUMBERS = tiny.texts(32, longest=11, shortest=10)
LABELS_OF = "bad", "good"
LABELS = [LABELS_OF[number] for number in NUMBERS]


class KilledError(Exception):
    """Simulates the end of a process."""


SCORED = []  # models


@pytest.fixture(scope="module", autouse=True)
def degenerate():
    """The second trial is degenerate."""

    def describe(task, scored):
        SCORED.append(scored.model)
        return "made up" if scored.model.seed.numpy() == 6 else None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ClassificationTask, "degenerate", describe)
        yield


def sorting(texts=TEXTS, name="sorting"):
    """Return good and bad texts."""
    splits = {
        "train": Split(texts[:16], LABELS[:16]),
        "dev": Split(texts[16:], LABELS[16:]),
        "test": Split(texts[:4], None),
    }
    model = functools.partial(TextClassifier, labels=LABELS_OF)
    return TaskData(name, splits, ("accuracy", "mcc"), model)


def make_trials(
    folder, lines=None, task=None, start=None, devices=None, log=None, **changes
):
    settings = tiny.settings(training_seed=5, training_keep="best", **changes)
    log = log or ([].append if lines is None else lines.append)
    task, start = task or sorting(), start or pretrained_start()
    return Trials(task, start, settings, str(folder), devices or one_device(), log)


def pretrained_start():
    start = tiny.start()
    encoder = start.build_encoder(seed=3)
    weights = {
        path_below_encoder(v.path, encoder.name): v.numpy() for v in encoder.weights
    }
    return dataclasses.replace(start, weights=weights)


def read_trials(folder):
    records = map(json.loads, (folder / "trials.jsonl").read_text().splitlines())
    return [{k: v for k, v in r.items() if k != "seconds"} for r in records]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """Three trials and the lines they logged."""
    folder, lines = tmp_path_factory.mktemp("trials"), []
    return folder, make_trials(folder, lines).run(3), lines


def test_each_seed_has_its_line(uninterrupted):
    folder, done, lines = uninterrupted
    assert [(t.number, t.seed) for t in done] == [(1, 5), (2, 6), (3, 7)]
    assert [t.degenerate for t in done] == [None, "made up", None]
    expected = [dataclasses.asdict(t) for t in done]
    assert read_trials(folder) == [t for t in expected if t.pop("seconds")]
    for trial in done:
        assert list(trial.scores) == ["dev_accuracy", "dev_mcc"]
        assert len(trial.epochs) == 2
        best = max(epoch["dev_accuracy"] for epoch in trial.epochs)
        assert trial.scores["dev_accuracy"] == best
    results = [line for line in lines if "of 3 (seed" in line]
    assert ["DEGENERATE: made up" in line for line in results] == [False, True, False]
    assert (
        "16 training examples, 4 steps in 2 epochs (by the number of rows: " in lines[0]
    )
    assert lines[0].endswith("; dev 16")


def test_predictions_and_the_best_model_are_written(uninterrupted):
    folder, done, _ = uninterrupted
    best = max(done, key=lambda t: t.scores["dev_accuracy"])
    model = keras.saving.load_model(folder / "model.keras")
    assert int(model.seed) == best.seed
    predicted = np.argmax(model.predict(TEXTS[16:]), -1)
    accuracy = 100 * np.mean(predicted == NUMBERS[16:])
    assert accuracy == pytest.approx(best.scores["dev_accuracy"])
    rows = (folder / f"trial_{best.number}" / "dev.tsv").read_text().splitlines()
    assert [row.split("\t")[1] for row in rows[1:]] == [
        LABELS_OF[number] for number in predicted
    ]
    assert len((folder / "trial_1" / "test.tsv").read_text().splitlines()) == 5
    assert not list(folder.glob("trial_*/checkpoints"))


def test_finished_trials_are_not_repeated(uninterrupted):
    folder, done, _ = uninterrupted
    before, lines = (folder / "trials.jsonl").read_bytes(), []
    assert make_trials(folder, lines).run(3) == done
    assert lines == []
    with pytest.raises(InputError, match=r"--trials=2 must be 3 or more"):
        make_trials(folder, lines).run(2)
    assert (folder / "trials.jsonl").read_bytes() == before


def test_lines_and_progress_bars_are_apart(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(os, "isatty", lambda file: True)
    settings, start = tiny.settings(training_epochs=2), pretrained_start()
    Trials(sorting(), start, settings, str(tmp_path), one_device()).run(1)
    lines = capsys.readouterr().out.splitlines()
    assert any("/step" in line for line in lines)
    starts = [line[:10] for line in lines if "  epoch " in line]
    assert starts == ["  epoch 1:", "  epoch 2:"]


def test_scores_that_are_not_finite_are_stored_as_json(tmp_path, monkeypatch):
    compute = ClassificationTask.scores

    def scores(task, scored):
        return compute(task, scored) | {"mcc": math.nan, "mse": -math.inf}

    monkeypatch.setattr(ClassificationTask, "scores", scores)
    done = make_trials(tmp_path, training_epochs=1).run(1)
    assert {"dev_mcc": math.nan, "dev_mse": -math.inf}.items() <= done[0].scores.items()

    def refuse(constant):
        raise AssertionError(constant)

    for path in (tmp_path / "trials.jsonl", tmp_path / "trial_1" / "report.json"):
        json.loads(path.read_text(), parse_constant=refuse)
    again = make_trials(tmp_path, training_epochs=1).run(1)
    assert str(again) == str(done)


def test_a_run_of_a_version_with_fewer_settings_is_resumed(uninterrupted, tmp_path):
    folder, done, _ = uninterrupted
    shutil.copytree(folder, tmp_path / "old")
    path = tmp_path / "old" / "config.yaml"
    lines = path.read_text().splitlines(keepends=True)
    kept = [line for line in lines if line.split(":")[0].strip() != "pooler"]
    assert len(kept) == len(lines) - 1
    path.write_text("".join(kept))
    assert make_trials(tmp_path / "old", []).run(3) == done


@pytest.mark.runs
def test_a_killed_run_resumes_to_the_same_result(uninterrupted, tmp_path):
    folder, _, _ = uninterrupted
    log, lines = [], []

    def kill(line):  # after the second trial is trained
        log.append(line)
        if sum(line.startswith("  epoch 2") for line in log) == 2:
            raise KilledError

    with pytest.raises(KilledError):
        make_trials(tmp_path, log=kill).run(3)
    assert len(read_trials(tmp_path)) == 1
    assert saved_steps(str(tmp_path / "trial_2" / "checkpoints"))
    with (tmp_path / "trials.jsonl").open("a") as file:
        file.write('{"number": 2, "se')  # an incomplete line
    make_trials(tmp_path, lines).run(3)
    assert any("trial 2: resuming after 2 epochs" in line for line in lines)
    assert read_trials(tmp_path) == read_trials(folder)
    resumed, whole = (
        keras.saving.load_model(path / "model.keras") for path in (tmp_path, folder)
    )
    assert int(resumed.seed) == int(whole.seed)
    tiny.assert_same_bits(resumed, whole)


ANOTHER = dataclasses.replace(tiny.start(), identity="another")
OTHERS = {  # arguments of `make_trials`, words
    "settings": ({"training_epochs": 3}, "training.epochs was 2 and is 3"),
    "data": ({"task": sorting([*TEXTS[:-1], "in"])}, "another data;"),
    "task": ({"task": sorting(name="csv")}, "another task;"),
    "checkpoint": ({"start": ANOTHER}, "another checkpoint;"),
}


@pytest.mark.parametrize(("changes", "words"), OTHERS.values(), ids=OTHERS)
def test_other_settings_checkpoints_and_data_are_errors(uninterrupted, changes, words):
    with pytest.raises(InputError, match=words):
        make_trials(uninterrupted[0], **changes).run(3)


def test_invalid_settings_write_no_config(tmp_path):
    with pytest.raises(InputError, match="64 positions"):
        make_trials(tmp_path, data_max_length=65).run(1)
    assert not list(tmp_path.iterdir())


def test_texts_are_tokenized_once(tmp_path, monkeypatch):
    encode, counts = TextClassifier.examples, []

    def examples(model, x, y=None):
        counts.append(len(x))
        return encode(model, x, y)

    monkeypatch.setattr(TextClassifier, "examples", examples)
    make_trials(tmp_path).run(2)
    assert counts == [16, 16, 4]


def test_unknown_wordpieces_and_truncation_of_each_split_are_logged(tmp_path):
    task, lines = sorting([f"كتاب {text}" for text in TEXTS]), []
    make_trials(tmp_path, lines, task, data_max_length=8, training_epochs=1).run(1)
    for name, count in (("train", 16), ("dev", 16), ("test", 4)):
        unknown, cut = [line for line in lines if f"{name}: {count} of " in line]
        assert "[UNK]" in unknown
        assert cut.startswith(f"{name}: {count} of {count} inputs were truncated")
        assert cut.endswith("data.max_length=8")
    # One device trains outside the strategy, whose data set has autotuning.
    strategy = SCORED[-1].distribute_strategy
    assert not isinstance(strategy, type(one_device()))


@pytest.mark.parametrize(
    "name",
    ["adamw", *(pytest.param(n, marks=pytest.mark.runs) for n in ("adam", "lamb"))],
)
def test_rows_that_no_text_uses_are_trained_as_in_fit(tmp_path, name):
    # Two seeds, so that the model is also made anew.
    rate = {"optimizer_learning_rate": 1e-3, "optimizer_weight_decay": 5.0}
    changes = {**rate, "optimizer_name": name, "training_keep": "last"}
    tokenizer = WordPieceTokenizer(tiny.moved_padding())
    start = dataclasses.replace(pretrained_start(), tokenizer=tokenizer)
    task, settings = sorting(), tiny.settings(training_seed=5, **changes)
    trials = Trials(task, start, settings, str(tmp_path), one_device(), [].append)
    best = best_trial(trials.run(2))
    model = TextClassifier(start, settings=settings, seed=best.seed, labels=LABELS_OF)
    model.fit(TEXTS[:16], LABELS[:16], verbose=0)
    saved = keras.saving.load_model(tmp_path / "model.keras")
    for weight, trained in zip(saved.weights, model.weights, strict=True):
        np.testing.assert_allclose(weight, trained, rtol=1e-4, atol=1e-6)
    table = saved.encoder.embeddings.word_embeddings.numpy()
    trained = SCORED[-1].encoder.embeddings.word_embeddings
    assert (trained.shape[0] < len(table)) == (name != "lamb")
    texts = {id for ids in model.examples(TEXTS).ids for id in ids}
    unused = [id for id in range(1, len(table)) if id not in texts]
    ratio = table[unused] / start.weights["embeddings/word_embeddings"][unused]
    assert len(unused) > 5
    assert np.ptp(ratio) < 1e-5
    assert 0.9 < ratio.mean() < 0.999


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
    assert format_summary(done[:1], "rte") == "rte dev_f1: 1.00"
    small = dataclasses.replace(done[0], scores={"dev_mse": 0.00096251})
    assert format_summary([small], "csv") == "csv dev_mse: 0.0009625"


def test_an_epoch_that_was_better_than_the_last_is_named():
    epochs = [{"dev_accuracy": value} for value in (80.0, 91.0, float("nan"), 85.0)]
    one = dataclasses.replace(trial(2, 85.0), scores=epochs[-1], epochs=epochs)
    line = describe_better_epoch(one, "last")
    assert line.startswith("epoch 2 of trial 2 had dev_accuracy 91.00, better than 85.")
    assert "--keep=best" in line
    assert not describe_better_epoch(one, "best")
    assert not describe_better_epoch(
        dataclasses.replace(one, epochs=epochs[:2]), "last"
    )


def test_the_first_of_the_highest_scores_is_the_best_and_nan_the_lowest():
    trials = [trial(n, value) for n, value in enumerate((math.nan, -1.0, 0.0, 0.0))]
    assert best_trial(trials).number == 2
    assert best_trial(trials[:2]).number == 1
    assert best_trial(trials[:1]).number == 0


# The checkpoint of one trial: selection of an epoch, early stopping, exact resuming.

FEW, FEW_NUMBERS = TEXTS[:16], NUMBERS[:16]  # two steps an epoch
EPOCHS = 5


@pytest.fixture(scope="module")
def model():
    classifier = TextClassifier(tiny.start(), ["a", "b"], tiny.settings())
    return tiny.compiled(classifier, 2 * EPOCHS)


@pytest.fixture
def train(model, tmp_path):
    """Start or resume a trial in a folder; each epoch has a given score."""

    def run(scores, policy, folder="trial", killed_in=None):
        tiny.reset(model)
        weights_after, lines = {}, []

        def evaluate():
            epoch = int(model.optimizer.iterations) // 2
            if epoch == killed_in:
                raise KilledError
            weights_after[epoch] = tiny.weights(model)
            return {"dev_f1": scores[epoch - 1], "dev_f1_thresh": 3.0}

        path = str(tmp_path / folder)
        checkpoint = TrialCheckpoint(path, evaluate, "dev_f1", policy, lines.append)
        first = checkpoint.resume(model)
        if not checkpoint.is_over and first < EPOCHS:
            epochs = {"epochs": EPOCHS, "initial_epoch": first}
            model.fit(FEW, FEW_NUMBERS, callbacks=[checkpoint], verbose=0, **epochs)
        return checkpoint, first, weights_after, lines

    return run


def test_finish_loads_the_last_or_the_best_epoch(model, train, tmp_path):
    scores = [10.0, 30.0, 20.0, 30.0, 5.0]
    checkpoint, first, after, lines = train(scores, FitConfig())
    assert (first, len(after)) == (0, EPOCHS)
    checkpoint.finish(model)
    assert tiny.distance(tiny.weights(model), after[5]) == 0
    assert [line.split("dev_f1 ")[1] for line in lines] == ["10", "30", "20", "30", "5"]
    assert not any("thresh" in line for line in lines)
    checkpoint, _, after, _ = train(scores, FitConfig(keep="best"), "best")
    checkpoint.finish(model)
    assert tiny.distance(tiny.weights(model), after[2]) == 0  # the first of equals
    assert tiny.distance(after[2], after[5]) > 0
    assert [s["dev_f1"] for s in checkpoint.history] == scores
    assert sorted(saved_steps(str(tmp_path / "best" / "checkpoints"))) == [4, 10]
    checkpoint.delete()
    assert list((tmp_path / "best").iterdir()) == []


def test_patience_stops_a_trial(model, train, tmp_path):
    scores = [10.0, 30.0, float("nan"), 30.0, 99.0]
    policy = FitConfig(keep="best", early_stopping=2)
    checkpoint, _, after, lines = train(scores, policy)
    for manifest in (tmp_path / "trial" / "checkpoints").rglob(MANIFEST):
        json.loads(manifest.read_text(), parse_constant=pytest.fail)  # NaN is none
    assert sorted(after) == [1, 2, 3, 4]
    assert checkpoint.is_over
    assert "epoch 2 is the best; the weights of epoch 2 are kept" in lines[-1]
    checkpoint.finish(model)
    assert tiny.distance(tiny.weights(model), after[2]) == 0
    _, _, _, lines = train([30.0, 20.0, 10.0], FitConfig(early_stopping=1), "last")
    words = "epoch 1 is the best; the weights of epoch 2 are kept: --keep=best"
    assert words in lines[-1]
    # A finished trial stays finished after a restart, with its best weights.
    checkpoint, first, after_restart, _ = train(scores, policy)
    assert (first, after_restart) == (4, {})
    assert math.isnan(checkpoint.history[2]["dev_f1"])
    assert checkpoint.is_over
    checkpoint.finish(model)
    assert tiny.distance(tiny.weights(model), after[2]) == 0


def test_the_best_epoch_is_kept_when_a_trial_is_resumed(model, train):
    scores, policy = [10.0, 30.0, 20.0, 25.0, 5.0], FitConfig(keep="best")
    _, _, uninterrupted, _ = train(scores, policy, "uninterrupted")
    with pytest.raises(KilledError):
        train(scores, policy, killed_in=4)
    checkpoint, first, after, _ = train(scores, policy)
    assert first == 3
    checkpoint.finish(model)
    assert tiny.distance(tiny.weights(model), uninterrupted[2]) == 0
    assert tiny.distance(after[5], uninterrupted[5]) == 0


def test_losses_of_batches_have_the_weights_of_the_epoch(model, tmp_path):
    tiny.reset(model)
    checkpoint = TrialCheckpoint(str(tmp_path), dict, "dev_f1", FitConfig(), print)
    weights, options = [1.0, 9.0], {"batch_size": 1, "epochs": 1, "shuffle": False}
    history = model.fit(
        FEW[:2],
        [0, 1],
        sample_weight=weights,
        callbacks=[checkpoint],
        **options,
    )
    steps, losses = zip(*checkpoint.losses, strict=True)
    assert steps == (1, 2)
    [loss] = history.history["loss"]
    np.testing.assert_allclose(np.average(losses, weights=weights), loss, rtol=1e-5)


def test_a_loss_that_is_not_finite_stops_training(model, tmp_path):
    tiny.reset(model)
    kernel = model.head.weights[0]
    kernel.assign(kernel.numpy() * float("nan"))
    checkpoint = TrialCheckpoint(str(tmp_path), dict, "dev_f1", FitConfig(), print)
    with pytest.raises(InputError, match=r"nan in batch 1 .*learning_rate"):
        model.fit(FEW, FEW_NUMBERS, callbacks=[checkpoint], verbose=0)
