"""A split with the predictions of a model, scored by its task."""

import dataclasses
import functools
import heapq
from collections.abc import Sequence
from typing import Any, NamedTuple

from electra_tf.tasks.class_report import ClassReport
from electra_tf.tasks.data.splits import Split

_MAX_MISTAKES = 30


class Mistake(NamedTuple):
    """A wrong prediction."""

    text: str
    gold: str
    predicted: str
    size: float  # value of `measure`, by which mistakes are compared
    measure: str = "probability"


@dataclasses.dataclass(frozen=True)
class ScoredSplit:
    """A split with what a model predicts for it; a labelled one has scores."""

    task: Any  # the `Task` of the model
    model: Any
    split: Split
    details: Sequence[Any]  # outputs of the model's `predict_details`
    metrics: Sequence[str]  # names of scores; the first one compares trials
    bounds: tuple[float, float] = (-float("inf"), float("inf"))
    """Lowest and highest score that is predicted."""

    @functools.cached_property
    def predictions(self) -> Sequence[Any]:
        """Labels, scores, lists of tags, or answers, of which files are written."""
        return self.task.predictions(self)

    @functools.cached_property
    def scores(self) -> dict[str, float]:
        """Scores by name; the first one compares trials."""
        return self.task.scores(self)

    @property
    def classes(self) -> ClassReport | None:
        """Scores of each class and confusions; None: there are no classes."""
        return self.task.class_report(self)

    @property
    def mistakes(self) -> list[Mistake]:
        """Those that the model was most sure of, the worst first."""
        found = self.task.mistakes(self)
        return heapq.nlargest(_MAX_MISTAKES, found, key=lambda one: one.size)

    @property
    def degenerate(self) -> str | None:
        """Description of degenerate predictions, such as a constant, or None."""
        return self.task.degenerate(self)
