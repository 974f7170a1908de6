"""Two-stage training: the generator first, then the discriminator (section 3.2)."""

import keras
import tensorflow as tf

from electra_tf.batch import MaskedBatch
from electra_tf.config.pretraining import PretrainingConfig
from electra_tf.kernels.rng import RngStream
from electra_tf.model.electra import Electra
from electra_tf.model.transformer import DELTA
from electra_tf.pretraining.losses import masked_lm_loss, mlm_predictions
from electra_tf.pretraining.masking import SpecialTokens
from electra_tf.pretraining.metrics import masked_lm_metrics
from electra_tf.pretraining.objectives.common import Losses, make_layer_ops
from electra_tf.pretraining.objectives.electra import ElectraObjective


class TwoStageObjective(ElectraObjective):
    """ELECTRA whose networks are trained one after the other.

    The first half of the steps trains the generator alone. Then the discriminator's
    encoder gets the generator's weights, and the second half trains the discriminator
    with the generator frozen. A weight without gradient has no optimizer slots other
    than 0, so the second half begins with a new optimizer.

    Args:
        config: Configuration of the run.
        tokens: Special tokens and size of the vocabulary.
    """

    def __init__(self, config: PretrainingConfig, tokens: SpecialTokens):
        super().__init__(config, tokens)
        self.stage_starts = (config.training.steps // 2,)

    def begin(self, step: int) -> None:
        """Select the stage; copy the generator's weights when the second begins.

        Args:
            step: Number of completed updates.
        """
        (boundary,) = self.stage_starts
        self.stage = 1 if step < boundary else 2
        if step == boundary:
            copy_encoder(self.model)

    def losses(
        self,
        masked: MaskedBatch,
        rng: RngStream,
        training: bool,
        progress: tf.Tensor | float = 0.0,
    ) -> Losses:
        """Compute the losses of the current stage.

        Args:
            masked: Rows with masked positions.
            rng: Random numbers of the step, for sampling and dropout.
            training: Whether dropout is applied.
            progress: Completed share of training, for schedules.

        Returns:
            Losses and metrics, as sums over these rows.
        """
        if self.stage == 2:
            losses = super().losses(masked, rng, training, progress)
            factors = {"disc": losses.factors["disc"]}
            return losses._replace(factors=factors)
        layer_ops = make_layer_ops(rng, training, self._xla)
        gen_logits_BMV = self._generator_logits(masked, layer_ops)
        predictions = mlm_predictions(gen_logits_BMV, masked.labels_BM)
        loss = masked_lm_loss(predictions, masked.weights_BM)
        return Losses(
            parts={"masked_lm": loss},
            factors={"masked_lm": self.settings.generator_weight},
            metrics=masked_lm_metrics(predictions, masked, loss),
        )


def copy_encoder(model: Electra) -> None:
    """Give the discriminator's encoder the values of the generator's.

    Args:
        model: Two networks of one shape, with `sharing` none or gdes.
    """
    sources = {_name(v): v for v in model.generator.encoder.weights}
    for target in model.encoder.weights:
        if target.path.endswith(DELTA):
            target.assign(tf.zeros(target.shape))
        else:
            target.assign(sources[_name(target)])


def _name(variable: keras.Variable) -> str:
    return variable.path.rpartition("/encoder/")[2]
