"""Read the inputs of `predict`: lines of text, tables, questions in SQuAD's format."""

import dataclasses
import io
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TextIO

from electra_tf.errors import InputError
from electra_tf.tasks.data.tables import read_table, require_columns
from electra_tf.tasks.squad.model import QuestionAnswerer
from electra_tf.tasks.squad.reader import read_squad_ignoring_offsets
from electra_tf.tasks.tagging.model import TokenClassifier
from electra_tf.tasks.text_model import TextModel
from electra_tf.text.bounded_files import MAX_LINE, long_line, parse_json
from electra_tf.text.compression import BROKEN, inner_suffix, open_compressed
from electra_tf.text.data_errors import DataErrorLog
from electra_tf.text.file_formats import encoding_remedy

_TABLES = (".csv", ".tsv")
_ID = "id"
STANDARD_INPUT = "standard input"


@dataclasses.dataclass(frozen=True, slots=True)
class Item:
    """Input of a model with its id."""

    value: Any
    """An element of the argument `x` of `model.examples`."""
    id: str | int | None = None
    """Id of the record in the file; None: it has none."""


def check_input(path: str | None) -> None:
    """Raise an error if a path cannot be an input.

    Args:
        path: Path of a file; None: standard input.

    Raises:
        InputError: The path is not a file, or its format is not supported.
    """
    if path is None:
        return
    if not os.path.isfile(path):
        reason = "a folder" if os.path.isdir(path) else "no such file"
        raise InputError(
            "--input must be a file", f"{path!r}, {reason}", "Check the path"
        )
    if inner_suffix(path) == ".parquet":
        raise InputError(
            "--input must be lines of text, a table (.csv, .tsv, .jsonl) or questions "
            "in SQuAD's format (.json)",
            f"{path!r}, a Parquet file",
            "Convert it to .jsonl",
        )


def check_output(source: str | None, path: str | None, overwrite: bool) -> None:
    """Raise an error if predictions cannot be written to a path.

    Args:
        source: File of the inputs; None: standard input.
        path: File of the predictions; None: standard output.
        overwrite: Whether an existing file may be replaced.

    Raises:
        InputError: The path is the input or exists, or its folder does not exist.
    """
    if path is None:
        return
    rule, reason, remedy = "--output must be a new file", "", "Name another file"
    if source and os.path.realpath(source) == os.path.realpath(path):
        rule = "--output must be another file than --input"
        reason = "the same file for both"
    elif os.path.isdir(path):
        reason = "a folder"
    elif os.path.exists(path) and not overwrite:
        reason = "which exists"
        remedy += ", or pass --overwrite to replace it"
    elif not os.path.isdir(os.path.dirname(path) or "."):
        reason = "in a folder that does not exist"
        remedy = "Create the folder, or name another file"
    if reason:
        raise InputError(rule, f"{path!r}, {reason}", remedy)


def read_items(
    model: TextModel,
    path: str | None,
    columns: Sequence[str] | None = None,
    stored: Sequence[str] = (),
) -> Iterator[Item]:
    """Read the inputs of a model from a file.

    Args:
        model: The model that predicts.
        path: A table (.csv, .tsv), questions in SQuAD's format (.json, for a
            QuestionAnswerer), or lines: texts or JSON objects. None: lines of standard
            input.
        columns: Columns of the texts in a table or in JSON objects; None: `stored`, or
            else `text` and `text_b`, `words`, or `question` and `context`.
        stored: Columns that the model was trained with.

    Yields:
        An item for each row, question or line.

    Raises:
        InputError: A record is not an input of the model (the message has the file and
            the line), or there are no records.
    """
    check_input(path)
    choices = _column_choices(model, columns, stored)
    suffix = inner_suffix(path) if path else ""
    if suffix in _TABLES:
        yield from _read_table_items(model, path, choices)
    elif suffix == ".json" and isinstance(model, QuestionAnswerer):
        yield from (Item(q, q.id) for q in read_squad_ignoring_offsets(path))
    else:
        count, name = 0, path or STANDARD_INPUT
        items = read_line_items(model, _read_lines(path), choices, name)
        for count, item in enumerate(items, 1):  # noqa: B007 - used after the loop
            yield item
        if not count and path:
            raise InputError(
                "--input must have one or more lines", f"{path!r}, an empty file",
                "Check the path",
            )  # fmt: skip
        if not count:
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
        lines: JSON objects for any model; or texts, for a model of pairs two texts
            separated by a tab, for a TokenClassifier words separated by spaces.
        choices: Keys of the texts in JSON objects, in order of preference; None: the
            standard ones.
        name: Source of the lines, for messages.

    Yields:
        An item for each line.

    Raises:
        InputError: A line is not an input of the model.
    """
    choices = choices or [_standard_names(model)]
    for number, line in enumerate(lines, 1):
        line = line.rstrip("\r\n")
        if number == 1:
            line = line.removeprefix("\ufeff")
        place = f"{name}, line {number}"
        record = _parse_json(line, place)
        if record is not None:
            yield _parse_record(model, record, choices, place, line)
        else:
            yield Item(_parse_text(model, line, place))


def _standard_names(model: TextModel) -> tuple[str, ...]:
    if isinstance(model, QuestionAnswerer):
        return ("question", "context")
    if isinstance(model, TokenClassifier):
        return ("words",)
    return ("text", "text_b") if model.pairs else ("text",)


def _column_choices(
    model: TextModel, columns: Sequence[str] | None, stored: Sequence[str]
) -> list[tuple[str, ...]]:
    """Return the columns to look for, in order of preference."""
    standard = _standard_names(model)
    if columns is None:
        return [*([tuple(stored)] if stored else []), standard]
    if len(columns) != len(standard):
        raise InputError(
            f"--text_columns must name {len(standard)} "
            f"column{'s' * (len(standard) > 1)} for this {type(model).__name__}",
            f"--text_columns={','.join(columns)}",
            "Name a column for each text of the model",
        )
    return [tuple(columns)]


def _choose_columns(choices: Sequence[tuple[str, ...]], names: Iterable[str]) -> tuple:
    """Return the first choice whose columns all exist, or else the first choice."""
    existing = set(names)
    return next((c for c in choices if existing.issuperset(c)), choices[0])


def _read_table_items(
    model: TextModel, path: str, choices: Sequence[tuple[str, ...]]
) -> Iterator[Item]:
    rows = read_table(path, DataErrorLog("stop", "", "A table must be readable"))
    columns = _choose_columns(choices, rows[0].values)
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
        texts = tuple(row.values[column] for column in columns)
        yield Item(_to_value(model, texts, f"{row}"), row.values.get(_ID))


def _parse_record(
    model: TextModel,
    record: Mapping[str, Any],
    choices: Sequence[tuple[str, ...]],
    place: str,
    line: str,
) -> Item:
    names = _choose_columns(choices, record)
    words = isinstance(model, TokenClassifier)
    valid = all(
        isinstance(record.get(name), str)
        or (words and isinstance(record.get(name), list))
        for name in names
    )
    if not valid:
        raise InputError(
            f"A line must be a JSON object with {' and '.join(names)}, each a "
            + ("list of strings" if words else "string"),
            f"{place}: {line!r:.80}",
            "Correct the line, or name the keys with --text_columns",
        )
    item_id = record.get(_ID)
    if not isinstance(item_id, str | int | None):
        raise InputError(
            f"`{_ID}` must be a string or a whole number",
            f"{place}: {item_id!r:.80}",
            "Correct the line",
        )
    texts = tuple(record[name] for name in names)
    return Item(_to_value(model, texts, place), item_id)


def _to_value(model: TextModel, texts: tuple[Any, ...], place: str) -> Any:
    """Convert the texts of a record to an input of `model.examples`."""
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


def _parse_text(model: TextModel, line: str, place: str) -> Any:
    """Convert a line that is not JSON to an input of `model.examples`."""
    if isinstance(model, QuestionAnswerer):
        raise InputError(
            "A line must be a JSON object with question and context",
            f"{place}: {line!r:.80}",
            "Write each question as a JSON object on its own line, or name a .json "
            "file in SQuAD's format",
        )
    if isinstance(model, TokenClassifier):
        return line.split()
    if not model.pairs:
        return line
    texts = line.split("\t")
    if len(texts) != 2:
        raise InputError(
            "A line must be two texts separated by a tab, as the model takes pairs",
            f"{place}, with {len(texts)}",
            "Correct the line, or write JSON objects with text and text_b",
        )
    return tuple(texts)


def _parse_json(line: str, place: str) -> dict[str, Any] | None:
    if not line.startswith("{"):
        return None
    try:
        value = parse_json(line, place)
    except ValueError as error:
        if not line.startswith('{"'):  # a text may begin with a brace
            return None
        raise InputError(
            'A line that begins with {" must be a JSON object',
            f"{place}: {error}",
            'Correct the line, or write the text itself as {"text": "..."}',
        ) from error
    return value if isinstance(value, dict) else None


def _bounded_lines(file: TextIO, name: str) -> Iterator[str]:
    number = 0
    while line := file.readline(MAX_LINE + 1):
        number += 1
        if len(line) > MAX_LINE:
            raise long_line(name, number, MAX_LINE)
        yield line


def _read_lines(path: str | None) -> Iterator[str]:
    name = path or STANDARD_INPUT
    try:
        if path is None:
            # By default, invalid UTF-8 in standard input raises no error here.
            sys.stdin.reconfigure(encoding="utf-8", errors="strict")
            yield from _bounded_lines(sys.stdin, name)
        else:
            with io.TextIOWrapper(open_compressed(path), encoding="utf-8") as file:
                yield from _bounded_lines(file, name)
    except UnicodeDecodeError as error:
        raise InputError(
            "Lines must be UTF-8", f"{name}: {error}",
            encoding_remedy(path, error.object),
        ) from error  # fmt: skip
    except (OSError, *BROKEN) as error:
        raise InputError(
            f"{name} must be readable to its end", str(error),
            "Copy or compress it again, or check its permissions",
        ) from error  # fmt: skip
