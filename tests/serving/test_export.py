"""Test that an export is complete or absent."""

import dataclasses
import os

import numpy as np
import pytest

from electra_tf.errors import InputError
from electra_tf.serving import export
from serving.exports import exported, model
from serving.warmup_file import read_warmup


@pytest.fixture(scope="module")
def exported_version(tmp_path_factory):
    folder, lines = tmp_path_factory.mktemp("served"), []
    path = export.export(exported("classifier"), str(folder), 3, log=lines.append)
    return folder, path, lines


def test_export_writes_a_version_folder(exported_version):
    folder, path, lines = exported_version
    assert path == str(folder / "3")
    assert sorted(os.listdir(folder)) == [
        "3", "batching.txt", "kserve.yaml", "models.config", "monitoring.config",
        "triton.pbtxt",
    ]  # fmt: skip
    assert any("serving_default: logits differs by" in line for line in lines)
    requests = read_warmup(path)
    assert set(requests) == {"serving_default", "tokens"}
    lengths = {request["token_ids"].shape[1] for request in requests["tokens"]}
    assert {16, 32} <= lengths
    assert all(len(request["text"]) for request in requests["serving_default"])


def test_export_does_not_overwrite_a_version(exported_version):
    folder, path, _ = exported_version
    before = os.path.getmtime(f"{path}/saved_model.pb")
    with pytest.raises(InputError, match="--version"):
        export.export(exported("classifier"), str(folder), 3)
    assert os.path.getmtime(f"{path}/saved_model.pb") == before


def test_file_as_output_and_unfinished_model_are_rejected(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"--output .*/file'"):
        export.export(exported("classifier"), str(tmp_path / "file"))
    (tmp_path / "trial_1").mkdir()
    with pytest.raises(InputError, match=r"without a model\.keras"):
        export.load_exportable(str(tmp_path))


def test_failed_validation_deletes_the_export(tmp_path):
    spec = exported("classifier")
    text = dataclasses.replace(
        spec.text["serving_default"], expected=lambda request: {"logits": np.zeros(1)}
    )
    bad = dataclasses.replace(spec, text={"serving_default": text})
    with pytest.raises(InputError, match="serving_default: logits differs by inf"):
        export.export(bad, str(tmp_path / "out"), signatures=("text",))
    assert not (tmp_path / "out").exists()


def test_select_signatures():
    spec = exported("classifier")
    select = export.select_signatures
    assert list(select(spec, ("text",))) == ["serving_default"]
    assert list(select(spec, ("text", "tokens"))) == ["serving_default", "tokens"]
    tokens = select(spec, ("tokens",))
    assert tokens["serving_default"] is tokens["tokens"] is spec.tokens["tokens"]


@pytest.mark.parametrize(
    ("signatures", "export_format", "message"),
    [
        ((), "saved_model", "--signatures"),
        (("tekst",), "saved_model", "'tekst'"),
        (("text",), "onnx", "--format=onnx --signatures=text"),
    ],
)
def test_check_arguments_rejects_signatures(signatures, export_format, message):
    with pytest.raises(InputError, match=message):
        export.check_arguments("out", 1, signatures, export_format)


def test_load_exportable_distinguishes_finetuned_models(tmp_path, vocabulary):
    model("classifier").save(tmp_path / "model.keras")
    for path in (tmp_path, tmp_path / "model.keras"):
        spec = export.load_exportable(str(path))
        assert (spec.kind, spec.metadata["max_length"]) == ("classifier", 32)
    with pytest.raises(InputError, match="--output_kind=encoder"):
        export.load_exportable(str(tmp_path), "encoder")
    with pytest.raises(InputError, match="--max_length=64"):
        export.load_exportable(str(tmp_path), max_length=64)
    with pytest.raises(InputError, match="max_length=64 for a TextClassifier"):
        export.export_saved_model(model("classifier"), tmp_path / "out", max_length=64)
    with pytest.raises(InputError, match="does not exist"):
        export.load_exportable(str(tmp_path / "missing"))


@pytest.mark.parametrize("export_format", ["litert", "onnx"])
def test_other_formats_have_the_function_of_ids(export_format, tmp_path):
    lines, spec = [], exported("pairs")
    path = export.export(
        spec, str(tmp_path), export_format=export_format, log=lines.append
    )
    names = set(os.listdir(path))
    assert {"vocab.txt", "vocab.txt.settings.json", "about.json", "labels.txt"} < names
    files = {
        "litert": {"model.float32.tflite", "model.int8.tflite"},
        "onnx": {"model.onnx"},
    }
    assert files[export_format] < names
    assert any("logits differs by" in line for line in lines)
