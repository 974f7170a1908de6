"""ELECTRA whose generator learns to mislead the discriminator (appendix F)."""

import tensorflow as tf

from electra_tf.batch import CorruptedBatch, MaskedBatch
from electra_tf.model.electra import gather
from electra_tf.pretraining.losses import mlm_predictions
from electra_tf.pretraining.metrics import weighted_mean
from electra_tf.pretraining.objectives.common import (
    Loss,
    Losses,
    StepContext,
    encoder_inputs,
)
from electra_tf.pretraining.objectives.electra import ElectraObjective


class AdversarialObjective(ElectraObjective):
    """Generator trained by REINFORCE, discriminator as in ELECTRA.

    The reward R(t) of a sample x(t) is the discriminator's loss at its position, also
    if the sample is the original token. A baseline b(t) = -log sigmoid(w h(t)), from
    the generator's hidden state h(t), reduces the variance. The gradient of

        mean over masked positions of  (R(t) - b(t)) * -log p(x(t))

    with R and b as constants is the policy gradient. w learns by cross-entropy that
    sigmoid(w h(t)) be exp(-R(t)), the probability of the correct class; this loss has
    no gradient in h.
    """

    def losses(self, masked: MaskedBatch, context: StepContext) -> Losses:
        """Run generator, sampling and discriminator, and compute all losses."""
        generator, layer_ops = self.model.generator, context.layer_ops
        x_BLD = generator.encoder(
            masked.masked_ids_BL, **encoder_inputs(masked), layer_ops=layer_ops
        )
        states_BMD = gather(x_BLD, masked.positions_BM)
        gen_logits_BMV = generator.logits(states_BMD, layer_ops)
        corrupted, sampled = self._write_samples(
            masked, tf.stop_gradient(gen_logits_BMV), context
        )
        disc_logits_BL = self.model.discriminator(
            corrupted.corrupted_ids_BL, **encoder_inputs(masked), layer_ops=layer_ops
        )
        policy = self._policy_losses(
            masked,
            corrupted,
            # Samples are drawn from the tempered distribution, and scored under it.
            gen_logits_BMV / self._temperature(context),
            states_BMD,
            disc_logits_BL,
        )
        disc = self.discriminator_losses(disc_logits_BL, masked, corrupted)
        metrics = sampled.metrics | self._scheduled(context)
        return policy | disc | Losses({}, metrics)

    def _policy_losses(
        self,
        masked: MaskedBatch,
        corrupted: CorruptedBatch,
        logits_BMV: tf.Tensor,
        states_BMD: tf.Tensor,
        disc_logits_BL: tf.Tensor,
    ) -> Losses:
        """Return the losses of generator and baseline, constant in `disc_logits_BL`."""
        # A position that was drawn twice has two samples; only one is in the text.
        written_BM, fake_BM, disc_logits_BM = (
            tf.gather(x_BL, masked.positions_BM, batch_dims=1)
            for x_BL in (*corrupted, tf.stop_gradient(disc_logits_BL))
        )
        cross_entropy = tf.nn.sigmoid_cross_entropy_with_logits
        reward_BM = cross_entropy(tf.cast(fake_BM, tf.float32), disc_logits_BM)
        states_BMD = tf.stop_gradient(tf.cast(states_BMD, tf.float32))
        score_BM = self.model.baseline(states_BMD)[..., 0]
        baseline_BM = tf.stop_gradient(-tf.math.log_sigmoid(score_BM))
        xent_BM = mlm_predictions(logits_BMV, written_BM).xent_BM
        weight = self.settings.generator_weight
        losses = {
            "policy": ((reward_BM - baseline_BM) * xent_BM, weight),
            "baseline": (cross_entropy(tf.exp(-reward_BM), score_BM), 1.0),
        }
        if weight := self.settings.entropy_weight:
            log_p_BMV = tf.nn.log_softmax(logits_BMV)
            entropy_BM = -tf.reduce_sum(tf.exp(log_p_BMV) * log_p_BMV, -1)
            losses["entropy"] = entropy_BM, -weight
        parts = {
            name: Loss(tf.reduce_sum(x_BM * masked.weights_BM), "masked", factor)
            for name, (x_BM, factor) in losses.items()
        }
        means = {"reward": reward_BM, "baseline": baseline_BM}
        metrics = {n: weighted_mean(x, masked.weights_BM) for n, x in means.items()}
        return Losses(parts, metrics)
