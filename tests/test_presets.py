"""Models that ship: the names work wherever a checkpoint does."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from conftest import ROOT, RUN

from electra_tf import model_names, preset_files
from electra_tf.errors import InputError
from electra_tf.preset_files import preset_folder
from electra_tf.runs.conversion import convert_checkpoint
from electra_tf.tasks.classifier import TextClassifier
from electra_tf.training.checkpoint import open_checkpoint

sys.path.insert(0, str(ROOT / "tools"))
import score_preset
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


@pytest.mark.tools
def test_scores_of_a_preset_come_from_its_rows_and_those_of_tfidf(tmp_path):
    rng, source = np.random.default_rng(0), tmp_path / "sst2"
    source.mkdir()
    words = [["bad", "dull"], ["good", "fine"]]
    rows = [(rng.choice(words[label]), label) for label in rng.integers(0, 2, 1500)]
    table = "sentence\tlabel\n" + "".join(f"a {a} film\t{b}\n" for a, b in rows)
    for name in ("train.tsv", "dev.tsv"):
        (source / name).write_text(table)
    baseline = score_preset.tfidf(source, 1000)
    gold = "".join(str(label) for _, label in rows)
    assert baseline == {"gold": gold, "predicted": [gold] * 5}
    write = score_preset.scores.write_rows
    write(tmp_path / "tfidf.rows.json.xz", {"sst2_1000": baseline})
    other = {"gold": "0110", "predicted": ["0110", "0111", "0101"]}
    write(tmp_path / "x.rows.json.xz", {"sst2_1000": other, "mrpc": other})
    lines = score_preset.table(tmp_path).splitlines()
    assert lines[2].startswith("| tfidf |  | 100.0 (100.0 to 100.0) |")
    assert lines[3].startswith("| x |  | 75.0 (50.0 to 100.0) |")
    assert lines[3].count("75.0") == 2


def test_a_sample_of_few_rows_has_a_folder_of_its_own(tmp_path, monkeypatch):
    """The next call after a stop begins with the first sample again."""
    folders = []

    def finetune(task, checkpoint, source, output, flags, seeds):
        folders.append((output, (source / "train.tsv").read_text()))
        return {"gold": "01", "predicted": ["01"]}

    monkeypatch.setattr(score_preset.scores, "finetune", finetune)
    source = tmp_path / "source"
    source.mkdir()
    table = "\n".join(["sentence\tlabel", *(f"text {n}\t1" for n in range(900)), ""])
    for name in ("train", "dev"):
        (source / f"{name}.tsv").write_text(table)
    score_preset.few_rows("sst2_300", "checkpoint", source, tmp_path / "output", ())
    for paths_or_tables in zip(*folders, strict=True):
        assert len(set(paths_or_tables)) == score_preset.SAMPLES


@pytest.mark.slow
@pytest.mark.parametrize("name", preset_files.preset_names())
def test_a_shipped_preset_compares_texts(name, data, tmp_path):
    """On STS-B, with all defaults, ten points above the share of common words."""
    rows = tmp_path / "rows"
    command = (
        *(sys.executable, str(ROOT / "tools/score_preset.py"), f"--rows={rows}"),
        *(f"--data={data}", f"--work={tmp_path}", "--tasks", "stsb", "--"),
        f"trained={name}",
    )
    subprocess.run(command, check=True)
    stored = score_preset.scores.read_rows(rows / "trained.rows.json.xz")
    assert score_preset.score("stsb", stored["stsb"])[0] >= 75


def test_a_name_like_that_of_a_preset_gets_a_suggestion():
    with pytest.raises(InputError, match="Did you mean 'electra_wiki_en'"):
        model_names.check_exists("electra_wiki_ne")
