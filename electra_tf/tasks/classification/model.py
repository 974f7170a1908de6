"""The models of tasks: from strings to classes, scores, tags and answers."""

import math
import numbers
import os
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from electra_tf.config.finetuning import FinetuningConfig
from electra_tf.errors import InputError, listed
from electra_tf.model.heads import ClassificationHead
from electra_tf.model.layer_ops import LayerOps
from electra_tf.tasks.batching import EncodedExamples, Inputs
from electra_tf.tasks.classification.preprocessing import encode_texts
from electra_tf.tasks.losses import Loss, class_loss, score_loss
from electra_tf.tasks.presets import PresetArguments
from electra_tf.tasks.pretrained import PretrainedEncoder, from_saved_config
from electra_tf.tasks.text_model import TextModel

_DEFAULTS = FinetuningConfig()


@keras.saving.register_keras_serializable("electra_tf")
class TextClassifier(TextModel):
    """Predicts the class of a text or of a pair of texts.

    Args:
        start: Shape, tokenizer and weights of the encoder.
        labels: The classes' names; the number of a class is its place, but for names
            that are numbers themselves.
        settings: All of fine-tuning.
        seed: Decides the head's weights, dropout and the order of the examples.
        pairs: Whether it takes pairs of texts; None: as it is trained with.
        name: Of the model.
        dtype: `float32` or `mixed_bfloat16`, in place of the settings' precision.
        trainable: Whether the weights are trained.

    Example:
        import electra_tf

        model = electra_tf.TextClassifier.from_preset("run", num_classes=2)
        model.fit(["a fine film", "a dull film"] * 8, [1, 0] * 8, epochs=2)
        model.predict(["a fine film"])  # probabilities [1, 2]
        model.save("model.keras")
    """

    has_classes = takes_columns = True

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
                "A classifier tells two classes or more apart, each with its own name",
                f"the labels {self.labels}",
                "Name each class once",
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
        """Load a saved model, or make one on a pre-trained encoder.

        Args:
            path_or_name: A checkpoint's folder, a run's folder (its newest
                checkpoint), a saved model, which is returned as it is, or the name or
                path of a config, for random weights.
            num_classes: How many classes, named "0", "1", ...
            labels: Their names instead.
            settings: All of fine-tuning; None: the defaults.
            seed: Decides the head's weights, dropout and the order of the examples.
            vocabulary: The vocabulary's file; for a config alone.
            name: Of the model.
            dtype: `float32` or `mixed_bfloat16`, in place of the settings' precision.
            trainable: Whether the weights are trained.

        Returns:
            A model whose head is not trained yet, or the saved model.

        Raises:
            InputError: The source is of no known kind or damaged, or the arguments
                are not those of the saved model.
        """
        preset = PresetArguments(
            path_or_name, vocabulary, settings, seed, name, dtype, trainable
        )
        head = _class_names(num_classes, labels, preset.is_saved)
        return preset.build(cls, **head)

    def make_head(self, seed: int) -> ClassificationHead:
        """A logit for each class."""
        dropout = self.settings.model.head_dropout
        return ClassificationHead(self.shape.width, len(self.labels), dropout, seed)

    def head_outputs(
        self, x_BLD: Any, inputs: Inputs, layer_ops: LayerOps, targets: Any = None
    ) -> Any:
        """float32 logits [B, C]."""
        return self.head(x_BLD, layer_ops=layer_ops)

    def task_loss(self, outputs: Any, targets: Any, weights_B: tf.Tensor) -> Loss:
        """Cross-entropy, and how many are right."""
        return class_loss(outputs, targets, weights_B)

    def examples(
        self, x: Sequence[Any], y: Sequence[Any] | None = None
    ) -> EncodedExamples:
        """Texts or pairs, with numbers or names of classes."""
        classes = None if y is None else self._numbers(y)
        pairs = _pairs(x, self.pairs)
        found = encode_texts(self.tokenizer, x, self.settings.data.max_length, classes)
        if y is not None:
            self.pairs = pairs
        return found

    def decode(self, x: Sequence[Any], examples: EncodedExamples, outputs: list) -> Any:
        """Probabilities of the classes, float32 [N, C]."""
        if not outputs:
            return np.zeros((0, len(self.labels)), np.float32)
        return tf.nn.softmax(np.stack(outputs)).numpy()

    def clone_with_seed(self, start: PretrainedEncoder, seed: int) -> "TextClassifier":
        """The same with other initial weights."""
        return TextClassifier(start, self.labels, self.settings, seed, self.pairs)

    def get_config(self) -> dict[str, Any]:
        """What `from_config` takes."""
        own = {"labels": list(self.labels), "pairs": self.pairs}
        return super().get_config() | own

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "TextClassifier":
        """An equal model, but for its weights."""
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
        known = dict(zip(self._numbers(list(of)), of.values(), strict=True))
        if len(known) < len(of):
            raise InputError(
                "class_weight must name each class once",
                f"{of!r:.60}",
                "Leave one of the names of the same class out",
            )
        return [known.get(number, 1.0) for number in self._numbers(y)]

    def _numbers(self, y: Sequence[Any]) -> list[int]:
        places = {name: place for place, name in enumerate(self.labels)}
        are_numbers = any(name.lstrip("-").isdigit() for name in self.labels)
        if not are_numbers:
            places |= {str(place): place for place in places.values()}
        classes = len(self.labels)
        found = [_hot(label, classes, places.get(_name(label))) for label in y]
        if None in found:
            at = found.index(None)
            raise InputError(
                f"A label must be one of {listed(self.labels)}"
                + f", a number below {classes}" * (not are_numbers)
                + f", or a one-hot row of {classes} numbers",
                f"{y[at]!r} at place {at}",
                "Correct the label, or make the model with these labels",
            )
        return found


@keras.saving.register_keras_serializable("electra_tf")
class TextRegressor(TextModel):
    """Predicts a number for a text or for a pair of texts.

    Args:
        start: Shape, tokenizer and weights of the encoder.
        low: The lowest score; the head is trained on scores from 0 to 1.
        high: The highest score.
        settings: All of fine-tuning.
        seed: Decides the head's weights, dropout and the order of the examples.
        pairs: Whether it takes pairs of texts; None: as it is trained with.
        name: Of the model.
        dtype: `float32` or `mixed_bfloat16`, in place of the settings' precision.
        trainable: Whether the weights are trained.

    Example:
        import electra_tf

        model = electra_tf.TextRegressor.from_preset("run", low=0, high=5)
        model.fit(["a fine film", "a dull film"] * 8, [4.5, 1.0] * 8, epochs=2)
        model.predict(["a fine film"])  # a score between about 0 and 5
    """

    metric_name = "mse"
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
                "Scores lie between two numbers, the lower one first",
                f"low={low}, high={high}",
                "Pass the least and the greatest score there may be",
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
        """Load a saved model, or make one on a pre-trained encoder.

        Args:
            path_or_name: A checkpoint's folder, a run's folder (its newest
                checkpoint), a saved model, which is returned as it is, or the name or
                path of a config, for random weights.
            low: The lowest score; None: 0.
            high: The highest score; None: 1.
            settings: All of fine-tuning; None: the defaults.
            seed: Decides the head's weights, dropout and the order of the examples.
            vocabulary: The vocabulary's file; for a config alone.
            name: Of the model.
            dtype: `float32` or `mixed_bfloat16`, in place of the settings' precision.
            trainable: Whether the weights are trained.

        Returns:
            A model whose head is not trained yet, or the saved model.

        Raises:
            InputError: The source is of no known kind or damaged, or the arguments
                are not those of the saved model.
        """
        preset = PresetArguments(
            path_or_name, vocabulary, settings, seed, name, dtype, trainable
        )
        bounds = {"low": low, "high": high}
        head = {bound: value for bound, value in bounds.items() if value is not None}
        return preset.build(cls, **head)

    def make_head(self, seed: int) -> ClassificationHead:
        """One number."""
        dropout = self.settings.model.head_dropout
        return ClassificationHead(self.shape.width, 1, dropout, seed)

    def head_outputs(
        self, x_BLD: Any, inputs: Inputs, layer_ops: LayerOps, targets: Any = None
    ) -> Any:
        """float32 [B, 1], from 0 at `low` to 1 at `high`."""
        return self.head(x_BLD, layer_ops=layer_ops)

    def task_loss(self, outputs: Any, targets: Any, weights_B: tf.Tensor) -> Loss:
        """Squared error, as the loss of what the head is trained on, from 0 to 1; as
        `mse` in the units of `low` and `high`."""
        loss = score_loss(outputs, targets, weights_B)
        return loss._replace(metric_sum=loss.metric_sum * (self.high - self.low) ** 2)

    def examples(
        self, x: Sequence[Any], y: Sequence[Any] | None = None
    ) -> EncodedExamples:
        """Texts or pairs, with scores."""
        span = self.high - self.low
        scores = None
        if y is not None:
            strange = [at for at, score in enumerate(y) if not _is_score(score)]
            if strange:
                raise InputError(
                    "A score is a finite number",
                    f"{y[strange[0]]!r} at place {strange[0]}",
                    "Mend it, or leave that text out",
                )
            scores = [(float(score) - self.low) / span for score in y]
        pairs = _pairs(x, self.pairs)
        found = encode_texts(self.tokenizer, x, self.settings.data.max_length, scores)
        if y is not None:
            self.pairs = pairs
        return found

    def decode(self, x: Sequence[Any], examples: EncodedExamples, outputs: list) -> Any:
        """Scores in the units of `low` and `high`, float32 [N]."""
        scores = np.array([output[0] for output in outputs], np.float32)
        return self.low + scores * (self.high - self.low)

    def clone_with_seed(self, start: PretrainedEncoder, seed: int) -> "TextRegressor":
        """The same with other initial weights."""
        bounds = self.low, self.high
        return TextRegressor(start, *bounds, self.settings, seed, self.pairs)

    def get_config(self) -> dict[str, Any]:
        """What `from_config` takes."""
        own = {"low": self.low, "high": self.high, "pairs": self.pairs}
        return super().get_config() | own

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "TextRegressor":
        """An equal model, but for its weights."""
        start, settings = from_saved_config(config)
        bounds = config["low"], config["high"]
        model = cls(start, *bounds, settings, pairs=config.get("pairs"))
        return model.configured(config)


def _class_names(
    num_classes: int | None, labels: Sequence[str] | None, is_saved: bool
) -> dict[str, tuple[str, ...]]:
    """Return the argument `labels` of a classifier; {}: that of the saved model."""
    if is_saved and num_classes is None and labels is None:
        return {}
    if isinstance(num_classes, numbers.Integral) == (labels is not None):
        raise InputError(
            "A classifier must get the number of its classes or their names",
            f"num_classes={num_classes!r}, labels={labels}",
            "Pass one of the two, num_classes as a whole number",
        )
    if labels is None:
        labels = range(num_classes)
    return {"labels": tuple(map(str, labels))}


def _name(label: Any) -> str | None:
    """The name or the number that a label is given by; None: neither."""
    if isinstance(label, bytes):
        return label.decode("utf-8", "replace")
    if isinstance(label, str):
        return str(label)
    value = np.asarray(label)
    if value.ndim or value.dtype.kind not in "biuf" or not np.isfinite(value):
        return None
    return str(int(value)) if value == np.floor(value) else None


def _hot(label: Any, classes: int, place: int | None) -> int | None:
    """Return a class: `place`, or the only 1 of a one-hot row; None: neither."""
    if place is not None or isinstance(label, str | bytes | Mapping):
        return place
    row = np.asarray(label)
    if row.shape != (classes,) or row.dtype.kind not in "biuf":
        return None
    hot = np.flatnonzero(row)
    return int(hot[0]) if len(hot) == 1 and row[hot[0]] == 1 else None


def _is_score(value: Any) -> bool:
    """Whether it is a number, no string of one, and finite."""
    found = np.asarray(value)
    return not found.ndim and found.dtype.kind in "fiu" and bool(np.isfinite(found))


def _pairs(x: Sequence[Any], known: bool | None) -> bool | None:
    """Whether texts are pairs, as a model is asked about what it was trained with."""
    if not all(isinstance(text, str | list | tuple) for text in x):
        return known  # `pack` raises, with the place
    if not len(x):
        return known
    given = not isinstance(x[0], str)
    others = [at for at, text in enumerate(x) if isinstance(text, str) is given]
    if others:
        raise InputError(
            "All texts are single ones, or all are pairs",
            f"{x[0]!r:.60} first, and {x[others[0]]!r:.60} at place {others[0]}",
            "Pass a list of strings, or of pairs of strings",
        )
    if known is not None and given != known:
        kinds = ("single texts", "pairs of texts")
        raise InputError(
            f"The model is asked about {kinds[known]}, as it was trained with",
            f"{kinds[given]}, such as {x[0]!r:.60}",
            "Pass what it knows, or train another model",
        )
    return given
