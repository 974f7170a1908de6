"""Keras models that predict a class or a score for a text or a pair of texts."""

import math
import numbers
import os
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from electra_tf.config.finetuning import FinetuningConfig
from electra_tf.errors import InputError, format_list
from electra_tf.model.heads import ClassificationHead
from electra_tf.model.layer_ops import LayerOps
from electra_tf.tasks.classification.preprocessing import encode_texts
from electra_tf.tasks.examples import EncodedExamples, Inputs
from electra_tf.tasks.losses import Loss, class_loss, score_loss
from electra_tf.tasks.presets import PresetArguments
from electra_tf.tasks.pretrained import PretrainedEncoder, from_saved_config
from electra_tf.tasks.text_model import TextModel

_DEFAULTS = FinetuningConfig()


@keras.saving.register_keras_serializable("electra_tf")
class TextClassifier(TextModel):
    """Classifier of texts or of pairs of texts.

    Args:
        start: Shape, tokenizer and weights of the encoder.
        labels: Names of the classes, in the order of the probabilities. A target is a
            name or its index; where names are integers, a target is always a name.
        settings: All settings of fine-tuning.
        seed: Seed of the head's weights, of dropout and of the order of the examples.
        pairs: Whether inputs are pairs of texts; None: set by the first training.
        name: Name of the model.
        dtype: `float32` or `mixed_bfloat16`; overrides `training.precision`.
        trainable: Whether the weights are trained.

    Example:
        import electra_tf

        model = electra_tf.TextClassifier.from_preset("run", num_classes=2)
        model.fit(["a fine film", "a dull film"] * 8, [1, 0] * 8, epochs=2)
        model.predict(["a fine film"])  # probabilities [1, 2]
        model.save("model.keras")
    """

    has_classes = takes_columns = True
    metric_kind = "classes"

    def __init__(
        self,
        start: PretrainedEncoder,
        labels: Sequence[str],
        settings: FinetuningConfig = _DEFAULTS,
        seed: int = 0,
        pairs: bool | None = None,
        name: str | None = None,
        dtype: Any = None,
        trainable: bool = True,
    ):
        self.labels, self.pairs = tuple(map(str, labels)), pairs
        if len(set(self.labels)) != len(self.labels) or len(self.labels) < 2:
            raise InputError(
                "labels must be at least two distinct names",
                f"labels={self.labels}",
                "Pass each class once",
            )
        name = name or "text_classifier"
        super().__init__(start, settings, seed, name, dtype, trainable)

    @classmethod
    def from_preset(
        cls,
        path_or_name: str | os.PathLike,
        num_classes: int | None = None,
        labels: Sequence[str] | None = None,
        settings: FinetuningConfig | None = None,
        seed: int = 0,
        vocabulary: str | None = None,
        name: str | None = None,
        dtype: Any = None,
        trainable: bool = True,
    ) -> "TextClassifier":
        """Load a saved model, or create one with a pre-trained encoder.

        Args:
            path_or_name: A checkpoint, a run directory (its newest checkpoint), a
                saved model, or the name or path of a config, for random weights.
            num_classes: Number of classes, named "0", "1", ...
            labels: Names of the classes, in place of `num_classes`.
            settings: All settings of fine-tuning; None: the defaults.
            seed: Seed of the head's weights, of dropout and of the order of the
                examples.
            vocabulary: Vocabulary file; only with a config.
            name: Name of the model.
            dtype: `float32` or `mixed_bfloat16`; overrides `training.precision`.
            trainable: Whether the weights are trained.

        Returns:
            A model with an untrained head, or the saved model unchanged.

        Raises:
            InputError: The source is unknown or damaged, or the arguments differ from
                those of the saved model.
        """
        preset = PresetArguments(
            path_or_name, vocabulary, settings, seed, name, dtype, trainable
        )
        has_head = preset.has_head(cls, num_classes, labels)
        head = _class_names(num_classes, labels, has_head)
        return preset.build(cls, has_head, **head)

    @property
    def num_outputs(self) -> int:
        """Number of classes."""
        return len(self.labels)

    def make_head(self, seed: int) -> ClassificationHead:
        """Return a head with one logit per class."""
        dropout = self.settings.model.head_dropout
        return ClassificationHead(self.shape.width, len(self.labels), dropout, seed)

    def head_outputs(
        self, x_BLD: Any, inputs: Inputs, layer_ops: LayerOps, targets: Any = None
    ) -> Any:
        """Return float32 logits [B, C]."""
        return self.head(x_BLD, layer_ops=layer_ops)

    def task_loss(self, outputs: Any, targets: Any, weights_B: tf.Tensor) -> Loss:
        """Compute the cross-entropy and the number of correct predictions."""
        return class_loss(outputs, targets, weights_B)

    def examples(
        self, x: Sequence[Any], y: Sequence[Any] | None = None
    ) -> EncodedExamples:
        """Encode texts or pairs, with names or indices of classes as targets."""
        class_ids = None if y is None else self._class_ids(y)
        pairs = _check_pairs(x, self.pairs)
        max_length = self.settings.data.max_length
        encoded = encode_texts(self.tokenizer, x, max_length, class_ids)
        if y is not None:
            self.pairs = pairs
        return encoded

    def decode(self, x: Sequence[Any], examples: EncodedExamples, outputs: list) -> Any:
        """Return the probabilities of the classes, float32 [N, C]."""
        if not outputs:
            return np.zeros((0, len(self.labels)), np.float32)
        return tf.nn.softmax(np.stack(outputs)).numpy()

    def clone_with_seed(self, start: PretrainedEncoder, seed: int) -> "TextClassifier":
        """Return a copy with initial weights of another seed."""
        return TextClassifier(start, self.labels, self.settings, seed, self.pairs)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of `from_config`."""
        arguments = {"labels": list(self.labels), "pairs": self.pairs}
        return super().get_config() | arguments

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "TextClassifier":
        """Create a model from its configuration, with initial weights."""
        start, settings = from_saved_config(config)
        model = cls(start, config["labels"], settings, pairs=config.get("pairs"))
        return model.configured(config)

    def class_weights(self, y: Sequence[Any], of: Mapping[Any, float]) -> list[float]:
        """Return the weight of each target's class."""
        if not isinstance(of, Mapping):
            raise InputError(
                "class_weight must be a dictionary of weights by class",
                f"{of!r:.60}",
                "Pass {class: weight}, each class written as in the targets",
            )
        weights = dict(zip(self._class_ids(list(of)), of.values(), strict=True))
        if len(weights) < len(of):
            raise InputError(
                "class_weight must contain each class once",
                f"{of!r:.60}",
                "Keep one key of each class",
            )
        return [weights.get(class_id, 1.0) for class_id in self._class_ids(y)]

    def _class_ids(self, y: Sequence[Any]) -> list[int]:
        ids = {name: index for index, name in enumerate(self.labels)}
        has_integer_names = any(name.lstrip("-").isdigit() for name in self.labels)
        if not has_integer_names:
            ids |= {str(index): index for index in ids.values()}
        count = len(self.labels)
        class_ids = [
            _class_id(label, count, ids.get(_label_name(label))) for label in y
        ]
        if None in class_ids:
            index = class_ids.index(None)
            raise InputError(
                f"A label must be one of {format_list(self.labels)}"
                + f", an integer below {count}" * (not has_integer_names)
                + f", or a one-hot row of {count} numbers",
                f"{y[index]!r} at index {index}",
                "Correct the label, or create the model with these labels",
            )
        return class_ids


@keras.saving.register_keras_serializable("electra_tf")
class TextRegressor(TextModel):
    """Regressor of texts or of pairs of texts.

    Args:
        start: Shape, tokenizer and weights of the encoder.
        low: Lowest score; the head is trained on scores scaled to 0...1.
        high: Highest score.
        settings: All settings of fine-tuning.
        seed: Seed of the head's weights, of dropout and of the order of the examples.
        pairs: Whether inputs are pairs of texts; None: set by the first training.
        name: Name of the model.
        dtype: `float32` or `mixed_bfloat16`; overrides `training.precision`.
        trainable: Whether the weights are trained.

    Example:
        import electra_tf

        model = electra_tf.TextRegressor.from_preset("run", low=0, high=5)
        model.fit(["a fine film", "a dull film"] * 8, [4.5, 1.0] * 8, epochs=2)
        model.predict(["a fine film"])  # a score between about 0 and 5
    """

    metric_name, metric_kind = "mse", "scores"
    takes_columns = True

    def __init__(
        self,
        start: PretrainedEncoder,
        low: float = 0.0,
        high: float = 1.0,
        settings: FinetuningConfig = _DEFAULTS,
        seed: int = 0,
        pairs: bool | None = None,
        name: str | None = None,
        dtype: Any = None,
        trainable: bool = True,
    ):
        self.low, self.high, self.pairs = float(low), float(high), pairs
        if not -math.inf < self.low < self.high < math.inf:
            raise InputError(
                "low must be less than high, and both finite",
                f"low={low}, high={high}",
                "Pass the lowest and the highest possible score",
            )
        name = name or "text_regressor"
        super().__init__(start, settings, seed, name, dtype, trainable)

    @classmethod
    def from_preset(
        cls,
        path_or_name: str | os.PathLike,
        low: float | None = None,
        high: float | None = None,
        settings: FinetuningConfig | None = None,
        seed: int = 0,
        vocabulary: str | None = None,
        name: str | None = None,
        dtype: Any = None,
        trainable: bool = True,
    ) -> "TextRegressor":
        """Load a saved model, or create one with a pre-trained encoder.

        Args:
            path_or_name: A checkpoint, a run directory (its newest checkpoint), a
                saved model, or the name or path of a config, for random weights.
            low: Lowest score; None: 0.
            high: Highest score; None: 1.
            settings: All settings of fine-tuning; None: the defaults.
            seed: Seed of the head's weights, of dropout and of the order of the
                examples.
            vocabulary: Vocabulary file; only with a config.
            name: Name of the model.
            dtype: `float32` or `mixed_bfloat16`; overrides `training.precision`.
            trainable: Whether the weights are trained.

        Returns:
            A model with an untrained head, or the saved model unchanged.

        Raises:
            InputError: The source is unknown or damaged, or the arguments differ from
                those of the saved model.
        """
        preset = PresetArguments(
            path_or_name, vocabulary, settings, seed, name, dtype, trainable
        )
        bounds = {"low": low, "high": high}
        head = {bound: value for bound, value in bounds.items() if value is not None}
        return preset.build(cls, preset.has_head(cls, low, high), **head)

    def make_head(self, seed: int) -> ClassificationHead:
        """Return a head with one output."""
        dropout = self.settings.model.head_dropout
        return ClassificationHead(self.shape.width, 1, dropout, seed)

    def head_outputs(
        self, x_BLD: Any, inputs: Inputs, layer_ops: LayerOps, targets: Any = None
    ) -> Any:
        """Return float32 scores [B, 1], scaled: 0 is `low`, 1 is `high`."""
        return self.head(x_BLD, layer_ops=layer_ops)

    def task_loss(self, outputs: Any, targets: Any, weights_B: tf.Tensor) -> Loss:
        """Compute the squared error.

        The loss is that of scaled scores; `mse` is in the units of `low` and `high`.
        """
        loss = score_loss(outputs, targets, weights_B)
        return loss._replace(metric_sum=loss.metric_sum * (self.high - self.low) ** 2)

    def metric_rows(self, targets: Any, outputs: Any, weights_B: tf.Tensor) -> tuple:
        """Return true and predicted scores [B, 1], in the units of `low` and `high`."""
        targets_B1 = tf.reshape(tf.cast(targets, tf.float32), [-1, 1])
        scores = (self.low + t * (self.high - self.low) for t in (targets_B1, outputs))
        return *scores, weights_B

    def examples(
        self, x: Sequence[Any], y: Sequence[Any] | None = None
    ) -> EncodedExamples:
        """Encode texts or pairs, with scores as targets."""
        scale = self.high - self.low
        scores = None
        if y is not None:
            invalid = [n for n, score in enumerate(y) if not _is_finite_number(score)]
            if invalid:
                raise InputError(
                    "A score must be a finite number",
                    f"{y[invalid[0]]!r} at index {invalid[0]}",
                    "Correct the score, or remove that text",
                )
            scores = [(float(score) - self.low) / scale for score in y]
        pairs = _check_pairs(x, self.pairs)
        max_length = self.settings.data.max_length
        encoded = encode_texts(self.tokenizer, x, max_length, scores)
        if y is not None:
            self.pairs = pairs
        return encoded

    def decode(self, x: Sequence[Any], examples: EncodedExamples, outputs: list) -> Any:
        """Return scores in the units of `low` and `high`, float32 [N]."""
        scores = np.array([output[0] for output in outputs], np.float32)
        return self.low + scores * (self.high - self.low)

    def clone_with_seed(self, start: PretrainedEncoder, seed: int) -> "TextRegressor":
        """Return a copy with initial weights of another seed."""
        bounds = self.low, self.high
        return TextRegressor(start, *bounds, self.settings, seed, self.pairs)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of `from_config`."""
        arguments = {"low": self.low, "high": self.high, "pairs": self.pairs}
        return super().get_config() | arguments

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "TextRegressor":
        """Create a model from its configuration, with initial weights."""
        start, settings = from_saved_config(config)
        bounds = config["low"], config["high"]
        model = cls(start, *bounds, settings, pairs=config.get("pairs"))
        return model.configured(config)


def _class_names(
    num_classes: int | None, labels: Sequence[str] | None, is_saved: bool
) -> dict[str, tuple[str, ...]]:
    """Return the argument `labels`; empty if the saved model provides it."""
    if is_saved and num_classes is None and labels is None:
        return {}
    if isinstance(num_classes, numbers.Integral) == (labels is not None):
        raise InputError(
            "A classifier must get either num_classes, an integer, or labels",
            f"num_classes={num_classes!r}, labels={labels}",
            "Pass exactly one of num_classes and labels",
        )
    if labels is None:
        labels = range(num_classes)
    return {"labels": tuple(map(str, labels))}


def _label_name(label: Any) -> str | None:
    """Return a label's name or index as a string; None if it is neither."""
    if isinstance(label, bytes):
        return label.decode("utf-8", "replace")
    if isinstance(label, str):
        return str(label)
    value = np.asarray(label)
    if value.ndim or value.dtype.kind not in "biuf" or not np.isfinite(value):
        return None
    return str(int(value)) if value == np.floor(value) else None


def _class_id(label: Any, count: int, class_id: int | None) -> int | None:
    """Return `class_id`, or the position of the only 1 in a one-hot row, or None."""
    if class_id is not None or isinstance(label, str | bytes | Mapping):
        return class_id
    row = np.asarray(label)
    if row.shape != (count,) or row.dtype.kind not in "biuf":
        return None
    hot = np.flatnonzero(row)
    return int(hot[0]) if len(hot) == 1 and row[hot[0]] == 1 else None


def _is_finite_number(value: Any) -> bool:
    """Return whether a value is a finite number; strings and booleans are not."""
    array = np.asarray(value)
    return not array.ndim and array.dtype.kind in "fiu" and bool(np.isfinite(array))


def _check_pairs(x: Sequence[Any], trained_pairs: bool | None) -> bool | None:
    """Return whether the texts are pairs; raise if the model was trained otherwise."""
    if not all(isinstance(text, str | list | tuple) for text in x):
        return trained_pairs  # `encode_texts` raises, with the index
    if not len(x):
        return trained_pairs
    is_pair = not isinstance(x[0], str)
    others = [n for n, text in enumerate(x) if isinstance(text, str) is is_pair]
    if others:
        raise InputError(
            "Texts must be all single texts or all pairs",
            f"{x[0]!r:.60} at index 0, {x[others[0]]!r:.60} at index {others[0]}",
            "Pass a list of strings, or of pairs of strings",
        )
    if trained_pairs is not None and is_pair != trained_pairs:
        kinds = ("single texts", "pairs of texts")
        raise InputError(
            f"The texts must be {kinds[trained_pairs]}, as in training",
            f"{kinds[is_pair]}, such as {x[0]!r:.60}",
            f"Pass {kinds[trained_pairs]}, or train another model",
        )
    return is_pair
