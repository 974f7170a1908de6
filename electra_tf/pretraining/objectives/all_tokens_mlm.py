"""All-Tokens MLM: predict or copy every token of a text that a generator changed."""

import tensorflow as tf

from electra_tf.batch import CorruptedBatch, MaskedBatch
from electra_tf.pretraining.losses import WeightedSum
from electra_tf.pretraining.objectives.common import (
    Loss,
    Losses,
    StepContext,
    encoder_inputs,
)
from electra_tf.pretraining.objectives.electra import ElectraObjective
from electra_tf.pretraining.vocabulary_softmax import log_probabilities


class AllTokensMLMObjective(ElectraObjective):
    """Replace MLM with a loss over all real tokens and a copy gate (section 3.5).

    The probability of the original token x at a position with the input token s and the
    hidden state h is

        p(x) = D [x = s] + (1 - D) softmax(x),    D = sigmoid(w h)

    Real tokens are all that are not padding, [CLS] and [SEP] included.
    """

    def main_losses(
        self, masked: MaskedBatch, corrupted: CorruptedBatch, context: StepContext
    ) -> Losses:
        """Predict or copy every real token."""
        network, ids_BL = self.model.main, corrupted.corrupted_ids_BL
        x_BLD = network.encoder(
            ids_BL, **encoder_inputs(masked), layer_ops=context.layer_ops
        )
        original_X, input_X, real_X = (
            tf.reshape(x_BL, [-1])
            for x_BL in (masked.input_ids_BL, ids_BL, masked.input_mask_BL)
        )
        softmax = log_probabilities(
            network.head.outputs(x_BLD),
            tf.convert_to_tensor(network.encoder.embeddings.word_embeddings),
            tf.convert_to_tensor(network.head.logit_bias),
            original_X,
            input_X,
        )
        gate_X = tf.reshape(self.model.gate(tf.cast(x_BLD, tf.float32)), [-1])
        log_p_X = log_mixture(gate_X, softmax.label_X, original_X == input_X)
        # The most likely token is the input token or that of the largest logit.
        is_input_X = tf.ones_like(input_X, tf.bool)
        others_X = tf.maximum(
            log_mixture(gate_X, softmax.other_X, is_input_X),
            log_mixture(gate_X, softmax.largest_X, ~is_input_X),
        )
        weights_X = tf.cast(real_X, tf.float32)

        def over_real(x_X: tf.Tensor) -> WeightedSum:
            x_X = tf.cast(x_X, tf.float32)
            return WeightedSum(tf.reduce_sum(x_X * weights_X), tf.reduce_sum(weights_X))

        loss = over_real(-log_p_X)
        return Losses(
            {"main_lm": Loss(loss.total, "real", self.settings.main_weight)},
            {
                "main_lm_loss": loss,
                "main_lm_accuracy": over_real(log_p_X >= others_X),
                "copy_probability": over_real(tf.sigmoid(gate_X)),
            },
        )


def log_mixture(
    gate_X: tf.Tensor, log_softmax_X: tf.Tensor, is_input_X: tf.Tensor
) -> tf.Tensor:
    """Return log(D [token = input token] + (1 - D) softmax(token)), float32 [X].

    `gate_X` are the logits of D. The result is finite for every finite gate.
    """
    predicted_X = tf.math.log_sigmoid(-gate_X) + log_softmax_X
    both_X = tf.stack([tf.math.log_sigmoid(gate_X), predicted_X])
    return tf.where(is_input_X, tf.reduce_logsumexp(both_X, 0), predicted_X)
