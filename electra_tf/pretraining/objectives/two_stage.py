"""Two-stage training: the generator first, then the discriminator (section 3.2)."""

import keras
import tensorflow as tf

from electra_tf.batch import MaskedBatch
from electra_tf.config.pretraining import PretrainingConfig
from electra_tf.model.electra import ElectraPair
from electra_tf.model.transformer import DELTA
from electra_tf.pretraining.masking import SpecialTokens
from electra_tf.pretraining.objectives.common import (
    Losses,
    StepContext,
    masked_lm_losses,
)
from electra_tf.pretraining.objectives.electra import ElectraObjective


class TwoStageObjective(ElectraObjective):
    """ELECTRA whose networks are trained one after the other.

    The first stage trains the generator alone. Then the discriminator's encoder gets
    the generator's weights, and the second stage trains the discriminator with the
    generator frozen. A weight without gradient has no optimizer slots other than 0, so
    the second stage begins with a new optimizer.
    """

    def __init__(self, config: PretrainingConfig, tokens: SpecialTokens):
        super().__init__(config, tokens)
        self._restart = config.restart

    def begin(self, step: int) -> None:
        """Select the stage; copy the generator's weights when the second begins."""
        self.stage = 1 if step < self._restart else 2
        if step == self._restart:
            copy_encoder(self.model)

    def losses(self, masked: MaskedBatch, context: StepContext) -> Losses:
        """Compute the losses of the current stage, as sums over these rows."""
        if self.stage == 2:
            return super().losses(masked, context)
        logits_BMV = self.generator_logits(masked, context)
        return masked_lm_losses(logits_BMV, masked, self.settings.generator_weight)

    @property
    def _is_frozen(self) -> bool:
        return self.stage == 2


def copy_encoder(model: ElectraPair) -> None:
    """Give the discriminator's encoder the values of the generator's."""
    sources = {_name(v): v for v in model.generator.encoder.weights}
    for target in model.encoder.weights:
        if target.path.endswith(DELTA):
            target.assign(tf.zeros(target.shape))
        else:
            target.assign(sources[_name(target)])


def _name(variable: keras.Variable) -> str:
    return variable.path.rpartition("/encoder/")[2]
