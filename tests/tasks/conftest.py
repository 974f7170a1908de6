"""Files, a tokenizer, models."""

import gzip
import json
import lzma

import pytest

from electra_tf.text.tokenizer import WordPieceTokenizer
from tests import tiny
from tests.conftest import GOLDEN


@pytest.fixture
def write(tmp_path):
    """Return a function that writes a file and returns its path.

    Text, and other values as JSON, are compressed if the name says so; bytes never.
    """

    def to(name, content):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not isinstance(content, bytes):
            text = content if isinstance(content, str) else json.dumps(content)
            pack = {".gz": gzip.compress, ".xz": lzma.compress}
            content = pack.get(path.suffix, bytes)(text.encode())
        path.write_bytes(content)
        return str(path)

    return to


@pytest.fixture(scope="session")
def tokenizer(vocabulary):
    return WordPieceTokenizer(vocabulary)


@pytest.fixture(scope="session")
def saved_models():
    """Return a fine-tuned model of each kind, from the golden files."""
    kinds = ("classifier", "regressor", "tagger", "answerer")
    return {kind: tiny.load(str(GOLDEN / "saved" / kind)) for kind in kinds}
