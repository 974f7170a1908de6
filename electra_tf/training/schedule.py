"""Learning-rate schedule and layer-wise learning-rate multipliers."""

import dataclasses
import re
from typing import Any

import keras
import tensorflow as tf

from electra_tf.config.ended_settings import drop_ended
from electra_tf.errors import InputError


@keras.saving.register_keras_serializable("electra_tf")
class WarmupPolynomialDecay(keras.optimizers.schedules.LearningRateSchedule):
    """Learning rate of the released ELECTRA code: linear warm-up times a decay.

    rate(t) = peak * (1 - min(t, steps) / steps)^power * min(1, t / warmup), t from 0,
    in float32. With `restart`, steps up to it and steps after it are two stages, each
    with a t from 0 and a decay of its own.

    Args:
        peak: Factor of warm-up and decay, an upper bound of the rate.
        steps: Step from which on the rate is 0, or constant if `power` is 0.
        warmup: Number of warm-up steps, possibly fractional; 0 disables the warm-up.
        power: Exponent of the decay; 1 is linear.
        restart: Step at which a second stage begins; None: one stage.

    Raises:
        InputError: `steps` is below 1 or `warmup` is negative.

    Example:
        import electra_tf

        rate = electra_tf.WarmupPolynomialDecay(1e-3, steps=1000, warmup=100)
        rate(50)  # a float32 scalar; Keras optimizers accept `rate`
    """

    def __init__(
        self,
        peak: float,
        steps: int,
        warmup: float = 0.0,
        power: float = 1.0,
        restart: int | None = None,
    ):
        if steps < 1 or warmup < 0:
            raise InputError(
                "A schedule must have at least 1 step and no negative warmup, not "
                f"steps={steps}, warmup={warmup}"
            )
        self.peak, self.steps, self.warmup, self.power = peak, steps, warmup, power
        self.restart = restart

    def in_stage(self, step: tf.Tensor | int) -> tf.Tensor | int:
        """Return the number of a step within its stage, from 0."""
        if not self.restart:
            return step
        step = tf.convert_to_tensor(step)
        return tf.where(step < self.restart, step, step - self.restart)

    def __call__(self, step: tf.Tensor | int) -> tf.Tensor:
        """Return the rate of update `step`, counted from 0, as a float32 scalar."""
        steps = float(self.steps)
        if self.restart:
            ends = float(self.restart), float(self.steps - self.restart)
            steps = tf.where(step < self.restart, *ends)
        step = tf.cast(self.in_stage(step), tf.float32)
        # The released code computes 1 - step / steps. In float32 this is inaccurate
        # near the end, and XLA can make it negative.
        remaining = (steps - tf.minimum(step, steps)) / steps
        rate = self.peak * tf.pow(remaining, self.power)
        return rate * tf.minimum(1.0, step / self.warmup) if self.warmup else rate

    def get_config(self) -> dict[str, Any]:
        """Return the arguments by name."""
        names = ("peak", "steps", "warmup", "power", "restart")
        return {name: getattr(self, name) for name in names}


@keras.saving.register_keras_serializable("electra_tf", "_LayerwiseMultipliers")
@dataclasses.dataclass(frozen=True)
class LayerwiseMultipliers:
    """decay^(distance from the head), one more below the head, as in the original."""

    depth: int
    decay: float

    def __call__(self, path: str) -> float:
        """Return the factor of a weight."""
        # Match whole path components, so that `layer_1` does not match `layer_10`.
        layer = re.search(r"(?:^|/)(?:(embeddings(?:_project)?)|layer_(\d+))/", path)
        if not layer:
            return 1.0
        number = -1 if layer[1] else int(layer[2])
        if number >= self.depth:
            raise ValueError(f"{path} must be below the depth {self.depth}")
        return self.decay ** (self.depth - number + 1)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments by name."""
        return dataclasses.asdict(self)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "LayerwiseMultipliers":
        """Create the multipliers from the arguments in a config."""
        config = dict(config)
        drop_ended({"LayerwiseMultipliers": config}, "the saved optimizer")
        return cls(**config)
