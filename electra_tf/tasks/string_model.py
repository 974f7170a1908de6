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

from electra_tf.errors import InputError
from electra_tf.settings import Encoder as Shape
from electra_tf.task_settings import Finetuning
from electra_tf.tasks.inputs import (
    Examples,
    dataset,
    once,
    prediction_plan,
    training_plan,
)
from electra_tf.tasks.strings import (
    featurized,
    holds_texts,
    is_texts,
    plain,
    rows_of,
)
from electra_tf.tasks.updates import published
from electra_tf.training.optimizer import Optimizer

_OF_ARRAYS = ("validation_split", "sample_weight", "class_weight", "steps_per_epoch")


class StringModel(keras.Model, abc.ABC):
    """How a model of a task is trained on texts and asked about them."""

    settings: Finetuning
    shape: Shape
    seed: keras.Variable
    pairs: bool | None = None
    """Whether texts are pairs; None: not known yet, or no question here."""
    takes_pairs = True
    """Whether a tuple of two lists is a list of pairs."""
    has_own_optimizer = False
    """Whether `compile` was given an optimizer, with which each `fit` goes on."""

    @abc.abstractmethod
    def examples(self, x: Sequence[Any], y: Sequence[Any] | None = None) -> Examples:
        """From texts, and what should be said of them, to examples."""

    @abc.abstractmethod
    def decoded(self, x: Sequence[Any], examples: Examples, outputs: list) -> Any:
        """From the outputs of each example to what `predict` returns."""

    def fit(
        self,
        x: Any = None,
        y: Any = None,
        *,
        batch_size: int | None = None,
        epochs: int | None = None,
        validation_data: Any = None,
        **arguments: Any,
    ) -> keras.callbacks.History:
        """Trains on texts, or on whatever Keras's `fit` takes.

        Each call is a training of its own, with the published warm-up and decay over
        its epochs, from the weights there are; `initial_epoch` goes on with the last.

        Args:
            x: A list, array or Series of texts or pairs, a tuple of two for pairs, a
                data set of (text, target) batches, `Examples`, or ids.
            y: What should be said of each text.
            batch_size: Examples of a batch; None: as in the settings.
            epochs: Passes; None: as in the settings.
            validation_data: As x and y.
            arguments: Of Keras's `fit`; `shuffle=False` takes texts in their order.

        Returns:
            Loss and quality of each epoch.

        Raises:
            InputError: No targets, bad texts, no rate left, or arguments for arrays.
        """
        size = batch_size or self.settings.training.batch_size
        epochs = self.settings.training.epochs if epochs is None else epochs
        x, y, held_out = self._learnt_from(x, y, validation_data, size)
        if isinstance(x, Examples):
            _refuse(_OF_ARRAYS, arguments)
            self._check_shared(size)
            x = dataset(x, size, self._plans(x, size, arguments.get("shuffle", True)))
        if isinstance(x, tf.data.Dataset):
            arguments["shuffle"] = False  # Keras would warn that it does not
        first = arguments.get("initial_epoch", 0)
        self._compile_as_published(_batches(x, size), first, epochs)
        return super().fit(
            x,
            y,
            batch_size=size if isinstance(x, Mapping) else None,
            epochs=epochs,
            validation_data=held_out,
            **arguments,
        )

    def evaluate(self, x: Any = None, y: Any = None, **arguments: Any) -> Any:
        """Loss and quality on texts, or on whatever Keras's `evaluate` takes.

        Args:
            x: As for `fit`.
            y: As for `fit`.
            arguments: Of Keras's `evaluate`.

        Returns:
            As Keras's.
        """
        size = arguments.pop("batch_size", None) or self.settings.training.batch_size
        x, y = self._strings(x, y)
        if isinstance(x, Examples):
            _refuse(("sample_weight",), arguments)
            x = once(x, size)
        elif isinstance(x, Mapping):
            arguments["batch_size"] = size
        if not self.compiled:
            with self.distribute_strategy.scope():
                self.compile()
        return super().evaluate(x, y, **arguments)

    def predict(self, x: Any, batch_size: int | None = None, **arguments: Any) -> Any:
        """What the model says of texts, or Keras's `predict` of ids.

        Args:
            x: Texts as for `fit`, but no data set of them.
            batch_size: Examples of a batch; None: as in the settings.
            arguments: Of Keras's `predict`.

        Returns:
            For texts what the task says of each; for ids the head's logits.

        Raises:
            InputError: A data set of texts.
        """
        x = plain(x)
        if isinstance(x, tf.data.Dataset) and holds_texts(x):
            raise InputError(
                "predict takes texts as a list, or ids",
                "a data set of texts",
                "Pass a list of its texts",
            )
        if is_texts(x):
            texts = rows_of(x, self.takes_pairs)
            examples = self.examples(texts)
            outputs = self.outputs_of(examples, batch_size)
            return self.decoded(texts, examples, outputs)
        if isinstance(x, Mapping):
            self._check_length(x["token_ids"].shape[1])
            batch_size = batch_size or self.settings.training.batch_size
        return super().predict(x, batch_size=batch_size, **arguments)

    def outputs_of(self, examples: Examples, batch_size: int | None = None) -> list:
        """The head's outputs for each example, not padded.

        Args:
            examples: Any number.
            batch_size: Examples of a batch; None: as in the settings.

        Returns:
            One structure of NumPy arrays for each example, in order.
        """
        size = batch_size or self.settings.training.batch_size
        found: list[Any] = [None] * len(examples)
        for rows in prediction_plan(examples.lengths, size):
            inputs, _, _ = examples.batch(rows, len(rows))
            outputs = tf.nest.map_structure(lambda t: t.numpy(), self._infer(inputs))
            for place, row in enumerate(rows):
                found[row] = tf.nest.map_structure(lambda a, at=place: a[at], outputs)
        return found

    def _plans(
        self, examples: Examples, size: int, shuffled: bool
    ) -> Iterator[list[np.ndarray]]:
        lengths = examples.lengths
        if not shuffled:
            rows = np.arange(len(lengths))
            plan = [rows[at : at + size] for at in range(0, len(rows), size)]
            yield from itertools.repeat(plan)
        steps = len(prediction_plan(lengths, size))
        while True:
            epoch = whole_number(self.optimizer.iterations) // steps
            bucketed = self.settings.training.length_buckets
            yield training_plan(lengths, size, whole_number(self.seed), epoch, bucketed)

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
                    again(optimizer=published(rule, depth, steps))
                self.has_own_optimizer = False
            if done:
                self.seed.assign_add(1)  # another order, other dropout
        elif isinstance(optimizer, Optimizer):
            more, last = batches * (epochs - first), optimizer.schedule.steps
            if done + more > last:
                raise InputError(
                    f"The published learning rate has fallen to 0 after {last} updates",
                    f"{more} updates after the {done} there were",
                    "Leave initial_epoch out, which begins another training, or call "
                    "compile() with an optimizer for all of them",
                )

    def _check_shared(self, size: int) -> None:
        replicas = self.distribute_strategy.num_replicas_in_sync
        if size % replicas:
            raise InputError(
                f"A batch is shared equally by {replicas} replicas",
                f"batches of {size}",
                f"Set training.batch_size={-(-size // replicas) * replicas}",
            )

    def _learnt_from(self, x: Any, y: Any, held_out: Any, size: int) -> tuple:
        """What `fit` is given; whether texts are pairs is for it to say."""
        known, x = self.pairs, plain(x)
        if is_texts(x) or (isinstance(x, tf.data.Dataset) and holds_texts(x)):
            self.pairs = None
        try:
            x, y = self._strings(x, y)
            return x, y, self._held_out(held_out, size)
        except InputError:
            self.pairs = known
            raise

    def _held_out(self, given: Any, size: int) -> Any:
        """Data to validate on, for Keras."""
        pair = isinstance(given, tuple | list) and len(given) == 2
        x, y = self._strings(*(given if pair else (given, None)))
        if isinstance(x, Examples):
            self._check_shared(size)
            return once(x, size)
        return (x, y) if pair else x

    def _strings(self, x: Any, y: Any) -> tuple[Any, Any]:
        """Texts as `Examples`, data sets of texts as data sets of ids."""
        x = plain(x)
        if isinstance(x, tf.data.Dataset):
            return (featurized(x, self.examples) if holds_texts(x) else x), y
        if is_texts(x):
            y = y.numpy() if tf.is_tensor(y) else y
            rows = rows_of(x, self.takes_pairs)
            x, y = self.examples(rows, None if y is None else list(y)), None
        if isinstance(x, Examples):
            if x.targets is None:
                raise InputError(
                    "Training and evaluation are told what should be said of each text",
                    f"{len(x)} examples without targets",
                    "Pass y",
                )
            self._check_length(max(x.lengths, default=0))
        elif isinstance(x, Mapping):
            self._check_length(x["token_ids"].shape[1])
        return x, y

    def _check_length(self, length: int) -> None:
        if length > self.shape.max_positions:
            raise too_long(length, self.shape.max_positions)


def _batches(x: Any, size: int) -> int:
    """Of an epoch; negative where nobody knows."""
    if isinstance(x, tf.data.Dataset):
        return int(x.cardinality())
    return -(-len(x["token_ids"]) // size) if isinstance(x, Mapping) else -1


def _refuse(names: Sequence[str], arguments: Mapping[str, Any]) -> None:
    """Refuses what Keras does with arrays and this model does not with texts."""
    given = [name for name in names if arguments.get(name) is not None]
    if given and arguments[given[0]] != 0:
        raise InputError(
            "Texts are learnt from as often as they stand in the list, and each epoch "
            "from all of them",
            f"{given[0]}={arguments[given[0]]!r:.40}",
            "Split the list and pass validation_data=(texts, targets); repeat what "
            "counts for more; or pass a data set of (ids, targets, weights)",
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
