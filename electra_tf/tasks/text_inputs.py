"""Recognise and convert texts in the arguments of Keras's methods."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf.errors import InputError
from electra_tf.kernels.weak_functions import weak_function
from electra_tf.tasks.examples import EncodedExamples

_Examples = Callable[[Sequence[Any], Sequence[Any] | None, Any, Any], EncodedExamples]


def is_texts(x: Any) -> bool:
    """Return whether an input is texts, not ids or a data set."""
    if isinstance(x, tf.Tensor | tf.RaggedTensor):
        return x.dtype == tf.string and x.shape.rank in (1, 2)
    if isinstance(x, np.ndarray):
        return x.dtype.kind in "OUS" and x.ndim in (1, 2)
    if not isinstance(x, list | tuple):
        return False
    if x and isinstance(x[0], np.ndarray | tf.Tensor):
        return is_texts(x[0])
    return not x or not isinstance(x[0], dict | int | float | np.number)


def to_array(x: Any) -> Any:
    """Convert a Series, or a frame of one column, to an array.

    Returns:
        An array for a Series or a frame; other inputs unchanged.
    """
    if isinstance(x, str | bytes):
        raise InputError(
            "x must be a list of texts", f"the text {x!r:.60} alone", "Pass [text]"
        )
    if not hasattr(x, "to_numpy"):
        return x
    column = x.to_numpy()
    return column[:, 0] if column.ndim == 2 and column.shape[1] == 1 else column


def to_rows(x: Any, pairs: bool = True) -> list[Any]:
    """Return one text or pair for each example."""
    if isinstance(x, np.ndarray | tf.Tensor | tf.RaggedTensor):
        return _to_list(x)
    columns = pairs and isinstance(x, tuple) and len(x) == 2
    if columns and not any(isinstance(column, str | bytes) for column in x):
        if len(x[0]) != len(x[1]):
            raise InputError(
                "The two lists of pairs must have the same length",
                f"{len(x[0])} and {len(x[1])}",
                "Pass a tuple of two lists of the same length, or a list of pairs",
            )
        return list(zip(*(_to_list(to_array(column)) for column in x), strict=True))
    return _to_list(x)


def is_text_dataset(dataset: tf.data.Dataset) -> bool:
    """Return whether the first component of a data set's elements is strings."""
    return tf.nest.flatten(dataset.element_spec)[0].dtype == tf.string


def rows_of_batches(x: Any, steps: int | None, are_pairs: bool) -> list[Any]:
    """Return the texts or pairs of all batches, without targets and weights."""
    count = _num_batches(x)
    if steps is None and count is None:
        raise InputError(
            "A data set to predict must have an end",
            f"an endless {type(x).__name__}",
            "Leave out its repeat(), or pass steps=COUNT",
        )
    if isinstance(x, tf.data.Dataset):
        spec = _texts_of_batch(x.element_spec, are_pairs)
        if not all(_is_column(column) for column in _columns(spec)):
            raise _not_batched(x.element_spec)
        batches = x if steps is None else x.take(steps)
    else:
        batches = (x[index] for index in range(min(steps or count, count or steps)))
    rows = []
    for batch in batches:
        rows += to_rows(to_array(_texts_of_batch(batch, are_pairs)))
    return rows


def _num_batches(x: Any) -> int | None:
    """Return the number of batches; None for an endless data set."""
    if not isinstance(x, tf.data.Dataset):
        return x.num_batches
    count = int(x.cardinality())
    return None if count == tf.data.INFINITE_CARDINALITY else count


def _texts_of_batch(batch: Any, are_pairs: bool) -> Any:
    """Return the first component of a batch; also of one that is described by specs."""
    if not isinstance(batch, tuple):
        return batch
    is_pair = are_pairs and len(batch) == 2 and not isinstance(batch[0], tuple)
    return batch if is_pair else batch[0]


def _columns(texts: Any) -> tuple:
    return texts if isinstance(texts, tuple) else (texts,)


def _is_column(spec: Any) -> bool:
    """Return whether a spec is that of strings [B] or [B, N]."""
    is_strings = getattr(spec, "dtype", None) == tf.string
    return is_strings and spec.shape.rank in (1, 2)


def tokenize_dataset(
    dataset: tf.data.Dataset, examples: _Examples, class_weight: Any = None
) -> tf.data.Dataset:
    """Map a data set of batches of texts to batches of ids.

    Args:
        dataset: Data set of (texts, targets) or (texts, targets, weights); texts are
            strings [B], or a pair of such.
        examples: Encodes texts, targets, weights and weights of classes.
        class_weight: Weights of classes; None: all 1.

    Returns:
        Inputs, targets and weights; a batch is as long as its longest text.
    """
    spec = dataset.element_spec
    _check_element_spec(spec)

    def encode_batch(flat: Sequence[np.ndarray]) -> Any:
        texts, targets, *weights = tf.nest.pack_sequence_as(spec, list(flat))
        columns = [_to_list(column) for column in _columns(texts)]
        rows = columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
        sample_weight = weights[0] if weights else None
        encoded = examples(rows, list(targets), sample_weight, class_weight)
        return encoded.batch(range(len(encoded)), len(encoded))

    first = next(dataset.take(1).as_numpy_iterator(), None)
    if first is None:
        raise InputError(
            "A data set must have one or more batches",
            "an empty data set",
            "Check how it is made",
        )
    encoded_first = encode_batch(tf.nest.flatten(first))
    flat_first = tf.nest.flatten(encoded_first)
    dtypes = [array.dtype for array in flat_first]

    def encode_flat(*flat: np.ndarray) -> list[np.ndarray]:
        return tf.nest.flatten(encode_batch(flat))

    encode_weakly = weak_function(encode_flat)

    def tokenize(*batch: Any) -> Any:
        arrays = tf.numpy_function(encode_weakly, tf.nest.flatten(batch), dtypes)
        for array, first_array in zip(arrays, flat_first, strict=True):
            array.set_shape([None] * first_array.ndim)
        return tf.nest.pack_sequence_as(encoded_first, arrays)

    tokenized = dataset.map(tokenize)
    tokenized.owned_function = encode_flat
    return tokenized


def _to_list(column: Any) -> list[Any]:
    """Convert an array or a tensor to a list, and bytes to strings."""
    if isinstance(column, tf.RaggedTensor):
        column = column.to_list()
    if isinstance(column, tf.Tensor):
        column = column.numpy()
    if isinstance(column, np.ndarray):
        column = column.tolist()
    return [_decode(row, index) for index, row in enumerate(column)]


def _decode(row: Any, index: int) -> Any:
    if type(row) in (list, tuple):
        return type(row)(_decode(text, index) for text in row)
    if not isinstance(row, bytes):
        return row
    try:
        return row.decode()
    except UnicodeDecodeError as error:
        raise InputError(
            "Texts must be UTF-8",
            f"{row!r:.80} at index {index}: {error.reason}",
            "Decode them from their encoding, and pass strings",
        ) from error


def _check_element_spec(spec: Any) -> None:
    """Require (texts, targets) or (texts, targets, weights)."""
    is_tuple = isinstance(spec, tuple) and len(spec) in (2, 3)
    texts = spec[0] if is_tuple else None
    columns = _columns(texts)
    flat = tf.nest.flatten(spec)
    valid = len(columns) <= 2 and is_tuple and len(flat) == len(columns) + len(spec) - 1
    if not valid or any(
        getattr(column, "dtype", None) != tf.string or column.shape.rank != 1
        for column in columns
    ):
        raise _not_batched(spec)


def _not_batched(spec: Any) -> InputError:
    return InputError(
        "A data set of texts must have batches of (text, target), of ((text, "
        "text), target), or of either with weights, each text a string [B]",
        f"elements of {spec}",
        "Call its batch(), and map it to that structure",
    )
