"""Recognise texts in lists, arrays, tensors, data frames and data sets.

Lists of texts or pairs, and data sets of ids, are what the models are trained on.
"""

import itertools
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from electra_tf.errors import InputError
from electra_tf.kernels.weak_functions import weak_function
from electra_tf.tasks.examples import EncodedExamples
from electra_tf.text.encoding import to_array, to_list, to_rows

_Encode = Callable[[list, list, Any], EncodedExamples]
_REMEDY = "Pass a list of texts, or a tf.data.Dataset of batches of (texts, targets)"


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
    if isinstance(x, types.GeneratorType):
        first = list(itertools.islice(x, 1))
        for element in first:
            _reject_texts(element, x)
        return (element for element in itertools.chain(first, x))
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


def to_single_texts(x: Any, remedy: str = "Pass a list of strings") -> list[str]:
    """Return single texts, each a string, in a list."""
    rows = to_rows(check_input(x), pairs=False)
    for index, text in enumerate(rows):
        if not isinstance(text, str):
            raise InputError(
                "A text must be a string", f"{text!r:.80} at index {index}", remedy
            )
    return rows


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


def _reject_texts(element: Any, source: Any) -> None:
    if _has_texts(element):
        x = element[0] if isinstance(element, tuple) else element
        raise InputError(
            f"A {type(source).__name__} must yield batches of ids",
            f"the texts {x!r:.60}",
            _REMEDY,
        )


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
    """Return the texts or pairs of all batches, without targets and weights.

    `x` is a data set or a `PyDataset` of texts; other inputs are returned unchanged.
    """
    is_dataset = isinstance(x, tf.data.Dataset)
    is_batches = isinstance(x, keras.utils.PyDataset) and _has_texts(x[0])
    if not (is_text_dataset(x) if is_dataset else is_batches):
        return x
    count = int(x.cardinality()) if is_dataset else x.num_batches
    if count == tf.data.INFINITE_CARDINALITY:
        count = None
    if steps is None and count is None:
        raise InputError(
            "A data set to predict must have an end",
            f"an endless {type(x).__name__}",
            "Leave out its repeat(), or pass steps=COUNT",
        )
    if is_dataset:
        spec = _texts_of_batch(x.element_spec, are_pairs)
        if not all(_is_column(column, (1, 2)) for column in _columns(spec)):
            raise _not_batched(x.element_spec)
        batches = x if steps is None else x.take(steps)
    else:
        batches = (x[index] for index in range(min(steps or count, count or steps)))
    rows = []
    for batch in batches:
        rows += to_rows(to_array(_texts_of_batch(batch, are_pairs)))
    return rows


def _texts_of_batch(batch: Any, are_pairs: bool) -> Any:
    """Return the first component of a batch; also of one that is described by specs."""
    if not isinstance(batch, tuple):
        return batch
    is_pair = are_pairs and len(batch) == 2 and not isinstance(batch[0], tuple)
    return batch if is_pair else batch[0]


def tokenize_dataset(
    dataset: tf.data.Dataset, encode_rows: _Encode
) -> tuple[tf.data.Dataset, bool | None]:
    """Map batches of texts to batches of ids, each as long as its longest text.

    Batches are (texts, targets) or (texts, targets, weights); texts are strings [B], or
    a pair of such. Return batches of inputs, targets and weights; and whether the texts
    are pairs.
    """
    spec = dataset.element_spec
    _check_element_spec(spec)

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
        raise InputError(
            "A data set must have one or more batches",
            "an empty data set",
            "Check how it is made",
        )
    examples = encode(tf.nest.flatten(first))
    first_batch = examples.batch(range(len(examples)), len(examples))
    flat_first = tf.nest.flatten(first_batch)
    dtypes = [array.dtype for array in flat_first]
    encode_weakly = weak_function(encode_flat)

    def tokenize(*batch: Any) -> Any:
        arrays = tf.numpy_function(encode_weakly, tf.nest.flatten(batch), dtypes)
        for array, first_array in zip(arrays, flat_first, strict=True):
            array.set_shape([None] * first_array.ndim)
        return tf.nest.pack_sequence_as(first_batch, arrays)

    tokenized = dataset.map(tokenize)
    tokenized.owned_function = encode_flat
    return tokenized, examples.pairs


def _columns(texts: Any) -> tuple:
    return texts if isinstance(texts, tuple) else (texts,)


def _is_column(spec: Any, ranks: tuple[int, ...] = (1,)) -> bool:
    """Return whether a spec is that of strings [B], or [B, N] for rank 2."""
    return getattr(spec, "dtype", None) == tf.string and spec.shape.rank in ranks


def _check_element_spec(spec: Any) -> None:
    """Require (texts, targets) or (texts, targets, weights)."""
    is_tuple = isinstance(spec, tuple) and len(spec) in (2, 3)
    columns = _columns(spec[0]) if is_tuple else ()
    num_tensors = len(tf.nest.flatten(spec))
    valid = len(columns) in (1, 2) and num_tensors == len(columns) + len(spec) - 1
    if not valid or not all(map(_is_column, columns)):
        raise _not_batched(spec)


def _not_batched(spec: Any) -> InputError:
    return InputError(
        "A data set of texts must have batches of (text, target), of ((text, "
        "text), target), or of either with weights, each text a string [B]",
        f"elements of {spec}",
        "Call its batch(), and map it to that structure",
    )
