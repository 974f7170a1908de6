"""Types and functions that all objectives share."""

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

from electra_tf.batch import MaskedBatch
from electra_tf.kernels.fused_layer_ops import FusedLayerOps
from electra_tf.kernels.rng import RngStream
from electra_tf.pretraining.losses import (
    WeightedSum,
    masked_lm_loss,
    mlm_predictions,
)
from electra_tf.pretraining.metrics import masked_lm_metrics


class Objective:
    """Base class of the objectives, with one stage of training."""

    stage = 1
    """Number of the current stage. `losses` depends on it."""
    stage_starts: tuple[int, ...] = ()
    """Numbers of completed steps at which a new stage begins."""

    def begin(self, step: int) -> None:
        """Prepare the update that follows `step` completed ones."""


class Losses(NamedTuple):
    """Result of an objective's forward pass on one replica's rows."""

    parts: dict[str, WeightedSum]
    """Losses by name, as sums over this replica's rows."""
    factors: dict[str, float | tf.Tensor]
    """Weight of each loss in the total loss."""
    metrics: dict[str, WeightedSum]
    """Metrics by name. The names are those of the released ELECTRA code."""

    def combined(self, weights: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Return the total loss: the sum of factor * total / weight of each part.

        Args:
            weights: float32 scalars by the name of the part, summed over the global
                batch. The results of all replicas then add up to the loss of the
                global batch.

        Returns:
            float32 scalar. A part of weight 0 contributes 0.
        """
        return tf.add_n(
            [
                factor * tf.math.divide_no_nan(self.parts[name].total, weights[name])
                for name, factor in self.factors.items()
            ]
        )


def masked_lm_losses(
    logits_BMV: tf.Tensor, masked: MaskedBatch, weight: float
) -> Losses:
    """Return the loss and metrics of predicting the masked tokens, and no other loss.

    Args:
        logits_BMV: float32.
        masked: Rows with masked positions.
        weight: Of the loss.
    """
    predictions = mlm_predictions(logits_BMV, masked.labels_BM)
    loss = masked_lm_loss(predictions, masked.weights_BM)
    metrics = masked_lm_metrics(predictions, masked, loss)
    return Losses({"masked_lm": loss}, {"masked_lm": weight}, metrics)


def scheduled(
    value: float, points: Sequence[tuple[float, float]], progress: tf.Tensor | float
) -> tf.Tensor | float:
    """Multiply a setting by the factor of its schedule.

    Args:
        value: The setting.
        points: Completed shares of training with factors, linear in between and
            constant outside; none: 1.
        progress: Completed share of training, a float32 scalar.

    Returns:
        float32 scalar, or `value` itself without a schedule.
    """
    if not points:
        return value
    factor = tf.constant(points[0][1])
    for (start, first), (end, last) in itertools.pairwise(points):
        passed = tf.clip_by_value((progress - start) / (end - start), 0.0, 1.0)
        factor += (last - first) * passed
    return value * factor


def uses_jit(xla: str) -> bool:
    """Return whether XLA compiles forward and backward pass as one function.

    On TPUs XLA compiles the whole step in any case.
    """
    if xla == "auto":
        return bool(tf.config.list_logical_devices("GPU"))
    return xla == "on"


def make_layer_ops(rng: RngStream, training: bool, xla: str) -> FusedLayerOps:
    """Create the element-wise operations, dropout included, of one step."""
    kinds = {device.device_type for device in tf.config.list_logical_devices()}
    on_cpu = kinds == {"CPU"} and not uses_jit(xla)
    return FusedLayerOps(rng.dropout() if training else None, on_cpu)


def encoder_inputs(masked: MaskedBatch) -> dict[str, tf.Tensor]:
    """Return segment ids and padding mask as keyword arguments of an encoder."""
    return {
        "segment_ids": masked.segment_ids_BL,
        "padding_mask": masked.input_mask_BL,
    }
