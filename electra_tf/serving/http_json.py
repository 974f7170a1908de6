"""JSON of TF Serving's REST API: requests to arrays, and arrays to responses.

`instances` are rows and are answered with `predictions`; `inputs` are columns and are
answered with `outputs`. Strings may be `{"b64": ...}`. Not a number is `NaN`, as TF
Serving writes it, which is no JSON of the standard.
"""

import base64
import binascii
import json
import reprlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

MAX_NUMBERS = 2**23
"""Values in a response, at most: some 100 MB of JSON."""
_KEYS = ("signature_name", "instances", "inputs")
DEFAULT = "serving_default"
"""Signature of a request without a name."""


class RequestError(Exception):
    """Refusal of a request; its message, for the client, has no local paths."""

    def __init__(self, message: str, status: int = 400):
        super().__init__(message)
        self.message, self.status = message, status


class PredictRequest(NamedTuple):
    """Decoded request."""

    signature: str
    arrays: dict[str, np.ndarray]
    by_rows: bool
    """True for `instances`, answered with `predictions`; False for `inputs`."""


Specs = Mapping[str, tf.TensorSpec]


def decode(body: bytes, inputs_of: Mapping[str, Specs]) -> PredictRequest:
    """Read a request in UTF-8, given types and shapes of the inputs by signature.

    Returns:
        Arrays of the types and numbers of axes that the signature has.

    Raises:
        RequestError: The request does not fit the signature.
    """
    request = _parse(body)
    if unknown := sorted(request.keys() - {*_KEYS}):
        raise RequestError(
            f"Unknown key {_shown(unknown[0])}. A request has {', '.join(_KEYS)}"
        )
    name = request.get("signature_name", DEFAULT)
    if not isinstance(name, str):
        raise RequestError("'signature_name' key must be a string value")
    name = name or DEFAULT
    if name not in inputs_of:
        raise RequestError(
            f"Serving signature name: {_shown(name)} not found in signature def. "
            f"Signatures: {', '.join(sorted(inputs_of))}"
        )
    if ("instances" in request) == ("inputs" in request):
        raise RequestError("A request must have one of 'inputs' and 'instances'")
    by_rows = "instances" in request
    values = (_columns if by_rows else _inputs)(request, inputs_of[name])
    arrays = {key: _array(values[key], spec) for key, spec in inputs_of[name].items()}
    return PredictRequest(name, arrays, by_rows)


def encode(outputs: Mapping[str, np.ndarray], by_rows: bool) -> bytes:
    """Write a response, with one value in place of an object if there is one output."""
    size = sum(array.size for array in outputs.values())
    if size > MAX_NUMBERS:
        raise RequestError(
            f"A response must have at most {MAX_NUMBERS} values. This one has {size}. "
            "Send the request in parts"
        )
    if not by_rows:
        texts = {name: _text(array, name) for name, array in outputs.items()}
        return f'{{"outputs": {_object(texts)}}}'.encode()
    rows = {len(array) if array.ndim else -1 for array in outputs.values()}
    if len(rows) > 1 or -1 in rows:
        raise RequestError(
            "Outputs have inconsistent batch sizes. Send 'inputs' in place of "
            "'instances'"
        )
    predictions = (
        _object({name: _text(array[row, ...], name) for name, array in outputs.items()})
        for row in range(rows.pop())
    )
    return f'{{"predictions": [{", ".join(predictions)}]}}'.encode()


def _parse(body: bytes) -> dict[str, Any]:
    try:
        text = body.decode("utf-8-sig")
        request = json.loads(text, object_pairs_hook=_without_repetition)
    except UnicodeDecodeError as error:
        raise RequestError(
            f"JSON must be UTF-8; byte {error.start} is not. Send other bytes as "
            '{"b64": "..."}'
        ) from error
    except json.JSONDecodeError as error:
        raise RequestError(
            f"JSON Parse error: {error.msg} at offset: {error.pos}"
        ) from error
    except RecursionError as error:
        raise RequestError("JSON Parse error: nested too deeply") from error
    except ValueError as error:  # an integer of thousands of digits
        raise RequestError("JSON Parse error: a number is too long") from error
    if not isinstance(request, dict):
        raise RequestError(f"JSON Value: {_shown(request)} Is not object")
    return request


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise RequestError(f"A key must occur once in an object: {_shown([*value])}")
    return value


def _columns(request: Mapping[str, Any], inputs: Specs) -> dict[str, list[Any]]:
    """Return the values of each input for all rows."""
    rows = request["instances"]
    if not isinstance(rows, list) or not rows:
        raise RequestError("'instances' must be a list of one or more values")
    if not _is_object(rows[0]):
        if len(inputs) > 1:
            raise RequestError(
                "Each of 'instances' must be an object with the keys "
                f"{', '.join(inputs)}"
            )
        (name,) = inputs
        rows = [{name: row} for row in rows]
    for index, row in enumerate(rows):
        if not isinstance(row, dict) or row.keys() != inputs.keys():
            raise RequestError(
                f"Failed to process element: {index} of 'instances' list. JSON "
                f"object: {_shown(row)} keys must be equal to: {','.join(inputs)}"
            )
    return {name: [row[name] for row in rows] for name in inputs}


def _inputs(request: Mapping[str, Any], inputs: Specs) -> dict[str, Any]:
    values = request["inputs"]
    if not _is_object(values) and len(inputs) == 1:
        return dict.fromkeys(inputs, values)
    if not isinstance(values, dict) or values.keys() != inputs.keys():
        raise RequestError(
            f"'inputs' must be an object with the keys {', '.join(inputs)}. Received: "
            f"{_shown(values)}"
        )
    return values


def _is_object(value: Any) -> bool:
    """Return whether a value is an object of inputs and not a string in base 64."""
    return isinstance(value, dict) and [*value] != ["b64"]


def _array(value: Any, spec: tf.TensorSpec) -> np.ndarray:
    shape, first = [], value
    while isinstance(first, list):
        shape.append(len(first))
        first = first[0] if first else None
    if spec.shape.rank not in (None, len(shape)):
        raise RequestError(
            f"{spec.name} must have {spec.shape.rank} axes, that of the rows included. "
            f"Received a value of the shape {shape[:8]}"
        )
    leaves = [value]
    for level, size in enumerate(shape):
        for item in leaves:
            if not isinstance(item, list) or len(item) != size:
                raise RequestError(
                    f"{spec.name}: JSON Value: {_shown(item)} at level: {level}; "
                    f"expected a list of size: {size}"
                )
        leaves = [leaf for item in leaves for leaf in item]
    array = np.empty(len(leaves), spec.dtype.as_numpy_dtype)
    array[:] = [_leaf(leaf, spec.dtype) for leaf in leaves]
    return array.reshape(shape)


def _leaf(value: Any, dtype: tf.DType) -> Any:
    """Return a value of a type; numbers are not converted with a loss."""
    if dtype == tf.string:
        if (text := _bytes(value)) is not None:
            return text
    elif dtype == tf.bool or isinstance(value, bool):
        if dtype == tf.bool and isinstance(value, bool):
            return value
    elif dtype.is_integer:
        if isinstance(value, int) and dtype.min <= value <= dtype.max:
            return value
    elif isinstance(value, int | float) and not (
        float("inf") > abs(value) > float(dtype.max)
    ):
        return value
    raise RequestError(
        f"JSON Value: {_shown(value)} is not of expected type: {dtype.name}"
    )


def _bytes(value: Any) -> bytes | None:
    """Return the bytes of a string; None for a value of another type."""
    try:
        if isinstance(value, str):
            return value.encode()
        if isinstance(value, dict) and isinstance(value.get("b64"), str):
            return base64.b64decode(value["b64"], validate=True)
    except UnicodeEncodeError as error:  # half of a surrogate pair
        raise RequestError("The surrogate pair in string is invalid") from error
    except binascii.Error as error:
        raise RequestError("Unable to base64 decode") from error
    return None


def _shown(value: Any) -> str:
    """Return the beginning of a value, for a message."""
    return reprlib.repr(value)


def _object(texts: Mapping[str, str]) -> str:
    if len(texts) == 1:
        return next(iter(texts.values()))
    items = (f"{json.dumps(name)}: {text}" for name, text in texts.items())
    return f"{{{', '.join(items)}}}"


def _text(array: np.ndarray, name: str) -> str:
    if array.ndim > 1:  # by rows: a number takes a hundred bytes while it is converted
        return f"[{', '.join(_text(row, name) for row in array)}]"
    leaf: Callable[[Any], Any] = lambda value: value  # noqa: E731
    if array.dtype == object:
        leaf = _base64 if name.endswith("_bytes") else bytes.decode
    elif array.dtype.kind == "f" and array.dtype != np.float64:
        # The shortest digits of the type: those of 0.2 as a float64 would be noise.
        array, leaf = array.astype(str), float
    return json.dumps(_mapped(array.tolist(), leaf), ensure_ascii=False)


def _mapped(value: Any, leaf: Callable[[Any], Any]) -> Any:
    if isinstance(value, list):
        return [_mapped(item, leaf) for item in value]
    return leaf(value)


def _base64(value: bytes) -> dict[str, str]:
    return {"b64": base64.b64encode(value).decode()}
