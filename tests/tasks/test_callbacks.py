"""TrialCheckpoint: selection of an epoch, early stopping, exact resuming."""

import json
import math

import pytest

from electra_tf.config.finetuning import FitConfig
from electra_tf.errors import InputError
from electra_tf.tasks.classifier import TextClassifier
from electra_tf.tasks.trials import TrialCheckpoint
from electra_tf.training.checkpoint import MANIFEST, saved_steps
from tests import tiny

TEXTS, LABELS = tiny.texts(16, longest=11, shortest=10)  # two steps an epoch
EPOCHS = 5


class KilledError(Exception):
    """Simulates the end of a process."""


@pytest.fixture(scope="module")
def model():
    classifier = TextClassifier(tiny.start(), ["a", "b"], tiny.settings())
    return tiny.compiled(classifier, 2 * EPOCHS)


@pytest.fixture
def train(model, tmp_path):
    """Start or resume a trial in a folder; each epoch has a given score."""

    def run(scores, policy, folder="trial", killed_in=None):
        model.reinitialize(tiny.start(), 0)
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
            model.fit(TEXTS, LABELS, callbacks=[checkpoint], verbose=0, **epochs)
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
    # A finished trial stays finished after a restart, with its best weights.
    checkpoint, first, after_restart, _ = train(scores, policy)
    assert (first, after_restart) == (4, {})
    assert math.isnan(checkpoint.history[2]["dev_f1"])
    assert checkpoint.is_over
    checkpoint.finish(model)
    assert tiny.distance(tiny.weights(model), after[2]) == 0


def test_a_trial_that_stops_early_names_the_epoch_that_it_keeps(train):
    _, _, _, lines = train([30.0, 20.0, 10.0, 5.0, 1.0], FitConfig(early_stopping=1))
    assert (
        "epoch 1 is the best; the weights of epoch 2 are kept: --keep=best" in lines[-1]
    )


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


def test_a_loss_that_is_not_finite_stops_training(model, tmp_path):
    model.reinitialize(tiny.start(), 0)
    kernel = model.head.weights[0]
    kernel.assign(kernel.numpy() * float("nan"))
    checkpoint = TrialCheckpoint(str(tmp_path), dict, "dev_f1", FitConfig(), print)
    with pytest.raises(InputError, match=r"nan in batch 1 .*learning_rate"):
        model.fit(TEXTS, LABELS, callbacks=[checkpoint], verbose=0)
