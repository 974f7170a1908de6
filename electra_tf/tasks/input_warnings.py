"""Warn of texts and targets that `fit`, `evaluate` and `predict` lose or learn badly.

The commands print lines of the same facts about files.
"""

import itertools
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from electra_tf.tasks.examples import EncodedExamples
from electra_tf.text.checks import UnknownCounter

EMPTY_LIMIT = 0.5
"""Share of texts without wordpieces above which there is a warning."""
_LEAST_ROWS = 10  # fewer rows are in the order of their labels by chance
_PACKAGES = ("electra_tf", "keras")


def warn(text: str) -> None:
    """Warn at the line of the user's code that called this package."""
    frame, level = sys._getframe(1), 2
    while frame.f_back and frame.f_globals.get("__name__", "").startswith(_PACKAGES):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, stacklevel=level)


class InputCounter:
    """Counter of the inputs of a model that are truncated, and of their [UNK]."""

    def __init__(self, model: Any, *examples: EncodedExamples):
        self._model, self._unknown = model, UnknownCounter(model.tokenizer)
        self._inputs = self._truncated = 0
        for one in examples:
            self.add(one)

    def add(self, examples: EncodedExamples) -> None:
        """Count examples."""
        self._unknown.add(examples.ids)
        self._inputs += examples.num_items
        self._truncated += examples.truncated

    def lines(self, name: str) -> list[str]:
        """Return a line about each of the two that occurs."""
        lines = self._unknown.lines(name)
        if self._truncated:
            lines.append(
                f"{name}: {self._truncated:,} of {self._inputs:,} inputs were "
                f"truncated to {_length_limit(self._model)}"
            )
        return lines


def _length_limit(model: Any) -> str:
    """Return the setting that truncates the inputs of a model; of questions alone."""
    data = model.settings.data
    if model.input_form != "windows":
        return f"data.max_length={data.max_length}"
    if data.query_limit < data.max_query_length:
        return f"half of data.max_length={data.max_length}"
    return f"data.max_query_length={data.max_query_length}"


def check_examples(model: Any, examples: EncodedExamples) -> None:
    """Warn of texts that were cut, and of many that are empty."""
    if examples.truncated:
        warn(
            f"{examples.truncated:,} of {examples.num_items:,} inputs were cut at "
            f"{_length_limit(model)}: the model does not read the rest"
        )
    frame = 3 if examples.pairs else 2  # [CLS] and [SEP]
    empty = np.count_nonzero(examples.ids.lengths <= frame)
    if empty > EMPTY_LIMIT * len(examples.ids):
        warn(
            f"{empty:,} of {len(examples.ids):,} texts are empty or have no wordpieces:"
            " check the column of the texts"
        )


def check_equal_texts(train: EncodedExamples, validation: EncodedExamples) -> None:
    """Warn of texts of `validation_split` that are trained on."""
    if count := validation.num_equal(train.hashes()):
        warn(
            f"{count:,} of the {validation.num_items:,} texts of validation_split are "
            "also among the texts to train on: scores of new texts may be lower. Leave "
            "out texts that repeat others, or pass validation_data"
        )


def check_order(model: Any, y: Any, shuffle: Any, share: float) -> None:
    """Warn of rows in the order of their labels that are not shuffled.

    `y` are targets in a list; `share` is `validation_split`.
    """
    if (shuffle and not share) or not _are_sorted(model, y):
        return
    rows = f"the {len(y):,} rows are in the order of their labels"
    if share:
        warn(
            f"{rows}, and validation_split={share} takes the last ones before fit "
            "shuffles the rest: shuffle texts and labels together first, or pass "
            "validation_data"
        )
    if not shuffle:
        warn(
            f"{rows}, and shuffle=False keeps it, so that most batches have one label: "
            "leave shuffle=False out, or shuffle texts and labels together first"
        )


def _are_sorted(model: Any, y: Sequence[Any]) -> bool:
    """Return whether scores rise or fall, or each class has one run of rows."""
    if len(y) < _LEAST_ROWS or model.input_form != "texts":
        return False
    if model.metric_kind == "scores":
        steps = np.diff(np.asarray(y, np.float64))
        return bool(steps.any() and ((steps >= 0).all() or (steps <= 0).all()))
    if model.metric_kind != "classes":
        return False
    keys = [tuple(np.ravel(v).tolist()) if np.ndim(v) else v for v in y]
    runs = 1 + sum(a != b for a, b in itertools.pairwise(keys))
    return 1 < runs == len(set(keys)) <= len(y) // 2
