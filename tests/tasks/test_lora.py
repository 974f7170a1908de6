"""Low-rank adaptation of the encoder: what is trained, learned and saved."""

import numpy as np
import pytest
from tiny import NO_DROPOUT, settings, start, texts

import electra_tf
from electra_tf.errors import InputError

RANK = 4


def test_low_rank_changes_alone_are_trained_and_saved_in_the_kernels(tmp_path):
    rows, labels = texts(96, longest=11, shortest=10)
    chosen = settings(optimizer_learning_rate=0.01, training_epochs=20, **NO_DROPOUT)
    model = electra_tf.TextClassifier(start(depth=2), ["bad", "good"], settings=chosen)
    rng = np.random.default_rng(0)
    for weight in model.encoder.weights:  # so that [CLS] depends on the text
        if len(weight.shape) == 2:
            weight.assign(rng.normal(0, 0.3, weight.shape))
    before, vectors = model.predict(rows), model.encoder.embed(rows)
    model.encoder.enable_lora(RANK)
    np.testing.assert_array_equal(model.predict(rows), before)
    shapes = [tuple(v.shape) for v in model.trainable_variables]
    changes = [(16, RANK), (RANK, 16)] * 2 * 2  # query and value of two layers
    assert sorted(shapes) == sorted([*changes, (16, 2), (2,)])
    frozen = [v for v in model.encoder.weights if not v.trainable]
    values = [v.numpy() for v in frozen]
    model.fit(rows, labels, verbose=0)
    for variable, value in zip(frozen, values, strict=True):
        np.testing.assert_array_equal(variable, value)
    trained = model.predict(rows)
    assert np.mean(trained.argmax(1) == labels) > 0.9
    assert np.abs(model.encoder.embed(rows) - vectors).max() > 0.01
    model.save(tmp_path / "model.keras")
    loaded = electra_tf.load_model(tmp_path / "model.keras")
    assert len(loaded.trainable_variables) == len(values) + 2
    np.testing.assert_allclose(loaded.predict(rows), trained, atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [((0,), "rank=0"), ((2, ("quer",)), "quer.*value"), ((2, ()), r"\(\)")],
)
def test_invalid_arguments_are_errors(arguments, named):
    encoder = electra_tf.Encoder(start().shape)
    encoder.build()
    with pytest.raises(InputError, match=named):
        encoder.enable_lora(*arguments)
    assert all(v.trainable for v in encoder.weights)
    encoder.enable_lora(2, ["output", "intermediate"])
    with pytest.raises(InputError, match="already"):
        encoder.enable_lora(2, ["output"])
