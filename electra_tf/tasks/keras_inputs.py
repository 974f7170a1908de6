"""Checks and conversions of the arguments of Keras's methods.

A mean is weighted as by Keras's reduction `mean_with_sample_weight`: the sum of
weight times loss, divided by the sum of the weights.
"""

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
from electra_tf.tasks.batching import Inputs
from electra_tf.tasks.text_inputs import is_texts, to_array, to_rows

INPUTS = ("token_ids", "segment_ids", "padding_mask")
_REMEDY = "Pass a list of texts, or a tf.data.Dataset of batches of (texts, targets)"


def positive_or_default(name: str, value: Any, default: int) -> int:
    """Return a whole number of 1 or more.

    Args:
        name: Name of the argument.
        value: Value that was passed; None: the default.
        default: Value of the settings.

    Returns:
        The number.

    Raises:
        InputError: The value is not such a number.
    """
    if value is None:
        return default
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not whole or value < 1:
        raise InputError(
            f"{name} must be a whole number of 1 or more",
            f"{name}={value!r:.80}",
            f"Leave it out for the {default} of the settings",
        )
    return int(value)


def to_targets(y: Any, columns: bool) -> list[Any] | None:
    """Return targets as a list.

    Args:
        y: A list, an array, a tensor, a Series, a frame of one column, or None.
        columns: Whether targets of the shape [N, 1] are one for each text.

    Returns:
        One target for each text; None: `y` is None.
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
        float32 [count]; None: `weights` is None.

    Raises:
        InputError: Their number differs from `count`, or one is negative or not finite.
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
        raise _bad_weights(f"{values[bad[0]]} at place {bad[0]}")
    return values


def num_training_rows(count: int, share: float) -> int:
    """Return the number of items to train on, counted as Keras does.

    Args:
        count: Number of items.
        share: Share to validate on, the last items: `validation_split`.

    Returns:
        The number of the first ones.

    Raises:
        InputError: One of the two parts has no item.
    """
    number = isinstance(share, numbers.Real) and 0 < share < 1
    count_left = math.floor(count * (1.0 - share)) if number else 0
    if not 0 < count_left < count:
        raise InputError(
            "validation_split must leave one item or more to train and to validate on",
            f"validation_split={share!r:.40} of {count} items",
            "Choose another share, or pass validation_data=(texts, targets)",
        )
    return count_left


def split_texts(
    x: Any, y: Any, weights: tuple, share: float, pairs: bool, columns: bool
) -> tuple[tuple, tuple]:
    """Split texts into the first ones to train and the last ones to validate on.

    Args:
        x: Texts.
        y: Their targets.
        weights: Weights of texts, and weights of classes.
        share: Share to validate on: `validation_split`.
        pairs: As for `to_rows`.
        columns: As for `to_targets`.

    Returns:
        (texts, targets, weights) to train on, (texts, targets, weights of texts) to
        validate on.

    Raises:
        InputError: `x` is not a list of texts, or one of the two has no text.
    """
    if not is_texts(x):
        raise InputError(
            "validation_split must be the share of a list of texts, or of ids",
            f"validation_split={share!r:.40} of a {type(x).__name__}",
            "Pass validation_data instead",
        )
    rows, y = to_rows(x, pairs), to_targets(y, columns)
    sample_weight = to_weights(weights[0], len(rows))
    count = num_training_rows(len(rows), share)
    first, last = (
        [part if part is None else part[span] for part in (rows, y, sample_weight)]
        for span in (slice(count), slice(count, None))
    )
    return (first[0], first[1], (first[2], weights[1])), tuple(last)


def steps_per_epoch(x: Any, size: int, arguments: Mapping[str, Any]) -> int:
    """Return the number of steps of an epoch.

    Args:
        x: Ids, a data set of batches, or any other input of Keras's `fit`.
        size: Rows of a batch of ids.
        arguments: Other arguments of `fit`.

    Returns:
        The number; negative if it is unknown.
    """
    if arguments.get("steps_per_epoch"):
        return arguments["steps_per_epoch"]
    if isinstance(x, tf.data.Dataset):
        return int(x.cardinality())
    if not isinstance(x, Mapping):
        return -1
    count, share = len(x["token_ids"]), arguments.get("validation_split")
    return -(-(num_training_rows(count, share) if share else count) // size)


def check_steps_per_epoch(arguments: Mapping[str, Any]) -> None:
    """Raise an error if `steps_per_epoch` is set for a list of texts.

    Args:
        arguments: Other arguments of `fit`.

    Raises:
        InputError: It is set.
    """
    steps = arguments.get("steps_per_epoch")
    if steps is not None:
        raise InputError(
            "An epoch of a list of texts must be one pass over all of them",
            f"steps_per_epoch={steps!r:.40}",
            "Leave it out, or pass a tf.data.Dataset of batches of (texts, targets) "
            "with repeat()",
        )


def check_compile_arguments(model: str, arguments: Mapping[str, Any]) -> None:
    """Raise an error for arguments of `compile` that a text model has to reject.

    Args:
        model: The model's class, for the message.
        arguments: Arguments of `compile`.

    Raises:
        InputError: `loss`, `loss_weights`, or `jit_compile` other than "auto" is set.
    """
    names = ("loss", "loss_weights", "jit_compile")
    own = [name for name in names if arguments.get(name)]
    if own and arguments[own[0]] != "auto":
        raise InputError(
            f"A {model} must have the loss of its task, and XLA compiles only the "
            "element-wise operations between its matmuls",
            f"compile({own[0]}={arguments[own[0]]!r})",
            "Leave it out, or use the model as a layer of a model of yours",
        )


def reject_text_call(x: Any) -> None:
    """Raise an error if a model is called with texts.

    Args:
        x: First argument of the call.

    Raises:
        InputError: It is texts.
    """
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

    Args:
        data: First argument of `train_step`.

    Returns:
        Inputs, targets, and weights float32 [B], which are 1 if Keras got no weights.
    """
    inputs, targets, weights_B = keras.utils.unpack_x_y_sample_weight(data)
    if weights_B is None:
        weights_B = tf.ones([tf.shape(inputs["token_ids"])[0]])
    return inputs, targets, tf.cast(weights_B, tf.float32)


def check_length(length: int, max_positions: int) -> None:
    """Raise an error if an input is longer than the encoder's positions.

    Args:
        length: Positions of the input.
        max_positions: Positions of the encoder.

    Raises:
        InputError: The input is longer.
    """
    if length > max_positions:
        raise InputError(
            f"An input must have at most the encoder's {max_positions} positions",
            f"{length} positions",
            f"Cut or split it, or set data.max_length={max_positions} or less",
        )


def require_ids(x: Mapping[str, Any]) -> None:
    """Raise an error if a dictionary lacks ids.

    Args:
        x: First argument of a method.

    Raises:
        InputError: A name is missing.
    """
    missing = [name for name in INPUTS if name not in x]
    if missing:
        raise InputError(
            f"A dictionary of ids must have {', '.join(INPUTS)}, each [B, L]",
            f"{sorted(map(str, x))}, without {', '.join(missing)}",
            "Pass a list of texts, or add the missing ids",
        )


def check_iterator(x: Any) -> Any:
    """Return an input for `is_texts` and Keras; raise an error for generators of texts.

    Args:
        x: First argument of a method.

    Returns:
        A generator of the same elements; an array for a Series; else `x`.

    Raises:
        InputError: A single string; a set, an iterator or a generator of texts.
    """
    if isinstance(x, types.GeneratorType):
        return _unread(x)
    if isinstance(x, keras.utils.PyDataset):
        _refuse_texts(x[0], x)
        return x
    if isinstance(x, set | frozenset) or (
        isinstance(x, Iterator) and not isinstance(x, tf.data.Iterator)
    ):
        raise InputError(
            "Texts must come in an order that can be read twice",
            f"a {type(x).__name__}",
            _REMEDY,
        )
    return to_array(x)


def _unread(generator: Iterator[Any]) -> Iterator[Any]:
    """Return a generator of the same elements, the first of which has been checked."""
    first = list(itertools.islice(generator, 1))
    if first:
        _refuse_texts(first[0], generator)
    return (element for element in itertools.chain(first, generator))


def _refuse_texts(element: Any, source: Any) -> None:
    x = element[0] if isinstance(element, tuple) and element else element
    alone = not isinstance(x, list | tuple) and is_texts(x)
    if alone or _holds_text(x):
        raise InputError(
            f"A {type(source).__name__} must yield batches of ids",
            f"the texts {x!r:.60}",
            _REMEDY,
        )


def _holds_text(x: Any) -> bool:
    while isinstance(x, Sequence) and not isinstance(x, str | bytes) and len(x):
        x = x[0]
    return isinstance(x, str | bytes) or (isinstance(x, np.ndarray) and is_texts(x))


def _bad_weights(arrived: str) -> InputError:
    return InputError(
        "sample_weight must have a finite number of 0 or more for each item",
        arrived,
        "Pass as many weights as texts, sentences or questions",
    )
