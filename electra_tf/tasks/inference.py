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
from electra_tf.tasks.classification.model import TextClassifier, TextRegressor
from electra_tf.tasks.prediction_inputs import Item, read_line_items
from electra_tf.tasks.runner import MODEL
from electra_tf.tasks.squad.model import QuestionAnswerer
from electra_tf.tasks.tagging.model import TokenClassifier
from electra_tf.tasks.text_model import TextModel
from electra_tf.training.checkpoint import foreign_weights, is_checkpoint

FORMATS = ("text", "jsonl", "tsv")
_AT_A_TIME = 1024
_SAVED_MODEL = "saved_model.pb"
_Written = Iterator[tuple[str, list[str], dict[str, Any]]]
"""Of each item: its line of text, its rows of a table, its JSON record."""


def _print(line: str) -> None:
    print(line, file=sys.stderr)


def load(path: str) -> TextModel:
    """Load a model that fine-tuning wrote.

    Args:
        path: The output folder, or a .keras file.

    Returns:
        The model, not compiled; `fit` compiles it with the published optimizer.

    Raises:
        InputError: There is no model, or the file is not a model of a task.
    """
    file = os.path.join(path, MODEL) if os.path.isdir(path) else path
    _check_file(path, file)
    try:
        model = keras.saving.load_model(file, compile=False, safe_mode=True)
    except (ValueError, TypeError, OSError, KeyError) as error:
        words = str(error).strip().splitlines() or [type(error).__name__]
        raise InputError(
            f"{file} must be a whole model that finetune wrote", words[0][:200],
            "Copy it again, or train it again",
        ) from error  # fmt: skip
    if not isinstance(model, TextModel):
        raise InputError(
            f"{file} must be a model that finetune wrote",
            type(model).__name__,
            "Name the --output of finetune",
        )
    return model


def _check_file(path: str, file: str) -> None:
    """Raise an error for a path without a .keras archive, with what is there."""
    rule = f"--model must be a folder of finetune with a {MODEL}, or a .keras file"
    remedy = "Name the --output of finetune"
    found = None
    if kind := foreign_weights(path):
        found = kind
        remedy = (
            "Weights of other libraries are not read; pre-train with electra_tf."
            "pretrain, fine-tune with electra_tf.finetune, and name its --output"
        )
    elif is_checkpoint(path):
        found = "a pre-trained checkpoint"
        remedy = "Fine-tune it with electra_tf.finetune, and name its --output"
    elif os.path.isdir(path) and not os.path.isfile(file):
        names = {name for _, _, files in os.walk(path) for name in files}
        found = f"a folder without a {MODEL}"
        if _SAVED_MODEL in names:
            found = "a folder of a SavedModel, which is served and not loaded"
        elif os.path.isdir(os.path.join(path, "trial_1")):
            found += " yet"
            remedy = "Run the same finetune command again until a trial is done"
    elif not os.path.isfile(file):
        found = "which does not exist"
    elif not file.endswith(".keras"):
        found = "a file of another kind"
    elif not zipfile.is_zipfile(file):  # Keras would say that there is no such file
        found = f"{os.path.getsize(file):,} bytes that are not a .keras archive"
        remedy = "Copy it again, or train it again"
    if found:
        raise InputError(rule, f"{path!r}, {found}", remedy)


def predict_lines(
    model: TextModel,
    lines: Iterable[str],
    form: str = "text",
    tell: Callable[[str], None] = _print,
) -> Iterator[str]:
    """Predict for lines of text or JSON.

    Args:
        model: The result of `load`.
        lines: As for `items_of_lines`.
        form: One of `FORMS`.
        tell: Gets a line where texts were too long.

    Yields:
        As `predict_items`.
    """
    yield from predict_items(model, read_line_items(model, lines), form, tell=tell)


def predict_items(
    model: TextModel,
    items: Iterable[Item],
    form: str = "text",
    nbest: int | None = None,
    tell: Callable[[str], None] = _print,
) -> Iterator[str]:
    """Predict for items, a thousand at a time.

    Args:
        model: The result of `load`.
        items: The inputs.
        form: One of `FORMS`.
        nbest: Candidates in the records of a model of questions, best first; None: the
            answer alone.
        tell: Gets a line where texts were too long.

    Yields:
        Lines, those of an item after another. Where the items have ids, each line
        begins with the id and a tab, or is a JSON object with `id`.

    Raises:
        InputError: An item without an id after one with an id, or the reverse;
            `nbest` for another model or form, or more than the model keeps.
    """
    _check_nbest(model, form, nbest)
    items = iter(items)
    first = list(itertools.islice(items, 1))
    named = any(item.id is not None for item in first)
    if form == "tsv" and (header := _header(model)):
        yield f"id\t{header}" if named else header
    items = itertools.chain(first, items)
    done = 0
    while chunk := list(itertools.islice(items, _AT_A_TIME)):
        if form != "jsonl":
            _check_ids(chunk, named, done)
        yield from _predicted(model, chunk, form, nbest, tell)
        done += len(chunk)


def _check_nbest(model: TextModel, form: str, nbest: int | None) -> None:
    if nbest is None:
        return
    if not isinstance(model, QuestionAnswerer) or form != "jsonl":
        raise InputError(
            "--nbest must be used with a model of questions and --format=jsonl",
            f"--nbest={nbest} with a {type(model).__name__} and --format={form}",
            "Leave --nbest out, or pass --format=jsonl",
        )
    if nbest > model.settings.model.n_best:
        raise InputError(
            f"--nbest must be at most {model.settings.model.n_best}, the model's "
            "model.n_best",
            f"--nbest={nbest}",
            "Pass a smaller number, or fine-tune with a larger --set model.n_best",
        )


def _check_ids(chunk: Sequence[Item], named: bool, done: int) -> None:
    for number, item in enumerate(chunk, done + 1):
        if (item.id is not None) != named:
            raise InputError(
                "All records must have an id, or none, for --format=text and tsv",
                f"record {number} {'without' if named else 'with'} an id, unlike the "
                "first",
                "Pass --format=jsonl, or give each record an id",
            )


def _header(model: TextModel) -> str | None:
    if isinstance(model, TextClassifier):
        return "\t".join(["label", *model.labels])
    if isinstance(model, TextRegressor):
        return "score"
    return None if isinstance(model, TokenClassifier) else "answer\tnull_odds"


def _predicted(
    model: TextModel,
    items: Sequence[Item],
    form: str,
    nbest: int | None,
    tell: Callable[[str], None],
) -> Iterator[str]:
    values = [item.value for item in items]
    examples = model.examples(values)
    if examples.truncated:
        tell(
            f"{examples.truncated:,} of {len(items):,} inputs were longer than the "
            f"{model.settings.data.max_length} positions of training and were cut"
        )
    if isinstance(model, QuestionAnswerer):
        found = _of_answers(model, values, nbest)
    else:
        decoded = model.decode(values, examples, model.outputs_of(examples))
        found = _WRITERS[type(model)](model, values, decoded)
    for item, (plain, table, record) in zip(items, found, strict=True):
        if form == "jsonl":
            own = {} if item.id is None else {"id": item.id}
            yield json.dumps(own | record, ensure_ascii=False)
            continue
        for line in table if form == "tsv" else [plain]:
            ends = form == "tsv" and not line  # of a sentence's rows
            bare = item.id is None or ends
            yield line if bare else f"{' '.join(str(item.id).split())}\t{line}"


def _of_classes(model: TextClassifier, values: Sequence[Any], shares: Any) -> _Written:
    for row in shares:
        label = model.labels[int(np.argmax(row))]
        named = dict(zip(model.labels, map(float, row), strict=True))
        numbers = "\t".join(f"{share:.6f}" for share in row)
        yield label, [f"{label}\t{numbers}"], {"label": label, "probabilities": named}


def _of_scores(model: TextRegressor, values: Sequence[Any], scores: Any) -> _Written:
    for score in scores:
        word = f"{score:.6g}"
        yield word, [word], {"score": float(score)}


def _of_tags(model: TokenClassifier, values: Sequence[Any], tagged: Any) -> _Written:
    for words, tags in zip(values, tagged, strict=True):
        rows = list(zip(words, tags, strict=True))
        plain = " ".join(f"{word}/{tag}" for word, tag in rows)
        table = [*(f"{word}\t{tag}" for word, tag in rows), ""]
        yield plain, table, {"words": list(words), "tags": tags}


def _of_answers(
    model: QuestionAnswerer, values: Sequence[Any], nbest: int | None
) -> _Written:
    for found in model.predict_nbest(values):
        text = found.answer_text(model.null_threshold)
        record = {"answer": text, "null_odds": found.null_odds}
        if nbest:
            best = found.nbest[:nbest]
            record["nbest"] = [dataclasses.asdict(candidate) for candidate in best]
        one_line = " ".join(text.split())
        yield one_line, [f"{one_line}\t{found.null_odds:.6g}"], record


_WRITERS: dict[type[TextModel], Callable[..., _Written]] = {
    TextClassifier: _of_classes,
    TextRegressor: _of_scores,
    TokenClassifier: _of_tags,
}
