"""Metrics of `compile`: Keras's that suit the targets of a model, and one's own."""

import re
from typing import Any

import keras
import tensorflow as tf

from electra_tf.errors import InputError
from electra_tf.tasks.labels import THRESHOLD

_NUMBERS = (
    "LogCoshError|Mean(Absolute|Squared|SquaredLogarithmic)Error|Poisson|R2Score|"
    "RootMeanSquaredError"
)
# Classes of Keras by what a model compares: class ids with probabilities of all
# classes, zeros and ones with a probability of each class, or numbers.
_SUITED = {
    None: "",
    "classes": r"Sparse(TopK)?Categorical\w+",
    "label_sets": (
        r"AUC|Binary(Accuracy|Crossentropy)|(False|True)(Negatives|Positives)|"
        rf"(Precision|Recall|Sensitivity|Specificity)(At\w+)?|F(1|Beta)Score|{_NUMBERS}"
    ),
    "scores": f"{_NUMBERS}|MeanAbsolutePercentageError",
}
_ACCURACIES = {"classes": "SparseCategoricalAccuracy", "label_sets": "BinaryAccuracy"}


def suited_metrics(
    model: Any, metrics: Any, weighted_metrics: Any
) -> dict[str, list[keras.metrics.Metric] | None]:
    """Return the metrics of names, functions, classes and metrics, and the task's.

    A metric of Keras that needs other targets, such as one-hot rows or scores of one
    class, is an error, as its value would be wrong.
    """
    plain, weighted = (
        [_metric(model, one) for one in keras.tree.flatten(given or [])]
        for given in (metrics, weighted_metrics)
    )
    names = {metric.name for metric in (*plain, *weighted)}
    weighted += [m for m in model.task_metrics() if m.name not in names]
    return {"metrics": plain or None, "weighted_metrics": weighted or None}


def sample_rows(model: Any) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return targets, predictions and weights of two rows."""
    predictions = tf.zeros([2, model.num_outputs])
    are_ids = model.metric_kind == "classes"
    targets = tf.zeros([2], tf.int32) if are_ids else predictions
    return targets, predictions, tf.ones([2])


def real_rows(model: Any, inputs: Any, y: Any, outputs: Any, rows: Any) -> list[Any]:
    """Return the rows of a batch without those of padding, which has no token."""
    mask = inputs["padding_mask"]
    is_real_B = tf.reduce_max(mask, list(range(1, mask.shape.rank)))
    *_, is_real_N = model.metric_rows(y, outputs, tf.cast(is_real_B, tf.float32))
    return [tf.boolean_mask(row, is_real_N > 0) for row in rows]


def _metric(model: Any, identifier: Any) -> keras.metrics.Metric:
    """Return the metric of a name, a function, a class or a metric."""
    is_accuracy = isinstance(identifier, str) and identifier in ("accuracy", "acc")
    name = _ACCURACIES.get(model.metric_kind) if is_accuracy else None
    try:
        metric = keras.metrics.get(name or identifier)
    except (ValueError, TypeError) as error:
        raise InputError(
            "A metric of compile must be a metric of Keras, its name, or a "
            f"function, not {identifier!r:.80}"
        ) from error
    if isinstance(identifier, str):
        metric.name = identifier
    _check(model, metric)
    if isinstance(metric, keras.metrics.Metric):
        return metric
    return keras.metrics.MeanMetricWrapper(metric, metric.__name__.strip("<>"))


def _check(model: Any, metric: Any) -> None:
    """Raise an error for a metric of Keras whose value would be wrong."""
    kind, config, update = metric, {}, getattr(metric, "update_state", metric)
    if isinstance(metric, keras.metrics.Metric):
        kinds, config = type(metric).__mro__, metric.get_config()
        kind = next(c for c in kinds if c.__module__.startswith("keras."))
    is_user = not getattr(update, "__module__", "").startswith("keras.")
    if model.metric_kind and (is_user or kind is keras.metrics.MeanMetricWrapper):
        return
    # F1Score counts the best class alone if its threshold is None.
    wrong = {"from_logits": True, "from_sorted_ids": True, "threshold": None}
    settings = [f" with {n}={v}" for n, v in wrong.items() if config.get(n, 0) is v]
    suited, name = _SUITED[model.metric_kind], getattr(kind, "__name__", "")
    if settings or not re.fullmatch(suited, name.replace("_", ""), re.IGNORECASE):
        raise InputError(
            f"A {type(model).__name__} cannot use {name or repr(metric):.80} "
            f"{getattr(metric, 'name', name)!r}{''.join(settings)} in compile, which "
            "needs other targets; compute it from the predictions"
        )


@keras.saving.register_keras_serializable("electra_tf")
class SubsetAccuracy(keras.metrics.BinaryAccuracy):
    """Share of texts whose classes are all correct."""

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Add zeros and ones [B, C], and probabilities."""
        is_same_BC = (y_true > THRESHOLD) == (y_pred > THRESHOLD)
        correct_B1 = tf.reduce_all(is_same_BC, -1, keepdims=True)
        super().update_state(tf.ones_like(correct_B1), correct_B1, sample_weight)
