"""Requests of `serve_check --attack`, as messages: small to send, large to compute.

Unlike the requests of `serve_check_requests.py` they need not be valid tensors: a
message can declare a shape that its values do not have.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from serve_check_requests import Signature
from tensorflow.core.framework import tensor_pb2, types_pb2

Tensors = dict[str, tensor_pb2.TensorProto]
REFUSED, ANY = "an error", "any"
_INT32_END = 2**31
_EXPANDED = 2**22  # bytes that a generated message may take once it is expanded


@dataclasses.dataclass(frozen=True)
class Attack:
    """A request with the result that it must have."""

    name: str
    signature: str
    tensors: Tensors
    expected: str = ANY
    expand: bool = False
    """True: the server expands the tensors without a check of their shapes."""
    raw: bytes = b""
    """The request itself, in place of signature and tensors."""


def tensor(
    dtype: int,
    shape: Sequence[int],
    values: Sequence | None = None,
    content: bytes = b"",
) -> tensor_pb2.TensorProto:
    """Return a message that declares any shape for any values.

    Args:
        dtype: A number of `types_pb2`.
        shape: The declared shape.
        values: Strings or integers; fewer than the shape has: the last is repeated.
        content: Raw bytes in place of values.
    """
    message = tensor_pb2.TensorProto(dtype=dtype, tensor_content=content)
    for size in shape:
        message.tensor_shape.dim.add(size=size)
    if values:
        field = "string_val" if isinstance(values[0], bytes) else "int_val"
        getattr(message, field).extend(values)
    return message


def named(signature: Signature, limits: Mapping[str, int]) -> Iterator[Attack]:
    """Yield the attacks on a signature.

    Args:
        signature: A signature of strings or of ids.
        limits: `rows`, `bytes` and `positions` of a request.
    """
    yield from _odd_tensors(signature)
    if signature.takes_strings:
        yield from _texts(signature, limits)
        yield from _repeated_texts(signature, limits)
    else:
        yield from _ids(signature, limits)


def _texts(signature: Signature, limits: Mapping[str, int]) -> Iterator[Attack]:
    rows, size = limits["rows"], limits["bytes"] // len(signature.inputs)
    share, some = size // rows, rows // 4 - 1
    columns = {
        "2,000 empty texts and one of 40 kB": [b""] * 2000 + [b"word " * 8000],
        "no rows": [],
        "all rows, empty": [b""] * rows,
        "all rows and all bytes": [(b"ab " * share)[:share]] * rows,
        "all bytes in one row of many": [b""] * (rows - 1) + [b"ab " * (size // 3)],
        "all bytes in one row of some": [b"a"] * some + [b"ab " * (size // 3 - some)],
        "all bytes in one word of some": [b"a"] * some + [b"." * (size - some)],
        "all bytes in one word": [b"x" * size],
        "all bytes in words of one letter": [b"a " * (size // 2)],
        "all bytes in ideographs": ["中".encode() * (size // 3)],
        "all bytes in marks": ["\u0301".encode() * (size // 2)],
        "all bytes in sigmas": ["ΑΣ".encode() * (size // 4)],
        "all bytes in [MASK]": [b"[MASK]" * (size // 6)],
        "all bytes in spaces": [b" " * size],
        "all bytes invalid UTF-8": [b"\xff" * size],
        "many rows of many pieces": [b"." * (size // 600)] * 600,
    }
    too_large = {
        "100,000 empty texts": [b""] * 100_000,
        "one text of 16 MB": [b"word " * (2**24 // 5)],
        "one text of 16 MB without spaces": [b"x" * 2**24],
        "one row too many": [b""] * (rows + 1),
        "one byte too many": [b"x" * (limits["bytes"] + 1)],
    }
    for expected, group in ((ANY, columns), (REFUSED, too_large)):
        for name, texts in group.items():
            yield Attack(
                name, signature.name, _same(signature, _strings(texts)), expected
            )
            if len(signature.inputs) > 1:
                short = _same(signature, _strings([b"a"] * len(texts)))
                for key in signature.inputs:
                    tensors = {**short, key: _strings(texts)}
                    yield Attack(f"{name}, in {key}", signature.name, tensors, expected)


def _repeated_texts(
    signature: Signature, limits: Mapping[str, int]
) -> Iterator[Attack]:
    """Yield messages of one value whose shapes declare many."""
    long = [b"word " * 240]
    for shape in ([20_000], [2**20], [_INT32_END + 1], [2**16, 2**16], [2**40, 2**40]):
        message = tensor(types_pb2.DT_STRING, shape, long)
        name = f"one text of 1.2 kB repeated to {shape}"
        yield Attack(name, signature.name, _same(signature, message), REFUSED)
    message = tensor(types_pb2.DT_STRING, [20_000], long)
    yield Attack(
        "one text of 1.2 kB repeated to [20000], expanded", signature.name,
        _same(signature, message), REFUSED, expand=True,
    )  # fmt: skip
    message = tensor(types_pb2.DT_STRING, [100_000], [b""])
    yield Attack(
        "an empty text repeated to [100000], expanded", signature.name,
        _same(signature, message), REFUSED, expand=True,
    )  # fmt: skip
    message = tensor(types_pb2.DT_STRING, [limits["rows"]], [b"a few words"])
    yield Attack(
        "a short text repeated to all rows", signature.name, _same(signature, message)
    )


def _ids(signature: Signature, limits: Mapping[str, int]) -> Iterator[Attack]:
    positions = limits["positions"]
    for shape in (
        [1, positions], [positions, 1], [positions // 64, 64], [positions // 32, 32],
        [positions // 16, 16], [0, 0], [0, 4],
    ):  # fmt: skip
        yield Attack(f"ids of shape {shape}", signature.name, _filled(signature, shape))
    for shape in (
        [1, positions + 1], [positions + 1, 1], [positions, 64], [0, 2**30], [2**30, 0],
    ):  # fmt: skip
        # A message with raw bytes has nothing to repeat.
        sent = _filled(signature, shape)
        yield Attack(f"ids of shape {shape}", signature.name, sent, REFUSED)
    for shape in (
        [2**16, 2**16], [2**31, 1], [1, 2**31 + 8], [46_341, 46_341], [2**40, 2**40],
    ):  # fmt: skip
        repeated = _same(signature, tensor(types_pb2.DT_INT32, shape, [1]))
        name = f"one id repeated to {shape}"
        yield Attack(name, signature.name, repeated, REFUSED)
    repeated = _same(signature, tensor(types_pb2.DT_INT32, [2048, 2048], [1]))
    yield Attack(
        "one id repeated to [2048, 2048], expanded", signature.name, repeated, REFUSED,
        expand=True,
    )  # fmt: skip
    for name in list(signature.inputs)[1:]:
        large = {
            **_filled(signature, [2, 4]),
            name: tensor(types_pb2.DT_INT32, [2048, 2048], [1]),
        }
        yield Attack(
            f"{name} repeated to [2048, 2048], expanded", signature.name, large,
            REFUSED, expand=True,
        )  # fmt: skip


def _odd_tensors(signature: Signature) -> Iterator[Attack]:
    """Yield messages of other types, ranks and contents."""
    strings = signature.takes_strings
    right = types_pb2.DT_STRING if strings else types_pb2.DT_INT32
    shape = [2] if strings else [2, 4]
    for number in (*types_pb2.DataType.values(), 99, 10_000):
        if number != right:
            for sent in ([2**31, 4], shape):
                message = tensor(number, sent, [1])
                yield Attack(
                    f"the type {number} of shape {sent}", signature.name,
                    _same(signature, message), REFUSED,
                )  # fmt: skip
    values = [b"a"] if strings else [1]
    for sent in (
        [],
        [1] * 255,
        [1] * 100_000,
        [0] * 100,
        [-1],
        [-5, -5],
        [2**62, 4, 0],
    ):
        shown = sent if len(sent) < 4 else f"{len(sent)} axes of {sent[0]}"
        message = tensor(right, sent, values)
        name = f"the shape {shown}"
        yield Attack(name, signature.name, _same(signature, message), REFUSED)
    unknown = tensor(right, shape, values)
    unknown.tensor_shape.unknown_rank = True
    yield Attack("an unknown rank", signature.name, _same(signature, unknown))
    content = tensor(right, shape, content=b"\xff" * 5)
    yield Attack(
        "raw bytes of a wrong length",
        signature.name,
        _same(signature, content),
        REFUSED,
    )
    for depth in (20, 5000):
        yield Attack(
            f"{depth} nested variants", signature.name, {}, REFUSED,
            raw=_nested_request(signature, depth),
        )  # fmt: skip


def _nested_request(signature: Signature, depth: int) -> bytes:
    """Return the bytes of a request whose tensor has tensors in tensors.

    They are written by hand, because protobuf does not write what it will not read.
    """
    nested = tensor(types_pb2.DT_VARIANT, [1]).SerializeToString()
    for _ in range(depth):
        variant = _field(1, b"tensorflow::Tensor") + _field(3, nested)
        nested = tensor(types_pb2.DT_VARIANT, [1]).SerializeToString()
        nested += _field(15, variant)
    name = next(iter(signature.inputs)).encode()
    spec = _field(1, b"model") + _field(3, signature.name.encode())
    return _field(1, spec) + _field(2, _field(1, name) + _field(2, nested))


def _field(number: int, value: bytes) -> bytes:
    """Return a protobuf field of bytes."""
    size, length = len(value), b""
    while size > 127:
        size, length = size >> 7, length + bytes([size & 127 | 128])
    return bytes([number << 3 | 2]) + length + bytes([size]) + value


def generated(signatures: Sequence[Signature], seed: int, number: int) -> Attack:
    """Return the generated attack of a number.

    Args:
        signatures: Signatures to choose from.
        seed: Seed of the series.
        number: Number in the series.
    """
    rng = np.random.default_rng([seed, number, 1])
    signature = signatures[rng.integers(len(signatures))]
    same = _random_tensor(signature, rng) if rng.random() < 0.5 else None
    tensors, expanded = {}, 0
    for name in signature.inputs:
        tensors[name], size = same or _random_tensor(signature, rng)
        expanded += size
    if rng.random() < 0.05:
        tensors.pop(str(rng.choice(sorted(tensors))))
    if rng.random() < 0.05:
        tensors["surplus"] = tensor(types_pb2.DT_INT32, [1], [1])
    return Attack(
        f"generated request {number} of seed {seed}, {signature.name}",
        signature.name, tensors, expand=expanded < _EXPANDED,
    )  # fmt: skip


def _random_tensor(
    signature: Signature, rng: np.random.Generator
) -> tuple[tensor_pb2.TensorProto, int]:
    """Return a message and the bytes that it takes once it is expanded."""
    strings = signature.takes_strings
    right, rank = (types_pb2.DT_STRING, 1) if strings else (types_pb2.DT_INT32, 2)
    if rng.random() < 0.2:
        rank = int(rng.integers(0, 5))
    sizes = [0, 1, 2, 3, 7, 16, 64, 300, 4096, 4097, 2**15, 2**16, 2**31, 2**62, -1]
    weights = np.array([1, 4, 4, 4, 4, 4, 4, 4, 2, 2, 2, 2, 1, 1, 1])
    shape = rng.choice(sizes, rank, p=weights / weights.sum()).tolist()
    count = int(np.prod([max(0, size) for size in shape], dtype=object))
    stored = int(rng.choice([0, 1, 1, 2, min(count, 5000), min(count, 5000)]))
    values: list = rng.integers(-2, 40, stored).tolist()
    if strings:
        values = [_random_bytes(rng) for _ in range(min(stored, 64))]
    dtype = right
    if rng.random() < 0.1:
        dtype = int(rng.choice(types_pb2.DataType.values()))
    content = rng.bytes(4 * min(count, 5000)) if rng.random() < 0.1 else b""
    message = tensor(dtype, shape, values, content)
    # A string takes 24 bytes in a tensor, and its characters if it has more than 22.
    return message, count * (24 + max(map(len, values), default=0) if strings else 4)


def _random_bytes(rng: np.random.Generator) -> bytes:
    units = (b"a", b"word ", b". ", b"\xff", b"[MASK]", b" ", "中".encode(), b"\0")
    unit = units[rng.integers(len(units))]
    return unit * (int(2 ** rng.uniform(0, 16)) // len(unit))


def _strings(texts: Sequence[bytes]) -> tensor_pb2.TensorProto:
    return tensor(types_pb2.DT_STRING, [len(texts)], texts)


def _filled(signature: Signature, shape: Sequence[int]) -> Tensors:
    """Return valid ids, as raw bytes."""
    count = int(np.prod(shape))
    return {
        name: tensor(
            types_pb2.DT_INT32, shape,
            content=np.full(count, name == "padding_mask", np.int32).tobytes(),
        )
        for name in signature.inputs
    }  # fmt: skip


def _same(signature: Signature, message: tensor_pb2.TensorProto) -> Tensors:
    return dict.fromkeys(signature.inputs, message)
