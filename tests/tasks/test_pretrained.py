"""PretrainedEncoder: reading checkpoints of pretrain, and errors."""

import dataclasses
import pathlib

import numpy as np
import pytest
import tiny
from conftest import GOLDEN

from electra_tf.config.finetuning import DataConfig, FinetuningConfig, TaskModelConfig
from electra_tf.config.pretraining import (
    TokenizationConfig,
)
from electra_tf.errors import InputError
from electra_tf.model.transformer import Encoder
from electra_tf.pretraining.masking import SpecialTokens
from electra_tf.pretraining.pretrainer import Pretrainer
from electra_tf.tasks.pretrained import (
    PretrainedEncoder,
    from_saved_config,
    path_below_encoder,
)

TOKENS = SpecialTokens(
    cls=2, sep=3, mask=4, vocabulary_size=1000, is_continuation_V=np.zeros(1000, bool)
)


@pytest.mark.parametrize(
    ("name", "sharing", "prefix"),
    [
        ("electra", "embeddings", "electra/discriminator/encoder/"),
        ("electra", "none", "electra/discriminator/encoder/"),
        ("electra", "all", "electra/discriminator/encoder/"),
        ("electra_15", "embeddings", "electra/discriminator/encoder/"),
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
    start = PretrainedEncoder.open(str(tmp_path))
    assert start.source == path
    assert start.shape == settings.model.encoder
    assert not start.tokenizer.settings.lower_case
    assert start.tokenizer.vocabulary.tokens[:3] == ("[PAD]", "[UNK]", "[CLS]")
    encoder = Encoder(start.shape)
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


def test_untrained_does_not_change_the_encoder(tmp_path, weights):
    tiny.save_checkpoint(
        tmp_path, tiny.pretraining_settings(vocabulary_size=1000), weights
    )
    start = PretrainedEncoder.open(str(tmp_path))
    fresh = start.untrained()
    assert fresh.weights is None
    assert dataclasses.replace(fresh, weights=start.weights) == start
    encoders = [Encoder(start.shape, 7), Encoder(start.shape, 7)]
    for encoder in encoders:
        encoder.build()
    fresh.load_into(encoders[0])
    for a, b in zip(*(e.trainable_variables for e in encoders), strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_identity_is_the_checksum_of_the_weights(tmp_path, weights):
    settings = tiny.pretraining_settings(vocabulary_size=1000)
    other = {path: values + 1 for path, values in weights.items()}
    found = []
    for number, values in enumerate((weights, weights, other)):
        tiny.save_checkpoint(tmp_path / str(number), settings, values)
        found.append(PretrainedEncoder.open(str(tmp_path / str(number))).identity)
    assert found[0] == found[1] != found[2]
    assert len(found[0]) == 64


def test_a_fine_tuned_model_is_rejected(tmp_path):
    (tmp_path / "model.keras").touch()
    with pytest.raises(InputError, match=r"a folder of finetune.*trained from"):
        PretrainedEncoder.open(str(tmp_path))


def test_a_vocabulary_of_another_size_is_rejected(tmp_path, weights):
    shorter = b"\n".join((GOLDEN / "vocab.txt").read_bytes().split(b"\n")[:900])
    tiny.save_checkpoint(
        tmp_path, tiny.pretraining_settings(vocabulary_size=1000), weights, shorter
    )
    with pytest.raises(InputError, match=r"vocab\.txt.*1000 rows.*900 entries"):
        PretrainedEncoder.open(str(tmp_path))


def test_a_checkpoint_without_an_encoder_is_rejected(tmp_path):
    tiny.save_checkpoint(
        tmp_path,
        tiny.pretraining_settings(),
        {"generator/head/bias": np.zeros(9999, np.float32)},
    )
    with pytest.raises(InputError, match="with generator/head/bias"):
        PretrainedEncoder.open(str(tmp_path))
    with pytest.raises(InputError, match=r"nowhere'"):
        PretrainedEncoder.open(str(tmp_path / "nowhere"))


def test_weights_of_another_shape_are_rejected(tmp_path, weights):
    path = "electra/discriminator/encoder/layer_1/output/bias"
    lost = {name: values for name, values in weights.items() if name != path}
    tiny.save_checkpoint(
        tmp_path, tiny.pretraining_settings(vocabulary_size=1000), lost
    )
    start = PretrainedEncoder.open(str(tmp_path))
    encoder = Encoder(start.shape)
    encoder.build()
    before = encoder.trainable_variables[0].numpy()
    with pytest.raises(InputError, match="layer_1/output/bias"):
        start.load_into(encoder)
    np.testing.assert_array_equal(encoder.trainable_variables[0], before)


def test_from_saved_config(capsys):
    shape = tiny.pretraining_settings(vocabulary_size=5).model.encoder
    settings = FinetuningConfig(
        data=DataConfig(text_columns=("a", "b"), label_column="c"),
        model=TaskModelConfig(start_n_top=3),
    )
    tree = dataclasses.asdict(settings)
    tree["data"]["text_columns"] = ["a", "b"]  # as JSON has it
    start, found = from_saved_config(
        {
            "vocabulary": ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
            "tokenization": {"lower_case": False, "strip_accents": "always"},
            "settings": tree,
            "shape": dataclasses.asdict(shape),
        }
    )
    assert found == settings
    assert "deprecated" not in capsys.readouterr().err
    assert start.shape == shape
    assert start.weights is None
    assert start.tokenizer.settings == TokenizationConfig(
        lower_case=False, strip_accents="always"
    )
    assert len(start.tokenizer.vocabulary) == 5


def test_path_below_encoder():
    for prefix in ("encoder/", "text_classifier/encoder/", "bert/encoder/"):
        assert (
            path_below_encoder(f"{prefix}layer_0/output/bias") == "layer_0/output/bias"
        )
    assert pathlib.PurePath(path_below_encoder("encoder/embeddings/x")).parts == (
        "embeddings",
        "x",
    )
