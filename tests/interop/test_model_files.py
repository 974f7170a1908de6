"""Models of other libraries: their files, ids of the hub, commands, model cards."""

import importlib
import json
import pathlib
import re
import shutil

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

import electra_tf
from electra_tf import sources
from electra_tf.errors import InputError
from electra_tf.interop import hub
from electra_tf.interop.tensors import WEIGHTS
from electra_tf.runs import evaluation
from electra_tf.runs.conversion import convert_checkpoint
from electra_tf.runs.evaluation import evaluate_checkpoint
from electra_tf.runs.exporting import load_exportable, open_servable
from electra_tf.runs.scoring import TextScorer
from electra_tf.training.checkpoint import CHECKPOINT_FILES
from tests import tiny
from tests.conftest import GOLDEN as ALL_GOLDEN
from tests.conftest import failure

GOLDEN = ALL_GOLDEN / "interop"
DISCRIMINATOR = GOLDEN / "huggingface_discriminator"
RUN, RECORDS = (str(ALL_GOLDEN / "saved" / name) for name in ("run", "records"))
SHARDS = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
NAME = "owner/tiny-discriminator"


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Folders of models by format, and one in shards."""
    parent = tmp_path_factory.mktemp("models")
    shutil.copytree(DISCRIMINATOR, parent / "huggingface")
    for name in ("keras_hub", "model_garden"):
        shutil.copytree(GOLDEN / name, parent / name)
    tiny.tf1(parent / "tf1", DISCRIMINATOR)
    convert_checkpoint(DISCRIMINATOR, parent / "electra_tf")
    (step,) = (parent / "electra_tf").iterdir()
    step.rename(parent / "step")
    shutil.copytree(DISCRIMINATOR, parent / "shards")
    (parent / "shards" / WEIGHTS[0]).unlink()
    tensors = safetensors.numpy.load_file(DISCRIMINATOR / WEIGHTS[0])
    names = {name: SHARDS[number % 2] for number, name in enumerate(sorted(tensors))}
    for shard in SHARDS:
        part = {name: tensors[name] for name in tensors if names[name] == shard}
        safetensors.numpy.save_file(part, parent / "shards" / shard)
    index = {"metadata": {}, "weight_map": names}
    (parent / "shards" / WEIGHTS[1]).write_text(json.dumps(index))
    return parent


@pytest.mark.parametrize(
    ("folder", "files"),
    [
        ("huggingface", [WEIGHTS[0], "config.json"]),
        ("shards", [WEIGHTS[1], *SHARDS, "config.json"]),
        ("keras_hub", ["model.weights.h5", "config.json"]),
        ("model_garden", ["checkpoint", "*.index", "*.data-00000-of-00001"]),
        ("tf1", ["checkpoint", "*.index", "*.data-00000-of-00001"]),
        ("step", CHECKPOINT_FILES),
    ],
)
def test_a_file_is_read_as_its_folder(folder, files, models, monkeypatch):
    expected = tiny.networks(str(models / folder)).networks
    monkeypatch.chdir(models / folder)
    for pattern in files:
        (file,) = pathlib.Path().glob(pattern)
        for path in (str(file), str(file.absolute())):
            found = sources.open_source(path)
            assert found.formats == sources.open_source(models / folder).formats, path
            assert (found.kind == "checkpoint") == (folder == "step")
        networks = tiny.networks(path).networks
        for one, other in zip(networks, expected, strict=True):
            for name in one.weights:
                np.testing.assert_array_equal(one.weights[name], other.weights[name])
        if folder in ("huggingface", "step", "tf1"):
            shape = tiny.encoder(path).shape
            assert shape == expected[0].shape


def test_a_file_of_weights_is_read_in_place_of_the_preferred_one(tmp_path):
    shutil.copytree(DISCRIMINATOR, tmp_path / "model")
    (tmp_path / "model" / "pytorch_model.bin").write_bytes(b"damaged")
    tiny.networks(str(tmp_path / "model"))
    with pytest.raises(InputError, match=r"pytorch_model\.bin"):
        tiny.networks(str(tmp_path / "model" / "pytorch_model.bin"))


@pytest.mark.parametrize("name", ["../a.safetensors", "/etc/passwd", "..", "gone.bin"])
def test_an_index_names_files_of_its_own_folder(name, models, tmp_path):
    shutil.copytree(models / "shards", tmp_path / "model")
    index = json.dumps({"weight_map": {"electra.x": name}})
    (tmp_path / "model" / WEIGHTS[1]).write_text(index)
    with pytest.raises(InputError, match="index"):
        tiny.networks(str(tmp_path / "model"))


@pytest.fixture(scope="module")
def foreign(tmp_path_factory):
    """A pre-trained pair as a Hugging Face folder."""
    folder = str(tmp_path_factory.mktemp("foreign") / "pair")
    convert_checkpoint(RUN, folder, "huggingface")
    return folder


@pytest.fixture
def cache(foreign, tmp_path, monkeypatch):
    """Put the folder into a cache of huggingface_hub, without network access."""
    constants = importlib.import_module("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.chdir(tmp_path)
    model, commit = tmp_path / "cache" / "models--owner--tiny-discriminator", "0" * 40
    (model / "refs").mkdir(parents=True)
    (model / "refs" / "main").write_text(commit)
    shutil.copytree(foreign, model / "snapshots" / commit)
    return model / "snapshots" / commit


def test_evaluation_is_near_that_of_the_run(foreign, monkeypatch):
    devices = tf.distribute.get_strategy()
    own, theirs = (
        evaluate_checkpoint(path, RECORDS, 2, devices) for path in (RUN, foreign)
    )
    assert theirs["checkpoint"] == foreign
    # The seed, which is not part of a folder, selects the masked positions.
    assert theirs["masked_lm_loss"] == pytest.approx(own["masked_lm_loss"], rel=0.02)
    assert theirs.keys() == own.keys()
    monkeypatch.setattr(evaluation, "record_length", lambda data: 4096)
    with pytest.raises(InputError, match="4096"):
        evaluate_checkpoint(foreign, RECORDS, 2, devices)


def test_texts_of_exported_models_take_the_positions_of_a_flag(foreign):
    text = " ".join("abcdefgh")
    for length, cut in ((None, 0), (4, 6)):
        spec = load_exportable(foreign, max_length=length)
        outputs = spec.text["serving_default"](tf.constant([text]))
        assert outputs["pieces_cut"].numpy().tolist() == [cut]
        assert outputs["tokens"].shape[1] == 10 - cut
        if length:
            assert spec.metadata["max_length"] == length
    for length in (2, 1 << 20):
        with pytest.raises(InputError, match="--max_length"):
            load_exportable(foreign, max_length=length)


def test_hub_id_is_read_from_the_cache(cache, foreign):
    for name in (NAME, f"{NAME}@main"):
        assert sources.open_source(name).format == "huggingface"
        model = tiny.networks(name)
        expected = tiny.networks(foreign).networks[0].weights
        for path, array in model.networks[0].weights.items():
            np.testing.assert_array_equal(array, expected[path])
    encoder = electra_tf.Encoder.from_preset(NAME)
    assert encoder.shape == model.networks[0].shape


def test_torch_weights_of_a_hub_id_are_read(cache):
    (cache / "model.safetensors").rename(cache / "pytorch_model.bin")
    assert hub.local_folder(NAME) == str(cache)


@pytest.mark.parametrize("name", ["owner/other", f"{NAME}@v2"])
def test_missing_hub_model_without_network(cache, name):
    with pytest.raises(InputError, match="--local-dir"):
        tiny.networks(name)


def test_local_paths_are_not_hub_ids(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "a" / "b").mkdir(parents=True)
    for path in ("a/b", "run/model", "./run", "../run", "x", "/x/y", "a/b/c", "tiny"):
        assert not hub.is_hub_id(path)
        assert hub.local_folder(path) == path
    assert hub.is_hub_id("google/electra-small-discriminator")


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        (("classifier.dense.weight", "classifier.out_proj.bias"), "a part of one"),
        (("qa_outputs.weight",), "a span head without two outputs"),
    ],
)
def test_heads_of_tasks_are_dropped_on_request_only(
    foreign, tmp_path, here, tensors, message
):
    source = tmp_path / "finetuned"
    shutil.copytree(foreign, source)
    path = source / "model.safetensors"
    weights = safetensors.numpy.load_file(path)
    weights |= {name: np.ones((2, 2), np.float32) for name in tensors}
    safetensors.numpy.save_file(weights, path)
    flags = f"--from={source}", f"--to={tmp_path / 'out'}"
    failed = failure(here("convert", *flags))
    assert message in failed
    assert "--drop_head" in failed
    assert not (tmp_path / "out").exists()
    result = here("convert", *flags, "--drop_head")
    assert result.returncode == 0, result.stderr
    for name in tensors:
        assert f"left out: {name}" in result.stdout


def test_code_of_the_model_card_runs(foreign, monkeypatch):
    for folder, name in ((".", "AutoModelForPreTraining"), ("generator", "MaskedLM")):
        monkeypatch.chdir(pathlib.Path(foreign, folder))
        card = pathlib.Path("README.md").read_text()
        theirs, own = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
        assert name in theirs
        names = {}
        exec(own, names)
        assert names["model"].shape == tiny.networks(".").main.shape


def test_an_encoder_without_a_head_is_named(tmp_path):
    path = tmp_path / "encoder"
    tiny.huggingface(
        path, lambda a: {n: v for n, v in a.items() if "predictions" not in n}
    )
    name = str(path)
    devices = tf.distribute.get_strategy()
    for call in (
        lambda: evaluate_checkpoint(name, RECORDS, 2, devices),
        lambda: TextScorer.from_preset(name),
        lambda: open_servable(name),
    ):
        with pytest.raises(InputError, match=r"without (a|the) head") as error:
            call()
        assert repr(name) in str(error.value)
