"""Masked language modelling as in BERT: one full-size encoder, no discriminator."""

import tensorflow as tf

from electra_tf.batch import MaskedBatch
from electra_tf.config.pretraining import PretrainingConfig
from electra_tf.kernels.rng import RngStream
from electra_tf.model.electra import pretraining_model
from electra_tf.pretraining.masking import Masker, SpecialTokens
from electra_tf.pretraining.objectives.common import (
    Losses,
    Objective,
    encoder_inputs,
    make_layer_ops,
    masked_lm_losses,
)


class MaskedLMObjective(Objective):
    """Masked language model trained on L_MLM (baseline of the paper, section 3.5)."""

    def __init__(self, config: PretrainingConfig, tokens: SpecialTokens):
        self.settings = config.objective
        self.mask = Masker(config.masking, tokens, config.records.max_length)
        self.model = pretraining_model(
            config.model,
            config.objective,
            config.training.seed,
            config.training.precision,
        )
        self._xla = config.training.xla

    def weights(self, masked: MaskedBatch) -> dict[str, tf.Tensor]:
        """Count the masked positions."""
        return {"masked_lm": tf.reduce_sum(masked.weights_BM)}

    def losses(
        self,
        masked: MaskedBatch,
        rng: RngStream,
        training: bool,
        progress: tf.Tensor | float = 0.0,
    ) -> Losses:
        """Predict the masked tokens and compute the loss.

        Returns:
            The loss and its metrics, as sums over these rows.
        """
        logits_BMV = self.model(
            masked.masked_ids_BL,
            **encoder_inputs(masked),
            positions=masked.positions_BM,
            layer_ops=make_layer_ops(rng, training, self._xla),
        )
        return masked_lm_losses(logits_BMV, masked, self.settings.generator_weight)
