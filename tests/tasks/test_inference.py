"""Loading of fine-tuned models, and errors for other paths."""

import keras
import numpy as np
import pytest
from conftest import GOLDEN

from electra_tf.config.pretraining import EncoderConfig
from electra_tf.errors import InputError
from electra_tf.interop.tensor_bundle import write_bundle
from electra_tf.tasks.classifier import TextClassifier, TextRegressor
from electra_tf.tasks.inference import load
from electra_tf.tasks.pretrained import PretrainedEncoder
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
    loaded = load(str(tmp_path))
    assert isinstance(loaded, TextRegressor)
    assert (loaded.low, loaded.high) == (1, 3)
    np.testing.assert_array_equal(loaded.predict(["a b"]), model.predict(["a b"]))


def test_load_describes_a_path_without_a_model(start, tmp_path):
    def check(path, description):
        with pytest.raises(InputError, match=description) as error:
            load(str(path))
        assert repr(str(path)) in str(error.value) or "keras" in str(path)

    check(tmp_path, r"a folder without a model\.keras")
    check(tmp_path / "none", "does not exist")
    (tmp_path / "model.h5").write_bytes(b"\x89HDF")
    check(tmp_path / "model.h5", "a file of another kind")
    for name in ("served/1", "trial/trial_1", "hf", "tf1"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "served" / "1" / "saved_model.pb").write_bytes(b"")
    check(tmp_path / "served", "a SavedModel")
    check(tmp_path / "trial", "same finetune command again")
    (tmp_path / "hf" / "pytorch_model.bin").write_bytes(b"")
    check(tmp_path / "hf", r"Hugging Face.*pytorch_model\.bin.*--checkpoint")
    write_bundle(str(tmp_path / "tf1" / "model.ckpt-10"), {"x": np.zeros(2)})
    check(tmp_path / "tf1" / "model.ckpt-10", r"model\.ckpt-10\.index.*--checkpoint")
    check(GOLDEN / "saved" / "run", "a pre-trained checkpoint")
    broken = tmp_path / "broken.keras"
    broken.write_bytes(b"PK\3\4")
    check(broken, "not a .keras archive")
    other = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
    other.save(tmp_path / "other.keras")
    check(tmp_path / "other.keras", "Sequential")


def test_a_loaded_model_is_not_compiled_and_can_be_trained(start, tmp_path):
    model = TextClassifier(start, ["bad", "good"])
    model.compile(keras.optimizers.SGD())
    model.save(tmp_path / "model.keras")
    loaded = load(str(tmp_path))
    assert not loaded.compiled
    history = loaded.fit(["the file", "a user"], ["bad", "good"], epochs=2, verbose=0)
    assert np.isfinite(history.history["loss"][0])
