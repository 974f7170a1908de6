"""Find documents that repeat an earlier one, exactly or nearly.

Exact duplicates have the same words in the same order: the text is normalised to NFC
and each run of white space to one space, then hashed with 128 bits. Near-duplicates
share most of their sequences of five lower-cased words; their Jaccard similarity is
estimated with MinHash.

The first document stays. A near-duplicate is compared with the documents that stay,
so the result depends on the order of the corpus only.
"""

import array
import functools
import hashlib
import json
import unicodedata
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from electra_tf.config.data import RecordsConfig
from electra_tf.errors import InputError
from electra_tf.text.chunks import Chunk
from electra_tf.text.normalization import UNIT

if TYPE_CHECKING:
    import datasketch

_SHINGLE_WORDS = 5
_PERMUTATIONS = 128
# The estimate from the signatures rejects false candidates, so the bands of the index
# are chosen to miss few true ones.
_WEIGHTS = 0.1, 0.9  # of false and of missed candidates
_MAX_THRESHOLD = 0.95  # above it the index would have a single band


class Fingerprint(NamedTuple):
    """Hashes of one document."""

    digest: bytes
    signature: np.ndarray | None
    """MinHash values, for near-duplicates."""


class Duplicate(NamedTuple):
    """A dropped document and the earlier one that stays."""

    source: str
    line: int
    """Number of its first line or of its row."""
    kind: str
    """`exact` or `near`."""
    similarity: float
    """Estimated Jaccard similarity of the five-word sequences; 1 for exact."""
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


def fingerprints(chunk: Chunk, deduplicate: str) -> list[Fingerprint]:
    """Return the fingerprint of each document of a chunk."""
    signature = _signature if deduplicate == "near" else lambda text: None
    return [Fingerprint(digest(text), signature(text)) for text in chunk.documents]


def _signature(text: str) -> np.ndarray:
    # Ideographs are words of their own, as for the tokenizer.
    words = UNIT.findall(unicodedata.normalize("NFC", text).lower())
    last = max(1, len(words) - _SHINGLE_WORDS + 1)
    shingles = {" ".join(words[i : i + _SHINGLE_WORDS]) for i in range(last)}
    minhash = _empty_minhash().copy()
    minhash.update_batch(shingles)
    return minhash.hashvalues


@functools.cache
def _empty_minhash() -> "datasketch.MinHash":
    # Cached, because drawing the permutations takes longer than a short document.
    return _datasketch().MinHash(_PERMUTATIONS, hashfunc=_hash_32)


def _minhash(fingerprint: Fingerprint) -> "datasketch.MinHash":
    empty = _empty_minhash()
    return _datasketch().MinHash(
        hashvalues=fingerprint.signature,
        permutations=empty.permutations,
        scheme=empty.scheme,
    )


def _hash_32(shingle: str) -> int:
    data = shingle.encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(data, digest_size=4).digest(), "little")


class DuplicateIndex:
    """Index of the documents that stay, in memory."""

    def __init__(self, settings: RecordsConfig, sources: Sequence[str]):
        self._sources, self._similarity = sources, settings.duplicate_similarity
        self._by_digest: dict[bytes, int] = {}
        # Of each document that stays, its source and its line.
        self._places = array.array("L"), array.array("L")
        self._signatures: list[np.ndarray] = []
        self._near: datasketch.MinHashLSH | None = None
        if settings.deduplicate == "near":
            threshold = min(self._similarity, _MAX_THRESHOLD)
            self._near = _datasketch().MinHashLSH(
                threshold, _PERMUTATIONS, weights=_WEIGHTS
            )

    def drop(
        self, chunk: Chunk, hashes: Iterable[Fingerprint]
    ) -> tuple[Chunk, list[Duplicate]]:
        """Return a chunk without its duplicates, and the duplicates."""
        places = zip(hashes, chunk.lines, strict=True)
        found = [self._find(values, chunk.source, line) for values, line in places]
        kept = chunk.select(duplicate is None for duplicate in found)
        return kept, list(filter(None, found))

    def _find(
        self, fingerprint: Fingerprint, source: int, line: int
    ) -> Duplicate | None:
        """Return the earlier document that a document repeats, or add it."""
        kept = self._by_digest.get(fingerprint.digest)
        if kept is not None:
            return self._duplicate(source, line, "exact", 1.0, kept)
        if self._near is not None:
            similarity, kept = self._nearest(fingerprint)
            if similarity >= self._similarity:
                return self._duplicate(source, line, "near", similarity, kept)
            self._near.insert(len(self._signatures), _minhash(fingerprint))
            self._signatures.append(fingerprint.signature)
        self._by_digest[fingerprint.digest] = len(self._by_digest)
        for values, value in zip(self._places, (source, line), strict=True):
            values.append(value)
        return None

    def _nearest(self, fingerprint: Fingerprint) -> tuple[float, int]:
        """Return the most similar document that stays, the earliest if several."""
        candidates = self._near.query(_minhash(fingerprint))
        equal = {
            n: np.mean(self._signatures[n] == fingerprint.signature) for n in candidates
        }
        best = min(equal, key=lambda n: (-equal[n], n), default=-1)
        return float(equal.get(best, 0.0)), best

    def _duplicate(
        self, source: int, line: int, kind: str, similarity: float, kept: int
    ) -> Duplicate:
        source, kept_source = (
            self._sources[source],
            self._sources[self._places[0][kept]],
        )
        kept_line = self._places[1][kept]
        return Duplicate(
            source, line, kind, round(similarity, 3), kept_source, kept_line
        )


def _datasketch():
    """Return the package of the extra `dedup`."""
    try:
        import datasketch
    except ImportError as error:
        raise InputError(
            "--deduplicate=near needs datasketch: pip install 'electra_tf[dedup]'"
        ) from error
    return datasketch
