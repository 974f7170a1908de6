import dataclasses
import shutil

import numpy as np
import pytest

from electra_tf.errors import InputError
from electra_tf.runs.experiment import Experiment, data_fingerprint
from electra_tf.text.pipeline import training_batches
from electra_tf.training.checkpoint import open_checkpoint
from tests import tiny
from tests.conftest import GOLDEN
from tests.tiny import resolve


@pytest.fixture(scope="module")
def experiment(folder):
    return resolve(folder)


def test_records_without_a_vocabulary_need_vocab(folder, tmp_path):
    shard = next(folder.glob("*tfrecord*"))
    shutil.copy(shard, tmp_path)
    with pytest.raises(InputError, match=r"no vocab\.txt.*--vocab"):
        resolve(tmp_path)
    vocab = str(GOLDEN / "vocab.txt")
    assert resolve(tmp_path, vocab=vocab).open(str(tmp_path)).total > 0


@pytest.mark.parametrize(
    ("sets", "pattern"),
    [
        (["model.vocabulary_size=1008"], r"1008, with 1000 .*spare_rows=8"),
        (["tokenization.lower_case=false"], "lower_case"),
    ],
)
def test_a_config_must_match_the_vocabulary(folder, sets, pattern):
    with pytest.raises(InputError, match=pattern):
        resolve(folder, *sets)


def test_a_warm_up_as_long_as_training_is_a_warning(folder):
    sets = "training.steps=40", "optimizer.warmup_steps=40"
    (warning,) = resolve(folder, *sets).config_warnings()
    assert "training.steps is 40, optimizer.warmup_steps is 40" in warning
    assert not resolve(folder, sets[0], "optimizer.warmup_steps=39").config_warnings()


def test_data_fingerprint_depends_on_content_and_not_on_path(
    experiment, folder, tmp_path
):
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    original, copied = experiment.open(str(folder)), experiment.open(str(copy))
    assert data_fingerprint(original, experiment.tokenizer) == data_fingerprint(
        copied, experiment.tokenizer
    )
    fewer = dataclasses.replace(original, counts=(1, *original.counts[1:]))
    assert data_fingerprint(fewer, experiment.tokenizer) != data_fingerprint(
        original, experiment.tokenizer
    )


@pytest.fixture(scope="module")
def fitted(experiment, folder):
    """Pretrainer that Keras's `fit` trained for three steps."""
    pretrainer = experiment.pretrainer()
    batches = training_batches(experiment.open(str(folder)), experiment.config.input)
    pretrainer.fit(batches, steps_per_epoch=3, shuffle=False, verbose=0)
    return pretrainer


def test_save_checkpoint_writes_a_readable_checkpoint(experiment, fitted, tmp_path):
    path = experiment.save_checkpoint(fitted, str(tmp_path / "fitted"))
    assert path == str(tmp_path / "fitted" / "step_00000003")
    checkpoint = open_checkpoint(str(tmp_path / "fitted"))
    assert (checkpoint.path, checkpoint.step) == (path, 3)
    sha256 = experiment.tokenizer.vocabulary.sha256
    assert checkpoint.metadata == {"vocabulary": sha256}
    stored = checkpoint.weights()
    assert len(stored) == len(fitted.trainable_variables)
    for variable in fitted.trainable_variables:
        np.testing.assert_array_equal(stored[variable.path], variable)
    assert len(checkpoint.slots()) == 2 * len(stored)
    assert Experiment.from_checkpoint(checkpoint).config == experiment.config
    pretrained = tiny.encoder(path)
    table = fitted.core.encoder.embeddings.word_embeddings
    np.testing.assert_array_equal(
        pretrained.weights["embeddings/word_embeddings"], table
    )


def test_save_checkpoint_overwrites_nothing(experiment, fitted, folder, tmp_path):
    experiment.save_checkpoint(fitted, str(tmp_path))
    with pytest.raises(InputError, match="step_00000003"):
        experiment.save_checkpoint(fitted, str(tmp_path))
    with pytest.raises(InputError, match="config"):
        resolve(folder, "training.seed=7").save_checkpoint(fitted, str(tmp_path))
