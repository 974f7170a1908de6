"""Columns of a table of texts, and of their classes or scores."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from electra_tf.tasks import labels as label_names
from electra_tf.tasks.data.splits import Split
from electra_tf.tasks.data.table import Table, cell_text


@dataclasses.dataclass(frozen=True)
class Columns:
    """Columns of a table of texts, and the valid values of its target."""

    texts: Sequence[str]
    target: str
    labels: Sequence[str] | None  # classes; None: scores, or not known yet
    bounds: tuple[float, float] | None = None  # lowest and highest score; None: classes
    separator: str | None = None  # of a text's classes; None: it has one class

    def read(self, table: Table, is_labelled: bool = True) -> Split:
        """Return the texts and targets of a table."""
        table.require((*self.texts, *[self.target] * is_labelled))
        columns = list(map(table.plain_texts, self.texts))
        items = columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
        targets = self._targets(table) if is_labelled else None
        return Split(items, targets, table)

    def _targets(self, table: Table) -> list[Any]:
        """Return the targets of a table; each different text is parsed once."""
        cells = table.columns[self.target]
        texts = list(map(cell_text, cells))
        has_lists = self.separator is not None and any(
            label_names.parse_list(text) is not None for text in set(texts)
        )
        parsed: dict[str, Any] = {}
        for index, (cell, text) in enumerate(zip(cells, texts, strict=True)):
            if text in parsed:
                continue
            try:
                parsed[text] = self._parse(cell, text, has_lists)
            except ValueError as error:
                kind, detail = error.args
                detail = f"{self.target!r} is {detail}"
                raise table.error(index, kind, detail) from error
        return [parsed[text] for text in texts]

    def _parse(self, cell: Any, text: str, has_lists: bool) -> Any:
        """Return the target of a cell; ValueError: the kind and detail of an error.

        With `has_lists`, a cell of the column is a list, so that a cell which only
        begins like one is an error and no name.
        """
        names = None if self.separator is None else label_names.parse_list(text)
        if isinstance(cell, list | dict) and names is None:
            detail = ", no class or list of names of classes" * (self.bounds is None)
            raise ValueError("a nested value", text[:60] + detail)
        if self.bounds is not None:
            return self._score(text)
        if self.separator is None:
            return self._known(text.strip(), text)
        if names is None and has_lists and label_names.is_like_list(text):
            raise ValueError("a broken list", f"{text!r:.60}; write it as ['a', 'b']")
        names = text.split(self.separator) if names is None else names
        names = filter(None, map(str.strip, names))
        return tuple(self._known(name, text) for name in dict.fromkeys(names))

    def _known(self, name: str, text: str) -> str:
        """Return a name of a cell's text, if it can be that of a class."""
        if not name:
            raise ValueError("no label", repr(text))
        if label_names.has_half_surrogate(name):
            raise ValueError("half of a surrogate pair", ascii(name))
        if self.labels is not None and name not in self.labels:
            detail = label_names.unknown_name(name, self.labels)
            detail += f", in {text!r:.60}" * (self.separator is not None)
            raise ValueError("an unknown label", detail)
        return name

    def _score(self, text: str) -> float:
        try:
            score = float(text)
        except ValueError:
            raise ValueError("no number", repr(text)) from None
        if not np.isfinite(score):
            raise ValueError("no finite number", repr(text))
        low, high = self.bounds
        if not low <= score <= high:
            detail = f"{text!r}; scores are from {low:g} to {high:g}"
            raise ValueError("a score out of range", detail)
        return score
