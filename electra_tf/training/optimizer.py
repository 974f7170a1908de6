"""Gradients -> updates: the paper's Adam, AdamW and LAMB on any number of replicas.

Keras's optimizers clip each replica's gradient before the replicas are summed; here
the clipped gradient is the sum, so one replica and many compute the same update.

Bias correction only changes scalars: with c1 = 1 - beta_1^t, c2 = 1 - beta_2^t,

    (m / c1) / (sqrt(v / c2) + epsilon) = k * m / (sqrt(v) + epsilon * sqrt(c2))

where k = sqrt(c2) / c1. So one rule serves all; the paper's Adam has c1 = c2 = 1.
"""

import dataclasses
import functools
import math
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from electra_tf.config.pretraining import OptimizerConfig as Settings
from electra_tf.errors import InputError
from electra_tf.training.schedule import WarmupPolynomialDecay

Gradient = tf.Tensor | tf.IndexedSlices | None
Variable = keras.Variable | tf.Variable


def build_optimizer(
    settings: Settings,
    steps: int,
    multipliers: Callable[[str], float] | None = None,
) -> "Optimizer":
    """Makes the optimizer that the settings describe, for a run of `steps` updates.

    Args:
        settings: All of it.
        steps: Updates of the whole run; the rate has fallen to 0 after them.
        multipliers: From a variable's path to a factor of its rate; None: 1.

    Returns:
        An optimizer that is not built yet.
    """
    schedule = WarmupPolynomialDecay(
        settings.learning_rate, steps, settings.warmup_steps, settings.decay_power
    )
    return Optimizer(schedule, settings, multipliers)


@keras.saving.register_keras_serializable("electra_tf")
class Optimizer(keras.optimizers.Optimizer):
    """Adam, AdamW or LAMB, for Keras's `compile` and for loops of one's own.

    A gradient must be this replica's share: its loss divided by what is counted over
    all replicas. Constraints of variables are not applied.

    Args:
        schedule: From the number of updates so far to the rate.
        settings: The rule and its constants; rate, warm-up and decay of the rate are
            the schedule's.
        multipliers: From a variable's path to a factor of its rate; None: 1.
        name: Of the slots' scope; None: the rule's name.
    """

    def __init__(
        self,
        schedule: WarmupPolynomialDecay,
        settings: Settings,
        multipliers: Callable[[str], float] | None = None,
        name: str | None = None,
    ):
        super().__init__(learning_rate=schedule, name=name or settings.name)
        self.schedule = schedule
        self.settings = settings
        self.multipliers = multipliers
        self._strategy = tf.distribute.get_strategy()

    def build(self, variables: Sequence[Variable]) -> None:
        """Creates the slots `m` and `v` of each variable; a second call does nothing.

        Args:
            variables: What will be updated, all float32.

        Raises:
            InputError: No variables, variables of another type, or a distribution
                strategy other than the one the optimizer was made under.
        """
        if self.built:
            return
        others = [_path(v) for v in variables if v.dtype != "float32"]
        if not variables or others:
            raise InputError(
                "An optimizer is built with float32 variables",
                ", ".join(others) or "no variables",
                "Build the model first, and pass its trainable_variables",
            )
        if tf.distribute.get_strategy() is not self._strategy:
            raise InputError(
                "An optimizer is made and built under one distribution strategy",
                f"{type(self._strategy).__name__}, then "
                f"{type(tf.distribute.get_strategy()).__name__}",
                "Make the optimizer within strategy.scope()",
            )
        paths = [_path(variable) for variable in variables]
        self._decays = tuple(
            not any(re.search(pattern, path) for pattern in self.settings.no_decay)
            for path in paths
        )
        self._factors = tuple(
            self.multipliers(path) if self.multipliers else 1.0 for path in paths
        )
        super().build(list(variables))
        self._means, self._squares = self.add_optimizer_variables(variables, ["m", "v"])

    def slots(self) -> dict[str, list[keras.Variable]]:
        """Returns the slots by name, each in the order of the built variables."""
        self._require_built()
        return {"m": list(self._means), "v": list(self._squares)}

    def apply(
        self,
        grads: Sequence[Gradient],
        trainable_variables: Sequence[Variable] | None = None,
    ) -> None:
        """Does what `update` does; Keras calls this one.

        Args:
            grads: This replica's gradients; None leaves a variable alone.
            trainable_variables: The variables; None: those it was built with.
        """
        if trainable_variables is None:
            self._require_built()
            trainable_variables = self._trainable_variables
        trainable_variables = list(trainable_variables)
        self.build(trainable_variables)
        self.update(grads, trainable_variables)

    def update(
        self, gradients: Sequence[Gradient], variables: Sequence[Variable]
    ) -> tf.Tensor:
        """Sums the gradients over the replicas, clips the sum, updates the variables.

        Args:
            gradients: This replica's gradients. A variable whose gradient is None is
                left alone: no decay, and its slots stay.
            variables: One for each gradient, among those the optimizer was built
                with.

        Returns:
            The norm of the whole summed gradient before it was clipped, a float32
            scalar. If it is not finite, clipped weights have become NaN.

        Raises:
            InputError: Before `build`, a variable it was not built with, no gradient.
        """
        self._require_built()
        pairs = zip(gradients, variables, strict=True)
        pairs = [(g, v) for g, v in pairs if g is not None]
        if not pairs:
            raise InputError(
                "At least one variable has a gradient",
                f"{len(variables)} variables without one",
                "Compute the loss within the tape, from these variables",
            )
        targets = [(self._index(variable), _native(variable)) for _, variable in pairs]
        summed = [_dense(gradient, variable) for gradient, variable in pairs]
        replica = tf.distribute.get_replica_context()
        if replica.num_replicas_in_sync > 1:
            summed = replica.all_reduce(tf.distribute.ReduceOp.SUM, summed)
        norm = tf.linalg.global_norm(summed)
        # A replica may not assign to a variable of all of them: they do so together.
        with tf.name_scope("update"):
            replica.merge_call(
                functools.partial(self._update_all, targets),
                args=(summed, self._scalars(norm)),
            )
        self.iterations.assign_add(1)
        return norm

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments by name, in the forms that JSON knows."""
        settings = dataclasses.asdict(self.settings)
        return {
            "schedule": keras.saving.serialize_keras_object(self.schedule),
            "settings": settings | {"no_decay": list(self.settings.no_decay)},
            "multipliers": keras.saving.serialize_keras_object(self.multipliers),
            "name": self.name,
        }

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None
    ) -> "Optimizer":
        """Makes an optimizer of the same arguments, not built.

        Args:
            config: What `get_config` returned.
            custom_objects: Classes and functions by name that Keras does not know.

        Returns:
            The optimizer.
        """
        settings = dict(config["settings"])
        schedule, multipliers = (
            keras.saving.deserialize_keras_object(config[name], custom_objects)
            for name in ("schedule", "multipliers")
        )
        settings["no_decay"] = tuple(settings["no_decay"])
        return cls(schedule, Settings(**settings), multipliers, config["name"])

    def _require_built(self) -> None:
        if not self.built:
            raise InputError(
                "An optimizer is built before it is used",
                "no variables yet",
                "Call build(model.trainable_variables)",
            )

    def _index(self, variable: Variable) -> int:
        try:
            return self._get_variable_index(variable)
        except KeyError:
            raise InputError(
                "An optimizer updates the variables it was built with",
                _path(variable),
                "Build a new optimizer for other variables",
            ) from None

    def _scalars(self, norm: tf.Tensor) -> "_Scalars":
        settings = self.settings
        clip = None
        if settings.clip_norm is not None:
            clip = settings.clip_norm / tf.maximum(norm, settings.clip_norm)
            # Or an infinite norm would turn finite gradients into zeros.
            clip = tf.where(tf.math.is_finite(norm), clip, math.nan)
        c1 = c2 = tf.ones([])
        if settings.name != "adam":
            updates = tf.cast(self.iterations, tf.float32) + 1.0
            c1, c2 = (
                _correction(beta, updates)
                for beta in (settings.beta_1, settings.beta_2)
            )
        rate, root = self.schedule(self.iterations), _root_of_gain(settings.beta_2)
        k, epsilon = tf.sqrt(c2) / c1, settings.epsilon * tf.sqrt(c2)
        return _Scalars(
            rate=rate,
            k=k,
            epsilon=epsilon,
            clip=clip,
            decay=rate * settings.weight_decay,
            step=rate * k / root,
            floor=epsilon / root,
            beta_1=tf.constant(settings.beta_1),
            beta_2=tf.constant(settings.beta_2),
            zero=tf.zeros([]),
        )

    def _update_all(
        self,
        targets: list[tuple[int, tf.Variable]],
        strategy: tf.distribute.Strategy,
        gradients: list[tf.Tensor],
        scalars: "_Scalars",
    ) -> None:
        # All gradients first, or a variable that is still read would be copied; the
        # largest last, as its update makes a tensor of its size.
        done = tf.group(*map(strategy.experimental_local_results, gradients))
        pairs = zip(targets, gradients, strict=True)
        pairs = sorted(pairs, key=lambda pair: pair[0][1].shape.num_elements())
        for (index, target), gradient in pairs:
            slots = _native(self._means[index]), _native(self._squares[index])
            factor, decays = self._factors[index], self._decays[index]
            # One after the other, or what each needs for a moment lies there at once.
            with tf.control_dependencies([done]):
                done = strategy.extended.update(
                    target,
                    self._update_one,
                    args=(gradient, *slots, scalars),
                    kwargs={"decays": decays, "factor": factor},
                )

    def _update_one(
        self,
        variable: tf.Variable,
        gradient: tf.Tensor,
        mean: tf.Variable,
        square: tf.Variable,
        scalars: "_Scalars",
        *,
        decays: bool,
        factor: float,
    ) -> tf.Operation | None:
        """Updates one replica's copy of a variable and of its slots."""
        settings = self.settings
        if scalars.clip is not None:
            gradient *= scalars.clip
        if decays and settings.name == "lamb":
            given = [tf.convert_to_tensor(t) for t in (variable, mean, square)]
            rate, betas = scalars.rate * factor, (settings.beta_1, settings.beta_2)
            new = _lamb(*given, gradient, rate, scalars, betas, settings.weight_decay)
            targets = (variable, mean, square)
            return tf.group(*(t.assign(n) for t, n in zip(targets, new, strict=True)))
        if decays and settings.weight_decay:
            variable.assign_sub(_times(scalars.decay, factor) * variable)
        # In place, which XLA's loops are not on a CPU.
        return tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=mean.handle,
            v=square.handle,
            beta1_power=scalars.zero,  # the correction is within step and floor
            beta2_power=scalars.zero,
            lr=_times(scalars.step, factor),
            beta1=scalars.beta_1,
            beta2=scalars.beta_2,
            epsilon=scalars.floor,
            grad=gradient,
        )


class _Scalars(NamedTuple):
    """What the updates of all variables share, each a float32 scalar.

    Computed once: for each variable anew, they were a third of the step's operations.
    """

    rate: tf.Tensor
    k: tf.Tensor
    epsilon: tf.Tensor
    clip: tf.Tensor | None
    decay: tf.Tensor
    step: tf.Tensor
    """TensorFlow's rate: of the corrected and of its own too small moments."""
    floor: tf.Tensor
    """TensorFlow's epsilon."""
    beta_1: tf.Tensor
    beta_2: tf.Tensor
    zero: tf.Tensor


def _times(scalar: tf.Tensor, factor: float) -> tf.Tensor:
    return scalar if factor == 1 else scalar * factor


@functools.partial(tf.function, jit_compile=True, autograph=False)
def _lamb(
    value: tf.Tensor,
    mean: tf.Tensor,
    square: tf.Tensor,
    gradient: tf.Tensor,
    rate: tf.Tensor,
    scalars: _Scalars,
    betas: tuple[float, float],
    decay: float,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """The new weights and slots, the rate scaled by the ratio of two norms."""
    m = betas[0] * mean + (1 - betas[0]) * gradient
    v = betas[1] * square + (1 - betas[1]) * tf.square(gradient)
    direction = scalars.k * m / (tf.sqrt(v) + scalars.epsilon) + decay * value
    trust = _trust_ratio(tf.norm(value), tf.norm(direction))
    return value - rate * trust * direction, m, v


def _root_of_gain(beta: float) -> float:
    """By what the roots of TensorFlow's squares are too small.

    It takes 1 - beta in float32, so all squares are short by one factor: for 0.999 by
    1.3e-5.
    """
    return math.sqrt((1 - beta) / float(np.float32(1) - np.float32(beta)))


def _correction(beta: float, updates: tf.Tensor) -> tf.Tensor:
    """1 - beta^updates, exact in float32 also where it is near 0."""
    return -tf.math.expm1(updates * math.log(beta)) if beta else tf.ones([])


def _trust_ratio(weights: tf.Tensor, step: tf.Tensor) -> tf.Tensor:
    """LAMB's ratio of two norms, 1 where there is none."""
    return tf.where((weights > 0) & (step > 0), weights / step, 1.0)


def _dense(gradient: tf.Tensor | tf.IndexedSlices, variable: Variable) -> tf.Tensor:
    gradient = tf.cast(gradient, tf.float32)
    if isinstance(gradient, tf.IndexedSlices):
        # tf.convert_to_tensor does the same, but warns of a shape it cannot tell.
        return tf.math.unsorted_segment_sum(
            gradient.values, gradient.indices, variable.shape[0]
        )
    return gradient


def _native(variable: Variable) -> tf.Variable:
    return variable.value if isinstance(variable, keras.Variable) else variable


def _path(variable: Variable) -> str:
    return variable.path if isinstance(variable, keras.Variable) else variable.name
