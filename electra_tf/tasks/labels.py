"""Names of classes: lists of them in cells of tables, and sets of them for a text."""

import ast
import collections
import contextlib
import json
import math
import numbers
import operator
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from electra_tf.errors import InputError, format_list, join_first
from electra_tf.untrusted_files import parse_json

THRESHOLD = 0.5  # a text has the classes whose probabilities are above it


_SURROGATES = re.compile("[\ud800-\udfff]")
_TWO_TEXTS = re.compile("['\"]\\s+['\"]")


SEPARATOR = ";"  # of names of classes, if the training data had none


def parse_list(cell: str) -> list[str] | None:
    """Return the elements of a list of strings or whole numbers; None: it is not one.

    A list is written as JSON or Python, also as a tuple or a set.
    """
    cell = cell.strip()
    if cell != "set()" and cell[:1] + cell[-1:] not in ("[]", "()", "{}"):
        return None
    try:
        values = parse_cell(cell)
    except ValueError:
        return None
    is_list = isinstance(values, list)
    if not is_list or any(type(value) not in (str, int) for value in values):
        return None
    return list(map(str, values))


def parse_cell(cell: str) -> Any:
    """Return a value that is written as JSON or by Python; ValueError: it is none.

    Tuples and sets are returned as lists.
    """
    try:
        return parse_json(cell)  # its escapes differ from those of Python
    except ValueError:
        if _TWO_TEXTS.search(cell):  # which Python would join
            raise
    try:
        value = ast.literal_eval(cell.strip())
        value = sorted(value, key=str) if isinstance(value, set) else value
        return json.loads(json.dumps(value))
    except (SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise ValueError(str(error)) from error


def is_like_list(cell: str) -> bool:
    """Return whether a cell has the brackets of a list, also of one that is broken."""
    cell = cell.strip()
    return cell[:1] == "[" or cell[:1] + cell[-1:] in ("()", "{}")


def quote_names(names: Sequence[str]) -> list[str]:
    """Return names in quotes, with escapes where two of them look the same."""
    forms = collections.Counter(unicodedata.normalize("NFC", name) for name in names)
    return [
        ascii(name) if forms[unicodedata.normalize("NFC", name)] > 1 else repr(name)
        for name in names
    ]


def unknown_name(name: str, known: Sequence[str]) -> str:
    """Describe a name that is not among the known ones."""
    quoted, *names = quote_names([name, *known])
    return f"{quoted}; known: {join_first(names)}"


def names_of(labels: Any, argument: str) -> tuple[str, ...]:
    """Return names of classes in the order of their indices.

    Args:
        labels: A sequence of names, or a dictionary of indices by name, or of names by
            index, which other libraries call `label2id` and `id2label`.
        argument: Name of the argument, for an error.
    """
    rule = f"{argument} must be a list of names in the order of their indices"
    if isinstance(labels, Mapping):
        return _names_of_mapping(labels, rule)
    is_ordered = not isinstance(labels, str | bytes | set | frozenset)
    if not is_ordered or not hasattr(labels, "__iter__") or hasattr(labels, "columns"):
        remedy = ", whose order is random; pass sorted(...)" * isinstance(labels, set)
        raise InputError(f"{rule}, not {labels!r:.80}{remedy}")
    names = []
    for index, name in enumerate(labels):
        is_wrong = is_missing(name) or isinstance(name, Mapping | set) or np.ndim(name)
        if is_wrong or (isinstance(name, str) and has_half_surrogate(name)):
            raise InputError(f"{rule}, and has {name!a:.80} at index {index}")
        names.append(name.decode() if isinstance(name, bytes) else str(name))
    return tuple(names)


def _names_of_mapping(labels: Mapping[Any, Any], rule: str) -> tuple[str, ...]:
    """Return the names of a dictionary from names to indices, or the other way."""
    pairs, argument = list(labels.items()), rule.partition(" ")[0]
    by_index = [(name, _value(str(index))) for index, name in pairs]
    readings = [
        names_of(names, argument)
        for names in map(_in_order, (pairs, by_index))
        if names is not None
    ]
    if not readings or readings[0] != readings[-1]:
        raise InputError(
            f"{rule}, or a dictionary of the indices from 0 to {len(pairs) - 1} by name"
            f" or of names by index, not {labels!r:.200}"
        )
    return readings[0]


def _in_order(pairs: Sequence[tuple[Any, Any]]) -> tuple[Any, ...] | None:
    """Return names in the order of their indices; None: not each index once."""
    indices = [index for _, index in pairs]
    are_integers = all(isinstance(i, numbers.Integral) for i in indices)
    if not are_integers or sorted(indices) != list(range(len(pairs))):
        return None
    return tuple(name for name, _ in sorted(pairs, key=operator.itemgetter(1)))


def has_half_surrogate(name: str) -> bool:
    """Return whether a name cannot be written as UTF-8."""
    return bool(_SURROGATES.search(name))


def is_missing(value: Any) -> bool:
    """Return whether a value is None, NaN, or a missing value of pandas."""
    is_nan = isinstance(value, numbers.Real) and value != value
    return value is None or is_nan or type(value).__name__ in ("NAType", "NaTType")


def in_order_of(labels: Sequence[str], y: Any) -> Any:
    """Return a frame with a column for each class as an array in the classes' order.

    Other targets, and frames whose columns are not named, are returned unchanged.
    """
    given = getattr(y, "column_names", getattr(y, "columns", ()))  # pyarrow, pandas
    columns = [str(column) for column in given]
    if not labels or len(columns) < 2:
        return y
    is_numbered = columns == [str(number) for number in range(len(labels))]
    are_names = sorted(columns) == sorted(labels)
    if is_numbered and (not are_names or columns == list(labels)):
        return y
    if is_numbered or not are_names:
        raise InputError(
            f"The columns of y must be named as the classes, {format_list(labels)}, not"
            f" {format_list(columns)}; pass y.to_numpy() if its columns are in the "
            "order of the classes"
        )
    ordered = (y[given[columns.index(label)]] for label in labels)
    return np.column_stack([np.asarray(column) for column in ordered])


class LabelIds:
    """Ids of names of classes or tags, which are written as names or as numbers.

    A number is the value of a name that is a number, True or False; otherwise an id.
    """

    def __init__(self, names: Sequence[str]):
        self._ids: dict[str, int] = {name: index for index, name in enumerate(names)}
        self._of_value: dict[float, int | None] = {}
        for index, value in enumerate(map(_value, names)):
            if value is not None:  # two names may have one value, such as 1 and 1.0
                is_known = value in self._of_value
                self._of_value[value] = None if is_known else index
        self.are_numbers = bool(self._of_value)
        """True if at least one name is a number."""
        if not self.are_numbers:
            self._of_value = {index: index for index in self._ids.values()}
            self._ids |= {str(index): index for index in self._of_value}

    def __call__(self, label: Any) -> int | None:
        """Return the id of a name or a number; None: it is none of them."""
        if isinstance(label, bytes):
            label = label.decode("utf-8", "replace")
        if isinstance(label, str):
            return self._ids.get(str(label))
        value = np.asarray(label)
        is_number = value.dtype.kind in "biuf" and not value.ndim
        return self._of_value.get(value.item()) if is_number else None


def _value(label: str) -> float | None:
    if label in ("True", "False"):
        return label == "True"
    with contextlib.suppress(ValueError):
        return int(label)
    with contextlib.suppress(ValueError):
        return value if math.isfinite(value := float(label)) else None
    return None


def multi_hot(targets: Sequence[Any], labels: Sequence[str]) -> np.ndarray:
    """Return a row of zeros and ones for each list of names or row, float32 [N, C]."""
    ids = {label: number for number, label in enumerate(labels)}
    rows_NC = np.zeros((len(targets), len(labels)), np.float32)
    for index, target in enumerate(targets):
        try:
            rows_NC[index, _hot_columns(target, ids)] = 1
        except ValueError as error:
            raise InputError(
                f"the classes of a text must be a list of {format_list(labels)}, [] "
                f"for none, or a row of {len(labels)} zeros and ones, not "
                f"{target!r:.80} at index {index}: {error}"
            ) from error
    return rows_NC


def _hot_columns(target: Any, ids: Mapping[str, int]) -> list[int]:
    """Return the columns of a text's classes."""
    is_text = isinstance(target, str | bytes | Mapping)
    if is_text or not hasattr(target, "__iter__"):
        raise ValueError("not a list")
    elements = [
        e.decode("utf-8", "replace") if type(e) is bytes else e for e in list(target)
    ]
    if all(isinstance(name, str) for name in elements):
        if unknown := [name for name in elements if name not in ids]:
            raise ValueError(unknown_name(unknown[0], list(ids)))
        return [ids[name] for name in elements]
    if any(np.ndim(e) or np.asarray(e).dtype.kind not in "biuf" for e in elements):
        raise ValueError("its elements are not names of classes")
    if len(elements) != len(ids) or not set(elements) <= {0, 1}:
        raise ValueError(f"numbers, but not {len(ids)} zeros and ones")
    return [column for column, value in enumerate(elements) if value]


def label_sets(
    probabilities_NC: np.ndarray, labels: Sequence[str]
) -> list[tuple[str, ...]]:
    """Return the names of the classes above the threshold, of each text."""
    return [
        tuple(label for label, p in zip(labels, row, strict=True) if p > THRESHOLD)
        for row in probabilities_NC
    ]


def rarest_labels(targets: Sequence[Sequence[str]]) -> list[str]:
    """Return the rarest class of each text, "" for none: strata of a random split."""
    counts = collections.Counter(name for names in targets for name in names)
    return [min(names, key=lambda n: (counts[n], n), default="") for names in targets]


def check_rows(y: Any, num_classes: int) -> None:
    """Raise an error unless the targets of ids have the shape [N, C]."""
    if np.ndim(y) != 2 or np.shape(y)[1] != num_classes:
        raise InputError(
            f"y of ids must have a row of {num_classes} zeros and ones for each text, "
            f"not the shape {list(np.shape(y))}"
        )
