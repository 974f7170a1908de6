"""Find documents that repeat an earlier one.

Duplicates have the same words in the same order: the text is normalised to NFC and each
run of white space to one space, then hashed with 128 bits. The first document stays, so
the result depends on the order of the corpus only.
"""

import hashlib
import json
import unicodedata
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from electra_tf.text.chunks import Chunk

EXACT = "exact"
"""Kind of all duplicates in logs and manifests."""


class Duplicate(NamedTuple):
    """A dropped document and the earlier one that stays."""

    source: str
    line: int
    """Number of its first line or of its row."""
    kept_source: str
    kept_line: int

    @property
    def text(self) -> str:
        """The duplicate as a line of JSON."""
        return json.dumps(self._asdict(), ensure_ascii=False)


def digest(text: str) -> bytes:
    """Return a hash of the words of a document."""
    words = unicodedata.normalize("NFC", text).split()
    data = " ".join(words).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(data, digest_size=16).digest()


class DuplicateIndex:
    """Index of the documents that stay, in memory."""

    def __init__(self, sources: Sequence[str]):
        self._sources = sources
        self._places: dict[bytes, tuple[int, int]] = {}

    def drop(
        self, chunk: Chunk, digests: Iterable[bytes]
    ) -> tuple[Chunk, list[Duplicate]]:
        """Return a chunk without its duplicates, and the duplicates."""
        is_kept, dropped = [], []
        for key, line in zip(digests, chunk.lines, strict=True):
            is_kept.append(key not in self._places)
            if is_kept[-1]:
                self._places[key] = chunk.source, line
            else:
                source, kept_line = self._places[key]
                kept = self._sources[source], kept_line
                dropped.append(Duplicate(chunk.name, line, *kept))
        return chunk.select(is_kept), dropped
