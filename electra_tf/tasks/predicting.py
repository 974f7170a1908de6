"""Lines in, what a fine-tuned model says of them out."""

import dataclasses
import io
import json
import os
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import keras
import numpy as np

from electra_tf.errors import InputError
from electra_tf.tasks.answerer import QuestionAnswerer
from electra_tf.tasks.models import TextClassifier, TextRegressor
from electra_tf.tasks.tagger import TextTagger
from electra_tf.tasks.text_model import TextModel
from electra_tf.tasks.trials import MODEL
from electra_tf.text.archives import BROKEN, inner_suffix, unpacked

FORMS = ("text", "jsonl", "tsv")
_AT_A_TIME = 1024


def _print(line: str) -> None:
    print(line, file=sys.stderr)


def load(path: str) -> TextModel:
    """Loads what fine-tuning wrote.

    Args:
        path: The output folder, or a .keras file.

    Returns:
        The model.

    Raises:
        InputError: There is none, or it is another Keras model.
    """
    file = os.path.join(path, MODEL) if os.path.isdir(path) else path
    if not os.path.isfile(file):
        raise InputError(
            f"--model names a folder with a {MODEL}, or such a file",
            repr(path),
            "Name the --output of finetune",
        )
    if not zipfile.is_zipfile(file):  # Keras would say that there is no such file
        raise InputError(
            f"{file} is a whole model that finetune wrote",
            f"{os.path.getsize(file):,} bytes that are no .keras archive",
            "Copy it again, or train it again",
        )
    try:
        model = keras.saving.load_model(file)
    except (ValueError, TypeError, OSError, KeyError) as error:
        words = str(error).strip().splitlines() or [type(error).__name__]
        raise InputError(
            f"{file} is a whole model that finetune wrote", words[0][:200],
            "Copy it again, or train it again",
        ) from error  # fmt: skip
    if not isinstance(model, TextModel):
        raise InputError(
            f"{file} is a model that finetune wrote",
            type(model).__name__,
            "Name the --output of finetune",
        )
    return model


def lines_of(path: str | None) -> Iterator[str]:
    """Reads lines of UTF-8.

    Args:
        path: A file, plain, .gz or .xz; None: standard input.

    Returns:
        Each line; reading them raises `InputError` for another encoding or a broken
        archive.

    Raises:
        InputError: There is no such file, or it is a table.
    """
    if path and inner_suffix(path) in (".csv", ".parquet"):
        raise InputError(
            "--input is a file of lines: a text each, or JSON objects",
            f"{path}, a table",
            "Write its texts as lines of JSON; or name it test.csv beside train.csv: "
            "finetune answers it too",
        )
    if path and (os.path.isdir(path) or not os.path.exists(path)):
        raise InputError("--input is a file of lines", repr(path), "Check the path")
    return _lines(path)


def _lines(path: str | None) -> Iterator[str]:
    name = path or "standard input"
    try:
        if path is None:
            # Python lets what is no UTF-8 pass there, to stumble over it later.
            sys.stdin.reconfigure(encoding="utf-8", errors="strict")
            yield from sys.stdin
        else:
            with io.TextIOWrapper(unpacked(path), encoding="utf-8") as file:
                yield from file
    except UnicodeDecodeError as error:
        raise InputError(
            "The lines are UTF-8", f"{name}: {error}", "Convert them with iconv"
        ) from error
    except (OSError, *BROKEN) as error:
        raise InputError(
            f"{name} can be read to its end", str(error),
            "Copy or compress it again, or check who may read it",
        ) from error  # fmt: skip


def predict_lines(
    model: TextModel,
    lines: Iterable[str],
    form: str = "text",
    tell: Callable[[str], None] = _print,
) -> Iterator[str]:
    """Answers lines, a thousand at a time.

    Args:
        model: What `load` returned.
        lines: Texts; two of them with a tab between, where the model was trained on
            pairs. Words with spaces between for a tagger; JSON objects with `question`
            and `context` for an answerer. JSON objects with `text`, `text_b` or
            `words` are taken too.
        form: One of `FORMS`.
        tell: Gets a line where texts were too long.

    Yields:
        Lines, those of an item after another.

    Raises:
        InputError: A line that is not as it should be, with its number.
    """
    if form == "tsv" and (header := _header(model)):
        yield header
    chunk: list[Any] = []
    for number, line in enumerate(lines, 1):
        chunk.append(_item(model, line.rstrip("\r\n"), number))
        if len(chunk) == _AT_A_TIME:
            yield from _said(model, chunk, form, tell)
            chunk = []
    if chunk:
        yield from _said(model, chunk, form, tell)


def _item(model: TextModel, line: str, number: int) -> Any:
    if number == 1:
        line = line.removeprefix("\ufeff")
    record, pairs = _json(line, number), model.pairs
    if isinstance(model, QuestionAnswerer):
        names = ("question", "context")
    elif isinstance(model, TextTagger):
        if record is None:
            return line.split()
        names = ("words",)
    elif record is None:
        texts = line.split("\t") if pairs else [line]
        if len(texts) != (2 if pairs else 1):
            raise InputError(
                "The model knows pairs: a line holds two texts with a tab between",
                f"line {number}, with {len(texts)}",
                "Mend it, or give JSON objects with text and text_b",
            )
        return tuple(texts) if pairs else line
    else:
        names = ("text", "text_b") if pairs else ("text",)
    kind = list if names == ("words",) else str
    if not all(isinstance((record or {}).get(name), kind) for name in names):
        raise InputError(
            f"A line is a JSON object with {' and '.join(names)}, each a "
            + ("list of strings" if kind is list else "string"),
            f"line {number}: {line!r:.80}",
            "Mend it",
        )
    values = tuple(record[name] for name in names)
    return values[0] if len(values) == 1 else values


def _json(line: str, number: int) -> dict[str, Any] | None:
    if not line.startswith("{"):
        return None
    try:
        found = json.loads(line)
    except ValueError as error:
        if not line.startswith('{"'):  # a text may begin with a brace
            return None
        raise InputError(
            'A line that begins with {" is a JSON object',
            f"line {number}: {error}",
            'Mend it, or write the text itself as {"text": "..."}',
        ) from error
    return found if isinstance(found, dict) else None


def _header(model: TextModel) -> str | None:
    if isinstance(model, TextClassifier):
        return "\t".join(["label", *model.labels])
    if isinstance(model, TextRegressor):
        return "score"
    return None if isinstance(model, TextTagger) else "answer\tnull_odds"


def _said(
    model: TextModel, items: Sequence[Any], form: str, tell: Callable[[str], None]
) -> Iterator[str]:
    examples = model.examples(items)
    if examples.cut:
        tell(
            f"{examples.cut:,} of {len(items):,} lines lost pieces, being longer than "
            f"the {model.settings.data.max_length} positions of training"
        )
    if isinstance(model, QuestionAnswerer):
        yield from _answers(model, items, form)
        return
    said = model.decoded(items, examples, model.outputs_of(examples))
    if isinstance(model, TextClassifier):
        for row in said:
            label = model.labels[int(np.argmax(row))]
            named = dict(zip(model.labels, map(float, row), strict=True))
            numbers = "\t".join(f"{share:.6f}" for share in row)
            record = {"label": label, "probabilities": named}
            yield _form(form, label, f"{label}\t{numbers}", record)
    elif isinstance(model, TextRegressor):
        for score in said:
            word = f"{score:.6g}"
            yield _form(form, word, word, {"score": float(score)})
    else:
        for words, tags in zip(items, said, strict=True):
            rows = list(zip(words, tags, strict=True))
            plain = " ".join(f"{word}/{tag}" for word, tag in rows)
            table = "\n".join([*(f"{word}\t{tag}" for word, tag in rows), ""])
            yield _form(form, plain, table, {"words": list(words), "tags": tags})


def _answers(model: QuestionAnswerer, items: Sequence[Any], form: str) -> Iterator[str]:
    for found in model.answered(items):
        text = found.decided(model.null_threshold)
        record = {"answer": text, "null_odds": found.null_odds}
        record["nbest"] = [dataclasses.asdict(one) for one in found.nbest]
        one_line = " ".join(text.split())
        yield _form(form, one_line, f"{one_line}\t{found.null_odds:.6g}", record)


def _form(form: str, plain: str, table: str, record: dict[str, Any]) -> str:
    if form == "jsonl":
        return json.dumps(record, ensure_ascii=False)
    return table if form == "tsv" else plain
