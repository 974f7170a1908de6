"""Convert lines, JSON and rows to inputs of a model, for `predict`."""

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from electra_tf.errors import InputError, format_list
from electra_tf.tasks.answerer import QuestionAnswerer
from electra_tf.tasks.conll import WORD_KEYS
from electra_tf.tasks.tagger import TokenClassifier
from electra_tf.tasks.text_model import TextModel
from electra_tf.text.json_file import parse_json
from electra_tf.text.json_records import describe_json

ID = "id"
"""Column or key of the id of a record."""
STANDARD_INPUT = "standard input"


@dataclasses.dataclass(frozen=True, slots=True)
class Item:
    """Input of a model with its id."""

    value: Any
    """An element of the argument `x` of `model.examples`."""
    id: str | int | None = None
    """Id of the record in the file; None: it has none."""
    is_split: bool = dataclasses.field(default=False, compare=False)
    """Whether the words of a tagger are a text that was split at white space."""


def read_line_items(
    model: TextModel,
    lines: Iterable[str],
    choices: Sequence[tuple[str, ...]] | None = None,
    name: str = STANDARD_INPUT,
    is_json: bool = False,
) -> Iterator[Item]:
    """Parse lines of text or JSON."""
    choices = choices or column_choices(model, None, ())
    for number, line in enumerate(lines, 1):
        line = line.rstrip("\r\n")
        if number == 1:
            line = line.removeprefix("\ufeff")
        place = f"{name}, line {number}"
        if is_json and line.strip():
            yield to_item(model, _parse_value(line, place), choices, place)
        elif not is_json:
            record = _parse_json(line, place)
            if record is None:
                yield _parse_text(model, line, place)
            else:
                yield _parse_record(model, record, choices, place)


def _standard_names(model: TextModel) -> tuple[str, ...]:
    if isinstance(model, QuestionAnswerer):
        return ("question", "context")
    if isinstance(model, TokenClassifier):
        return ("words",)
    return ("text", "text_b") if model.pairs else ("text",)


def column_choices(
    model: TextModel, columns: Sequence[str] | None, stored: Sequence[str]
) -> list[tuple[str, ...]]:
    """Return the columns to look for, in order of preference."""
    standard = _standard_names(model)
    if columns is None:
        usual = [standard]
        if isinstance(model, TokenClassifier):
            usual = [(key,) for key in WORD_KEYS]
        return [*([tuple(stored)] if stored else []), *usual]
    if len(columns) != len(standard):
        raise InputError(
            f"--text_columns must name {len(standard)} "
            f"column{'s' * (len(standard) > 1)} for this {type(model).__name__}",
            f"--text_columns={','.join(columns)}",
            "Name a column for each text of the model",
        )
    return [tuple(columns)]


def choose_columns(choices: Sequence[tuple[str, ...]], names: Iterable[str]) -> tuple:
    """Return the first choice whose columns all exist, or else the first choice."""
    existing = set(names)
    return next((c for c in choices if existing.issuperset(c)), choices[0])


def to_item(
    model: TextModel, value: Any, choices: Sequence[tuple[str, ...]], place: str
) -> Item:
    """Convert a JSON object or a text."""
    if isinstance(value, dict):
        return _parse_record(model, value, choices, place)
    if isinstance(value, str):
        return _parse_text(model, value, place)
    raise InputError(
        "A record of JSON must be an object or a string",
        f"{place}: {describe_json(value)}",
        "Write it as an object with the keys of its texts",
    )


def _parse_record(
    model: TextModel,
    record: Mapping[str, Any],
    choices: Sequence[tuple[str, ...]],
    place: str,
) -> Item:
    names = choose_columns(choices, record)
    words = isinstance(model, TokenClassifier)
    valid = all(
        isinstance(record.get(name), str)
        or (words and isinstance(record.get(name), list))
        for name in names
    )
    if not valid:
        nested = [
            key for key, value in record.items() if isinstance(value, dict | list)
        ]
        raise InputError(
            f"A record must be a JSON object with {' and '.join(names)}, each a "
            + ("list of strings" if words else "string"),
            f"{place}: {json.dumps(record, ensure_ascii=False)!r:.80}",
            "Correct the record, or name the keys with --text_columns"
            + f"; keys within {format_list(nested)} are not read" * bool(nested),
        )
    item_id = record.get(ID)
    if not isinstance(item_id, str | int | None):
        raise InputError(
            f"`{ID}` must be a string or a whole number",
            f"{place}: {item_id!r:.80}",
            "Correct the line",
        )
    texts = tuple(record[name] for name in names)
    is_split = words and isinstance(texts[0], str)
    return Item(to_value(model, texts, place), item_id, is_split)


def to_value(model: TextModel, texts: tuple[Any, ...], place: str) -> Any:
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


def _parse_text(model: TextModel, line: str, place: str) -> Item:
    """Convert a text, or two of a pair with a tab between them."""
    if isinstance(model, QuestionAnswerer):
        raise InputError(
            "A line must be a JSON object with question and context",
            f"{place}: {line!r:.80}",
            "Write each question as a JSON object on its own line, or name a .json "
            "file in SQuAD's format",
        )
    if isinstance(model, TokenClassifier):
        return Item(line.split(), is_split=True)
    if not model.pairs:
        return Item(line)
    texts = line.split("\t")
    if len(texts) != 2:
        raise InputError(
            "A line must be two texts separated by a tab, as the model takes pairs",
            f"{place}, with {len(texts)}",
            "Correct the line, or write JSON objects with text and text_b",
        )
    return Item(tuple(texts))


def _parse_value(line: str, place: str) -> Any:
    try:
        return parse_json(line)
    except ValueError as error:
        raise InputError(
            "Each line of a .jsonl must be JSON",
            f"{place}: {error}",
            "Correct the line; lines of texts belong in a .txt file",
        ) from error


def _parse_json(line: str, place: str) -> dict[str, Any] | None:
    if not line.startswith("{"):
        return None
    try:
        value = parse_json(line)
    except ValueError as error:
        if not line.startswith('{"'):  # a text may begin with a brace
            return None
        raise InputError(
            'A line that begins with {" must be a JSON object',
            f"{place}: {error}",
            'Correct the line, or write the text itself as {"text": "..."}',
        ) from error
    return value if isinstance(value, dict) else None
