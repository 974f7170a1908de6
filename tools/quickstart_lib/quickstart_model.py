"""Compute outputs of a checkpoint and of the untrained model for held-out text.

The trained generator replaces words as in an evaluation. Both discriminators, the
untrained and the trained one, get the same text.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

from electra_tf.batch import Batch, CorruptedBatch, MaskedBatch
from electra_tf.kernels.rng import EVALUATION, RngStream, make_rng
from electra_tf.pretraining.losses import mlm_predictions
from electra_tf.pretraining.objectives.common import encoder_inputs
from electra_tf.pretraining.pretrainer import Pretrainer
from electra_tf.pretraining.sampling import corrupt
from electra_tf.runs.experiment import Experiment
from electra_tf.text.vocab import CLS, SEP
from electra_tf.training.checkpoint import open_checkpoint, restore_weights
from electra_tf.training.strategy import choose

BEFORE, AFTER = "before", "after"
NUM_SENTENCES, NUM_PROPOSALS = 5, 5


class Piece(NamedTuple):
    """Wordpiece in the input of the discriminator."""

    text: str
    original: str | None
    """The original wordpiece, if the generator replaced it."""
    probability: float
    """The discriminator's probability that it was replaced."""


Models = Mapping[str, Pretrainer]


def make_examples(path: str, lines: Sequence[str]) -> dict[str, Any]:
    checkpoint = open_checkpoint(path)
    experiment = Experiment.from_checkpoint(checkpoint)
    strategy = choose("one_device")
    models = {name: experiment.pretrainer(strategy) for name in (BEFORE, AFTER)}
    restore_weights(models[AFTER], checkpoint)
    batch = make_batch(lines, experiment)
    return {
        "sentences": sentences(experiment, models, batch),
        "proposals": proposals(experiment, models, batch),
    }


def replace_tokens(
    pretrainer: Pretrainer, batch: Batch, rng: RngStream
) -> tuple[MaskedBatch, CorruptedBatch]:
    """Mask and replace tokens as in an evaluation."""
    objective = pretrainer.objective
    masked = objective.mask(batch, rng)
    logits_BMV = objective.model.generator(
        masked.masked_ids_BL, **encoder_inputs(masked), positions=masked.positions_BM
    )
    predictions = mlm_predictions(logits_BMV, masked.labels_BM)
    sampled_BM = objective.sample_replacements(
        logits_BMV, predictions, masked.labels_BM, rng
    )
    return masked, corrupt(masked, sampled_BM)


def make_batch(lines: Sequence[str], experiment: Experiment) -> Batch:
    """Return a batch of a few evenly spaced lines with [CLS] and [SEP]."""
    tokenizer = experiment.tokenizer
    special = tokenizer.vocabulary.ids
    encoded = list(map(tokenizer.encode, lines))
    length = experiment.config.records.max_length
    fitting = [ids for ids in encoded if length / 2 <= len(ids) <= min(length - 2, 60)]
    fitting = fitting or [max(encoded, key=len)[: length - 2]]
    chosen = fitting[:: max(1, len(fitting) // NUM_SENTENCES)][:NUM_SENTENCES]
    shape = (len(chosen), length)
    ids_BL, mask_BL = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
    for row, pieces in enumerate(chosen):
        ids_BL[row, : len(pieces) + 2] = [special[CLS], *pieces, special[SEP]]
        mask_BL[row, : len(pieces) + 2] = 1
    segments_BL = np.zeros_like(ids_BL)
    return Batch(*map(tf.constant, (ids_BL, mask_BL, segments_BL)))


def sentences(
    experiment: Experiment, models: Models, batch: Batch
) -> list[dict[str, list[Piece]]]:
    """Return wordpieces with replacements and probabilities, by stage."""
    rng = make_rng(experiment.config.evaluation.seed, EVALUATION, 0)
    masked, corrupted = replace_tokens(models[AFTER], batch, rng)
    ids_BL = corrupted.corrupted_ids_BL
    probabilities = {
        name: tf.sigmoid(
            model.core.discriminator(ids_BL, **encoder_inputs(masked))
        ).numpy()
        for name, model in models.items()
    }
    tokens = experiment.tokenizer.vocabulary.tokens
    results = []
    for row, count in enumerate(tf.reduce_sum(batch.input_mask_BL, 1).numpy()):
        inner = slice(1, count - 1)  # without [CLS] and [SEP]
        ids, original_ids = (
            t.numpy()[row, inner] for t in (ids_BL, batch.input_ids_BL)
        )
        originals = [
            tokens[original] if new != original else None
            for new, original in zip(ids, original_ids, strict=True)
        ]
        texts = [tokens[index] for index in ids]
        results.append(
            {
                name: list(map(Piece, texts, originals, probs_BL[row, inner].tolist()))
                for name, probs_BL in probabilities.items()
            }
        )
    return results


def proposals(
    experiment: Experiment, models: Models, batch: Batch
) -> list[dict[str, Any]]:
    """Return the most likely tokens of the first masked position of each line.

    Returns:
        For each line its `pieces` with masks, the original `word`, and by stage pairs
        of token and probability.
    """
    tokens = experiment.tokenizer.vocabulary.tokens
    rng = make_rng(experiment.config.evaluation.seed, EVALUATION, 0)
    masked = models[AFTER].objective.mask(batch, rng)
    used_BM = masked.weights_BM > 0
    first_B = tf.argmin(tf.where(used_BM, masked.positions_BM, tf.int32.max), 1)
    positions_B, labels_B = (
        tf.gather(of_BM, first_B, batch_dims=1)
        for of_BM in (masked.positions_BM, masked.labels_BM)
    )
    results = [
        {"pieces": [tokens[i] for i in ids_L[1 : count - 1]], "word": tokens[label]}
        for ids_L, count, label in zip(
            masked.masked_ids_BL.numpy(),
            tf.reduce_sum(batch.input_mask_BL, 1).numpy(),
            labels_B.numpy(),
            strict=True,
        )
    ]
    for name, model in models.items():
        logits_BMV = model.core.generator(
            masked.masked_ids_BL,
            **encoder_inputs(masked),
            positions=positions_B[:, None],
        )
        top = tf.math.top_k(tf.nn.softmax(logits_BMV[:, 0]), NUM_PROPOSALS)
        for result, values, ids in zip(
            results, top.values.numpy().tolist(), top.indices.numpy(), strict=True
        ):
            words = [tokens[index] for index in ids]
            result[name] = list(zip(words, values, strict=True))
    return results
