"""Replace MLM: predict the original tokens where a generator replaced them."""

from electra_tf.batch import CorruptedBatch, MaskedBatch
from electra_tf.pretraining.objectives.common import (
    Losses,
    StepContext,
    encoder_inputs,
    masked_lm_losses,
)
from electra_tf.pretraining.objectives.electra import ElectraObjective


class ReplaceMLMObjective(ElectraObjective):
    """Masked language modelling without [MASK] in the input (section 3.5).

    The main network reads the generator's samples at the masked positions and predicts
    the original tokens there. The generator is trained as in ELECTRA.
    """

    denominators = ("masked",)

    def main_losses(
        self, masked: MaskedBatch, corrupted: CorruptedBatch, context: StepContext
    ) -> Losses:
        """Predict the original tokens at the masked positions."""
        logits_BMV = self.model.main(
            corrupted.corrupted_ids_BL,
            **encoder_inputs(masked),
            positions=masked.positions_BM,
            layer_ops=context.layer_ops,
        )
        weight = self.settings.main_weight
        return masked_lm_losses(logits_BMV, masked, weight, "main_lm")
