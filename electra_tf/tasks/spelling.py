"""Compare labels and names that differ only in case, spaces or Unicode form."""

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_NUMBER = re.compile(r"[+-]?\d+(?:\.\d*)?")


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
    folded = fold(name)
    for other in known:
        if other != name and fold(other) == folded:
            quoted, known_name = quote_names([name, other])
            return f"; {quoted} is another spelling of {known_name}"
    return ""


def several_spellings(counts: Mapping[str, int], names: str, rows: str) -> list[str]:
    """Find labels that are probably one number or one word in several spellings.

    Returns:
        A line for each number or word.
    """
    groups: dict[Any, list[str]] = {}
    for label in sorted(counts):
        number = _as_number(label)
        groups.setdefault(fold(label) if number is None else number, []).append(label)
    return [
        f"the {names} "
        + ", ".join(
            f"{quoted} ({counts[label]:,} {rows})"
            for label, quoted in zip(group[:10], quote_names(group)[:10], strict=True)
        )
        + " are different classes; they are probably one "
        + ("word" if isinstance(key, str) else "number")
        + " in several spellings: use one spelling"
        for key, group in groups.items()
        if len(group) > 1
    ]


def _as_number(label: str) -> float | None:
    return float(label) if _NUMBER.fullmatch(label) else None
