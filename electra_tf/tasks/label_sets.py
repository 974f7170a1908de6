"""Sets of classes of texts, each class independent of the others."""

import collections
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from electra_tf.errors import InputError, format_list
from electra_tf.tasks.labels import other_spelling

THRESHOLD = 0.5
"""A text has the classes whose probabilities are above it."""
SEPARATOR = ";"
"""Between the names of a text's classes, if the training data had no separator."""
_NOT_A_SET = "its elements are not names of classes"


def multi_hot(targets: Sequence[Any], labels: Sequence[str]) -> np.ndarray:
    """Return a row of zeros and ones for each text, float32 [N, C].

    A target is the names of a text in any container, or already such a row.
    """
    ids = {label: number for number, label in enumerate(labels)}
    rows_NC = np.zeros((len(targets), len(labels)), np.float32)
    for index, target in enumerate(targets):
        columns, reason = _columns(target, ids)
        if reason:
            raise InputError(
                f"The classes of a text must be a list of {format_list(labels)}, or a "
                f"row of {len(labels)} zeros and ones",
                f"{target!r:.80} at index {index}: {reason}",
                "Correct it, or create the model with these labels; [] is a text of "
                "no class",
            )
        rows_NC[index, columns] = 1
    return rows_NC


def _columns(target: Any, ids: Mapping[str, int]) -> tuple[list[int], str]:
    """Return the columns of a text's classes, or why there are none."""
    if isinstance(target, str | bytes) or not hasattr(target, "__iter__"):
        return [], "not a list"
    elements = list(target)
    names = [e.decode("utf-8", "replace") if type(e) is bytes else e for e in elements]
    if all(isinstance(name, str) for name in names):
        for name in names:
            if name not in ids:
                return [], f"{name!r} is none of them{other_spelling(name, ids)}"
        return [ids[name] for name in names], ""
    if any(np.ndim(e) or np.asarray(e).dtype.kind not in "biuf" for e in elements):
        return [], _NOT_A_SET
    if len(elements) != len(ids) or not set(elements) <= {0, 1}:
        return [], f"numbers, but not {len(ids)} zeros and ones"
    return [column for column, value in enumerate(elements) if value], ""


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
            f"y of ids must have a row of {num_classes} zeros and ones for each text",
            f"the shape {list(np.shape(y))}",
            "Pass y of the shape [N, C], or texts with lists of names",
        )
