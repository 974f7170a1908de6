"""Replace MLM: predict the original tokens where a generator replaced them."""

import tensorflow as tf

from electra_tf.batch import MaskedBatch
from electra_tf.kernels.rng import RngStream
from electra_tf.pretraining.losses import masked_lm_loss, mlm_predictions
from electra_tf.pretraining.metrics import masked_lm_metrics
from electra_tf.pretraining.objectives.common import (
    Losses,
    encoder_inputs,
    make_layer_ops,
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

    def losses(
        self,
        masked: MaskedBatch,
        rng: RngStream,
        training: bool,
        progress: tf.Tensor | float = 0.0,
    ) -> Losses:
        """Run generator, sampling and main network, and compute both losses.

        Returns:
            Both losses and all metrics, as sums over these rows.
        """
        layer_ops = make_layer_ops(rng, training, self._xla)
        corrupted, generated = self._corrupt(masked, rng, layer_ops, progress)
        logits_BMV = self.model.main(
            corrupted.corrupted_ids_BL,
            **encoder_inputs(masked),
            positions=masked.positions_BM,
            layer_ops=layer_ops,
        )
        predictions = mlm_predictions(logits_BMV, masked.labels_BM)
        loss = masked_lm_loss(predictions, masked.weights_BM)
        metrics = masked_lm_metrics(predictions, masked, loss)
        return Losses(
            parts={**generated.parts, "main_lm": loss},
            factors={**generated.factors, "main_lm": self.settings.main_weight},
            metrics={
                **generated.metrics,
                "main_lm_loss": metrics["masked_lm_loss"],
                "main_lm_accuracy": metrics["masked_lm_accuracy"],
                **self._scheduled_settings(progress),
            },
        )
