"""Fine-tuning on one device and on two replicas: the same model.

Replicas must be configured when a process starts, so this file is also a program.
"""

import json
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

pytestmark = pytest.mark.runs

# Eleven batches an epoch, the last one of them not full.
# Four rows and eight are summed in other orders, which updates of 1e-2 enlarge.
TEXTS, LABELS = tiny.texts(85, longest=11, shortest=10)
WEIGHTS = np.random.default_rng(3).uniform(0, 3, 85)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Results of a process with two replicas."""
    output = tmp_path_factory.mktemp("replicas") / "model.keras"
    done = python("-m", "tests.tasks.test_text_model_replicas", str(output))
    assert done.returncode == 0, done.stderr[-3000:]
    return {**json.loads(done.stdout.splitlines()[-1]), "output": output}


def test_eleven_steps_on_two_replicas_equal_one_device(results):
    assert results["replicas"] == 2
    assert results["steps"] == 11
    assert results["moved"] > 1e-2
    assert results["apart"] < 1e-4
    assert results["loss"][0] == pytest.approx(results["loss"][1], rel=1e-4)
    assert results["accuracy"][0] == pytest.approx(results["accuracy"][1], abs=1e-6)
    assert results["predictions_apart"] < 1e-4


def test_sample_weights_on_two_replicas_equal_one_device(results):
    weighted = results["weighted"]
    assert weighted["moved"] > 1e-2
    assert weighted["not_as_unweighted"] > 1e-3
    assert weighted["apart"] < 1e-4
    (many, one), (measured_many, measured_one) = weighted["fit"], weighted["evaluate"]
    assert many.keys() == one.keys() >= {"loss", "acc", "accuracy", "val_loss"}
    for name, values in many.items():
        assert values == pytest.approx(one[name], rel=1e-4), name
    assert measured_many == pytest.approx(measured_one, rel=1e-4)


def test_a_model_on_replicas_is_reinitialized_and_saved(results):
    assert results["after_reinitialize"] == 0
    model = keras.saving.load_model(results["output"])
    np.testing.assert_allclose(
        model.predict(TEXTS[:4]), results["predictions"], atol=1e-5
    )


def test_trials_on_two_replicas_equal_those_on_one_device(results):
    many, one = results["trials"]
    assert many["losses"] == [
        [step, pytest.approx(x, rel=1e-4)] for step, x in one["losses"]
    ]
    assert many["scores"] == pytest.approx(one["scores"])
    assert results["trials_apart"] < 1e-4


def test_an_indivisible_batch_size_is_rejected(results):
    assert "batch_size=9 must be a multiple of the 2 replicas" in results["indivisible"]


def trained(devices):
    with devices.scope():
        settings = tiny.settings(training_epochs=1)
        model = TextClassifier(tiny.start(), ["bad", "good"], settings)
    before = tiny.weights(model)
    history = model.fit(TEXTS, LABELS, verbose=0).history
    return model, before, history


def weighted(devices):
    """Train with weights of texts, with weights of classes, and a validation split."""
    with devices.scope():
        settings = tiny.settings(training_epochs=1)
        model = TextClassifier(tiny.start(), ["bad", "good"], settings)
    loss = "sparse_categorical_crossentropy"
    model.compile(metrics=["acc"], weighted_metrics=[loss])
    results = model.fit(
        TEXTS, LABELS, sample_weight=WEIGHTS, validation_split=0.2, verbose=0
    ).history
    first = tiny.weights(model)
    model.fit(TEXTS, LABELS, class_weight={1: 2.0}, epochs=1, verbose=0)
    measured = model.evaluate(TEXTS, LABELS, sample_weight=WEIGHTS, verbose=0)
    return first, tiny.weights(model), results, measured


def compare_weighted(devices, before, unweighted):
    """Compare weighted training on two replicas and on one device."""
    many, one = weighted(devices), weighted(one_device())
    return {
        "moved": tiny.distance(before, many[0]),
        "not_as_unweighted": tiny.distance(unweighted, many[0]),
        "apart": max(
            tiny.distance(a, b) for a, b in zip(many[:2], one[:2], strict=True)
        ),
        "fit": [many[2], one[2]],
        "evaluate": [many[3], one[3]],
    }


def trials(devices, folder):
    """Return losses and scores of the last of two trials, and the best model."""
    task, start = sorting(), pretrained_start()
    done = make_trials(folder, None, task, start, devices).run(2)
    found = {"losses": read_report(folder, 2)["losses"], "scores": done[1].scores}
    return found, keras.saving.load_model(folder / "model.keras")


def main(output):
    devices = strategy.choose("mirrored", cpu_replicas=2)
    many, before, of_many = trained(devices)
    one, _, of_one = trained(one_device())
    weights = tiny.weights(many)
    results = {
        "replicas": many.distribute_strategy.num_replicas_in_sync,
        "steps": int_value(many.optimizer.iterations),
        "moved": tiny.distance(before, weights),
        "apart": tiny.distance(weights, tiny.weights(one)),
        "loss": [h["loss"][0] for h in (of_many, of_one)],
        "accuracy": [h["accuracy"][0] for h in (of_many, of_one)],
        "predictions_apart": float(
            np.abs(many.predict(TEXTS) - one.predict(TEXTS)).max()
        ),
        "predictions": many.predict(TEXTS[:4]).tolist(),
    }
    results["weighted"] = compare_weighted(devices, before, weights)
    folders = [pathlib.Path(output).with_name(name) for name in ("many", "one")]
    found = list(map(trials, (devices, one_device()), folders))
    results["trials"] = [one for one, _ in found]
    results["trials_apart"] = tiny.distance(*(tiny.weights(m) for _, m in found))
    many.save(output)
    try:
        many.fit(TEXTS, LABELS, batch_size=9)
    except InputError as error:
        results["indivisible"] = str(error)
    many.reinitialize(tiny.start(), 0)
    results["after_reinitialize"] = tiny.distance(before, tiny.weights(many))
    print(json.dumps(results))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
