"""Errors of `evaluate_checkpoint`, and generators of other runs.

test_evaluate.py tests the metrics.
"""

import functools

import pytest
import tensorflow as tf
from conftest import GOLDEN
from tiny import resolve

from electra_tf.errors import InputError
from electra_tf.runs.evaluation import evaluate_checkpoint
from electra_tf.runs.experiment import Experiment
from electra_tf.text.tokenizer import WordPieceTokenizer
from electra_tf.text.vocab import Vocabulary


def evaluate(path, data, generator=None):
    return evaluate_checkpoint(
        path, str(data), 10, tf.distribute.get_strategy(), generator
    )


@pytest.fixture(scope="module")
def runs(folder, tmp_path_factory):
    """Return a function of settings that returns an untrained checkpoint."""

    @functools.cache
    def save(*sets, vocabulary=None):
        experiment = resolve(folder, *sets)
        if vocabulary is not None:
            tokenizer = WordPieceTokenizer(vocabulary, experiment.config.tokenization)
            experiment = Experiment(experiment.config, tokenizer)
        output = tmp_path_factory.mktemp("run")
        return experiment.save_checkpoint(experiment.pretrainer(), str(output))

    return save


@pytest.mark.runs
def test_another_run_fills_the_masked_positions(runs, folder):
    one, other = runs(), runs("training.seed=1", "model.generator_width=0.25")
    plain, named = evaluate(one, folder), evaluate(one, folder, one)
    assert named == plain | {"generator": one, "generator_step": 0}
    crossed, reference = evaluate(one, folder, other), evaluate(other, folder)
    assert crossed["masked_lm_loss"] == reference["masked_lm_loss"]
    for name in ("masked_lm_loss", "disc_loss"):
        assert crossed[name] != plain[name]
    assert crossed["disc_loss"] != reference["disc_loss"]


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        (["objective.name=mlm"], [], ("--checkpoint must", "objective.name: mlm")),
        (["objective.discriminator_start=2"], [], ("--checkpoint must", "step 0")),
        ([], ["objective.name=mlm"], ("--generator must", "objective.name: mlm")),
    ],
)
def test_objectives_without_the_network_are_an_error(
    first, second, words, runs, folder
):
    with pytest.raises(InputError) as error:
        evaluate(runs(*first), folder, runs(*second))
    assert all(word in str(error.value) for word in words)


def test_a_discriminator_alone_is_not_evaluated():
    path, data = GOLDEN / "interop" / "huggingface_discriminator", GOLDEN / "saved"
    with pytest.raises(InputError, match="a discriminator alone"):
        evaluate(str(path), data / "records")


def test_a_generator_of_another_vocabulary_is_an_error(runs, folder, vocabulary):
    tokens = list(vocabulary.tokens)
    tokens[-2:] = tokens[:-3:-1]
    other = runs(vocabulary=Vocabulary(tuple(tokens), "swapped"))
    with pytest.raises(InputError, match="--generator must have the vocabulary"):
        evaluate(runs(), folder, other)
