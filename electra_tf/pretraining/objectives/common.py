"""Types and functions that all objectives share."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import ClassVar, NamedTuple

import tensorflow as tf

from electra_tf import compat
from electra_tf.batch import MaskedBatch
from electra_tf.config.pretraining import PretrainingConfig
from electra_tf.kernels.fused_layer_ops import FusedLayerOps, has_only_cpus
from electra_tf.kernels.rng import DropoutSeeds, RngStream
from electra_tf.model.electra import pretraining_model
from electra_tf.model.encoder import TransformerEncoder
from electra_tf.pretraining.losses import WeightedSum, masked_lm_loss, mlm_predictions
from electra_tf.pretraining.masking import (
    Masker,
    SpecialTokens,
    mark_masked,
    maskable,
)
from electra_tf.pretraining.metrics import masked_lm_metrics

Progress = tf.Tensor | float
"""Completed share of training, for the schedule of the temperature."""

_TOKENS = {
    "masked": lambda masked, _: masked.weights_BM,
    "distinct": lambda masked, _: mark_masked(masked),
    "maskable": maskable,
    "real": lambda masked, _: masked.input_mask_BL,
}
"""Tokens that a loss may be divided by, as functions of a batch that return 1 there.

`masked` counts a position twice that was drawn twice, `distinct` once."""


@dataclasses.dataclass(frozen=True)
class StepContext:
    """Inputs of a forward pass besides the batch and the weights."""

    rng: RngStream
    """Random numbers of the step, for samples and dropout."""
    progress: Progress
    layer_ops: FusedLayerOps
    """Operations of the layers, with dropout in training."""


class Objective:
    """Base class of the objectives, with one stage of training."""

    stage = 1
    """Number of the current stage. `losses` depends on it."""
    denominators: ClassVar[tuple[str, ...]] = ("masked",)
    """Names of the tokens over which the losses are means."""
    make_layer_ops: Callable[[DropoutSeeds | None, bool], FusedLayerOps] = FusedLayerOps
    """Function or class that creates the operations of the layers of one step."""

    def __init__(self, config: PretrainingConfig, tokens: SpecialTokens):
        training = config.training
        self.settings, self._tokens = config.objective, tokens
        self.mask = Masker(config.masking, tokens, config.records.max_length)
        self.model = pretraining_model(
            config.model, config.objective, training.seed, training.precision
        )
        for layer in compat.sublayers(self.model):
            if isinstance(layer, TransformerEncoder):
                layer.remat = training.remat
        self._xla = training.xla

    def begin(self, step: int) -> None:
        """Prepare the update that follows `step` completed ones."""

    def context(
        self, rng: RngStream, training: bool, progress: Progress = 0.0
    ) -> StepContext:
        """Return the context of one forward pass."""
        on_cpu = has_only_cpus() and not uses_jit(self._xla)
        layer_ops = self.make_layer_ops(rng.dropout() if training else None, on_cpu)
        return StepContext(rng, progress, layer_ops)

    def tokens(self, name: str, masked: MaskedBatch) -> tf.Tensor:
        """Return 1 at the tokens of a denominator, 0 elsewhere."""
        return _TOKENS[name](masked, self._tokens)

    def counts(self, masked: MaskedBatch) -> dict[str, tf.Tensor]:
        """Count the tokens of each denominator, float32."""
        return {
            name: tf.reduce_sum(tf.cast(self.tokens(name, masked), tf.float32))
            for name in self.denominators
        }


class Loss(NamedTuple):
    """Loss of one network, as a sum over this replica's rows."""

    total: tf.Tensor
    denominator: str
    """Name of the tokens over whose number in the global batch it is a mean."""
    factor: float | None
    """Weight in the total loss; None: the loss is no part of it."""


class Losses(NamedTuple):
    """Result of an objective's forward pass on one replica's rows."""

    parts: dict[str, Loss]
    """Losses by name."""
    metrics: dict[str, WeightedSum]
    """Metrics by name. The names are those of the released ELECTRA code."""

    def __or__(self, other: "Losses") -> "Losses":
        return Losses(
            *(ours | theirs for ours, theirs in zip(self, other, strict=True))
        )

    def combined(self, counts: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Return the total loss: the sum of factor * total / count of each part.

        `counts` are those of the global batch by denominator, so that the results of
        all replicas add up to its loss. A part without tokens contributes 0.
        """
        return tf.add_n(
            [
                factor * tf.math.divide_no_nan(total, counts[denominator])
                for total, denominator, factor in self.parts.values()
                if factor is not None
            ]
        )


def masked_lm_losses(
    logits_BMV: tf.Tensor, masked: MaskedBatch, weight: float, name: str = "masked_lm"
) -> Losses:
    """Return the loss and metrics of predicting the original tokens."""
    predictions = mlm_predictions(logits_BMV, masked.labels_BM)
    loss = masked_lm_loss(predictions, masked.weights_BM)
    metrics = masked_lm_metrics(predictions, masked, loss, name)
    return Losses({name: Loss(loss.total, "masked", weight)}, metrics)


def uses_jit(xla: str) -> bool:
    """Return whether XLA compiles the step, of several replicas its two passes.

    On TPUs XLA compiles the whole step in any case.
    """
    if xla == "auto":
        return bool(tf.config.list_logical_devices("GPU"))
    return xla == "on"


def encoder_inputs(masked: MaskedBatch) -> dict[str, tf.Tensor]:
    """Return segment ids and padding mask as keyword arguments of an encoder."""
    return {"segment_ids": masked.segment_ids_BL, "padding_mask": masked.input_mask_BL}
