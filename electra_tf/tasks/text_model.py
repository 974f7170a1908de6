"""Keras model of texts: tokenizer, encoder, and the head of a task.

`call` takes token ids, so that the model can be a layer of another one. `fit`,
`evaluate` and `predict` also take texts, in batches of similar length.
"""

import abc
import dataclasses
import functools
import logging
import os
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import keras
import tensorflow as tf

from electra_tf import durable_files, sources
from electra_tf.config.finetuning import DataConfig, FinetuningConfig
from electra_tf.errors import InputError
from electra_tf.kernels.fused_layer_ops import FusedLayerOps, has_only_cpus
from electra_tf.kernels.rng import TRAINING, make_rng
from electra_tf.model.layer_ops import LayerOps
from electra_tf.serving.export import export
from electra_tf.serving.export_options import check_export
from electra_tf.sources import PretrainedEncoder
from electra_tf.tasks import (
    compiled_metrics,
    defaults,
    inference,
    input_warnings,
    saved_models,
)
from electra_tf.tasks import optimizer as optimizers
from electra_tf.tasks.encoder import Encoder
from electra_tf.tasks.examples import EncodedExamples, IdRows, eval_dataset
from electra_tf.tasks.inputs import (
    INPUT_NAMES,
    Inputs,
    check_length,
    check_pairs,
    encode,
    fit_arguments,
    is_texts,
    positive_or_default,
    prediction_rows,
    steps_per_epoch,
    unpack_batch,
)
from electra_tf.tasks.losses import Loss, sum_over_replicas
from electra_tf.tasks.tokenizer import Tokenizer
from electra_tf.training.optimizer import Optimizer

_logger = logging.getLogger(__name__)


class TextModel(keras.Model, abc.ABC):
    """Base class of all tasks; a task adds its head, its loss and its examples.

    The setting `training.precision` is the dtype policy of the encoder; head and loss
    are float32. Keras's global dtype policy has no effect.

    Args:
        start: Shape, tokenizer and weights of the encoder.
        settings: Settings of fine-tuning, in any form that `from_preset` takes.
        seed: Seed of the head's weights, of dropout and of the order of the examples.
        name: Name of the model.
        dtype: `float32` or `mixed_bfloat16`; None: `training.precision`.
        trainable: Whether the weights are trained.
    """

    kind = ""  # name of the task's kind, as in `interop.heads`
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

    has_own_optimizer = False
    """Whether `compile` got an optimizer, which each `fit` continues to use."""
    rate_scale = 1.0
    """Default learning rate of small encoders, relative to that of a classifier."""
    settings_note = ""
    """Line that `fit` prints: defaults that were chosen for the encoder."""

    def __new__(cls, *args: Any, **kwargs: Any) -> "TextModel":
        """Raise an error for a path in place of an encoder."""
        if args and isinstance(args[0], str | os.PathLike):
            call = f"{cls.__name__}.from_preset({os.fspath(args[0])!r}, ...)"
            raise InputError(f"{cls.__name__} takes no path or name: call {call}")
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
            chosen = defaults.complete_settings(settings, start, self)
            settings, self.settings_note = chosen
        positions = start.shape.max_positions
        self.settings = defaults.checked_settings(settings, positions, dtype)
        self.tokenizer = Tokenizer.of(start.tokenizer)
        chosen, self._trained_shape = self.settings.model, start.shape
        rates = defaults.dropout_rates(chosen, start.shape)
        self.shape = dataclasses.replace(start.shape, **rates)
        policy = keras.DTypePolicy(self.settings.training.precision)
        other = keras.config.dtype_policy().name
        if start.weights is not None and other not in ("float32", policy.name):
            warnings.warn(
                f"Keras's global dtype policy {other!r} is not used: the model has the "
                f"policy of its settings, training.precision={policy.name!r}",
                stacklevel=3,  # the caller of the constructor of a subclass
            )
        if chosen.weights == "random":
            start = start.untrained()
        self.encoder = dataclasses.replace(start, shape=self.shape).build_encoder(
            seed, Encoder, dtype=policy
        )
        self.encoder.tokenizer = self.tokenizer
        self.head = self.make_head(seed)
        self.head.build((None, None, self.shape.width))
        self.seed = self.add_weight(
            name="seed", shape=(), dtype="int64", initializer="zeros", trainable=False
        )
        self.seed.assign(seed)
        self.built = True
        self.trainable = trainable

    # What a user calls.

    @classmethod
    def from_preset(
        cls,
        path_or_name: str | os.PathLike,
        *,
        vocabulary: str | None = None,
        settings: Any = None,
        max_length: int | None = None,
        seed: int | None = None,
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
            seed: Seed of the head's weights, of dropout and of the examples' order;
                None: 0, or that of the saved model.
            name: Name of the model.
            dtype: `float32` or `mixed_bfloat16`; overrides `training.precision`.
            trainable: Whether the weights are trained.
            head: Arguments of the class; by default those of the saved model.

        Returns:
            A model with an untrained head, or the saved model unchanged.
        """
        head = saved_models.given_arguments(cls, head)
        source = sources.open_source(path_or_name, vocabulary)
        own = {"seed": seed, "name": name, "dtype": dtype, "trainable": trainable}
        return saved_models.from_source(cls, source, head, settings, max_length, own)

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
        class_weight: Mapping[Any, float] | str | None = None,
        **arguments: Any,
    ) -> keras.callbacks.History:
        """Train on texts, or on any input of Keras's `fit`.

        Each call starts a new training from the current weights, with the published
        warm-up and decay over its epochs; `initial_epoch` continues the one before.
        The loss of a batch is the sum of weight times loss, divided by the sum of the
        weights: Keras's reduction `mean_with_sample_weight`. The weight of a sentence
        applies to each of its words, the weight of a question to each of its windows.

        Args:
            x: Any sequence of texts or pairs, a tuple of two for pairs, a
                data set of (texts, targets) or (texts, targets, weights) batches,
                `EncodedExamples`, or ids.
            y: The target of each text; for classes also one-hot rows [N, C]; with
                `multi_label` lists of names, or rows of zeros and ones.
            batch_size: Examples per batch; None: the settings' value.
            epochs: Passes over the texts; None: the settings' value, or 3, or with few
                rows enough for about 1,000 updates, 30 at most.
            validation_data: (x, y) or (x, y, weights), or x alone.
            validation_split: Share of the texts, the last ones, to validate on, which
                are taken before the others are shuffled; ignored if
                `validation_data` is set, as in Keras.
            sample_weight: A weight for each text, sentence or question.
            class_weight: Weights by class, written as in `y`, for classifiers; other
                classes have the weight 1. `balanced`: the inverse of a class's share
                of `y`. None: `training.class_weight` of the settings. They do not apply
                to validation.
            arguments: Other arguments of Keras's `fit`. Texts are shuffled before each
                epoch; `shuffle=False` keeps their order.

        Returns:
            Loss and metric of each epoch.
        """
        size = self._batch_size(batch_size)
        default = self.settings.training.epochs
        epochs = positive_or_default("epochs", epochs, default)
        if class_weight is None and not isinstance(x, EncodedExamples):
            class_weight = self.settings.training.class_weight
        given = Inputs(x, y, sample_weight, class_weight)
        held_out = validation_data, validation_split
        pairs = self.pairs
        try:
            arguments = fit_arguments(self, given, size, *held_out, arguments)
        except InputError:
            self.pairs = pairs  # of the texts that it was trained on
            raise
        steps = steps_per_epoch(arguments)
        optimizers.prepare_training(self, steps, arguments, epochs)
        with self.distribute_strategy.scope():  # for callbacks that restore its slots
            self.optimizer.build(self.trainable_variables)
        return super().fit(**arguments)

    def evaluate(
        self, x: Any = None, y: Any = None, sample_weight: Any = None, **arguments: Any
    ) -> Any:
        """Compute loss and metric as Keras's `evaluate` does, on any input of `fit`."""
        size = self._batch_size(arguments.pop("batch_size", None))
        x, y, weights, _ = self._encode(Inputs(x, y, sample_weight))
        if isinstance(x, EncodedExamples):
            x = eval_dataset(x, size)
        elif isinstance(x, Mapping):
            arguments["batch_size"] = size
        return super().evaluate(x, y, sample_weight=weights, **arguments)

    def predict(self, x: Any, batch_size: int | None = None, **arguments: Any) -> Any:
        """Return predictions for texts, or logits for ids.

        Args:
            x: Texts as for `fit`, a `PyDataset` of batches of texts, or ids. Targets
                and weights in a data set are ignored.
            batch_size: Examples per batch; None: the settings' value.
            arguments: Other arguments of Keras's `predict`.

        Returns:
            For texts the task's predictions, for ids the head's logits.
        """
        size = self._batch_size(batch_size)
        rows, x = prediction_rows(self, x, arguments.get("steps"))
        if rows is not None:
            examples = self.examples(rows)
            check_pairs(examples.pairs, self.pairs)
            input_warnings.check_examples(self, examples)
            return self.decode(rows, examples, self.outputs_of(examples, size))
        if isinstance(x, Mapping):
            arguments["batch_size"] = size
        return super().predict(x, **arguments)

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
            metrics: Metrics of Keras that suit the targets, their names, or functions.
            weighted_metrics: Metrics that the weights of the texts apply to.
            arguments: Other arguments of Keras's `compile`.
        """
        jit = arguments.pop("jit_compile", None)
        jit = None if jit == "auto" else jit
        unsupported = {"loss": loss, "loss_weights": loss_weights, "jit_compile": jit}
        for name, value in unsupported.items():
            if value:
                raise InputError(
                    f"compile({name}={value!r:.80}) does not apply: the model has its "
                    "own loss; call compile(optimizer=..., metrics=[...])"
                )
        given = {"metrics": metrics, "weighted_metrics": weighted_metrics}
        with self.distribute_strategy.scope():
            suited = compiled_metrics.suited_metrics(self, **given)
            # XLA would compile the whole step again for each length of batches.
            super().compile(optimizer, jit_compile=False, **suited, **arguments)
            with keras.StatelessScope():  # creates the variables of the metrics
                super().compute_metrics(None, *compiled_metrics.sample_rows(self))
        self._has_given_metrics = bool(metrics or weighted_metrics)
        self.has_own_optimizer = optimizer is not None
        self._compile = functools.partial(self.compile, **given, **arguments)

    def save(
        self, filepath: str | os.PathLike, overwrite: bool = True, **options: Any
    ) -> None:
        """Save the model as Keras does; an interruption leaves an earlier file."""
        path = os.path.expanduser(os.fspath(filepath))
        if not path.endswith(".keras") or (os.path.exists(path) and not overwrite):
            super().save(path, overwrite, **options)
            return
        with durable_files.unfinished(path, ".keras") as partial:
            super().save(partial, **options)

    def save_weights(
        self, filepath: str | os.PathLike, overwrite: bool = True, **options: Any
    ) -> None:
        """Save the weights as Keras does; an interruption leaves an earlier file."""
        path, suffix = os.path.expanduser(os.fspath(filepath)), ".weights.h5"
        if not path.endswith(suffix) or (os.path.exists(path) and not overwrite):
            super().save_weights(path, overwrite, **options)
            return
        with durable_files.unfinished(path, suffix) as partial:
            super().save_weights(partial, **options)

    def export(
        self,
        filepath: str | os.PathLike,
        format: str = "saved_model",
        verbose: bool | None = None,
    ) -> str:
        """Write the model and its tokenizer to a new folder, and compare it with Keras.

        Args:
            filepath: The folder to create. `electra_tf.export_saved_model` writes
                numbered versions for a server in place of it.
            format: `saved_model` takes texts or ids; `litert` and `onnx` take ids, for
                which `tokenizer.json` is beside the file.
            verbose: Whether to print sizes and differences.

        Returns:
            The folder.
        """
        path = check_export(filepath, format, argument="filepath")
        export(self, path, format, log=print if verbose else _logger.info)
        return path

    def train_on_batch(
        self,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        class_weight: Mapping[Any, float] | None = None,
        return_dict: bool = False,
    ) -> Any:
        """Update the weights once, with all texts or ids as one batch, as `fit` does.

        Returns loss and metric of the batch, by name with `return_dict`.
        """
        optimizers.require_optimizer(self)
        given = Inputs(x, y, sample_weight, class_weight)
        batch = self._encode(given, warns=False).as_batch()
        return super().train_on_batch(*batch, return_dict=return_dict)

    def test_on_batch(
        self,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        return_dict: bool = False,
    ) -> Any:
        """Compute loss and metric on all texts or ids, as `train_on_batch` does."""
        batch = self._encode(Inputs(x, y, sample_weight), warns=False).as_batch()
        return super().test_on_batch(*batch[:3], return_dict=return_dict)

    def predict_on_batch(self, x: Any) -> Any:
        """Return predictions for all texts, or logits for all ids, as one batch."""
        rows, x = prediction_rows(self, x)
        if rows is not None:
            return self.predict(rows, batch_size=max(1, len(rows)))
        return super().predict_on_batch(x)

    # Hooks of a task.

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

    @abc.abstractmethod
    def examples(
        self, x: Sequence[Any], y: Sequence[Any] | None = None
    ) -> EncodedExamples:
        """Tokenize texts and encode their targets."""

    def check_training(self, examples: EncodedExamples) -> None:
        """Warn of targets that a model learns badly."""
        return None

    def class_weights(
        self, y: Sequence[Any], of: Mapping[Any, float] | str
    ) -> list[float]:
        """Return the weight of each target's class, 1 by default."""
        raise InputError(
            f"class_weight={of!r:.60} does not apply to a {type(self).__name__}, whose "
            "targets are not single classes; pass sample_weight, a number for each item"
        )

    def head_outputs(
        self, x_BLD: Any, inputs: IdRows, layer_ops: LayerOps, targets: Any = None
    ) -> Any:
        """Compute the outputs, for `task_loss` and `decode`, from hidden states."""
        return self.head(x_BLD, layer_ops=layer_ops)

    @abc.abstractmethod
    def task_loss(self, outputs: Any, targets: Any, weights_B: tf.Tensor) -> Loss:
        """Compute the loss as a sum over the rows of this replica."""

    def metric_rows(self, targets: Any, outputs: Any, weights_B: tf.Tensor) -> tuple:
        """Return targets, predictions and weights, a row for each text or word."""
        return targets, outputs, weights_B

    def task_metrics(self) -> list[keras.metrics.Metric]:
        """Return the weighted metrics that are always reported."""
        has_classes = self.metric_kind == "classes"
        accuracy = keras.metrics.SparseCategoricalAccuracy
        return [accuracy("accuracy")] if has_classes else []

    @abc.abstractmethod
    def decode(self, x: Sequence[Any], examples: EncodedExamples, outputs: list) -> Any:
        """Convert the outputs of all examples to predictions, as `predict` returns."""

    def decode_details(
        self, x: Sequence[Any], examples: EncodedExamples, outputs: list
    ) -> Sequence[Any]:
        """Convert outputs to what records and scores take, by default predictions."""
        return self.decode(x, examples, outputs)

    # Hooks of a served graph.

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

    # Predictions of a task's commands, and another training.

    def predict_details(
        self, x: Sequence[Any], batch_size: int | None = None
    ) -> Sequence[Any]:
        """Return what records and scores take, for each element of `x`, a list."""
        examples = self.examples(x)
        return self.decode_details(x, examples, self.outputs_of(examples, batch_size))

    def outputs_of(
        self, examples: EncodedExamples, batch_size: int | None = None
    ) -> list:
        """Return the head's outputs for each example, structures of NumPy arrays."""
        size = batch_size or self.settings.training.batch_size
        many = len(examples) >= inference.MANY_BATCHES * size
        operations = inference.evaluation_ops(many)
        rank = 2 if examples.num_choices is None else 3
        specs = dict.fromkeys(INPUT_NAMES, tf.TensorSpec([None] * rank, tf.int32))
        infer = inference.compiled(
            self, (many, rank), lambda x: self._forward(x, operations), specs
        )
        return inference.outputs_by_row(examples, size, lambda inputs, _: infer(inputs))

    def choose_dropout(self, epochs: int) -> None:
        """Set the rates that no setting gives, for the first training alone."""
        model = self.settings.model
        if None not in (model.dropout, model.attention_dropout):
            return
        rates = defaults.dropout_rates(model, self._trained_shape, epochs)
        model = dataclasses.replace(model, **rates)
        self.settings = dataclasses.replace(self.settings, model=model)
        self.shape = dataclasses.replace(self.shape, **rates)
        self.encoder.set_dropout(**rates)
        self.train_function = None  # a compiled step has the rates of before

    def clone_with_seed(self, start: PretrainedEncoder, seed: int) -> "TextModel":
        """Return a model of the same task and settings with other initial weights."""
        own = {name: getattr(self, name) for name in self.own_arguments}
        return type(self)(start, settings=self.settings, seed=seed, **own)

    # Steps and files of Keras.

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Compute logits of token ids; raise an InputError for texts."""
        x = args[0] if args else kwargs.get("inputs")
        is_string = getattr(x, "dtype", None) in ("string", tf.string)
        if is_string or isinstance(x, str | bytes) or is_texts(x):
            raise InputError(
                "A model must be called with a dictionary of token_ids, segment_ids "
                f"and padding_mask, not with {x!r:.60}; for texts call predict(texts)"
            )
        return super().__call__(*args, **kwargs)

    def call(self, inputs: IdRows, training: bool | None = None) -> Any:
        """Compute float32 logits, in the structure of the task's head.

        `inputs`: `token_ids`, `segment_ids`, `padding_mask`, each int32 [B, L].
        """
        length = inputs["token_ids"].shape[1]
        check_length(length, self.shape.max_positions)
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
        outputs = self._forward(inputs, inference.evaluation_ops(), targets)
        sums = self.task_loss(outputs, targets, weights_B)
        return self._update_metrics(sums, inputs, targets, outputs, weights_B)

    def compute_metrics(
        self, x: IdRows, y: Any, y_pred: Any, sample_weight: Any = None
    ) -> dict[str, Any]:
        """Update metrics with the rows of a batch, and return means so far."""
        rows = self.metric_rows(y, y_pred, sample_weight)
        if self._has_given_metrics:  # some would count padding
            rows = compiled_metrics.real_rows(self, x, y, y_pred, rows)
        return super().compute_metrics(x, *rows)

    def recompile(self, optimizer: keras.Optimizer) -> None:
        """Compile with another optimizer, and the other arguments as before."""
        (self._compile if self.compiled else self.compile)(optimizer=optimizer)

    def get_compile_config(self) -> dict[str, Any] | None:
        """Return the arguments of `compile`, serialized; None: not compiled."""
        config = super().get_compile_config()
        if not config:
            return None
        given = self._compile.keywords  # without the task's metrics
        metrics = {name: given[name] for name in ("metrics", "weighted_metrics")}
        return config | keras.saving.serialize_keras_object(metrics)

    def compile_from_config(self, config: dict[str, Any]) -> None:
        """Compile a loaded model as the saved one was."""
        arguments = keras.saving.deserialize_keras_object(config)
        self.compile(**{name: value for name, value in arguments.items() if value})
        # The file does not store whether `fit` created the optimizer.
        self.has_own_optimizer = not isinstance(self.optimizer, Optimizer)
        if self.optimizer is not None:
            self.optimizer.build(self.trainable_variables)

    def get_config(self) -> dict[str, Any]:
        """Return a config from which `from_config` builds the same untrained model."""
        return super().get_config() | saved_models.saved_config(self)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "TextModel":
        """Create a model from its config, with initial weights."""
        return saved_models.from_saved_config(cls, config)

    def _batch_size(self, value: int | None) -> int:
        default = self.settings.training.batch_size
        return positive_or_default("batch_size", value, default)

    def _encode(self, given: Inputs, warns: bool = True) -> Inputs:
        """Encode texts, and compile the model if it is not."""
        encoded = encode(self, given, warns)
        if not self.compiled:
            with self.distribute_strategy.scope():
                self.compile()
        return encoded

    def _forward(self, inputs: IdRows, layer_ops: LayerOps, targets: Any = None) -> Any:
        x_BLD = self.encoder(
            **inputs, layer_ops=layer_ops, cls_only=self.reads_cls_alone
        )
        return self.head_outputs(x_BLD, inputs, layer_ops, targets)

    def _update_metrics(
        self, sums: Loss, inputs: IdRows, targets: Any, outputs: Any, weights_B: Any
    ) -> dict[str, Any]:
        loss = tf.math.divide_no_nan(sums.total, sums.weight)
        self.metrics[0].update_state(loss, sums.weight)
        return self.compute_metrics(inputs, targets, outputs, weights_B)
