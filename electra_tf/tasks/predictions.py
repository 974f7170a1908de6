"""Write the predictions of a fine-tuned model as lines."""

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from electra_tf.errors import InputError
from electra_tf.tasks import registry
from electra_tf.tasks.data.files import print_note
from electra_tf.tasks.data.table import cell_text
from electra_tf.text.warnings import UnknownCounter

if TYPE_CHECKING:  # `predict` needs the formats before TensorFlow
    from electra_tf.tasks.score import ScoredSplit
    from electra_tf.tasks.task import Item
    from electra_tf.tasks.text_model import TextModel

OUTPUT_FORMATS = ("text", "jsonl", "tsv", "csv")
_CHUNK_ITEMS = 1024
_END = "\r\n"  # of a line of CSV, before it is written


def predict_items(
    model: "TextModel",
    items: Sequence["Item"],
    output_format: str = "text",
    nbest: int | None = None,
    log: Callable[[str], None] = print_note,
) -> Iterator[str]:
    """Yield the lines of predictions, computed for chunks of 1024 items.

    A table has the columns of the input, then those of the predictions. If the items
    have ids, a line of text begins with the id and a tab, and a JSON object has `id`;
    of labelled items it also has the texts and `gold`.
    """
    task = registry.of(model)
    _check_nbest(model, task.max_nbest(model), output_format, nbest)
    unknown, table = UnknownCounter(model.tokenizer), _Table(output_format)
    for first in range(0, len(items), _CHUNK_ITEMS):
        chunk = items[first : first + _CHUNK_ITEMS]
        predicted = zip(chunk, _details(model, chunk, log, unknown), strict=True)
        for index, (item, details) in enumerate(predicted, first):
            if output_format in _Table.SEPARATORS:
                yield from table.lines(task.rows(model, index, item, details))
            elif output_format == "jsonl":
                record = task.record(model, item.value, details, nbest)
                if item.gold is not None and isinstance(record, dict):
                    gold = {"gold": item.gold}
                    record = {**task.text_cells(item.value), **gold, **record}
                if item.id is not None and isinstance(record, dict):
                    record = {"id": item.id, **record}
                yield _escape(json.dumps(record, ensure_ascii=False))
            else:
                line = task.line(model, item.value, details)
                with_id = [] if item.id is None else [" ".join(str(item.id).split())]
                yield "\t".join([*with_id, line])
    for line in unknown.lines("input"):
        log(line)


def _check_nbest(
    model: "TextModel", most: int, output_format: str, nbest: int | None
) -> None:
    if nbest is None:
        return
    if not most or output_format != "jsonl":
        raise InputError(
            "--nbest must be used with a QuestionAnswerer and --format=jsonl, not with "
            f"a {type(model).__name__} and --format={output_format}"
        )
    if nbest > most:
        raise InputError(
            f"--nbest must be at most {most}, the model's model.n_best, not {nbest}"
        )


def _details(
    model: "TextModel",
    items: Sequence["Item"],
    log: Callable[[str], None],
    unknown: UnknownCounter,
) -> Sequence[Any]:
    values = [item.value for item in items]
    examples = model.examples(values)
    unknown.add(examples.ids)
    if examples.truncated:
        log(
            f"{examples.truncated:,} of {len(items):,} inputs were truncated to the "
            f"{model.settings.data.max_length} positions of training"
        )
    return model.decode_details(values, examples, model.outputs_of(examples))


def _escape(line: str) -> str:
    """Write halves of surrogate pairs, which UTF-8 cannot encode, as in JSON."""
    return line.encode("utf-8", "backslashreplace").decode()


class _Table:
    """Lines of a table, with a header from the first row."""

    SEPARATORS: Mapping[str, str] = {"csv": ",", "tsv": "\t"}

    def __init__(self, form: str):
        self._form, self._names = form, None

    def lines(self, rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
        """Yield the lines of more rows, which have the columns of the first one."""
        for row in rows:
            if self._names is None:
                self._names = list(row)
                yield self._line(self._names)
            yield self._line([row.get(name) for name in self._names])

    def _line(self, cells: Sequence[Any]) -> str:
        cells = [str(c) if isinstance(c, float | bool) else cell_text(c) for c in cells]
        if self._form == "tsv":  # without quotes, so without tabs and line breaks
            return _escape("\t".join(" ".join(cell.split()) for cell in cells))
        buffer = io.StringIO(newline="")
        # Cells with a character of the terminator are put into quotes.
        csv.writer(buffer, lineterminator=_END).writerow(cells)
        return _escape(buffer.getvalue().removesuffix(_END))


def csv_lines(model: "TextModel", splits: Mapping[str, "ScoredSplit"]) -> Iterator[str]:
    """Yield the lines of a CSV of labelled splits with their predictions.

    Columns are the texts, `gold`, `prediction`, the probabilities, `place` (FILE:LINE)
    if it is known, and `split` if there are several.
    """
    from electra_tf.tasks.task import Item

    task, table = registry.of(model), _Table("csv")
    has_places = any(one.split.places is not None for one in splits.values())
    for name, one in splits.items():
        split = one.split
        columns = split.items, split.targets, one.details
        for index, (value, gold, details) in enumerate(zip(*columns, strict=True)):
            more = {"split": name} if len(splits) > 1 else {}
            if has_places:
                more["place"] = split.places[index] if split.places else ""
            cells = task.rows(model, index, Item(value, gold), details)
            yield from table.lines({**one, **more} for one in cells)
