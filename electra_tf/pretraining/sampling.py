"""Sample replacement tokens from the generator and write them into the text."""

import itertools
import math
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from electra_tf.batch import CorruptedBatch, MaskedBatch
from electra_tf.config.objectives import ObjectiveSettings
from electra_tf.errors import InputError
from electra_tf.pretraining.masking import SpecialTokens, scatter_tokens


def sample_gumbel(
    logits_BMV: tf.Tensor,
    uniform_BMV: tf.Tensor,
    labels_BM: tf.Tensor,
    *,
    temperature: float | tf.Tensor = 1.0,
    disallow_correct: bool = False,
) -> tf.Tensor:
    """Sample a token from softmax(logits / temperature) with the Gumbel-max trick.

    The released ELECTRA code samples this way. It needs a random number in [0, 1) for
    each token of the vocabulary; `sample_inverse_cdf` needs two. With
    `disallow_correct` the original tokens, `labels_BM`, are never sampled. Return int32
    [B, M], without gradient.
    """
    logits_BMV = _adjusted_logits(logits_BMV, labels_BM, temperature, disallow_correct)
    gumbel_BMV = -tf.math.log(-tf.math.log(uniform_BMV + 1e-9) + 1e-9)
    return tf.argmax(logits_BMV + gumbel_BMV, -1, tf.int32)


def sample_inverse_cdf(
    logits_BMV: tf.Tensor,
    probabilities_BMV: tf.Tensor,
    uniform_BM2: tf.Tensor,
    labels_BM: tf.Tensor,
    *,
    temperature: float | tf.Tensor = 1.0,
    disallow_correct: bool = False,
) -> tf.Tensor:
    """Sample a token from softmax(logits / temperature) with two random numbers.

    The vocabulary is split into about sqrt(V) blocks. The first number selects a block
    by its total probability, the second a token within the block. Both selections are
    exact up to float32 rounding, a relative error of about 1e-7.

    The arguments are those of `sample_gumbel`; `probabilities_BMV` is the softmax of
    the logits, and the random numbers are in (0, 1).
    """
    if not (isinstance(temperature, float) and temperature == 1) or disallow_correct:
        probabilities_BMV = tf.nn.softmax(
            _adjusted_logits(logits_BMV, labels_BM, temperature, disallow_correct)
        )
    rows, positions, size = probabilities_BMV.shape
    width = math.ceil(math.sqrt(size))
    blocks = math.ceil(size / width)
    padding = [[0, 0], [0, 0], [0, blocks * width - size]]
    blocks_BMKW = tf.pad(tf.stop_gradient(probabilities_BMV), padding)
    blocks_BMKW = tf.reshape(blocks_BMKW, [rows, positions, blocks, width])
    block_BM = _inverse_cdf_index(tf.reduce_sum(blocks_BMKW, -1), uniform_BM2[..., 0])
    tokens_BMW = tf.gather(blocks_BMKW, block_BM, batch_dims=2)
    return block_BM * width + _inverse_cdf_index(tokens_BMW, uniform_BM2[..., 1])


def _inverse_cdf_index(weights_BMX: tf.Tensor, uniform_BM: tf.Tensor) -> tf.Tensor:
    """Return the first index whose cumulative weight reaches `uniform_BM` of the total.

    An index of weight 0 is never returned.
    """
    cumulative_BMX = tf.cumsum(weights_BMX, -1)
    threshold_BM1 = uniform_BM[..., None] * cumulative_BMX[..., -1:]
    # A parallel cumulative sum may decrease by a rounding error between neighbours.
    is_reached_BMX = (cumulative_BMX >= threshold_BM1) & (weights_BMX > 0)
    return tf.argmax(tf.cast(is_reached_BMX, tf.int32), -1, tf.int32)


def _adjusted_logits(
    logits_BMV: tf.Tensor,
    labels_BM: tf.Tensor,
    temperature: float | tf.Tensor,
    disallow_correct: bool,
) -> tf.Tensor:
    logits_BMV = tf.stop_gradient(logits_BMV) / temperature
    if not disallow_correct:
        return logits_BMV
    one_hot_BMV = tf.one_hot(labels_BM, logits_BMV.shape[-1], True, False)
    return tf.where(one_hot_BMV, logits_BMV.dtype.min, logits_BMV)


def corrupt(masked: MaskedBatch, sampled_BM: tf.Tensor) -> CorruptedBatch:
    """Replace the tokens at masked positions by samples.

    A sample that equals the original token is labelled real.
    """
    corrupted_BL = scatter_tokens(
        masked.input_ids_BL, masked.positions_BM, masked.weights_BM, sampled_BM
    )
    is_fake_BL = tf.cast(corrupted_BL != masked.input_ids_BL, tf.int32)
    return CorruptedBatch(corrupted_BL, is_fake_BL)


def scheduled_factor(
    points: Sequence[tuple[float, float]], progress: tf.Tensor | float
) -> tf.Tensor:
    """Return the factor of the temperature at a completed share of training.

    Between points (share, factor) it is linear, outside constant.
    """
    factor = tf.constant(points[0][1])
    for (start, first), (end, last) in itertools.pairwise(points):
        passed = tf.clip_by_value((progress - start) / (end - start), 0.0, 1.0)
        factor += (last - first) * passed
    return factor


def fixed_logits(settings: ObjectiveSettings, tokens: SpecialTokens) -> np.ndarray:
    """Return the logits of a generator without a network, float32 [V].

    All are 0 for `uniform_generator`, log counts for `unigram_generator`.
    """
    if not settings.unigram_generator:
        return np.zeros(tokens.vocabulary_size, np.float32)
    if tokens.counts_V is None:
        raise InputError(
            "objective.unigram_generator has no counts of tokens; run electra-tf "
            "pretrain, which counts them, or pass token_counts of "
            "electra_tf.text.pipeline.count_tokens to Pretrainer.from_vocabulary"
        )
    counts_V = np.array(tokens.counts_V, np.float64)
    counts_V[[tokens.cls, tokens.sep, tokens.mask]] = 0
    # A token that never occurs gets a logit that no sample reaches, not -inf, which
    # would make its cross-entropy infinite.
    return np.log(np.maximum(counts_V, 1e-9)).astype(np.float32)
