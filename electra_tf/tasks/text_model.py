"""Keras model of texts: tokenizer, encoder, and the head of a task.

`call` takes token ids, so that the model can be a layer of another one. `fit`,
`evaluate` and `predict` also take texts, in batches of similar length.
"""

import dataclasses
import functools
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from electra_tf import sources
from electra_tf.config.finetuning import FinetuningConfig
from electra_tf.kernels.fused_layer_ops import FusedLayerOps, has_only_cpus
from electra_tf.kernels.rng import TRAINING, make_rng
from electra_tf.model.calls import call_as_it_is
from electra_tf.model.layer_ops import LayerOps
from electra_tf.serving.export import export_model
from electra_tf.sources import PretrainedEncoder
from electra_tf.tasks.compiled_metrics import CompiledMetrics, set_modes
from electra_tf.tasks.defaults import (
    MOST_DROPOUT,
    complete_settings,
    default_dropout,
    default_epochs,
    describe_epochs,
    describe_settings,
)
from electra_tf.tasks.encoder import Encoder
from electra_tf.tasks.examples import EncodedExamples, Inputs, eval_dataset
from electra_tf.tasks.inference import (
    INPUTS,
    MANY_BATCHES,
    compiled,
    evaluation_ops,
    outputs_by_row,
)
from electra_tf.tasks.keras_inputs import (
    Prepared,
    check_ids,
    check_length,
    check_pairs,
    checked_settings,
    positive_or_default,
    prepare,
    prepare_batch,
    prepare_fit,
    reject_compile_arguments,
    steps_per_epoch,
    unpack_batch,
    warn_of_global_policy,
)
from electra_tf.tasks.losses import Loss, sum_over_replicas
from electra_tf.tasks.optimizer import (
    check_callbacks,
    prepare_optimizer,
    require_optimizer,
    reset_optimizer,
)
from electra_tf.tasks.saved_models import (
    from_saved_config,
    from_source,
    reject_path,
    reject_unknown_arguments,
    saved_config,
)
from electra_tf.tasks.task_methods import TaskMethods
from electra_tf.tasks.text_inputs import (
    check_input,
    is_texts,
    reject_text_call,
    rows_of_batches,
)
from electra_tf.tasks.tokenizer import Tokenizer
from electra_tf.text.encoding import to_rows
from electra_tf.training.optimizer import Optimizer

_RATES = "dropout", "attention_dropout"


class TextModel(keras.Model, TaskMethods):
    """Base class of all tasks; a task adds its head, its loss and its examples.

    The setting `training.precision` is the dtype policy of the encoder; head and loss
    are float32. Keras's global dtype policy has no effect.

    Args:
        start: Shape, tokenizer and weights of the encoder.
        settings: Settings of fine-tuning, in any form that `from_preset` takes.
        seed: Seed of the head's weights, of dropout and of the order of the examples.
        name: Name of the model.
        dtype: `float32` or `mixed_bfloat16`; None: `training.precision` of the
            settings.
        trainable: Whether the weights are trained.

    Raises:
        InputError: `data.max_length` exceeds the encoder's positions.
    """

    rematerialized_call = call_as_it_is
    has_own_optimizer = False
    """Whether `compile` got an optimizer, which each `fit` continues to use."""
    settings_note = ""
    """Line that `fit` prints: defaults that were chosen for the encoder."""
    _compiled_metrics: CompiledMetrics | None = None
    """Loss and metrics of `compile`."""

    def __new__(cls, *args: Any, **kwargs: Any) -> "TextModel":
        """Raise an error for a path in place of an encoder."""
        reject_path(cls, args)
        return super().__new__(cls, *args, **kwargs)

    def __init__(
        self,
        start: PretrainedEncoder,
        settings: Any = None,
        seed: int = 0,
        name: str | None = None,
        dtype: Any = None,
        trainable: bool = True,
    ):
        words = re.sub("(?<=[a-z])(?=[A-Z])", "_", type(self).__name__)
        super().__init__(name=name or words.lower(), dtype="float32")
        if not isinstance(settings, FinetuningConfig):
            settings = complete_settings(settings, start)
            self.settings_note = describe_settings(start, settings)
        self.settings = checked_settings(settings, start.shape.max_positions, dtype)
        self.tokenizer = Tokenizer.of(start.tokenizer)
        chosen = self.settings.model
        rates = {name: getattr(chosen, name) for name in _RATES}
        self.shape = dataclasses.replace(
            start.shape,
            **{n: MOST_DROPOUT if rate is None else rate for n, rate in rates.items()},
        )
        self._trained_rates = {name: getattr(start.shape, name) for name in rates}
        policy = keras.DTypePolicy(self.settings.training.precision)
        if start.weights is not None:
            warn_of_global_policy(policy.name)
        if chosen.weights == "random":
            start = start.untrained()
        self.encoder = dataclasses.replace(start, shape=self.shape).build_encoder(
            seed, Encoder, dtype=policy
        )
        self.encoder.tokenizer = self.tokenizer
        with keras.RematScope(None):
            self.head = self.make_head(seed)
        self.head.build((None, None, self.shape.width))
        self.seed = self.add_weight(
            name="seed", shape=(), dtype="int64", initializer="zeros", trainable=False
        )
        self.seed.assign(seed)
        self.built = True
        # The name of this attribute is part of paths in saved models.
        self._mean_quality = keras.metrics.Mean(self.metric_name, "float32")
        self.trainable = trainable

    @classmethod
    def from_preset(
        cls,
        path_or_name: str | os.PathLike,
        *,
        vocabulary: str | None = None,
        settings: Any = None,
        max_length: int | None = None,
        seed: int = 0,
        name: str | None = None,
        dtype: Any = None,
        trainable: bool = True,
        **head: Any,
    ) -> "TextModel":
        """Load a saved model, or create one on a pre-trained encoder.

        Args:
            path_or_name: A checkpoint, a run directory (its newest checkpoint), a
                saved model, a model of another library, or the name or path of a
                config, for random weights.
            vocabulary: Vocabulary file; only with a config.
            settings: Settings of fine-tuning: a dictionary such as
                `{"training.epochs": 5}`, the name or path of a config such as
                `finetune_small`, or a `FinetuningConfig`; None: the defaults.
            max_length: Positions of a text, at most; overrides `data.max_length`.
            seed: Seed of the head's weights, of dropout and of the order of the
                examples.
            name: Name of the model.
            dtype: `float32` or `mixed_bfloat16`; overrides `training.precision`.
            trainable: Whether the weights are trained.
            head: Arguments of the class itself; those that are left out are the saved
                model's or the defaults.

        Returns:
            A model with an untrained head, or the saved model unchanged.

        Raises:
            InputError: The source is unknown or damaged, an argument is unknown, or
                the arguments differ from those of the saved model.
        """
        reject_unknown_arguments(cls, TextModel, head)
        source = sources.open_source(path_or_name, vocabulary)
        options = {"seed": seed, "name": name, "dtype": dtype, "trainable": trainable}
        return from_source(cls, source, head, settings, max_length, options)

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

        The first lines it prints, unless `verbose` is 0, name the settings that were
        chosen for the encoder, and the epochs.

        Args:
            x: A list, array or Series of texts or pairs, a tuple of two for pairs, a
                data set of (texts, targets) or (texts, targets, weights) batches,
                `EncodedExamples`, or ids.
            y: The target of each text; for classes also one-hot rows [N, C]; with
                `multi_label` lists of names, or rows of zeros and ones.
            batch_size: Examples per batch; None: the settings' value.
            epochs: Passes over the texts; None: the settings' value, or enough for
                about 1,000 updates.
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
        given = positive_or_default("epochs", epochs, self.settings.training.epochs)
        targets = y, sample_weight, class_weight
        arguments, pairs = prepare_fit(
            self, size, validation_data, validation_split, arguments, x, *targets
        )
        self.pairs = self.pairs if pairs is None else pairs
        steps = steps_per_epoch(arguments)
        epochs = given or default_epochs(steps)
        self.choose_dropout(epochs)
        if arguments.get("verbose", "auto") and self.settings_note:
            dropout = f"dropout {self.shape.dropout:g}"
            print(f"{self.settings_note}\n{describe_epochs(steps, epochs)}, {dropout}")
        prepare_optimizer(self, steps, arguments.get("initial_epoch", 0), epochs)
        callbacks = arguments.get("callbacks")
        callbacks = tf.nest.flatten(getattr(callbacks, "callbacks", callbacks))
        check_callbacks(callbacks, self.optimizer)
        set_modes(callbacks, self.metrics)
        with self.distribute_strategy.scope():  # for callbacks that restore its slots
            self.optimizer.build(self.trainable_variables)
        return super().fit(epochs=epochs, **arguments)

    def evaluate(
        self, x: Any = None, y: Any = None, sample_weight: Any = None, **arguments: Any
    ) -> Any:
        """Compute loss and metric on texts, or on any input of Keras's `evaluate`.

        `x`, `y` and `sample_weight` are those of `fit`, the other arguments and the
        result those of Keras's `evaluate`.
        """
        size = self._batch_size(arguments.pop("batch_size", None))
        x, y, sample_weight, _ = self._prepared(prepare, x, y, sample_weight)
        if isinstance(x, EncodedExamples):
            x = eval_dataset(x, size)
        elif isinstance(x, Mapping):
            arguments["batch_size"] = size
        return super().evaluate(x, y, sample_weight=sample_weight, **arguments)

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
        x = rows_of_batches(x, arguments.get("steps"), bool(self.pairs))
        x = check_input(x)
        if is_texts(x):
            texts = to_rows(x, not self.takes_words)
            examples = self.examples(texts)
            check_pairs(examples.pairs, self.pairs)
            return self.decode(texts, examples, self.outputs_of(examples, size))
        if isinstance(x, Mapping):
            check_ids(x, self.shape.max_positions)
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
        """Update the weights once, with all texts or ids as one batch.

        Arguments are those of `fit`, but no data set. Returns loss and metric of the
        batch, by name with `return_dict`.
        """
        require_optimizer(self)
        batch = self._prepared(prepare_batch, x, y, sample_weight, class_weight)
        return super().train_on_batch(*batch, return_dict=return_dict)

    def test_on_batch(
        self,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        return_dict: bool = False,
    ) -> Any:
        """Compute loss and metric on all texts or ids, as `train_on_batch` does."""
        *batch, _ = self._prepared(prepare_batch, x, y, sample_weight)
        return super().test_on_batch(*batch, return_dict=return_dict)

    def predict_details(self, x: Sequence[Any]) -> Sequence[Any]:
        """Return what `format` takes, for each element of `x`, a list."""
        examples = self.examples(x)
        return self.decode_details(x, examples, self.outputs_of(examples))

    def predict_on_batch(self, x: Any) -> Any:
        """Return predictions for all texts, or logits for all ids, as one batch."""
        x = check_input(x)
        if is_texts(x):
            rows = to_rows(x, not self.takes_words)
            return self.predict(rows, batch_size=max(1, len(rows)))
        return super().predict_on_batch(x)

    def outputs_of(
        self, examples: EncodedExamples, batch_size: int | None = None
    ) -> list:
        """Return the head's outputs for each example, structures of NumPy arrays."""
        size = batch_size or self.settings.training.batch_size
        many = len(examples) >= MANY_BATCHES * size
        infer = compiled(
            self, (many,), lambda x: self._forward(x, evaluation_ops(many)), INPUTS
        )
        return outputs_by_row(examples, size, lambda inputs, _: infer(inputs))

    # One step on token ids.

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Compute logits of token ids; raise an InputError for texts."""
        reject_text_call(args[0] if args else kwargs.get("inputs"))
        return super().__call__(*args, **kwargs)

    def call(self, inputs: Inputs, training: bool | None = None) -> Any:
        """Compute float32 logits, in the structure of the task's head.

        Args:
            inputs: `token_ids`, `segment_ids`, `padding_mask`, each int32 [B, L].
            training: Whether to apply dropout.
        """
        check_length(inputs["token_ids"].shape[1], self.shape.max_positions)
        return self._forward(inputs, LayerOps(training))

    def train_step(self, data: Any) -> dict[str, Any]:
        """Update the weights once, and return means over the epoch so far."""
        inputs, targets, weights_B = unpack_batch(data)
        replica = tf.distribute.get_replica_context()
        row = replica.replica_id_in_sync_group * tf.shape(weights_B)[0]
        rng = make_rng(self.seed.value, TRAINING, self.optimizer.iterations, row)
        layer_ops = FusedLayerOps(rng.dropout(), on_cpu=has_only_cpus())
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
        """Compute loss and metrics without dropout, and return means so far."""
        inputs, targets, weights_B = unpack_batch(data)
        outputs = self._forward(inputs, evaluation_ops(), targets)
        sums = self.task_loss(outputs, targets, weights_B)
        return self._update_metrics(sums, inputs, targets, outputs, weights_B)

    # Compiling, resetting, saving.

    @property
    def metrics(self) -> list[keras.metrics.Metric]:
        """Loss, metrics of `compile`, and the task's whose names are not taken."""
        own = super().metrics
        return self._compiled_metrics.merged(own) if self.compiled else own

    def compile(
        self,
        optimizer: Any = None,
        loss: Any = None,
        loss_weights: Any = None,
        metrics: Any = None,
        weighted_metrics: Any = None,
        **arguments: Any,
    ) -> None:
        """Compile as Keras does, with the published optimizer by default.

        Args:
            optimizer: Any optimizer of Keras; None: `fit` creates the published one
                for its number of steps.
            loss: Not supported, as the model has the loss of its task.
            loss_weights: Not supported.
            metrics: Metrics of Keras, their names, or functions.
            weighted_metrics: Metrics that the weights of the texts apply to.
            arguments: Other arguments of Keras's `compile`.

        Raises:
            InputError: An argument or a metric does not apply to the model.
        """
        jit = arguments.pop("jit_compile", None)
        unsupported = {"loss": loss, "loss_weights": loss_weights, "jit_compile": jit}
        reject_compile_arguments(type(self).__name__, unsupported)
        facts = type(self).__name__, self.metric_kind, self.num_outputs
        given = metrics, weighted_metrics
        with self.distribute_strategy.scope():
            compiled_metrics = CompiledMetrics(*facts, *given, self.task_metrics())
        # XLA would compile the whole step again for each length of batches.
        super().compile(optimizer, jit_compile=False, **arguments)
        self._compiled_metrics = compiled_metrics
        self.has_own_optimizer = optimizer is not None
        arguments |= {"metrics": metrics, "weighted_metrics": weighted_metrics}
        self._compile = functools.partial(self.compile, **arguments)

    def get_compile_config(self) -> dict[str, Any] | None:
        """Return the arguments of `compile`, serialized; None: not compiled."""
        config = super().get_compile_config()
        return config and config | self._compiled_metrics.get_config()

    def export(
        self,
        filepath: str | os.PathLike,
        format: str = "saved_model",
        verbose: bool | None = None,
        **unknown: Any,
    ) -> str:
        """Write the model and its tokenizer to a new folder, and compare it with Keras.

        Args:
            filepath: The folder to create. `electra_tf.export_saved_model` writes
                numbered versions for a server in place of it.
            format: `saved_model` takes texts or ids; `litert` and `onnx` take ids, for
                which `tokenizer.json` is beside the file.
            verbose: Whether to print sizes and differences.
            unknown: Not supported.

        Returns:
            The folder.

        Raises:
            InputError: The folder exists, the format is unknown or not installed, or
                the written model differs from the Keras model.
        """
        return export_model(self, filepath, format, verbose, unknown)

    def choose_dropout(self, epochs: int) -> None:
        """Set the rates that no setting gives, for the first training alone."""
        chosen = self.settings.model
        rates = {name: getattr(chosen, name) for name in _RATES}
        if None not in rates.values():
            return
        for name, trained in self._trained_rates.items():
            if rates[name] is None:
                rates[name] = default_dropout(trained, epochs)
        model = dataclasses.replace(chosen, **rates)
        self.settings = dataclasses.replace(self.settings, model=model)
        self.shape = dataclasses.replace(self.shape, **rates)
        self.encoder.set_dropout(**rates)
        self.train_function = None  # a compiled step has the rates of before

    def recompile(self, optimizer: keras.Optimizer) -> None:
        """Compile with another optimizer, and the other arguments as before."""
        compile_again = self._compile if self.compiled else self.compile
        compile_again(optimizer=optimizer)

    def compile_from_config(self, config: dict[str, Any]) -> None:
        """Compile a loaded model as the saved one was."""
        arguments = keras.saving.deserialize_keras_object(config)
        self.compile(**{name: value for name, value in arguments.items() if value})
        # The file does not store whether `fit` created the optimizer.
        self.has_own_optimizer = not isinstance(self.optimizer, Optimizer)
        if self.optimizer is not None:
            self.optimizer.build(self.trainable_variables)

    def clone_with_seed(self, start: PretrainedEncoder, seed: int) -> "TextModel":
        """Return a model of the same task and settings with other initial weights."""
        own = {name: getattr(self, name) for name in self.own_arguments}
        return type(self)(start, settings=self.settings, seed=seed, **own)

    def reinitialize(self, start: PretrainedEncoder, seed: int) -> None:
        """Reset weights and optimizer to those of a new model, without compiling."""
        new_model = self.clone_with_seed(start, seed)
        self.set_weights(new_model.get_weights())
        if self.compiled and self.optimizer is not None:
            with self.distribute_strategy.scope():
                reset_optimizer(self.optimizer, self.trainable_variables)

    def get_config(self) -> dict[str, Any]:
        """Return a config from which `from_config` builds the same untrained model."""
        return super().get_config() | saved_config(self)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "TextModel":
        """Create a model from its config, with initial weights."""
        return from_saved_config(cls, config)

    def _batch_size(self, value: int | None) -> int:
        default = self.settings.training.batch_size
        return positive_or_default("batch_size", value, default)

    def _prepared(self, prepare: Callable[..., Prepared], *arguments: Any) -> tuple:
        """Return the arguments of a method of Keras; compile the model if necessary."""
        *prepared, pairs = prepare(self, *arguments, pairs=self.pairs)
        self.pairs = self.pairs if pairs is None else pairs
        if not self.compiled:
            with self.distribute_strategy.scope():
                self.compile()
        return tuple(prepared)

    def _forward(self, inputs: Inputs, layer_ops: LayerOps, targets: Any = None) -> Any:
        x_BLD = self.encoder(
            **inputs, layer_ops=layer_ops, cls_only=self.reads_cls_alone
        )
        return self.head_outputs(x_BLD, inputs, layer_ops, targets)

    def _update_metrics(
        self, sums: Loss, inputs: Inputs, targets: Any, outputs: Any, weights_B: Any
    ) -> dict[str, Any]:
        loss = tf.math.divide_no_nan(sums.total, sums.weight)
        self._compiled_metrics.loss.update_state(loss, sums.weight)
        quality = tf.math.divide_no_nan(sums.metric_sum, sums.weight)
        self._mean_quality.update_state(quality, sums.weight)
        batch = targets, outputs, weights_B
        self._compiled_metrics.update(inputs, batch, self.metric_rows)
        return self.compute_metrics(inputs, targets, outputs, weights_B)
