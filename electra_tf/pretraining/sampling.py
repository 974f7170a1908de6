"""The generator's logits -> the tokens that replace the masked ones."""

import tensorflow as tf

from electra_tf.batch import CorruptedBatch, MaskedBatch
from electra_tf.pretraining.masking import write


def sample(
    logits_BMV: tf.Tensor,
    uniform_BMV: tf.Tensor,
    labels_BM: tf.Tensor,
    *,
    temperature: float = 1.0,
    disallow_correct: bool = False,
) -> tf.Tensor:
    """Draws a token from softmax(logits / temperature), by the largest Gumbel sum.

    Args:
        logits_BMV: float32.
        uniform_BMV: float32 in [0, 1).
        labels_BM: int32, the tokens of the text.
        temperature: Below 1 prefers likely tokens.
        disallow_correct: Never draw the text's own token.

    Returns:
        int32 [B, M], through which no gradient goes.
    """
    logits_BMV = tf.stop_gradient(logits_BMV) / temperature
    if disallow_correct:
        own_BMV = tf.one_hot(labels_BM, logits_BMV.shape[-1], True, False)
        logits_BMV = tf.where(own_BMV, logits_BMV.dtype.min, logits_BMV)
    gumbel_BMV = -tf.math.log(-tf.math.log(uniform_BMV + 1e-9) + 1e-9)
    return tf.argmax(logits_BMV + gumbel_BMV, -1, tf.int32)


def corrupt(masked: MaskedBatch, sampled_BM: tf.Tensor) -> CorruptedBatch:
    """Puts the samples into the text and labels what differs from it.

    Args:
        masked: The batch with its masked positions.
        sampled_BM: int32, a token for each slot.

    Returns:
        The discriminator's input and labels; a token that was sampled right is real.
    """
    corrupted_BL = write(
        masked.input_ids_BL, masked.positions_BM, masked.weights_BM, sampled_BM
    )
    is_fake_BL = tf.cast(corrupted_BL != masked.input_ids_BL, tf.int32)
    return CorruptedBatch(corrupted_BL, is_fake_BL)
