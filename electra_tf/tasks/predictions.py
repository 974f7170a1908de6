"""Write the predictions of a fine-tuned model as lines."""

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from electra_tf.errors import InputError
from electra_tf.tasks import registry
from electra_tf.tasks.data.files import print_note
from electra_tf.tasks.data.splits import Split
from electra_tf.tasks.data.table import cell_text, json_text, one_line, utf8
from electra_tf.tasks.input_warnings import InputCounter
from electra_tf.tasks.score import ScoredSplit
from electra_tf.tasks.task import Task
from electra_tf.tasks.text_model import TextModel

_CHUNK_ITEMS = 1024
_TABLES = ("csv", "tsv")
_END = "\r\n"  # of a line of CSV, before it is written


def predict_items(
    model: TextModel,
    split: Split,
    output_format: str = "text",
    nbest: int | None = None,
    log: Callable[[str], None] = print_note,
) -> Iterator[str]:
    """Yield the lines of predictions, computed for chunks of 1024 items.

    A table and JSON objects have the columns of the input, or its texts and `gold`,
    then those of the predictions. If the items have ids, a line of text begins with the
    id and a tab.
    """
    task = registry.of(model)
    _check_nbest(model, task.has_nbest, output_format, nbest)
    counter = InputCounter(model)
    predicted = _predicted(model, split, counter)
    if output_format in _TABLES:
        rows = _rows(model, split, predicted, has_gold=split.table is None)
        yield from _table((row for _, row in rows), output_format)
    for index, details in predicted:
        item, own = split.items[index], _own_columns(task, split, index)
        if output_format == "jsonl":
            record = task.record(model, item, details)
            candidates = record.pop("nbest", [])
            if nbest:
                record["nbest"] = candidates[:nbest]
            if (target := split.target(index)) is not None:
                record = {"gold": task.gold(item, target), **record}
            yield json_text(_beside(own, record))
        else:
            line = task.line(model, item, details)
            with_id = [] if own.get("id") is None else [one_line(own["id"])]
            yield "\t".join([*with_id, line])
    for line in counter.lines("input"):
        log(line)


def _check_nbest(
    model: TextModel, has_nbest: bool, output_format: str, nbest: int | None
) -> None:
    if nbest is None:
        return
    if not has_nbest or output_format != "jsonl":
        raise InputError(
            "--nbest must be used with a QuestionAnswerer and --format=jsonl, not with "
            f"a {type(model).__name__} and --format={output_format}"
        )
    if nbest > (most := model.settings.model.n_best):
        raise InputError(
            f"--nbest must be at most {most}, the model's model.n_best, not {nbest}"
        )


def _predicted(
    model: TextModel, split: Split, counter: InputCounter
) -> Iterator[tuple[int, Any]]:
    """Yield number and prediction of each input."""
    for first in range(0, len(split), _CHUNK_ITEMS):
        items = split.items[first : first + _CHUNK_ITEMS]
        examples = model.examples(items)
        counter.add(examples)
        details = model.decode_details(items, examples, model.outputs_of(examples))
        yield from enumerate(details, first)


def _table(rows: Iterable[Mapping[str, Any]], form: str) -> Iterator[str]:
    """Yield the lines of a table, whose header is that of the first row."""
    names: list[str] | None = None
    for row in rows:
        if names is None:
            names = list(row)
            yield _table_line(names, form)
        yield _table_line([row.get(name) for name in names], form)


def _table_line(cells: Sequence[Any], form: str) -> str:
    cells = [str(c) if isinstance(c, float) else cell_text(c) for c in cells]
    if form == "tsv":  # without quotes, so without tabs and line breaks
        return utf8("\t".join(" ".join(cell.split()) for cell in cells))
    buffer = io.StringIO(newline="")
    # Cells with a character of the terminator are put into quotes.
    csv.writer(buffer, lineterminator=_END).writerow(cells)
    return utf8(buffer.getvalue().removesuffix(_END))


def csv_lines(model: TextModel, splits: Mapping[str, ScoredSplit]) -> Iterator[str]:
    """Yield the lines of a CSV of labelled splits with their predictions.

    Columns are those of the table that the split is from, or the texts, then `gold`,
    `prediction`, the probabilities, `place` (FILE:LINE) if it is known, and `split` if
    there are several.
    """
    has_places = any(one.split.places for one in splits.values())

    def rows() -> Iterator[dict[str, Any]]:
        for name, one in splits.items():
            places, more = one.split.places, {"split": name} if len(splits) > 1 else {}
            for index, row in _rows(model, one.split, enumerate(one.details), True):
                if has_places:
                    more["place"] = places[index] if places else ""
                yield _beside(row, more)

    return _table(rows(), "csv")


def _rows(
    model: TextModel,
    split: Split,
    predicted: Iterable[tuple[int, Any]],
    has_gold: bool,
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the number of an item, and a row of a table with its own columns first."""
    task = registry.of(model)
    for index, details in predicted:
        own = _own_columns(task, split, index)
        own = {name: cell_text(value) for name, value in own.items()}
        target = split.target(index) if has_gold else None
        for row in task.rows(model, index, split.items[index], details, target):
            yield index, _beside(own, row)


def _own_columns(task: Task, split: Split, index: int) -> Mapping[str, Any]:
    """Return the columns of an item in its file, or its texts."""
    if split.table is None:
        return task.texts(split.items[index])
    return split.table.row(index)


def _beside(own: Mapping[str, Any], added: Mapping[str, Any]) -> dict[str, Any]:
    """Return columns of the input with others after them.

    A column of the input with the name of another one is `input_NAME`.
    """
    names = {name: f"input_{name}" if name in added else name for name in own}
    return {names[name]: value for name, value in own.items()} | dict(added)
