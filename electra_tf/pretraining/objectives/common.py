"""What every objective computes with, and answers with."""

from collections.abc import Mapping
from typing import NamedTuple

import tensorflow as tf

from electra_tf.batch import MaskedBatch
from electra_tf.kernels.fused_layer_ops import FusedLayerOps
from electra_tf.kernels.rng import RngStream
from electra_tf.pretraining.losses import WeightedSum


class Losses(NamedTuple):
    """The parts of a loss, not yet divided, and what was measured on the way."""

    parts: dict[str, WeightedSum]
    """The losses by name, as sums over this replica's rows."""
    factors: dict[str, float]
    """How much each counts in the whole."""
    metrics: dict[str, WeightedSum]
    """By the original's names."""

    def combined(self, weights: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """The loss: each part divided by its weight, times its factor.

        Args:
            weights: By the part's name, float32 scalars of the global batch. The sum
                of what all replicas get is the loss of the global batch.

        Returns:
            float32 scalar; a part of weight 0 counts 0.
        """
        return tf.add_n(
            [
                factor * tf.math.divide_no_nan(self.parts[name].total, weights[name])
                for name, factor in self.factors.items()
            ]
        )


def uses_jit(xla: str) -> bool:
    """Whether XLA gets forward and backward pass whole, on other devices than TPUs.

    Args:
        xla: The setting `training.xla`.
    """
    if xla == "auto":
        return bool(tf.config.list_logical_devices("GPU"))  # TPUs need no asking
    return xla == "on"


def make_layer_ops(rng: RngStream, training: bool, xla: str) -> FusedLayerOps:
    """What works between the products of one step.

    Args:
        rng: Of the step.
        training: Whether anything is dropped.
        xla: The setting `training.xla`.
    """
    kinds = {device.device_type for device in tf.config.list_logical_devices()}
    on_cpu = kinds == {"CPU"} and not uses_jit(xla)
    return FusedLayerOps(rng.dropout() if training else None, on_cpu)


def encoder_inputs(masked: MaskedBatch) -> dict[str, tf.Tensor]:
    """Segments and mask as the towers' arguments."""
    return {
        "segment_ids": masked.segment_ids_BL,
        "padding_mask": masked.input_mask_BL,
    }
