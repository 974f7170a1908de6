"""Test which settings an encoder gets if none are given."""

import dataclasses
import functools

import keras
import numpy as np
import pytest

import electra_tf
from electra_tf import sources
from electra_tf.config import loader
from electra_tf.config.finetuning import FinetuningConfig
from electra_tf.errors import InputError
from electra_tf.tasks.defaults import (
    complete_settings,
    default_epochs,
    default_settings,
    describe_settings,
)
from tests import tiny

WEIGHTS = {"kernel": np.zeros(1)}
TEXTS, LABELS = ["a film", "a list"] * 8, ["no", "yes"] * 8


def encoder(depth, width, weights=WEIGHTS, **facts):
    """Return an encoder of a shape; its weights are never used."""
    start = tiny.start(max_positions=facts.pop("max_positions", 512))
    dropout = facts.pop("dropout", 0.1)
    shape = dataclasses.replace(
        start.shape,
        depth=depth,
        width=width,
        dropout=dropout,
        attention_dropout=dropout,
    )
    return dataclasses.replace(start, shape=shape, weights=weights, **facts)


@pytest.mark.parametrize(
    ("depth", "width", "rate", "decay"),
    [(12, 256, 3e-4, 0.8), (12, 768, 1e-4, 0.8), (24, 1024, 5e-5, 0.9)],
)
def test_published_sizes_have_the_settings_of_the_paper(depth, width, rate, decay):
    chosen = default_settings(encoder(depth, width))
    assert chosen["optimizer.learning_rate"] == rate
    assert chosen["optimizer.layer_decay"] == decay
    assert chosen["optimizer.name"] == "adam"  # no bias correction, as published
    assert chosen["model.pooling"] == "cls"
    assert chosen["data.max_length"] == 128


@pytest.mark.parametrize(
    "start",
    [
        encoder(2, 128),
        encoder(4, 256),
        encoder(6, 384),
        encoder(12, 256, weights=None),
        encoder(12, 256, trained_positions=10_000_000),
    ],
)
def test_other_encoders_have_bias_correction_and_pooling(start):
    chosen = default_settings(start)
    assert chosen["optimizer.name"] == "adamw"
    assert chosen["optimizer.layer_decay"] == 1.0
    assert chosen["model.pooling"] != "cls"


def test_rates_fall_with_the_width():
    widths = 64, 128, 256, 384, 512, 768
    rates = [default_settings(encoder(6, n))["optimizer.learning_rate"] for n in widths]
    assert rates == sorted(rates, reverse=True)
    assert rates[0] > rates[-1]


def test_small_taggers_have_twice_the_rate_of_classifiers():
    start = tiny.start()
    models = electra_tf.TextClassifier, electra_tf.TokenClassifier
    rates = [m(start, ["O", "S-X"]).settings.optimizer.learning_rate for m in models]
    assert rates[1] == 2 * rates[0]
    preset = models[1].from_preset("electra_wiki_en", tags=["O", "S-X"])
    texts = default_settings(sources.open_pretrained("electra_wiki_en").encoder)
    rate = 2 * texts["optimizer.learning_rate"]
    assert preset.settings.optimizer.learning_rate == rate
    assert f"optimizer.learning_rate={rate:g}" in preset.settings_note
    base = encoder(12, 768)
    assert default_settings(base, models[1].rate_scale) == default_settings(base)


def rates_of(model):
    """Return the rates of all dropout layers of a model's encoder, and its settings."""
    layers = model.encoder._flatten_layers()
    drops = {n.rate for n in layers if isinstance(n, keras.layers.Dropout)}
    chosen, shape = model.settings.model, model.encoder.shape
    return drops | {chosen.dropout, chosen.attention_dropout, shape.dropout}


@pytest.mark.parametrize(
    ("trained", "epochs", "given", "rate"),
    [
        (0.05, 2, None, 0.05),
        (0.3, 2, None, 0.1),
        (0.0, 10, None, 0.1),
        (0.0, 10, 0.02, 0.02),
    ],
)
def test_dropout_is_that_of_pretraining_unless_rows_repeat(
    trained, epochs, given, rate, tmp_path
):
    start = tiny.start()
    shape = dataclasses.replace(start.shape, dropout=trained, attention_dropout=trained)
    names = ("model.dropout", "model.attention_dropout")
    model = electra_tf.TextClassifier(
        dataclasses.replace(start, shape=shape),
        ["no", "yes"],
        {} if given is None else dict.fromkeys(names, given),
    )
    model.compile(run_eagerly=True)
    few = TEXTS[:2], LABELS[:2]
    model.fit(*few, epochs=epochs, verbose=0)
    assert rates_of(model) == {rate}
    if epochs == 10:  # a second training keeps the rates
        model.fit(*few, epochs=2, verbose=0)
        assert rates_of(model) == {rate}
    model.save(tmp_path / "model.keras")
    assert rates_of(electra_tf.load_model(tmp_path / "model.keras")) == {rate}


def test_texts_are_not_longer_than_the_records_of_pretraining():
    lengths = {
        default_settings(encoder(4, 256, **facts))["data.max_length"]: facts
        for facts in (
            {},
            {"trained_length": 64},
            {"trained_length": 512, "max_positions": 96},
        )
    }
    assert {*lengths} == {128, 64, 96}


def test_few_rows_have_more_epochs_up_to_a_limit():
    epochs = [default_epochs(steps) for steps in (1, 10, 50, 200, 400, 10_000, -1)]
    assert epochs == [*sorted(epochs[:-1], reverse=True), 3]
    assert epochs[0] == epochs[1] > epochs[2] > epochs[3] > epochs[4] == 3
    assert 900 < 50 * epochs[2] <= 1100


def test_given_settings_win_and_are_named():
    start = encoder(4, 256)
    complete = functools.partial(
        complete_settings, start=start, model=electra_tf.TextClassifier
    )
    settings, line = complete({"optimizer.learning_rate": 0.5})
    assert settings.optimizer.learning_rate == 0.5
    assert settings.optimizer.name == "adamw"
    assert "4 x 256" in line
    assert "optimizer.name=adamw" in line
    default = default_settings(start)["optimizer.learning_rate"]
    assert f"optimizer.learning_rate=0.5 in place of {default:g}" in line
    assert "set" not in complete({"data.text_columns": ["a"]})[1]
    more = {"training.batch_size": 16, "model.weights": "random", "model.dropout": 0.2}
    assert complete(more)[1].endswith(
        "; set otherwise: model.weights=random in place of pretrained, "
        "model.dropout=0.2, training.batch_size=16 in place of 32"
    )
    named, _ = complete("finetune_base")
    assert named.optimizer.learning_rate == 1e-4


@pytest.mark.parametrize(
    ("format", "kind", "settings", "words"),
    [
        (
            *("huggingface", electra_tf.TextClassifier, {"model.pooling": "pair"}),
            "huggingface, which lacks pooling=pair, pooler=none; set model.pooling=cls,"
            " model.pooler=gelu to",
        ),
        ("huggingface", electra_tf.TextClassifier, {"model.pooler": "gelu"}, ""),
        ("huggingface", electra_tf.TokenClassifier, {}, ""),
        (
            *("tf1", electra_tf.TextClassifier, {}),
            "to tf1; to huggingface it does if you set model.pooler=gelu",
        ),
        ("keras_hub", electra_tf.TokenClassifier, {}, "; to huggingface it does"),
        ("electra_tf", electra_tf.TextClassifier, {"model.pooling": "pair"}, ""),
    ],
)
def test_a_head_that_cannot_be_converted_back_is_named(format, kind, settings, words):
    start = dataclasses.replace(tiny.start(), format=format)
    settings = {"model.pooling": "cls"} | settings
    lines = kind(start, ["O", "B-X"], settings).settings_note.splitlines()
    assert len(lines) == 1 + bool(words)
    assert words in lines[-1]


def test_a_model_has_the_defaults_of_its_encoder_and_prints_them(capsys):
    model = electra_tf.TextClassifier(tiny.start(), ["no", "yes"])
    expected = loader.to_config(default_settings(tiny.start()), FinetuningConfig)
    assert model.settings == expected
    capsys.readouterr()
    model.fit(TEXTS, LABELS, epochs=2, verbose=2)
    first, second, *_ = capsys.readouterr().out.splitlines()
    defaults = default_settings(tiny.start())
    assert first == describe_settings(tiny.start(), expected, defaults)
    assert "2 steps in 2 epochs" in second
    assert f"{default_epochs(1)}" in second
    model.fit(TEXTS, LABELS, epochs=2, verbose=0)
    assert not capsys.readouterr().out
    model.compile(optimizer=keras.optimizers.SGD(1e-3))
    model.fit(TEXTS, LABELS, epochs=1, verbose=2)
    line, *_ = capsys.readouterr().out.splitlines()
    assert line == f"{first}; optimizer.* have no effect: compile() set SGD"


def test_a_training_that_is_refused_does_not_choose_dropout():
    start = tiny.start()
    shape = dataclasses.replace(start.shape, dropout=0.0, attention_dropout=0.0)
    start = dataclasses.replace(start, shape=shape)
    model = electra_tf.TextClassifier(start, ["no", "yes"])
    with pytest.raises(InputError, match="two updates"):
        model.fit(TEXTS, LABELS, epochs=1, verbose=0)
    model.fit(TEXTS, LABELS, epochs=10, verbose=0)
    assert model.shape.dropout == 0.1


def test_without_epochs_a_model_trains_for_the_default_number():
    model = electra_tf.TextClassifier(tiny.start(), ["no", "yes"])
    history = model.fit(TEXTS, LABELS, batch_size=8, verbose=0)
    assert len(history.epoch) == default_epochs(2)
