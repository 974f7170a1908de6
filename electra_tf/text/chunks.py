"""Divide a corpus into chunks, the unit of work of every builder.

A chunk is consecutive documents of one source. It is identified by the number of the
source in the list of sources and by its own number within the source. Both are the same
for every builder, so random numbers that depend on them are, too. The path of a source
is not part of the identity: a corpus that is moved gives the same records.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator

from electra_tf.text.corpus import CorpusReader, Document

CHUNK_CHARACTERS = 2_000_000
"""A chunk ends with the document that reaches this size."""


@dataclasses.dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive documents of one source."""

    source: int
    """Number of the source in the list of sources."""
    name: str
    """Path or name of the source."""
    number: int
    """Number of the chunk in its source."""
    documents: list[str]
    """Lines of each document, joined by newlines."""
    lines: list[int]
    """Line or row of each document in its source."""

    @property
    def key(self) -> tuple[int, int]:
        """Position of the chunk in the corpus."""
        return self.source, self.number

    @property
    def size(self) -> int:
        """Number of characters."""
        return sum(map(len, self.documents))

    def seed(self, seed: int) -> int:
        """Return the seed of the random numbers of this chunk.

        The first chunk of the first source has the seed of the corpus.
        """
        return seed + (self.number << 64) + (self.source << 128)

    def select(self, is_kept: Iterable[bool]) -> "Chunk":
        """Return the chunk without some of its documents, under the same key."""
        is_kept = list(is_kept)
        return dataclasses.replace(
            self,
            documents=list(itertools.compress(self.documents, is_kept)),
            lines=list(itertools.compress(self.lines, is_kept)),
        )


def read_chunks(reader: CorpusReader, first_source: int = 0) -> Iterator[Chunk]:
    """Yield the chunks of a corpus, in order."""
    sources = {name: n for n, name in enumerate(reader.sources, first_source)}
    for name, documents in itertools.groupby(reader, lambda document: document.source):
        yield from _chunks(sources[name], name, documents)


def _chunks(source: int, name: str, documents: Iterable[Document]) -> Iterator[Chunk]:
    number, size, texts, lines = 0, 0, [], []
    for document in documents:
        # A worker receives one long string faster than many short ones.
        texts.append("\n".join(document.lines))
        lines.append(document.line)
        size += len(texts[-1])
        if size >= CHUNK_CHARACTERS:
            yield Chunk(source, name, number, texts, lines)
            number, size, texts, lines = number + 1, 0, [], []
    if texts:
        yield Chunk(source, name, number, texts, lines)


def group_chunks(chunks: Iterable[Chunk]) -> Iterator[list[Chunk]]:
    """Yield lists of chunks of about the size of a full one.

    A corpus of many small files has many small chunks; sending each to a worker alone
    would cost more than tokenizing it.
    """
    size, group = 0, []
    for chunk in chunks:
        group.append(chunk)
        size += chunk.size
        if size >= CHUNK_CHARACTERS:
            yield group
            size, group = 0, []
    if group:
        yield group
