"""Replaced-token detection with a masked-LM generator (ELECTRA paper, section 2)."""

from typing import ClassVar

import tensorflow as tf

from electra_tf.batch import CorruptedBatch, MaskedBatch
from electra_tf.config.pretraining import PretrainingConfig
from electra_tf.kernels.rng import SAMPLES, RngStream
from electra_tf.pretraining.losses import (
    MLMPredictions,
    WeightedSum,
    masked_lm_loss,
    mlm_predictions,
    replaced_token_loss,
)
from electra_tf.pretraining.masking import SpecialTokens
from electra_tf.pretraining.metrics import (
    discriminator_metrics,
    masked_lm_metrics,
    sampled_metrics,
)
from electra_tf.pretraining.objectives.common import (
    Loss,
    Losses,
    Objective,
    StepContext,
    encoder_inputs,
)
from electra_tf.pretraining.sampling import (
    corrupt,
    fixed_logits,
    sample_gumbel,
    sample_inverse_cdf,
    scheduled_factor,
)


class ElectraObjective(Objective):
    """Generator and discriminator, trained together on L_MLM + lambda * L_Disc.

    The samples have no gradient, so the discriminator's loss does not reach the
    generator, except through shared weights.
    """

    denominators = ("masked", "real")
    discriminated: ClassVar[str] = "real"
    """Name of the tokens of the discriminator's loss."""

    def __init__(self, config: PretrainingConfig, tokens: SpecialTokens):
        super().__init__(config, tokens)
        self._fixed_logits_V = fixed_logits(config.objective, tokens)

    def losses(self, masked: MaskedBatch, context: StepContext) -> Losses:
        """Compute the losses, as sums over these rows."""
        # 1. The generator predicts the tokens at the masked positions, and samples of
        # its distribution replace them.
        corrupted, generated = self.corrupted_batch(masked, context)
        # 2. The discriminator classifies every token as original or replaced.
        main = self.main_losses(masked, corrupted, context)
        return generated | main | Losses({}, self._scheduled(context))

    def main_losses(
        self, masked: MaskedBatch, corrupted: CorruptedBatch, context: StepContext
    ) -> Losses:
        """Run the main network, the discriminator, on the generator's samples."""
        logits_BL = self._discriminator_logits(masked, corrupted, context)
        return self.discriminator_losses(logits_BL, masked, corrupted)

    def discriminator_losses(
        self, logits_BL: tf.Tensor, masked: MaskedBatch, corrupted: CorruptedBatch
    ) -> Losses:
        """Return the loss and metrics of replaced-token detection."""
        counted_BL = self.tokens(self.discriminated, masked)
        loss = replaced_token_loss(logits_BL, corrupted.is_fake_BL, counted_BL)
        weight = self.settings.discriminator_weight
        return Losses(
            {"disc": Loss(loss.total, self.discriminated, weight)},
            discriminator_metrics(logits_BL, corrupted, counted_BL, loss),
        )

    def detect(
        self, masked: MaskedBatch, rng: RngStream
    ) -> tuple[CorruptedBatch, tf.Tensor]:
        """Return samples of the generator, and the probability that each token is one.

        The probabilities are those of the discriminator after training, float32 [B, L].
        """
        context = self.context(rng, training=False, progress=1.0)
        corrupted, _ = self.corrupted_batch(masked, context)
        logits_BL = self._discriminator_logits(masked, corrupted, context)
        return corrupted, tf.sigmoid(logits_BL)

    def _discriminator_logits(
        self, masked: MaskedBatch, corrupted: CorruptedBatch, context: StepContext
    ) -> tf.Tensor:
        return self.model.discriminator(
            corrupted.corrupted_ids_BL,
            **encoder_inputs(masked),
            layer_ops=context.layer_ops,
        )

    def corrupted_batch(
        self, masked: MaskedBatch, context: StepContext
    ) -> tuple[CorruptedBatch, Losses]:
        """Replace the masked tokens by samples; return the generator's loss too.

        A frozen generator samples without dropout.
        """
        if self._is_frozen:
            context = self.context(context.rng, False, context.progress)
        logits_BMV = self.generator_logits(masked, context)
        return self._write_samples(masked, logits_BMV, context)

    def _write_samples(
        self, masked: MaskedBatch, logits_BMV: tf.Tensor, context: StepContext
    ) -> tuple[CorruptedBatch, Losses]:
        """Replace the masked tokens by samples of logits; return their loss too."""
        predictions = mlm_predictions(logits_BMV, masked.labels_BM)
        masked_lm = masked_lm_loss(predictions, masked.weights_BM)
        sampled_BM = self.sample_replacements(
            logits_BMV, predictions, masked.labels_BM, context
        )
        # Without a network the loss is constant, which `health.py` would report as a
        # stalled generator.
        metrics = {}
        if self.settings.has_generator:
            metrics = masked_lm_metrics(predictions, masked, masked_lm)
        factor = None if self._is_frozen else self.settings.generator_weight
        return corrupt(masked, sampled_BM), Losses(
            {"masked_lm": Loss(masked_lm.total, "masked", factor)},
            {**metrics, **sampled_metrics(sampled_BM, masked)},
        )

    @property
    def _is_frozen(self) -> bool:
        return self.settings.freeze_generator

    def _temperature(self, context: StepContext) -> tf.Tensor | float:
        """Return the sampling temperature at this share of training."""
        points = self.settings.temperature_schedule
        factor = scheduled_factor(points, context.progress) if points else 1.0
        return self.settings.temperature * factor

    def _scheduled(self, context: StepContext) -> dict[str, WeightedSum]:
        """Return the temperature as a metric, if it has a schedule."""
        if not self.settings.temperature_schedule:
            return {}
        value = self._temperature(context)
        return {"temperature": WeightedSum(value, tf.ones([]))}

    def sample_replacements(
        self,
        logits_BMV: tf.Tensor,
        predictions: MLMPredictions,
        labels_BM: tf.Tensor,
        context: StepContext,
    ) -> tf.Tensor:
        """Sample the tokens that replace the masked ones, as `objective` configures.

        `predictions` are those of the generator's logits. Return int32 [B, M], without
        gradient.
        """
        rows, positions, size = logits_BMV.shape
        settings = {
            "temperature": self._temperature(context),
            "disallow_correct": self.settings.disallow_correct,
        }
        if self.settings.sampler == "gumbel":
            uniform_BMV = context.rng.uniform(SAMPLES, rows, (positions, size))
            return sample_gumbel(logits_BMV, uniform_BMV, labels_BM, **settings)
        uniform_BM2 = context.rng.uniform(SAMPLES, rows, (positions, 2))
        probabilities_BMV = predictions.probabilities_BMV
        return sample_inverse_cdf(
            logits_BMV, probabilities_BMV, uniform_BM2, labels_BM, **settings
        )

    def generator_logits(self, masked: MaskedBatch, context: StepContext) -> tf.Tensor:
        """Return the generator's logits, float32 [B, M, V].

        Without a generator network they are the same everywhere.
        """
        if self.model.generator is None:
            shape = [*masked.positions_BM.shape, len(self._fixed_logits_V)]
            return tf.broadcast_to(tf.constant(self._fixed_logits_V), shape)
        return self.model.generator(
            masked.masked_ids_BL,
            **encoder_inputs(masked),
            positions=masked.positions_BM,
            layer_ops=context.layer_ops,
        )
