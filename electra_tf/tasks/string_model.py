"""Keras's `fit`, `evaluate` and `predict`, which take texts too.

Texts become batches of like length; where no optimizer is given, the published one is
made, once it is known how many steps there are.
"""

import abc
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from electra_tf.config.finetuning import FinetuningConfig
from electra_tf.config.pretraining import EncoderConfig
from electra_tf.errors import InputError
from electra_tf.tasks.batching import (
    EncodedExamples,
    eval_dataset,
    prediction_batch_indices,
    training_batch_indices,
    training_dataset,
)
from electra_tf.tasks.keras_inputs import (
    check_iterator,
    num_training_rows,
    positive_or_default,
    require_ids,
    to_targets,
    to_weights,
)
from electra_tf.tasks.optimizer import create_optimizer
from electra_tf.tasks.text_inputs import (
    is_text_dataset,
    is_texts,
    to_rows,
    tokenize_dataset,
)
from electra_tf.training.optimizer import Optimizer

_DATASET = "Map the data set to batches of (texts, targets, weights)"


class StringModel(keras.Model, abc.ABC):
    """How a model of a task is trained on texts and asked about them."""

    settings: FinetuningConfig
    shape: EncoderConfig
    seed: keras.Variable
    pairs: bool | None = None
    """Whether texts are pairs; None: not known yet, or no question here."""
    takes_pairs = True
    """Whether a tuple of two lists is a list of pairs."""
    has_classes = False
    """Whether its targets are classes, which may have weights."""
    takes_columns = False
    """Whether targets of the shape [N, 1] are one for each text."""
    has_own_optimizer = False
    """Whether `compile` was given an optimizer, with which each `fit` goes on."""

    @abc.abstractmethod
    def examples(
        self, x: Sequence[Any], y: Sequence[Any] | None = None
    ) -> EncodedExamples:
        """From texts, and what should be said of them, to examples."""

    @abc.abstractmethod
    def decode(self, x: Sequence[Any], examples: EncodedExamples, outputs: list) -> Any:
        """From the outputs of each example to what `predict` returns."""

    def class_weights(self, y: Sequence[Any], of: Mapping[Any, float]) -> list[float]:
        """Return the weight of each target's class.

        Args:
            y: Targets of texts.
            of: Weights by class, each class written as in `y`.

        Returns:
            One for each target, 1 where `of` does not name its class.

        Raises:
            InputError: The task has no classes, or there is no such class.
        """
        raise InputError(
            f"A {type(self).__name__} must be given weights of items, as its targets "
            "are not classes",
            f"class_weight={of!r:.60}",
            "Pass sample_weight, one number for each item",
        )

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
        """Train on texts, or on whatever Keras's `fit` takes.

        Each call is a training of its own, with the published warm-up and decay over
        its epochs, from the weights there are; `initial_epoch` goes on with the last.

        The loss of a batch is the sum of weight times loss, divided by the sum of the
        weights: Keras's reduction `mean_with_sample_weight`. A text of weight 2 counts
        as if it were in the batch twice. The weight of a sentence is that of each of
        its words, the weight of a question that of each of its windows.

        Args:
            x: A list, array or Series of texts or pairs, a tuple of two for pairs, a
                data set of (texts, targets) or (texts, targets, weights) batches,
                `Examples`, or ids.
            y: The target of each text; for classes also one-hot rows [N, C].
            batch_size: Examples of a batch; None: as in the settings.
            epochs: Passes; None: as in the settings.
            validation_data: (x, y) or (x, y, weights), or x alone.
            validation_split: The share of the texts, the last ones, to validate on;
                without effect where there is `validation_data`, as in Keras.
            sample_weight: A weight for each text, sentence or question.
            class_weight: Weights by class, written as in `y`, of a classifier; others
                have the weight 1. They do not apply to validation.
            arguments: Of Keras's `fit`; `shuffle=False` takes texts in their order.

        Returns:
            Loss and quality of each epoch.

        Raises:
            InputError: No targets, bad texts or weights, no rate left, or
                `steps_per_epoch` for a list of texts.
        """
        training = self.settings.training
        size = positive_or_default("batch_size", batch_size, training.batch_size)
        epochs = positive_or_default("epochs", epochs, training.epochs)
        weights = sample_weight, class_weight
        if validation_data is None and validation_split and not isinstance(x, Mapping):
            parts = self._split(check_iterator(x), y, weights, validation_split)
            (x, y, weights), validation_data = parts
        for_data = validation_data, arguments.pop("validation_batch_size", None)
        x, y, weights, held_out = self._learnt_from(x, y, weights, *for_data, size)
        if isinstance(x, EncodedExamples):
            _refuse_steps(arguments)
            self._check_shared(size)
            x = training_dataset(
                x, size, self._plans(x, size, arguments.get("shuffle", True))
            )
        if isinstance(x, tf.data.Dataset):
            arguments["shuffle"] = False  # Keras would warn that it does not
        if isinstance(x, Mapping):
            arguments["batch_size"] = size
            if validation_split and held_out is None:
                arguments["validation_split"] = validation_split
        first, steps = arguments.get("initial_epoch", 0), _steps(x, size, arguments)
        self._compile_as_published(steps, first, epochs)
        with self.distribute_strategy.scope():  # for callbacks that restore its slots
            self.optimizer.build(self.trainable_variables)
        return super().fit(
            x,
            y,
            epochs=epochs,
            validation_data=held_out,
            sample_weight=weights[0],
            class_weight=weights[1],
            **arguments,
        )

    def evaluate(
        self, x: Any = None, y: Any = None, sample_weight: Any = None, **arguments: Any
    ) -> Any:
        """Return loss and quality on texts, or on whatever Keras's `evaluate` takes.

        Args:
            x: As for `fit`.
            y: As for `fit`.
            sample_weight: As for `fit`.
            arguments: Of Keras's `evaluate`.

        Returns:
            As Keras's.
        """
        size = arguments.pop("batch_size", None)
        size = positive_or_default(
            "batch_size", size, self.settings.training.batch_size
        )
        x, y, weights = self._strings(x, y, (sample_weight, None))
        if isinstance(x, EncodedExamples):
            x = eval_dataset(x, size)
        elif isinstance(x, Mapping):
            arguments["batch_size"] = size
        self._compile_to_measure()
        return super().evaluate(x, y, sample_weight=weights[0], **arguments)

    def predict(self, x: Any, batch_size: int | None = None, **arguments: Any) -> Any:
        """Return what the model predicts of texts, or Keras's `predict` of ids.

        Args:
            x: Texts as for `fit`, but no data set of them.
            batch_size: Examples of a batch; None: as in the settings.
            arguments: Of Keras's `predict`.

        Returns:
            For texts what the task says of each; for ids the head's logits.

        Raises:
            InputError: A data set or a generator of texts, one text alone.
        """
        size = positive_or_default(
            "batch_size", batch_size, self.settings.training.batch_size
        )
        x = check_iterator(x)
        if isinstance(x, tf.data.Dataset) and is_text_dataset(x):
            raise InputError(
                "predict must be given texts as a list, or ids",
                "a data set of texts",
                "Pass a list of its texts",
            )
        if is_texts(x):
            texts = to_rows(x, self.takes_pairs)
            examples = self.examples(texts)
            outputs = self.outputs_of(examples, size)
            return self.decode(texts, examples, outputs)
        if isinstance(x, Mapping):
            require_ids(x)
            self._check_length(x["token_ids"].shape[1])
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
            x: Texts as for `fit`, but no data set of them; or ids.
            y: As for `fit`.
            sample_weight: As for `fit`.
            class_weight: As for `fit`.
            return_dict: Return the values by name.

        Returns:
            Loss and quality of the batch.

        Raises:
            InputError: No optimizer, or the published one after its last update.
        """
        optimizer = self.optimizer if self.compiled else None
        done = whole_number(optimizer.iterations) if optimizer is not None else 0
        if optimizer is None:
            raise InputError(
                "train_on_batch must have an optimizer: the published rate depends on "
                "the number of updates, which only fit knows",
                "no optimizer",
                "Call compile(optimizer=...) first, or call fit",
            )
        if isinstance(optimizer, Optimizer) and done >= optimizer.schedule.steps:
            raise _no_rate(optimizer, done, 1)
        x, y, weights = self._one_batch(x, y, (sample_weight, class_weight))
        return super().train_on_batch(x, y, *weights, return_dict=return_dict)

    def test_on_batch(
        self,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        return_dict: bool = False,
    ) -> Any:
        """Measure on all texts as one batch, or on a batch of ids.

        Args:
            x: As for `train_on_batch`.
            y: As for `fit`.
            sample_weight: As for `fit`.
            return_dict: Return the values by name.

        Returns:
            Loss and quality of the batch.
        """
        x, y, weights = self._one_batch(x, y, (sample_weight, None))
        self._compile_to_measure()
        return super().test_on_batch(x, y, weights[0], return_dict=return_dict)

    def predict_on_batch(self, x: Any) -> Any:
        """Return what `predict` returns, all texts or ids being one batch.

        Args:
            x: As for `predict`.

        Returns:
            As `predict`.
        """
        x = check_iterator(x)
        if is_texts(x):
            return self.predict(x, batch_size=max(1, len(to_rows(x, self.takes_pairs))))
        return super().predict_on_batch(x)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse texts, which only `predict` and its like take."""
        x = args[0] if args else kwargs.get("inputs")
        strings = getattr(x, "dtype", None) in ("string", tf.string)
        if isinstance(x, str | bytes) or strings or is_texts(x):
            raise InputError(
                "A model must be called with ids: a dictionary of token_ids, "
                "segment_ids and padding_mask",
                f"{x!r:.60}",
                "Call predict(texts) for texts",
            )
        return super().__call__(*args, **kwargs)

    def export(self, filepath: Any, *args: Any, **kwargs: Any) -> None:
        """Refuse, as Keras would write a model of ids without its tokenizer.

        Args:
            filepath: Of Keras's `export`.
            args: The same.
            kwargs: The same.

        Raises:
            InputError: Always; it names the command that exports.
        """
        raise InputError(
            "A model of texts must be exported with its tokenizer",
            f"export({str(filepath)!r})",
            'Call save("model.keras"), then run '
            f"`python -m electra_tf.export --model=model.keras --output={filepath}`",
        )

    def outputs_of(
        self, examples: EncodedExamples, batch_size: int | None = None
    ) -> list:
        """The head's outputs for each example, not padded.

        Args:
            examples: Any number.
            batch_size: Examples of a batch; None: as in the settings.

        Returns:
            One structure of NumPy arrays for each example, in order.
        """
        size = batch_size or self.settings.training.batch_size
        found: list[Any] = [None] * len(examples)
        for rows in prediction_batch_indices(examples.lengths, size):
            inputs, _, _ = examples.batch(rows, len(rows))
            outputs = tf.nest.map_structure(lambda t: t.numpy(), self._infer(inputs))
            for place, row in enumerate(rows):
                found[row] = tf.nest.map_structure(lambda a, at=place: a[at], outputs)
        return found

    def _plans(
        self, examples: EncodedExamples, size: int, shuffled: bool
    ) -> Iterator[list[np.ndarray]]:
        lengths = examples.lengths
        if not shuffled:
            rows = np.arange(len(lengths))
            plan = [rows[at : at + size] for at in range(0, len(rows), size)]
            yield from itertools.repeat(plan)
        steps = len(prediction_batch_indices(lengths, size))
        while True:
            epoch = whole_number(self.optimizer.iterations) // steps
            bucketed = self.settings.training.length_buckets
            yield training_batch_indices(
                lengths, size, whole_number(self.seed), epoch, bucketed
            )

    def _compile_as_published(self, batches: int, first: int, epochs: int) -> None:
        """Gives a training its own published rate, unless the caller has chosen one."""
        optimizer = self.optimizer if self.compiled else None
        done = whole_number(optimizer.iterations) if optimizer else 0
        if optimizer is None or not (first or self.has_own_optimizer):
            steps = batches * epochs
            if optimizer is not None and optimizer.schedule.steps == steps:
                for variable in optimizer.variables:  # sooner than compiling again
                    variable.assign(tf.zeros_like(variable))
            else:
                with self.distribute_strategy.scope():
                    rule, depth = self.settings.optimizer, self.shape.depth
                    again = self._compile if self.compiled else self.compile
                    again(optimizer=create_optimizer(rule, depth, steps))
                self.has_own_optimizer = False
            if done:
                self.seed.assign_add(1)  # another order, other dropout
        elif isinstance(optimizer, Optimizer):
            more, last = batches * (epochs - first), optimizer.schedule.steps
            if done + more > last:
                raise _no_rate(optimizer, done, more)

    def _check_shared(self, size: int) -> None:
        replicas = self.distribute_strategy.num_replicas_in_sync
        if size % replicas:
            raise InputError(
                f"A batch is shared equally by {replicas} replicas",
                f"batches of {size}",
                f"Set training.batch_size={-(-size // replicas) * replicas}",
            )

    def _learnt_from(
        self, x: Any, y: Any, weights: tuple, held_out: Any, held_size: Any, size: int
    ) -> tuple:
        """What `fit` is given; whether texts are pairs is for it to say."""
        known, x = self.pairs, check_iterator(x)
        if is_texts(x) or (isinstance(x, tf.data.Dataset) and is_text_dataset(x)):
            self.pairs = None
        try:
            size = positive_or_default("validation_batch_size", held_size, size)
            x, y, weights = self._strings(x, y, weights)
            return x, y, weights, self._held_out(held_out, size)
        except InputError:
            self.pairs = known
            raise

    def _held_out(self, given: Any, size: int) -> Any:
        """Data to validate on, for Keras."""
        several = isinstance(given, tuple | list) and len(given) in (2, 3)
        x, y, *weight = given if several else (given, None)
        x, y, weights = self._strings(x, y, (weight[0] if weight else None, None))
        if isinstance(x, EncodedExamples):
            self._check_shared(size)
            return eval_dataset(x, size)
        return (x, y, *weights[: len(weight)]) if several else x

    def _split(self, x: Any, y: Any, weights: tuple, share: float) -> tuple:
        """Texts as those to train and those to validate on, the last ones."""
        if not is_texts(x):
            raise InputError(
                "validation_split must be the share of a list of texts, or of ids",
                f"validation_split={share!r:.40} of a {type(x).__name__}",
                "Pass validation_data instead",
            )
        rows, y = to_rows(x, self.takes_pairs), to_targets(y, self.takes_columns)
        kept, each = (
            num_training_rows(len(rows), share),
            to_weights(weights[0], len(rows)),
        )
        first, last = ([p if p is None else p[part] for p in (rows, y, each)]
                       for part in (slice(kept), slice(kept, None)))  # fmt: skip
        return (first[0], first[1], (first[2], weights[1])), tuple(last)

    def _one_batch(self, x: Any, y: Any, weights: tuple) -> tuple:
        """All texts as one batch of ids, for Keras."""
        x = check_iterator(x)
        if isinstance(x, tf.data.Dataset):
            raise InputError(
                "One batch must be a list of texts, or ids",
                "a data set",
                "Pass one of its elements, or call fit or evaluate",
            )
        x, y, weights = self._strings(x, y, weights)
        if not isinstance(x, EncodedExamples):
            return x, y, weights
        if not len(x):
            raise InputError("A batch must have a text or more", "none", "Pass texts")
        count = len(x)
        batch = tf.nest.map_structure(
            tf.convert_to_tensor, x.batch(range(count), count)
        )
        return batch[0], batch[1], (batch[2], None)

    def _strings(self, x: Any, y: Any, weights: tuple) -> tuple[Any, Any, tuple]:
        """Texts as `Examples`, data sets of texts as data sets of ids.

        The weights are those of items and those of classes.
        """
        x, (each, of) = check_iterator(x), weights
        if isinstance(x, tf.data.Dataset) and is_text_dataset(x):
            if each is not None:
                raise InputError(
                    "A data set must hold its weights", "sample_weight=...", _DATASET
                )
            return tokenize_dataset(x, self._weighted_examples, of), y, (None, None)
        if is_texts(x):
            rows, y = to_rows(x, self.takes_pairs), to_targets(y, self.takes_columns)
            x, y = self._weighted_examples(rows, y, each, of), None
            each = of = None
        if isinstance(x, EncodedExamples):
            if x.targets is None:
                raise InputError(
                    "Training and evaluation are told what should be said of each text",
                    f"{len(x)} examples without targets",
                    "Pass y",
                )
            if of is not None:
                self.class_weights([], of)
                raise InputError(
                    "class_weight must come with texts", "Examples", "Pass texts and y"
                )
            self._check_length(max(x.lengths, default=0))
            x = x if each is None else x.weighted(to_weights(each, len(each)))
            return x, y, (None, None)
        if of is not None and not self.has_classes:
            self.class_weights([], of)
        if isinstance(x, Mapping):
            require_ids(x)
            self._check_length(x["token_ids"].shape[1])
        return x, y, (each, of)

    def _weighted_examples(
        self, rows: Sequence[Any], y: Any, each: Any = None, of: Any = None
    ) -> EncodedExamples:
        """Examples with the weights of their items."""
        if each is not None and of is not None:
            raise InputError(
                "Weights must be those of texts or those of classes",
                "both sample_weight and class_weight",
                "Multiply them, and pass the product as sample_weight",
            )
        found = self.examples(rows, y)
        if of is not None and y is not None:
            each = self.class_weights(y, of)
        return found if each is None else found.weighted(to_weights(each, len(rows)))

    def _compile_to_measure(self) -> None:
        if not self.compiled:
            with self.distribute_strategy.scope():
                self.compile()

    def _check_length(self, length: int) -> None:
        if length > self.shape.max_positions:
            raise too_long(length, self.shape.max_positions)


def _steps(x: Any, size: int, arguments: Mapping[str, Any]) -> int:
    """Of an epoch; negative where nobody knows."""
    if arguments.get("steps_per_epoch"):
        return arguments["steps_per_epoch"]
    if isinstance(x, tf.data.Dataset):
        return int(x.cardinality())
    if not isinstance(x, Mapping):
        return -1
    count, share = len(x["token_ids"]), arguments.get("validation_split")
    return -(-(num_training_rows(count, share) if share else count) // size)


def _refuse_steps(arguments: Mapping[str, Any]) -> None:
    steps = arguments.get("steps_per_epoch")
    if steps is not None:
        raise InputError(
            "An epoch of a list of texts must be one pass over all of them",
            f"steps_per_epoch={steps!r:.40}",
            "Leave it out, or pass a tf.data.Dataset of batches of (texts, targets) "
            "with repeat()",
        )


def _no_rate(optimizer: Optimizer, done: int, more: int) -> InputError:
    return InputError(
        "The published learning rate has fallen to 0 after "
        f"{optimizer.schedule.steps} updates",
        f"{more} updates after the {done} there were",
        "Leave initial_epoch out, which begins another training, or call "
        "compile() with an optimizer for all of them",
    )


def whole_number(variable: keras.Variable) -> int:
    """The value of a whole number that replicas may hold, which `int` does not take.

    Args:
        variable: A scalar.

    Returns:
        Its value.
    """
    return int(variable.numpy())


def too_long(length: int, known: int) -> InputError:
    """The error of an input that the encoder has no positions for.

    Args:
        length: Its positions.
        known: The encoder's.

    Returns:
        What to raise.
    """
    return InputError(
        f"An input has at most the {known} positions the encoder knows",
        f"{length}",
        f"Cut or split it, or set data.max_length={known} or less",
    )
