"""What Keras's methods were given, checked: targets, weights, shares, iterators.

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
from electra_tf.tasks.text_inputs import is_texts, to_array

INPUTS = ("token_ids", "segment_ids", "padding_mask")
_REMEDY = "Pass a list of texts, or a tf.data.Dataset of batches of (texts, targets)"


def positive_or_default(name: str, value: Any, default: int) -> int:
    """Return a whole number of 1 or more.

    Args:
        name: Of the argument.
        value: What was passed; None: the default.
        default: From the settings.

    Returns:
        The number.

    Raises:
        InputError: It is no such number.
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
        One for each text; None: there are none.
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
        count: How many items there are.

    Returns:
        float32 [count]; None: there are none.

    Raises:
        InputError: Another number of them, one that is negative or not finite.
    """
    if weights is None:
        return None
    try:
        found = np.asarray(weights, np.float32)
    except (TypeError, ValueError) as error:
        raise _bad_weights(f"{weights!r:.80} ({error})") from error
    if found.ndim == 2 and found.shape[1] == 1:
        found = found[:, 0]
    if found.shape != (count,):
        raise _bad_weights(f"the shape {list(found.shape)} for {count} items")
    bad = np.flatnonzero(~(np.isfinite(found) & (found >= 0)))
    if len(bad):
        raise _bad_weights(f"{found[bad[0]]} at place {bad[0]}")
    return found


def num_training_rows(count: int, share: float) -> int:
    """Return how many items are left to train on, as Keras counts them.

    Args:
        count: How many there are.
        share: Of them to validate on, the last ones: `validation_split`.

    Returns:
        The number of the first ones.

    Raises:
        InputError: Either part has none.
    """
    number = isinstance(share, numbers.Real) and 0 < share < 1
    kept = math.floor(count * (1.0 - share)) if number else 0
    if not 0 < kept < count:
        raise InputError(
            "validation_split must leave one item or more to train and to validate on",
            f"validation_split={share!r:.40} of {count} items",
            "Choose another share, or pass validation_data=(texts, targets)",
        )
    return kept


def require_ids(x: Mapping[str, Any]) -> None:
    """Raise an InputError where a dictionary is not one of ids.

    Args:
        x: What a method was given.

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
    """Return what `is_texts` and Keras take, and refuse texts out of generators.

    Args:
        x: What a method was given.

    Returns:
        A generator that has lost nothing; an array for a Series; else `x`.

    Raises:
        InputError: One text alone; a set, an iterator, a generator of texts.
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
