"""Write the predictions of a fine-tuned model as lines."""

import itertools
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from electra_tf.errors import InputError
from electra_tf.tasks.prediction_inputs import Item
from electra_tf.text.warnings import UnknownCounter

if TYPE_CHECKING:  # `predict` needs the formats before TensorFlow
    from electra_tf.tasks.text_model import TextModel

FORMATS = ("text", "jsonl", "tsv")
_CHUNK_ITEMS = 1024


def _print(line: str) -> None:
    print(line, file=sys.stderr)


def predict_items(
    model: "TextModel",
    items: Iterable[Item],
    output_format: str = "text",
    nbest: int | None = None,
    log: Callable[[str], None] = _print,
) -> Iterator[str]:
    """Yield the lines of predictions, computed for chunks of 1024 items.

    If the items have ids, each line begins with the id and a tab, or is a JSON object
    with `id`.
    """
    _check_nbest(model, output_format, nbest)
    items = iter(items)
    first = list(itertools.islice(items, 1))
    have_ids = any(item.id is not None for item in first)
    if output_format == "tsv" and (header := model.table_header):
        yield f"id\t{header}" if have_ids else header
    items = itertools.chain(first, items)
    done, unknown = 0, UnknownCounter(model.tokenizer)
    while chunk := list(itertools.islice(items, _CHUNK_ITEMS)):
        if output_format != "jsonl":
            _check_ids(chunk, have_ids, done)
        yield from _predict_chunk(model, chunk, output_format, nbest, log, unknown)
        done += len(chunk)
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


def _check_ids(chunk: Sequence[Item], have_ids: bool, done: int) -> None:
    for number, item in enumerate(chunk, done + 1):
        if (item.id is not None) != have_ids:
            raise InputError(
                "All records must have an id, or none, for --format=text and tsv",
                f"record {number} {'without' if have_ids else 'with'} an id, unlike "
                "the first",
                "Pass --format=jsonl, or give each record an id",
            )


def _predict_chunk(
    model: "TextModel",
    items: Sequence[Item],
    output_format: str,
    nbest: int | None,
    log: Callable[[str], None],
    unknown: UnknownCounter,
) -> Iterator[str]:
    values = [item.value for item in items]
    examples = model.examples(values)
    unknown.add(examples.ids)
    if examples.truncated:
        log(
            f"{examples.truncated:,} of {len(items):,} inputs were truncated to the "
            f"{model.settings.data.max_length} positions of training"
        )
    details = model.decode_details(values, examples, model.outputs_of(examples))
    for item, prediction in zip(items, details, strict=True):
        formatted = model.format(item.value, prediction, nbest)
        if output_format == "jsonl":
            item_id = {} if item.id is None else {"id": item.id}
            yield json.dumps(item_id | formatted.record, ensure_ascii=False)
            continue
        is_table = output_format == "tsv"
        for line in formatted.rows if is_table else [formatted.text]:
            # An empty line ends the rows of a sentence; it gets no id.
            without_id = item.id is None or (is_table and not line)
            yield line if without_id else f"{' '.join(str(item.id).split())}\t{line}"
