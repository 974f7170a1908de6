"""Fine-tuning on one device and on two replicas: the same model.

Replicas need a process that starts as such; run as a program, this file is one.
"""

import json
import os
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest
from conftest import ROOT
from training.toy import one_device

from electra_tf.errors import InputError
from electra_tf.tasks.models import TextClassifier
from electra_tf.tasks.string_model import whole_number
from electra_tf.training import strategy
from tasks import tiny

# Eleven batches an epoch, the last one of them not full.
TEXTS, LABELS = tiny.texts(85, longest=11, shortest=10)


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What the process with two replicas says."""
    output = tmp_path_factory.mktemp("replicas") / "model.keras"
    done = subprocess.run(
        [sys.executable, "-m", "tasks.test_text_model_replicas", str(output)],
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"},
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return {**json.loads(done.stdout.splitlines()[-1]), "output": output}


def test_eleven_steps_on_two_replicas_are_those_on_one_device(told):
    assert told["replicas"] == 2
    assert told["steps"] == 11
    assert told["moved"] > 1e-2
    assert told["apart"] < 1e-5
    assert told["loss"][0] == pytest.approx(told["loss"][1], rel=1e-5)
    assert told["accuracy"][0] == pytest.approx(told["accuracy"][1], abs=1e-6)
    assert told["predictions_apart"] < 1e-5


def test_a_model_of_replicas_begins_anew_and_is_saved(told):
    assert told["as_new"] == 0
    model = keras.saving.load_model(told["output"])
    np.testing.assert_allclose(model.predict(TEXTS[:4]), told["said"], atol=1e-5)


def test_a_batch_that_replicas_cannot_share_is_told(told):
    assert "shared equally by 2 replicas. Arrived: batches of 9." in told["odd"]


def trained(devices):
    with devices.scope():
        settings = tiny.settings(training_epochs=1)
        model = TextClassifier(tiny.start(), ["bad", "good"], settings)
    before = tiny.weights(model)
    history = model.fit(TEXTS, LABELS, verbose=0).history
    return model, before, history


def main(output):
    devices = strategy.choose("mirrored", cpu_replicas=2)
    many, before, of_many = trained(devices)
    one, _, of_one = trained(one_device())
    weights = tiny.weights(many)
    answer = {
        "replicas": many.distribute_strategy.num_replicas_in_sync,
        "steps": whole_number(many.optimizer.iterations),
        "moved": tiny.distance(before, weights),
        "apart": tiny.distance(weights, tiny.weights(one)),
        "loss": [h["loss"][0] for h in (of_many, of_one)],
        "accuracy": [h["accuracy"][0] for h in (of_many, of_one)],
        "predictions_apart": float(
            np.abs(many.predict(TEXTS) - one.predict(TEXTS)).max()
        ),
        "said": many.predict(TEXTS[:4]).tolist(),
    }
    many.save(output)
    try:
        many.fit(TEXTS, LABELS, batch_size=9)
    except InputError as error:
        answer["odd"] = str(error)
    many.reset(tiny.start(), 0)
    answer["as_new"] = tiny.distance(before, tiny.weights(many))
    print(json.dumps(answer))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
