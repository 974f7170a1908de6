"""Methods that a task defines: head, loss, encoding, decoding."""

import abc
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import keras
import tensorflow as tf

from electra_tf.config.finetuning import DataConfig, FinetuningConfig
from electra_tf.config.model import EncoderConfig
from electra_tf.errors import InputError
from electra_tf.model.layer_ops import LayerOps
from electra_tf.tasks.examples import EncodedExamples, IdRows
from electra_tf.tasks.losses import Loss
from electra_tf.tasks.tokenizer import Tokenizer

BALANCED = "balanced"
"""Value of `class_weight`: weights by the inverse of the classes' shares."""


class TaskMethods(abc.ABC):
    """Methods of a task, with defaults for one row of ids per text or pair of texts."""

    settings: FinetuningConfig
    shape: EncoderConfig
    tokenizer: Tokenizer

    kind = ""  # name of the task's kind, as in `interop.task_heads`
    own_arguments: tuple[str, ...] = ()  # of the constructor; saved with the model
    head_arguments: tuple[str, ...] = ()  # those of them that define a new head
    output_names: tuple[str, ...] = ()  # of classes or tags, in the logits' order
    metric_kind: str | None = None
    """Values that metrics of `compile` compare: `classes`, `label_sets` (a text has any
    number of classes), `scores`; None: none of Keras's."""
    reads_cls_alone = False  # whether the last layer computes [CLS] alone
    input_form: Literal["texts", "words", "windows"] = "texts"
    """Inputs, and rows of a served graph: `texts` or pairs of texts; lists of `words`,
    each with a tag; `windows` of a context, each with its question."""
    pairs: bool | None = None  # of texts; False: single texts; None: not trained yet

    required_argument = ""  # what a new model requires, for an error

    @classmethod
    def new_arguments(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the class's own arguments for a new model, from those of the user."""
        if cls.required_argument and cls.own_arguments[0] not in given:
            raise InputError(f"A new {cls.__name__} needs {cls.required_argument}")
        return given

    @property
    def num_outputs(self) -> int:
        """Number of classes, or 1."""
        return max(1, len(self.output_names))

    @abc.abstractmethod
    def make_head(self, seed: int) -> keras.layers.Layer:
        """Create the head, with initial weights from a seed."""

    def head_outputs(
        self, x_BLD: Any, inputs: IdRows, layer_ops: LayerOps, targets: Any = None
    ) -> Any:
        """Compute the outputs, for `task_loss` and `decode`, from hidden states."""
        return self.head(x_BLD, layer_ops=layer_ops)

    @abc.abstractmethod
    def task_loss(self, outputs: Any, targets: Any, weights_B: tf.Tensor) -> Loss:
        """Compute the loss and the metric as sums over the rows of this replica."""

    @property
    def served_inputs(self) -> Mapping[str, int]:
        """Names of a served request's strings; each has 1 axis, or 2: several rows."""
        return {"text": 1, "text_b": 1} if self.pairs else {"text": 1}

    def served_columns(self, data: DataConfig) -> dict[str, list[str]]:
        """Return the columns of the texts in training by input of `served_inputs`."""
        inputs, names = self.served_inputs, data.text_columns
        pairs = zip(inputs, names, strict=False)
        return {key: [n] for key, n in pairs} if len(names) == len(inputs) else {}

    def row_texts(self, *texts_R: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Return the text or texts of each row from `served_inputs`, [B] or [B * N]."""
        return texts_R

    def row_examples(self, x: Sequence[Any]) -> EncodedExamples:
        """Tokenize texts, with an example for each row of a served graph."""
        return self.examples(x)

    def named_outputs(self, outputs: Any) -> dict[str, tf.Tensor]:
        """Return what is served for rows of ids, by name, from the head's outputs."""
        return {"logits": outputs}

    def text_outputs(self, outputs: Any) -> dict[str, tf.Tensor]:
        """Return what is served for rows of texts; [B, N, ...] for two axes."""
        return self.named_outputs(outputs)

    def served_metadata(self) -> dict[str, Any]:
        """Return facts for clients, as values of JSON."""
        return {}

    @abc.abstractmethod
    def examples(
        self, x: Sequence[Any], y: Sequence[Any] | None = None
    ) -> EncodedExamples:
        """Tokenize texts and encode their targets."""

    def check_training(self, examples: EncodedExamples) -> None:
        """Warn of targets that a model learns badly."""
        return None

    @abc.abstractmethod
    def decode(self, x: Sequence[Any], examples: EncodedExamples, outputs: list) -> Any:
        """Convert the outputs of all examples to predictions, as `predict` returns."""

    def decode_details(
        self, x: Sequence[Any], examples: EncodedExamples, outputs: list
    ) -> Sequence[Any]:
        """Convert outputs to what records and scores take, by default predictions."""
        return self.decode(x, examples, outputs)

    def metric_rows(self, targets: Any, outputs: Any, weights_B: tf.Tensor) -> tuple:
        """Return targets, predictions and weights, a row for each text or word."""
        return targets, outputs, weights_B

    def task_metrics(self) -> list[keras.metrics.Metric]:
        """Return the weighted metrics that are always reported."""
        has_classes = self.metric_kind == "classes"
        accuracy = keras.metrics.SparseCategoricalAccuracy
        return [accuracy("accuracy")] if has_classes else []

    def class_weights(
        self, y: Sequence[Any], of: Mapping[Any, float] | str
    ) -> list[float]:
        """Return the weight of each target's class, 1 by default."""
        raise InputError(
            f"class_weight={of!r:.60} does not apply to a {type(self).__name__}, whose "
            "targets are not single classes; pass sample_weight, a number for each item"
        )
