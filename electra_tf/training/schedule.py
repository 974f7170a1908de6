"""Learning-rate schedule and layer-wise learning-rate multipliers."""

import dataclasses
import re
from collections.abc import Callable
from typing import Any, Literal

import keras
import tensorflow as tf

from electra_tf.errors import InputError


@keras.saving.register_keras_serializable("electra_tf")
class WarmupPolynomialDecay(keras.optimizers.schedules.LearningRateSchedule):
    """Original ELECTRA schedule: linear warm-up times a decay from step 0.

    rate(t) = peak * (1 - min(t, steps) / steps)^power * min(1, t / warmup), t from 0,
    in float32.

    Args:
        peak: Factor of decay and warm-up; the rate stays below it.
        steps: The rate is 0 from this step on (`peak` with a power of 0).
        warmup: Number of warm-up steps, possibly fractional; 0: no warm-up.
        power: Exponent of the decay; 1 is linear.

    Raises:
        InputError: No steps, or a negative warm-up.

    Example:
        import electra_tf

        rate = electra_tf.WarmupPolynomialDecay(1e-3, steps=1000, warmup=100)
        rate(50)  # a float32 scalar; Keras's optimizers take the object
    """

    def __init__(
        self, peak: float, steps: int, warmup: float = 0.0, power: float = 1.0
    ):
        if steps < 1 or warmup < 0:
            raise InputError(
                "A schedule has one step or more, and a warm-up of 0 or more",
                f"{steps} steps, a warm-up of {warmup}",
                "Train for longer, or set optimizer.warmup_steps to 0",
            )
        self.peak, self.steps, self.warmup, self.power = peak, steps, warmup, power

    def __call__(self, step: tf.Tensor | int) -> tf.Tensor:
        """Return the rate of update `step`, counted from 0, as a float32 scalar."""
        step = tf.cast(step, tf.float32)
        # 1 - step / steps, the form of the original, is inaccurate near the end in
        # float32 and can be negative under XLA.
        left = (self.steps - tf.minimum(step, self.steps)) / self.steps
        rate = self.peak * tf.pow(left, self.power)
        return rate * tf.minimum(1.0, step / self.warmup) if self.warmup else rate

    def get_config(self) -> dict[str, Any]:
        """Return the arguments by name."""
        return {
            "peak": self.peak,
            "steps": self.steps,
            "warmup": self.warmup,
            "power": self.power,
        }


def layerwise_multipliers(
    depth: int, decay: float, rule: Literal["original", "exact"] = "original"
) -> Callable[[str], float]:
    """Return learning-rate multipliers: decay^(distance from the head).

    Args:
        depth: Number of Transformer layers of the encoder.
        decay: Factor from one layer to the next lower one.
        rule: `original`: the last layer is at distance 2, as released (a pooler once
            stood between it and the head). `exact`: it is at distance 1.

    Returns:
        The factor for a variable's path. Embeddings and their projection are one
        below the first layer; what belongs to no layer is a head, of factor 1. A
        path with a layer beyond `depth` is an `InputError`.
    """
    return _LayerwiseMultipliers(depth, decay, rule)


@keras.saving.register_keras_serializable("electra_tf")
@dataclasses.dataclass(frozen=True)
class _LayerwiseMultipliers:
    """Serializable function from a variable path to its multiplier."""

    depth: int
    decay: float
    rule: Literal["original", "exact"]

    def __call__(self, path: str) -> float:
        # Match whole path components, so that `layer_1` does not match `layer_10`.
        layer = re.search(r"(?:^|/)(?:(embeddings(?:_project)?)|layer_(\d+))/", path)
        if not layer:
            return 1.0
        number = -1 if layer[1] else int(layer[2])
        if number >= self.depth:
            raise InputError(
                f"Layer-wise rates are told the depth of the model: {self.depth}",
                path,
                "Pass the encoder's depth",
            )
        pooler = 1 if self.rule == "original" else 0
        return self.decay ** (self.depth - number + pooler)

    def get_config(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "_LayerwiseMultipliers":
        return cls(**config)
