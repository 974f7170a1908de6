"""What the generator thinks -> the tokens that replace the masked ones."""

import math

import tensorflow as tf

from electra_tf.batch import CorruptedBatch, MaskedBatch
from electra_tf.pretraining.masking import scatter_tokens


def sample_gumbel(
    logits_BMV: tf.Tensor,
    uniform_BMV: tf.Tensor,
    labels_BM: tf.Tensor,
    *,
    temperature: float = 1.0,
    disallow_correct: bool = False,
) -> tf.Tensor:
    """Draws a token from softmax(logits / temperature), by the largest Gumbel sum.

    As the original does; `draw` is several times as fast.

    Args:
        logits_BMV: float32.
        uniform_BMV: float32 in [0, 1).
        labels_BM: int32, the tokens of the text.
        temperature: Below 1 prefers likely tokens.
        disallow_correct: Never draw the text's own token.

    Returns:
        int32 [B, M], through which no gradient goes.
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
    temperature: float = 1.0,
    disallow_correct: bool = False,
) -> tf.Tensor:
    """Draws a token from softmax(logits / temperature) with two random numbers.

    The first one chooses a block of the vocabulary by the sums of the blocks, the
    second one a token by the probabilities within it. Either choice is exact to
    float32's rounding, some 1e-7 of the probability that is divided.

    Args:
        logits_BMV: float32.
        probabilities_BMV: Their softmax.
        uniform_BM2: float32 in (0, 1).
        labels_BM: int32, the tokens of the text.
        temperature: Below 1 prefers likely tokens.
        disallow_correct: Never draw the text's own token.

    Returns:
        int32 [B, M], through which no gradient goes.
    """
    if temperature != 1 or disallow_correct:
        probabilities_BMV = tf.nn.softmax(
            _adjusted_logits(logits_BMV, labels_BM, temperature, disallow_correct)
        )
    rows, slots, size = probabilities_BMV.shape
    width = math.ceil(math.sqrt(size))
    blocks = math.ceil(size / width)
    padding = [[0, 0], [0, 0], [0, blocks * width - size]]
    parts_BMKW = tf.pad(tf.stop_gradient(probabilities_BMV), padding)
    parts_BMKW = tf.reshape(parts_BMKW, [rows, slots, blocks, width])
    block_BM = _inverse_cdf_index(tf.reduce_sum(parts_BMKW, -1), uniform_BM2[..., 0])
    part_BMW = tf.gather(parts_BMKW, block_BM, batch_dims=2)
    return block_BM * width + _inverse_cdf_index(part_BMW, uniform_BM2[..., 1])


def _inverse_cdf_index(shares_BMX: tf.Tensor, uniform_BM: tf.Tensor) -> tf.Tensor:
    """Where the running sum reaches a part of the whole; never where a share is 0."""
    reached_BMX = tf.cumsum(shares_BMX, -1)
    wanted_BM1 = uniform_BM[..., None] * reached_BMX[..., -1:]
    # Sums that were made in parallel may fall by a rounding from one to the next.
    is_there_BMX = (reached_BMX >= wanted_BM1) & (shares_BMX > 0)
    return tf.argmax(tf.cast(is_there_BMX, tf.int32), -1, tf.int32)


def _adjusted_logits(
    logits_BMV: tf.Tensor,
    labels_BM: tf.Tensor,
    temperature: float,
    disallow_correct: bool,
) -> tf.Tensor:
    logits_BMV = tf.stop_gradient(logits_BMV) / temperature
    if not disallow_correct:
        return logits_BMV
    own_BMV = tf.one_hot(labels_BM, logits_BMV.shape[-1], True, False)
    return tf.where(own_BMV, logits_BMV.dtype.min, logits_BMV)


def corrupt(masked: MaskedBatch, sampled_BM: tf.Tensor) -> CorruptedBatch:
    """Puts the samples into the text and labels what differs from it.

    Args:
        masked: The batch with its masked positions.
        sampled_BM: int32, a token for each slot.

    Returns:
        The discriminator's input and labels; a token that was sampled right is real.
    """
    corrupted_BL = scatter_tokens(
        masked.input_ids_BL, masked.positions_BM, masked.weights_BM, sampled_BM
    )
    is_fake_BL = tf.cast(corrupted_BL != masked.input_ids_BL, tf.int32)
    return CorruptedBatch(corrupted_BL, is_fake_BL)
