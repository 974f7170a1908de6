"""Divide a corpus into chunks, the unit of work of every builder.

A chunk is identified by the number of its source in the list of sources, not by its
path, and by its own number within the source. So random numbers that depend on them are
the same for every builder, and for a corpus that is moved.
"""

import contextlib
import itertools
import os
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from electra_tf.config.data import CorpusConfig
from electra_tf.text.corpus import CorpusReader, Document
from electra_tf.text.data_errors import DataErrorLog

CHUNK_CHARACTERS = 2_000_000
"""A chunk ends with the document that reaches this size."""


class Chunk(NamedTuple):
    """Consecutive documents of one source, by numbers of the source and in it."""

    source: int
    name: str
    """Path or name of the source."""
    number: int
    documents: list[str]
    """Lines of each document, joined by newlines."""
    lines: list[int]
    """Line or row of each document in its source."""

    @property
    def key(self) -> tuple[int, int]:
        """Position of the chunk in the corpus."""
        return self.source, self.number

    def seed(self, seed: int) -> int:
        """Return the seed of the random numbers of this chunk.

        The first chunk of the first source has the seed of the corpus.
        """
        return seed + (self.number << 64) + (self.source << 128)

    def select(self, is_kept: Iterable[bool]) -> "Chunk":
        """Return the chunk without some of its documents, under the same key."""
        is_kept = list(is_kept)
        documents = list(itertools.compress(self.documents, is_kept))
        lines = list(itertools.compress(self.lines, is_kept))
        return self._replace(documents=documents, lines=lines)


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
        size += sum(map(len, chunk.documents))
        if size >= CHUNK_CHARACTERS:
            yield group
            size, group = 0, []
    if group:
        yield group


def first_chunks(patterns: Iterable[str], settings: CorpusConfig) -> list[Chunk]:
    """Return the first chunks of a corpus, without a report of its errors."""
    with contextlib.closing(DataErrorLog("report", os.devnull, prints=False)) as log:
        reader = CorpusReader(patterns, settings, log, fetch=False)
        return next(group_chunks(read_chunks(reader)), [])
