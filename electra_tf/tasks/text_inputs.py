"""Recognise texts in lists, arrays, tensors, data frames and data sets."""

import itertools
import numbers
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from electra_tf.errors import InputError
from electra_tf.kernels.weak_functions import weak_function
from electra_tf.tasks.examples import EncodedExamples
from electra_tf.text.encoding import to_array, to_list, to_rows


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


def check_input(x: Any) -> Any:
    """Return an input for `is_texts` and Keras; reject generators of texts."""
    refused = isinstance(x, set | frozenset)
    if isinstance(x, types.GeneratorType):
        first = list(itertools.islice(x, 1))
        refused, generator = any(map(_has_texts, first)), x
        x = (element for element in itertools.chain(first, generator))
    elif isinstance(x, keras.utils.PyDataset):
        refused = _has_texts(x[0])
    elif isinstance(x, Iterator) and not isinstance(x, tf.data.Iterator):
        refused = True
    if refused:
        raise InputError(
            f"Texts cannot be read from a {type(x).__name__}: pass a list of texts, "
            "such as list(x), or a tf.data.Dataset of batches of (texts, targets)"
        )
    if isinstance(x, list) and x and isinstance(x[0], numbers.Number):
        raise InputError(f"Texts must be strings, not {x[0]!r:.40} at index 0")
    return x if isinstance(x, Mapping) else to_array(x)  # ids


def to_single_texts(x: Any, remedy: str = "pass a list of strings") -> list[str]:
    """Return single texts, each a string, in a list."""
    rows = to_rows(check_input(x), pairs=False)
    for index, text in enumerate(rows):
        if not isinstance(text, str):
            raise InputError(
                f"A text must be a string, not {text!r:.80} at index {index}; {remedy}"
            )
    return rows


def _has_texts(element: Any) -> bool:
    """Return whether an element of a generator or `PyDataset` has texts."""
    x = element[0] if isinstance(element, tuple) and element else element
    while isinstance(x, list | tuple) and x:
        x = x[0]
    is_array_of_texts = not isinstance(x, list | tuple) and is_texts(x)
    return isinstance(x, str | bytes) or is_array_of_texts


def is_text_dataset(dataset: tf.data.Dataset) -> bool:
    """Return whether the first component of a data set's elements is strings."""
    return tf.nest.flatten(dataset.element_spec)[0].dtype == tf.string


def rows_of_batches(x: Any, steps: int | None, are_pairs: bool) -> Any:
    """Return the texts of a data set or `PyDataset` alone, other inputs unchanged."""
    is_dataset = isinstance(x, tf.data.Dataset)
    is_batches = isinstance(x, keras.utils.PyDataset) and _has_texts(x[0])
    if not (is_text_dataset(x) if is_dataset else is_batches):
        return x

    def texts_of(batch: Any) -> Any:
        if not isinstance(batch, tuple):
            return batch
        is_pair = are_pairs and len(batch) == 2 and not isinstance(batch[0], tuple)
        return batch if is_pair else batch[0]

    count = int(x.cardinality()) if is_dataset else x.num_batches
    if steps is None and count in (None, tf.data.INFINITE_CARDINALITY):
        raise InputError(
            f"An endless {type(x).__name__} cannot be predicted; leave out its "
            "repeat(), or pass steps=COUNT"
        )
    if is_dataset:
        columns = _columns(texts_of(x.element_spec))
        if not all(_is_strings(column, (1, 2)) for column in columns):
            raise _not_batched(x.element_spec)
        batches = x if steps is None else x.take(steps)
    else:
        batches = (x[index] for index in range(min(steps or count, count or steps)))
    return [row for batch in batches for row in to_rows(to_array(texts_of(batch)))]


def tokenize_dataset(
    dataset: tf.data.Dataset, encode_rows: Callable[[list, list, Any], EncodedExamples]
) -> tuple[tf.data.Dataset, bool | None]:
    """Map batches of texts to batches of ids, each as long as its longest text.

    Batches are (texts, targets) or (texts, targets, weights); texts are strings [B], or
    a pair of such. Return the data set, and whether the texts are pairs.
    """
    spec = dataset.element_spec
    is_tuple = isinstance(spec, tuple) and len(spec) in (2, 3)
    columns = _columns(spec[0]) if is_tuple else ()
    count = len(tf.nest.flatten(spec))
    is_flat = len(columns) in (1, 2) and count == len(columns) + len(spec) - 1
    if not is_flat or not all(map(_is_strings, columns)):
        raise _not_batched(spec)

    def encode(flat: Sequence[np.ndarray]) -> EncodedExamples:
        texts, targets, *weights = tf.nest.pack_sequence_as(spec, list(flat))
        columns = [to_list(column) for column in _columns(texts)]
        rows = columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
        return encode_rows(rows, list(targets), weights[0] if weights else None)

    def encode_flat(*flat: np.ndarray) -> list[np.ndarray]:
        encoded = encode(flat)
        return tf.nest.flatten(encoded.batch(range(len(encoded)), len(encoded)))

    first = next(dataset.take(1).as_numpy_iterator(), None)
    if first is None:
        raise InputError("An empty data set cannot be used; check how it is made")
    examples = encode(tf.nest.flatten(first))
    first_batch = examples.batch(range(len(examples)), len(examples))
    flat_first = tf.nest.flatten(first_batch)
    encode_weakly = weak_function(encode_flat)

    def tokenize(*batch: Any) -> Any:
        dtypes = [array.dtype for array in flat_first]
        arrays = tf.numpy_function(encode_weakly, tf.nest.flatten(batch), dtypes)
        for array, first_array in zip(arrays, flat_first, strict=True):
            array.set_shape([None] * first_array.ndim)
        return tf.nest.pack_sequence_as(first_batch, arrays)

    tokenized = dataset.map(tokenize)
    tokenized.owned_function = encode_flat
    return tokenized, examples.pairs


def _columns(texts: Any) -> tuple:
    return texts if isinstance(texts, tuple) else (texts,)


def _is_strings(spec: Any, ranks: Sequence[int] = (1,)) -> bool:
    """Return whether a spec is that of strings [B], or [B, N] for rank 2."""
    return getattr(spec, "dtype", None) == tf.string and spec.shape.rank in ranks


def _not_batched(spec: Any) -> InputError:
    return InputError(
        "A data set of texts must have batches of (text, target), of ((text, text), "
        f"target), or of either with weights, each text a string [B], not {spec}; call "
        "its batch(), and map it to that structure"
    )
