"""Validate and convert the arguments of Keras's methods."""

import inspect
import itertools
import math
import numbers
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from electra_tf.errors import InputError
from electra_tf.tasks.examples import Inputs
from electra_tf.tasks.losses import squeeze_column
from electra_tf.tasks.text_inputs import (
    is_text_dataset,
    is_texts,
    to_array,
    to_rows,
)
from electra_tf.training.optimizer import Optimizer, rate_error

INPUTS = ("token_ids", "segment_ids", "padding_mask")
_REMEDY = "Pass a list of texts, or a tf.data.Dataset of batches of (texts, targets)"


def positive_or_default(name: str, value: Any, default: int) -> int:
    """Return a whole number of 1 or more."""
    if value is None:
        return default
    is_integer = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not is_integer or value < 1:
        raise InputError(
            f"{name} must be a whole number of 1 or more",
            f"{name}={value!r:.80}",
            f"Leave it out to use the settings' value, {default}",
        )
    return int(value)


def to_targets(y: Any, columns: bool) -> list[Any] | None:
    """Return targets as a list.

    Args:
        y: A list, an array, a tensor, a Series, a frame of one column, or None.
        columns: Whether targets of the shape [N, 1] are one for each text.
    """
    if y is None:
        return None
    y = y.to_numpy() if hasattr(y, "to_numpy") else y
    y = y.numpy() if tf.is_tensor(y) else y
    if columns and isinstance(y, np.ndarray) and y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    return list(y)


def to_weights(weights: Any, count: int) -> np.ndarray | None:
    """Return the weights of items.

    Args:
        weights: A list, an array, a tensor, a Series, a frame of one column, or None.
        count: Number of items.

    Returns:
        float32 [count]; None if `weights` is None.
    """
    if weights is None:
        return None
    try:
        values = np.asarray(weights, np.float32)
    except (TypeError, ValueError) as error:
        raise _bad_weights(f"{weights!r:.80} ({error})") from error
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.shape != (count,):
        raise _bad_weights(f"the shape {list(values.shape)} for {count} items")
    bad = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
    if len(bad):
        raise _bad_weights(f"{values[bad[0]]} at index {bad[0]}")
    return values


def num_training_rows(count: int, share: float) -> int:
    """Return the number of items to train on, counted as Keras does."""
    is_share = isinstance(share, numbers.Real) and 0 < share < 1
    num_training = math.floor(count * (1.0 - share)) if is_share else 0
    if not 0 < num_training < count:
        raise InputError(
            "validation_split must leave one or more items to train and to validate on",
            f"validation_split={share!r:.40} of {count} items",
            "Choose another share, or pass validation_data=(texts, targets)",
        )
    return num_training


def split_texts(
    x: Any, y: Any, weights: tuple, share: float, pairs: bool, columns: bool
) -> tuple[tuple, tuple]:
    """Split texts into the first ones to train on and the last ones to validate on.

    Returns:
        (texts, targets, weights) to train on, (texts, targets, weights of texts) to
        validate on.
    """
    if not is_texts(x):
        raise InputError(
            "validation_split must be used with a list of texts, or ids",
            f"validation_split={share!r:.40} with a {type(x).__name__}",
            "Pass validation_data instead",
        )
    rows, y = to_rows(x, pairs), to_targets(y, columns)
    sample_weight = to_weights(weights[0], len(rows))
    count = num_training_rows(len(rows), share)
    first, last = (
        [
            None if values is None else values[span]
            for values in (rows, y, sample_weight)
        ]
        for span in (slice(count), slice(count, None))
    )
    return (first[0], first[1], (first[2], weights[1])), tuple(last)


def steps_per_epoch(x: Any, size: int, arguments: Mapping[str, Any]) -> int:
    """Return the number of steps of an epoch."""
    if arguments.get("steps_per_epoch"):
        return arguments["steps_per_epoch"]
    if isinstance(x, tf.data.Dataset):
        return int(x.cardinality())
    if not isinstance(x, Mapping):
        return -1
    count, share = len(x["token_ids"]), arguments.get("validation_split")
    return -(-(num_training_rows(count, share) if share else count) // size)


def check_steps_per_epoch(arguments: Mapping[str, Any]) -> None:
    """Raise an error if `steps_per_epoch` is set for a list of texts."""
    steps = arguments.get("steps_per_epoch")
    if steps is not None:
        raise InputError(
            "steps_per_epoch must be left out with a list of texts, as an epoch is one "
            "pass over all of them",
            f"steps_per_epoch={steps!r:.40}",
            "Leave it out, or pass a tf.data.Dataset of batches of (texts, targets) "
            "with repeat()",
        )


def compile_arguments(model: str, *positional: Any, **named: Any) -> dict[str, Any]:
    """Return the arguments of `compile` by name, in the order of Keras's `compile`."""
    signature = inspect.signature(keras.Model.compile)
    try:
        bound = signature.bind_partial(None, None, *positional, **named)
    except TypeError as error:
        raise InputError(
            f"The arguments of compile must be those of Keras: {signature}",
            str(error),
            "Pass compile(optimizer=..., metrics=[...])",
        ) from error
    arguments = dict(list(bound.arguments.items())[2:])
    names = ("loss", "loss_weights", "jit_compile")
    unsupported = [name for name in names if arguments.get(name)]
    if unsupported and arguments[unsupported[0]] != "auto":
        name = unsupported[0]
        raise InputError(
            f"{name} of compile must be left out: a {model} has the loss of its task, "
            "and compiles with XLA only the element-wise operations between matmuls",
            f"compile({name}={arguments[name]!r:.80})",
            "Call compile(optimizer=..., metrics=[...]) without it, or use the model "
            "as a layer of your own model",
        )
    return arguments


def check_callbacks(callbacks: Any, optimizer: Any) -> None:
    """Raise an error if a callback would set the rate of a scheduled optimizer."""
    if not isinstance(optimizer, Optimizer):
        return
    kinds = keras.callbacks.LearningRateScheduler, keras.callbacks.ReduceLROnPlateau
    for callback in tf.nest.flatten(getattr(callbacks, "callbacks", callbacks)):
        if isinstance(callback, kinds):
            raise rate_error(type(callback).__name__)


def reject_text_call(x: Any) -> None:
    """Raise an error if a model is called with texts."""
    strings = getattr(x, "dtype", None) in ("string", tf.string)
    if isinstance(x, str | bytes) or strings or is_texts(x):
        raise InputError(
            "A model must be called with ids: a dictionary of token_ids, "
            "segment_ids and padding_mask",
            f"{x!r:.60}",
            "Call predict(texts) for texts",
        )


def unpack_batch(data: Any) -> tuple[Inputs, Any, tf.Tensor]:
    """Return inputs, targets and weights of a batch.

    Returns:
        Inputs, targets, and weights float32 [B], 1 by default.
    """
    inputs, targets, weights_B = keras.utils.unpack_x_y_sample_weight(data)
    require_targets(targets)
    if weights_B is None:
        weights_B = tf.ones([tf.shape(inputs["token_ids"])[0]])
    weights_B = squeeze_column(weights_B)
    if weights_B.shape.rank not in (None, 1):
        raise _bad_weights(f"the shape {list(weights_B.shape)}")
    return inputs, targets, tf.reshape(tf.cast(weights_B, tf.float32), [-1])


def require_targets(y: Any) -> None:
    """Raise an error if there are no targets."""
    if y is None:
        raise InputError(
            "fit and evaluate must have y, the target of each row of ids",
            "ids without targets",
            "Pass y",
        )


def check_length(length: int, max_positions: int) -> None:
    """Raise an error if an input is longer than the encoder's positions."""
    if length > max_positions:
        raise InputError(
            f"An input must have at most the encoder's {max_positions} positions",
            f"{length} positions",
            f"Truncate or split it, or set data.max_length={max_positions} or less",
        )


def check_max_length(max_length: int, max_positions: int) -> None:
    """Raise an error if `data.max_length` exceeds the encoder's positions."""
    if max_length > max_positions:
        raise InputError(
            f"data.max_length must be at most the encoder's {max_positions} positions",
            f"data.max_length={max_length}",
            f"Set data.max_length={max_positions} or less: "
            f"--set=data.max_length={max_positions}, or in Python settings="
            f'electra_tf.load_config(sets=["data.max_length={max_positions}"], '
            "root=electra_tf.FinetuningConfig)",
        )


def require_ids(x: Mapping[str, Any]) -> None:
    """Raise an error if a dictionary lacks one of `INPUTS`."""
    missing = [name for name in INPUTS if name not in x]
    if missing:
        raise InputError(
            f"A dictionary of ids must have {', '.join(INPUTS)}, each [B, L]",
            f"{sorted(map(str, x))}, without {', '.join(missing)}",
            "Pass a list of texts, or add the missing keys",
        )


def check_iterator(x: Any) -> Any:
    """Return an input for `is_texts` and Keras; reject generators of texts."""
    if isinstance(x, types.GeneratorType):
        return _check_generator(x)
    if isinstance(x, keras.utils.PyDataset):
        _reject_texts(x[0], x)
        return x
    if isinstance(x, set | frozenset) or (
        isinstance(x, Iterator) and not isinstance(x, tf.data.Iterator)
    ):
        raise InputError(
            "Texts must be a sequence with an order, which can be read twice",
            f"a {type(x).__name__}",
            _REMEDY,
        )
    return to_array(x)


def _check_generator(generator: Iterator[Any]) -> Iterator[Any]:
    """Check the first element and return a generator of all elements."""
    first = list(itertools.islice(generator, 1))
    if first:
        _reject_texts(first[0], generator)
    return (element for element in itertools.chain(first, generator))


def has_text_batches(x: Any) -> bool:
    """Return whether an input is a data set or a `PyDataset` of texts."""
    if isinstance(x, tf.data.Dataset):
        return is_text_dataset(x)
    return isinstance(x, keras.utils.PyDataset) and _has_texts(x[0])


def _has_texts(element: Any) -> bool:
    x = element[0] if isinstance(element, tuple) and element else element
    is_array_of_texts = not isinstance(x, list | tuple) and is_texts(x)
    return is_array_of_texts or _first_is_text(x)


def _reject_texts(element: Any, source: Any) -> None:
    if _has_texts(element):
        x = element[0] if isinstance(element, tuple) else element
        raise InputError(
            f"A {type(source).__name__} must yield batches of ids",
            f"the texts {x!r:.60}",
            _REMEDY,
        )


def _first_is_text(x: Any) -> bool:
    while isinstance(x, Sequence) and not isinstance(x, str | bytes) and len(x):
        x = x[0]
    return isinstance(x, str | bytes) or (isinstance(x, np.ndarray) and is_texts(x))


def _bad_weights(received: str) -> InputError:
    return InputError(
        "sample_weight must have a finite number of 0 or more for each item",
        received,
        "Pass as many weights as texts, sentences or questions",
    )
