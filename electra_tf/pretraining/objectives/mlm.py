"""Masked language modelling as in BERT: one full-size encoder, no discriminator."""

import tensorflow as tf

from electra_tf.batch import MaskedBatch
from electra_tf.kernels.rng import RngStream
from electra_tf.pretraining.objectives.common import (
    Losses,
    Objective,
    Progress,
    encoder_inputs,
    masked_lm_losses,
)


class MaskedLMObjective(Objective):
    """Masked language model trained on L_MLM (baseline of the paper, section 3.5)."""

    def weights(self, masked: MaskedBatch) -> dict[str, tf.Tensor]:
        """Count the masked positions."""
        return {"masked_lm": tf.reduce_sum(masked.weights_BM)}

    def losses(
        self,
        masked: MaskedBatch,
        rng: RngStream,
        training: bool,
        progress: Progress = 0.0,
    ) -> Losses:
        """Predict the masked tokens; return the loss and its metrics."""
        logits_BMV = self.model(
            masked.masked_ids_BL,
            **encoder_inputs(masked),
            positions=masked.positions_BM,
            layer_ops=self.layer_ops(rng, training),
        )
        return masked_lm_losses(logits_BMV, masked, self.settings.generator_weight)
