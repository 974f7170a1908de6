"""Electric: an energy-based cloze model (Clark et al., 2020)."""

import math

import tensorflow as tf

from electra_tf.batch import MaskedBatch
from electra_tf.config.pretraining import PretrainingConfig
from electra_tf.pretraining.losses import WeightedSum
from electra_tf.pretraining.masking import SpecialTokens, mark_masked
from electra_tf.pretraining.objectives.common import (
    Loss,
    Losses,
    StepContext,
    encoder_inputs,
)
from electra_tf.pretraining.objectives.electra import ElectraObjective
from electra_tf.pretraining.vocabulary_softmax import log_probabilities


class ElectricObjective(ElectraObjective):
    """Discriminator trained by noise-contrastive estimation.

    The score E(t) of a token is its energy: exp(-E(t)) is an unnormalised probability
    of the token given all others. The generator, a two-tower cloze model, is the noise
    distribution q. A token is noise with the probability

        sigmoid(E(t) + log q(x_t) + log(rate / (1 - rate)))

    Every token at a drawn position is noise, also if the sample is the original one.
    """

    denominators = ("maskable", "real")

    def __init__(self, config: PretrainingConfig, tokens: SpecialTokens):
        super().__init__(config, tokens)
        rate = config.masking.rate
        self._log_odds = math.log(rate / (1 - rate))

    def losses(self, masked: MaskedBatch, context: StepContext) -> Losses:
        """Run generator, sampling and discriminator, and compute both losses."""
        layer_ops = context.layer_ops
        cloze, inputs = self.model.cloze, encoder_inputs(masked)
        # 1. The generator reads the text itself and predicts each of its tokens.
        hidden_XE = cloze(masked.input_ids_BL, **inputs, layer_ops=layer_ops)
        # 2. Samples of its distribution replace the tokens at the drawn positions.
        corrupted, sampled = self._write_samples(
            masked, self._drawn_logits(masked, hidden_XE), context
        )
        noisy = corrupted._replace(is_fake_BL=mark_masked(masked))
        # 3. q of the original tokens is trained on; q of the present ones is a number.
        log_q = log_probabilities(
            hidden_XE,
            tf.convert_to_tensor(cloze.table),
            tf.convert_to_tensor(cloze.head.logit_bias),
            tf.reshape(masked.input_ids_BL, [-1]),
            tf.reshape(noisy.corrupted_ids_BL, [-1]),
        )
        candidates_BL = tf.cast(self.tokens("maskable", masked), tf.float32)
        cloze_loss = WeightedSum(
            -tf.reduce_sum(log_q.label_X * tf.reshape(candidates_BL, [-1])),
            tf.reduce_sum(candidates_BL),
        )
        # 4. The discriminator separates data from noise by its energies.
        energy_BL = self.model.discriminator(
            noisy.corrupted_ids_BL, **inputs, layer_ops=layer_ops
        )
        logits_BL = energy_BL + tf.reshape(log_q.other_X, energy_BL.shape)
        logits_BL += self._log_odds
        weight = self.settings.generator_weight
        generated = Losses(
            {"cloze": Loss(cloze_loss.total, "maskable", weight)},
            {**sampled.metrics, "cloze_loss": cloze_loss, **self._scheduled(context)},
        )
        return generated | self.discriminator_losses(logits_BL, masked, noisy)

    def _drawn_logits(self, masked: MaskedBatch, hidden_XE: tf.Tensor) -> tf.Tensor:
        """Return the logits at the drawn positions, without gradient."""
        rows, slots = masked.positions_BM.shape
        length, width = masked.input_ids_BL.shape[1], hidden_XE.shape[-1]
        hidden_BLE = tf.reshape(tf.stop_gradient(hidden_XE), [rows, length, width])
        hidden_BME = tf.gather(hidden_BLE, masked.positions_BM, batch_dims=1)
        logits_XV = tf.matmul(
            tf.reshape(hidden_BME, [-1, width]),
            tf.convert_to_tensor(self.model.cloze.table),
            transpose_b=True,
        )
        logits_XV += tf.convert_to_tensor(self.model.cloze.head.logit_bias)
        logits_BMV = tf.reshape(tf.stop_gradient(logits_XV), [rows, slots, -1])
        return tf.ensure_shape(logits_BMV, [rows, slots, logits_XV.shape[-1]])
