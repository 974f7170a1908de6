"""What a checkpoint makes of held-out text, beside the same network untrained.

The trained generator replaces words as in an evaluation, and both discriminators, the
untrained and the trained one, read the same text.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

from electra_tf.batch import Batch, CorruptedBatch, MaskedBatch
from electra_tf.kernels.rng import EVALUATION, RngStream, make_rng
from electra_tf.pretraining import metrics
from electra_tf.pretraining.losses import (
    WeightedSum,
    mlm_predictions,
    replaced_token_loss,
)
from electra_tf.pretraining.objectives.common import encoder_inputs
from electra_tf.pretraining.pretrainer import Pretrainer
from electra_tf.pretraining.sampling import corrupt
from electra_tf.runs.experiment import Experiment
from electra_tf.text.pipeline import evaluation_batches
from electra_tf.text.vocab import CLS, MASK, SEP
from electra_tf.training.checkpoint import open_checkpoint, restore_weights
from electra_tf.training.multi_step_runner import add
from electra_tf.training.strategy import choose

BEFORE, AFTER = "before", "after"
SENTENCES, PROPOSALS = 5, 5


class Piece(NamedTuple):
    """A word piece as the discriminator reads it."""

    text: str
    original: str | None
    """The text's own, where the generator put in something else."""
    probability: float
    """That it was replaced, from the discriminator."""


Networks = Mapping[str, Pretrainer]


def look(path: str, records: str, lines: Sequence[str]) -> dict[str, Any]:
    """Return all that is shown of a checkpoint, as JSON.

    Args:
        path: The checkpoint.
        records: The held-out records.
        lines: The held-out text.

    Returns:
        `means` over all records, `sentences` and `proposals` for a few lines; each
        before and after training.
    """
    checkpoint = open_checkpoint(path)
    experiment = Experiment.from_checkpoint(checkpoint)
    networks = {name: experiment.pretrainer(choose("one_device")) for name in _STAGES}
    restore_weights(networks[AFTER], checkpoint)
    batch = rows(lines, experiment)
    return {
        "means": means(experiment, networks, records),
        "sentences": sentences(experiment, networks, batch),
        "proposals": proposals(experiment, networks, batch),
    }


_STAGES = (BEFORE, AFTER)


def replaced(
    pretrainer: Pretrainer, batch: Batch, rng: RngStream
) -> tuple[MaskedBatch, CorruptedBatch]:
    """Mask and sample as an evaluation does."""
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


def means(
    experiment: Experiment, networks: Networks, records: str
) -> dict[str, dict[str, float]]:
    """Measure both discriminators on all records.

    Returns:
        By stage: `disc_auc`, and the mean probability of being replaced, for
        `replaced` tokens and for the `others`.
    """
    seed, size = experiment.config.training.seed, experiment.config.input.batch_size

    @tf.function
    def measured(batch, number):
        rng = make_rng(seed, EVALUATION, number, 0)
        masked, corrupted = replaced(networks[AFTER], batch, rng)
        return {
            name: _sums(network, masked, corrupted)
            for name, network in networks.items()
        }

    sums = {name: {} for name in networks}
    batches = evaluation_batches(experiment.open(records), size)
    for number, batch in enumerate(batches):
        found = measured(batch, tf.constant(number))
        sums = {name: add(sums[name], found[name]) for name in networks}
    return {name: metrics.compute_metrics(found) for name, found in sums.items()}


def _sums(
    network: Pretrainer, masked: MaskedBatch, corrupted: CorruptedBatch
) -> dict[str, WeightedSum]:
    mask_BL, fake_BL = masked.input_mask_BL, corrupted.is_fake_BL
    logits_BL = network.core.discriminator(
        corrupted.corrupted_ids_BL, **encoder_inputs(masked)
    )
    loss = replaced_token_loss(logits_BL, fake_BL, mask_BL)
    found = metrics.discriminator_metrics(logits_BL, corrupted, mask_BL, loss)
    probability_BL = tf.sigmoid(logits_BL)
    fake_BL = tf.cast(fake_BL * mask_BL, tf.float32)
    own_BL = tf.cast(mask_BL, tf.float32) - fake_BL
    means = {
        name: WeightedSum(tf.reduce_sum(probability_BL * of_BL), tf.reduce_sum(of_BL))
        for name, of_BL in (("replaced", fake_BL), ("others", own_BL))
    }
    return {metrics.AUC: found[metrics.AUC], **means}


def rows(lines: Sequence[str], experiment: Experiment) -> Batch:
    """Return a batch of a few lines at even distances, [CLS] line [SEP] each."""
    tokenizer = experiment.tokenizer
    special = tokenizer.vocabulary.ids
    encoded = list(map(tokenizer.encode, lines))
    length = experiment.config.records.max_length
    fitting = [ids for ids in encoded if length / 2 <= len(ids) <= min(length - 2, 60)]
    fitting = fitting or [max(encoded, key=len)[: length - 2]]
    chosen = fitting[:: max(1, len(fitting) // SENTENCES)][:SENTENCES]
    shape = (len(chosen), length)
    ids_BL, mask_BL = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
    for row, pieces in enumerate(chosen):
        ids_BL[row, : len(pieces) + 2] = [special[CLS], *pieces, special[SEP]]
        mask_BL[row, : len(pieces) + 2] = 1
    segments_BL = np.zeros_like(ids_BL)
    return Batch(*map(tf.constant, (ids_BL, mask_BL, segments_BL)))


def sentences(
    experiment: Experiment, networks: Networks, batch: Batch
) -> list[dict[str, list[Piece]]]:
    """Replace words of a few lines and judge every piece, by stage."""
    rng = make_rng(experiment.config.training.seed, EVALUATION, 0)
    masked, corrupted = replaced(networks[AFTER], batch, rng)
    ids_BL = corrupted.corrupted_ids_BL
    judged = {
        name: tf.sigmoid(
            network.core.discriminator(ids_BL, **encoder_inputs(masked))
        ).numpy()
        for name, network in networks.items()
    }
    tokens = experiment.tokenizer.vocabulary.tokens
    found = []
    for row, count in enumerate(tf.reduce_sum(batch.input_mask_BL, 1).numpy()):
        inner = slice(1, count - 1)  # without [CLS] and [SEP]
        read, own = (t.numpy()[row, inner] for t in (ids_BL, batch.input_ids_BL))
        originals = [
            tokens[b] if a != b else None for a, b in zip(read, own, strict=True)
        ]
        texts = [tokens[number] for number in read]
        found.append(
            {
                name: list(map(Piece, texts, originals, judged_BL[row, inner].tolist()))
                for name, judged_BL in judged.items()
            }
        )
    return found


def proposals(
    experiment: Experiment, networks: Networks, batch: Batch
) -> list[dict[str, Any]]:
    """Mask the word nearest the middle of each line; return the likeliest fillings.

    Returns:
        For each line its pieces, the place of the masked one among them, and by stage
        pairs of word and probability.
    """
    vocabulary = experiment.tokenizer.vocabulary
    ids_BL, mask_BL, segments_BL = (t.numpy() for t in batch)
    lines = [
        [vocabulary.tokens[i] for i in ids_L[mask_L > 0][1:-1]]
        for ids_L, mask_L in zip(ids_BL, mask_BL, strict=True)
    ]
    places = list(map(_middle_word, lines))
    positions_BM = np.array(places)[:, None] + 1  # behind [CLS]
    masked_BL = ids_BL.copy()
    np.put_along_axis(masked_BL, positions_BM, vocabulary.ids[MASK], 1)
    found = [{"pieces": p, "place": n} for p, n in zip(lines, places, strict=True)]
    for name, network in networks.items():
        logits_BMV = network.core.generator(
            masked_BL, segment_ids=segments_BL, padding_mask=mask_BL,
            positions=positions_BM,
        )  # fmt: skip
        top = tf.math.top_k(tf.nn.softmax(logits_BMV[:, 0]), PROPOSALS)
        for row, (values, numbers) in enumerate(
            zip(top.values.numpy().tolist(), top.indices.numpy(), strict=True)
        ):
            words = [vocabulary.tokens[number] for number in numbers]
            found[row][name] = list(zip(words, values, strict=True))
    return found


def _middle_word(pieces: Sequence[str]) -> int:
    """Return the place of the whole word nearest the middle; of the middle if none."""
    middle = len(pieces) // 2
    words = [
        place
        for place, piece in enumerate(pieces)
        if piece.isalpha() and not "".join(pieces[place + 1 :][:1]).startswith("##")
    ]
    return min(words, key=lambda place: abs(place - middle), default=middle)
