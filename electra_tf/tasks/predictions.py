"""Write the predictions of a fine-tuned model as lines."""

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from electra_tf.errors import InputError
from electra_tf.tasks import registry
from electra_tf.tasks.data.files import print_note
from electra_tf.tasks.data.table import cell_text
from electra_tf.tasks.input_warnings import InputCounter
from electra_tf.tasks.score import ScoredSplit
from electra_tf.tasks.task import Item, Task
from electra_tf.tasks.text_model import TextModel

_CHUNK_ITEMS = 1024
_TABLES = ("csv", "tsv")
_END = "\r\n"  # of a line of CSV, before it is written


def predict_items(
    model: TextModel,
    items: Sequence[Item],
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
    predicted = _predicted(model, items, counter)
    if output_format in _TABLES:
        rows = (
            _beside(_cells(task, item), row)
            for index, item, details in predicted
            for row in task.rows(model, index, item, details, item.columns is None)
        )
        yield from _table(rows, output_format)
    for _, item, details in predicted:
        if output_format == "jsonl":
            record = task.record(model, item.value, details)
            candidates = record.pop("nbest", [])
            if nbest:
                record["nbest"] = candidates[:nbest]
            own = item.columns or {}
            if item.gold is not None:
                own = own or task.texts(item.value)
                record = {"gold": task.gold(item), **record}
            row = _beside(own, record)
            yield _escape(json.dumps(row, ensure_ascii=False, default=cell_text))
        else:
            line = task.line(model, item.value, details)
            with_id = [] if item.id is None else [" ".join(str(item.id).split())]
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
    model: TextModel,
    items: Sequence[Item],
    counter: InputCounter,
) -> Iterator[tuple[int, Item, Any]]:
    """Yield number, item and prediction of each input."""
    for first in range(0, len(items), _CHUNK_ITEMS):
        chunk = items[first : first + _CHUNK_ITEMS]
        values = [item.value for item in chunk]
        examples = model.examples(values)
        counter.add(examples)
        details = model.decode_details(values, examples, model.outputs_of(examples))
        for index, pair in enumerate(zip(chunk, details, strict=True), first):
            yield index, *pair


def _escape(line: str) -> str:
    """Write halves of surrogate pairs, which UTF-8 cannot encode, as in JSON."""
    return line.encode("utf-8", "backslashreplace").decode()


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
        return _escape("\t".join(" ".join(cell.split()) for cell in cells))
    buffer = io.StringIO(newline="")
    # Cells with a character of the terminator are put into quotes.
    csv.writer(buffer, lineterminator=_END).writerow(cells)
    return _escape(buffer.getvalue().removesuffix(_END))


def csv_lines(model: TextModel, splits: Mapping[str, ScoredSplit]) -> Iterator[str]:
    """Yield the lines of a CSV of labelled splits with their predictions.

    Columns are those of the table that the split is from, or the texts, then `gold`,
    `prediction`, the probabilities, `place` (FILE:LINE) if it is known, and `split` if
    there are several.
    """
    has_places = any(one.split.places for one in splits.values())

    def rows() -> Iterator[dict[str, Any]]:
        for name, one in splits.items():
            split, places = one.split, one.split.places
            columns = zip(split.items, split.targets, one.details, strict=True)
            for index, (value, gold, details) in enumerate(columns):
                row = split.table.row(index) if split.table else None
                item = Item(value, gold, row or getattr(value, "columns", None))
                more = {"split": name} if len(splits) > 1 else {}
                if has_places:
                    more["place"] = places[index] if places else ""
                for row in one.task.rows(model, index, item, details, True):
                    yield _beside(_cells(one.task, item), row | more)

    return _table(rows(), "csv")


def _cells(task: Task, item: Item) -> dict[str, str]:
    """Return the columns of an item, or its texts, as cells of a table."""
    own = task.texts(item.value) if item.columns is None else item.columns
    return {name: cell_text(value) for name, value in own.items()}


def _beside(own: Mapping[str, Any], added: Mapping[str, Any]) -> dict[str, Any]:
    """Return columns of the input with others after them.

    A column of the input with the name of another one is `input_NAME`.
    """
    names = {name: f"input_{name}" if name in added else name for name in own}
    return {names[name]: value for name, value in own.items()} | dict(added)
