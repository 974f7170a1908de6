"""BERT's masked language modelling: one full-size encoder fills in the masks."""

import tensorflow as tf

from electra_tf.batch import MaskedBatch
from electra_tf.config.pretraining import PretrainingConfig
from electra_tf.kernels.rng import RngStream
from electra_tf.model.electra import bert
from electra_tf.pretraining.losses import masked_lm_loss, mlm_predictions
from electra_tf.pretraining.masking import Masker, SpecialTokens
from electra_tf.pretraining.metrics import masked_lm_metrics
from electra_tf.pretraining.objectives.common import (
    Losses,
    encoder_inputs,
    make_layer_ops,
)


class MaskedLMObjective:
    """L_MLM alone (the paper's baseline, section 3.3).

    Args:
        config: The experiment.
        tokens: What masking has to know of the vocabulary.
    """

    def __init__(self, config: PretrainingConfig, tokens: SpecialTokens):
        self.settings = config.objective
        self.mask = Masker(config.masking, tokens, config.records.max_length)
        self.model = bert(config.model, config.training.seed, config.training.precision)
        self._xla = config.training.xla

    def weights(self, masked: MaskedBatch) -> dict[str, tf.Tensor]:
        """Masked positions."""
        return {"masked_lm": tf.reduce_sum(masked.weights_BM)}

    def losses(self, masked: MaskedBatch, rng: RngStream, training: bool) -> Losses:
        """Guesses the masked tokens."""
        logits_BMV = self.model(
            masked.masked_ids_BL,
            **encoder_inputs(masked),
            positions=masked.positions_BM,
            layer_ops=make_layer_ops(rng, training, self._xla),
        )
        predictions = mlm_predictions(logits_BMV, masked.labels_BM)
        loss = masked_lm_loss(predictions, masked.weights_BM)
        return Losses(
            parts={"masked_lm": loss},
            factors={"masked_lm": self.settings.generator_weight},
            metrics=masked_lm_metrics(predictions, masked, loss),
        )
