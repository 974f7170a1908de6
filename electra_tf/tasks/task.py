"""Tasks: columns of files to a model, and its outputs to columns.

A task reads labelled data to train or to score on, reads inputs to predict for,
converts predictions to records, and scores them. Models know none of these.
"""

import dataclasses
import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from electra_tf.config.finetuning import DataConfig
from electra_tf.errors import InputError, format_list
from electra_tf.tasks import metrics
from electra_tf.tasks.class_report import ClassReport, class_report
from electra_tf.tasks.data.conll import COLUMN_SUFFIXES
from electra_tf.tasks.data.files import Notify
from electra_tf.tasks.data.splits import Split, texts_of
from electra_tf.tasks.data.table import Table, one_line, read
from electra_tf.tasks.score import Mistake, ScoredSplit
from electra_tf.tasks.task_data import Labelled, Reading
from electra_tf.tasks.text_data import complete_table
from electra_tf.text.files import inner_suffix
from electra_tf.text.rows import READERS

if TYPE_CHECKING:
    from electra_tf.tasks.text_model import TextModel

LINE_OF_PAIR = ("text", "text_b")
_LEAST_FOR_CHANCE = 50  # rows; with fewer a useful model may have no correlation


class Task:
    """Declaration of a kind of model, with defaults for one text or pair as input.

    This class is the task of models of a user's own classes, which only predict. A task
    that is scored adds `labelled_data`, `scores(scored)`, which returns scores by name,
    first the one that compares trials, and `write(scored, path)`, which writes
    predictions to files named `path` plus a suffix. A task of `finetune --task` adds
    `training_data(name, data, reading)`, which returns a `TaskData`.
    """

    models: tuple[type["TextModel"], ...] = ()  # classes of its models
    columns: tuple[str, ...] = ("missing_text",)  # settings of its files' columns
    published: ClassVar[Mapping[str, Mapping[str, int]]] = {}
    """Epochs and max_length of the original by value of --task."""

    # Data.

    def decision_settings(self, model: "TextModel") -> dict[str, float]:
        """Return what decides between predictions, such as a threshold, by name."""
        return {}

    def labelled_data(
        self, model: "TextModel", name: str | None, data: str, reading: Reading
    ) -> Labelled:
        """Read a file, or dev and test of a folder, for a model of a task's name."""
        kind = type(model).__name__
        raise InputError(f"a {kind} is scored in Python, as it is a class of your own")

    def reading(
        self,
        model: "TextModel",
        name: str | None,
        flags: Mapping[str, Any],
        notify: Notify,
        known: Sequence[str] = (),
    ) -> Reading:
        """Return how files are read for a model: as in training, apart from flags."""
        given = {
            flag: tuple(value) if isinstance(value, list) else value
            for flag, value in flags.items()
            if value
        }
        known = (*self.columns, *known)
        if wrong := [f"--{flag}" for flag in given if flag not in known]:
            kind = type(model).__name__
            raise InputError(f"{', '.join(wrong)} has no effect on a {kind}")
        settings = dataclasses.replace(self.stored_columns(name, model), **given)
        return Reading(settings, notify, model.tokenizer, given)

    def stored_columns(self, name: str | None, model: "TextModel") -> DataConfig:
        """Return settings with the columns that a model was trained with."""
        return model.settings.data

    def inputs(self, model: "TextModel", path: str | None, reading: Reading) -> Split:
        """Read what to predict for: lines, or columns, given or those of training."""
        if path and inner_suffix(path) in COLUMN_SUFFIXES:
            raise InputError(
                f"{path} must be texts for a {type(model).__name__}, one on each line "
                "of a .txt, and not columns of words"
            )
        table = read(path)
        names = self._text_columns(model, table, reading)
        if inner_suffix(table.source) in READERS:  # a line may be empty
            first = names[:1] if names == LINE_OF_PAIR else names
            table = complete_table(table, first, reading)
        second = LINE_OF_PAIR[1] if names == LINE_OF_PAIR else None
        columns = [table.plain_texts(n, may_lack=n == second) for n in names]
        rows = enumerate(zip(*columns, strict=True))
        items = [self._input(model, table, index, texts) for index, texts in rows]
        return Split(items, table.columns.get(reading.settings.label_column), table)

    def _text_columns(
        self, model: "TextModel", table: Table, reading: Reading
    ) -> tuple[str, ...]:
        """Return the columns of the texts: given, of training, or usual ones."""
        names, given = reading.settings.text_columns, "text_columns" in reading.given
        usual = [LINE_OF_PAIR, ("text",)]
        if model.pairs is not None:
            usual = usual[:1] if model.pairs else usual[1:]
        if given:
            check_count(names, list(map(len, usual)), model)
        choices = list(filter(None, [names, *([] if given else usual)]))
        for names in choices:
            if set(names) <= table.columns.keys():
                return names
        if "text" in table.columns and not given:
            return ("text",)  # lines of text
        raise InputError(
            f"{table.source} must have the columns {' and '.join(choices[0])}, and has "
            f"{format_list(table.columns, 30)}; name others with --text_columns"
        )

    def _input(
        self, model: "TextModel", table: Table, index: int, texts: Sequence[Any]
    ) -> str | tuple[str, ...]:
        """Return the text or the pair of a row, which a line has with a tab between."""
        texts = [text for text in texts if text is not None]
        if len(texts) == 1 and model.pairs is not False:
            parts = texts[0].split("\t")
            if model.pairs and len(parts) != 2:
                raise InputError(
                    f"{table.place(index)}: a line must be two texts with a tab "
                    f"between them, not {len(parts)}, as the model takes pairs; or an "
                    "object with text and text_b"
                )
            texts = parts if len(parts) == 2 else texts
        return texts[0] if len(texts) == 1 else tuple(texts)

    # Predictions.

    has_nbest = False  # whether records have candidates of an answer, as `nbest`

    def record(self, model: "TextModel", item: Any, details: Any) -> dict[str, Any]:
        """Return a prediction of `predict_details` as JSON, the prediction first."""
        return {"prediction": str(details)}

    def texts(self, item: Any) -> dict[str, str]:
        """Return the texts of an item by column."""
        return dict(zip(LINE_OF_PAIR, texts_of(item), strict=False))

    def gold(self, item: Any, target: Any) -> Any:
        """Return the target of an item as JSON."""
        return target

    def cell(self, model: "TextModel", value: Any) -> Any:
        """Return a prediction or a target as one cell of a table."""
        return f"{value:.7g}" if isinstance(value, float) else value

    def line(self, model: "TextModel", item: Any, details: Any) -> str:
        """Return a prediction as one line."""
        first = next(iter(self.record(model, item, details).values()))
        return one_line(self.cell(model, first))

    def cells(self, model: "TextModel", record: Mapping[str, Any]) -> dict[str, Any]:
        """Return a record by column, which a table of the inputs is given."""
        found = record.get("probabilities", {})
        names = found if isinstance(found, Mapping) else range(len(found))
        values = found.values() if isinstance(found, Mapping) else found
        prediction = self.cell(model, next(iter(record.values())))
        return {"prediction": prediction, **probability_cells(names, values)}

    def rows(
        self, model: "TextModel", index: int, item: Any, details: Any, target: Any
    ) -> list[dict[str, Any]]:
        """Return the rows of a table for an item; one without a target has no gold."""
        cells = self.cells(model, self.record(model, item, details))
        if target is not None:
            cells = {"gold": self.cell(model, self.gold(item, target)), **cells}
        return [cells]

    # Scores.

    def predictions(self, scored: ScoredSplit) -> Sequence[Any]:
        """Return what is scored and written of the outputs of `predict_details`."""
        return scored.details

    def class_report(self, scored: ScoredSplit) -> ClassReport | None:
        """Return the scores of each class and the confusions; None: no classes."""
        return None

    def mistakes(self, scored: ScoredSplit) -> Iterable[Mistake]:
        """Return all mistakes."""
        return ()

    def degenerate(self, scored: ScoredSplit) -> str | None:
        """Describe predictions of a degenerate model, such as a constant; else None."""
        return None

    def tune(self, scored: ScoredSplit) -> None:
        """Set what decides between a model's predictions to its best value on dev."""


class LabelTask(Task):
    """A label or a number for each input, scored by the metrics that the data names."""

    measure = "probability"  # what the sizes of mistakes are

    def labels(self, model: "TextModel") -> Sequence[str]:
        """Return the labels in the order of their probabilities."""
        return model.output_names

    def predictions(self, scored: ScoredSplit) -> Sequence[Any]:
        """Return the best label of each input."""
        labels = self.labels(scored.model)
        return [labels[number] for number in np.argmax(scored.details, -1)]

    def sides(self, scored: ScoredSplit) -> list[np.ndarray]:
        """Return targets and predictions as numbers."""
        ids = {label: number for number, label in enumerate(self.labels(scored.model))}
        sides = scored.split.targets, scored.predictions
        return [np.array([ids[label] for label in side]) for side in sides]

    def scores(self, scored: ScoredSplit) -> dict[str, float]:
        """Compute the metrics of the data."""
        sides = self.sides(scored)
        return {name: metrics.METRICS[name](*sides) for name in scored.metrics}

    def class_report(self, scored: ScoredSplit) -> ClassReport | None:
        """Return the scores of each class and the confusions."""
        sides = scored.split.targets, scored.predictions
        return class_report(*sides, self.labels(scored.model))

    def mistakes(self, scored: ScoredSplit) -> Iterable[Mistake]:
        """Yield wrong predictions, with their sizes."""
        gold_N, predicted_N = self.sides(scored)
        sizes, items, model = self.sizes(scored), scored.split.items, scored.model
        wrong = gold_N != predicted_N  # [N] or, for sets of classes, [N, C]
        for index in np.flatnonzero(wrong.any(axis=tuple(range(1, wrong.ndim)))):
            values = scored.split.targets[index], scored.predictions[index]
            cells = (self.cell(model, value) for value in values)
            text, size = " | ".join(texts_of(items[index])), float(sizes[index])
            yield Mistake(text, *cells, size, self.measure)

    def sizes(self, scored: ScoredSplit) -> np.ndarray:
        """Return what mistakes are sorted by: the probabilities of labels."""
        return np.max(scored.details, -1)

    def degenerate(self, scored: ScoredSplit) -> str | None:
        """Describe labels that are constant, or as good as chance."""
        targets = scored.split.targets
        found = metrics.describe_degenerate(scored.predictions, targets)
        if found or len(targets) < _LEAST_FOR_CHANCE or len(set(targets)) == 1:
            return found
        mcc = metrics.METRICS["mcc"](*self.sides(scored))
        return f"is no better than chance (mcc {mcc:.2f})" if mcc <= 0 else None

    def write(self, scored: ScoredSplit, path: str) -> None:
        """Write `PATH.tsv` in GLUE's format, with the source of each row if known."""
        cells = [self.cell(scored.model, one) for one in scored.predictions]
        columns = [["index", *range(len(cells))], ["prediction", *cells]]
        if places := scored.split.places:
            columns.append(["place", *places])
        rows = ("\t".join(map(str, row)) for row in zip(*columns, strict=True))
        write_lines(f"{path}.tsv", rows)


def float_scores(values: Mapping[str, Any], first: Sequence[str]) -> dict[str, float]:
    """Return the scores among values, without counts, those named `first` before."""
    ordered = {name: values[name] for name in (*first, *values)}
    return {name: v for name, v in ordered.items() if isinstance(v, float)}


def write_lines(path: str | os.PathLike, lines: Iterable[str]) -> None:
    """Write a text file."""
    text = "".join(f"{line}\n" for line in lines)
    pathlib.Path(path).write_text(text, encoding="utf-8")


def check_count(names: Sequence[str], counts: list[int], model: "TextModel") -> None:
    """Raise an error for columns that are more or fewer than the texts of a model."""
    if len(names) not in counts:
        raise InputError(
            f"--text_columns must name {' or '.join(map(str, counts))} columns for "
            f"this {type(model).__name__}, and is {','.join(names)}"
        )


def probability_cells(
    names: Iterable[Any], probabilities: Iterable[float]
) -> dict[str, float]:
    """Return the probability of each class or tag by column of a table."""
    pairs = zip(names, map(float, probabilities), strict=True)
    return {f"probability_{name}": round(value, 6) for name, value in pairs}
