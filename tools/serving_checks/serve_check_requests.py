"""What `serve_check` sends: real requests, hostile ones, random ones.

Each knows what must come back. Where the inputs are those of the signature, of its
types and ranks and with the same number of rows, that is an answer with as many rows;
where they are not, an error. Ids may be out of range, and then either is right. No
rows are answered with none.
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
ANSWER, ERROR, EITHER = "an answer", "an error", "either"
_LONG = 100_000  # bytes of a request; a book
Inputs = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Signature:
    """What a signature takes and answers."""

    name: str
    inputs: Mapping[str, tuple[np.dtype, int]]
    """Type and rank by name; `object` is a string."""
    outputs: Mapping[str, tuple[np.dtype, tuple[int, ...]]]
    """Type and shape by name, with -1 for what differs."""

    @property
    def takes_strings(self) -> bool:
        """Whether every input is one."""
        return all(dtype.kind == "O" for dtype, _ in self.inputs.values())


@dataclasses.dataclass(frozen=True)
class Case:
    """A request, and how it must end."""

    name: str
    signature: Signature
    inputs: Inputs
    asked: str = ""
    """Another signature's name, if it is not the signature's own."""

    @property
    def rows(self) -> int | None:
        """Rows of the answer; None where the request is no request."""
        wanted = self.signature.inputs
        if self.asked or self.inputs.keys() != wanted.keys():
            return None
        for name, (dtype, rank) in wanted.items():
            if (self.inputs[name].dtype, self.inputs[name].ndim) != (dtype, rank):
                return None
        shapes = {self.inputs[name].shape for name in wanted}
        return next(iter(shapes))[0] if len(shapes) == 1 else None

    @property
    def wanted(self) -> str:
        """`ANSWER`, `ERROR` or `EITHER`."""
        if self.rows is None:
            return ERROR
        if self.signature.takes_strings:
            # What is read in parts has a limit of them.
            sizes = [len(text) for of in self.inputs.values() for text in of.flat]
            return EITHER if sum(sizes) > _LONG else ANSWER
        return EITHER if self.rows else ANSWER

    def fault_of(self, answer: Inputs) -> str:
        """What is wrong with an answer, in words; empty where nothing is."""
        if self.wanted == ERROR:
            shapes = {name: of.shape for name, of in answer.items()}
            return f"an error was due, arrived {shapes}"
        if answer.keys() != self.signature.outputs.keys():
            return f"outputs {sorted(answer)}"
        for name, (dtype, shape) in self.signature.outputs.items():
            array = answer[name]
            wanted = (self.rows, *shape[1:])
            if array.dtype != dtype or not fits(array.shape, wanted):
                return f"{name} is {array.dtype} {array.shape}, not {dtype} {wanted}"
            if dtype.kind == "f" and not np.isfinite(array).all():
                return f"{name} is not finite"
        return ""


def fits(shape: Sequence[int], wanted: Sequence[int]) -> bool:
    """Whether a shape is as wanted, where -1 is any number."""
    return len(shape) == len(wanted) and all(
        other in (-1, size) for size, other in zip(shape, wanted, strict=True)
    )


def strings(texts: Sequence[bytes]) -> np.ndarray:
    """Bytes in an array of objects, [B]."""
    array = np.empty(len(texts), object)
    array[:] = texts
    return array


def real(
    signature: Signature, texts: Sequence[str], ids: int, draw: np.random.Generator
) -> Iterator[Case]:
    """Requests of 1, 2 and 8 rows such as clients send.

    Args:
        signature: Of strings, or of ids.
        texts: Any number of them; the inputs of a signature take turns.
        ids: The vocabulary has more than so many.
        draw: Where ids come from.
    """
    for start in range(len(texts)):
        for rows in (1, 2, 8):
            if signature.takes_strings:
                inputs = {
                    name: strings([
                        texts[(start + place + 3 * row) % len(texts)].encode()
                        for row in range(rows)
                    ])
                    for place, name in enumerate(signature.inputs)
                }  # fmt: skip
            else:
                inputs = _ids(signature, rows, int(draw.integers(1, 33)), ids, draw)
            yield Case(f"{signature.name}, {rows} rows", signature, inputs)


def _ids(
    signature: Signature, rows: int, length: int, ids: int, draw: np.random.Generator
) -> Inputs:
    """Ids, segments and a mask by their names; the last rows are padded."""
    places = np.arange(length)
    ends = draw.integers(1, length + 1, (rows, 1))
    ends[:1] = length
    halves = ends // 2
    found = {
        "token_ids": draw.integers(0, ids, (rows, length)) * (places < ends),
        "segment_ids": (places >= halves) & (places < ends),
    }
    return {
        name: found.get(name, places < ends).astype(dtype)
        for name, (dtype, _) in signature.inputs.items()
    }


def hostile(signature: Signature) -> Iterator[Case]:
    """What a client can do wrong or with ill will, by hand."""
    whole = dict(_hostile_values(signature))
    start = dict(_well(signature))
    name, *others = signature.inputs
    first = start[name]
    broken = {
        "an input is missing": {key: start[key] for key in others},
        "an input too many": {**start, "surplus": first},
        "no inputs": {},
        "a scalar": {**start, name: first.reshape(-1)[0:1].reshape(())},
        "a dimension more": {**start, name: np.stack([first, first])},
        "all with a dimension more": {key: of[:, None] for key, of in start.items()},
        "floats": {**start, name: np.zeros(first.shape, np.float32)},
        "int64": {**start, name: np.zeros(first.shape, np.int64)},
    }
    if first.dtype == object:
        broken["ids for texts"] = {**start, name: np.zeros([2], np.int32)}
    else:
        broken["texts for ids"] = {**start, name: strings([b"a", b"b"])}
    for key in others:
        more = np.concatenate([start[key], start[key]])
        broken[f"{key} has more rows"] = {**start, key: more}
        broken[f"{key} has one row"] = {**start, key: start[key][:1]}
        broken[f"{key} has no rows"] = {**start, key: start[key][:0]}
        if more.ndim == 2:
            broken[f"{key} is shorter"] = {**start, key: start[key][:, :1]}
            broken[f"{key} has no positions"] = {**start, key: start[key][:, :0]}
    for title, inputs in {**whole, **broken}.items():
        yield Case(f"{signature.name}: {title}", signature, inputs)
    asked = "no_such_signature"
    yield Case(f"{signature.name}: asked as another", signature, start, asked)


def _well(signature: Signature) -> Inputs:
    if signature.takes_strings:
        return {name: strings([b"good", b"bad"]) for name in signature.inputs}
    return {
        name: np.full([2, 4], name == "padding_mask", dtype)
        for name, (dtype, _) in signature.inputs.items()
    }


def _hostile_values(signature: Signature) -> Iterator[tuple[str, Inputs]]:
    """Right types and shapes, with values that nobody would send."""
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
    start = _well(signature)
    least, most = np.iinfo(np.int32).min, np.iinfo(np.int32).max
    for name, of in start.items():
        for value in (-1, 7, least, most):
            yield f"{name} of {value}", {**start, name: np.full_like(of, value)}
    yield "no rows", {name: of[:0] for name, of in start.items()}
    yield "no positions", {name: of[:, :0] for name, of in start.items()}
    yield "neither", {name: of[:0, :0] for name, of in start.items()}
    yield "all padding", {name: np.zeros_like(of) for name, of in start.items()}
    yield "rows too long", {name: np.tile(of, 1250) for name, of in start.items()}


def random_case(
    signatures: Sequence[Signature], ids: int, seed: int, number: int
) -> Case:
    """A request by its number; three in ten are spoilt.

    Args:
        signatures: One is drawn.
        ids: The vocabulary has more than so many.
        seed: Of the whole series.
        number: In the series.
    """
    draw = np.random.default_rng([seed, number])
    signature = signatures[draw.integers(len(signatures))]
    rows = int(draw.integers(0, 6))
    if signature.takes_strings:
        inputs = {
            name: strings([random_text(draw) for _ in range(rows)])
            for name in signature.inputs
        }
    else:
        inputs = _ids(signature, rows, int(draw.integers(1, 65)), ids, draw)
    title = f"random request {number} of seed {seed}, {signature.name}"
    if draw.random() < 0.7:
        return Case(title, signature, inputs)
    if draw.random() < 0.1:
        return Case(title, signature, inputs, "no_such_signature")
    name = draw.choice(sorted(inputs))
    return Case(title, signature, _spoilt(inputs, str(name), draw))


def _spoilt(inputs: Inputs, name: str, draw: np.random.Generator) -> Inputs:
    array = inputs[name]
    kind = draw.integers(7)
    if kind == 0:
        return {key: of for key, of in inputs.items() if key != name}
    if kind == 1:
        return {**inputs, f"{name}_": array}
    if kind == 2:
        types = [np.float32, np.int64, np.int32, np.bool_]
        return {**inputs, name: np.zeros(array.shape, types[draw.integers(4)])}
    if kind == 3:
        return {**inputs, name: array[None]}
    if kind == 4:
        return {**inputs, name: np.concatenate([array, array[:1]])}
    if kind == 5:
        return {**inputs, name: array.reshape(-1)}
    if array.dtype == object:
        return {**inputs, name: strings([b"\xff" * 3000] * len(array))}
    far = draw.integers(-(2**31), 2**31, array.shape).astype(array.dtype)
    return {**inputs, name: np.where(draw.random(array.shape) < 0.1, far, array)}


def random_text(draw: np.random.Generator) -> bytes:
    """Bytes of any kind: words, code points, noise, and mixtures of them."""
    parts = []
    for _ in range(draw.integers(0, 4)):
        length = int(draw.integers(0, 60))
        kind = draw.integers(5)
        if kind == 0:
            parts.append(draw.bytes(length))
        elif kind == 1:
            codes = draw.integers(0, 0x110000, length)
            parts.append("".join(map(chr, codes)).encode("utf-8", "surrogatepass"))
        elif kind == 2:
            parts.append(bytes(draw.integers(0, 128, length, np.uint8)))
        elif kind == 3:
            parts.append(TEXTS[draw.integers(len(TEXTS))].encode()[:length])
        else:
            codes = draw.choice([0x4E00, 0x301, 0x200D, 0xAC00, 0x1F600, 0x130], length)
            parts.append("".join(map(chr, codes)).encode())
    return b" ".join(parts) if draw.random() < 0.5 else b"".join(parts)
