"""Find labels and names that are probably mistakes: spellings, quotes, empty cells."""

import collections
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from electra_tf.errors import format_list

_NUMBER = re.compile(r"[+-]?\d+(?:\.\d*)?")
_EMPTY_VALUES = frozenset(
    ["nan", "null", "none", "na", "n/a", "<na>", "nat", "undefined", "#n/a"]
)


def fold(text: str) -> str:
    """Return a text without differences of case, spaces and Unicode form."""
    text = unicodedata.normalize("NFKC", text).casefold()
    visible = (c for c in text if unicodedata.category(c) != "Cf")
    return " ".join("".join(visible).split())


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
