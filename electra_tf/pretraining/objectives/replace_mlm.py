"""Replace MLM: predict the original tokens where a generator replaced them."""

import tensorflow as tf

from electra_tf.batch import CorruptedBatch, MaskedBatch
from electra_tf.kernels.fused_layer_ops import FusedLayerOps
from electra_tf.pretraining.objectives.common import (
    Losses,
    encoder_inputs,
    masked_lm_losses,
)
from electra_tf.pretraining.objectives.electra import ElectraObjective


class ReplaceMLMObjective(ElectraObjective):
    """Masked language modelling without [MASK] in the input (section 3.5).

    The main network reads the generator's samples at the masked positions and predicts
    the original tokens there. The generator is trained as in ELECTRA.
    """

    def weights(self, masked: MaskedBatch) -> dict[str, tf.Tensor]:
        """Count the masked positions, for both networks."""
        count = tf.reduce_sum(masked.weights_BM)
        return {"masked_lm": count, "main_lm": count}

    def main_losses(
        self,
        masked: MaskedBatch,
        corrupted: CorruptedBatch,
        layer_ops: FusedLayerOps,
    ) -> Losses:
        """Predict the original tokens at the masked positions."""
        logits_BMV = self.model.main(
            corrupted.corrupted_ids_BL,
            **encoder_inputs(masked),
            positions=masked.positions_BM,
            layer_ops=layer_ops,
        )
        weight = self.settings.main_weight
        return masked_lm_losses(logits_BMV, masked, weight, "main_lm")
