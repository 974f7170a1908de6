"""Test the command `export`."""

import json
import subprocess
import sys

import pytest
from conftest import ROOT, failure
from serving.exports import LABELS, model
from tiny import pretraining_settings as settings_of
from tiny import save_checkpoint as save

from electra_tf.model.electra import Electra

# Limits the size of files, which has the effect of a full disk.
FULL_DISK = """
import resource, runpy, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, resource.RLIM_INFINITY))
runpy.run_module("electra_tf.export", run_name="__main__", alter_sys=True)
"""
# Loads a SavedModel as a server does, with only TensorFlow and tensorflow-text.
CLIENT = """
import json, sys
import tensorflow as tf
import tensorflow_text
served = tf.saved_model.load(sys.argv[1])
inputs = {name: tf.constant(json.loads(values)) for name, values in
          (argument.split("=", 1) for argument in sys.argv[3:])}
tensors = served.signatures[sys.argv[2]](**inputs)
assert "electra_tf" not in sys.modules
outputs = {name: tensor.numpy().tolist() for name, tensor in tensors.items()}
print(json.dumps(outputs, default=bytes.decode))
"""


@pytest.fixture(scope="module")
def finetuned(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finetuned")
    model("classifier").save(folder / "model.keras")
    return folder


def call(folder, signature, **inputs):
    arguments = [f"{name}={json.dumps(values)}" for name, values in inputs.items()]
    result = subprocess.run(
        [sys.executable, "-c", CLIENT, folder, signature, *arguments],
        capture_output=True, text=True,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])


def test_export_finetuned_model(command, here, finetuned, tmp_path):
    output = tmp_path / "served"
    result = command("export", f"--model={finetuned}", f"--output={output}")
    assert result.returncode == 0, result.stderr
    assert f"exported to {output}/1" in result.stdout
    assert "serving_default: probabilities differs by" in result.stdout
    outputs = call(output / "1", "serving_default", text=["the file", ""])
    assert set(outputs) == {"probabilities", "logits", "label", "pieces_cut"}
    expected = model("classifier").predict(["the file", ""])
    for row in range(2):
        assert outputs["probabilities"][row] == pytest.approx(expected[row], abs=1e-5)
        assert outputs["label"][row] == LABELS[expected[row].argmax()]
    again = here("export", f"--model={finetuned}", f"--output={output}")
    assert "--version" in failure(again)


def test_full_disk_leaves_no_export(finetuned, tmp_path):
    output = tmp_path / "served"
    arguments = [f"--model={finetuned}", f"--output={output}", "--signatures=tokens"]
    result = subprocess.run(
        [sys.executable, "-c", FULL_DISK, *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    message = failure(result)
    assert repr(str(output)) in message
    assert "nothing was exported" in message
    assert not output.exists()


@pytest.mark.slow
def test_export_pretrained_checkpoint(command, vocabulary, tmp_path):
    settings = settings_of(vocabulary_size=len(vocabulary))
    electra = Electra(settings.model, 3)
    electra.build()
    save(tmp_path / "run", settings, {w.path: w.numpy() for w in electra.weights})
    output = tmp_path / "served"
    result = command(
        "export", f"--model={tmp_path}/run", f"--output={output}", "--version=7",
        "--output_kind=electra", "--signatures=text",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    outputs = call(output / "7", "masked_text", text=["the [MASK]"])
    assert outputs["tokens"] == [["[CLS]", "the", "[MASK]", "[SEP]"]]
    assert len(outputs["proposals"][0][0]) == 10


def test_invalid_flags(here, finetuned, tmp_path):
    message = failure(here("export"))
    assert "--model" in message
    assert "--output" in message
    output = f"--output={tmp_path}/out"
    assert "checkpoint" in failure(here("export", f"--model={tmp_path}", output))
    result = here("export", f"--model={finetuned}", output, "--part=encoder")
    assert "--output_kind=encoder" in failure(result)
    assert "--part is deprecated" in result.stderr
    assert not (tmp_path / "out").exists()
