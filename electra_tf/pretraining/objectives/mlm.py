"""Masked language modelling as in BERT: one full-size encoder, no discriminator."""

from electra_tf.batch import MaskedBatch
from electra_tf.pretraining.objectives.common import (
    Losses,
    Objective,
    StepContext,
    encoder_inputs,
    masked_lm_losses,
)


class MaskedLMObjective(Objective):
    """Masked language model trained on L_MLM (baseline of the paper, section 3.5)."""

    def losses(self, masked: MaskedBatch, context: StepContext) -> Losses:
        """Predict the masked tokens; return the loss and its metrics."""
        logits_BMV = self.model(
            masked.masked_ids_BL,
            **encoder_inputs(masked),
            positions=masked.positions_BM,
            layer_ops=context.layer_ops,
        )
        return masked_lm_losses(logits_BMV, masked, self.settings.generator_weight)
