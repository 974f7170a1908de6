"""Metrics of `compile`, each with the targets that it is written for.

A metric gets probabilities with class ids or one-hot rows, or predicted and true
scores. Metrics of Keras that are not listed here are refused.
"""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from electra_tf.errors import InputError
from electra_tf.tasks.examples import Inputs
from electra_tf.tasks.keras_metrics import BinaryF1, Pearson, named_metric
from electra_tf.tasks.losses import class_targets


def _classes(names: str) -> tuple[type, ...]:
    return tuple(getattr(keras.metrics, name) for name in names.split())


# Of class ids, of one-hot rows, of the second of two classes, and of any numbers.
_IDS = _classes("""SparseCategoricalAccuracy SparseCategoricalCrossentropy
    SparseTopKCategoricalAccuracy""")
_ONE_HOT = _classes("""CategoricalAccuracy CategoricalCrossentropy CategoricalHinge
    KLDivergence TopKCategoricalAccuracy""")
_BINARY = (
    BinaryF1,
    *_classes("""AUC BinaryAccuracy BinaryCrossentropy FalseNegatives
    FalsePositives Precision PrecisionAtRecall Recall RecallAtPrecision
    SensitivityAtSpecificity SpecificityAtSensitivity TrueNegatives TruePositives"""),
)
_NUMBERS = _classes("""LogCoshError MeanAbsoluteError MeanSquaredError
    MeanSquaredLogarithmicError Poisson R2Score RootMeanSquaredError""")
_SETS = (*_BINARY, *_NUMBERS, *_classes("CosineSimilarity FBetaScore"))
_SERVED = {
    "classes": (*_IDS, *_ONE_HOT, *_SETS),
    "label_sets": _SETS,
    "scores": (Pearson, *_NUMBERS, *_classes("MeanAbsolutePercentageError")),
}
_LOWER_IS_BETTER = _classes("""BinaryCrossentropy CategoricalCrossentropy
    CategoricalHinge FalseNegatives FalsePositives KLDivergence LogCoshError
    MeanAbsoluteError MeanAbsolutePercentageError MeanSquaredError
    MeanSquaredLogarithmicError Poisson RootMeanSquaredError
    SparseCategoricalCrossentropy""")
_MODES = {"mse": "min"} | dict.fromkeys(("accuracy", "subset_accuracy", "f1"), "max")


class CompiledMetrics:
    """Loss and metrics of `compile`, validated for a class and its `metric_kind`."""

    def __init__(
        self,
        model: str,
        kind: str | None,
        num_outputs: int,
        metrics: Any = None,
        weighted_metrics: Any = None,
        own: Sequence[keras.metrics.Metric] = (),
    ):
        self._model, self._kind, self._num_outputs = model, kind, num_outputs
        self._given = {"metrics": metrics, "weighted_metrics": weighted_metrics}
        self.own = tuple(own)
        """Metrics of the task, which are compiled with every model."""
        self.loss = keras.metrics.Mean("loss")
        """Mean loss."""
        names = {metric.name for metric in own}
        self._plain, self._weighted = (
            [
                self._checked(identifier)
                for identifier in keras.tree.flatten(identifiers or [])
                if not (isinstance(identifier, str) and identifier in names)
            ]
            for identifiers in self._given.values()
        )
        names = [metric.name for metric in (self.loss, *self._plain, *self._weighted)]
        if len(set(names)) < len(names):
            raise InputError(
                "Each metric of compile must have a name of its own",
                ", ".join(map(repr, names)),
                'Set the name, as in keras.metrics.AUC(name="second")',
            )

    def merged(self, own: list[keras.metrics.Metric]) -> list[keras.metrics.Metric]:
        """Return the loss, these metrics, and the model's whose names are not taken."""
        metrics = [self.loss, *self._plain, *self._weighted]
        names = {metric.name for metric in metrics}
        return metrics + [m for m in (*own, *self.own) if m.name not in names]

    def get_config(self) -> dict[str, Any]:
        """Return the metrics as `compile` got them, serialized."""
        return keras.saving.serialize_keras_object(self._given)

    def update(
        self, inputs: Inputs, batch: tuple, to_rows: Callable[..., tuple]
    ) -> None:
        """Update all metrics but the loss.

        `batch` has targets, outputs and weights, which `to_rows` converts to class ids
        [N] or shares of the classes [N, C], zeros and ones [N, C], or scores [N, 1];
        logits [N, C] or scores [N, 1]; and float32 [N].
        """
        for metric in self.own:
            metric.update_state(*batch)
        if self._plain or self._weighted:
            # Padding rows have no token; unweighted metrics would count them.
            real_N = tf.where(inputs["padding_mask"][:, 0] > 0)[:, 0]
            batch = tf.nest.map_structure(lambda t: tf.gather(t, real_N), batch)
            *sides, weights_N = to_rows(*batch)
            for metric in self._plain:
                metric.update_state(*self._values(metric, *sides))
            for metric in self._weighted:
                values = self._values(metric, *sides)
                metric.update_state(*values, sample_weight=weights_N)

    def _values(self, metric: Any, targets: Any, outputs: Any) -> tuple[Any, Any]:
        """Return the targets and predictions that a metric compares."""
        if self._kind == "scores":
            return targets, outputs
        if self._kind == "label_sets":
            return targets, tf.sigmoid(outputs)
        outputs_NC = tf.nn.softmax(outputs)
        if not isinstance(metric, _SERVED["classes"]):  # a user's
            return targets, outputs_NC
        ids_N, targets_NC = class_targets(targets)
        if isinstance(metric, _IDS):
            return ids_N, outputs_NC
        if targets_NC is None:
            targets_NC = tf.one_hot(ids_N, self._num_outputs)
        if self._num_outputs == 2 and isinstance(metric, _BINARY):
            config = metric.get_config()
            is_of_all = config.get("multi_label") or config.get("top_k")
            if config.get("class_id") is None and not is_of_all:
                return targets_NC[:, 1:], outputs_NC[:, 1:]
        return targets_NC, outputs_NC

    def _checked(self, identifier: Any) -> keras.metrics.Metric:
        """Return a metric that suits the model, with its variables."""
        is_set = self._kind == "label_sets"
        metric = _metric(identifier, self._num_outputs, is_set)
        name = f"{type(metric).__name__} {metric.name!r}"
        served = isinstance(metric, _SERVED.get(self._kind, ()))
        is_user = not _is_of(metric, "keras.", "electra_tf.")
        is_user |= type(metric) is keras.metrics.MeanMetricWrapper
        if self._kind is None or not (served or is_user):
            raise self._error(name)
        # Settings for logits, for sorted ids, and for the best class alone.
        config = metric.get_config() if served else {}
        refused = {"from_logits": True, "from_sorted_ids": True}
        refused |= {"threshold": None} if is_set else {}
        for setting, value in refused.items():
            if config.get(setting, not value) is value:
                raise self._error(f"{name} with {setting}={value}")
        outputs = tf.zeros([4, self._num_outputs])
        targets = tf.zeros([4], tf.int32) if self._kind == "classes" else outputs
        try:  # finds errors, and lets the metric create its variables
            with keras.StatelessScope():
                metric.update_state(*self._values(metric, targets, outputs))
        except Exception as error:
            raise self._error(f"{name}, which fails with {error}") from error
        metric.reset_state()
        return metric

    def _error(self, received: str) -> InputError:
        required = f"A metric of compile must suit a {self._model}"
        return InputError(required, received, "Leave it out, or correct it")


def _metric(identifier: Any, num_outputs: int, is_set: bool) -> keras.metrics.Metric:
    """Return the metric of a name, a function, a class or a metric."""
    if identifier in ("accuracy", "acc"):
        kind = "BinaryAccuracy" if is_set else "SparseCategoricalAccuracy"
        return getattr(keras.metrics, kind)(identifier)
    name = identifier
    if _is_of(identifier, "keras."):
        name = getattr(identifier, "__name__", identifier)  # a function's class
    metric = named_metric(name, num_outputs, is_set) if isinstance(name, str) else None
    try:
        metric = metric or keras.metrics.get(name)
    except (ValueError, TypeError):
        metric = None
    if metric is None or isinstance(metric, keras.losses.Loss):
        raise InputError(
            "A metric of compile must be a metric of Keras, its name, or a function",
            f"{identifier!r:.80}",
            'Pass for example "accuracy", "f1", "auc", or keras.metrics.AUC()',
        )
    if not isinstance(metric, keras.metrics.Metric):
        name = getattr(metric, "__name__", type(metric).__name__).strip("<>")
        metric = keras.metrics.MeanMetricWrapper(metric, name)
    elif isinstance(identifier, str):
        metric.name = identifier
    return metric


def _is_of(value: Any, *modules: str) -> bool:
    return getattr(value, "__module__", "").startswith(modules)


def set_modes(callbacks: Any, metrics: Sequence[keras.metrics.Metric]) -> None:
    """Set the mode of callbacks that have `mode="auto"`, by the metric they monitor."""
    modes = {metric.name: _mode(metric) for metric in metrics}
    for callback in callbacks:
        if getattr(callback, "mode", None) == "auto":
            callback.mode = modes.get(callback.monitor.removeprefix("val_"), "auto")


def _mode(metric: keras.metrics.Metric) -> str:
    if isinstance(metric, _LOWER_IS_BETTER):
        return "min"
    if isinstance(metric, (Pearson, *_SERVED["classes"])):
        return "max"
    return _MODES.get(metric.name, "auto")
