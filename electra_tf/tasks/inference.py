"""Load a fine-tuned model, and write its predictions as lines."""

import dataclasses
import itertools
import json
import os
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import keras
import numpy as np

from electra_tf.errors import InputError
from electra_tf.interop.conversion import is_foreign
from electra_tf.interop.task_heads import MODEL, is_finished
from electra_tf.tasks.answerer import QuestionAnswerer
from electra_tf.tasks.classifier import TextClassifier, TextRegressor
from electra_tf.tasks.prediction_records import Item, read_line_items
from electra_tf.tasks.saved_file import check_saved_file, load_saved_file
from electra_tf.tasks.tagger import TokenClassifier
from electra_tf.tasks.text_model import TextModel
from electra_tf.text.warnings import UnknownCounter
from electra_tf.training.checkpoint import foreign_weights, is_checkpoint

FORMATS = ("text", "jsonl", "tsv")
_CHUNK_ITEMS = 1024
_SAVED_MODEL = "saved_model.pb"
_Formatted = Iterator[tuple[str, list[str], dict[str, Any]]]
"""For each item: its line of text, its rows of a table, its JSON record."""


def _print(line: str) -> None:
    print(line, file=sys.stderr)


def load(path: str) -> TextModel:
    """Load a model that fine-tuning wrote.

    Returns:
        The model, not compiled; `fit` compiles it with the published optimizer.
    """
    if not is_finished(path) and is_foreign(path):
        # Imported here, as that module imports this one.
        from electra_tf.tasks.finished_models import load_finished

        if (model := load_finished(path)) is not None:
            return model
    file = os.path.join(path, MODEL) if os.path.isdir(path) else path
    _check_file(path, file)
    name = check_saved_file(file)
    kind = keras.saving.get_registered_object(name)
    if not (isinstance(kind, type) and issubclass(kind, TextModel)):
        raise InputError(
            f"{file} must be a model that finetune wrote",
            f"a model of class {name!r:.100}",
            "Name the --output of finetune",
        )
    return load_saved_file(file)


def _check_file(path: str, file: str) -> None:
    """Raise an error for a path without a .keras archive that describes the path."""
    rule = f"--model must be a folder of finetune with a {MODEL}, or a .keras file"
    remedy = "Name the --output of finetune"
    found = None
    if library := foreign_weights(path):
        found = library
        remedy = (
            "Fine-tune it with electra_tf.finetune --checkpoint, and name its --output"
        )
    elif is_checkpoint(path):
        found = "a pre-trained checkpoint"
        remedy = "Fine-tune it with electra_tf.finetune, and name its --output"
    elif os.path.isdir(path) and not os.path.isfile(file):
        names = {name for _, _, files in os.walk(path) for name in files}
        found = f"a folder without a {MODEL}"
        if _SAVED_MODEL in names:
            found = "a folder of a SavedModel, which cannot be loaded here"
        elif os.path.isdir(os.path.join(path, "trial_1")):
            found += " yet"
            remedy = "Run the same finetune command again until a trial is finished"
    elif not os.path.isfile(file):
        found = "which does not exist"
    elif not file.endswith(".keras"):
        found = "a file of another kind"
    elif not zipfile.is_zipfile(file):  # Keras would raise "File not found"
        found = f"{os.path.getsize(file):,} bytes that are not a .keras archive"
        remedy = "Copy it again, or train it again"
    if found:
        raise InputError(rule, f"{path!r}, {found}", remedy)


def predict_lines(
    model: TextModel,
    lines: Iterable[str],
    output_format: str = "text",
    log: Callable[[str], None] = _print,
) -> Iterator[str]:
    """Predict for lines of text or JSON."""
    items = read_line_items(model, lines)
    yield from predict_items(model, items, output_format, log=log)


def predict_items(
    model: TextModel,
    items: Iterable[Item],
    output_format: str = "text",
    nbest: int | None = None,
    log: Callable[[str], None] = _print,
) -> Iterator[str]:
    """Predict for items in chunks of 1024.

    Yields:
        Lines in the order of the items. If the items have ids, each line begins with
        the id and a tab, or is a JSON object with `id`.
    """
    _check_nbest(model, output_format, nbest)
    items = iter(items)
    first = list(itertools.islice(items, 1))
    have_ids = any(item.id is not None for item in first)
    if output_format == "tsv" and (header := _header(model)):
        yield f"id\t{header}" if have_ids else header
    items = itertools.chain(first, items)
    done, unknown = 0, UnknownCounter(model.tokenizer)
    while chunk := list(itertools.islice(items, _CHUNK_ITEMS)):
        if output_format != "jsonl":
            _check_ids(chunk, have_ids, done)
        yield from _format_chunk(model, chunk, output_format, nbest, log, unknown)
        done += len(chunk)
    for line in unknown.lines("input"):
        log(line)


def _check_nbest(model: TextModel, output_format: str, nbest: int | None) -> None:
    if nbest is None:
        return
    if not isinstance(model, QuestionAnswerer) or output_format != "jsonl":
        raise InputError(
            "--nbest must be used with a QuestionAnswerer and --format=jsonl",
            f"--nbest={nbest} with a {type(model).__name__} and "
            f"--format={output_format}",
            "Leave --nbest out"
            + ", or pass --format=jsonl" * isinstance(model, QuestionAnswerer),
        )
    if nbest > model.settings.model.n_best:
        raise InputError(
            f"--nbest must be at most {model.settings.model.n_best}, the model's "
            "model.n_best",
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


def _header(model: TextModel) -> str | None:
    if isinstance(model, TextClassifier):
        return "\t".join(["label", *model.labels])
    if isinstance(model, TextRegressor):
        return "score"
    return None if isinstance(model, TokenClassifier) else "answer\tnull_odds"


def _format_chunk(
    model: TextModel,
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
    if isinstance(model, QuestionAnswerer):
        formatted = _format_answers(model, values, nbest)
    else:
        predictions = model.decode(values, examples, model.outputs_of(examples))
        formatted = _FORMATTERS[type(model)](model, values, predictions)
    for item, (text, table, record) in zip(items, formatted, strict=True):
        if output_format == "jsonl":
            item_id = {} if item.id is None else {"id": item.id}
            yield json.dumps(item_id | record, ensure_ascii=False)
            continue
        for line in table if output_format == "tsv" else [text]:
            # An empty line ends the rows of a sentence; it gets no id.
            without_id = item.id is None or (output_format == "tsv" and not line)
            yield line if without_id else f"{' '.join(str(item.id).split())}\t{line}"


def _format_classes(
    model: TextClassifier, values: Sequence[Any], probabilities: Any
) -> _Formatted:
    for row in probabilities:
        label = model.labels[int(np.argmax(row))]
        by_label = dict(zip(model.labels, map(float, row), strict=True))
        cells = "\t".join(f"{probability:.6f}" for probability in row)
        yield label, [f"{label}\t{cells}"], {"label": label, "probabilities": by_label}


def _format_scores(
    model: TextRegressor, values: Sequence[Any], scores: Any
) -> _Formatted:
    for score in scores:
        text = f"{score:.6g}"
        yield text, [text], {"score": float(score)}


def _format_tags(
    model: TokenClassifier, values: Sequence[Any], tags_of_sentences: Any
) -> _Formatted:
    for words, tags in zip(values, tags_of_sentences, strict=True):
        rows = list(zip(words, tags, strict=True))
        text = " ".join(f"{word}/{tag}" for word, tag in rows)
        table = [*(f"{word}\t{tag}" for word, tag in rows), ""]
        yield text, table, {"words": list(words), "tags": tags}


def _format_answers(
    model: QuestionAnswerer, values: Sequence[Any], nbest: int | None
) -> _Formatted:
    for prediction in model.predict_nbest(values):
        text = prediction.answer_text(model.null_threshold)
        record = {"answer": text, "null_odds": prediction.null_odds}
        if nbest:
            best = prediction.nbest[:nbest]
            record["nbest"] = [dataclasses.asdict(candidate) for candidate in best]
        one_line = " ".join(text.split())
        yield one_line, [f"{one_line}\t{prediction.null_odds:.6g}"], record


_FORMATTERS: dict[type[TextModel], Callable[..., _Formatted]] = {
    TextClassifier: _format_classes,
    TextRegressor: _format_scores,
    TokenClassifier: _format_tags,
}
