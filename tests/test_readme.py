"""What README shows in Python runs as it stands there."""

import re

import keras
import numpy as np
import pytest
from conftest import ROOT
from text.conftest import build_records

from electra_tf.tasks.pretrained import PretrainedEncoder

BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)


@pytest.fixture(scope="module")
def place(tmp_path_factory, corpus_file, vocabulary):
    """A folder with `records` of 128 positions and the project's `configs`."""
    place = tmp_path_factory.mktemp("readme")
    build_records(corpus_file, place / "records", vocabulary, max_length=128)
    (place / "configs").symlink_to(ROOT / "configs")
    return place


def run(block, place, monkeypatch):
    monkeypatch.chdir(place)
    names = {}
    exec(compile(block, "README.md", "exec"), names)
    return names


def test_strings_in_classes_out(place, pretrained, monkeypatch):
    monkeypatch.chdir(place)
    (place / "run").symlink_to(pretrained)
    names = run(BLOCKS[0], place, monkeypatch)
    shares = names["model"].predict(["good", "bad"])
    assert shares.shape == (2, 2)
    np.testing.assert_allclose(shares.sum(1), 1, rtol=1e-5)
    loaded = keras.saving.load_model("model.keras")
    np.testing.assert_array_equal(loaded.predict(["good", "bad"]), shares)


def test_records_as_batches(place, monkeypatch):
    names = run(BLOCKS[1], place, monkeypatch)
    assert names["batch"].input_ids_BL.shape == (32, 128)


def test_training_with_fit_takes_a_dozen_lines(place, monkeypatch):
    block = BLOCKS[2]
    assert len(block.strip().splitlines()) <= 13
    shorter = block.replace("steps_per_epoch=10, epochs=3", "steps_per_epoch=2")
    assert shorter != block
    names = run(shorter, place, monkeypatch)
    assert int(names["pretrainer"].optimizer.iterations) == 2
    assert names["pretrainer"].core.encoder.shape.depth == 2
    start = PretrainedEncoder.open("fitted/step_00000002")
    encoder = names["pretrainer"].core.encoder
    table = start.weights["embeddings/word_embeddings"]
    np.testing.assert_array_equal(table, encoder.embeddings.word_embeddings)


def test_there_is_no_block_that_is_not_run():
    assert len(BLOCKS) == 3
