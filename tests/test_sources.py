"""Find what a model's path is, once per command, and read its encoder."""

import pathlib
import shutil

import numpy as np
import pytest

from electra_tf import durable_files, sources
from electra_tf.errors import InputError
from electra_tf.interop.keras_networks import path_below_encoder
from electra_tf.model.encoder import TransformerEncoder
from electra_tf.pretraining.masking import SpecialTokens
from electra_tf.pretraining.pretrainer import Pretrainer
from electra_tf.training.checkpoint import SLOTS, WEIGHTS, open_checkpoint
from tests import tiny
from tests.conftest import GOLDEN

SAVED = GOLDEN / "saved"
HUGGING_FACE = GOLDEN / "interop" / "huggingface_discriminator"
TOKENS = SpecialTokens.from_vocabulary(tiny.vocabulary())


@pytest.mark.parametrize(
    ("name", "sharing", "prefix"),
    [
        ("electra", "embeddings", "electra/discriminator/encoder/"),
        ("electra", "all", "electra/discriminator/encoder/"),
        ("mlm", "embeddings", "bert/encoder/"),
    ],
)
def test_open_reads_the_encoder_of_each_objective(tmp_path, name, sharing, prefix):
    settings = tiny.pretraining_settings(name, sharing, vocabulary_size=1000)
    trained = Pretrainer(settings, TOKENS)
    random = np.random.default_rng(0)
    weights = {
        v.path: random.normal(size=v.shape).astype(np.float32)
        for v in trained.trainable_variables
    }
    path = tiny.save_checkpoint(tmp_path, settings, weights)
    start = tiny.encoder(str(tmp_path))
    assert start.source == path
    assert start.shape == settings.model.encoder
    assert not start.tokenizer.settings.lower_case
    assert start.tokenizer.vocabulary.tokens[:3] == ("[PAD]", "[UNK]", "[CLS]")
    encoder = TransformerEncoder(start.shape)
    encoder.build()
    start.load_into(encoder)
    assert len(encoder.trainable_variables) == 39
    for variable in encoder.trainable_variables:
        expected = weights[prefix + path_below_encoder(variable.path)]
        np.testing.assert_array_equal(variable, expected, err_msg=variable.path)


@pytest.fixture(scope="module")
def weights():
    trained = Pretrainer(tiny.pretraining_settings(vocabulary_size=1000), TOKENS)
    return {v.path: np.asarray(v) for v in trained.trainable_variables}


def test_the_identity_is_the_checksum_of_the_weights(tmp_path, weights):
    settings = tiny.pretraining_settings(vocabulary_size=1000)
    other = {path: values + 1 for path, values in weights.items()}
    found = []
    for number, values in enumerate((weights, weights, other)):
        tiny.save_checkpoint(tmp_path / str(number), settings, values)
        found.append(tiny.encoder(str(tmp_path / str(number))).identity)
    assert found[0] == found[1] != found[2]
    assert len(found[0]) == 64


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_opening_hashes_each_file_that_is_read_once(scheme, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    shutil.copytree(SAVED / "run", tmp_path / "run")
    (slots,) = (tmp_path / "run").rglob(SLOTS)
    slots.write_bytes(b"damaged")
    hashed, sha256 = [], durable_files.sha256

    def spy(path):
        hashed.append(pathlib.Path(path).name.removesuffix(durable_files.PARTIAL))
        return sha256(path)

    monkeypatch.setattr(durable_files, "sha256", spy)
    start = sources.open_source(f"{scheme}{tmp_path / 'run'}").encoder
    assert WEIGHTS in hashed
    assert len(set(hashed)) == len(hashed)
    assert start.identity == sha256(slots.with_name(WEIGHTS))
    with pytest.raises(InputError, match=SLOTS):
        open_checkpoint(str(tmp_path / "run"))
    slots.with_name(WEIGHTS).write_bytes(b"damaged")
    with pytest.raises(InputError, match=WEIGHTS):
        tiny.encoder(str(tmp_path / "run"))


def test_a_fine_tuned_model_is_rejected(tmp_path):
    (tmp_path / "model.keras").touch()
    with pytest.raises(InputError, match=r"fine-tuned.*trained from"):
        tiny.encoder(str(tmp_path))


@pytest.mark.parametrize("lost", ["layer_1/output/bias", "position_embeddings"])
def test_a_checkpoint_without_a_weight_is_rejected(tmp_path, weights, lost):
    weights = {n: v for n, v in weights.items() if not n.endswith(lost)}
    settings = tiny.pretraining_settings(vocabulary_size=1000)
    tiny.save_checkpoint(tmp_path, settings, weights)
    with pytest.raises(InputError, match=f"electra/discriminator/.*{lost}"):
        tiny.encoder(tmp_path)


@pytest.fixture
def folders(tmp_path):
    for name in (
        *("empty", "served/1", "trials/trial_1", "hf", "tf1", "shards", "bare"),
        "modules/0_Transformer",
    ):
        (tmp_path / name).mkdir(parents=True)
    shutil.copytree(HUGGING_FACE, tmp_path / "whole")
    (tmp_path / "whole" / "epoch3.bin").touch()
    (tmp_path / "model.h5").write_bytes(b"\x89HDF")
    (tmp_path / "served" / "1" / "saved_model.pb").touch()
    (tmp_path / "hf" / "pytorch_model.bin").touch()
    for name in ("shards", "bare", "modules/0_Transformer"):
        (tmp_path / name / "config.json").write_text("{}")
    for number in (1, 2):
        shard = f"model-0000{number}-of-00002.safetensors"
        (tmp_path / "shards" / shard).touch()
    tiny.write_bundle(tmp_path / "tf1" / "model.ckpt-10", {"x": np.zeros(2)})
    return tmp_path


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("empty", "a folder of another kind; pass"),
        ("none", "does not exist"),
        ("model.h5", "a file of another kind"),
        ("served", "a SavedModel"),
        ("trials", "same finetune command again"),
        ("hf", r"config\.json"),
        ("shards", r"2 shards .* their index, model\.safetensors\.index\.json"),
        ("bare", r"config\.json without weights, .*model\.safetensors"),
        ("tf1/model.ckpt-10", "a TensorFlow checkpoint of another model"),
        ("modules", "has its encoder in .*0_Transformer"),
        ("whole/epoch3.bin", "is one file of"),
        ("whole/vocab.txt", "is one file of"),
    ],
)
def test_a_path_without_a_model_is_described(folders, path, words):
    with pytest.raises(InputError, match=words) as error:
        sources.open_source(folders / path)
    assert repr(str(folders / path)) in str(error.value)


def test_only_fine_tuned_models_are_loaded(tmp_path):
    with pytest.raises(InputError, match="a pre-trained model"):
        tiny.load(GOLDEN / "saved" / "run")
    broken = tmp_path / "broken.keras"
    broken.write_bytes(b"PK\3\4")
    with pytest.raises(
        InputError, match=r"broken\.keras is damaged: BadZipFile"
    ) as one:
        tiny.load(broken)
    assert "class" not in str(one.value)
