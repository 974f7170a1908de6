"""Commands on models of other libraries, and ids of the Hugging Face hub."""

import importlib
import shutil
import sys

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf
import tiny
from conftest import failure

import electra_tf
from electra_tf import sources
from electra_tf.errors import InputError
from electra_tf.interop import hub
from electra_tf.runs import evaluation
from electra_tf.runs.conversion import convert_checkpoint
from electra_tf.runs.evaluation import evaluate_checkpoint
from electra_tf.serving.export import load_exportable

NAME = "owner/tiny-discriminator"


@pytest.fixture(scope="module")
def foreign(pretrained, tmp_path_factory):
    """Return the pre-trained pair as a Hugging Face folder."""
    folder = str(tmp_path_factory.mktemp("foreign") / "pair")
    convert_checkpoint(pretrained, folder, "huggingface")
    return folder


@pytest.fixture
def cache(foreign, tmp_path, monkeypatch):
    """Put the folder into a cache of huggingface_hub, without network access."""
    pytest.importorskip("huggingface_hub")
    constants = importlib.import_module("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.chdir(tmp_path)
    model, commit = tmp_path / "cache" / "models--owner--tiny-discriminator", "0" * 40
    (model / "refs").mkdir(parents=True)
    (model / "refs" / "main").write_text(commit)
    shutil.copytree(foreign, model / "snapshots" / commit)
    return model / "snapshots" / commit


def test_evaluation_is_near_that_of_the_run(pretrained, foreign, folder):
    devices = tf.distribute.get_strategy()
    own, theirs = (
        evaluate_checkpoint(str(path), str(folder), 2, devices)
        for path in (pretrained, foreign)
    )
    assert theirs["checkpoint"] == foreign
    # The seed, which is not part of a folder, selects the masked positions.
    assert theirs["masked_lm_loss"] == pytest.approx(own["masked_lm_loss"], rel=0.02)
    assert theirs.keys() == own.keys()


def test_too_long_records_are_an_error(foreign, folder, monkeypatch):
    monkeypatch.setattr(evaluation, "record_length", lambda data: 4096)
    with pytest.raises(InputError, match="4096"):
        evaluate_checkpoint(foreign, str(folder), 2, tf.distribute.get_strategy())


@pytest.mark.parametrize("kind", ["encoder", "electra"])
def test_exported_functions_are_those_of_the_run(pretrained, foreign, kind):
    own, theirs = (
        load_exportable(str(path), kind).tokens["tokens"]
        for path in (pretrained, foreign)
    )
    request = own.requests[0]
    expected, outputs = own.expected(request), theirs.expected(request)
    for name, array in expected.items():
        np.testing.assert_allclose(outputs[name], array, atol=1e-6)


def test_texts_of_exported_models_take_the_positions_of_a_flag(foreign):
    text = " ".join("abcdefgh")
    for length, cut in ((None, 0), (4, 6), (10, 0)):
        spec = load_exportable(foreign, max_length=length)
        outputs = spec.text["serving_default"].function(tf.constant([text]))
        assert outputs["pieces_cut"].numpy().tolist() == [cut]
        assert outputs["tokens"].shape[1] == 10 - cut
        if length:
            assert spec.metadata["max_length"] == length
    for length in (2, 1 << 20):
        with pytest.raises(InputError, match="--max_length"):
            load_exportable(foreign, max_length=length)


def test_hub_id_is_read_from_the_cache(cache, foreign):
    for name in (NAME, f"{NAME}@main"):
        assert sources.open(name).format == "huggingface"
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


def test_hub_id_without_the_package(cache, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(InputError, match="huggingface_hub"):
        tiny.networks(NAME)


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
        (("classifier.dense.weight", "classifier.out_proj.bias"), "another network"),
        (("sequence_summary.summary.weight", "classifier.weight"), "neither tagging"),
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
