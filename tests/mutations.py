"""Hypothesis strategies: noise, and changes of real files that keep most of them."""

import copy
import json
import re
import struct
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

HOSTILE_VALUES = (
    None, True, False, 0, -1, 1, 3, 1.5, 1e308, -0.0, 2**31, 2**63, 2**70, 10**400,
    "", " ", "\0", "x" * 5000, "../../etc/passwd", "/dev/zero", "a.b", "${HOME}",
    "\ud800", "1", "true", [], {}, [[]], [None], {"": None}, {"class_name": "Lambda"},
)  # fmt: skip
"""Values that replace one of a real file."""
_HOSTILE_TEXT = (
    "", "0", "-1", "1e999", "-1e-999", ".nan", "NaN", "Infinity", "9" * 40, "9" * 5000,
    "null", "~", "true", "!!python/object:os.system x", "&a [*a]", "*a", "<<: *a",
    "2026-01-01", "0x10", "1_000", "{", "}", "[", "]", "[" * 5000, '{"a":' * 5000,
    ":", ": :", "\t", "\r", "\n", "\n\n", "\0", "\x85", "\u2028", "\ufeff", "'", '"',
    '"' * 3, ",", "%", "@", "`", "|", ">", "?", "- ", "---\n", "...\n", "#", "[MASK]",
    "x" * 3000, "é" * 3000, "😀", "\ud800", "a,b\n", '"a\n', "\t\t\t", "-DOCSTART- O\n",
)  # fmt: skip
_TOKEN = re.compile(rb"[A-Za-z_.]+|[-+0-9.e]+|\s+|.", re.DOTALL)
_NOISE_BYTES = (
    b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"PK\3\4", b"PAR1", b"\x1f\x8b\x08",
    b"\xfd7zXZ\0", b"\x89HDF\r\n\x1a\n", b"\xc3", b"\xed\xa0\x80", b"\0" * 50,
    b"\x80\x04\x95", b"\xff" * 9,
)  # fmt: skip


def noise() -> st.SearchStrategy[bytes]:
    """Return a strategy of bytes: text of all planes, marks of formats, any bytes."""
    text = st.text(max_size=60).map(lambda t: t.encode("utf-8", "surrogatepass"))
    words = st.sampled_from(_HOSTILE_TEXT).map(_encode)
    parts = text | words | st.sampled_from(_NOISE_BYTES) | st.binary(max_size=60)
    lines = st.lists(parts, max_size=12)
    ends = st.sampled_from((b"", b"\n", b"\r\n", b"\r", b"\t", b" "))
    return st.tuples(lines, ends).map(lambda pair: pair[1].join(pair[0]))


@st.composite
def mutated_text(draw, base: bytes) -> bytes:
    """Return a strategy of a text with a few tokens replaced, moved or dropped."""
    tokens = _TOKEN.findall(base)
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.integers(0, max(0, len(tokens) - 1)))
        kind = draw(st.sampled_from(("replace", "insert", "drop", "copy", "cut")))
        word = _encode(draw(st.sampled_from(_HOSTILE_TEXT)))
        if kind == "replace":
            tokens[place : place + 1] = [word]
        elif kind == "insert":
            tokens.insert(place, draw(noise()) if draw(st.booleans()) else word)
        elif kind == "drop":
            del tokens[place : place + draw(st.integers(1, 8))]
        elif kind == "copy":
            width = draw(st.integers(1, 40))
            tokens[place:place] = tokens[place : place + width]
        elif draw(st.integers(0, 3)) == 0:  # a cut file is often the same error
            del tokens[place:]
    return b"".join(tokens)


@st.composite
def mutated_bytes(draw, base: bytes) -> bytes:
    """Return a strategy of binary content with a few bytes changed."""
    content = bytearray(base)
    for _ in range(draw(st.integers(0, 3))):
        # Headers, at both ends, matter more than the middle.
        end, edge = len(content), min(len(content), 600)
        places = st.integers(0, edge), st.integers(end - edge, end), st.integers(0, end)
        place = draw(st.one_of(places))
        kind = draw(st.sampled_from(("set", "number", "insert", "drop", "cut")))
        if kind == "set":
            data = draw(st.binary(min_size=1, max_size=4))
            content[place : place + len(data)] = data
        elif kind == "number":
            value = draw(st.sampled_from((0, 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1)))
            content[place : place + 8] = struct.pack("<Q", value)
        elif kind == "insert":
            content[place:place] = draw(st.binary(min_size=1, max_size=20))
        elif kind == "drop":
            del content[place : place + draw(st.integers(1, 64))]
        else:
            del content[place:]
    return bytes(content)


@st.composite
def mutated_json(draw, base: bytes) -> bytes:
    """Return a strategy of a JSON document with values of other kinds."""
    tree = json.loads(base)
    for _ in range(draw(st.integers(0, 2))):
        tree = _change(draw, tree)
    text = json.dumps(tree, ensure_ascii=draw(st.booleans()))
    return text.encode("utf-8", "surrogatepass")


def json_like(base: bytes) -> st.SearchStrategy[bytes]:
    """Return a strategy of changes of a JSON document, as a tree and as text."""
    return mutated_json(base) | mutated_text(base) | noise()


@st.composite
def safetensors(draw, base: bytes) -> bytes:
    """Return a strategy of a safetensors file with another header of right length."""
    size = int.from_bytes(base[:8], "little")
    header = draw(json_like(base[8 : 8 + size]))
    return len(header).to_bytes(8, "little") + header + base[8 + size :]


def _change(draw, tree: Any) -> Any:
    """Return a tree with one value replaced, dropped, repeated or added."""
    holders = list(_holders(tree))
    if not holders:
        return _hostile(draw)
    holder = draw(st.sampled_from(holders))
    is_dict = isinstance(holder, dict)
    keys = list(holder) if is_dict else list(range(len(holder)))
    key = draw(st.sampled_from(keys))
    kind = draw(st.sampled_from(("replace", "replace", "drop", "add")))
    if kind == "replace":
        holder[key] = _hostile(draw)
    elif kind == "drop":
        del holder[key]
    elif is_dict:
        holder[f"{key}2"] = _hostile(draw)
    else:
        holder.extend(copy.deepcopy(holder[:1]) * draw(st.integers(1, 3)))
    return tree


def _hostile(draw) -> Any:
    # A copy: a later change of the tree must not change the list of values.
    return copy.deepcopy(draw(st.sampled_from(HOSTILE_VALUES)))


def _holders(tree: Any) -> Iterator[Any]:
    """Yield the lists and dictionaries of a tree that are not empty."""
    if isinstance(tree, dict | list) and tree:
        yield tree
        for value in tree.values() if isinstance(tree, dict) else tree:
            yield from _holders(value)


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
