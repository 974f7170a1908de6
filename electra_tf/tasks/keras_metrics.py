"""Metrics of `compile` that Keras lacks: F1 of classes as scikit-learn computes it,
Matthews' coefficient and correlations. Higher is better; sums are float64.
"""

from typing import Any

import keras
import tensorflow as tf

from electra_tf.tasks.labels import THRESHOLD

_register = keras.saving.register_keras_serializable("electra_tf")
_DTYPE = "float64"


@_register
class BinaryF1(keras.metrics.F1Score):
    """F1 of the probability of one class."""


@_register
class MacroF1(keras.metrics.F1Score):
    """Mean F1 of the classes that occur, as scikit-learn's macro average."""

    def result(self) -> tf.Tensor:
        """Return the mean; 0 without examples."""
        correct_C = 2 * self.true_positives
        all_C = correct_C + self.false_positives + self.false_negatives
        count = tf.reduce_sum(tf.cast(all_C > 0, all_C.dtype))
        f1_C = tf.math.divide_no_nan(correct_C, all_C)
        return tf.math.divide_no_nan(tf.reduce_sum(f1_C), count)


@_register
class MatthewsCorrelation(keras.metrics.F1Score):
    """Matthews' correlation coefficient of any number of classes; 0 if undefined."""

    def result(self) -> tf.Tensor:
        """Return the coefficient, -1 to 1."""
        gold_C = self.true_positives + self.false_negatives
        predicted_C = self.true_positives + self.false_positives
        total, correct = tf.reduce_sum(gold_C), tf.reduce_sum(self.true_positives)
        shared = correct * total - tf.reduce_sum(gold_C * predicted_C)
        gold, predicted = (
            tf.sqrt(total * total - tf.reduce_sum(side_C * side_C))
            for side_C in (gold_C, predicted_C)
        )
        return tf.math.divide_no_nan(shared, gold * predicted)


@_register
class Pearson(keras.metrics.Metric):
    """Pearson's correlation of all scores, which it keeps; 0 if a side is constant."""

    def __init__(self, name: str, dtype: Any = _DTYPE):
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
        x_N, y_N, weights_N = tf.unstack(rows_N3, axis=1)
        x_N, y_N = (_centered(self.values(v, weights_N), weights_N) for v in (x_N, y_N))
        shared, x, y = (
            tf.reduce_sum(product_N * weights_N)
            for product_N in (x_N * y_N, x_N * x_N, y_N * y_N)
        )
        return tf.math.divide_no_nan(shared, tf.sqrt(x) * tf.sqrt(y))

    def values(self, scores_N: tf.Tensor, weights_N: tf.Tensor) -> tf.Tensor:
        """Return what is correlated: the scores."""
        del weights_N
        return scores_N

    def reset_state(self) -> None:
        """Forget the scores."""
        self._rows_N3.assign(tf.zeros([0, 3], self.dtype))


@_register
class Spearman(Pearson):
    """Spearman's rank correlation of all scores, which it keeps."""

    def values(self, scores_N: tf.Tensor, weights_N: tf.Tensor) -> tf.Tensor:
        """Return the mean rank of each score among all, less 1/2."""
        order_N = tf.argsort(scores_N)
        sorted_N = tf.gather(scores_N, order_N)
        before_X = tf.concat([[0.0], tf.cumsum(tf.gather(weights_N, order_N))], 0)
        ends = (tf.searchsorted(sorted_N, scores_N, side) for side in ("left", "right"))
        return tf.add_n([tf.gather(before_X, end_N) for end_N in ends]) / 2


def _centered(values_N: tf.Tensor, weights_N: tf.Tensor) -> tf.Tensor:
    values_N -= values_N[:1]  # so that equal values become exactly 0
    return values_N - tf.reduce_sum(values_N * weights_N) / tf.reduce_sum(weights_N)


def named_metric(
    name: str, num_classes: int, multi_label: bool = False
) -> keras.metrics.Metric | None:
    """Return the metric of a name of this module; `f1` of two is that of class 1."""
    threshold = THRESHOLD if multi_label else None
    options = {"name": name, "dtype": _DTYPE}
    if name == "f1" and num_classes == 2 and not multi_label:
        return BinaryF1("micro", THRESHOLD, **options)
    if name in ("f1", "f1_macro", "macro_f1"):
        return MacroF1(threshold=threshold, **options)
    if name in ("f1_micro", "f1_weighted"):
        return keras.metrics.F1Score(name[3:], threshold, **options)
    if name in ("mcc", "matthews_corrcoef"):
        return MatthewsCorrelation(**options)
    if name in ("pearson", "pearsonr"):
        return Pearson(name)
    return Spearman(name) if name in ("spearman", "spearmanr") else None
