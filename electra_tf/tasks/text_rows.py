"""Rows of a table as texts with a class, a set of classes, or a score."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from electra_tf.errors import InputError, format_list
from electra_tf.tasks.data import glue
from electra_tf.tasks.data.splits import Places, Split
from electra_tf.tasks.data.table import Table, cell_text
from electra_tf.tasks.labels import other_spelling, parse_list
from electra_tf.text.data_errors import DataErrorLog

UNBOUNDED = (-np.inf, np.inf)


class Columns(NamedTuple):
    """Columns of a table of texts, and the valid values of its target."""

    texts: Sequence[str]
    target: str
    labels: Sequence[str] | None
    """Classes; None: scores, or the classes are not known yet."""
    bounds: tuple[float, float] | None
    """Lowest and highest score; None: classes."""
    separator: str | None = None
    """Between the classes of a text, of any number; None: each text has one."""

    def parse_texts(self, cells: Sequence[Any]) -> tuple[Any, str, str]:
        """Return the texts of a row, and kind and detail of an error."""
        for name, cell in zip(self.texts, cells, strict=True):
            if cell is None:
                return None, "no text", f"without {name!r}"
            if isinstance(cell, list | dict):
                return None, "a nested value", f"{name!r} is {cell_text(cell):.60}"
        texts = tuple(map(cell_text, cells))
        return texts[0] if len(texts) == 1 else texts, "", ""

    def parse_target(self, cell: Any) -> tuple[Any, str, str]:
        """Return the target of a row, and kind and detail of an error."""
        if self.separator is not None:
            return self._label_set(cell)
        if isinstance(cell, list | dict):
            detail = f"{self.target!r} is {cell_text(cell):.60}"
            if self.bounds is None:
                detail += "; lists of classes need --label_separator"
            return None, "a nested value", detail
        text = cell_text(cell)
        parse = self._label if self.bounds is None else self._score
        value, kind, allowed = parse(text.strip())
        return value, kind, f"{self.target!r} is {text!r}{allowed}"

    def _label_set(self, cell: Any) -> tuple[tuple[str, ...], str, str]:
        """Return the classes of a row, none for an empty cell, and an error."""
        text, names = cell_text(cell), cell
        if isinstance(cell, str) or cell is None:
            names = parse_list(text)
        if names is None:
            names = text.split(self.separator)
        if isinstance(names, int | float):
            names = [text]
        if not isinstance(names, list) or any(type(n) not in (str, int) for n in names):
            return (), "a nested value", f"{self.target!r} is {text:.60}"
        names = tuple(dict.fromkeys(n for name in names if (n := str(name).strip())))
        for name in names:
            _, kind, allowed = self._label(name)
            if kind:
                return (), kind, f"{name!r} in {self.target!r}, {text!r:.60}{allowed}"
        return names, "", ""

    def _label(self, text: str) -> tuple[str, str, str]:
        if not text:
            return text, "no label", ""
        if self.labels is None or text in self.labels:
            return text, "", ""
        spelling = other_spelling(text, self.labels)
        known = f"{spelling}; known: {format_list(self.labels)}"
        return text, "an unknown label", known

    def _score(self, text: str) -> tuple[float, str, str]:
        try:
            score = float(text)
        except ValueError:
            return np.nan, "no number", ""
        if not np.isfinite(score):
            return score, "no finite number", ""
        if self.bounds[0] <= score <= self.bounds[1]:
            return score, "", ""
        allowed = f"; scores are from {self.bounds[0]:g} to {self.bounds[1]:g}"
        return score, "a score out of range", allowed


def glue_columns(task: glue.GlueTask) -> Columns:
    """Return the columns of a GLUE task, with its classes or its range of scores."""
    bounds = task.range if task.labels is None else None
    return Columns(task.texts, task.label, task.labels, bounds)


def read_texts(
    table: Table, columns: Columns, log: DataErrorLog, is_labelled: bool = True
) -> Split:
    """Return the texts and targets of the good rows of a table."""
    table.require((*columns.texts, *[columns.target] * is_labelled))
    texts = [table.columns[name] for name in columns.texts]
    cells = table.columns[columns.target] if is_labelled else None
    items, targets, good = [], [], []
    for index in range(len(table)):
        item, kind, detail = columns.parse_texts([column[index] for column in texts])
        target = None
        if not kind and is_labelled:
            target, kind, detail = columns.parse_target(cells[index])
        if kind:
            line = table.lines[index]
            log.add(table.source, line, kind, detail, "Correct that row")
            continue
        items.append(item)
        targets.append(target)
        good.append(table.lines[index])
    return usable_rows(table, items, targets if is_labelled else None, good)


def usable_rows(
    table: Table,
    items: Sequence[Any],
    targets: Sequence[Any] | None,
    lines: Sequence[int],
) -> Split:
    """Return the good rows of a table as a split; raise an error if there are none."""
    if not items:
        raise InputError(
            f"{table.source} must contain at least one usable row",
            f"{len(table)} rows, all of them bad",
            "Correct the rows that were reported, or name other columns",
        )
    return Split(items, targets, Places([table.source] * len(lines), lines))


def has_values(table: Table, column: str | None) -> bool:
    """Return whether a column has a value in a row or more."""
    return any(cell_text(v).strip() for v in table.columns.get(column, ()))
