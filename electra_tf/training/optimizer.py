"""Adam as in the ELECTRA paper, AdamW, LAMB and Muon, on any number of replicas.

Keras's optimizers clip each replica's gradient before the replicas are summed. This
optimizer clips the sum, so the update does not depend on the number of replicas.

Bias correction changes scalars only: with c1 = 1 - beta_1^t and c2 = 1 - beta_2^t,

    (m / c1) / (sqrt(v / c2) + epsilon) = k * m / (sqrt(v) + epsilon * sqrt(c2))

where k = sqrt(c2) / c1. The paper's Adam has no bias correction: c1 = c2 = 1.
"""

import collections
import dataclasses
import functools
import math
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from electra_tf import compat
from electra_tf.config.ended_settings import drop_ended
from electra_tf.config.finetuning import TaskOptimizerConfig
from electra_tf.config.pretraining import OptimizerConfig as Settings
from electra_tf.errors import InputError
from electra_tf.training.muon import muon_group, muon_updates, uses_muon
from electra_tf.training.schedule import LayerwiseMultipliers, WarmupPolynomialDecay

Gradient = tf.Tensor | tf.IndexedSlices | None
Variable = keras.Variable | tf.Variable


def create_optimizer(
    settings: Settings | TaskOptimizerConfig,
    steps: int,
    depth: int | None = None,
    restart: int | None = None,
) -> "Optimizer":
    """Create the published optimizer of pre-training or of fine-tuning.

    Both have a warm-up and a polynomial decay. Fine-tuning also has learning rates by
    layer, as in the paper's appendix B.

    Args:
        settings: The section `optimizer` of a config of pre-training or fine-tuning.
        steps: Number of updates of the whole training; the rate then reaches 0.
        depth: Transformer layers of the encoder; required for fine-tuning with
            `optimizer.layer_decay` below 1.
        restart: Step at which a second stage begins: warm-up, decay and bias
            correction begin again; None: one stage.

    Returns:
        An optimizer without variables.

    Raises:
        InputError: For fine-tuning, `steps` is unknown (below 1), the only step is the
            first of the warm-up, whose rate is 0, or `depth` is missing.

    Example:
        import electra_tf

        model = electra_tf.TextClassifier.from_preset("run", num_classes=2)
        settings = electra_tf.FinetuningConfig().optimizer
        depth = model.encoder.shape.depth
        model.compile(electra_tf.create_optimizer(settings, steps=100, depth=depth))
    """
    if isinstance(settings, TaskOptimizerConfig):
        return _finetuning_optimizer(settings, steps, depth)
    if not isinstance(settings, Settings):
        raise InputError(
            "settings must be the section config.optimizer, not "
            f"{type(settings).__name__} {settings!r:.60}"
        )
    schedule = WarmupPolynomialDecay(
        settings.learning_rate,
        steps,
        settings.warmup_steps,
        settings.decay_power,
        restart,
    )
    return Optimizer(schedule, settings)


def _finetuning_optimizer(
    settings: TaskOptimizerConfig, steps: int, depth: int | None
) -> "Optimizer":
    if steps < 1:
        raise InputError(
            "The number of batches must be known, as the learning rate falls to 0 with "
            "the last one, and the data set's cardinality is unknown; assert it, or "
            "call compile(optimizer=...) first"
        )
    if steps == 1 and settings.warmup_share:
        raise InputError(
            "Training must have two updates or more, as the warm-up begins with a rate "
            "of 0, not a single batch in a single epoch; train for more epochs or in "
            "smaller batches, or set optimizer.warmup_share=0"
        )
    multipliers = None
    if settings.layer_decay != 1:
        if depth is None:
            raise InputError(
                "depth must be set for learning rates by layer: "
                "depth=model.encoder.shape.depth, or optimizer.layer_decay=1 in place "
                f"of {settings.layer_decay}"
            )
        multipliers = LayerwiseMultipliers(depth, settings.layer_decay)
    names = ("name", "learning_rate", "weight_decay", "epsilon", "clip_norm")
    rule = Settings(**{name: getattr(settings, name) for name in names})
    # The warm-up may end between two steps.
    warmup = steps * settings.warmup_share
    schedule = WarmupPolynomialDecay(
        settings.learning_rate, steps, warmup, settings.decay_power
    )
    return Optimizer(schedule, rule, multipliers)


@keras.saving.register_keras_serializable("electra_tf")
class Optimizer(keras.optimizers.Optimizer):
    """Adam, AdamW, LAMB or Muon, for Keras's `compile` and for custom training loops.

    The loss of each replica must be divided by the weight of the global batch, because
    gradients are summed over the replicas. Variable constraints are not applied.
    """

    def __init__(
        self,
        schedule: WarmupPolynomialDecay,
        settings: Settings,
        multipliers: Callable[[str], float] | None = None,
        name: str | None = None,
    ):
        super().__init__(learning_rate=schedule, name=name or settings.name)
        self.schedule, self.settings = schedule, settings
        self.multipliers = multipliers
        self._strategy = tf.distribute.get_strategy()

    @property
    def learning_rate(self) -> tf.Tensor:
        """Return the rate of the next update."""
        return self.schedule(self.iterations)

    @learning_rate.setter
    def learning_rate(self, value: Any) -> None:
        """Raise an InputError, as the schedule decides."""
        raise rate_error(f"learning_rate={value!r:.40}")

    def build(self, variables: Sequence[Variable]) -> None:
        """Create the slots `m` and `v` of each variable; a second call does nothing."""
        if self.built:
            return
        wrong = [f"{_path(v)} ({v.dtype})" for v in variables if v.dtype != "float32"]
        if not variables or wrong:
            raise InputError(
                "an optimizer must have one or more variables, all float32, not "
                f"{', '.join(wrong) or 'none'}; build the model first and pass its "
                "trainable_variables"
            )
        if tf.distribute.get_strategy() is not self._strategy:
            raise InputError(
                "an optimizer must be created and built under one strategy; create it "
                "within strategy.scope()"
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
        has_square = [
            self.settings.name != "muon" or not uses_muon(path, variable.shape)
            for path, variable in zip(paths, variables, strict=True)
        ]
        if all(has_square):
            slots = self.add_optimizer_variables(variables, ["m", "v"])
            self._means, self._squares = slots
            return
        self._means = self.add_optimizer_variables(variables, "m")
        others = [v for v, has in zip(variables, has_square, strict=True) if has]
        squares = iter(self.add_optimizer_variables(others, "v") if others else ())
        self._squares = [next(squares) if has else None for has in has_square]

    def slots(self) -> dict[str, list[keras.Variable | None]]:
        """Return the slots by name, each in the order of the variables of `build`.

        A weight that Muon updates has no slot `v`: None.
        """
        return {"m": list(self._means), "v": list(self._squares)}

    def apply(
        self, grads: Sequence[Gradient], trainable_variables: Sequence[Variable]
    ) -> None:
        """Call `update`, as Keras does."""
        trainable_variables = list(trainable_variables)
        self.build(trainable_variables)
        self.update(grads, trainable_variables)

    def update(
        self, gradients: Sequence[Gradient], variables: Sequence[Variable]
    ) -> tf.Tensor:
        """Sum the gradients over the replicas, clip the sum and update the variables.

        Returns:
            Global norm of the summed gradients before clipping, a float32 scalar. If it
            is not finite and `clip_norm` is set, all updated weights become NaN.
        """
        pairs = zip(gradients, variables, strict=True)
        pairs = [(g, v) for g, v in pairs if g is not None]
        if not pairs:
            raise ValueError("no variable has a gradient")
        targets = [(compat.variable_index(self, v), _native(v)) for _, v in pairs]
        summed = [_dense(gradient, variable) for gradient, variable in pairs]
        replica = tf.distribute.get_replica_context()
        if replica.num_replicas_in_sync > 1:
            summed = replica.all_reduce(tf.distribute.ReduceOp.SUM, summed)
        norm = tf.linalg.global_norm(summed)
        # A replica must not assign to a mirrored variable alone; `merge_call` updates
        # the copies of all replicas.
        with tf.name_scope("update"):
            replica.merge_call(
                functools.partial(self._update_all, targets),
                args=(summed, self._scalars(norm)),
            )
        self.iterations.assign_add(1)
        return norm

    def get_config(self) -> dict[str, Any]:
        """Return the arguments by name, serializable as JSON."""
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
        """Create an optimizer from the arguments in a config."""
        settings = dict(config["settings"])
        drop_ended({"optimizer": settings}, "the saved optimizer")
        schedule, multipliers = (
            keras.saving.deserialize_keras_object(config[name], custom_objects)
            for name in ("schedule", "multipliers")
        )
        settings["no_decay"] = tuple(settings["no_decay"])
        return cls(schedule, Settings(**settings), multipliers, config["name"])

    def _scalars(self, norm: tf.Tensor) -> "_Scalars":
        """Return the scalars of the next update, of gradients with a global norm."""
        settings = self.settings
        clip = None
        if settings.clip_norm is not None:
            clip = settings.clip_norm / tf.maximum(norm, settings.clip_norm)
            # An infinite norm would set all finite gradients to zero unnoticed.
            clip = tf.where(tf.math.is_finite(norm), clip, math.nan)
        c1 = c2 = tf.ones([])
        if settings.name != "adam":
            updates = self.schedule.in_stage(self.iterations)
            updates = tf.cast(updates, tf.float32) + 1.0
            betas = settings.beta_1, settings.beta_2
            # 1 - beta^updates, also accurate near 0 in float32.
            c1, c2 = (
                -tf.math.expm1(updates * math.log(beta)) if beta else tf.ones([])
                for beta in betas
            )
        rate = self.schedule(self.iterations)
        # `ResourceApplyAdam` computes 1 - beta in float32, so that v, and with it
        # sqrt(v), is too small by a constant factor: for 0.999 by 1.3e-5.
        beta = settings.beta_2
        rounding = math.sqrt((1 - beta) / float(np.float32(1) - np.float32(beta)))
        k, epsilon = tf.sqrt(c2) / c1, settings.epsilon * tf.sqrt(c2)
        decay, adam_rate = rate * settings.weight_decay, rate * k / rounding
        return _Scalars(rate, k, epsilon, clip, decay, adam_rate, epsilon / rounding)

    def _update_all(
        self,
        targets: list[tuple[int, tf.Variable]],
        strategy: tf.distribute.Strategy,
        gradients: list[tf.Tensor],
        scalars: "_Scalars",
    ) -> None:
        # TensorFlow copies a variable that is assigned while another operation still
        # reads it, so the updates wait for all gradients. The largest are the last,
        # when the gradients of the others are freed, because an update allocates
        # tensors of its size.
        previous = tf.group(*map(strategy.experimental_local_results, gradients))
        groups: dict[Any, list[_Update]] = {}
        counts: collections.Counter = collections.Counter()
        for (index, variable), gradient in zip(targets, gradients, strict=True):
            mean, square = (_native(s[index]) for s in (self._means, self._squares))
            key = index if square is not None else muon_group(variable.shape, counts)
            scale = self._decays[index], self._factors[index]
            groups.setdefault(key, []).append(
                _Update(variable, gradient, mean, square, *scale)
            )
        for group in sorted(groups.values(), key=_elements):
            # In sequence, so that only one update's temporary tensors exist at a time.
            with tf.control_dependencies([previous]):
                previous = strategy.extended.update(
                    group[0].variable, self._update_group, args=(group, scalars)
                )

    def _update_group(
        self, _: tf.Variable, group: list["_Update"], scalars: "_Scalars"
    ) -> tf.Operation | None:
        """Update one replica's copies of variables and of their slots."""
        if scalars.clip is not None:
            group = [
                one._replace(gradient=one.gradient * scalars.clip) for one in group
            ]
        if group[0].square is None:
            return self._update_matrices(group, scalars)
        return self._update_one(*group[0], scalars)

    def _update_matrices(
        self, group: list["_Update"], scalars: "_Scalars"
    ) -> tf.Operation:
        settings = self.settings
        updates, means = muon_updates(
            [one.gradient for one in group],
            [one.mean for one in group],
            settings.momentum,
            settings.muon_precision,
        )
        assigned = []
        for one, update, mean in zip(group, updates, means, strict=True):
            if one.decays and settings.weight_decay:
                one.variable.assign_sub(
                    _scaled(scalars.decay, one.factor) * one.variable
                )
            rate = _scaled(scalars.rate, one.factor)
            assigned += one.variable.assign_sub(rate * update), one.mean.assign(mean)
        return tf.group(*assigned)

    def _update_one(
        self,
        variable: tf.Variable,
        gradient: tf.Tensor,
        mean: tf.Variable,
        square: tf.Variable,
        decays: bool,
        factor: float,
        scalars: "_Scalars",
    ) -> tf.Operation | None:
        settings = self.settings
        if decays and settings.name == "lamb":
            state = (variable, mean, square)
            old = [tf.convert_to_tensor(v) for v in state]
            rate, betas = scalars.rate * factor, (settings.beta_1, settings.beta_2)
            new = _lamb(*old, gradient, rate, scalars, betas, settings.weight_decay)
            return tf.group(*(v.assign(x) for v, x in zip(state, new, strict=True)))
        if decays and settings.weight_decay:
            variable.assign_sub(_scaled(scalars.decay, factor) * variable)
        # This operation updates in place; an XLA loop on a CPU would copy.
        return tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=mean.handle,
            v=square.handle,
            beta1_power=0.0,  # adam_rate and adam_epsilon are corrected
            beta2_power=0.0,
            lr=_scaled(scalars.adam_rate, factor),
            beta1=settings.beta_1,
            beta2=settings.beta_2,
            epsilon=scalars.adam_epsilon,
            grad=gradient,
        )


def rate_error(received: str) -> InputError:
    """Return the error for code that sets the rate of `Optimizer`."""
    return InputError(
        "The learning rate is that of the optimizer's own warm-up and decay, without "
        f"{received}; to fine-tune with another rate, first call "
        "compile(optimizer=keras.optimizers.AdamW(1e-4))"
    )


class _Scalars(NamedTuple):
    """Scalars of an update, float32, computed once for all variables.

    Bias correction is in `k`, sqrt(c2) / c1, in `epsilon` and in the arguments of
    `ResourceApplyAdam`. `clip` is the factor of the gradients, None without clipping,
    `decay` the learning rate times weight decay.
    """

    rate: tf.Tensor
    k: tf.Tensor
    epsilon: tf.Tensor
    clip: tf.Tensor | None
    decay: tf.Tensor
    adam_rate: tf.Tensor
    adam_epsilon: tf.Tensor


class _Update(NamedTuple):
    """A variable, and the values for its update; `square` is None for Muon."""

    variable: tf.Variable
    gradient: tf.Tensor
    mean: tf.Variable
    square: tf.Variable | None
    decays: bool
    factor: float


def _elements(group: list[_Update]) -> int:
    return sum(one.variable.shape.num_elements() for one in group)


def _scaled(scalar: tf.Tensor, factor: float) -> tf.Tensor:
    return scalar if factor == 1 else scalar * factor


@functools.partial(tf.function, jit_compile=True, autograph=False)
def _lamb(
    weights: tf.Tensor,
    mean: tf.Tensor,
    square: tf.Tensor,
    gradient: tf.Tensor,
    rate: tf.Tensor,
    scalars: _Scalars,
    betas: tuple[float, float],
    decay: float,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return the weights and slots after a LAMB update."""
    m = betas[0] * mean + (1 - betas[0]) * gradient
    v = betas[1] * square + (1 - betas[1]) * tf.square(gradient)
    direction = scalars.k * m / (tf.sqrt(v) + scalars.epsilon) + decay * weights
    norms = tf.norm(weights), tf.norm(direction)
    trust_ratio = tf.where((norms[0] > 0) & (norms[1] > 0), norms[0] / norms[1], 1.0)
    return weights - rate * trust_ratio * direction, m, v


def _dense(gradient: tf.Tensor | tf.IndexedSlices, variable: Variable) -> tf.Tensor:
    gradient = tf.cast(gradient, tf.float32)
    if isinstance(gradient, tf.IndexedSlices):
        # tf.convert_to_tensor does the same, but warns if the shape is unknown.
        return tf.math.unsorted_segment_sum(
            gradient.values, gradient.indices, variable.shape[0]
        )
    return gradient


def _native(variable: Variable | None) -> tf.Variable | None:
    return variable.value if isinstance(variable, keras.Variable) else variable


def _path(variable: Variable) -> str:
    return variable.path if isinstance(variable, keras.Variable) else variable.name
