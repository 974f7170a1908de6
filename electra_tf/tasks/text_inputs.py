"""What counts as texts where Keras takes arrays, and data sets of texts."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf.errors import InputError
from electra_tf.tasks.batching import EncodedExamples

_Examples = Callable[[Sequence[Any], Sequence[Any] | None, Any, Any], EncodedExamples]


def is_texts(x: Any) -> bool:
    """Whether `x` is texts: not ids, not a data set.

    Args:
        x: What `fit` or `predict` was given.

    Returns:
        True for a list or an array of strings, of pairs, of lists of words, of
        questions; for a tuple of two lists or arrays of strings.
    """
    if isinstance(x, tf.Tensor):
        return x.dtype == tf.string and x.shape.rank in (1, 2)
    if isinstance(x, np.ndarray):
        return x.dtype.kind in "OUS" and x.ndim in (1, 2)
    if not isinstance(x, list | tuple):
        return False
    if x and isinstance(x[0], np.ndarray | tf.Tensor):
        return is_texts(x[0])
    return not x or not isinstance(x[0], dict | int | float | np.number)


def to_array(x: Any) -> Any:
    """Return a Series or a frame's one column of texts as an array, others as is.

    Args:
        x: What `fit`, `evaluate` or `predict` was given.

    Returns:
        What Keras or `is_texts` knows.

    Raises:
        InputError: One text alone.
    """
    if isinstance(x, str | bytes):
        raise InputError(
            "Texts come as a list", f"the text {x!r:.60} alone", "Pass [text]"
        )
    if not hasattr(x, "to_numpy"):
        return x
    column = x.to_numpy()
    return column[:, 0] if column.ndim == 2 and column.shape[1] == 1 else column


def to_rows(x: Any, pairs: bool = True) -> list[Any]:
    """One text, or pair, for each example.

    Args:
        x: What `is_texts` takes for texts.
        pairs: Whether a tuple of two lists is the two columns of pairs.

    Returns:
        The rows; a tuple of two lists becomes a list of pairs.

    Raises:
        InputError: Two lists of different lengths, bytes that are not UTF-8.
    """
    if isinstance(x, np.ndarray | tf.Tensor):
        return _listed(x)
    columns = pairs and isinstance(x, tuple) and len(x) == 2
    if columns and not any(isinstance(part, str | bytes) for part in x):
        if len(x[0]) != len(x[1]):
            raise InputError(
                "The two texts of pairs come as two lists of one length",
                f"{len(x[0])} and {len(x[1])}",
                "Pass a tuple of two equally long lists, or a list of pairs",
            )
        return list(zip(*(_listed(to_array(part)) for part in x), strict=True))
    return _listed(x)


def is_text_dataset(dataset: tf.data.Dataset) -> bool:
    """Whether a data set's elements begin with strings.

    Args:
        dataset: Any.

    Returns:
        False for one of ids.
    """
    return tf.nest.flatten(dataset.element_spec)[0].dtype == tf.string


def tokenize_dataset(
    dataset: tf.data.Dataset, examples: _Examples, class_weight: Any = None
) -> tf.data.Dataset:
    """Return a data set of batches of texts as one of batches of ids.

    Args:
        dataset: Of (texts, targets) or (texts, targets, weights): texts a string [B],
            or a pair of them.
        examples: From texts, targets, weights and weights of classes to `Examples`.
        class_weight: Weights of classes; None: none.

    Returns:
        Inputs, targets and weights, a batch as long as its longest text.

    Raises:
        InputError: Elements of another form, no elements, bytes that are not UTF-8.
    """
    spec = dataset.element_spec
    _require_batches(spec)

    def batch_of(flat: Sequence[np.ndarray]) -> Any:
        texts, targets, *weights = tf.nest.pack_sequence_as(spec, list(flat))
        columns = texts if isinstance(texts, tuple) else (texts,)
        columns = [_listed(column) for column in columns]
        rows = columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
        each = weights[0] if weights else None
        found = examples(rows, list(targets), each, class_weight)
        return found.batch(range(len(found)), len(found))

    first = next(dataset.take(1).as_numpy_iterator(), None)
    if first is None:
        raise InputError(
            "A data set has one batch or more", "none", "Check how it is made"
        )
    probe = batch_of(tf.nest.flatten(first))
    flat = tf.nest.flatten(probe)
    kinds = [array.dtype for array in flat]

    def mapped(*batch: Any) -> Any:
        arrays = tf.numpy_function(
            lambda *given: tf.nest.flatten(batch_of(given)),
            tf.nest.flatten(batch),
            kinds,
        )
        for array, known in zip(arrays, flat, strict=True):
            array.set_shape([None] * known.ndim)
        return tf.nest.pack_sequence_as(probe, arrays)

    return dataset.map(mapped)


def _listed(column: Any) -> list[Any]:
    """Rows of an array or a tensor as a list; bytes as text."""
    if isinstance(column, tf.Tensor):
        column = column.numpy()
    if isinstance(column, np.ndarray):
        column = column.tolist()
    return [_text(row, place) for place, row in enumerate(column)]


def _text(row: Any, place: int) -> Any:
    if type(row) in (list, tuple):
        return type(row)(_text(part, place) for part in row)
    if not isinstance(row, bytes):
        return row
    try:
        return row.decode()
    except UnicodeDecodeError as error:
        raise InputError(
            "Texts are UTF-8",
            f"{row!r:.80} at place {place}: {error.reason}",
            "Decode them with the encoding they have, and pass strings",
        ) from error


def _require_batches(spec: Any) -> None:
    """Refuse elements that are not (texts, targets) or (texts, targets, weights)."""
    several = isinstance(spec, tuple) and len(spec) in (2, 3)
    texts = spec[0] if several else None
    columns = texts if isinstance(texts, tuple) else (texts,)
    flat = tf.nest.flatten(spec)
    good = len(columns) <= 2 and several and len(flat) == len(columns) + len(spec) - 1
    if not good or any(
        getattr(column, "dtype", None) != tf.string or column.shape.rank != 1
        for column in columns
    ):
        raise InputError(
            "A data set of texts must have batches of (text, target), of ((text, "
            "text), target), or of either with weights, each text a string [B]",
            f"elements of {spec}",
            "Call its batch(), and map it to that form",
        )
