"""Keras model of texts: tokenizer, encoder, and the head of a task.

`call` takes token ids, so that the model can be a layer of another one. `fit`,
`evaluate` and `predict` also take texts, in batches of similar length.
"""

import abc
import dataclasses
import functools
import os
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf

from electra_tf.config.finetuning import FinetuningConfig
from electra_tf.errors import InputError
from electra_tf.kernels.fused_layer_ops import FusedLayerOps
from electra_tf.kernels.rng import TRAINING, make_rng
from electra_tf.model.layer_ops import LayerOps
from electra_tf.model.transformer import Encoder
from electra_tf.tasks.compiled_metrics import CompiledMetrics
from electra_tf.tasks.examples import (
    EncodedExamples,
    Inputs,
    eval_dataset,
    prediction_batch_indices,
)
from electra_tf.tasks.keras_inputs import (
    check_callbacks,
    check_iterator,
    check_length,
    check_max_length,
    compile_arguments,
    has_text_batches,
    positive_or_default,
    reject_text_call,
    require_ids,
    steps_per_epoch,
    unpack_batch,
)
from electra_tf.tasks.losses import Loss, sum_over_replicas
from electra_tf.tasks.model_inputs import encode_batch, encode_inputs, fit_arguments
from electra_tf.tasks.optimizer import (
    check_updates_left,
    int_value,
    reset_optimizer,
    schedule_end_error,
)
from electra_tf.tasks.presets import apply_dtype, warn_of_global_policy
from electra_tf.tasks.pretrained import PretrainedEncoder
from electra_tf.tasks.text_inputs import (
    is_texts,
    rows_of_batches,
    to_rows,
)
from electra_tf.training.optimizer import Optimizer, create_optimizer

if TYPE_CHECKING:
    from typing import Self  # of Python 3.11

Outputs = Any


class TextModel(keras.Model, abc.ABC):
    """Base class of all tasks; a task adds its head, its loss and its examples.

    The setting `training.precision` is the dtype policy of the encoder; head and loss
    are float32. Keras's global dtype policy has no effect.

    Args:
        start: Shape, tokenizer and weights of the encoder.
        settings: All settings of fine-tuning.
        seed: Seed of the head's weights, of dropout and of the order of the examples.
        name: Name of the model.
        dtype: Dtype policy of the encoder; None: `training.precision` of the settings.
        trainable: Whether the weights are trained.

    Raises:
        InputError: `data.max_length` exceeds the encoder's positions.
    """

    metric_name = "accuracy"
    """Name of the metric that `fit` and `evaluate` report beside the loss."""
    pairs: bool | None = None
    """Whether texts are pairs; None: not trained yet, or not applicable."""
    takes_pairs = True
    """Whether a tuple of two lists is a list of pairs."""
    has_classes = False
    """Whether targets are classes, which `class_weight` can weight."""
    needs_pairs = False
    """Whether texts are always pairs."""
    takes_columns = False
    """Whether targets of the shape [N, 1] are one target for each text."""
    metric_kind: str | None = None
    """Values that metrics of `compile` compare: `classes`, `scores`; None: none."""
    num_outputs = 1
    """Number of classes, or 1."""
    _user_metrics: CompiledMetrics | None = None
    """Metrics of `compile`; None: not compiled."""
    has_own_optimizer = False
    """Whether `compile` got an optimizer, which each `fit` continues to use."""

    def __init__(
        self,
        start: PretrainedEncoder,
        settings: FinetuningConfig,
        seed: int,
        name: str,
        dtype: Any = None,
        trainable: bool = True,
    ):
        super().__init__(name=name, dtype="float32")
        if not isinstance(settings, FinetuningConfig):
            raise InputError(
                "settings must be a FinetuningConfig",
                f"{settings!r:.60}",
                'Pass electra_tf.load_config(sets=["data.max_length=64"], '
                "root=electra_tf.FinetuningConfig)",
            )
        settings = apply_dtype(settings, dtype)
        self.settings, self.tokenizer = settings, start.tokenizer
        dropout = settings.model.dropout, settings.model.attention_dropout
        self.shape = dataclasses.replace(
            start.shape, dropout=dropout[0], attention_dropout=dropout[1]
        )
        check_max_length(settings.data.max_length, start.shape.max_positions)
        policy = keras.DTypePolicy(settings.training.precision)
        if start.weights is not None:
            warn_of_global_policy(policy.name)
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
        # The name of this attribute is part of paths in saved models.
        self._mean_quality = keras.metrics.Mean(self.metric_name, "float32")
        ids = tf.TensorSpec([None, None], tf.int32)
        names = ("token_ids", "segment_ids", "padding_mask")
        signature = [dict.fromkeys(names, ids)]
        self._infer = tf.function(self._inference, input_signature=signature)
        self.trainable = trainable

    @classmethod
    @abc.abstractmethod
    def from_preset(cls, path_or_name: str | os.PathLike, **options: Any) -> "Self":
        """Load a saved model, or create one on a pre-trained encoder.

        Args:
            path_or_name: Folder of a checkpoint or of a run (its newest checkpoint is
                read), a saved model, or the name or path of a config, for random
                weights.
            options: Fields of `PresetArguments`: `vocabulary`, `settings`, `seed`,
                `name`, `dtype` and `trainable`.

        Returns:
            A model with an untrained head, or the saved model.

        Raises:
            InputError: The source is damaged or of no known kind, or the arguments
                differ from those of the saved model.
        """

    @classmethod
    def from_checkpoint(
        cls, checkpoint: str | os.PathLike, *arguments: Any, **options: Any
    ) -> "Self":
        """Call `from_preset`, with a deprecation warning.

        Args:
            checkpoint: As `path_or_name` of `from_preset`.
            arguments: As for `from_preset`.
            options: As for `from_preset`.
        """
        warnings.warn(
            f"{cls.__name__}.from_checkpoint is deprecated; call from_preset",
            DeprecationWarning,
            stacklevel=2,
        )
        return cls.from_preset(checkpoint, *arguments, **options)

    # Methods of a task.

    @abc.abstractmethod
    def make_head(self, seed: int) -> keras.layers.Layer:
        """Create the head, with initial weights from a seed."""

    @abc.abstractmethod
    def head_outputs(
        self, x_BLD: Any, inputs: Inputs, layer_ops: LayerOps, targets: Any = None
    ) -> Outputs:
        """Compute the outputs, for `task_loss` and `decode`, from hidden states."""

    @abc.abstractmethod
    def task_loss(self, outputs: Outputs, targets: Any, weights_B: tf.Tensor) -> Loss:
        """Compute the loss and the metric as sums over the rows of this replica."""

    @abc.abstractmethod
    def examples(
        self, x: Sequence[Any], y: Sequence[Any] | None = None
    ) -> EncodedExamples:
        """Tokenize texts and encode their targets."""

    @abc.abstractmethod
    def decode(self, x: Sequence[Any], examples: EncodedExamples, outputs: list) -> Any:
        """Convert the outputs of all examples to predictions, as `predict` returns."""

    @abc.abstractmethod
    def clone_with_seed(self, start: PretrainedEncoder, seed: int) -> "TextModel":
        """Return a model of the same task and settings with other initial weights."""

    def metric_rows(self, targets: Any, outputs: Any, weights_B: tf.Tensor) -> tuple:
        """Return targets, outputs and weights, a row for each text or word.

        Args:
            targets: Targets of a batch.
            outputs: Outputs of the head.
            weights_B: float32.

        Returns:
            Arguments of `CompiledMetrics.update`.
        """
        return targets, outputs, weights_B

    def class_weights(self, y: Sequence[Any], of: Mapping[Any, float]) -> list[float]:
        """Return the weight of each target's class.

        Args:
            y: Targets of texts.
            of: Weights by class, each class written as in `y`.

        Returns:
            One weight for each target, 1 by default.

        Raises:
            InputError: The targets of the task are not classes, or a class is unknown.
        """
        raise InputError(
            f"class_weight must be left out for a {type(self).__name__}, as its "
            "targets are not classes",
            f"class_weight={of!r:.60}",
            "Pass sample_weight, one number for each item",
        )

    # Training and inference on texts or ids.

    def fit(
        self,
        x: Any = None,
        y: Any = None,
        *,
        batch_size: int | None = None,
        epochs: int | None = None,
        validation_data: Any = None,
        validation_split: float = 0.0,
        sample_weight: Any = None,
        class_weight: Mapping[Any, float] | None = None,
        **arguments: Any,
    ) -> keras.callbacks.History:
        """Train on texts, or on any input of Keras's `fit`.

        Each call starts a new training from the current weights, with the published
        warm-up and decay over its epochs. Pass `initial_epoch` to continue the
        previous training.

        The loss of a batch is the sum of weight times loss, divided by the sum of the
        weights: Keras's reduction `mean_with_sample_weight`. A text of weight 2 has the
        same effect as two copies in the batch. The weight of a sentence applies to
        each of its words, the weight of a question to each of its windows.

        Args:
            x: A list, array or Series of texts or pairs, a tuple of two for pairs, a
                data set of (texts, targets) or (texts, targets, weights) batches,
                `EncodedExamples`, or ids.
            y: The target of each text; for classes also one-hot rows [N, C].
            batch_size: Examples per batch; None: the settings' value.
            epochs: Passes over the texts; None: the settings' value.
            validation_data: (x, y) or (x, y, weights), or x alone.
            validation_split: Share of the texts, the last ones, to validate on;
                ignored if `validation_data` is set, as in Keras.
            sample_weight: A weight for each text, sentence or question.
            class_weight: Weights by class, written as in `y`, for classifiers; other
                classes have the weight 1. They do not apply to validation.
            arguments: Other arguments of Keras's `fit`; `shuffle=False` keeps the
                order of the texts.

        Returns:
            Loss and metric of each epoch.

        Raises:
            InputError: Targets are missing, texts or weights are invalid, the learning
                rate of the optimizer has fallen to 0, or `steps_per_epoch` is set with
                a list of texts.
        """
        size = self._batch_size(batch_size)
        epochs = positive_or_default("epochs", epochs, self.settings.training.epochs)
        weights = sample_weight, class_weight
        arguments = fit_arguments(
            self, x, y, weights, validation_data, validation_split, size, arguments
        )
        steps = steps_per_epoch(arguments["x"], size, arguments)
        self._prepare_optimizer(steps, arguments.get("initial_epoch", 0), epochs)
        check_callbacks(arguments.get("callbacks"), self.optimizer)
        with self.distribute_strategy.scope():  # for callbacks that restore its slots
            self.optimizer.build(self.trainable_variables)
        return super().fit(epochs=epochs, **arguments)

    def evaluate(
        self, x: Any = None, y: Any = None, sample_weight: Any = None, **arguments: Any
    ) -> Any:
        """Compute loss and metric on texts, or on any input of Keras's `evaluate`.

        Args:
            x: As for `fit`.
            y: As for `fit`.
            sample_weight: As for `fit`.
            arguments: Other arguments of Keras's `evaluate`.

        Returns:
            The return value of Keras's `evaluate`.
        """
        size = self._batch_size(arguments.pop("batch_size", None))
        x, y, weights = encode_inputs(self, x, y, (sample_weight, None))
        if isinstance(x, EncodedExamples):
            x = eval_dataset(x, size)
        elif isinstance(x, Mapping):
            arguments["batch_size"] = size
        self._ensure_compiled()
        return super().evaluate(x, y, sample_weight=weights[0], **arguments)

    def predict(self, x: Any, batch_size: int | None = None, **arguments: Any) -> Any:
        """Return predictions for texts, or logits for ids.

        Args:
            x: Texts as for `fit`, a `PyDataset` of batches of texts, or ids. Targets
                and weights in a data set are ignored.
            batch_size: Examples per batch; None: the settings' value.
            arguments: Other arguments of Keras's `predict`.

        Returns:
            For texts the task's predictions, for ids the head's logits.

        Raises:
            InputError: `x` is an endless data set or a generator of texts, or a single
                string.
        """
        size = self._batch_size(batch_size)
        if has_text_batches(x):
            are_pairs = bool(self.pairs or self.needs_pairs)
            x = rows_of_batches(x, arguments.get("steps"), are_pairs)
        x = check_iterator(x)
        if is_texts(x):
            texts = to_rows(x, self.takes_pairs)
            examples = self.examples(texts)
            return self.decode(texts, examples, self.outputs_of(examples, size))
        if isinstance(x, Mapping):
            require_ids(x)
            check_length(x["token_ids"].shape[1], self.shape.max_positions)
            arguments["batch_size"] = size
        return super().predict(x, **arguments)

    def train_on_batch(
        self,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        class_weight: Mapping[Any, float] | None = None,
        return_dict: bool = False,
    ) -> Any:
        """Update the weights once, with all texts as one batch, or a batch of ids.

        Args:
            x: Texts as for `fit`, but no data set of texts; or ids.
            y: As for `fit`.
            sample_weight: As for `fit`.
            class_weight: As for `fit`.
            return_dict: Whether to return the values by name.

        Returns:
            Loss and metric of the batch.

        Raises:
            InputError: There is no optimizer, or its schedule has ended.
        """
        check_updates_left(self.optimizer if self.compiled else None)
        x, y, weights = encode_batch(self, x, y, (sample_weight, class_weight))
        return super().train_on_batch(x, y, *weights, return_dict=return_dict)

    def test_on_batch(
        self,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        return_dict: bool = False,
    ) -> Any:
        """Compute loss and metric on all texts as one batch, or on a batch of ids.

        Args:
            x: As for `train_on_batch`.
            y: As for `fit`.
            sample_weight: As for `fit`.
            return_dict: Whether to return the values by name.

        Returns:
            Loss and metric of the batch.
        """
        x, y, weights = encode_batch(self, x, y, (sample_weight, None))
        self._ensure_compiled()
        return super().test_on_batch(x, y, weights[0], return_dict=return_dict)

    def predict_on_batch(self, x: Any) -> Any:
        """Return predictions for all texts, or logits for all ids, as one batch.

        Args:
            x: As for `predict`.

        Returns:
            As `predict`.
        """
        x = check_iterator(x)
        if is_texts(x):
            return self.predict(x, batch_size=max(1, len(to_rows(x, self.takes_pairs))))
        return super().predict_on_batch(x)

    def outputs_of(
        self, examples: EncodedExamples, batch_size: int | None = None
    ) -> list:
        """Compute the head's outputs for each example.

        Args:
            examples: Any number of examples.
            batch_size: Examples per batch; None: the settings' value.

        Returns:
            One structure of NumPy arrays for each example, in order.
        """
        size = batch_size or self.settings.training.batch_size
        outputs_by_row: list[Any] = [None] * len(examples)
        for rows in prediction_batch_indices(examples.lengths, size):
            inputs, _, _ = examples.batch(rows, len(rows))
            outputs = tf.nest.map_structure(lambda t: t.numpy(), self._infer(inputs))
            for i, row in enumerate(rows):
                outputs_by_row[row] = tf.nest.map_structure(
                    lambda a, i=i: a[i], outputs
                )
        return outputs_by_row

    # One step on token ids.

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Compute logits of token ids; raise an InputError for texts."""
        reject_text_call(args[0] if args else kwargs.get("inputs"))
        return super().__call__(*args, **kwargs)

    def call(self, inputs: Inputs, training: bool | None = None) -> Outputs:
        """Compute logits of a batch of token ids.

        Args:
            inputs: `token_ids`, `segment_ids`, `padding_mask`, each int32 [B, L].
            training: Whether to apply dropout.

        Returns:
            float32 logits; the structure depends on the task's head.
        """
        length = inputs["token_ids"].shape[1]
        if length is not None:
            check_length(length, self.shape.max_positions)
        return self._forward(inputs, LayerOps(training))

    def train_step(self, data: Any) -> dict[str, Any]:
        """Update the weights once.

        Args:
            data: Inputs, targets and weights of the rows of this replica.

        Returns:
            Means over the epoch so far.
        """
        inputs, targets, weights_B = unpack_batch(data)
        replica = tf.distribute.get_replica_context()
        row = replica.replica_id_in_sync_group * tf.shape(weights_B)[0]
        rng = make_rng(self.seed.value, TRAINING, self.optimizer.iterations, row)
        layer_ops = FusedLayerOps(rng.dropout())
        with tf.GradientTape() as tape:
            outputs = self._forward(inputs, layer_ops, targets)
            sums = self.task_loss(outputs, targets, weights_B)
            loss = sums.total
            if self.settings.training.reduction == "mean":
                loss = tf.math.divide_no_nan(loss, sum_over_replicas(sums.weight))
        variables = self.trainable_variables
        gradients = tape.gradient(loss, [v.value for v in variables])
        self.optimizer.apply(gradients, variables)
        return self._update_metrics(sums, inputs, targets, outputs, weights_B)

    def test_step(self, data: Any) -> dict[str, Any]:
        """Compute loss and metrics of a batch without dropout.

        Args:
            data: As for `train_step`.

        Returns:
            Means so far.
        """
        inputs, targets, weights_B = unpack_batch(data)
        outputs = self._forward(inputs, LayerOps(training=False), targets)
        sums = self.task_loss(outputs, targets, weights_B)
        return self._update_metrics(sums, inputs, targets, outputs, weights_B)

    # Compiling, resetting, saving.

    @property
    def metrics(self) -> list[keras.metrics.Metric]:
        """Loss, metrics of `compile`, and the model's own if its name is not taken."""
        own = super().metrics
        if self._user_metrics is None:
            return own
        compiled = self._user_metrics.metrics
        names = {metric.name for metric in compiled}
        own = [metric for metric in own if metric.name not in names]
        return [*own[:1], *compiled, *own[1:]]

    def compile(
        self, optimizer: Any = None, *positional: Any, **arguments: Any
    ) -> None:
        """Compile as Keras does, with the published optimizer by default.

        Args:
            optimizer: Any optimizer of Keras; None: `fit` creates the published one
                for its number of steps.
            positional: Other arguments in Keras's order.
            arguments: Other arguments of Keras's `compile`, such as `metrics`, but no
                `loss`.

        Raises:
            InputError: An argument or a metric does not apply to the model.
        """
        name = type(self).__name__
        arguments = compile_arguments(name, *positional, **arguments)
        names = {False: "metrics", True: "weighted_metrics"}
        weighted = {key: arguments.get(name) for key, name in names.items()}
        with self.distribute_strategy.scope():
            metrics = CompiledMetrics(
                name, self.metric_kind, self.num_outputs, weighted
            )
        # XLA would compile the whole step again for each length of batches.
        arguments["jit_compile"] = False
        super().compile(optimizer=optimizer, **arguments)
        self._compile_metrics = None  # Keras would pass logits to all metrics
        self._user_metrics = metrics
        self.has_own_optimizer = optimizer is not None
        self._compile = functools.partial(self.compile, **arguments)

    def compile_from_config(self, config: dict[str, Any]) -> None:
        """Compile a loaded model as the saved one was.

        Args:
            config: The compile config that Keras saved.

        Raises:
            InputError: An argument or a metric does not apply to the model.
        """
        arguments = keras.saving.deserialize_keras_object(config)
        try:
            self.compile(**{name: value for name, value in arguments.items() if value})
        except InputError as error:
            remedy = "Load the model with electra_tf.load_model, which ignores metrics"
            raise InputError(error.required, error.received, remedy) from error
        # The file does not store whether `fit` created the optimizer, so its class
        # decides: `fit` creates an `Optimizer`.
        self.has_own_optimizer = not isinstance(self.optimizer, Optimizer)
        if self.optimizer is not None:
            self.optimizer.build(self.trainable_variables)

    def reinitialize(self, start: PretrainedEncoder, seed: int) -> None:
        """Reset weights and optimizer to those of a new model, without compiling again.

        Args:
            start: The encoder's weights.
            seed: Seed of the new model.
        """
        new_model = self.clone_with_seed(start, seed)
        for variable, value in zip(self.weights, new_model.weights, strict=True):
            variable.assign(value)
        if self.compiled and self.optimizer is not None:
            with self.distribute_strategy.scope():
                reset_optimizer(self.optimizer, self.trainable_variables)

    def get_config(self) -> dict[str, Any]:
        """Return a config from which `from_config` builds the same untrained model."""
        return super().get_config() | {
            "shape": dataclasses.asdict(self.shape),
            "vocabulary": self.tokenizer.vocabulary.text,
            "tokenization": _to_json(dataclasses.asdict(self.tokenizer.settings)),
            "settings": _to_json(dataclasses.asdict(self.settings)),
        }

    def configured(self, config: dict[str, Any]) -> "TextModel":
        """Set name and `trainable` from a config.

        Args:
            config: Return value of `get_config`, of this or an earlier version.

        Returns:
            This model.
        """
        self.name = config.get("name", self.name)
        self.trainable = config.get("trainable", True)
        return self

    def export(self, filepath: Any, *args: Any, **kwargs: Any) -> None:
        """Raise an error, as Keras would export the model without its tokenizer.

        Args:
            filepath: As for Keras's `export`.
            args: As for Keras's `export`.
            kwargs: As for Keras's `export`.

        Raises:
            InputError: Always; the message has the command to use instead.
        """
        raise InputError(
            "A model of texts must be exported with its tokenizer",
            f"export({str(filepath)!r})",
            'Call save("model.keras"), then run '
            f"`python -m electra_tf.export --model=model.keras --output={filepath}`",
        )

    # Private.

    def _batch_size(self, value: int | None) -> int:
        default = self.settings.training.batch_size
        return positive_or_default("batch_size", value, default)

    def _inference(self, inputs: Inputs) -> Outputs:
        return self._forward(inputs, LayerOps(training=False))

    def _forward(
        self, inputs: Inputs, layer_ops: LayerOps, targets: Any = None
    ) -> Outputs:
        x_BLD = self.encoder(**inputs, layer_ops=layer_ops)
        return self.head_outputs(x_BLD, inputs, layer_ops, targets)

    def _update_metrics(
        self, sums: Loss, inputs: Inputs, targets: Any, outputs: Any, weights_B: Any
    ) -> dict[str, Any]:
        loss = tf.math.divide_no_nan(sums.total, sums.weight)
        self._loss_tracker.update_state(loss, sums.weight)
        metric = tf.math.divide_no_nan(sums.metric_sum, sums.weight)
        self._mean_quality.update_state(metric, sums.weight)
        if self._user_metrics is not None and self._user_metrics.metrics:
            # Padding rows have no token; unweighted metrics would count them.
            real_N = tf.where(inputs["padding_mask"][:, 0] > 0)[:, 0]
            batch = tf.nest.map_structure(
                lambda t: tf.gather(t, real_N), (targets, outputs, weights_B)
            )
            self._user_metrics.update(*self.metric_rows(*batch))
        return self.compute_metrics(inputs, targets, outputs, weights_B)

    def _prepare_optimizer(self, steps: int, first_epoch: int, epochs: int) -> None:
        """Create the published optimizer for this `fit`, unless the caller set one."""
        optimizer = self.optimizer if self.compiled else None
        updates = int_value(optimizer.iterations) if optimizer else 0
        if optimizer is None or not (first_epoch or self.has_own_optimizer):
            total = steps * epochs
            if optimizer is not None and optimizer.schedule.steps == total:
                # Another optimizer would compile the step again.
                reset_optimizer(optimizer, self.trainable_variables)
            else:
                with self.distribute_strategy.scope():
                    rule, depth = self.settings.optimizer, self.shape.depth
                    compile_again = self._compile if self.compiled else self.compile
                    compile_again(optimizer=create_optimizer(rule, total, depth))
                self.has_own_optimizer = False
            if updates:
                self.seed.assign_add(1)  # another order, other dropout
        elif isinstance(optimizer, Optimizer):
            more = steps * (epochs - first_epoch)
            if updates + more > optimizer.schedule.steps:
                raise schedule_end_error(optimizer, updates, more)

    def _ensure_compiled(self) -> None:
        if not self.compiled:
            with self.distribute_strategy.scope():
                self.compile()


def _to_json(tree: Any) -> Any:
    """Convert tuples to lists."""
    if isinstance(tree, dict):
        return {name: _to_json(value) for name, value in tree.items()}
    return list(tree) if isinstance(tree, tuple) else tree
