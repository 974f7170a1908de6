"""Requests of `serve_check`, as messages: real, hostile and random ones.

If the shapes of the inputs are those of the signature, a response with as many rows is
expected, which may be 0; otherwise an error. Ids may be out of range, texts too long,
and a message can declare a shape that its values do not have; then both results are
accepted.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2, types_pb2

TEXTS = (
    "A film to remember, and one I would see again tomorrow.",
    "The service was slow; the soup cold, the waiter rude!",
    "In 1869 the transcontinental railroad was completed at Promontory Summit, Utah.",
    "Café crème à Zürich: ΟΔΥΣΣΕΥΣ, Ёлка, ﬁnancial ½ №5",
    "这家酒店的服务非常好,房间也很干净。",
    "un-be-liev-able 🙂🙃 e\u0301 \u200d \u00ad [MASK] [SEP] ##ing",
    "tab\there, new\nline, no\u00a0break, wide\u3000space",
    "Where?",
    " ".join(f"word{number} of a text that is far too long" for number in range(90)),
)
RESPONSE, ERROR, EITHER = "a response", "an error", "either"
_LONG = 10_000  # bytes: longer texts may have more parts than a model accepts
_SHORT = 16  # positions that every model has
_IDS = 100  # entries that every vocabulary has
_EXPANDED = 2**22  # bytes that a random message may take once it is expanded
_UNUSUAL_TEXTS = {
    "an empty string": [b""],
    "white space": [b" \t\r\n\xe2\x80\xa8\xe3\x80\x80"],
    "a megabyte without space": [b"x" * 2**20],
    "invalid UTF-8": [b"\xff\xfe caf\xc3", b"\xed\xa0\x80\xf4\x90\x80\x80"],
    "NUL": [b"\x00", b"a\x00b"],
    "control characters": [bytes(range(32)) + b"\x7f"],
    "no rows": [],
    "many rows": [b"a"] * 1000,
    "one long of many": [b"a", b"word " * 20_000, b""],
}
Message = tensor_pb2.TensorProto
Tensors = dict[str, Message]
Arrays = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Signature:
    """Inputs and outputs of a signature of strings [B] or of ids [B, L]."""

    name: str
    inputs: tuple[str, ...]
    takes_strings: bool
    outputs: Mapping[str, tuple[np.dtype, tuple[int, ...]]]
    """Type and shape by name, with -1 for dynamic axes."""

    def message(
        self, shape: Sequence[int], values: Sequence = (), content: bytes = b""
    ) -> Message:
        """Return a message of the inputs' type that declares any shape for any values.

        The server repeats the last of too few values. `content` stands for values.
        """
        dtype = types_pb2.DT_STRING if self.takes_strings else types_pb2.DT_INT32
        message = Message(dtype=dtype, tensor_content=content)
        for size in shape:
            message.tensor_shape.dim.add(size=size)
        field = "string_val" if self.takes_strings else "int_val"
        getattr(message, field).extend(values)
        return message

    def texts(self, texts: Sequence[bytes]) -> Message:
        return self.message([len(texts)], texts)

    def ids(self, array: Any) -> Message:
        array = np.asarray(array, np.int32)
        return self.message(array.shape, content=array.tobytes())

    def filled(self, shape: Sequence[int]) -> Tensors:
        """Return ids of 0 with a mask of 1."""
        return {n: self.ids(np.full(shape, n == "padding_mask")) for n in self.inputs}

    def same(self, message: Message) -> Tensors:
        return dict.fromkeys(self.inputs, message)


def signatures(definitions: Mapping[str, Any]) -> Iterator[Signature]:
    """Yield signatures from TensorFlow's messages."""
    for name, item in definitions.items():
        outputs = {
            key: (
                np.dtype(tf.as_dtype(info.dtype).as_numpy_dtype),
                tuple(dim.size for dim in info.tensor_shape.dim),
            )
            for key, info in item.outputs.items()
        }
        types = {info.dtype for info in item.inputs.values()}
        takes_strings = types == {types_pb2.DT_STRING}
        yield Signature(name, tuple(sorted(item.inputs)), takes_strings, outputs)


@dataclasses.dataclass(frozen=True)
class Case:
    """Request with its expected result."""

    name: str
    signature: Signature
    tensors: Tensors
    refused: bool = False
    """Whether it must end in an error although its shapes are valid."""
    expand: bool = False
    """Whether the server expands the tensors without a check of their shapes."""

    @property
    def rows(self) -> int | None:
        """Return the expected rows of the response; None for an invalid request."""
        shape, *others = {tuple(shape_of(message)) for message in self.tensors.values()}
        rank = 1 if self.signature.takes_strings else 2
        valid = not (self.refused or others) and len(shape) == rank and min(shape) >= 0
        return shape[0] if valid else None

    @property
    def expected(self) -> str:
        """Return `RESPONSE`, `ERROR` or `EITHER`."""
        if self.rows is None:
            return ERROR
        messages = [*self.tensors.values()]
        size = sum(len(text) for message in messages for text in message.string_val)
        if self.signature.takes_strings:
            unusual = size > _LONG
        else:
            unusual = self.rows or shape_of(messages[0])[1] > _SHORT
        return RESPONSE if all(map(is_complete, messages)) and not unusual else EITHER

    def validate(self, response: Arrays) -> str:
        """Return a description of an unexpected response, or an empty string."""
        if self.expected == ERROR:
            shapes = {name: array.shape for name, array in response.items()}
            return f"expected an error, received {shapes}"
        if response.keys() != self.signature.outputs.keys():
            return f"outputs {sorted(response)}"
        for name, (dtype, shape) in self.signature.outputs.items():
            array, expected = response[name], (self.rows, *shape[1:])
            same = array.dtype == dtype and array.ndim == len(expected)
            sizes = zip(array.shape, expected, strict=False)  # -1: any
            if not same or any(other not in (-1, size) for size, other in sizes):
                return f"{name} is {array.dtype} {array.shape}, not {dtype} {expected}"
            if dtype.kind == "f" and not np.isfinite(array).all():
                return f"{name} is not finite"
        return ""


def call(function: Any, case: Case) -> Arrays:
    inputs = {
        name: tf.constant(tf.make_ndarray(message), message.dtype)
        for name, message in case.tensors.items()
    }
    return {name: tensor.numpy() for name, tensor in function(**inputs).items()}


def shape_of(message: Message) -> list[int]:
    return [dim.size for dim in message.tensor_shape.dim]


def is_complete(message: Message) -> bool:
    """Return whether a message has as many values as its shape."""
    stored = len(message.string_val) + len(message.int_val)
    return stored + len(message.tensor_content) // 4 == math.prod(shape_of(message))


def real(signature: Signature, rng: np.random.Generator) -> Iterator[Case]:
    encoded = [text.encode() for text in TEXTS]
    for start in range(len(TEXTS)):
        for rows in (1, 2, 8):
            if signature.takes_strings:
                tensors = {}
                for column, name in enumerate(signature.inputs, start):
                    found = [column + 3 * row for row in range(rows)]
                    some = [encoded[index % len(TEXTS)] for index in found]
                    tensors[name] = signature.texts(some)
            else:
                tensors = _random_ids(signature, rows, int(rng.integers(1, 33)), rng)
            yield Case(f"{signature.name}, {rows} rows", signature, tensors)


def _random_ids(
    signature: Signature, rows: int, length: int, rng: np.random.Generator
) -> Tensors:
    """Return random ids, segments and a mask. All rows but the first may be padded."""
    positions = np.arange(length)
    ends = rng.integers(1, length + 1, (rows, 1))
    ends[:1] = length
    real_BL = positions < ends
    arrays = {
        "token_ids": rng.integers(0, _IDS, (rows, length)) * real_BL,
        "segment_ids": (positions >= ends // 2) & real_BL,
    }
    return {name: signature.ids(arrays.get(name, real_BL)) for name in signature.inputs}


def hostile(signature: Signature) -> Iterator[Case]:
    """Yield invalid requests and valid ones with unusual values."""
    if signature.takes_strings:
        requests = {
            title: signature.same(signature.texts(rows))
            for title, rows in _UNUSUAL_TEXTS.items()
        }
        valid, value = signature.same(signature.texts([b"a", b"b"])), [b"a"]
        one, none = signature.texts([b"a"]), signature.texts([])
    else:
        shapes = [0, 4], [2, 0], [0, 0], [2, 5000]
        requests = {f"shape {shape}": signature.filled(shape) for shape in shapes}
        requests["all padding"] = signature.same(signature.ids([[0] * 4] * 2))
        valid, value = signature.filled([2, 4]), [1]
        for name in signature.inputs:
            for number in (-1, 7, -(2**31), 2**31 - 1):
                ids = signature.ids([[number] * 4] * 2)
                requests[f"{name} of {number}"] = {**valid, name: ids}
        one, none = signature.ids([[1] * 4]), signature.ids([[]])
    name, *others = signature.inputs
    scalar, deep = signature.message([], value), signature.message([1] * 3, value)
    requests["a scalar"] = {**valid, name: scalar}
    requests["scalars"] = signature.same(scalar)
    requests["more axes"] = {**valid, name: deep}
    requests["more axes of all"] = signature.same(deep)
    for key in others:
        requests[f"{key} has one row"] = {**valid, key: one}
        requests[f"{key} has no rows or positions"] = {**valid, key: none}
    for title, tensors in requests.items():
        yield Case(f"{signature.name}: {title}", signature, tensors)


def attacks(
    signature: Signature, limits: Mapping[str, int], length: int
) -> Iterator[Case]:
    """Yield requests that are small to send and large to compute.

    `limits` are the `rows`, `bytes` and `positions` of a request; `length` is that of
    the longest row.
    """
    if signature.takes_strings:
        yield from _large_texts(signature, limits["rows"], limits["bytes"])
    else:
        yield from _large_ids(signature, limits["positions"], length)


def _large_texts(signature: Signature, rows: int, limit: int) -> Iterator[Case]:
    size, some = limit // len(signature.inputs), rows // 4 - 1
    for title, texts in {
        "2,000 empty texts and one of 40 kB": [b""] * 2000 + [b"word " * 8000],
        "all rows, empty": [b""] * rows,
        "all rows and all bytes": [(b"ab " * size)[: size // rows]] * rows,
        "all bytes in one row of many": [b""] * (rows - 1) + [b"ab " * (size // 3)],
        "all bytes in one word of some": [b"a"] * some + [b"." * (size - some)],
        "all bytes in one word": [b"x" * size],
        "all bytes in words of one letter": [b"a " * (size // 2)],
        "all bytes in ideographs": ["中".encode() * (size // 3)],
        "all bytes in marks": ["\u0301".encode() * (size // 2)],
        "all bytes in [MASK]": [b"[MASK]" * (size // 6)],
        "all bytes invalid UTF-8": [b"\xff" * size],
        "many rows of many pieces": [b"." * (size // 600)] * 600,
    }.items():
        large = signature.texts(texts)
        small = signature.texts([b"a"] * len(texts))
        columns = {"": signature.same(large)}
        columns |= {
            f", {n}": signature.same(small) | {n: large} for n in signature.inputs[1:]
        }
        for suffix, tensors in columns.items():
            yield Case(f"{signature.name}: {title}{suffix}", signature, tensors)
    long = b"word " * 240
    for title, message in {
        "100,000 empty texts": signature.texts([b""] * 100_000),
        "one text of 16 MB": signature.texts([b"word " * (2**24 // 5)]),
        "one row too many": signature.texts([b""] * (rows + 1)),
        "one byte too many": signature.texts([b"x" * (limit + 1)]),
        "one text repeated to 20,000": signature.message([20_000], [long]),
        "one text repeated to 2^31": signature.message([2**31], [long]),
        "one text repeated to 2^80": signature.message([2**40, 2**40], [long]),
    }.items():
        yield _refused(signature, title, signature.same(message))
    for count, text in (20_000, long), (100_000, b""):
        tensors = signature.same(signature.message([count], [text]))
        yield _refused(signature, f"{count} times {len(text)} bytes", tensors, True)


def _large_ids(signature: Signature, positions: int, length: int) -> Iterator[Case]:
    for width in (length, 64, 16, 1):
        shape = [positions // width, width]
        title = f"{signature.name}: ids of shape {shape}"
        yield Case(title, signature, signature.filled(shape))
    for shape in [1, positions + 1], [positions + 1, 1], [positions, 64], [0, 2**30]:
        yield _refused(signature, f"ids of shape {shape}", signature.filled(shape))
    for shape in [2**16, 2**16], [2**31, 1], [46_341, 46_341], [2**40, 2**40]:
        tensors = signature.same(signature.message(shape, [1]))
        yield _refused(signature, f"one id repeated to {shape}", tensors)
    large = signature.message([2048, 2048], [1])
    yield _refused(signature, "ids", signature.same(large), True)
    for name in signature.inputs[1:]:
        tensors = {**signature.filled([2, 4]), name: large}
        yield _refused(signature, name, tensors, True)


def _refused(
    signature: Signature, title: str, tensors: Tensors, expand: bool = False
) -> Case:
    title = f"{signature.name}: {title}" + ", expanded" * expand
    return Case(title, signature, tensors, refused=True, expand=expand)


def random_case(signatures: Sequence[Signature], number: int) -> Case:
    """Return the random request of a number. Three in ten have odd messages."""
    rng = np.random.default_rng(number)
    signature = signatures[rng.integers(len(signatures))]
    rows = int(rng.integers(0, 6))
    if signature.takes_strings:
        tensors = {
            name: signature.texts([random_text(rng) for _ in range(rows)])
            for name in signature.inputs
        }
    else:
        tensors = _random_ids(signature, rows, int(rng.integers(1, 65)), rng)
    title = f"random request {number}, {signature.name}"
    if rng.random() < 0.7:
        return Case(title, signature, tensors)
    odd, size = _odd_message(signature, rng)
    names = rng.choice(signature.inputs, rng.integers(1, len(signature.inputs) + 1))
    tensors |= dict.fromkeys(map(str, names), odd)
    return Case(title, signature, tensors, expand=size * len(tensors) < _EXPANDED)


def _odd_message(signature: Signature, rng: np.random.Generator) -> tuple[Message, int]:
    """Return a message and the bytes that it takes once it is expanded."""
    rank = 1 if signature.takes_strings else 2
    if rng.random() < 0.2:
        rank = int(rng.integers(0, 5))
    shape = rng.choice([0, 1, 2, 3, 7, 16, 64, 2**17, 2**31, 2**62, -1], rank).tolist()
    count = math.prod(max(0, size) for size in shape)
    stored = int(rng.choice([0, 1, 2, min(count, 64)]))
    if not signature.takes_strings:
        values = rng.integers(-2, 40, stored).tolist()
        return signature.message(shape, values), 4 * count
    texts = [random_text(rng) for _ in range(stored)]
    # A string takes 24 bytes in a tensor, and its characters if it has more than 22.
    size = 24 + max(map(len, texts), default=0)
    return signature.message(shape, texts), size * count


def random_text(rng: np.random.Generator) -> bytes:
    """Return a mixture of random bytes, code points and parts of texts."""
    codes = rng.choice([0x4E00, 0x301, 0x200D, 0xAC00, 0x1F600, 0x130], 30)
    codes[:10] = rng.integers(0, 0x110000, 10)
    parts = [
        rng.bytes(rng.integers(60)),
        "".join(map(chr, codes)).encode("utf-8", "surrogatepass"),
        TEXTS[rng.integers(len(TEXTS))].encode()[: rng.integers(60)],
    ]
    rng.shuffle(parts)
    return [b"", b" "][rng.integers(2)].join(parts[: rng.integers(4)])
