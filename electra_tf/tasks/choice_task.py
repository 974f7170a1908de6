"""Multiple choice in files: SWAG, RACE, CommonsenseQA, and columns of other names."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from electra_tf.config.finetuning import DataConfig, FinetuningConfig
from electra_tf.errors import InputError, format_list
from electra_tf.sources import PretrainedEncoder
from electra_tf.tasks.choice_classifier import ChoiceClassifier, Choices, as_choices
from electra_tf.tasks.data.files import Notify
from electra_tf.tasks.data.held_out import with_dev
from electra_tf.tasks.data.splits import Split, find_splits
from electra_tf.tasks.data.table import (
    Table,
    cell_text,
    read,
    without_collections,
)
from electra_tf.tasks.task import LabelTask
from electra_tf.tasks.task_data import Labelled, Reading, TaskData

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


class ChoiceTask(LabelTask):
    """Rows of a text, a question and choices, in published layouts or named columns.

    Columns are those of SWAG (`sent1`, `sent2`, `ending0`, ..., `label`), RACE
    (`article`, `question`, `options`, `answer`) and CommonsenseQA (`question`,
    `choices`, `answerKey`). Others are named: `text_columns` are those of context and
    question, or of one text, and `choice_columns` one for each choice, or one of lists.
    Without `choice_columns`, the columns of choices follow those of the texts.
    """

    models = (ChoiceClassifier,)
    columns = ("text_columns", "choice_columns", "label_column")

    def training_data(self, name: str, data: str, reading: Reading) -> TaskData:
        """Read tables; without a dev file rows are held out."""
        splits = _read_splits(find_splits(data, is_training=True), reading)
        columns = _columns(splits["train"].table, reading.settings)
        splits = with_dev(splits, name, "rows", reading)
        count = len(splits["train"].items[0].choices)
        model = functools.partial(_new_model, columns, count)
        return TaskData(name, splits, ("accuracy",), model)

    def reading(
        self,
        model: ChoiceClassifier,
        name: str | None,
        flags: Mapping[str, Any],
        notify: Notify,
        known: Sequence[str] = (),
    ) -> Reading:
        """Return how files are read: each in its own layout after published ones."""
        reading = super().reading(model, name, flags, notify, known)
        columns, stored = ("text_columns", "choice_columns"), model.settings.data
        names = *stored.text_columns, *stored.choice_columns
        if not any(names[: len(layout)] == layout for layout in _LAYOUTS):
            return reading
        unnamed = {column: () for column in columns if column not in reading.given}
        settings = dataclasses.replace(reading.settings, **unnamed)
        return dataclasses.replace(reading, settings=settings)

    def labelled_data(
        self, model: ChoiceClassifier, name: str | None, data: str, reading: Reading
    ) -> Labelled:
        """Read a table, or dev and test of a folder, with the right choices."""
        splits = _read_splits(find_splits(data, is_training=False), reading)
        splits = {n: split for n, split in splits.items() if split.targets is not None}
        return Labelled(name or "choice", splits, ("accuracy",))

    def inputs(
        self, model: ChoiceClassifier, path: str | None, reading: Reading
    ) -> Split:
        """Read texts with their choices."""
        table = read(path)
        split = _read_choices(table, reading, is_labelled=False)
        as_choices(split.items[0], model.num_choices)  # all have its number of choices
        label = _label(table, reading.settings)
        return dataclasses.replace(split, targets=table.columns.get(label))

    def labels(self, model: ChoiceClassifier) -> Sequence[str]:
        """Return the numbers of the choices."""
        return list(map(str, range(model.num_choices)))

    def record(
        self, model: ChoiceClassifier, item: Choices, details: Any
    ) -> dict[str, Any]:
        """Return number and text of the best choice, and the probabilities."""
        best = int(np.argmax(details))
        text, probabilities = item.choices[best], list(map(float, details))
        return {"choice": best, "text": text, "probabilities": probabilities}


def _new_model(
    columns: tuple[Sequence[str], Sequence[str]],
    count: int,
    start: PretrainedEncoder,
    settings: FinetuningConfig,
    seed: int,
) -> ChoiceClassifier:
    """Return a model of a number of choices, which stores the columns of its data."""
    names = dict(
        zip(("text_columns", "choice_columns"), map(tuple, columns), strict=True)
    )
    data = dataclasses.replace(settings.data, **names)
    settings = dataclasses.replace(settings, data=data)
    return ChoiceClassifier(start, count, settings, seed)


# Tables.

_LAYOUTS = (
    ("sent1", "sent2", "ending0"),
    ("article", "question", "options"),
    ("context", "question", "choices"),
    ("question", "choices"),
)
_TARGETS = ("label", "answer", "answerKey")


def _read_splits(files: Mapping[str, str], reading: Reading) -> dict[str, Split]:
    """Return the splits; a test file may have no right choices."""
    splits = {}
    for split, path in files.items():
        table = read(path, notify=reading.notify)
        label = _label(table, reading.settings)
        is_labelled = split != "test" or table.has_values(label)
        splits[split] = _read_choices(table, reading, is_labelled)
    return _resolve(splits)


class _Readings(NamedTuple):
    """Meanings of a label; None where it has no such meaning."""

    position: int | None  # as a number from 0 or a letter
    text: int | None  # as the text of a choice


def _resolve(splits: Mapping[str, Split]) -> dict[str, Split]:
    """Return splits whose targets are numbers of choices, read by one rule for all.

    Labels are positions where all are, and texts where all are; those that are both
    are an error unless their meanings agree.
    """
    labels = [label for split in splits.values() for label in split.targets or ()]
    only_texts = any(label.position is None for label in labels)
    only_positions = any(label.text is None for label in labels)
    resolved = {}
    for name, split in splits.items():
        targets = split.targets and []
        for index, (position, text) in enumerate(split.targets or ()):
            meanings = {position, text} - {None}
            if only_texts != only_positions:
                meanings = {text if only_texts else position}
            if len(meanings) > 1:
                choices = split.items[index].choices
                raise split.table.error(
                    index,
                    "an ambiguous label",
                    f"it is the number or letter of the choice {choices[position]!r} "
                    f"and the text of the choice {choices[text]!r}",
                    "write numbers from 0, letters (A, B, ...) or texts, whichever "
                    "cannot be mistaken for another choice",
                )
            targets.append(str(meanings.pop()))
        resolved[name] = dataclasses.replace(split, targets=targets)
    return resolved


@without_collections()
def _read_choices(table: Table, reading: Reading, is_labelled: bool) -> Split:
    """Return the texts with choices of a table, and the readings of their labels."""
    names, choices = _columns(table, reading.settings)
    label = _label(table, reading.settings)
    if is_labelled and label is None:
        raise InputError(
            f"{table.source} must have a column of the right choice, and has "
            f"{format_list(table.columns, 30)}; name it with --label_column"
        )
    items, targets, count = [], [] if is_labelled else None, len(names)
    columns = [table.columns[name] for name in (*names, *choices)]
    for index, cells in enumerate(zip(*columns, strict=True)):
        try:
            item = _item(cells[:count], cells[count:])
            items.append(item)
            if len(item.choices) != (most := len(items[0].choices)):
                raise ValueError(f"{len(item.choices)} choices, not {most}")
            if is_labelled:
                value = table.columns[label][index]
                targets.append(_target(label, value, item.choices, cells[-1]))
        except ValueError as error:
            raise table.error(index, "no choices", str(error)) from error
    return Split(items, targets, table)


def _label(table: Table, settings: DataConfig) -> str | None:
    """Return the column of the right choice; None: the table has none."""
    names = [settings.label_column] if settings.label_column else _TARGETS
    return next((name for name in names if name in table.columns), None)


def _columns(table: Table, settings: DataConfig) -> tuple[list[str], list[str]]:
    """Return the columns of context and question, or of one text, and of choices."""
    names, choices = list(settings.text_columns), list(settings.choice_columns)
    if choices:
        if len(names) not in (1, 2) or not set(names).isdisjoint(choices):
            raise InputError(
                "--choice_columns must be used with one or two other --text_columns, "
                "TEXT or CONTEXT,QUESTION. Received: "
                f"--text_columns={','.join(names)} --choice_columns={','.join(choices)}"
            )
        table.require([*names, *choices])
        return names, choices
    known = [names for names in _LAYOUTS if set(names) <= table.columns.keys()]
    names = names or list(next(iter(known), ()))
    if names and names[-1].endswith("0"):  # ending0, ending1, ...
        stem, number = names[-1][:-1], 1
        while f"{stem}{number}" in table.columns:
            names.append(f"{stem}{number}")
            number += 1
    if len(names) < 2 or not set(names) <= table.columns.keys():
        raise InputError(
            f"{table.source} must have the columns of SWAG, RACE or CommonsenseQA, or "
            "those of --text_columns=CONTEXT,QUESTION --choice_columns=A,B, and has "
            f"{format_list(table.columns, 30)}"
        )
    count = 1 if len(names) == 2 else 2
    names, choices = names[:count], names[count:]
    if _follows(choices[0], names[-1]):
        both = ",".join([*names[1:], *choices])
        raise InputError(
            "--text_columns must name context and question before choices, and "
            f"{names[-1]!r} looks like a choice. Received: "
            f"--text_columns={names[0]},{both}. Pass --text_columns={names[0]} "
            f"--choice_columns={both}"
        )
    return names, choices


def _follows(name: str, earlier: str) -> bool:
    """Return whether names differ in a last letter or digit that is the next one."""
    ends = ord(name[-1:] or "\0"), ord(earlier[-1:] or "\0")
    return name[:-1] == earlier[:-1] and ends[0] == ends[1] + 1


def _item(texts: Sequence[Any], cells: Sequence[Any]) -> Choices:
    """Return the item of a row; ValueError: there is none."""
    choices = cells
    if len(cells) == 1:
        [choices] = cells
        if isinstance(choices, dict):  # CommonsenseQA: {"label": [...], "text": [...]}
            choices = choices.get("text")
        if not isinstance(choices, list):
            raise ValueError(
                f"{cells[0]!r:.60} must be a list; or name --choice_columns=A,B,..."
            )
        choices = [c.get("text") if isinstance(c, dict) else c for c in choices]
    cells = [*texts, *choices]
    if any(isinstance(cell, list | dict) or cell is None for cell in cells):
        raise ValueError(f"{cells!r:.60} must be texts")
    if len(choices) < 2:
        raise ValueError(f"{choices!r:.60} must be two choices or more")
    text, *question = map(cell_text, texts)
    return Choices(text, tuple(map(cell_text, choices)), "".join(question))


def _target(name: str, value: Any, choices: Sequence[str], cell: Any) -> _Readings:
    """Return what the label of a row means; ValueError: no choice."""
    text = cell_text(value).strip()
    names = cell.get("label") if isinstance(cell, dict) else None
    if isinstance(cell, list):
        names = [one.get("label") for one in cell if isinstance(one, dict)]
    names = list(map(cell_text, names)) if isinstance(names, list) else []
    if text and text in names[: len(choices)]:
        return _Readings(names.index(text), names.index(text))
    number = int(text) if text.isdecimal() else len(choices)
    if len(text) == 1 and text in _LETTERS:
        number = _LETTERS.index(text)
    position = number if number < len(choices) else None
    readings = _Readings(position, choices.index(text) if text in choices else None)
    if readings == (None, None):
        raise ValueError(f"{name!r} is {value!r:.60}, no choice")
    return readings
