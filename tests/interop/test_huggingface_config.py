"""What a folder's config.json and modules.json say about its network."""

import json

import numpy as np
import pytest

import electra_tf
from electra_tf.errors import InputError
from electra_tf.runs.conversion import convert_checkpoint
from tests import tiny
from tests.conftest import GOLDEN

IDS = np.array([[2, 5, 6, 7, 8, 3]])


def write(folder, prefix="", **config):
    """Write the encoder of a BERT with one segment, and return its path."""

    def change(tensors):
        table = "embeddings.token_type_embeddings.weight"
        tensors = {
            name.removeprefix("electra."): array
            for name, array in tensors.items()
            if name.startswith("electra.")
        }
        tensors[table] = tensors[table][:1]
        return {prefix + name: array for name, array in tensors.items()}

    defaults = {"model_type": "bert", "architectures": ["BertModel"]}
    tiny.huggingface(folder, change, **{**defaults, "type_vocab_size": 1, **config})
    return str(folder)


def test_both_texts_of_a_pair_have_the_only_segment(tmp_path):
    path = write(tmp_path / "a")
    encoder = electra_tf.Encoder.from_preset(path)
    mask = np.ones_like(IDS)
    first, second = (encoder(IDS, np.full_like(IDS, n), mask) for n in (0, 1))
    np.testing.assert_array_equal(first, second)
    convert_checkpoint(path, tmp_path / "back", "huggingface")
    config = json.loads((tmp_path / "back" / "config.json").read_text())
    assert config["type_vocab_size"] == 2


@pytest.mark.parametrize(
    ("config", "received"),
    [
        ({"model_type": "mpnet"}, "'mpnet'"),
        ({"model_type": "roberta"}, "must be electra or bert, not 'roberta'"),
        ({"model_type": ["bert"]}, "['bert']"),
        ({"is_decoder": True}, "True"),
        ({"add_cross_attention": True}, "True"),
        ({"position_embedding_type": "relative_key"}, "'relative_key'"),
        ({"use_task_id": True}, "True"),
        ({"pruned_heads": {"0": [1]}}, "{'0': [1]}"),
        ({"quantization_config": {"bits": 8}}, "{'bits': 8}"),
        ({"auto_map": {"AutoModel": "code.Model"}}, "code.Model"),
        ({"hidden_act": "relu"}, "'relu'"),
    ],
)
def test_a_config_of_another_network_is_rejected(config, received, tmp_path):
    path = write(tmp_path / "a", **config)
    (key,) = config
    with pytest.raises(InputError, match=f"{key} of .*config.json") as error:
        tiny.networks(path)
    assert received in str(error.value)


@pytest.mark.parametrize("prefix", ["roberta.", ""])
def test_a_roberta_without_a_type_is_rejected(prefix, tmp_path):
    more = {"model_type": None, "architectures": ["RobertaModel"]}
    path = write(tmp_path / "a", prefix=prefix, **more)
    with pytest.raises(InputError, match="electra or bert, not 'roberta'"):
        tiny.networks(path)


def notes(path, capsys):
    """Return the notes that reading a model prints."""
    tiny.networks(path)
    lines = capsys.readouterr().err.splitlines()
    return [line for line in lines if line.startswith("note: ")]


def test_unknown_keys_are_named_in_a_note(tmp_path, capsys):
    path = write(tmp_path / "a", scale_embeddings=True, new_norm="rms", other=None)
    (line,) = [line for line in notes(path, capsys) if "not read" in line]
    assert "new_norm: 'rms', scale_embeddings: True" in line
    assert "other" not in line


def test_keys_that_transformers_writes_are_known(capsys):
    for path in sorted((GOLDEN / "interop").glob("huggingface_*")):
        assert notes(str(path), capsys) == []


def test_another_padding_id_than_that_of_the_vocabulary_is_a_note(tmp_path, capsys):
    (line,) = notes(write(tmp_path / "a", pad_token_id=1), capsys)
    assert "pad_token_id" in line
    assert "is 1; [PAD] is 0" in line
    assert notes(write(tmp_path / "b", pad_token_id=0), capsys) == []


def test_modules_of_sentence_transformers_are_a_note(tmp_path, capsys):
    path = write(tmp_path / "a")
    (tmp_path / "a" / "modules.json").write_text("[]")
    (line,) = notes(path, capsys)
    assert path in line
    assert "modules.json" in line
