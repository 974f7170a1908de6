"""JSON of TF Serving's REST API: requests to arrays, and arrays to responses.

`instances` are rows and are answered with `predictions`; `inputs` are columns and are
answered with `outputs`. Strings may be `{"b64": ...}`.

Rows of a request without `signature_name` may have the columns of the training data,
and are answered with the names of classes. Other requests are answered as TF Serving
does.
"""

import base64
import json
import math
from collections.abc import Mapping, Sequence
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
        arrays = _from_rows(rows, specs, columns if by_name else {})
    else:
        arrays = _from_columns(request["inputs"], specs)
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
        rows = [_choice(row, one) for row, one in zip(rows, choices, strict=True)]
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


def _from_rows(
    rows: Sequence[Any], specs: Specs, columns: Columns
) -> dict[str, np.ndarray]:
    """Return the inputs of rows: values, or objects of inputs or of columns."""
    if _is_value(rows[0], specs):
        [(key, spec)] = specs.items()
        return {key: _array(rows, spec.dtype, spec.shape.rank, "instances")}
    named = {name for names in columns.values() for name in names}
    keys = rows[0].keys() if isinstance(rows[0], dict) else set()
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
    arrays = {}
    for key, spec in specs.items():
        names = columns[key]
        rank = spec.shape.rank if len(names) == 1 else 1
        of_names = [
            _array([row[n] for row in rows], spec.dtype, rank, "instances", f".{n}")
            for n in names
        ]
        if not names:
            arrays[key] = np.full(len(rows), b"", object)
        else:
            arrays[key] = of_names[0] if len(names) == 1 else np.stack(of_names, 1)
    return arrays


def _from_columns(inputs: Any, specs: Specs) -> dict[str, np.ndarray]:
    """Return the inputs of an object of lists, or of the list of the only input."""
    if _is_value(inputs, specs):
        [(key, spec)] = specs.items()
        return {key: _array(inputs, spec.dtype, spec.shape.rank, "inputs")}
    if not isinstance(inputs, dict) or inputs.keys() != specs.keys():
        raise HTTPBadRequest(
            text=f"'inputs' must be an object with the keys {','.join(specs)}. "
            f"Received: {_shown(inputs)}"
        )
    return {
        key: _array(inputs[key], spec.dtype, spec.shape.rank, f"inputs.{key}")
        for key, spec in specs.items()
    }


def _is_value(value: Any, specs: Specs) -> bool:
    """Return whether a value is that of the only input, and no object of inputs."""
    return len(specs) == 1 and (not isinstance(value, dict) or [*value] == ["b64"])


def _array(
    values: Any, dtype: tf.DType, rank: int, before: str, after: str = ""
) -> np.ndarray:
    """Return strings or integers, or lists of them, as an array.

    A value has the place `BEFORE[NUMBER]AFTER` in the request.
    """
    if not isinstance(values, list):
        raise _invalid(before, values, "a list with a value for each row")
    if rank == 1:
        return np.array(_leaves(values, dtype, before, after), dtype.as_numpy_dtype)
    leaves = []
    for number, row in enumerate(values):
        place = f"{before}[{number}]{after}"
        if not isinstance(row, list):
            raise _invalid(place, row, "a list")
        if len(row) != len(values[0]):
            size = f"a list of the size of the first, {len(values[0])}"
            raise _invalid(place, row, size)
        leaves += _leaves(row, dtype, place)
    shape = len(values), len(values[0]) if values else 0
    return np.array(leaves, dtype.as_numpy_dtype).reshape(shape)


def _leaves(
    values: Sequence[Any], dtype: tf.DType, before: str, after: str = ""
) -> list[bytes | int]:
    """Return values as bytes or as integers of a type."""
    if dtype == tf.string:
        kind, leaves = "a string", list(map(_bytes, values))
    else:
        kind, (low, high) = f"an integer of the type {dtype.name}", dtype.limits
        leaves = [v if type(v) is int and low <= v <= high else None for v in values]
    if None in leaves:
        number = leaves.index(None)
        value = values[number]
        if dtype == tf.string and (isinstance(value, str) or _is_base64(value)):
            kind = "a string of Unicode or base64"
        raise _invalid(f"{before}[{number}]{after}", value, kind)
    return leaves


def _bytes(value: Any) -> bytes | None:
    """Return a string, or one of base64, as bytes; None: it is neither."""
    try:
        if isinstance(value, str):
            return value.encode()
        if _is_base64(value):
            return base64.b64decode(value["b64"], validate=True)
    except ValueError:  # half of a surrogate pair, or other characters
        pass
    return None


def _is_base64(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("b64"), str)


def _invalid(place: str, value: Any, kind: str) -> HTTPBadRequest:
    """Return an error for a value of another type."""
    text = f"{place} must be {kind}. Received: {_shown(value)}"
    return HTTPBadRequest(text=text)


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
    """Return values as JSON has them: null for NaN and for infinity."""
    if array.ndim > 1:
        return [_values(row) for row in array]
    if array.dtype == object:
        return [value.decode() for value in array]
    if array.dtype == np.float32:
        # The shortest digits of the type: those of 0.2 as a float64 would be noise.
        array = array.astype(str).astype(float)
    values = array.tolist()
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        return [value if math.isfinite(value) else None for value in values]
    return values
