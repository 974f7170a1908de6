"""Metrics of `compile`, each with the targets that it is written for; own ones too."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from electra_tf.errors import InputError
from electra_tf.tasks.examples import IdRows
from electra_tf.tasks.labels import THRESHOLD
from electra_tf.tasks.losses import class_targets

# Classes of metrics: of numbers, of the second of two classes, of all classes.
_NUMBERS = (
    "LogCoshError|Mean(Absolute|Squared|SquaredLogarithmic)Error|Poisson|R2Score|"
    "RootMeanSquaredError"
)
_BINARY = (
    "AUC|Binary(Accuracy|Crossentropy|F1)|(False|True)(Negatives|Positives)|"
    r"(Precision|Recall|Sensitivity|Specificity)(At\w+)?"
)
_SETS = f"{_BINARY}|{_NUMBERS}|CosineSimilarity|FBetaScore"
_SERVED = {
    None: "",
    "classes": rf"{_SETS}|(Sparse)?(TopK)?Categorical\w+|KLDivergence",
    "label_sets": _SETS,
    "scores": f"{_NUMBERS}|MeanAbsolutePercentageError|Pearson",
}
_LOWER_IS_BETTER = "Error|entropy|Hinge|False|Divergence|Poisson"
_MODES = {"mse": "min"} | dict.fromkeys(("accuracy", "subset_accuracy", "f1"), "max")
_LIBRARIES = "keras.", "electra_tf."
_register = keras.saving.register_keras_serializable("electra_tf")


class CompiledMetrics:
    """Loss and metrics of `compile`, validated for a class and its `metric_kind`."""

    def __init__(
        self,
        model: str,
        kind: str | None,
        num_outputs: int,
        given: Mapping[str, Any],
        own: Sequence[keras.metrics.Metric] = (),
    ):
        self._model, self._kind, self._num_outputs = model, kind, num_outputs
        self._own, self.loss = tuple(own), keras.metrics.Mean("loss")
        own_names = [metric.name for metric in own]
        self._metrics = [
            (self._checked(identifier), argument == "weighted_metrics")
            for argument, identifiers in given.items()
            for identifier in keras.tree.flatten(identifiers or [])
            if not (isinstance(identifier, str) and identifier in own_names)
        ]
        names = ["loss", *(metric.name for metric, _ in self._metrics)]
        if len(set(names)) < len(names):
            raise InputError(
                "Each metric of compile must have a name of its own, not "
                f"{', '.join(map(repr, names))}; set it: keras.metrics.AUC(name=...)"
            )

    def merged(self, own: list[keras.metrics.Metric]) -> list[keras.metrics.Metric]:
        """Return the loss, these metrics, and the model's whose names are not taken."""
        metrics = [self.loss, *(metric for metric, _ in self._metrics)]
        names = {metric.name for metric in metrics}
        return metrics + [m for m in (*own, *self._own) if m.name not in names]

    def update(
        self, inputs: IdRows, batch: tuple, to_rows: Callable[..., tuple]
    ) -> None:
        """Update all but the loss with targets, outputs and weights of a batch."""
        for metric in self._own:
            metric.update_state(*batch)
        if self._metrics:
            # Padding rows have no token; unweighted metrics would count them.
            real_N = tf.where(inputs["padding_mask"][:, 0] > 0)[:, 0]
            batch = tf.nest.map_structure(lambda t: tf.gather(t, real_N), batch)
            *sides, weights_N = to_rows(*batch)
            for metric, is_weighted in self._metrics:
                weights = {"sample_weight": weights_N} if is_weighted else {}
                metric.update_state(*self._values(metric, *sides), **weights)

    def _values(self, metric: Any, targets: Any, outputs: Any) -> tuple[Any, Any]:
        """Return the targets and predictions that a metric compares.

        `targets` [N] are class ids, [N, C] shares of classes or zeros and ones, [N, 1]
        scores; `outputs` are logits [N, C] or scores [N, 1].
        """
        if self._kind == "scores":
            return targets, outputs
        if self._kind == "label_sets":
            return targets, tf.sigmoid(outputs)
        outputs_NC, name = tf.nn.softmax(outputs), _served_class(metric, self._kind)
        if not name:  # a user's
            return targets, outputs_NC
        ids_N, targets_NC = class_targets(targets)
        if name.startswith("Sparse"):
            return ids_N, outputs_NC
        if targets_NC is None:
            targets_NC = tf.one_hot(ids_N, self._num_outputs)
        if self._num_outputs == 2 and re.fullmatch(_BINARY, name):
            config = metric.get_config()
            is_of_all = config.get("multi_label") or config.get("top_k")
            if config.get("class_id") is None and not is_of_all:
                return targets_NC[:, 1:], outputs_NC[:, 1:]
        return targets_NC, outputs_NC

    def _checked(self, identifier: Any) -> keras.metrics.Metric:
        """Return a metric that suits the model, with its variables."""
        is_set = self._kind == "label_sets"
        metric = _metric(identifier, self._num_outputs, is_set)
        name = f"A {self._model} cannot use {type(metric).__name__} {metric.name!r}"
        is_served = bool(_served_class(metric, self._kind))
        is_user = not type(metric).__module__.startswith(_LIBRARIES)
        is_user |= type(metric) is keras.metrics.MeanMetricWrapper
        if self._kind is None or not (is_served or is_user):
            raise InputError(f"{name} in compile")
        config = metric.get_config() if is_served else {}
        # F1Score counts the best class alone if its threshold is None.
        refused = {"from_logits": True, "from_sorted_ids": True}
        refused |= {"threshold": None} if is_set else {}
        for setting in refused.items() & config.items():
            raise InputError(f"{name} with {'='.join(map(str, setting))} in compile")
        outputs = tf.zeros([4, self._num_outputs])
        targets = tf.zeros([4], tf.int32) if self._kind == "classes" else outputs
        try:  # finds errors, and lets the metric create its variables
            with keras.StatelessScope():
                metric.update_state(*self._values(metric, targets, outputs))
        except Exception as error:
            raise InputError(f"{name}, which fails with {error}") from error
        metric.reset_state()
        return metric


def _metric(identifier: Any, num_outputs: int, is_set: bool) -> keras.metrics.Metric:
    """Return the metric of a name, a function, a class or a metric."""
    name = identifier
    if getattr(identifier, "__module__", "").startswith("keras."):
        name = getattr(identifier, "__name__", identifier)  # a function's class
    metric = named_metric(name, num_outputs, is_set) if isinstance(name, str) else None
    try:
        metric = metric or keras.metrics.get(name)
    except (ValueError, TypeError):
        metric = None
    if metric is None or isinstance(metric, keras.losses.Loss):
        raise InputError(
            "A metric of compile must be a metric of Keras, its name, or a function, "
            f"not {identifier!r:.80}"
        )
    if not isinstance(metric, keras.metrics.Metric):
        name = getattr(metric, "__name__", type(metric).__name__).strip("<>")
        metric = keras.metrics.MeanMetricWrapper(metric, name)
    elif isinstance(identifier, str):
        metric.name = identifier
    return metric


def _served_class(metric: keras.metrics.Metric, kind: str | None) -> str:
    """Return the class of Keras that a metric is of, if a kind of model serves it."""
    bases = (c for c in type(metric).__mro__ if c.__module__.startswith(_LIBRARIES))
    names = (
        c.__name__ for c in bases if re.fullmatch(_SERVED.get(kind, ""), c.__name__)
    )
    return next(names, "")


def set_modes(callbacks: Any, metrics: Sequence[keras.metrics.Metric]) -> None:
    """Set the mode of callbacks that have `mode="auto"`, by the metric they monitor."""
    modes = {}
    for metric in metrics:
        name = _served_class(metric, "classes") or _served_class(metric, "scores")
        better = "min" if re.search(_LOWER_IS_BETTER, name) else "max"
        modes[metric.name] = better if name else _MODES.get(metric.name, "auto")
    for callback in callbacks:
        if getattr(callback, "mode", None) == "auto":
            monitor = getattr(callback, "monitor", None) or ""
            callback.mode = modes.get(monitor.removeprefix("val_"), "auto")


def named_metric(
    name: str, num_classes: int, is_set: bool = False
) -> keras.metrics.Metric | None:
    """Return the metric of a name of this module; `f1` of two is that of class 1."""
    threshold = THRESHOLD if is_set else None
    if name in ("accuracy", "acc"):
        kind = "BinaryAccuracy" if is_set else "SparseCategoricalAccuracy"
        return getattr(keras.metrics, kind)(name)
    if name == "f1" and num_classes == 2 and not is_set:
        return BinaryF1("micro", THRESHOLD, name, "float64")
    if name in ("f1_micro", "f1_weighted"):
        return keras.metrics.F1Score(name[3:], threshold, name, "float64")
    if name in ("f1", "f1_macro"):
        return MacroF1(None, threshold, name, "float64")
    if name == "mcc":
        return MatthewsCorrelation(name=name, dtype="float64")
    kind = {"pearson": Pearson, "spearman": Spearman}.get(name)
    return kind and kind(name)


@_register
class BinaryF1(keras.metrics.F1Score):
    """F1 of the probability of one class."""


@_register
class MacroF1(keras.metrics.F1Score):
    """Mean F1 of the classes that occur, as scikit-learn's macro average."""

    def result(self) -> tf.Tensor:
        """Return the mean; 0 without examples."""
        occurs_C = self.true_positives + self.false_positives + self.false_negatives > 0
        count = tf.reduce_sum(tf.cast(occurs_C, self.dtype))
        return tf.math.divide_no_nan(tf.reduce_sum(super().result()), count)


@_register
class MatthewsCorrelation(keras.metrics.F1Score):
    """Matthews' correlation coefficient of any number of classes; 0 if undefined."""

    def result(self) -> tf.Tensor:
        """Return the coefficient, -1 to 1."""
        gold_C = self.true_positives + self.false_negatives
        predicted_C = self.true_positives + self.false_positives
        total, correct = tf.reduce_sum(gold_C), tf.reduce_sum(self.true_positives)
        shared = correct * total - tf.tensordot(gold_C, predicted_C, 1)
        gold = tf.sqrt(total * total - tf.tensordot(gold_C, gold_C, 1))
        predicted = tf.sqrt(total * total - tf.tensordot(predicted_C, predicted_C, 1))
        return tf.math.divide_no_nan(shared, gold * predicted)


@_register
class Pearson(keras.metrics.Metric):
    """Pearson's correlation of all scores, which it keeps; 0 if a side is constant."""

    def __init__(self, name: str, dtype: Any = "float64"):
        super().__init__(name=name, dtype=dtype)
        # Variables of Keras have a static shape. All replicas hold all scores.
        self._rows_N3 = tf.Variable(
            tf.zeros([0, 3], self.dtype),
            trainable=False,
            shape=tf.TensorShape([None, 3]),
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Add scores [N, 1]; one of weight 2 counts as two."""
        weights = tf.ones_like(y_true) if sample_weight is None else sample_weight
        columns = (tf.cast(value, self.dtype) for value in (y_true, y_pred, weights))
        rows_N3 = tf.stack([tf.reshape(column, [-1]) for column in columns], 1)
        replica = tf.distribute.get_replica_context()
        if replica is not None and replica.num_replicas_in_sync > 1:
            rows_N3 = replica.all_gather(rows_N3, axis=0)
        self._rows_N3.assign(tf.concat([self._rows_N3.read_value(), rows_N3], 0))

    def result(self) -> tf.Tensor:
        """Return the correlation, -1 to 1."""
        rows_N3 = self._rows_N3.read_value()
        rows_N3 = tf.boolean_mask(rows_N3, rows_N3[:, 2] > 0)
        *sides, weights_N = tf.unstack(rows_N3, axis=1)
        sides_2N = tf.stack([self._centered(side_N, weights_N) for side_N in sides])
        sums_22 = tf.matmul(sides_2N * weights_N, sides_2N, transpose_b=True)
        deviations = tf.sqrt(sums_22[0, 0]) * tf.sqrt(sums_22[1, 1])
        return tf.math.divide_no_nan(sums_22[0, 1], deviations)

    def reset_state(self) -> None:
        """Forget the scores."""
        self._rows_N3.assign(tf.zeros([0, 3], self.dtype))

    def _centered(self, values_N: tf.Tensor, weights_N: tf.Tensor) -> tf.Tensor:
        values_N -= values_N[:1]  # so that equal values become exactly 0
        mean = tf.reduce_sum(values_N * weights_N) / tf.reduce_sum(weights_N)
        return values_N - mean


@_register
class Spearman(Pearson):
    """Spearman's rank correlation of all scores, which it keeps."""

    def _centered(self, values_N: tf.Tensor, weights_N: tf.Tensor) -> tf.Tensor:
        """Return the mean rank of each score among all, less the mean rank."""
        order_N = tf.argsort(values_N)
        sorted_N = tf.gather(values_N, order_N)
        before_X = tf.concat([[0.0], tf.cumsum(tf.gather(weights_N, order_N))], 0)
        ends = (tf.searchsorted(sorted_N, values_N, side) for side in ("left", "right"))
        ranks_N = tf.add_n([tf.gather(before_X, end_N) for end_N in ends]) / 2
        return super()._centered(ranks_N, weights_N)
