"""Types and functions that all objectives share."""

import contextlib
from collections.abc import Mapping
from typing import NamedTuple

import keras
import tensorflow as tf

from electra_tf.batch import MaskedBatch
from electra_tf.config.pretraining import PretrainingConfig
from electra_tf.kernels.device_layer_ops import make_layer_ops
from electra_tf.kernels.fused_layer_ops import FusedLayerOps, has_only_cpus
from electra_tf.kernels.rng import RngStream
from electra_tf.model.electra import pretraining_model
from electra_tf.pretraining.losses import WeightedSum, masked_lm_loss, mlm_predictions
from electra_tf.pretraining.masking import Masker, SpecialTokens
from electra_tf.pretraining.metrics import masked_lm_metrics

Progress = tf.Tensor | float
"""Completed share of training, for the schedule of the temperature."""


class Objective:
    """Base class of the objectives, with one stage of training."""

    stage = 1
    """Number of the current stage. `losses` depends on it."""

    def __init__(self, config: PretrainingConfig, tokens: SpecialTokens):
        training = config.training
        self.settings = config.objective
        self.mask = Masker(config.masking, tokens, config.records.max_length)
        with _remat_scope(training.remat):
            self.model = pretraining_model(
                config.model, config.objective, training.seed, training.precision
            )
        self._xla = training.xla

    def begin(self, step: int) -> None:
        """Prepare the update that follows `step` completed ones."""

    def layer_ops(self, rng: RngStream, training: bool) -> FusedLayerOps:
        """Create the operations of one step's layers, with dropout in training."""
        on_cpu = has_only_cpus() and not uses_jit(self._xla)
        return make_layer_ops(rng.dropout() if training else None, on_cpu)


class Losses(NamedTuple):
    """Result of an objective's forward pass on one replica's rows."""

    parts: dict[str, WeightedSum]
    """Losses by name, as sums over this replica's rows."""
    factors: dict[str, float]
    """Weight of each loss in the total loss."""
    metrics: dict[str, WeightedSum]
    """Metrics by name. The names are those of the released ELECTRA code."""

    def __or__(self, other: "Losses") -> "Losses":
        return Losses(
            *(ours | theirs for ours, theirs in zip(self, other, strict=True))
        )

    def combined(self, weights: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Return the total loss: the sum of factor * total / weight of each part.

        `weights` are those of the global batch by name, so that the results of all
        replicas add up to its loss. A part of weight 0 contributes 0.
        """
        return tf.add_n(
            [
                factor * tf.math.divide_no_nan(self.parts[name].total, weights[name])
                for name, factor in self.factors.items()
            ]
        )


def masked_lm_losses(
    logits_BMV: tf.Tensor, masked: MaskedBatch, weight: float, name: str = "masked_lm"
) -> Losses:
    """Return the loss and metrics of predicting the original tokens."""
    predictions = mlm_predictions(logits_BMV, masked.labels_BM)
    loss = masked_lm_loss(predictions, masked.weights_BM)
    metrics = masked_lm_metrics(predictions, masked, loss, name)
    return Losses({name: loss}, {name: weight}, metrics)


def uses_jit(xla: str) -> bool:
    """Return whether XLA compiles the step, of several replicas its two passes.

    On TPUs XLA compiles the whole step in any case.
    """
    if xla == "auto":
        return bool(tf.config.list_logical_devices("GPU"))
    return xla == "on"


def _remat_scope(remat: bool) -> contextlib.AbstractContextManager:
    """Return the scope in which the networks are created."""
    if not remat:
        return contextlib.nullcontext()
    encoders = ["encoder", "left_encoder", "right_encoder"]
    return keras.RematScope("list_of_layers", layer_names=encoders)


def encoder_inputs(masked: MaskedBatch) -> dict[str, tf.Tensor]:
    """Return segment ids and padding mask as keyword arguments of an encoder."""
    return {"segment_ids": masked.segment_ids_BL, "padding_mask": masked.input_mask_BL}
