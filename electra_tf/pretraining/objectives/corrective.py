"""ELECTRA whose discriminator also corrects the replaced tokens."""

import tensorflow as tf

from electra_tf.batch import MaskedBatch
from electra_tf.kernels.rng import RngStream
from electra_tf.model.electra import gather
from electra_tf.pretraining.losses import (
    masked_lm_loss,
    mlm_predictions,
    replaced_token_loss,
)
from electra_tf.pretraining.metrics import discriminator_metrics, masked_lm_metrics
from electra_tf.pretraining.objectives.common import (
    Losses,
    encoder_inputs,
    make_layer_ops,
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

    def joint_losses(
        self,
        masked: MaskedBatch,
        rng: RngStream,
        training: bool,
        progress: tf.Tensor | float,
    ) -> Losses:
        """Run generator, sampling and both heads, and compute the three losses."""
        layer_ops = make_layer_ops(rng, training, self._xla)
        corrupted, generated = self._corrupt(masked, rng, layer_ops, progress)
        network = self.model.discriminator
        x_BLD = network.encoder(
            corrupted.corrupted_ids_BL, **encoder_inputs(masked), layer_ops=layer_ops
        )
        disc_logits_BL, real_BL = network.head(x_BLD), self.discriminated(masked)
        disc = replaced_token_loss(disc_logits_BL, corrupted.is_fake_BL, real_BL)
        logits_BMV = self.model.corrector(
            gather(x_BLD, masked.positions_BM),
            network.encoder.embeddings.word_embeddings,
            layer_ops=layer_ops,
        )
        predictions = mlm_predictions(logits_BMV, masked.labels_BM)
        loss = masked_lm_loss(predictions, masked.weights_BM)
        metrics = masked_lm_metrics(predictions, masked, loss)
        return Losses(
            parts={**generated.parts, "disc": disc, "main_lm": loss},
            factors={
                **generated.factors,
                "disc": self._discriminator_weight(progress),
                "main_lm": self.settings.main_weight,
            },
            metrics={
                **generated.metrics,
                **discriminator_metrics(disc_logits_BL, corrupted, real_BL, disc),
                "main_lm_loss": metrics["masked_lm_loss"],
                "main_lm_accuracy": metrics["masked_lm_accuracy"],
                **self._scheduled_settings(progress),
            },
        )
