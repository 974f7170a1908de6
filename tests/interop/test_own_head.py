"""A kind of head that one entry of the table declares, between libraries."""

import dataclasses
import json

import numpy as np
import pytest
import safetensors.numpy
import tiny

import electra_tf
from electra_tf import sources
from electra_tf.errors import InputError
from electra_tf.interop import huggingface, tf1
from electra_tf.interop.network import Network
from electra_tf.interop.pretrained import PretrainedModel
from electra_tf.interop.task_heads import (
    TASK_HEADS,
    TEXT_FIELDS,
    HeadKind,
    HeadOptions,
    ReleasedTask,
    TaskHead,
    kind_of,
    text_forms,
)
from electra_tf.runs.conversion import convert_checkpoint

TOY = HeadKind(
    "ToyModel",
    "ForToys",
    text_forms("toy_summary.dense", "toy_output"),
    fields=TEXT_FIELDS,
    arguments=("size",),
    dropout_keys=("toy_dropout",),
    config={"toys": 3},
    released_tasks={"toybox": ReleasedTask(arguments={"size": 2})},
)
LAYERS = {
    "gelu": {"toy_summary.dense", "toy_output"},
    "tanh": {"bert.pooler.dense", "classifier"},
}


@pytest.fixture(autouse=True)
def toy(monkeypatch):
    monkeypatch.setitem(TASK_HEADS, "toy", TOY)


def toy_model(tmp_path, **head):
    """Return the golden encoder with a toy's head, whose weights are random."""
    tiny.huggingface(tmp_path / "encoder")
    encoder = tiny.networks(tmp_path / "encoder").main.without_head()
    head = TaskHead("toy", **head)
    shapes = Network("toy", encoder.shape, {}, head).shapes
    random = np.random.default_rng(0)
    weights = {
        name: random.normal(size=shape).astype(np.float32)
        for name, shape in shapes.items()
        if name.startswith("head/")
    }
    network = dataclasses.replace(
        encoder, role="toy", head=head, weights={**encoder.weights, **weights}
    )
    return PretrainedModel((network,), None, "toy")


def assert_same_weights(model, other):
    assert (other.head.role, other.head.pooler) == ("toy", model.head.pooler)
    for name, array in model.main.weights.items():
        np.testing.assert_array_equal(array, other.main.weights[name])


@pytest.mark.parametrize("pooler", LAYERS)
def test_transformers_has_its_names_and_keys(pooler, tmp_path):
    model = toy_model(tmp_path, pooler=pooler, dropout=0.3, settings={"size": 5})
    huggingface.write(model, str(tmp_path / "theirs"))
    assert_same_weights(model, huggingface.read(str(tmp_path / "theirs")))
    head = sources.open_source(tmp_path / "theirs").head
    assert (head.dropout, head.arguments) == (0.3, {"size": 5})
    assert head.model_settings == {
        "pooler": pooler, "pooling": "cls", "head_dropout": 0.3
    }  # fmt: skip
    tensors = safetensors.numpy.load_file(tmp_path / "theirs" / "model.safetensors")
    kernels = {name.removesuffix(".weight") for name in tensors}
    assert kernels >= LAYERS[pooler]
    config = json.loads((tmp_path / "theirs" / "config.json").read_text())
    library = "Bert" if pooler == "tanh" else "Electra"
    assert config["architectures"] == [f"{library}ForToys"]
    assert (config["toy_dropout"], config["toys"]) == (0.3, 3)
    card = (tmp_path / "theirs" / "README.md").read_text()
    assert "AutoModelForToys" in card
    assert "electra_tf.ToyModel" in card


def test_a_head_of_several_outputs_is_no_toy(tmp_path):
    huggingface.write(toy_model(tmp_path, pooler="gelu"), str(tmp_path / "theirs"))
    path = tmp_path / "theirs" / "model.safetensors"
    tensors = safetensors.numpy.load_file(path)
    tensors["toy_output.weight"] = np.repeat(tensors["toy_output.weight"], 2, 0)
    safetensors.numpy.save_file(tensors, path)
    with pytest.raises(InputError, match="toy_output"):
        huggingface.read(str(tmp_path / "theirs"))


def test_a_checkpoint_of_tensorflow_1_has_it_by_task_or_kind(tmp_path):
    model, folder = toy_model(tmp_path, name="toybox"), tmp_path / "theirs"
    tf1.write(model, str(folder))
    assert_same_weights(model, tf1.read(str(folder)))
    (folder / tf1.SETTINGS).write_text(json.dumps({"heads": {"toy": 2}}))
    found = tf1.read(str(folder))
    assert_same_weights(model, found)
    assert found.head.arguments == {"size": 2}
    found = tf1.read(str(folder), options=HeadOptions(kind="regressor"))
    assert found.head.role == "regressor"


def test_a_library_without_its_layers_is_refused_with_the_ones_it_has(tmp_path):
    huggingface.write(toy_model(tmp_path, pooler="gelu"), str(tmp_path / "theirs"))
    with pytest.raises(InputError, match=r"a toy with model\.pooler=gelu") as error:
        convert_checkpoint(tmp_path / "theirs", tmp_path / "out", "tf1")
    assert "--set=model.pooler=none" in error.value.remedy
    assert "--format=huggingface" in error.value.remedy
    assert not (tmp_path / "out").exists()


def test_its_class_is_known():
    assert kind_of("ToyModel") == "toy"
    chosen = {"pooler": "gelu", "head_dropout": 0.2}
    arguments = {"settings": {"model": chosen}, "size": 1, "vocabulary": "a"}
    head = TaskHead.of_model("toy", arguments)
    assert (head.pooler, head.pooling, head.dropout) == ("gelu", "cls", 0.2)
    assert head.settings == {"settings": {"model": chosen}, "size": 1}
    with pytest.raises(AttributeError, match="'ToyModel'"):
        _ = electra_tf.ElectraForToys
