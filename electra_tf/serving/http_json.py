"""JSON of TF Serving's REST API: requests to arrays, and arrays to responses.

`instances` are rows and are answered with `predictions`; `inputs` are columns and are
answered with `outputs`. Strings may be `{"b64": ...}`.

Rows of a request without `signature_name` may have the columns of the training data,
and are answered with the names of classes. Other requests are answered as TF Serving
does.
"""

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from aiohttp.web import HTTPBadRequest

MAX_VALUES = 2**23  # in a response: some 100 MB of JSON
DEFAULT = "serving_default"  # signature of a request without a name
_KEYS = ("signature_name", "instances", "inputs")
_SHOWN = 60  # characters of a value in a message
Specs = Mapping[str, tf.TensorSpec]
Columns = Mapping[str, Sequence[str]]  # of the training data by input


class Call(NamedTuple):
    """Request to a signature."""

    signature: str
    arrays: dict[str, np.ndarray]
    by_rows: bool
    by_name: bool
    """True if the answer has the names of classes in place of their order."""


def decode(body: bytes, inputs_of: Mapping[str, Specs], columns: Columns) -> Call:
    """Parse a request, given the inputs by signature, strings or integers."""
    try:
        request = json.loads(body.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise HTTPBadRequest(text=f"JSON Parse error: {error}") from error
    if not isinstance(request, dict):
        raise HTTPBadRequest(text=f"JSON Value: {_shown(request)} Is not object")
    if unknown := request.keys() - {*_KEYS}:
        known = f"A request has {', '.join(_KEYS)}"
        raise HTTPBadRequest(text=f"Unknown key {_shown(min(unknown))}. {known}")
    name = request.get("signature_name") or DEFAULT
    if not isinstance(name, str) or name not in inputs_of:
        known = f"not found in signature def. Signatures: {', '.join(inputs_of)}"
        raise HTTPBadRequest(text=f"Serving signature name: {_shown(name)} {known}")
    if ("instances" in request) == ("inputs" in request):
        raise HTTPBadRequest(text="A request must have 'inputs' or 'instances'")
    specs, by_rows = inputs_of[name], "instances" in request
    are_texts = all(spec.dtype == tf.string for spec in specs.values())
    by_name = by_rows and are_texts and not request.get("signature_name")
    if by_rows:
        rows = request["instances"]
        if not (isinstance(rows, list) and rows):
            text = "'instances' must be a list of one or more values"
            raise HTTPBadRequest(text=text)
        values, names = _from_rows(rows, specs, columns if by_name else {})
    else:
        values, names = _from_columns(request["inputs"], specs)
    arrays = {}
    for key, spec in specs.items():
        try:
            arrays[key] = _array(values[key], spec)
        except _InvalidValueError as error:
            place = _place(by_rows, names.get(key, ()), error.numbers)
            text = f"{place} must be {error.kind}. Received: {_shown(error.value)}"
            raise HTTPBadRequest(text=text) from error
    return Call(name, arrays, by_rows, by_name)


def encode(outputs: Mapping[str, np.ndarray], by_rows: bool) -> bytes:
    """Write a response, with one value in place of an object if there is one output."""
    columns = _json_columns(outputs)
    if len(columns) == 1:
        (values,) = columns.values()
    else:
        values = _json_rows(columns) if by_rows else columns
    answer = {"predictions" if by_rows else "outputs": values}
    return json.dumps(answer, ensure_ascii=False).encode()


def encode_by_name(
    outputs: Mapping[str, np.ndarray],
    inputs: Mapping[str, np.ndarray],
    about: Mapping[str, Any],
) -> bytes:
    """Write rows with names of classes, by the facts of `about.json`."""
    rows = _json_rows(_json_columns(outputs))
    kind, labels = about.get("kind"), about.get("labels", ())
    if kind == "classifier":
        rows = [_classes(row, labels, about.get("multi_label")) for row in rows]
    elif kind == "token_classifier":
        rows = list(map(_words, rows))
    elif kind == "choice_classifier":
        choices = _values(inputs["choices"])
        rows = [_choice(row, *one) for row, one in zip(rows, zip(choices), strict=True)]
    return json.dumps({"predictions": rows}, ensure_ascii=False).encode()


def _classes(
    row: dict[str, Any], labels: Sequence[str], multi_label: bool
) -> dict[str, Any]:
    """Return `label` and `score`, or `labels`, and `probabilities` by class."""
    probabilities = dict(zip(labels, row["probabilities"], strict=True))
    if multi_label:
        first = {"labels": [label for label in row["labels"] if label]}
    else:
        first = {"label": row["label"], "score": probabilities[row["label"]]}
    return first | {"probabilities": probabilities, "pieces_cut": row["pieces_cut"]}


def _words(row: dict[str, Any]) -> dict[str, Any]:
    """Return `words`, and `labels` and `scores` of each, without the padding."""
    count = sum(map(bool, row["words"]))
    names = {"words": "words", "labels": "labels", "probabilities": "scores"}
    return {new: row[old][:count] for old, new in names.items()}


def _choice(row: dict[str, Any], choices: Sequence[str]) -> dict[str, Any]:
    """Return number, text and `score` of the best choice, and all probabilities."""
    best, probabilities = row["choice"], row["probabilities"]
    own = {"choice": best, "label": choices[best], "score": probabilities[best]}
    return own | {"probabilities": probabilities, "pieces_cut": row["pieces_cut"]}


# Requests.

_Values = tuple[Mapping[str, Any], Columns]
"""Values of each input for all rows, and the keys that it has in the request; none: the
request has values in place of objects."""


class _InvalidValueError(ValueError):
    """A value of another type, with the numbers of its row and of its place in it."""

    def __init__(self, value: Any, kind: str, *numbers: int):
        super().__init__(kind)
        self.value, self.kind, self.numbers = value, kind, numbers


def _from_rows(rows: Sequence[Any], specs: Specs, columns: Columns) -> _Values:
    first = rows[0]
    if _is_value(first, specs):
        return dict.fromkeys(specs, rows), {}
    named = {name for names in columns.values() for name in names}
    keys = first.keys() if isinstance(first, dict) else set()
    if not named or keys == specs.keys() or not keys <= named | specs.keys():
        columns = {key: [key] for key in specs}
    wanted = {name for names in columns.values() for name in names}
    for index, row in enumerate(rows):
        if not isinstance(row, dict) or row.keys() != wanted:
            lists = dict.fromkeys([",".join(specs), ",".join(sorted(named))])
            raise HTTPBadRequest(
                text=f"Failed to process element: {index} of 'instances' list. JSON "
                f"object: {_shown(row)} keys must be equal to: "
                f"{' or '.join(filter(None, lists))}"
            )
    values = {
        key: [_cell(row, columns[key], spec) for row in rows]
        for key, spec in specs.items()
    }
    return values, columns


def _from_columns(inputs: Any, specs: Specs) -> _Values:
    if _is_value(inputs, specs):
        return dict.fromkeys(specs, inputs), {}
    if not isinstance(inputs, dict) or inputs.keys() != specs.keys():
        raise HTTPBadRequest(
            text=f"'inputs' must be an object with the keys {','.join(specs)}. "
            f"Received: {_shown(inputs)}"
        )
    return inputs, {key: [key] for key in specs}


def _is_value(value: Any, specs: Specs) -> bool:
    """Return whether a value is that of the only input, and no object of inputs."""
    return len(specs) == 1 and (not isinstance(value, dict) or [*value] == ["b64"])


def _cell(row: Mapping[str, Any], names: Sequence[str], spec: tf.TensorSpec) -> Any:
    """Return the value of an input: of one column, of several, or "" of none."""
    if len(names) == 1:
        return row[names[0]]
    return [row[name] for name in names] if spec.shape.rank == 2 else ""


def _place(by_rows: bool, names: Sequence[str], numbers: Sequence[int]) -> str:
    """Return the place of a value in the request, such as `instances[1].text`."""
    if len(names) > 1 and len(numbers) > 1:  # a column for each value of a list
        names, numbers = [names[numbers[1]]], numbers[:1]
    brackets, keys = [f"[{n}]" for n in numbers], [f".{','.join(names)}"] * bool(names)
    if by_rows:
        return "".join(["instances", *brackets[:1], *keys, *brackets[1:]])
    return "".join(["inputs", *keys, *brackets])


def _array(values: Any, spec: tf.TensorSpec) -> np.ndarray:
    """Return the values of all rows: strings or integers, or lists of them."""
    if not isinstance(values, list):
        raise _InvalidValueError(values, "a list with a value for each row")
    parse = _bytes if spec.dtype == tf.string else _integer(spec.dtype)
    leaves, shape = values, [len(values)]
    if spec.shape.rank == 2:
        shape.append(_common_length(values))
        rows = [_parsed(parse, row, number) for number, row in enumerate(values)]
        leaves = [leaf for row in rows for leaf in row]
    else:
        leaves = _parsed(parse, values)
    return np.array(leaves, spec.dtype.as_numpy_dtype).reshape(shape)


def _common_length(rows: Sequence[Any]) -> int:
    for number, row in enumerate(rows):
        if not isinstance(row, list):
            raise _InvalidValueError(row, "a list", number)
        if len(row) != len(rows[0]):
            kind = f"a list of the size of the first, {len(rows[0])}"
            raise _InvalidValueError(row, kind, number)
    return len(rows[0]) if rows else 0


def _parsed(parse: Callable, values: Sequence[Any], *numbers: int) -> list[Any]:
    leaves = []
    for number, value in enumerate(values):
        try:
            leaves.append(parse(value))
        except _InvalidValueError as error:
            error.numbers = (*numbers, number)
            raise
    return leaves


def _integer(dtype: tf.DType) -> Callable[[Any], int]:
    low, high = dtype.min, dtype.max

    def parse(value: Any) -> int:
        if type(value) is not int or not low <= value <= high:
            raise _InvalidValueError(value, f"an integer of the type {dtype.name}")
        return value

    return parse


def _bytes(value: Any) -> bytes:
    try:
        if isinstance(value, str):
            return value.encode()
        if isinstance(value, dict) and isinstance(value.get("b64"), str):
            return base64.b64decode(value["b64"], validate=True)
    except ValueError as error:  # half of a surrogate pair, or other characters
        raise _InvalidValueError(value, "a string of Unicode or base64") from error
    raise _InvalidValueError(value, "a string")


def _shown(value: Any) -> str:
    """Return the beginning of a value as JSON."""
    text = json.dumps(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


# Responses.


def _json_columns(outputs: Mapping[str, np.ndarray]) -> dict[str, list[Any]]:
    if (size := sum(array.size for array in outputs.values())) > MAX_VALUES:
        sizes = f"at most {MAX_VALUES} values, not {size}. Send the request in parts"
        raise HTTPBadRequest(text=f"A response must have {sizes}")
    return {name: _values(array) for name, array in outputs.items()}


def _json_rows(columns: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
    rows = zip(*columns.values(), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def _values(array: np.ndarray) -> list[Any]:
    if array.ndim > 1:
        return [_values(row) for row in array]
    if array.dtype == object:
        return [value.decode() for value in array]
    if array.dtype == np.float32:
        # The shortest digits of the type: those of 0.2 as a float64 would be noise.
        array = array.astype(str).astype(float)
    return array.tolist()
