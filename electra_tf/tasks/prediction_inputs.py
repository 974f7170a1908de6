"""Read the inputs of `predict`: lines, tables, JSON, column files, questions."""

import io
import itertools
import json
import os
import sys
from collections.abc import Iterator, Sequence

from electra_tf.errors import InputError
from electra_tf.tasks.answerer import QuestionAnswerer
from electra_tf.tasks.conll import (
    COLUMN_SUFFIXES,
    is_column_file,
    read_conll,
    without_headers,
)
from electra_tf.tasks.prediction_records import (
    ID,
    STANDARD_INPUT,
    Item,
    choose_columns,
    column_choices,
    read_line_items,
    to_item,
    to_value,
)
from electra_tf.tasks.squad_json import read_squad_ignoring_offsets
from electra_tf.tasks.tables import (
    conversion,
    print_note,
    read_json,
    read_table,
    require_columns,
)
from electra_tf.tasks.tagger import TokenClassifier
from electra_tf.tasks.text_model import TextModel
from electra_tf.text.compression import BROKEN, inner_suffix, open_compressed
from electra_tf.text.data_errors import DataErrorLog
from electra_tf.text.file_formats import HEAD_BYTES, check_format, encoding_remedy
from electra_tf.text.json_records import SUFFIXES, begins_json

_TABLES = (".csv", ".tsv")
_MARKUP = (".html", ".htm", ".xml")
_HEAD_LINES = 100  # by which the format of lines is recognised


def check_input(path: str | None) -> None:
    """Raise an error if a path cannot be an input."""
    if path is None:
        return
    if not os.path.isfile(path):
        reason = "a folder" if os.path.isdir(path) else "no such file"
        raise InputError(
            "--input must be a file", f"{path!r}, {reason}", "Check the path"
        )
    kind = inner_suffix(path)
    if conversion(path) or kind in _MARKUP:
        raise InputError(
            "--input must be lines of text, a table (.csv, .tsv, .jsonl, .json), a "
            "column file for a tagger (.conll), or questions in SQuAD's format (.json)",
            f"{path!r}, a {kind} file",
            conversion(path) or "Write its texts to a .txt file, one on each line",
        )


def check_output(source: str | None, path: str | None, overwrite: bool) -> None:
    """Raise an error if predictions cannot be written to a path."""
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
    """Read the inputs of a model from a file."""
    check_input(path)
    choices = column_choices(model, columns, stored)
    noted = False
    for item in _items(model, path, choices, is_table=columns is not None):
        if item.is_split and not noted:
            print_note(
                "note: a text is split into words at white space only: 'Bern.' is one "
                'word. Write {"words": ["Bern", "."]} to split it otherwise'
            )
            noted = True
        yield item


def _items(
    model: TextModel,
    path: str | None,
    choices: Sequence[tuple[str, ...]],
    is_table: bool,
) -> Iterator[Item]:
    """Yield the items of a file by its suffix and its first lines.

    `is_table`: a .tsv for a tagger is a table, as its columns are named.
    """
    suffix, name = inner_suffix(path) if path else "", path or STANDARD_INPUT
    if suffix == ".csv" or (suffix == ".tsv" and is_table):
        yield from _read_table_items(model, path, choices)
        return
    if suffix == ".json":
        yield from _read_json_items(model, path, choices)
        return
    lines = _read_lines(path)
    head = list(itertools.islice(lines, _HEAD_LINES))
    lines = itertools.chain(head, lines)
    if suffix in SUFFIXES and head and head[0].removeprefix("\ufeff")[:1] == "[":
        yield from _read_json_items(model, path, choices)
    elif _is_column_file(model, suffix, head, choices):
        yield from _read_column_items(model, path, head)
    elif suffix == ".tsv":
        yield from _read_table_items(model, path, choices)
    else:
        _check_lines(model, suffix, head, name)
        count, is_json = 0, suffix in SUFFIXES
        items = read_line_items(model, lines, choices, name, is_json)
        for count, item in enumerate(items, 1):  # noqa: B007 - used after the loop
            yield item
        if not count and path:
            raise InputError(
                "--input must have one or more lines", f"{path!r}, an empty file",
                "Check the path",
            )  # fmt: skip
        if not count:
            print_note("standard input has no lines: no predictions")


def _check_lines(model: TextModel, suffix: str, head: Sequence[str], name: str) -> None:
    """Raise an error for lines that are parts of a JSON document, or columns."""
    first = head[0].strip().removeprefix("\ufeff") if head else ""
    is_tagger = isinstance(model, TokenClassifier)
    if suffix in COLUMN_SUFFIXES or (not is_tagger and is_column_file(head, ())):
        raise InputError(
            "Columns of words must be the input of a TokenClassifier",
            f"{name} for a {type(model).__name__}",
            "Write texts, one on each line of a .txt file",
        )
    if suffix not in SUFFIXES and (begins_json(first) and not first.startswith('{"')):
        raise InputError(
            "A line must be a text or a JSON object",
            f"{name} with the first line {first!r:.40}, which begins a JSON list or an "
            "object of several lines",
            "Save it as a file whose name ends with .json, and pass that as --input; "
            f"if it is a text, write it as {json.dumps({'text': first})!s:.80}",
        )


def _is_column_file(
    model: TextModel,
    suffix: str,
    head: Sequence[str],
    choices: Sequence[tuple[str, ...]],
) -> bool:
    """Return whether an input of a TokenClassifier has a word on each line."""
    if not isinstance(model, TokenClassifier) or suffix in SUFFIXES:
        return False
    if suffix in COLUMN_SUFFIXES:
        return True
    header = head[0].rstrip("\r\n").split("\t") if head else []
    if suffix == ".tsv" and any(set(names) <= set(header) for names in choices):
        return False
    return is_column_file(head, model.tags)


def _read_column_items(
    model: TokenClassifier, path: str | None, head: Sequence[str]
) -> Iterator[Item]:
    if path is None:
        raise InputError(
            "Standard input must be texts or JSON objects, one on each line",
            "columns of words and tags",
            "Save it as a file whose name ends with .conll, and pass that as --input",
        )
    settings, log = (
        model.settings.data,
        DataErrorLog("stop", "", "Columns must be even"),
    )
    columns = settings.word_column, settings.tag_column
    with_tags = any(len(line.split()) > 1 for line in head)
    if not with_tags:
        columns = 0, None
    sentences = read_conll(path, *columns, log, notify=print_note)
    if with_tags:
        sentences = without_headers({"": sentences}, print_note)[""]
    print_note(f"{path}: read as columns, word {columns[0]}; its tags are not used")
    yield from (Item(list(sentence.words)) for sentence in sentences)


def _read_json_items(
    model: TextModel, path: str, choices: Sequence[tuple[str, ...]]
) -> Iterator[Item]:
    log = DataErrorLog("stop", "", "JSON must be readable")
    is_empty = True
    for line, value in read_json(path, log):
        is_empty, answerer = False, isinstance(model, QuestionAnswerer)
        if answerer and isinstance(value, dict) and "data" in value:
            yield from (Item(q, q.id) for q in read_squad_ignoring_offsets(path))
        else:
            yield to_item(model, value, choices, f"{path}, line {line}")
    if is_empty:
        raise InputError(
            "--input must have one or more records", f"{path!r} with none",
            "Check the path",
        )  # fmt: skip


def _read_table_items(
    model: TextModel, path: str, choices: Sequence[tuple[str, ...]]
) -> Iterator[Item]:
    rows = read_table(path, DataErrorLog("stop", "", "A table must be readable"))
    columns = choose_columns(choices, rows[0].values)
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
        item_id, is_split = row.values.get(ID), isinstance(model, TokenClassifier)
        yield Item(to_value(model, texts, f"{row}"), item_id, is_split)


def _read_lines(path: str | None) -> Iterator[str]:
    name = path or STANDARD_INPUT
    try:
        if path is None:
            # By default, invalid UTF-8 in standard input raises no error here.
            sys.stdin.reconfigure(encoding="utf-8", errors="strict")
            for number, line in enumerate(sys.stdin):
                if not number:
                    head = line[:HEAD_BYTES].encode()
                    check_format("FILE", head, is_decompressed=False)
                yield line
        else:
            with io.TextIOWrapper(open_compressed(path), encoding="utf-8") as file:
                yield from file
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
