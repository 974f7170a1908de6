"""Loading of fine-tuned models, and errors for other paths."""

import keras
import numpy as np
import pytest
import tiny

from electra_tf.config.pretraining import EncoderConfig
from electra_tf.sources import PretrainedEncoder
from electra_tf.tasks.classifier import TextClassifier, TextRegressor
from electra_tf.text.tokenizer import Tokenizer

SHAPE = EncoderConfig(
    depth=1, width=8, embedding=8, heads=1, feed_forward=16, vocabulary_size=1000,
    max_positions=128, segments=2, dropout=0.1, attention_dropout=0.1,
)  # fmt: skip


@pytest.fixture(scope="module")
def start(vocabulary):
    return PretrainedEncoder(SHAPE, Tokenizer(vocabulary), None, "a test")


def test_a_model_is_loaded_from_its_folder(start, tmp_path):
    model = TextRegressor(start, 1, 3)
    model.save(tmp_path / "model.keras")
    loaded = tiny.load(str(tmp_path))
    assert isinstance(loaded, TextRegressor)
    assert (loaded.low, loaded.high) == (1, 3)
    np.testing.assert_array_equal(loaded.predict(["a b"]), model.predict(["a b"]))


def test_a_loaded_model_is_not_compiled_and_can_be_trained(start, tmp_path):
    model = TextClassifier(start, ["bad", "good"])
    model.compile(keras.optimizers.SGD())
    model.save(tmp_path / "model.keras")
    loaded = tiny.load(str(tmp_path))
    assert not loaded.compiled
    history = loaded.fit(["the file", "a user"], ["bad", "good"], epochs=2, verbose=0)
    assert np.isfinite(history.history["loss"][0])
