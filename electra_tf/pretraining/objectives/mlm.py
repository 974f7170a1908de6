"""BERT's masked language modelling: one full-size encoder fills in the masks."""

import tensorflow as tf

from electra_tf.batch import MaskedBatch
from electra_tf.kernels.noise import Noise
from electra_tf.model.electra import bert
from electra_tf.pretraining.losses import guess, masked_lm_loss
from electra_tf.pretraining.masking import Masker, TokenIds
from electra_tf.pretraining.metrics import masked_lm_metrics
from electra_tf.pretraining.objectives.common import Losses, chains_of, text
from electra_tf.settings import Config


class MaskedLM:
    """L_MLM alone (the paper's baseline, section 3.3).

    Args:
        config: The experiment.
        tokens: What masking has to know of the vocabulary.
    """

    def __init__(self, config: Config, tokens: TokenIds):
        self.settings = config.objective
        self.mask = Masker(config.masking, tokens, config.records.max_length)
        self.model = bert(config.model, config.training.seed, config.training.precision)
        self._xla = config.training.xla

    def weights(self, masked: MaskedBatch) -> dict[str, tf.Tensor]:
        """Masked positions."""
        return {"masked_lm": tf.reduce_sum(masked.weights_BM)}

    def losses(self, masked: MaskedBatch, noise: Noise, training: bool) -> Losses:
        """Guesses the masked tokens."""
        logits_BMV = self.model(
            masked.masked_ids_BL,
            **text(masked),
            positions=masked.positions_BM,
            chains=chains_of(noise, training, self._xla),
        )
        guessed = guess(logits_BMV, masked.labels_BM)
        loss = masked_lm_loss(guessed, masked.weights_BM)
        return Losses(
            parts={"masked_lm": loss},
            factors={"masked_lm": self.settings.generator_weight},
            metrics=masked_lm_metrics(guessed, masked, loss),
        )
