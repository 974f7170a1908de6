"""The command: a trained model's folder in, a version that a server can load out."""

import json
import subprocess
import sys

import pytest
from conftest import ROOT, failure
from serving.exports import LABELS, model
from tasks.test_pretrained import save, settings_of

from electra_tf.model.electra import Electra

# Files of more bytes than this cannot be written, as on a full disk.
FULL = """
import resource, runpy, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, resource.RLIM_INFINITY))
runpy.run_module("electra_tf.export", run_name="__main__", alter_sys=True)
"""
# As a server does: nothing but TensorFlow and tensorflow-text.
ASK = """
import json, sys
import tensorflow as tf
import tensorflow_text
served = tf.saved_model.load(sys.argv[1])
given = {name: tf.constant(json.loads(of)) for name, of in
         (argument.split("=", 1) for argument in sys.argv[3:])}
said = served.signatures[sys.argv[2]](**given)
assert "electra_tf" not in sys.modules
found = {name: of.numpy().tolist() for name, of in said.items()}
print(json.dumps(found, default=bytes.decode))
"""


@pytest.fixture(scope="module")
def finetuned(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finetuned")
    model("classifier").save(folder / "model.keras")
    return folder


def ask(folder, signature, **inputs):
    given = [f"{name}={json.dumps(of)}" for name, of in inputs.items()]
    done = subprocess.run(
        [sys.executable, "-c", ASK, folder, signature, *given],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_strings_in_labels_out(command, here, finetuned, tmp_path):
    output = tmp_path / "served"
    done = command("export", f"--model={finetuned}", f"--output={output}")
    assert done.returncode == 0, done.stderr
    assert f"exported to {output}/1" in done.stdout
    assert "serving_default: probabilities differs by" in done.stdout
    said = ask(output / "1", "serving_default", text=["the file", ""])
    assert set(said) == {"probabilities", "logits", "label", "pieces_cut"}
    expected = model("classifier").predict(["the file", ""])
    for row in range(2):
        assert said["probabilities"][row] == pytest.approx(expected[row], abs=1e-5)
        assert said["label"][row] == LABELS[expected[row].argmax()]
    again = here("export", f"--model={finetuned}", f"--output={output}")
    assert "higher --version" in failure(again)


def test_a_full_disk_is_told_and_nothing_stays(finetuned, tmp_path):
    output = tmp_path / "served"
    given = [f"--model={finetuned}", f"--output={output}", "--signatures=tokens"]
    done = subprocess.run(
        [sys.executable, "-c", FULL, *given], capture_output=True, text=True, cwd=ROOT
    )
    message = failure(done)
    assert repr(str(output)) in message
    assert "nothing was exported" in message
    assert not output.exists()


@pytest.mark.slow
def test_a_pre_trained_checkpoint_is_told_its_part(command, vocabulary, tmp_path):
    settings = settings_of(vocabulary_size=len(vocabulary))
    towers = Electra(settings.model, 3)
    towers.build()
    save(tmp_path / "run", settings, {w.path: w.numpy() for w in towers.weights})
    output = tmp_path / "served"
    done = command(
        "export", f"--model={tmp_path}/run", f"--output={output}", "--version=7",
        "--output_kind=electra", "--signatures=text",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = ask(output / "7", "masked_text", text=["the [MASK]"])
    assert said["tokens"] == [["[CLS]", "the", "[MASK]", "[SEP]"]]
    assert len(said["proposals"][0][0]) == 10


def test_what_is_wrong_is_told(here, finetuned, tmp_path):
    assert "--model and no --output" in failure(here("export"))
    nothing = here("export", f"--model={tmp_path}", f"--output={tmp_path}/out")
    assert "checkpoint" in failure(nothing)
    wrong = here(
        "export", f"--model={finetuned}", f"--output={tmp_path}/out", "--part=encoder"
    )
    assert "--output_kind=encoder for a fine-tuned model" in failure(wrong)
    assert "warning: --part is deprecated" in wrong.stderr
    assert not (tmp_path / "out").exists()
