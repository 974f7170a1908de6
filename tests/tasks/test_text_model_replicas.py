"""Fine-tuning on one device and on two replicas: the same model.

Replicas must be configured when a process starts, so this file is also a program.
"""

import pathlib
import sys

import keras
import numpy as np
import pytest

from electra_tf.errors import InputError
from electra_tf.tasks.classifier import TextClassifier
from electra_tf.tasks.optimizer import int_value
from electra_tf.tasks.trials import read_report
from electra_tf.training import strategy
from tests import tiny
from tests.conftest import python
from tests.tasks.test_trials import make_trials, pretrained_start, sorting
from tests.training.toy import one_device

# Eleven batches an epoch, the last one of them not full.
# Four rows and eight are summed in other orders, which updates of 1e-2 enlarge.
TEXTS, LABELS = tiny.texts(85, longest=11, shortest=10)
WEIGHTS = np.random.default_rng(3).uniform(0, 3, 85)
close = pytest.approx


@pytest.mark.runs
def test_two_replicas_equal_one_device(tmp_path):
    done = python("-m", "tests.tasks.test_text_model_replicas", str(tmp_path))
    assert done.returncode == 0, done.stderr[-3000:]


def classifier(devices):
    with devices.scope():
        settings = tiny.settings(training_epochs=1)
        return TextClassifier(tiny.start(), ["bad", "good"], settings)


def compare_training(devices, folder):
    many, one = classifier(devices), classifier(one_device())
    assert many.distribute_strategy.num_replicas_in_sync == 2
    before = tiny.weights(many)
    histories = [m.fit(TEXTS, LABELS, verbose=0).history for m in (many, one)]
    assert int_value(many.optimizer.iterations) == 11
    assert tiny.distance(before, tiny.weights(many)) > 1e-2
    assert tiny.distance(tiny.weights(many), tiny.weights(one)) < 1e-4
    for name, values in histories[0].items():
        assert values == close(histories[1][name], rel=1e-4), name
    predictions = many.predict(TEXTS)
    np.testing.assert_allclose(predictions, one.predict(TEXTS), atol=1e-4)
    many.save(folder / "model.keras")
    saved = keras.saving.load_model(folder / "model.keras")
    np.testing.assert_allclose(saved.predict(TEXTS), predictions, atol=1e-5)
    with pytest.raises(InputError, match="batch_size=9 must be a multiple of the 2"):
        many.fit(TEXTS, LABELS, batch_size=9)
    return before, tiny.weights(many)


def weighted(devices):
    """Train with weights of texts, with weights of classes, and a validation split."""
    model = classifier(devices)
    loss = "sparse_categorical_crossentropy"
    model.compile(metrics=["acc"], weighted_metrics=[loss])
    history = model.fit(
        TEXTS, LABELS, sample_weight=WEIGHTS, validation_split=0.2, verbose=0
    ).history
    first = tiny.weights(model)
    model.fit(TEXTS, LABELS, class_weight={1: 2.0}, epochs=1, verbose=0)
    measured = model.evaluate(TEXTS, LABELS, sample_weight=WEIGHTS, verbose=0)
    return first, tiny.weights(model), history, measured


def compare_weighted(devices, before, unweighted):
    many, one = weighted(devices), weighted(one_device())
    assert tiny.distance(before, many[0]) > 1e-2
    assert tiny.distance(unweighted, many[0]) > 1e-3
    for a, b in zip(many[:2], one[:2], strict=True):
        assert tiny.distance(a, b) < 1e-4
    assert many[2].keys() == one[2].keys() >= {"loss", "acc", "accuracy", "val_loss"}
    for name, values in many[2].items():
        assert values == close(one[2][name], rel=1e-4), name
    assert many[3] == close(one[3], rel=1e-4)


def compare_trials(devices, folder):
    """Compare losses and scores of the last of two trials, and the best models."""
    task, start, found = sorting(), pretrained_start(), []
    for name, place in (("many", devices), ("one", one_device())):
        done = make_trials(folder / name, None, task, start, place).run(2)
        steps, losses = zip(*read_report(folder / name, 2)["losses"], strict=True)
        model = keras.saving.load_model(folder / name / "model.keras")
        found.append((steps, losses, done[1].scores, tiny.weights(model)))
    many, one = found
    assert many[:3] == (one[0], close(one[1], rel=1e-4), close(one[2]))
    assert tiny.distance(many[3], one[3]) < 1e-4


def main(folder):
    devices = strategy.choose("mirrored", cpu_replicas=2)
    compare_weighted(devices, *compare_training(devices, folder))
    compare_trials(devices, folder)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
