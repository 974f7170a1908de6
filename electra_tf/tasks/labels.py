"""Names of classes: probable mistakes among them, and sets of them for a text."""

import ast
import collections
import itertools
import json
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from electra_tf.errors import InputError, format_list

_NUMBER = re.compile(r"[+-]?\d+(?:\.\d*)?")
_EMPTY_VALUES = frozenset(
    ["nan", "null", "none", "na", "n/a", "<na>", "nat", "undefined", "#n/a"]
)
THRESHOLD = 0.5
"""A text has the classes whose probabilities are above it."""
SEPARATOR = ";"
"""Between the names of a text's classes, if the training data had no separator."""
_ELEMENT = re.compile(
    r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|(?<![\w.])[+-]?\d+(?![\w.])"""
)
_BRACKETS = ("[]", "()", "{}")
_NOT_A_SET = "its elements are not names of classes"


def fold(text: str) -> str:
    """Return a text without differences of case, spaces and Unicode form."""
    text = unicodedata.normalize("NFKC", text).casefold()
    visible = (c for c in text if unicodedata.category(c) != "Cf")
    return " ".join("".join(visible).split())


def parse_list(cell: str) -> list[str] | None:
    """Return the elements of a list of strings or whole numbers; None: it is not one.

    A list is written as JSON, Python (also a tuple or a set) or NumPy, which has no
    commas: `["a", "b"]`, `('a',)`, `{'a'}`, `['a' 'b']`.
    """
    cell = cell.strip()
    if cell == "set()":
        return []
    if cell[:1] + cell[-1:] not in _BRACKETS or cell == "{}":
        return None
    try:
        values = json.loads(cell)  # its escapes differ from those of Python
    except (ValueError, RecursionError):
        values = _python_list(cell)
    if values is None or any(type(value) not in (str, int) for value in values):
        return None
    return list(map(str, values))


def _python_list(cell: str) -> list[Any] | None:
    """Return the elements of a list as Python or NumPy write it; None: not a list."""
    inner = cell[1:-1]
    elements = list(_ELEMENT.finditer(inner))
    ends = itertools.pairwise(
        [0, *(end for e in elements for end in e.span()), len(inner)]
    )
    gaps = [inner[start:end] for start, end in itertools.islice(ends, 0, None, 2)]
    first, *between, last = [gap.strip() for gap in [*gaps, *[""] * (not elements)]]
    if first or last not in ("", ",") or set(between) not in (set(), {","}, {""}):
        return None
    if "" in gaps[1:-1] or (cell[0] == "(" and len(elements) == 1 and not last):
        return None
    try:
        return [ast.literal_eval(element[0]) for element in elements]
    except (ValueError, SyntaxError):
        return None


def quote_names(names: Sequence[str]) -> list[str]:
    """Return names in quotes, with escapes where two of them look the same."""
    forms = [unicodedata.normalize("NFC", name) for name in names]
    return [
        ascii(name) if forms.count(form) > 1 else repr(name)
        for name, form in zip(names, forms, strict=True)
    ]


def other_spelling(name: str, known: Iterable[str]) -> str:
    """Describe a known name that `name` is another spelling of; empty: none."""
    for other in known:
        if other != name and fold(other) == fold(name):
            quoted, known_name = quote_names([name, other])
            return f"; {quoted} is another spelling of {known_name}"
    return ""


def several_spellings(counts: Mapping[str, int], names: str, rows: str) -> list[str]:
    """Return a line for each number or word that several labels spell."""
    groups: dict[Any, list[str]] = {}
    for label in sorted(counts):
        key = float(label) if _NUMBER.fullmatch(label) else fold(label)
        groups.setdefault(key, []).append(label)
    lines = []
    for key, group in groups.items():
        pairs = list(zip(group, quote_names(group), strict=True))[:10]
        words = ", ".join(f"{name} ({counts[label]:,} {rows})" for label, name in pairs)
        kind = "word" if isinstance(key, str) else "number"
        if len(group) > 1:
            lines.append(
                f"the {names} {words} are different classes; they are probably one "
                f"{kind} in several spellings: use one spelling"
            )
    return lines


def suspicious_labels(values: Sequence[str]) -> list[str]:
    """Return a line for each kind of mistake among the labels of a table."""
    counts = collections.Counter(value.strip() for value in values if value.strip())
    lines = [
        f"the label {label!r} ({counts[label]:,} rows) is a separate class; it is "
        "probably an empty cell, as pandas writes one: delete or label these rows"
        for label in sorted(counts)
        if label.casefold() in _EMPTY_VALUES
    ]
    lines += several_spellings(counts, "labels", "rows")
    if quoted := [label for label in sorted(counts) if label[0] == label[-1] == '"']:
        lines.append(
            f"the labels {format_list(quoted)} contain quotes, which are part of the "
            "label: remove the quotes"
        )
    if spaced := [v for v in values if v.strip() and v != v.strip()]:
        lines.append(
            f"{len(spaced):,} labels have spaces around them, such as {spaced[0]!r}; "
            f"they were read without spaces, as {spaced[0].strip()!r}"
        )
    return lines


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
