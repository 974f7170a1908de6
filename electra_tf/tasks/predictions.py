"""Write the predictions of a fine-tuned model as lines."""

import csv
import io
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from electra_tf.errors import InputError
from electra_tf.tasks.prediction_inputs import Item
from electra_tf.tasks.tables import print_note
from electra_tf.text.warnings import UnknownCounter

if TYPE_CHECKING:  # `predict` needs the formats before TensorFlow
    from electra_tf.tasks.score import ScoredSplit
    from electra_tf.tasks.text_model import TextModel

FORMATS = ("text", "jsonl", "tsv", "csv")
_CHUNK_ITEMS = 1024
_END = "\r\n"  # of a line of CSV, before it is written


def predict_items(
    model: "TextModel",
    items: Iterable[Item],
    output_format: str = "text",
    nbest: int | None = None,
    log: Callable[[str], None] = print_note,
) -> Iterator[str]:
    """Yield the lines of predictions, computed for chunks of 1024 items.

    If the items have ids, each line begins with the id and a tab, or is a JSON object
    with `id`, or the table has a column `id`. Records and tables of labelled items
    also have the texts and `gold`; a CSV always has the texts.
    """
    _check_nbest(model, output_format, nbest)
    items = iter(items)
    first = list(itertools.islice(items, 1))
    kind = [(item.id is not None, item.gold is not None) for item in first]
    have_ids, _ = kind = kind[0] if kind else (False, False)
    if output_format == "tsv" and (header := model.table_header):
        yield f"id\t{header}" if have_ids else header
    items = itertools.chain(first, items)
    unknown, table = UnknownCounter(model.tokenizer), _CsvLines()
    for done in itertools.count(0, _CHUNK_ITEMS):
        chunk = list(itertools.islice(items, _CHUNK_ITEMS))
        if not chunk:
            break
        if output_format != "jsonl":
            _check_columns(chunk, *kind, done, output_format)
        predicted = zip(chunk, _details(model, chunk, log, unknown), strict=True)
        for index, (item, details) in enumerate(predicted, done):
            if output_format == "csv":
                rows = model.table_rows(index, item.value, details, item.gold)
                item_id = {"id": item.id} if have_ids else {}
                yield from table.of(item_id | row for row in rows)
            else:
                yield from _lines(model, item, details, output_format, nbest)
    for line in unknown.lines("input"):
        log(line)


def _check_nbest(model: "TextModel", output_format: str, nbest: int | None) -> None:
    if nbest is None:
        return
    if not model.max_nbest or output_format != "jsonl":
        raise InputError(
            "--nbest must be used with a QuestionAnswerer and --format=jsonl",
            f"--nbest={nbest} with a {type(model).__name__} and "
            f"--format={output_format}",
            "Leave --nbest out" + ", or pass --format=jsonl" * bool(model.max_nbest),
        )
    if nbest > model.max_nbest:
        raise InputError(
            f"--nbest must be at most {model.max_nbest}, the model's model.n_best",
            f"--nbest={nbest}",
            "Pass a smaller number, or fine-tune with a larger --set model.n_best",
        )


def _check_columns(
    chunk: Sequence[Item],
    have_ids: bool,
    have_gold: bool,
    done: int,
    output_format: str,
) -> None:
    """Raise an error for records that differ in the columns of a table."""
    for number, item in enumerate(chunk, done + 1):
        columns = [("an id", item.id, have_ids)]
        if output_format == "csv":
            columns.append(("a label", item.gold, have_gold))
        for name, value, needed in columns:
            if (value is not None) != needed:
                raise InputError(
                    f"All records must have {name}, or none, for "
                    f"--format={output_format}",
                    f"record {number} {'without' if needed else 'with'} {name}, "
                    "unlike the first",
                    f"Pass --format=jsonl, or give each record {name}",
                )


def _details(
    model: "TextModel",
    items: Sequence[Item],
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


def _lines(
    model: "TextModel", item: Item, details: Any, output_format: str, nbest: int | None
) -> Iterator[str]:
    """Yield the lines of one item, with its id."""
    formatted = model.format(item.value, details, nbest)
    if output_format == "jsonl":
        record = {} if item.id is None else {"id": item.id}
        if item.gold is not None:
            record |= model.text_cells(item.value) | {"gold": item.gold}
        # A list is a text with its spans, which has no place for more.
        is_list = isinstance(formatted.record, list)
        record = formatted.record if is_list else record | formatted.record
        yield _escape(json.dumps(record, ensure_ascii=False))
        return
    is_table = output_format == "tsv"
    for line in formatted.rows if is_table else [formatted.text]:
        # An empty line ends the rows of a sentence; it gets no id.
        without_id = item.id is None or (is_table and not line)
        yield line if without_id else f"{' '.join(str(item.id).split())}\t{line}"


def _escape(line: str) -> str:
    """Write halves of surrogate pairs, which UTF-8 cannot encode, as in JSON."""
    return line.encode("utf-8", "backslashreplace").decode()


class _CsvLines:
    """Lines of a CSV, with a header from the first row."""

    def __init__(self):
        self._buffer = io.StringIO(newline="")
        self._writer: csv.DictWriter | None = None

    def of(self, rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
        """Yield the lines of more rows, which have the columns of the first one."""
        for row in rows:
            if self._writer is None:
                # Cells with a character of the terminator are put into quotes.
                self._writer = csv.DictWriter(self._buffer, row, lineterminator=_END)
                self._writer.writeheader()
                yield self._line()
            self._writer.writerow(row)
            yield self._line()

    def _line(self) -> str:
        line = self._buffer.getvalue().removesuffix(_END)
        self._buffer.seek(0)
        self._buffer.truncate()
        return _escape(line)


def csv_lines(model: "TextModel", splits: Mapping[str, "ScoredSplit"]) -> Iterator[str]:
    """Yield the lines of a CSV of labelled splits with their predictions.

    Columns are the texts, `gold`, `prediction`, the probabilities, `place` (FILE:LINE)
    if it is known, and `split` if there are several.
    """
    table = _CsvLines()
    has_places = any(one.split.places is not None for one in splits.values())
    for name, one in splits.items():
        split = one.split
        columns = split.items, one.details, split.targets
        for index, row in enumerate(zip(*columns, strict=True)):
            more = {"split": name} if len(splits) > 1 else {}
            if has_places:
                more["place"] = split.places[index] if split.places else ""
            yield from table.of(cells | more for cells in model.table_rows(index, *row))
