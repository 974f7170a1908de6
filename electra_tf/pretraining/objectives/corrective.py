"""ELECTRA whose discriminator also corrects the replaced tokens."""

import tensorflow as tf

from electra_tf.batch import CorruptedBatch, MaskedBatch
from electra_tf.kernels.fused_layer_ops import FusedLayerOps
from electra_tf.model.electra import gather
from electra_tf.pretraining.objectives.common import (
    Losses,
    encoder_inputs,
    masked_lm_losses,
)
from electra_tf.pretraining.objectives.electra import ElectraObjective


class CorrectiveObjective(ElectraObjective):
    """Replaced-token detection, and the original tokens at the masked positions.

    One encoder reads the generator's samples; beside the discriminator's head, a
    masked-LM head predicts the original tokens. This is the corrective language
    modelling of COCO-LM (arXiv 2102.08473, section 3.2) without its copy mechanism,
    and with a loss at the masked positions alone.
    """

    def weights(self, masked: MaskedBatch) -> dict[str, tf.Tensor]:
        """Count the masked positions, for both masked-LM heads, and the real tokens."""
        counts = super().weights(masked)
        return counts | {"main_lm": counts["masked_lm"]}

    def main_losses(
        self,
        masked: MaskedBatch,
        corrupted: CorruptedBatch,
        layer_ops: FusedLayerOps,
    ) -> Losses:
        """Run the discriminator's encoder once, and both heads on its states."""
        network = self.model.discriminator
        x_BLD = network.encoder(
            corrupted.corrupted_ids_BL, **encoder_inputs(masked), layer_ops=layer_ops
        )
        detected = self.discriminator_losses(network.head(x_BLD), masked, corrupted)
        logits_BMV = self.model.corrector(
            gather(x_BLD, masked.positions_BM),
            network.encoder.embeddings.word_embeddings,
            layer_ops=layer_ops,
        )
        weight = self.settings.main_weight
        return detected | masked_lm_losses(logits_BMV, masked, weight, "main_lm")
