"""A version is there whole, or not at all."""

import dataclasses
import os

import numpy as np
import pytest

from electra_tf.errors import InputError
from electra_tf.serving import export
from serving.exports import exported, model
from serving.warmup_file import read_warmup


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder, lines = tmp_path_factory.mktemp("served"), []
    path = export.export(exported("classifier"), str(folder), 3, log=lines.append)
    return folder, path, lines


def test_a_version_is_a_folder_of_its_number(written):
    folder, path, lines = written
    assert path == str(folder / "3")
    assert os.listdir(folder) == ["3"]
    assert any("serving_default: logits differs by" in line for line in lines)
    requests = read_warmup(path)
    assert set(requests) == {"serving_default", "tokens"}
    lengths = {request["token_ids"].shape[1] for request in requests["tokens"]}
    assert {16, 32} <= lengths
    assert all(len(request["text"]) for request in requests["serving_default"])


def test_a_version_is_not_written_over(written):
    folder, path, _ = written
    before = os.path.getmtime(f"{path}/saved_model.pb")
    with pytest.raises(InputError, match="higher --version"):
        export.export(exported("classifier"), str(folder), 3)
    assert os.path.getmtime(f"{path}/saved_model.pb") == before


def test_a_file_and_an_unfinished_folder_are_told(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"must be a folder.*file\', a file"):
        export.export(exported("classifier"), str(tmp_path / "file"))
    (tmp_path / "trial_1").mkdir()
    with pytest.raises(InputError, match=r"without a model\.keras.*to resume"):
        export.load_exportable(str(tmp_path))


def test_what_does_not_hold_is_removed(tmp_path):
    found = exported("classifier")
    text = dataclasses.replace(
        found.text["serving_default"], expected=lambda request: {"logits": np.zeros(1)}
    )
    bad = dataclasses.replace(found, text={"serving_default": text})
    with pytest.raises(InputError, match="differs by"):
        export.export(bad, str(tmp_path / "out"), chosen=("text",))
    assert not (tmp_path / "out").exists()


def test_signatures_are_chosen_by_what_they_take():
    found = exported("classifier")
    chosen = export.chosen_signatures
    assert list(chosen(found, ("text",))) == ["serving_default"]
    assert list(chosen(found, ("text", "tokens"))) == ["serving_default", "tokens"]
    alone = chosen(found, ("tokens",))
    assert alone["serving_default"] is alone["tokens"] is found.tokens["tokens"]
    for wrong in ((), ("tekst",)):
        with pytest.raises(InputError, match="text,tokens"):
            export.check("out", 1, wrong, "saved_model")
    with pytest.raises(InputError, match="--format=onnx --signatures=text"):
        export.check("out", 1, ("text",), "onnx")


def test_what_finetune_wrote_is_told_from_what_pretrain_wrote(tmp_path, vocabulary):
    model("classifier").save(tmp_path / "model.keras")
    for path in (tmp_path, tmp_path / "model.keras"):
        found = export.load_exportable(str(path))
        assert (found.kind, found.details["max_length"]) == ("classifier", 32)
    with pytest.raises(InputError, match="--output_kind=encoder for a fine-tuned"):
        export.load_exportable(str(tmp_path), "encoder")
    with pytest.raises(InputError, match="checkpoint"):
        export.load_exportable(str(tmp_path / "nothing"))


@pytest.mark.parametrize("form", ["litert", "onnx"])
def test_other_formats_hold_the_function_of_ids(form, tmp_path):
    lines = []
    path = export.export(exported("pairs"), str(tmp_path), form=form, log=lines.append)
    names = set(os.listdir(path))
    assert {"vocab.txt", "vocab.txt.settings.json", "about.json", "labels.txt"} < names
    files = {
        "litert": {"model.float32.tflite", "model.int8.tflite"},
        "onnx": {"model.onnx"},
    }
    assert files[form] < names
    assert any("logits differs by" in line for line in lines)
