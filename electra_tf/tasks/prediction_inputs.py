"""Read the inputs of `predict`: lines of text, tables, questions in SQuAD's layout."""

import dataclasses
import io
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from electra_tf.errors import InputError
from electra_tf.tasks.data.tables import Row, read_table, require_columns
from electra_tf.tasks.squad.model import QuestionAnswerer
from electra_tf.tasks.squad.reader import read_squad_ignoring_offsets
from electra_tf.tasks.tagging.model import TokenClassifier
from electra_tf.tasks.text_model import TextModel
from electra_tf.text.compression import BROKEN, inner_suffix, open_compressed
from electra_tf.text.data_errors import DataErrorLog

_TABLES = (".csv", ".tsv")
_ID = "id"
STANDARD_INPUT = "standard input"


@dataclasses.dataclass(frozen=True, slots=True)
class Item:
    """One input of a model."""

    value: Any
    """An element of the list that `model.examples` takes."""
    id: str | int | None = None
    """The id in the file; None: the record has none."""


def check_input(path: str | None) -> None:
    """Raise an error if a path cannot be an input.

    Args:
        path: A file; None: standard input.

    Raises:
        InputError: The path is not a file, or its format is not read.
    """
    if path is None:
        return
    if not os.path.isfile(path):
        found = "a folder" if os.path.isdir(path) else "no such file"
        raise InputError(
            "--input must be a file", f"{path!r}, {found}", "Check the path"
        )
    if inner_suffix(path) == ".parquet":
        raise InputError(
            "--input must be lines of text, a table (.csv, .tsv, .jsonl) or questions "
            "in SQuAD's layout (.json)",
            f"{path!r}, a Parquet file",
            "Convert it to .jsonl",
        )


def check_output(source: str | None, path: str | None, overwrite: bool) -> None:
    """Raise an error if predictions cannot be written to a path.

    Args:
        source: The file of the inputs; None: standard input.
        path: The file of the predictions; None: standard output.
        overwrite: Whether a file there may be replaced.

    Raises:
        InputError: The path is the input, exists, or is in no folder.
    """
    if path is None:
        return
    rule, found, remedy = "--output must be a new file", "", "Name another file"
    if source and os.path.realpath(source) == os.path.realpath(path):
        rule = "--output must be another file than --input"
        found = "the same file for both"
    elif os.path.isdir(path):
        found = "a folder"
    elif os.path.exists(path) and not overwrite:
        found = "which exists"
        remedy += ", or pass --overwrite to replace it"
    elif not os.path.isdir(os.path.dirname(path) or "."):
        found = "in a folder that does not exist"
        remedy = "Create the folder, or name another file"
    if found:
        raise InputError(rule, f"{path!r}, {found}", remedy)


def read_items(
    model: TextModel,
    path: str | None,
    columns: Sequence[str] | None = None,
    stored: Sequence[str] = (),
) -> Iterator[Item]:
    """Read the inputs of a model from a file.

    Args:
        model: The model that predicts.
        path: A table (.csv, .tsv), questions in SQuAD's layout (.json, for a model of
            questions), or lines: texts or JSON objects. None: lines of standard input.
        columns: The columns of the texts in a table or in JSON objects; None: `stored`,
            or else `text` and `text_b`, `words`, or `question` and `context`.
        stored: The columns that the model was trained with.

    Yields:
        An item for each row, question or line.

    Raises:
        InputError: A record is not what the model takes; with the file and the line.
            A file without records.
    """
    check_input(path)
    choices = _choices(model, columns, stored)
    kind = inner_suffix(path) if path else ""
    if kind in _TABLES:
        yield from _items_of_table(model, path, choices)
    elif kind == ".json" and isinstance(model, QuestionAnswerer):
        yield from (Item(q, q.id) for q in read_squad_ignoring_offsets(path))
    else:
        number, name = 0, path or STANDARD_INPUT
        items = read_line_items(model, _lines(path), choices, name)
        for number, item in enumerate(items, 1):  # noqa: B007 - counted
            yield item
        if not number and path:
            raise InputError(
                "--input must have a line or more", f"{path!r}, an empty file",
                "Check the path",
            )  # fmt: skip
        if not number:
            print("standard input has no lines: no predictions", file=sys.stderr)


def read_line_items(
    model: TextModel,
    lines: Iterable[str],
    choices: Sequence[tuple[str, ...]] | None = None,
    name: str = STANDARD_INPUT,
) -> Iterator[Item]:
    """Parse lines of text or JSON.

    Args:
        model: The model that predicts.
        lines: Texts; two of them with a tab between, for a model of pairs. Words with
            spaces between for a tagger; JSON objects for a model of questions, and for
            any other model too.
        choices: Keys of the texts in JSON objects, those to try first; None: the
            standard ones.
        name: The source of the lines, for messages.

    Yields:
        An item for each line.

    Raises:
        InputError: A line is not what the model takes.
    """
    choices = choices or [_standard_names(model)]
    for number, line in enumerate(lines, 1):
        line = line.rstrip("\r\n")
        if number == 1:
            line = line.removeprefix("\ufeff")
        place = f"{name}, line {number}"
        record = _parse_json(line, place)
        if record is not None:
            yield _item_of_json(model, record, choices, place, line)
        else:
            yield Item(_value_of_text(model, line, place))


def _standard_names(model: TextModel) -> tuple[str, ...]:
    if isinstance(model, QuestionAnswerer):
        return ("question", "context")
    if isinstance(model, TokenClassifier):
        return ("words",)
    return ("text", "text_b") if model.pairs else ("text",)


def _choices(
    model: TextModel, given: Sequence[str] | None, stored: Sequence[str]
) -> list[tuple[str, ...]]:
    """Return the columns to look for, in order."""
    standard = _standard_names(model)
    if given is None:
        return [*([tuple(stored)] if stored else []), standard]
    if len(given) != len(standard):
        raise InputError(
            f"--text_columns must name {len(standard)} "
            f"column{'s' * (len(standard) > 1)} for this {type(model).__name__}",
            f"--text_columns={','.join(given)}",
            "Name a column for each text of the model",
        )
    return [tuple(given)]


def _first_in(choices: Sequence[tuple[str, ...]], names: Iterable[str]) -> tuple:
    """Return the first choice of columns that are all there; else the first one."""
    known = set(names)
    return next((c for c in choices if known.issuperset(c)), choices[0])


def _items_of_table(
    model: TextModel, path: str, choices: Sequence[tuple[str, ...]]
) -> Iterator[Item]:
    rows = read_table(path, DataErrorLog("stop", "", "A table must be readable"))
    columns = _first_in(choices, rows[0].values)
    try:
        require_columns(rows, columns)
    except InputError as error:
        raise InputError(
            error.required,
            error.received,
            "Name the columns of its texts with --text_columns; a file of texts "
            "without column names must not end with .csv or .tsv",
        ) from error
    for row in rows:
        yield Item(_value_of_row(model, row, columns), row.values.get(_ID))


def _value_of_row(model: TextModel, row: Row, columns: Sequence[str]) -> Any:
    values = tuple(row.values[column] for column in columns)
    return _value(model, values, f"{row}")


def _item_of_json(
    model: TextModel,
    record: Mapping[str, Any],
    choices: Sequence[tuple[str, ...]],
    place: str,
    line: str,
) -> Item:
    names = _first_in(choices, record)
    words = isinstance(model, TokenClassifier)
    right = all(
        isinstance(record.get(name), str)
        or (words and isinstance(record.get(name), list))
        for name in names
    )
    if not right:
        raise InputError(
            f"A line must be a JSON object with {' and '.join(names)}, each a "
            + ("list of strings" if words else "string"),
            f"{place}: {line!r:.80}",
            "Correct the line, or name the keys with --text_columns",
        )
    found = record.get(_ID)
    if not isinstance(found, str | int | None):
        raise InputError(
            f"`{_ID}` must be a string or a whole number",
            f"{place}: {found!r:.80}",
            "Correct the line",
        )
    return Item(_value(model, tuple(record[name] for name in names), place), found)


def _value(model: TextModel, texts: tuple[Any, ...], place: str) -> Any:
    """Return what `model.examples` takes for the texts of a record."""
    if isinstance(model, TokenClassifier):
        (words,) = texts
        return words.split() if isinstance(words, str) else words
    if isinstance(model, QuestionAnswerer):
        for name, text in zip(("question", "context"), texts, strict=True):
            if not text.strip():
                raise InputError(
                    "A question and its context must not be empty",
                    f"{place}: an empty {name}",
                    "Correct or remove the record",
                )
    return texts[0] if len(texts) == 1 else texts


def _value_of_text(model: TextModel, line: str, place: str) -> Any:
    """Return what `model.examples` takes for a line that is not JSON."""
    if isinstance(model, QuestionAnswerer):
        raise InputError(
            "A line must be a JSON object with question and context",
            f"{place}: {line!r:.80}",
            "Write each question as a JSON object in a line of its own, or name a file "
            "in SQuAD's layout that ends with .json",
        )
    if isinstance(model, TokenClassifier):
        return line.split()
    if not model.pairs:
        return line
    texts = line.split("\t")
    if len(texts) != 2:
        raise InputError(
            "A line must have two texts with a tab between, as the model takes pairs",
            f"{place}, with {len(texts)}",
            "Correct the line, or write JSON objects with text and text_b",
        )
    return tuple(texts)


def _parse_json(line: str, place: str) -> dict[str, Any] | None:
    if not line.startswith("{"):
        return None
    try:
        found = json.loads(line)
    except ValueError as error:
        if not line.startswith('{"'):  # a text may begin with a brace
            return None
        raise InputError(
            'A line that begins with {" must be a JSON object',
            f"{place}: {error}",
            'Correct the line, or write the text itself as {"text": "..."}',
        ) from error
    return found if isinstance(found, dict) else None


def _lines(path: str | None) -> Iterator[str]:
    name = path or STANDARD_INPUT
    try:
        if path is None:
            # Python lets what is no UTF-8 pass there, to stumble over it later.
            sys.stdin.reconfigure(encoding="utf-8", errors="strict")
            yield from sys.stdin
        else:
            with io.TextIOWrapper(open_compressed(path), encoding="utf-8") as file:
                yield from file
    except UnicodeDecodeError as error:
        raise InputError(
            "The lines must be UTF-8", f"{name}: {error}", "Convert them with iconv"
        ) from error
    except (OSError, *BROKEN) as error:
        raise InputError(
            f"{name} must be readable to its end", str(error),
            "Copy or compress it again, or check who may read it",
        ) from error  # fmt: skip
