"""A Keras model of strings: tokenizer, encoder, and the head of a task.

`call` takes ids and is a layer like any other; `fit`, `predict` and `evaluate` take
strings too, and then train as published, in batches of like length.
"""

import abc
import dataclasses
import functools
import warnings
from typing import Any

import keras
import tensorflow as tf

from electra_tf.config.finetuning import FinetuningConfig
from electra_tf.errors import InputError
from electra_tf.kernels.fused_layer_ops import FusedLayerOps
from electra_tf.kernels.rng import TRAINING, make_rng
from electra_tf.model.layer_ops import LayerOps
from electra_tf.model.transformer import Encoder
from electra_tf.tasks.batching import Inputs
from electra_tf.tasks.losses import Loss
from electra_tf.tasks.pretrained import PretrainedEncoder
from electra_tf.tasks.string_model import StringModel, too_long
from electra_tf.training.optimizer import Optimizer

Outputs = Any


class TextModel(StringModel):
    """What all tasks share; a task adds its head, its loss and its examples.

    The setting `training.precision` is the dtype policy of the encoder, and head and
    loss are float32; Keras's global dtype policy changes neither.

    Args:
        start: Shape, tokenizer and weights of the encoder.
        settings: All of fine-tuning.
        seed: Decides the head's weights, dropout and the order of the examples.
        name: Of the model.
    """

    def __init__(
        self, start: PretrainedEncoder, settings: FinetuningConfig, seed: int, name: str
    ):
        super().__init__(name=name, dtype="float32")
        self.settings, self.tokenizer = settings, start.tokenizer
        dropout = settings.model.dropout, settings.model.attention_dropout
        self.shape = dataclasses.replace(
            start.shape, dropout=dropout[0], attention_dropout=dropout[1]
        )
        longest, known = settings.data.max_length, start.shape.max_positions
        if longest > known:
            raise InputError(
                f"An input has at most the {known} positions the encoder knows",
                f"data.max_length {longest}",
                f"Set data.max_length={known} or less",
            )
        policy = keras.DTypePolicy(settings.training.precision)
        if start.weights is not None:
            _warn_of_policy(policy.name)
        self.encoder = Encoder(self.shape, seed, dtype=policy)
        self.head = self.make_head(seed)
        self.encoder.build()
        self.head.build()
        if settings.model.weights == "random":
            start = start.untrained()
        start.load_into(self.encoder)
        self.seed = self.add_weight(
            name="seed", shape=(), dtype="int64", initializer="zeros", trainable=False
        )
        self.seed.assign(seed)
        self.built = True
        self._mean_quality = keras.metrics.Mean(self.metric_name, "float32")
        ids = tf.TensorSpec([None, None], tf.int32)
        names = ("token_ids", "segment_ids", "padding_mask")
        signature = [dict.fromkeys(names, ids)]
        self._infer = tf.function(self._without_dropout, input_signature=signature)

    # What a task adds.

    metric_name = "accuracy"
    """The name of what is measured beside the loss in `fit` and `evaluate`."""

    @abc.abstractmethod
    def make_head(self, seed: int) -> keras.layers.Layer:
        """The head, with initial weights of a seed."""

    @abc.abstractmethod
    def head_outputs(
        self, x_BLD: Any, inputs: Inputs, layer_ops: LayerOps, targets: Any = None
    ) -> Outputs:
        """From hidden states to what `task_loss` and `decode` take."""

    @abc.abstractmethod
    def task_loss(self, outputs: Outputs, targets: Any, weights_B: tf.Tensor) -> Loss:
        """Sums over the rows of this replica."""

    # The Keras model.

    def call(self, inputs: Inputs, training: bool | None = None) -> Outputs:
        """Logits of a batch of ids.

        Args:
            inputs: `token_ids`, `segment_ids`, `padding_mask`, each int32 [B, L].
            training: Whether dropout is on.

        Returns:
            float32 logits, as the head of the task has them.
        """
        length, known = inputs["token_ids"].shape[1], self.shape.max_positions
        if length is not None and length > known:
            raise too_long(length, known)
        return self._said(inputs, LayerOps(training))

    def train_step(self, data: Any) -> dict[str, Any]:
        """Updates the weights once.

        Args:
            data: Inputs, targets and weights; this replica's rows.

        Returns:
            The means of the epoch so far.
        """
        inputs, targets, weights_B = _unpacked(data)
        replica = tf.distribute.get_replica_context()
        row = replica.replica_id_in_sync_group * tf.shape(weights_B)[0]
        rng = make_rng(self.seed.value, TRAINING, self.optimizer.iterations, row)
        layer_ops = FusedLayerOps(rng.dropout())
        with tf.GradientTape() as tape:
            outputs = self._said(inputs, layer_ops, targets)
            sums = self.task_loss(outputs, targets, weights_B)
            share = sums.total
            if self.settings.training.reduction == "mean":
                share = tf.math.divide_no_nan(sums.total, _over_all(sums.weight))
        variables = self.trainable_variables
        gradients = tape.gradient(share, [v.value for v in variables])
        self.optimizer.apply(gradients, variables)
        return self._measured(sums, inputs, targets, outputs, weights_B)

    def test_step(self, data: Any) -> dict[str, Any]:
        """Measures without dropout and without learning.

        Args:
            data: As for `train_step`.

        Returns:
            The means so far.
        """
        inputs, targets, weights_B = _unpacked(data)
        outputs = self._said(inputs, LayerOps(training=False), targets)
        sums = self.task_loss(outputs, targets, weights_B)
        return self._measured(sums, inputs, targets, outputs, weights_B)

    def compile(self, optimizer: Any = None, **arguments: Any) -> None:
        """As Keras's, with the published optimizer where none is given.

        Args:
            optimizer: Any of Keras's; None: the published one, once `fit` knows how
                many steps there are.
            arguments: Of Keras's `compile`, metrics for one; the loss is the task's.
        """
        own = [n for n in ("loss", "loss_weights", "jit_compile") if arguments.get(n)]
        if own and arguments[own[0]] != "auto":
            raise InputError(
                f"{type(self).__name__} has the loss of its task, and XLA compiles "
                "the chains between its products",
                f"compile({own[0]}={arguments[own[0]]!r})",
                "Leave it out, or call the model as a layer of a model of yours",
            )
        # XLA as a whole would compile each length of batches anew.
        arguments["jit_compile"] = False
        super().compile(optimizer=optimizer, **arguments)
        self.has_own_optimizer = optimizer is not None
        self._compile = functools.partial(self.compile, **arguments)

    def compile_from_config(self, config: dict[str, Any]) -> None:
        """Compiles a loaded model as the saved one was.

        Args:
            config: What Keras saved of `compile`.
        """
        given = keras.saving.deserialize_keras_object(config)
        self.compile(**{name: value for name, value in given.items() if value})
        # Which of the two it was is not saved; the published one is fit's.
        self.has_own_optimizer = not isinstance(self.optimizer, Optimizer)
        if self.optimizer is not None:
            self.optimizer.build(self.trainable_variables)

    def reinitialize(self, start: PretrainedEncoder, seed: int) -> None:
        """Begins anew, as if made with another seed, but compiled as it is.

        Args:
            start: The encoder's weights.
            seed: As for a new model.
        """
        fresh = self.clone_with_seed(start, seed)
        for variable, value in zip(self.weights, fresh.weights, strict=True):
            variable.assign(value)
        optimizer = self.optimizer if self.compiled else None
        if isinstance(optimizer, Optimizer):
            for variable in optimizer.variables:
                variable.assign(tf.zeros_like(variable))
        elif optimizer is not None:  # not all of Keras's begin with zeros
            with self.distribute_strategy.scope():
                anew = type(optimizer).from_config(optimizer.get_config())
                if optimizer.built:
                    anew.build(self.trainable_variables)
            pairs = zip(optimizer.variables, anew.variables, strict=True)
            for variable, value in pairs:
                variable.assign(value)

    @abc.abstractmethod
    def clone_with_seed(self, start: PretrainedEncoder, seed: int) -> "TextModel":
        """A model of the same task and settings with other initial weights."""

    # Saving.

    def get_config(self) -> dict[str, Any]:
        """Return what `from_config` makes an equal model of, but for its weights."""
        return super().get_config() | {
            "shape": dataclasses.asdict(self.shape),
            "vocabulary": self.tokenizer.vocabulary.text,
            "tokenization": dataclasses.asdict(self.tokenizer.settings),
            "settings": _plain(dataclasses.asdict(self.settings)),
        }

    def configured(self, config: dict[str, Any]) -> "TextModel":
        """Take name and `trainable` from a config.

        Args:
            config: What `get_config` returned, or an earlier version of it.

        Returns:
            This model.
        """
        self.name = config.get("name", self.name)
        self.trainable = config.get("trainable", True)
        return self

    # Private.

    def _without_dropout(self, inputs: Inputs) -> Outputs:
        return self._said(inputs, LayerOps(training=False))

    def _said(
        self, inputs: Inputs, layer_ops: LayerOps, targets: Any = None
    ) -> Outputs:
        x_BLD = self.encoder(**inputs, layer_ops=layer_ops)
        return self.head_outputs(x_BLD, inputs, layer_ops, targets)

    def _measured(self, sums, inputs, targets, outputs, weights_B) -> dict[str, Any]:
        mean = tf.math.divide_no_nan(sums.total, sums.weight)
        self._loss_tracker.update_state(mean, sums.weight)
        right = tf.math.divide_no_nan(sums.metric_sum, sums.weight)
        self._mean_quality.update_state(right, sums.weight)
        given = inputs, targets, outputs, weights_B
        if self._compile_metrics is not None:
            # Rows that only fill up a batch have no token; unweighted metrics would
            # count them.
            real_B = inputs["padding_mask"][:, 0] > 0
            given = tf.nest.map_structure(lambda t: tf.boolean_mask(t, real_B), given)
        return self.compute_metrics(*given)


def _over_all(weight: tf.Tensor) -> tf.Tensor:
    """The sum over the replicas."""
    replica = tf.distribute.get_replica_context()
    if replica.num_replicas_in_sync == 1:
        return weight
    return replica.all_reduce(tf.distribute.ReduceOp.SUM, weight)


def _unpacked(data: Any) -> tuple[Inputs, Any, tf.Tensor]:
    """Inputs, targets and weights, also where Keras was given no weights."""
    inputs, targets, weights_B = keras.utils.unpack_x_y_sample_weight(data)
    if weights_B is None:
        rows = tf.shape(inputs["token_ids"])[0]
        weights_B = tf.ones([rows])
    return inputs, targets, tf.cast(weights_B, tf.float32)


def _warn_of_policy(name: str) -> None:
    """Warn where Keras's global policy is one that the model does not have."""
    given = keras.config.dtype_policy().name
    if given not in ("float32", name):
        warnings.warn(
            f"Keras's global dtype policy {given!r} is not used: the model has the "
            f"policy of its settings, training.precision={name!r}",
            stacklevel=4,
        )


def _plain(tree: Any) -> Any:
    """Tuples as lists, as JSON has them."""
    if isinstance(tree, dict):
        return {name: _plain(value) for name, value in tree.items()}
    return list(tree) if isinstance(tree, tuple) else tree
