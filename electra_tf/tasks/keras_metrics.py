"""Metrics of `compile` that Keras lacks: F1 as one number, MCC, correlations, spans."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from electra_tf.tasks.data.schemes import (
    BEGIN_MARKS,
    END_MARKS,
    OUTSIDE,
    OUTSIDE_MARKS,
    as_span_tags,
    split_tag,
)
from electra_tf.tasks.examples import IGNORE_LABEL

_register = keras.saving.register_keras_serializable("electra_tf")


class _Metric(keras.metrics.Metric):
    """Metric whose sums are float64, as they may cancel; higher is better."""

    def __init__(self, name: str, dtype: Any = "float64"):
        super().__init__(name=name, dtype=dtype)
        self._direction = "up"  # as Keras's metrics state it for its callbacks

    def _weights(self, values: Any, weights: Any) -> tf.Tensor:
        ones = tf.ones(tf.shape(values)[:1], self.dtype)
        if weights is None:
            return ones
        return ones * tf.reshape(tf.cast(weights, self.dtype), [-1])


class _ClassCounts(_Metric):
    """Weights of the correct, true and predicted examples of each class."""

    def __init__(self, num_classes: int, name: str, dtype: Any = "float64"):
        super().__init__(name, dtype)
        self.num_classes = num_classes
        self._counts_3C = self.add_variable((3, num_classes), "zeros", name="counts")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Add class ids [N] as targets and predictions, or zeros and ones [N, C]."""
        weights_N = self._weights(y_true, sample_weight)
        gold_NC, predicted_NC = map(self._multi_hot, (y_true, y_pred))
        counts_3NC = tf.stack([gold_NC * predicted_NC, gold_NC, predicted_NC])
        self._counts_3C.assign_add(tf.reduce_sum(counts_3NC * weights_N[:, None], 1))

    def _multi_hot(self, values: Any) -> tf.Tensor:
        values = tf.convert_to_tensor(values)
        if values.shape.rank == 2:
            return tf.cast(values, self.dtype)
        return tf.one_hot(values, self.num_classes, dtype=self.dtype)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return super().get_config() | {"num_classes": self.num_classes}


@_register
class F1(_ClassCounts):
    """F1 as scikit-learn's `f1_score`, with 0 for a class without examples."""

    def __init__(
        self,
        num_classes: int,
        average: str = "macro",
        name: str = "f1",
        dtype: Any = "float64",
    ):
        super().__init__(num_classes, name, dtype)
        self.average = average

    def result(self) -> tf.Tensor:
        """Return the F1 of class 1, or an average over the classes."""
        correct_C, gold_C, predicted_C = tf.unstack(self._counts_3C.value)
        if self.average == "micro":
            correct_C, gold_C, predicted_C = (
                tf.reduce_sum(counts_C, keepdims=True)
                for counts_C in (correct_C, gold_C, predicted_C)
            )
        f1_C = tf.math.divide_no_nan(2 * correct_C, gold_C + predicted_C)
        if self.average == "binary":
            return f1_C[1]
        shares_C = gold_C
        if self.average == "macro":  # as scikit-learn, over the classes that occur
            shares_C = tf.cast(gold_C + predicted_C > 0, f1_C.dtype)
        if self.average == "micro":
            return f1_C[0]
        total = tf.reduce_sum(shares_C)
        return tf.math.divide_no_nan(tf.reduce_sum(f1_C * shares_C), total)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return super().get_config() | {"average": self.average}


@_register
class MatthewsCorrelation(_ClassCounts):
    """Matthews' correlation coefficient of any number of classes; 0 if undefined."""

    def __init__(self, num_classes: int, name: str = "mcc", dtype: Any = "float64"):
        super().__init__(num_classes, name, dtype)

    def result(self) -> tf.Tensor:
        """Return the coefficient, -1 to 1."""
        correct_C, gold_C, predicted_C = tf.unstack(self._counts_3C.value)
        total = tf.reduce_sum(gold_C)

        def covariance(a_C: tf.Tensor, b_C: tf.Tensor, both: tf.Tensor) -> tf.Tensor:
            return both * total - tf.reduce_sum(a_C * b_C)

        shared = covariance(gold_C, predicted_C, tf.reduce_sum(correct_C))
        own = [covariance(side_C, side_C, total) for side_C in (gold_C, predicted_C)]
        return tf.math.divide_no_nan(shared, tf.sqrt(own[0]) * tf.sqrt(own[1]))


@_register
class Pearson(_Metric):
    """Pearson's correlation of all scores; 0 if one side is constant."""

    def __init__(self, name: str = "pearson", dtype: Any = "float64"):
        super().__init__(name, dtype)
        self._sums_6 = self.add_variable((6,), "zeros", name="sums")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Add scores [N, 1]."""
        x_N, y_N = (tf.reshape(tf.cast(v, self.dtype), [-1]) for v in (y_true, y_pred))
        self._sums_6.assign_add(_moments(x_N, y_N, self._weights(x_N, sample_weight)))

    def result(self) -> tf.Tensor:
        """Return the correlation, -1 to 1."""
        return _correlation(self._sums_6.value)


@_register
class Spearman(_Metric):
    """Spearman's rank correlation of all scores; 0 if one side is constant.

    The ranks need all scores at once, so they are kept until the state is reset. A
    text of weight 2 counts as two texts.
    """

    def __init__(self, name: str = "spearman", dtype: Any = "float64"):
        super().__init__(name, dtype)
        # Variables of Keras have a static shape. All replicas hold all scores.
        self._rows_N3 = tf.Variable(
            tf.zeros([0, 3], self.dtype),
            trainable=False,
            shape=tf.TensorShape([None, 3]),
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Add scores [N, 1]."""
        x_N, y_N = (tf.reshape(tf.cast(v, self.dtype), [-1]) for v in (y_true, y_pred))
        rows_N3 = tf.stack([x_N, y_N, self._weights(x_N, sample_weight)], 1)
        replica = tf.distribute.get_replica_context()
        if replica is not None and replica.num_replicas_in_sync > 1:
            rows_N3 = replica.all_gather(rows_N3, axis=0)
        self._rows_N3.assign(tf.concat([self._rows_N3.read_value(), rows_N3], 0))

    def result(self) -> tf.Tensor:
        """Return the correlation, -1 to 1."""
        x_N, y_N, weights_N = tf.unstack(self._rows_N3.read_value(), axis=1)
        ranks = (_ranks(side_N, weights_N) for side_N in (x_N, y_N))
        return _correlation(_moments(*ranks, weights_N))

    def reset_state(self) -> None:
        """Forget the scores."""
        self._rows_N3.assign(tf.zeros([0, 3], self.dtype))


def _moments(x_N: tf.Tensor, y_N: tf.Tensor, weights_N: tf.Tensor) -> tf.Tensor:
    """Return the weighted sums of 1, x, y, xx, yy and xy."""
    products = [tf.ones_like(x_N), x_N, y_N, x_N * x_N, y_N * y_N, x_N * y_N]
    return tf.reduce_sum(tf.stack(products) * weights_N, 1)


def _correlation(moments_6: tf.Tensor) -> tf.Tensor:
    count, x, y, xx, yy, xy = tf.unstack(moments_6)
    scale = 8 * count * moments_6.dtype.as_numpy_dtype(2.0**-52)  # rounding of sums
    variances = []
    for square, total in ((xx, x), (yy, y)):
        variance = count * square - total * total
        is_constant = variance <= scale * tf.abs(square)
        variances.append(tf.where(is_constant, tf.zeros_like(variance), variance))
    deviations = tf.sqrt(variances[0]) * tf.sqrt(variances[1])
    return tf.clip_by_value(
        tf.math.divide_no_nan(count * xy - x * y, deviations), -1.0, 1.0
    )


def _ranks(values_N: tf.Tensor, weights_N: tf.Tensor) -> tf.Tensor:
    """Return the mean rank of each value among all, less 1/2."""
    order_N = tf.argsort(values_N)
    sorted_N = tf.gather(values_N, order_N)
    before_X = tf.concat([[0.0], tf.cumsum(tf.gather(weights_N, order_N))], 0)
    ends = (tf.searchsorted(sorted_N, values_N, side) for side in ("left", "right"))
    return tf.add_n([tf.gather(before_X, end_N) for end_N in ends]) / 2


class SpanWords(NamedTuple):
    """Words of all texts, W, in relation to spans; all but `kind_W` are bool."""

    inside_W: tf.Tensor
    first_W: tf.Tensor
    last_W: tf.Tensor
    follows_W: tf.Tensor
    """First words directly after a span of the same type."""
    kind_W: tf.Tensor
    """int32, indices of types."""


class SpanFinder:
    """Finder of the spans of tags, by the rules of `schemes.conlleval_spans`."""

    def __init__(self, tags: Sequence[str]):
        marks, kinds = zip(*map(split_tag, as_span_tags(tags)), strict=True)
        self._outside_C, self._begins_C, self._ends_C = (
            np.array([mark in some for mark in marks])
            for some in (OUTSIDE_MARKS, BEGIN_MARKS, END_MARKS)
        )
        self.kinds = sorted(set(kinds))
        """Types of spans, sorted."""
        self._kind_C = np.array([self.kinds.index(kind) for kind in kinds], np.int32)

    def __call__(self, tag_W: tf.Tensor, is_start_W: tf.Tensor) -> SpanWords:
        """Find the spans; none extends over a word that starts a text."""
        inside_W = ~tf.gather(self._outside_C, tag_W)
        kind_W = tf.gather(self._kind_C, tag_W)
        same_W = ~is_start_W & inside_W & shifted(inside_W, 1)
        same_W &= kind_W == shifted(kind_W, 1)
        ended_W = shifted(tf.gather(self._ends_C, tag_W), 1)
        continued_W = same_W & ~ended_W & ~tf.gather(self._begins_C, tag_W)
        return SpanWords(
            inside_W,
            inside_W & ~continued_W,
            inside_W & ~shifted(continued_W, -1),
            same_W & ~continued_W,
            kind_W,
        )


def shifted(values_W: tf.Tensor, by: int) -> tf.Tensor:
    """Return the value of the word before (1) or after (-1) each word, else zero."""
    zero = tf.zeros([1], values_W.dtype)
    parts = [zero, values_W[:-1]] if by > 0 else [values_W[1:], zero]
    return tf.concat(parts, 0)[: tf.size(values_W)]


@_register
class SpanF1(_Metric):
    """F1 of spans, by the rules of conlleval, from the tags of words.

    A span counts with the weight of its sentence. The parts of a sentence longer than
    `data.max_length` count as sentences.
    """

    def __init__(
        self, tags: Sequence[str], name: str = "f1", dtype: Any = "float64"
    ):  # fmt: skip
        super().__init__(name, dtype)
        self.tags = tuple(tags)
        # The last id is that of positions without a word, outside of all spans.
        self._finder = SpanFinder([*self.tags, OUTSIDE])
        self._counts_3 = self.add_variable((3,), "zeros", name="counts")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Add rows of tags.

        Args:
            y_true: Tag ids [B, L]; `IGNORE_LABEL` where no word begins.
            y_pred: Logits of the tags [B, L, C].
            sample_weight: float32 [B].
        """
        y_true = tf.cast(y_true, tf.int32)
        is_word_X = tf.reshape(y_true != IGNORE_LABEL, [-1])
        rows_BL = tf.ones_like(y_true) * tf.range(tf.shape(y_true)[0])[:, None]
        # Words first, in their order; shapes stay static.
        order_X = tf.argsort(tf.cast(~is_word_X, tf.int32), stable=True)
        is_word_X = tf.gather(is_word_X, order_X)
        rows_X = tf.gather(tf.reshape(rows_BL, [-1]), order_X)
        is_start_X = tf.concat([[True], rows_X[1:] != rows_X[:-1]], 0)
        sides = []
        for ids_BL in (y_true, tf.argmax(y_pred, -1, tf.int32)):
            ids_X = tf.gather(tf.reshape(ids_BL, [-1]), order_X)
            ids_X = tf.where(is_word_X, ids_X, len(self.tags))
            sides.append(self._finder(ids_X, is_start_X))
        gold, predicted = sides
        is_correct_X = gold.first_W & predicted.first_W
        is_correct_X &= gold.kind_W == predicted.kind_W
        is_correct_X &= _last_words(gold) == _last_words(predicted)
        masks = [is_correct_X, gold.first_W, predicted.first_W]
        weights_X = tf.gather(self._weights(y_true, sample_weight), rows_X)
        masks_3X = tf.cast(tf.stack(masks), self.dtype)
        self._counts_3.assign_add(tf.reduce_sum(masks_3X * weights_X, 1))

    def result(self) -> tf.Tensor:
        """Return the F1."""
        correct, gold, predicted = tf.unstack(self._counts_3.value)
        return tf.math.divide_no_nan(2 * correct, gold + predicted)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return super().get_config() | {"tags": self.tags}


def _last_words(words: SpanWords) -> tf.Tensor:
    """Return the index of the last word of the span that each word is in."""
    count = tf.size(words.first_W)
    number_W = tf.cumsum(tf.cast(words.first_W, tf.int32))
    index_W = tf.where(words.inside_W, tf.range(count), -1)
    last_N = tf.math.unsorted_segment_max(index_W, number_W, count + 1)
    return tf.gather(last_N, number_W)


_AVERAGE_OF = {
    "f1": "macro",
    "f1_macro": "macro",
    "macro_f1": "macro",
    "f1_micro": "micro",
    "f1_weighted": "weighted",
}
_CORRELATIONS = {
    "pearson": Pearson,
    "pearsonr": Pearson,
    "spearman": Spearman,
    "spearmanr": Spearman,
}
NAMES = (*_AVERAGE_OF, "mcc", "matthews_corrcoef", *_CORRELATIONS)
"""Names of metrics of this module in `compile`."""


def named_metric(
    name: str, num_classes: int, multi_label: bool = False
) -> keras.metrics.Metric:
    """Return the metric of one of `NAMES`; `f1` of two classes is that of class 1."""
    if name in _CORRELATIONS:
        return _CORRELATIONS[name](name)
    if name not in _AVERAGE_OF:
        return MatthewsCorrelation(num_classes, name)
    is_binary = name == "f1" and num_classes == 2 and not multi_label
    return F1(num_classes, "binary" if is_binary else _AVERAGE_OF[name], name)
