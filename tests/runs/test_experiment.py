import dataclasses
import re
import shutil

import numpy as np
import pytest
import tensorflow as tf
from conftest import GOLDEN

from electra_tf.config import loader as config_lib
from electra_tf.errors import InputError
from electra_tf.runs import cost_estimate as forecasts
from electra_tf.runs.experiment import (
    Experiment,
    data_fingerprint,
    num_parameters,
    parameter_counts,
    special_tokens,
)
from electra_tf.tasks.pretrained import PretrainedEncoder
from electra_tf.text.pipeline import training_batches
from electra_tf.text.vocab import Vocabulary
from electra_tf.training.checkpoint import open_checkpoint

SMALL = [
    "records.max_length=32",
    "model.depth=2",
    "model.width=32",
    "model.heads=2",
    "model.embedding=16",
    "model.max_positions=32",
    "model.generator_width=0.5",
    "input.batch_size=8",
    "training.steps=1000",
]


def resolve(data, *sets, vocab=None):
    return Experiment.resolve(
        str(data),
        vocab,
        lambda stored: config_lib.load_config(sets=[*SMALL, *sets], base=stored),
    )


@pytest.fixture(scope="module")
def experiment(folder):
    return resolve(folder)


@pytest.fixture(scope="module")
def devices():
    return tf.distribute.get_strategy()


def test_what_follows_from_the_vocabulary_is_filled_in(experiment):
    assert experiment.config.model.vocabulary_size == 1000
    assert experiment.config.model.encoder.vocabulary_size == 1000
    assert experiment.tokenizer.vocabulary.tokens[4] == "[MASK]"


def test_its_files_are_a_config_and_a_vocabulary(experiment, tmp_path):
    files = experiment.files()
    assert set(files) == {"config.yaml", "vocab.txt", "vocab.txt.settings.json"}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    assert config_lib.load_config(str(tmp_path / "config.yaml")) == experiment.config
    assert (tmp_path / "vocab.txt").read_text() == (GOLDEN / "vocab.txt").read_text()


def test_a_folder_of_something_else_is_told(tmp_path):
    (tmp_path / "text.txt").write_text("no record")
    with pytest.raises(InputError, match=r"where none are\. Build records"):
        resolve(tmp_path)


def test_records_elsewhere_need_a_vocabulary(folder, tmp_path):
    shard = next(folder.glob("*tfrecord*"))
    shutil.copy(shard, tmp_path)
    with pytest.raises(InputError, match=r"without a vocab\.txt.*--vocab"):
        resolve(tmp_path)
    vocab = str(GOLDEN / "vocab.txt")
    found = resolve(tmp_path, vocab=vocab)
    assert found.open(str(tmp_path)).total > 0


@pytest.mark.parametrize(
    ("sets", "words"),
    [
        (["model.vocabulary_size=999"], "999 entries.*1000 entries.*=1000 or null"),
        (["tokenization.lower_case=false"], "lower_case"),
    ],
)
def test_a_vocabulary_that_does_not_fit_is_refused(folder, sets, words):
    with pytest.raises(InputError, match=words):
        resolve(folder, *sets)


def test_nothing_at_the_path_is_told_as_such(tmp_path):
    with pytest.raises(InputError, match="where none are"):
        resolve(tmp_path / "none")


def test_records_of_another_length_are_refused(folder):
    with pytest.raises(InputError, match=r"Set records\.max_length=32"):
        resolve(folder, "records.max_length=16").open(str(folder))


def test_special_ids_and_continuations_come_from_the_vocabulary(vocabulary):
    ids = special_tokens(vocabulary)
    assert (ids.cls, ids.sep, ids.mask, ids.vocabulary_size) == (2, 3, 4, 1000)
    expected = [token.startswith("##") for token in vocabulary.tokens]
    np.testing.assert_array_equal(ids.is_continuation_V, expected)


@pytest.fixture
def rates(monkeypatch):
    """Sets how fast the machine is, and how fast while other work disturbs it."""

    def measured(best, disturbed):
        rate = forecasts.Rate(best, disturbed)
        for name in ("measure_matmuls", "measure_layer_ops"):
            monkeypatch.setattr(forecasts, name, lambda *_: rate)

    measured(1e9, 1e9)
    return measured


@pytest.mark.usefixtures("rates")
def test_a_description_tells_config_sizes_cost_and_time(experiment, devices):
    pretrainer = experiment.pretrainer(devices)
    text = experiment.describe(pretrainer, devices)
    assert text.startswith(config_lib.dump_config(experiment.config).rstrip())
    total = num_parameters(pretrainer.trainable_variables)
    assert sum(parameter_counts(pretrainer).values()) == total
    weights = len(pretrainer.trainable_variables)
    assert f"all: {total:,} parameters, {weights} weights" in text
    for words in ("discriminator/encoder/embeddings: ", "FLOPs a step", "GiB of this"):
        assert words in text
    assert f"{experiment.flops:.4g} FLOPs a step" in text
    assert (
        "generator: 2 layers 16 wide, heads: 1, feed-forward: 64, embeddings: 16"
        in text
    )


def test_a_disturbed_machine_gets_a_range_of_times(experiment, devices, rates):
    pretrainer = experiment.pretrainer(devices)
    for disturbed, ranges in ((0.9e9, 0), (0.25e9, 1)):
        rates(1e9, disturbed)
        text = experiment.describe(pretrainer, devices)
        assert len(re.findall(r"step: about \S+ to \S+ s, of which", text)) == ranges
        assert len(re.findall(r"step: about \S+ s, of which", text)) == 1 - ranges
        span = re.search("time to train: about (.*), besides", text)[1]
        assert (" to " in span) == bool(ranges)
        assert text.count("other work disturbed") == ranges
    step = re.search(r"step: about (\S+) to (\S+) s", text)
    assert float(step[2]) == pytest.approx(4 * float(step[1]), rel=0.02)


def test_a_warm_up_that_never_ends_is_told(folder):
    sets = "training.steps=40", "optimizer.warmup_steps=40"
    (told,) = resolve(folder, *sets).config_warnings()
    assert "of 40 steps of warm-up there are 40; lower" in told
    assert not resolve(folder, sets[0], "optimizer.warmup_steps=39").config_warnings()


@pytest.mark.usefixtures("rates")
def test_parts_and_towers_are_told_alike_for_every_objective(folder, devices):
    experiment = resolve(folder, "objective.name=mlm")
    text = experiment.describe(experiment.pretrainer(devices), devices)
    assert (
        "encoder: 2 layers 32 wide, heads: 2, feed-forward: 128, embeddings: 16" in text
    )
    assert "generator" not in text.split("evaluation_batches")[1]
    names = ["bert/encoder/embeddings", "bert/encoder", "bert/head"]
    assert list(parameter_counts(experiment.pretrainer(devices))) == names


def test_data_is_told_by_its_content_not_its_place(experiment, folder, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    found, again = experiment.open(str(folder)), experiment.open(str(copy))
    assert data_fingerprint(found, experiment.tokenizer) == data_fingerprint(
        again, experiment.tokenizer
    )
    fewer = dataclasses.replace(found, counts=(1, *found.counts[1:]))
    assert data_fingerprint(fewer, experiment.tokenizer) != data_fingerprint(
        found, experiment.tokenizer
    )


def test_a_batch_that_cannot_be_shared_is_refused(folder):
    mirrored = tf.distribute.MirroredStrategy(["/cpu:0"])
    odd = resolve(folder, "input.batch_size=9", "training.accumulation=9")
    assert odd.pretrainer(mirrored).config.input.batch_size == 9
    with pytest.raises(InputError, match="must be a multiple"):
        resolve(folder, "input.batch_size=9", "training.accumulation=2")


def test_the_vocabulary_of_a_folder_is_what_its_records_were_made_with(folder):
    path = folder / "vocab.txt"
    assert resolve(folder).tokenizer.vocabulary == Vocabulary.read(path)


@pytest.fixture(scope="module")
def fitted(experiment, folder):
    """What Keras's `fit` has trained for three steps."""
    pretrainer = experiment.pretrainer()
    batches = training_batches(experiment.open(str(folder)), experiment.config.input)
    pretrainer.fit(batches, steps_per_epoch=3, shuffle=False, verbose=0)
    return pretrainer


def test_a_checkpoint_of_keras_fit_is_read_again(experiment, fitted, tmp_path):
    path = experiment.save_checkpoint(fitted, str(tmp_path / "fitted"))
    assert path == str(tmp_path / "fitted" / "step_00000003")
    found = open_checkpoint(str(tmp_path / "fitted"))
    assert (found.path, found.step) == (path, 3)
    assert found.metadata == {"vocabulary": experiment.tokenizer.vocabulary.sha256}
    stored = found.weights()
    assert len(stored) == len(fitted.trainable_variables)
    for variable in fitted.trainable_variables:
        np.testing.assert_array_equal(stored[variable.path], variable)
    assert len(found.slots()) == 2 * len(stored)
    assert Experiment.from_checkpoint(found).config == experiment.config
    start = PretrainedEncoder.open(path)
    table = fitted.core.encoder.embeddings.word_embeddings
    np.testing.assert_array_equal(start.weights["embeddings/word_embeddings"], table)


def test_no_checkpoint_is_written_over_another(experiment, fitted, folder, tmp_path):
    experiment.save_checkpoint(fitted, str(tmp_path))
    with pytest.raises(InputError, match=r"checkpoint of step 3.*step_00000003"):
        experiment.save_checkpoint(fitted, str(tmp_path))
    with pytest.raises(InputError, match="another config"):
        resolve(folder, "training.seed=7").save_checkpoint(fitted, str(tmp_path))


def test_commands_take_a_checkpoint_of_keras_fit(
    experiment, fitted, folder, tmp_path, here
):
    path = experiment.save_checkpoint(fitted, str(tmp_path / "fitted"))
    told = here("evaluate", f"--checkpoint={path}", f"--data={folder}", "--batches=1")
    assert told.returncode == 0, told.stderr
    sets = [f"--set={item}" for item in (*SMALL, "training.steps=1")]
    told = here(
        "pretrain",
        f"--data={folder}",
        f"--model_dir={tmp_path / 'run'}",
        f"--init_checkpoint={tmp_path / 'fitted'}",
        *sets,
    )
    assert told.returncode == 0, told.stderr
    assert open_checkpoint(str(tmp_path / "run")).step == 1
