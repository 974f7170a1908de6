"""Models that ship: the names work wherever a checkpoint does."""

import json
import os
import sys

import numpy as np
import pytest

from electra_tf import model_names, preset_files
from electra_tf.errors import InputError
from electra_tf.preset_files import preset_folder
from electra_tf.runs.conversion import convert_checkpoint
from electra_tf.tasks.classifier import TextClassifier
from electra_tf.training.checkpoint import open_checkpoint
from tests.conftest import ROOT, RUN

sys.path.insert(0, str(ROOT / "tools"))
import write_preset

NAME = "tiny_words"
FACTS = {
    "description": "A network of four steps.",
    "licence": "CC0-1.0",
    "scores": {"SST-2": 50.0},
}


@pytest.fixture
def preset(tmp_path, monkeypatch):
    """A preset made of a run of four steps."""
    folder = tmp_path / "preset_files"
    write_preset.write(open_checkpoint(str(RUN)), folder / NAME)
    (folder / NAME / "preset.json").write_text(json.dumps(FACTS))
    monkeypatch.setattr(preset_files, "FOLDER", folder)
    monkeypatch.chdir(tmp_path)
    return folder / NAME


def test_a_preset_has_the_rounded_weights_and_no_slots(preset):
    weights = open_checkpoint(str(RUN)).weights()
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
    convert_checkpoint(NAME, tmp_path / "converted", "huggingface")
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


def test_a_local_path_takes_precedence(preset, tmp_path):
    assert preset_folder(NAME) == str(preset)
    (tmp_path / NAME).mkdir()
    assert preset_folder(NAME) is None
    assert preset_folder("another") is None


@pytest.mark.parametrize("name", preset_files.preset_names())
def test_a_shipped_preset_is_complete_and_small(name):
    folder = preset_files.FOLDER / name
    assert {"README.md", "NOTICE", "weights.safetensors"} <= set(os.listdir(folder))
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 12e6
    facts = preset_files.preset_facts(name)
    assert all(facts[name] for name in ("licence", "description", "scores"))
    networks = {path.split("/")[1] for path in open_checkpoint(str(folder)).weights()}
    assert {"generator", "discriminator"} <= networks


@pytest.mark.slow
@pytest.mark.parametrize("name", preset_files.preset_names())
def test_a_shipped_preset_compares_texts(name, data, tmp_path, command):
    """On STS-B, with all defaults, ten points above the share of common words."""
    flags = f"--checkpoint={name}", f"--data={data / 'glue'}", f"--output={tmp_path}"
    result = command("finetune", "--task=stsb", *flags)
    assert result.returncode == 0, result.stderr
    scores = json.loads((tmp_path / "results.json").read_text())["scores"]
    assert scores["dev_spearman"]["mean"] >= 75


def test_a_name_like_that_of_a_preset_gets_a_suggestion():
    with pytest.raises(InputError, match="Did you mean 'electra_wiki_en'"):
        model_names.check_exists("electra_wiki_ne")
