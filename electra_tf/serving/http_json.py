"""JSON of TF Serving's REST API: requests to arrays, and arrays to responses.

`instances` are rows and are answered with `predictions`; `inputs` are columns and are
answered with `outputs`. Strings may be `{"b64": ...}`.
"""

import base64
import json
import reprlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from aiohttp.web import HTTPBadRequest

MAX_VALUES = 2**23  # in a response: some 100 MB of JSON
DEFAULT = "serving_default"  # signature of a request without a name
_KEYS = ("signature_name", "instances", "inputs")
_shown = reprlib.repr  # the beginning of a value
Specs = Mapping[str, tf.TensorSpec]


def decode(
    body: bytes, inputs_of: Mapping[str, Specs]
) -> tuple[str, dict[str, np.ndarray], bool]:
    """Return the signature's name, the inputs, and whether a request has rows, given
    the inputs by signature, which are strings or integers."""
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
    columns = _columns(request, "instances" if by_rows else "inputs", specs)
    return name, {key: _array(columns[key], specs[key]) for key in specs}, by_rows


def encode(outputs: Mapping[str, np.ndarray], by_rows: bool) -> bytes:
    """Write a response, with one value in place of an object if there is one output."""
    if (size := sum(array.size for array in outputs.values())) > MAX_VALUES:
        sizes = f"at most {MAX_VALUES} values, not {size}. Send the request in parts"
        raise HTTPBadRequest(text=f"A response must have {sizes}")
    columns = {name: _values(array) for name, array in outputs.items()}
    if len(columns) == 1:
        (values,) = columns.values()
    elif by_rows:
        rows = zip(*columns.values(), strict=True)
        values = [dict(zip(columns, row, strict=True)) for row in rows]
    else:
        values = columns
    answer = {"predictions" if by_rows else "outputs": values}
    return json.dumps(answer, ensure_ascii=False).encode()


def _columns(request: Mapping[str, Any], key: str, specs: Specs) -> Mapping[str, Any]:
    """Return the values of each input for all rows."""
    by_rows, values = key == "instances", request[key]
    if by_rows and not (isinstance(values, list) and values):
        raise HTTPBadRequest(text="'instances' must be a list of one or more values")
    rows = values if by_rows else [values]
    # An object is one of inputs or a string in base 64.
    if len(specs) == 1 and (not isinstance(rows[0], dict) or [*rows[0]] == ["b64"]):
        return dict.fromkeys(specs, values)
    for index, row in enumerate(rows):
        if not isinstance(row, dict) or row.keys() != specs.keys():
            raise HTTPBadRequest(
                text=f"Failed to process element: {index} of '{key}' list. JSON "
                f"object: {_shown(row)} keys must be equal to: {','.join(specs)}"
            )
    return {name: [row[name] for row in rows] for name in specs} if by_rows else values


def _array(value: Any, spec: tf.TensorSpec) -> np.ndarray:
    nested = np.array(value, object)  # lists of different sizes stay lists
    if nested.ndim != spec.shape.rank:
        raise HTTPBadRequest(
            text=f"{spec.name} must have {spec.shape.rank} axes, that of the rows "
            f"included, and lists of one size. Its shape is {[*nested.shape[:8]]}"
        )
    if spec.dtype == tf.string:
        leaves = [_bytes(leaf) for leaf in nested.flat]
    else:
        leaves, low, high = nested.ravel().tolist(), spec.dtype.min, spec.dtype.max
        for leaf in leaves:
            if type(leaf) is not int or not low <= leaf <= high:
                raise _wrong_type(leaf, spec.dtype.name)
    return np.array(leaves, spec.dtype.as_numpy_dtype).reshape(nested.shape)


def _bytes(value: Any) -> bytes:
    try:
        if isinstance(value, str):
            return value.encode()
        if isinstance(value, dict) and isinstance(value.get("b64"), str):
            return base64.b64decode(value["b64"], validate=True)
    except ValueError as error:  # half of a surrogate pair, or other characters
        raise _wrong_type(value, "string of Unicode or base64") from error
    raise _wrong_type(value, "string")


def _wrong_type(value: Any, kind: str) -> HTTPBadRequest:
    return HTTPBadRequest(
        text=f"JSON Value: {_shown(value)} is not of expected type: {kind}"
    )


def _values(array: np.ndarray) -> list[Any]:
    if array.ndim > 1:
        return [_values(row) for row in array]
    if array.dtype == object:
        return [value.decode() for value in array]
    if array.dtype == np.float32:
        # The shortest digits of the type: those of 0.2 as a float64 would be noise.
        array = array.astype(str).astype(float)
    return array.tolist()
