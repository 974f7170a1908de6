"""Keras models that predict a class or a score for a text or a pair of texts."""

import math
import numbers
import os
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from electra_tf.errors import InputError, format_list
from electra_tf.model.heads import ClassificationHead
from electra_tf.model.layer_ops import LayerOps
from electra_tf.sources import PretrainedEncoder
from electra_tf.tasks.compiled_metrics import SubsetAccuracy
from electra_tf.tasks.examples import EncodedExamples, IdRows, check_num_targets
from electra_tf.tasks.input_warnings import warn
from electra_tf.tasks.inputs import BALANCED
from electra_tf.tasks.labels import (
    THRESHOLD,
    LabelIds,
    label_sets,
    multi_hot,
    names_of,
)
from electra_tf.tasks.losses import Loss, squeeze_column, weighted_sums
from electra_tf.tasks.text_model import TextModel
from electra_tf.text.encoding import encode_rows
from electra_tf.text.tokenizer import WordPieceTokenizer

_ROUNDING = 1e-6  # of scaled scores


class PooledTextModel(TextModel):
    """Base class of models with one vector for each text or pair of texts.

    By default its outputs are the logits of classes, of which a text has one.
    """

    metric_kind = "classes"
    labels: tuple[str, ...]
    """Names of the classes, in the order of the probabilities."""

    @property
    def reads_cls_alone(self) -> bool:
        """Return whether [CLS] is the vector of a text."""
        return self.settings.model.pooling == "cls"

    def text_head(self, units: int, seed: int) -> ClassificationHead:
        """Return a head with a number of outputs."""
        chosen = self.settings.model
        options = chosen.head_dropout, seed, chosen.pooler, chosen.pooling
        return ClassificationHead(self.shape.width, units, *options)

    def head_outputs(
        self, x_BLD: Any, inputs: IdRows, layer_ops: LayerOps, targets: Any = None
    ) -> Any:
        """Compute the logits of the pooled texts."""
        masks = inputs["segment_ids"], inputs["padding_mask"]
        return self.head(x_BLD, *masks, layer_ops=layer_ops)

    def task_loss(self, outputs: Any, targets: Any, weights_B: tf.Tensor) -> Loss:
        """Compute the cross-entropy."""
        ids_B, probabilities_BC = _class_targets(targets)
        if probabilities_BC is None:
            cross_entropy = tf.nn.sparse_softmax_cross_entropy_with_logits
            return weighted_sums(cross_entropy(ids_B, outputs), weights_B)
        cross_entropy = tf.nn.softmax_cross_entropy_with_logits
        return weighted_sums(cross_entropy(probabilities_BC, outputs), weights_B)

    def metric_rows(self, targets: Any, outputs: Any, weights_B: tf.Tensor) -> tuple:
        """Return class ids and probabilities of texts."""
        return _class_targets(targets)[0], self.probabilities(outputs), weights_B

    def probabilities(self, logits_BC: Any) -> tf.Tensor:
        """Return the probabilities of the classes."""
        return tf.nn.softmax(logits_BC)

    def class_ids(self, y: Sequence[Any]) -> list[int]:
        """Return the ids of classes from names, numbers or one-hot rows."""
        find, count, ids = LabelIds(self.labels), len(self.labels), []
        for index, label in enumerate(y):
            if (number := find(label)) is None:
                number = _hot_column(label, count)
            if number is None:
                integer = "" if find.are_numbers else f", an integer below {count}"
                hint, numbered = "", tuple(map(str, range(count)))
                has_names = "labels" in self.own_arguments
                if has_names and isinstance(label, str) and self.labels == numbered:
                    hint = (
                        f"; pass labels={sorted(set(map(str, y)))!r:.80} in place of "
                    )
                    hint += f"num_classes={count}"
                raise InputError(
                    f"A label must be one of {format_list(self.labels)}{integer}, or a "
                    f"one-hot row of {count} numbers, not {label!r} at index {index}"
                    f"{hint}"
                )
            ids.append(number)
        return ids

    def decode(self, x: Sequence[Any], examples: EncodedExamples, outputs: list) -> Any:
        """Return the probabilities of the classes, float32 [N, C]."""
        if not outputs:  # which cannot be stacked
            return np.zeros((0, len(self.labels)), np.float32)
        return self.probabilities(np.stack(outputs)).numpy()


@keras.saving.register_keras_serializable("electra_tf")
class TextClassifier(PooledTextModel):
    """Classifier of texts or of pairs of texts.

    Args:
        start: Shape, tokenizer and weights of the encoder.
        labels: Names of the classes, in the order of the probabilities. A target is a
            name or its index. Where a name is a number, True or False, a target that
            is a number is that name's value, never an index.
        settings: As for `TextModel`.
        seed: As for `TextModel`.
        pairs: Whether inputs are pairs of texts; None: set by the first training.
        multi_label: Whether a text has any number of classes, also none. The loss is
            then binary cross-entropy, and a probability that of its class alone. A
            target is a list of names, or a row of zeros and ones.
        options: `name`, `dtype` and `trainable`, as for `TextModel`.

    Example:
        import electra_tf

        model = electra_tf.TextClassifier.from_preset("run", num_classes=2)
        model.fit(["a fine film", "a dull film"] * 8, [1, 0] * 8, epochs=2)
        model.predict(["a fine film"])  # probabilities [1, 2]
        model.save("model.keras")
    """

    kind = "classifier"
    own_arguments = ("labels", "pairs", "multi_label")
    head_arguments = ("labels",)
    required_argument = "num_classes or labels"

    def __init__(
        self,
        start: PretrainedEncoder,
        labels: Sequence[str],
        settings: Any = None,
        seed: int = 0,
        pairs: bool | None = None,
        multi_label: bool = False,
        **options: Any,
    ):
        self.labels = self.output_names = names_of(labels, "labels")
        self.pairs = pairs
        self.multi_label, count = bool(multi_label), len(self.labels)
        if len(set(self.labels)) < max(count, 1 if multi_label else 2):
            least = "one or more" if multi_label else "at least two"
            raise InputError(
                f"labels must be a list of {least} distinct names, not {labels!r}"
            )
        super().__init__(start, settings, seed, **options)

    @classmethod
    def from_preset(
        cls,
        path_or_name: str | os.PathLike,
        num_classes: int | None = None,
        labels: Sequence[str] | None = None,
        multi_label: bool | None = None,
        **options: Any,
    ) -> "TextClassifier":
        """Load a saved model, or create one with a pre-trained encoder.

        Args:
            path_or_name: As for `TextModel.from_preset`.
            num_classes: Number of classes, named "0", "1", ...
            labels: Names of the classes, in place of `num_classes`: a list, or a
                dictionary of indices by name (`label2id`) or of names by index.
            multi_label: Whether a text has any number of classes; None: exactly one, or
                as the saved model.
            options: Other arguments of `TextModel.from_preset`.
        """
        if num_classes is not None:
            if labels is not None or not isinstance(num_classes, numbers.Integral):
                raise InputError(
                    "A classifier needs either num_classes, an integer, or labels, not "
                    f"num_classes={num_classes!r}, labels={labels}"
                )
            labels = range(num_classes)
        if labels is not None:
            options["labels"] = names_of(labels, "labels")
        if multi_label is not None:
            options["multi_label"] = multi_label
        return super().from_preset(path_or_name, **options)

    @property
    def metric_kind(self) -> str:
        """Values that metrics of `compile` compare."""
        return "label_sets" if self.multi_label else "classes"

    def make_head(self, seed: int) -> ClassificationHead:
        """Return a head with one logit per class."""
        return self.text_head(len(self.labels), seed)

    def task_loss(self, outputs: Any, targets: Any, weights_B: tf.Tensor) -> Loss:
        """Compute the cross-entropy, of each class apart with `multi_label`."""
        if not self.multi_label:
            return super().task_loss(outputs, targets, weights_B)
        targets_BC = self._label_set_targets(targets)
        losses_BC = tf.nn.sigmoid_cross_entropy_with_logits(targets_BC, outputs)
        return weighted_sums(tf.reduce_mean(losses_BC, -1), weights_B)

    def examples(
        self, x: Sequence[Any], y: Sequence[Any] | None = None
    ) -> EncodedExamples:
        """Encode texts or pairs, with names or indices of classes as targets."""
        if y is not None:
            y = multi_hot(y, self.labels) if self.multi_label else self.class_ids(y)
        return encode_texts(self.tokenizer, x, self.settings.data.max_length, y)

    def check_training(self, examples: EncodedExamples) -> None:
        """Warn of texts that are all of one class."""
        ids = np.unique([] if self.multi_label else examples.targets)
        if len(ids) == 1 < len(examples):
            warn(
                f"all {len(examples):,} texts are of the class "
                f"{self.labels[ids[0]]!r:.80}, one of {len(self.labels)}: the model "
                "learns to predict it for any text"
            )

    def metric_rows(self, targets: Any, outputs: Any, weights_B: tf.Tensor) -> tuple:
        """Return class ids, or rows of zeros and ones, and probabilities of texts."""
        if not self.multi_label:
            return super().metric_rows(targets, outputs, weights_B)
        targets_BC = self._label_set_targets(targets)
        return targets_BC, self.probabilities(outputs), weights_B

    def task_metrics(self) -> list[keras.metrics.Metric]:
        """Return the share of texts whose class or classes are all correct."""
        is_set = self.multi_label
        return [SubsetAccuracy("subset_accuracy")] if is_set else super().task_metrics()

    def probabilities(self, logits_BC: Any) -> tf.Tensor:
        """Return the probabilities of the classes: together 1, or each its own."""
        return tf.sigmoid(logits_BC) if self.multi_label else tf.nn.softmax(logits_BC)

    def named_outputs(self, outputs: Any) -> dict[str, tf.Tensor]:
        """Return `probabilities`, `logits` and `label` from logits [B, C].

        With `multi_label`, `labels` [B, C] has each name that applies, else b"".
        """
        probabilities_BC = self.probabilities(outputs)
        common = {"probabilities": probabilities_BC, "logits": outputs}
        if self.multi_label:
            labels_BC = tf.where(probabilities_BC > THRESHOLD, self.labels, "")
            return {**common, "labels": labels_BC}
        best_B = tf.argmax(outputs, -1)
        return {**common, "label": tf.gather(tf.constant(self.labels), best_B)}

    def served_metadata(self) -> dict[str, Any]:
        """Return the classes, and what a text and its labels are."""
        return {
            "labels": list(self.labels),
            "pairs": bool(self.pairs),
            "multi_label": self.multi_label,
        }

    def labels_of(self, probabilities_NC: np.ndarray) -> list[Any]:
        """Return the best name of each text, or a tuple of its names."""
        if self.multi_label:
            return label_sets(probabilities_NC, self.labels)
        return [self.labels[number] for number in np.argmax(probabilities_NC, -1)]

    def class_weights(
        self, y: Sequence[Any], of: Mapping[Any, float] | str
    ) -> list[float]:
        """Return the weight of each target's class; `balanced`: by its share of y."""
        if self.multi_label:
            raise InputError(
                f"class_weight={of!r:.60} does not apply with multi_label, as a text "
                "has any number of classes; pass sample_weight"
            )
        if of == BALANCED:
            ids = np.asarray(self.class_ids(y), np.int64)
            counts = np.bincount(ids, minlength=len(self.labels))
            return (len(ids) / np.count_nonzero(counts) / counts[ids]).tolist()
        if not isinstance(of, Mapping):
            raise InputError(
                "class_weight must be a dictionary of weights by class, or "
                f"{BALANCED!r}, not {of!r:.60}"
            )
        weights = dict(zip(self.class_ids(list(of)), of.values(), strict=True))
        if len(weights) < len(of):
            raise InputError(f"class_weight must have each class once, not {of!r:.60}")
        return [weights.get(class_id, 1.0) for class_id in self.class_ids(y)]

    def _label_set_targets(self, targets: Any) -> tf.Tensor:
        """Return zeros and ones, or probabilities, float32 [B, C]."""
        targets_BC = tf.cast(tf.convert_to_tensor(targets), tf.float32)
        return tf.ensure_shape(targets_BC, [None, len(self.labels)])


@keras.saving.register_keras_serializable("electra_tf")
class TextRegressor(PooledTextModel):
    """Regressor of texts or of pairs of texts.

    Args:
        start: Shape, tokenizer and weights of the encoder.
        low: Lowest score; the head is trained on scores scaled to 0...1.
        high: Highest score.
        settings: As for `TextModel`.
        seed: As for `TextModel`.
        pairs: Whether inputs are pairs of texts; None: set by the first training.
        options: `name`, `dtype` and `trainable`, as for `TextModel`.

    Example:
        import electra_tf

        model = electra_tf.TextRegressor.from_preset("run", low=0, high=5)
        model.fit(["a fine film", "a dull film"] * 8, [4.5, 1.0] * 8, epochs=2)
        model.predict(["a fine film"])  # a score between about 0 and 5
    """

    kind = "regressor"
    own_arguments = ("low", "high", "pairs")
    head_arguments = ("low", "high")
    metric_kind = "scores"

    def __init__(
        self,
        start: PretrainedEncoder,
        low: float = 0.0,
        high: float = 1.0,
        settings: Any = None,
        seed: int = 0,
        pairs: bool | None = None,
        **options: Any,
    ):
        self.low, self.high, self.pairs = float(low), float(high), pairs
        if not -math.inf < self.low < self.high < math.inf:
            raise InputError(
                f"low must be less than high, and both finite: low={low}, high={high}"
            )
        super().__init__(start, settings, seed, **options)

    def make_head(self, seed: int) -> ClassificationHead:
        """Return a head with one output."""
        return self.text_head(1, seed)

    def task_loss(self, outputs: Any, targets: Any, weights_B: tf.Tensor) -> Loss:
        """Compute the squared error of scaled scores."""
        scores_B = tf.reshape(tf.cast(targets, tf.float32), [-1])
        return weighted_sums(tf.square(outputs[:, 0] - scores_B), weights_B)

    def metric_rows(self, targets: Any, outputs: Any, weights_B: tf.Tensor) -> tuple:
        """Return true and predicted scores [B, 1], in the units of `low` and `high`."""
        targets_B1 = tf.reshape(tf.cast(targets, tf.float32), [-1, 1])
        scores = (self.low + t * (self.high - self.low) for t in (targets_B1, outputs))
        return *scores, weights_B

    def task_metrics(self) -> list[keras.metrics.Metric]:
        """Return the squared error in the units of the scores."""
        return [keras.metrics.MeanSquaredError("mse")]

    def examples(
        self, x: Sequence[Any], y: Sequence[Any] | None = None
    ) -> EncodedExamples:
        """Encode texts or pairs, with scores as targets."""
        for index, score in enumerate([] if y is None else y):
            array = np.asarray(score)
            if array.ndim or array.dtype.kind not in "fiu" or not np.isfinite(array):
                raise InputError(
                    f"A score must be a finite number, not {score!r} at index {index}"
                )
        if y is not None:
            y = [(float(score) - self.low) / (self.high - self.low) for score in y]
        return encode_texts(self.tokenizer, x, self.settings.data.max_length, y)

    def check_training(self, examples: EncodedExamples) -> None:
        """Warn of scores that are equal, or beyond `low` and `high`."""
        scaled = np.asarray(examples.targets, np.float64)
        if not scaled.size:
            return
        ends = np.array([scaled.min(), scaled.max()])
        least, most = self.low + ends * (self.high - self.low)
        if least == most and scaled.size > 1:
            warn(
                f"all {scaled.size:,} scores are {least:.6g}: the model learns to "
                "predict it for any text; check the column of the scores"
            )
        # A new head learns scores far from 0...1 slowly.
        elif scaled.min() < -_ROUNDING or scaled.max() > 1 + _ROUNDING:
            warn(
                f"the scores are from {least:.6g} to {most:.6g}, and low={self.low:g}, "
                f"high={self.high:g}: pass low and high that include them, unless the "
                "head is trained, or it learns little"
            )

    def decode(self, x: Sequence[Any], examples: EncodedExamples, outputs: list) -> Any:
        """Return scores in the units of `low` and `high`, float32 [N]."""
        scores = np.array([output[0] for output in outputs], np.float32)
        return self.low + scores * (self.high - self.low)

    def named_outputs(self, outputs: Any) -> dict[str, tf.Tensor]:
        """Return `score` from the head's output [B, 1]."""
        return {"score": self.low + outputs[:, 0] * (self.high - self.low)}

    def served_metadata(self) -> dict[str, Any]:
        """Return the range of the scores, and whether inputs are pairs."""
        return {"low": self.low, "high": self.high, "pairs": bool(self.pairs)}


def encode_texts(
    tokenizer: WordPieceTokenizer,
    texts: Sequence[Any],
    max_length: int,
    targets: Sequence[Any] | None = None,
) -> EncodedExamples:
    """Encode texts or pairs with their targets."""
    check_num_targets(texts, targets, "texts")
    rows = encode_rows(tokenizer.wordpieces, tokenizer.vocabulary, texts, max_length)
    return EncodedExamples(
        rows.ids, rows.segments, max_length, targets, rows.truncated, pairs=rows.pairs
    )


def _class_targets(labels_B: Any) -> tuple[tf.Tensor, tf.Tensor | None]:
    """Return class ids, int32 [B], and probabilities [B, C] if the labels are these.

    The class of probabilities is the most probable one.
    """
    labels_B = squeeze_column(labels_B)
    if labels_B.shape.rank != 2:
        # Traced for [B] and for [B, 1], the rank is unknown.
        return tf.reshape(tf.cast(labels_B, tf.int32), [-1]), None
    probabilities_BC = tf.cast(labels_B, tf.float32)
    return tf.argmax(probabilities_BC, -1, tf.int32), probabilities_BC


def _hot_column(row: Any, count: int) -> int | None:
    """Return the column of the 1 of a row of zeros; None: it is no such row."""
    value = np.asarray(row)
    hot = np.flatnonzero(value) if value.shape == (count,) else []
    return int(hot[0]) if len(hot) == 1 and value[hot[0]] == 1 else None
