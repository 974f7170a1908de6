"""Files written by commit be6b40a load, give the same outputs and resume.

Tolerance 1e-5, because rounding differs between processors.
"""

import json
import shutil

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

from tests.conftest import GOLDEN

SAVED = GOLDEN / "saved"
MODELS = ("classifier", "regressor", "tagger", "answerer")
# Masked logits are near -1000, where the last bit of float32 is 6e-5.
CLOSE = {"rtol": 1e-6, "atol": 1e-5}


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    from keras.saving import load_model

    import electra_tf.tasks.classifier
    import electra_tf.tasks.question_answerer
    import electra_tf.tasks.token_classifier  # noqa: F401 - registers the classes

    return request.param, load_model(SAVED / request.param / "model.keras")


def test_a_fine_tuned_model_gives_the_same_logits(model):
    name, loaded = model
    expected = np.load(SAVED / "logits.npz")
    inputs = ("token_ids", "segment_ids", "padding_mask")
    outputs = tf.nest.flatten(loaded({key: expected[key] for key in inputs}))
    for number, values in enumerate(outputs):
        np.testing.assert_allclose(values, expected[f"{name}/{number}"], **CLOSE)


def test_a_fine_tuned_model_gives_the_same_predictions(model):
    name, loaded = model
    expected = json.loads((SAVED / "predictions.json").read_text())
    inputs = expected["inputs"][name]
    if name in ("regressor", "answerer"):
        inputs = [tuple(pair) for pair in inputs]
    outputs = loaded.predict(inputs)
    if name in ("classifier", "regressor"):
        np.testing.assert_allclose(outputs, expected["outputs"][name], **CLOSE)
    else:
        assert outputs == expected["outputs"][name]


@pytest.mark.runs
def test_a_run_resumes_to_the_same_weights(here, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(SAVED / "run", run)
    config = run / "checkpoints" / "step_00000004" / "config.yaml"
    result = here(
        "pretrain",
        f"--config={config}",
        f"--data={SAVED / 'records'}",
        f"--model_dir={run}",
    )
    assert result.returncode == 0, result.stderr
    path = run / "checkpoints" / "step_00000008" / "weights.safetensors"
    resumed = safetensors.numpy.load_file(path)
    expected = safetensors.numpy.load_file(SAVED / "resumed_weights.safetensors")
    assert resumed.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(resumed[name], values, **CLOSE, err_msg=name)
    result = here(
        "evaluate", f"--checkpoint={path.parent}", f"--data={SAVED / 'records'}"
    )
    report = json.loads(result.stdout.splitlines()[-1])
    for name, value in json.loads((SAVED / "evaluation.json").read_text()).items():
        if isinstance(value, float):
            assert report[name] == pytest.approx(value, abs=1e-5), name
