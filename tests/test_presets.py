"""Models that ship: the names work wherever a checkpoint does."""

import json
import sys

import numpy as np
import pytest
from conftest import ROOT

from electra_tf import preset_files
from electra_tf.preset_files import preset_folder
from electra_tf.runs.conversion import convert_checkpoint
from electra_tf.tasks.classifier import TextClassifier
from electra_tf.training.checkpoint import open_checkpoint

sys.path.insert(0, str(ROOT / "tools"))
import write_preset

NAME = "tiny_words"
FACTS = {
    "description": "A network of three steps.",
    "licence": "CC0-1.0",
    "scores": {"SST-2": 50.0},
}


@pytest.fixture
def preset(pretrained, tmp_path, monkeypatch):
    """A preset made of a run of three steps."""
    folder = tmp_path / "preset_files"
    write_preset.write(open_checkpoint(str(pretrained)), folder / NAME)
    (folder / NAME / "preset.json").write_text(json.dumps(FACTS))
    monkeypatch.setattr(preset_files, "FOLDER", folder)
    monkeypatch.chdir(tmp_path)
    return folder / NAME


def test_a_preset_has_the_rounded_weights_and_no_slots(preset, pretrained):
    weights = open_checkpoint(str(pretrained)).weights()
    rounded = open_checkpoint(str(preset)).weights()
    assert rounded.keys() == weights.keys()
    for name, array in weights.items():
        assert rounded[name].dtype == np.float32
        np.testing.assert_array_equal(rounded[name], array.astype(np.float16))
    assert not open_checkpoint(str(preset)).slots()
    stored = (preset / "weights.safetensors").stat().st_size
    assert stored < 2 * sum(a.size for a in weights.values()) + 20_000


def test_a_name_is_accepted_where_a_checkpoint_is(preset, folder, tmp_path, here):
    model = TextClassifier.from_preset(NAME, num_classes=2)
    weights = open_checkpoint(str(preset)).weights()
    table = weights["electra/discriminator/encoder/embeddings/word_embeddings"]
    word_embeddings = model.encoder.embeddings.word_embeddings
    np.testing.assert_array_equal(np.asarray(word_embeddings), table)
    report = convert_checkpoint(NAME, tmp_path / "converted", "huggingface")
    assert "largest difference" in str(report)
    result = here("evaluate", f"--checkpoint={NAME}", f"--data={folder}")
    assert result.returncode == 0, result.stderr
    assert "disc_auc" in result.stdout
    result = here("score", f"--checkpoint={NAME}", input="a word\n")
    assert result.returncode == 0, result.stderr


def test_presets_are_listed(preset, here):
    result = here("presets")
    assert result.returncode == 0
    for words in (NAME, "CC0-1.0", "SST-2 50.0", FACTS["description"]):
        assert words in result.stdout


def test_a_package_without_presets_says_so(tmp_path, monkeypatch, here):
    monkeypatch.setattr(preset_files, "FOLDER", tmp_path)
    assert here("presets").stdout


def test_a_local_path_takes_precedence(preset, tmp_path):
    assert preset_folder(NAME) == str(preset)
    (tmp_path / NAME).mkdir()
    assert preset_folder(NAME) is None
    assert preset_folder("another") is None
