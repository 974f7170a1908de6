"""Requests of `serve_check`: real, hostile and random ones.

Each has an expected result. If the names, types and ranks of the inputs are those of
the signature and all have the same number of rows, a response with this number of rows
is expected, which may be 0; otherwise an error. Ids may be out of range, and texts too
long; then both results are accepted.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

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
_LONG = 100_000  # bytes of a request
_SHORT = 16  # positions that every model has
Arrays = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Signature:
    """Inputs and outputs of a signature."""

    name: str
    inputs: Mapping[str, tuple[np.dtype, int]]
    """Type and rank by name. The type of strings is `object`."""
    outputs: Mapping[str, tuple[np.dtype, tuple[int, ...]]]
    """Type and shape by name, with -1 for dynamic axes."""

    @property
    def takes_strings(self) -> bool:
        """Return whether all inputs are strings."""
        return all(dtype.kind == "O" for dtype, _ in self.inputs.values())


@dataclasses.dataclass(frozen=True)
class Case:
    """Request with its expected result."""

    name: str
    signature: Signature
    inputs: Arrays
    requested_signature: str = ""
    """Name to send in place of the signature's own."""

    @property
    def rows(self) -> int | None:
        """Return the expected rows of the response; None for an invalid request."""
        specs = self.signature.inputs
        if self.requested_signature or self.inputs.keys() != specs.keys():
            return None
        for name, (dtype, rank) in specs.items():
            if (self.inputs[name].dtype, self.inputs[name].ndim) != (dtype, rank):
                return None
        shapes = {self.inputs[name].shape for name in specs}
        return next(iter(shapes))[0] if len(shapes) == 1 else None

    @property
    def expected(self) -> str:
        """Return `RESPONSE`, `ERROR` or `EITHER`."""
        if self.rows is None:
            return ERROR
        if self.signature.takes_strings:
            # Served models limit the number of parts that long texts are split into.
            size = sum(
                len(text) for array in self.inputs.values() for text in array.flat
            )
            return EITHER if size > _LONG else RESPONSE
        longest = max(array.shape[1] for array in self.inputs.values())
        return EITHER if self.rows or longest > _SHORT else RESPONSE

    def validate(self, response: Arrays) -> str:
        """Return a description of an unexpected response, or an empty string."""
        if self.expected == ERROR:
            shapes = {name: array.shape for name, array in response.items()}
            return f"expected an error, received {shapes}"
        if response.keys() != self.signature.outputs.keys():
            return f"outputs {sorted(response)}"
        for name, (dtype, shape) in self.signature.outputs.items():
            array = response[name]
            expected = (self.rows, *shape[1:])
            if array.dtype != dtype or not matches(array.shape, expected):
                return f"{name} is {array.dtype} {array.shape}, not {dtype} {expected}"
            if dtype.kind == "f" and not np.isfinite(array).all():
                return f"{name} is not finite"
        return ""


def matches(shape: Sequence[int], expected: Sequence[int]) -> bool:
    """Return whether a shape equals the expected one, where -1 is any number."""
    return len(shape) == len(expected) and all(
        other in (-1, size) for size, other in zip(shape, expected, strict=True)
    )


def strings(texts: Sequence[bytes]) -> np.ndarray:
    """Return bytes as an array of objects, [B]."""
    array = np.empty(len(texts), object)
    array[:] = texts
    return array


def real(
    signature: Signature, texts: Sequence[str], ids: int, rng: np.random.Generator
) -> Iterator[Case]:
    """Yield valid requests of 1, 2 and 8 rows."""
    for start in range(len(texts)):
        for rows in (1, 2, 8):
            if signature.takes_strings:
                inputs = {
                    name: strings([
                        texts[(start + offset + 3 * row) % len(texts)].encode()
                        for row in range(rows)
                    ])
                    for offset, name in enumerate(signature.inputs)
                }  # fmt: skip
            else:
                inputs = _ids(signature, rows, int(rng.integers(1, 33)), ids, rng)
            yield Case(f"{signature.name}, {rows} rows", signature, inputs)


def _ids(
    signature: Signature, rows: int, length: int, ids: int, rng: np.random.Generator
) -> Arrays:
    """Return random ids, segments and a mask by name. All rows but the first may be
    padded."""
    positions = np.arange(length)
    ends = rng.integers(1, length + 1, (rows, 1))
    ends[:1] = length
    halves = ends // 2
    arrays = {
        "token_ids": rng.integers(0, ids, (rows, length)) * (positions < ends),
        "segment_ids": (positions >= halves) & (positions < ends),
    }
    return {
        name: arrays.get(name, positions < ends).astype(dtype)
        for name, (dtype, _) in signature.inputs.items()
    }


def hostile(signature: Signature) -> Iterator[Case]:
    """Yield invalid requests and valid ones with unusual values."""
    unusual = dict(_unusual_values(signature))
    valid = _valid_inputs(signature)
    name, *others = signature.inputs
    first = valid[name]
    invalid = {
        "an input is missing": {key: valid[key] for key in others},
        "an unknown input": {**valid, "surplus": first},
        "no inputs": {},
        "a scalar": {**valid, name: first.reshape(-1)[0:1].reshape(())},
        "an additional axis": {**valid, name: np.stack([first, first])},
        "an additional axis of all inputs": {
            key: array[:, None] for key, array in valid.items()
        },
        "floats": {**valid, name: np.zeros(first.shape, np.float32)},
        "int64": {**valid, name: np.zeros(first.shape, np.int64)},
    }
    if first.dtype == object:
        invalid["ids for texts"] = {**valid, name: np.zeros([2], np.int32)}
    else:
        invalid["texts for ids"] = {**valid, name: strings([b"a", b"b"])}
    for key in others:
        more = np.concatenate([valid[key], valid[key]])
        invalid[f"{key} has more rows"] = {**valid, key: more}
        invalid[f"{key} has one row"] = {**valid, key: valid[key][:1]}
        invalid[f"{key} has no rows"] = {**valid, key: valid[key][:0]}
        if more.ndim == 2:
            invalid[f"{key} is shorter"] = {**valid, key: valid[key][:, :1]}
            invalid[f"{key} has no positions"] = {**valid, key: valid[key][:, :0]}
    for title, inputs in {**unusual, **invalid}.items():
        yield Case(f"{signature.name}: {title}", signature, inputs)
    title = f"{signature.name}: an unknown signature"
    yield Case(title, signature, valid, "no_such_signature")


def _valid_inputs(signature: Signature) -> Arrays:
    if signature.takes_strings:
        return {name: strings([b"good", b"bad"]) for name in signature.inputs}
    return {
        name: np.full([2, 4], name == "padding_mask", dtype)
        for name, (dtype, _) in signature.inputs.items()
    }


def _unusual_values(signature: Signature) -> Iterator[tuple[str, Arrays]]:
    """Yield inputs of correct types and shapes with unusual values."""
    if signature.takes_strings:
        values = {
            "an empty string": [b""],
            "white space": [b" \t\r\n\xe2\x80\xa8\xe3\x80\x80"],
            "a megabyte of words": [b"word " * 200_000],
            "a megabyte without space": [b"x" * 2**20],
            "a megabyte of Chinese": ["这".encode() * 350_000],
            "a megabyte of accents": [b"e" + "\u0301".encode() * 500_000],
            "invalid UTF-8": [b"\xff\xfe caf\xc3", b"\xed\xa0\x80\xf4\x90\x80\x80"],
            "NUL": [b"\x00", b"a\x00b"],
            "control characters": [bytes(range(32)) + b"\x7f"],
            "no rows": [],
            "many rows": [b"a"] * 1000,
            "one long of many": [b"a", b"word " * 20_000, b""],
        }
        for title, texts in values.items():
            yield title, {name: strings(texts) for name in signature.inputs}
        return
    valid = _valid_inputs(signature)
    minimum, maximum = np.iinfo(np.int32).min, np.iinfo(np.int32).max
    for name, ids in valid.items():
        for value in (-1, 7, minimum, maximum):
            yield f"{name} of {value}", {**valid, name: np.full_like(ids, value)}
    for title, change in {
        "no rows": lambda ids: ids[:0],
        "no positions": lambda ids: ids[:, :0],
        "no rows or positions": lambda ids: ids[:0, :0],
        "all padding": np.zeros_like,
        "rows too long": lambda ids: np.tile(ids, 1250),
    }.items():
        yield title, {name: change(ids) for name, ids in valid.items()}


def random_case(
    signatures: Sequence[Signature], ids: int, seed: int, number: int
) -> Case:
    """Return the random request of a number. Three in ten are modified.

    Args:
        signatures: Signatures to choose from.
        ids: Upper bound of token ids, exclusive.
        seed: Seed of the series.
        number: Number in the series.
    """
    rng = np.random.default_rng([seed, number])
    signature = signatures[rng.integers(len(signatures))]
    rows = int(rng.integers(0, 6))
    if signature.takes_strings:
        inputs = {
            name: strings([random_text(rng) for _ in range(rows)])
            for name in signature.inputs
        }
    else:
        inputs = _ids(signature, rows, int(rng.integers(1, 65)), ids, rng)
    title = f"random request {number} of seed {seed}, {signature.name}"
    if rng.random() < 0.7:
        return Case(title, signature, inputs)
    if rng.random() < 0.1:
        return Case(title, signature, inputs, "no_such_signature")
    name = rng.choice(sorted(inputs))
    return Case(title, signature, _modify(inputs, str(name), rng))


def _modify(inputs: Arrays, name: str, rng: np.random.Generator) -> Arrays:
    array = inputs[name]
    kind = rng.integers(7)
    if kind == 0:
        return {key: other for key, other in inputs.items() if key != name}
    if kind == 1:
        return {**inputs, f"{name}_": array}
    if kind == 2:
        types = [np.float32, np.int64, np.int32, np.bool_]
        return {**inputs, name: np.zeros(array.shape, types[rng.integers(4)])}
    if kind == 3:
        return {**inputs, name: array[None]}
    if kind == 4:
        return {**inputs, name: np.concatenate([array, array[:1]])}
    if kind == 5:
        return {**inputs, name: array.reshape(-1)}
    if array.dtype == object:
        return {**inputs, name: strings([b"\xff" * 3000] * len(array))}
    random_ids = rng.integers(-(2**31), 2**31, array.shape).astype(array.dtype)
    return {**inputs, name: np.where(rng.random(array.shape) < 0.1, random_ids, array)}


def random_text(rng: np.random.Generator) -> bytes:
    """Return a mixture of random bytes, code points, ASCII and words."""
    parts = []
    for _ in range(rng.integers(0, 4)):
        length = int(rng.integers(0, 60))
        kind = rng.integers(5)
        if kind == 0:
            parts.append(rng.bytes(length))
        elif kind == 1:
            codes = rng.integers(0, 0x110000, length)
            parts.append("".join(map(chr, codes)).encode("utf-8", "surrogatepass"))
        elif kind == 2:
            parts.append(bytes(rng.integers(0, 128, length, np.uint8)))
        elif kind == 3:
            parts.append(TEXTS[rng.integers(len(TEXTS))].encode()[:length])
        else:
            codes = rng.choice([0x4E00, 0x301, 0x200D, 0xAC00, 0x1F600, 0x130], length)
            parts.append("".join(map(chr, codes)).encode())
    return b" ".join(parts) if rng.random() < 0.5 else b"".join(parts)
