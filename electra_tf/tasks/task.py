"""Tasks: columns of files to a model, and its outputs to columns.

A task reads labelled data to train or to score on, reads inputs to predict for, and
converts predictions to lines, records and columns. Models know none of these.
"""

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from electra_tf.config.finetuning import DataConfig
from electra_tf.errors import InputError, format_list
from electra_tf.tasks.data.conll import COLUMN_SUFFIXES
from electra_tf.tasks.data.files import Notify
from electra_tf.tasks.data.splits import Split, texts_of
from electra_tf.tasks.data.table import Table, cell_text, read
from electra_tf.tasks.score import Scorer
from electra_tf.tasks.task_data import Reading, TaskData
from electra_tf.text.data_errors import DataErrorLog
from electra_tf.text.files import inner_suffix

if TYPE_CHECKING:
    from electra_tf.tasks.text_model import TextModel

ID = "id"
"""Column of the id of a record."""
READABLE = "The input must be readable"
LINE_OF_PAIR = ("text", "text_b")


@dataclasses.dataclass(frozen=True, slots=True)
class Item:
    """Input of a model, with the columns of its row."""

    value: Any
    """An element of the argument `x` of `model.examples`."""
    gold: Any = None
    """Label, score, tags or answers in the file; None: it has none."""
    columns: Mapping[str, Any] | None = None
    """Values of its row by column; None: it was a line."""

    @property
    def id(self) -> Any:
        """Id of the record; None: it has none."""
        return (self.columns or {}).get(ID)


@dataclasses.dataclass(frozen=True)
class Labelled:
    """Labelled data to score a model on."""

    name: str
    """Name of the task."""
    splits: Mapping[str, Split]
    scorer: Scorer


class Task:
    """Declaration of a kind of model, with defaults for one text or pair as input."""

    models: tuple[type["TextModel"], ...] = ()
    """Classes of its models."""
    columns: tuple[str, ...] = ()
    """Settings of `DataConfig` that name columns of its files."""

    # Data.

    def columns_of(self, name: str) -> tuple[str, ...]:
        """Return the settings of columns that a value of --task has."""
        return self.columns

    def training_data(self, name: str, data: str, reading: Reading) -> TaskData:
        """Read training data and labelled data of a task, with its model."""
        raise InputError(
            "A task to train with finetune must read files",
            f"--task={name}, which {type(self).__name__} does not read",
            "Train its model in Python",
        )

    def labelled_data(
        self,
        model: "TextModel",
        name: str | None,
        data: str,
        given: Mapping[str, Any],
        notify: Notify,
    ) -> Labelled:
        """Read a labelled file, or dev and test of a folder, for a trained model.

        `name` is that of the task the model was trained on; `given` settings of columns
        replace the model's.
        """
        raise InputError(
            "A model to evaluate must be one of the models of this package",
            f"a {type(model).__name__} of kind {model.kind!r}",
            "Score its predictions in Python",
        )

    def score_file(
        self, name: str, data: str, predictions: str, more: str | None, notify: Notify
    ) -> dict[str, Any]:
        """Score a file of predictions of any system by the official metrics."""
        raise InputError(
            "The task of --predictions must have official metrics",
            f"--task={name}",
            "Score the predictions in Python",
        )

    def stored_columns(self, name: str | None, model: "TextModel") -> DataConfig:
        """Return settings with the columns that a model was trained with."""
        return model.settings.data

    def inputs(
        self,
        model: "TextModel",
        path: str | None,
        columns: Sequence[str] | None = None,
        stored: DataConfig | None = None,
    ) -> list[Item]:
        """Read what a model is to predict for: lines, or columns of a table.

        `columns` are those of the texts; without them those that it was trained with.
        """
        if path and inner_suffix(path) in COLUMN_SUFFIXES:
            raise InputError(
                "Columns of words must be the input of a TokenClassifier",
                f"{path} for a {type(model).__name__}",
                "Write texts, one on each line of a .txt file",
            )
        table = read(path, DataErrorLog("stop", "", READABLE))
        return self._items(model, table, columns, stored or DataConfig())

    def _items(
        self,
        model: "TextModel",
        table: Table,
        columns: Sequence[str] | None,
        settings: DataConfig,
    ) -> list[Item]:
        """Return the rows of a table as inputs."""
        names = self._text_columns(model, table, columns, settings)
        items = []
        for index, row in enumerate(table.rows()):
            place = table.place(index)
            value = self.parse(model, _texts(row, names, place), place)
            items.append(Item(value, row.get(settings.label_column), row))
        return items

    def _text_columns(
        self,
        model: "TextModel",
        table: Table,
        given: Sequence[str] | None,
        stored: DataConfig,
    ) -> tuple[str, ...]:
        """Return the columns of the texts: given, of training, or usual ones."""
        usual = [("text",), LINE_OF_PAIR]
        if model.pairs is not None:
            usual = [usual[model.pairs]]
        sizes = sorted({len(names) for names in usual})
        if given and len(given) not in sizes:
            raise InputError(
                f"--text_columns must name {sizes[0]} column{'s' * (sizes[0] > 1)} for "
                f"this {type(model).__name__}",
                f"--text_columns={','.join(given)}",
                "Name a column for each text of the model",
            )
        choices = [tuple(stored.text_columns)] * bool(stored.text_columns)
        choices = [tuple(given)] if given else [*choices, *usual[::-1]]
        found = [names for names in choices if set(names) <= table.columns.keys()]
        if not found and "text" in table.columns and not given:
            return ("text",)  # lines of text
        if not found:
            raise InputError(
                f"The input must have the columns {' and '.join(choices[0])}",
                f"{table.source} with {format_list(list(table.columns), 30)}",
                "Name the columns of its texts with --text_columns; a file of texts "
                "without names of columns must not end with .csv or .tsv",
            )
        return found[0]

    def parse(self, model: "TextModel", texts: tuple[str, ...], place: str) -> Any:
        """Return the texts of a row as an element of `x`; a tab separates a pair."""
        if len(texts) == 1 and model.pairs is not False:
            parts = tuple(texts[0].split("\t"))
            if model.pairs and len(parts) != 2:
                raise InputError(
                    "A line must be two texts separated by a tab, as the model takes "
                    "pairs",
                    f"{place}, with {len(parts)}",
                    "Correct the line, or write JSON objects with text and text_b",
                )
            texts = parts if len(parts) == 2 else texts
        return texts[0] if len(texts) == 1 else texts

    # Predictions.

    def max_nbest(self, model: "TextModel") -> int:
        """Return the number of candidates of each prediction."""
        return 0

    def line(self, model: "TextModel", item: Any, prediction: Any) -> str:
        """Return a prediction of `predict_details` as one line."""
        return str(prediction)

    def record(
        self, model: "TextModel", item: Any, prediction: Any, nbest: int | None = None
    ) -> Any:
        """Return a prediction as JSON."""
        return {"prediction": self.line(model, item, prediction)}

    def cells(self, model: "TextModel", prediction: Any) -> dict[str, Any]:
        """Return a prediction by column, which a table of the inputs is given."""
        return {"prediction": self.line(model, None, prediction)}

    def text_cells(self, item: Any) -> dict[str, str]:
        """Return the texts of an item by column."""
        texts = texts_of(item)
        return dict(zip(("text", "text_b")[: len(texts)], texts, strict=True))

    def gold_cell(self, model: "TextModel", item: Any, gold: Any) -> Any:
        """Return a target as one cell."""
        return gold

    def rows(
        self,
        model: "TextModel",
        index: int,
        item: Any,
        prediction: Any,
        gold: Any = None,
        columns: Mapping[str, Any] | None = None,
    ) -> list[dict[str, Any]]:
        """Return the rows of a table for an item, the prediction at their end.

        `columns`: those of its row in a file; without them its texts, and `gold`.
        """
        if columns is None:
            columns = self.text_cells(item)
            if gold is not None:
                columns |= {"gold": self.gold_cell(model, item, gold)}
        cells = self.cells(model, prediction)
        if both := columns.keys() & cells.keys():
            raise InputError(
                "The columns of the input must have other names than those of the "
                "predictions",
                format_list(sorted(both)),
                "Rename them in the input, or pass --format=jsonl",
            )
        return [{**columns, **cells}]


def _texts(row: Mapping[str, Any], names: Sequence[str], place: str) -> tuple[str, ...]:
    """Return the texts of a row; that of a line alone may be a pair."""
    cells = [row[name] for name in names]
    if names == LINE_OF_PAIR and cells[1] is None:
        cells.pop()
    if any(cell is None or isinstance(cell, list | dict) for cell in cells):
        raise InputError(
            f"A record must have {' and '.join(names)}, each a text",
            f"{place}: {json.dumps(row, ensure_ascii=False, default=str):.80}",
            "Correct the record, or name its columns with --text_columns",
        )
    return tuple(map(cell_text, cells))


def probability_cells(
    names: Iterable[str], probabilities: Sequence[float]
) -> dict[str, float]:
    """Return the probability of each class or tag by column of a table."""
    pairs = zip(names, map(float, probabilities), strict=True)
    return {f"probability_{name}": round(value, 6) for name, value in pairs}
