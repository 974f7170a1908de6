"""Build a folder of records with several worker processes.

The main process reads the corpus in chunks of whole documents and writes the records;
workers tokenize and pack. The result of a chunk depends only on its text, its key and
the seed, so the output is the same for any number of workers.

A chunk is identified by the number of its source in the list of sources, not by its
path, and by its own number within the source. So random numbers that depend on them are
the same for every builder, and for a corpus that is moved.
"""

import collections
import contextlib
import dataclasses
import hashlib
import itertools
import json
import math
import multiprocessing
import os
import pathlib
import random
import signal
import threading
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, NamedTuple

from electra_tf.config import loader as config_lib
from electra_tf.config.data import CorpusConfig
from electra_tf.config.pretraining import PretrainingConfig
from electra_tf.errors import InputError
from electra_tf.storage.objects import ObjectFolder
from electra_tf.text import checks, records
from electra_tf.text.corpus import CorpusReader, Document, progress_bar
from electra_tf.text.data_errors import DataErrorLog
from electra_tf.text.examples import ORDERS, Example
from electra_tf.text.records import Manifest, Shard
from electra_tf.text.tokenizer import Wordpieces, WordPieceTokenizer
from electra_tf.text.vocab import UNKNOWN, Vocabulary

CHUNK_CHARACTERS = 2_000_000
"""A chunk ends with the document that reaches this size."""
EXACT = "exact"
"""Kind of all duplicates in logs and manifests."""
_TEXT_BYTES_PER_SHARD = 32_000_000
_MAX_SHARDS = 512


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


def check_accents(patterns: Iterable[str], config: PretrainingConfig) -> None:
    """Reject the stripping of accents that the first chunks of a corpus need."""
    chunks = _first_chunks(patterns, config.corpus)
    texts = [text for chunk in chunks for text in chunk.documents]
    checks.check_accents(texts, config.tokenization)


def _first_chunks(patterns: Iterable[str], settings: CorpusConfig) -> list[Chunk]:
    """Return the first chunks of a corpus, without a report of its errors."""
    with contextlib.closing(DataErrorLog("report", os.devnull, prints=False)) as log:
        reader = CorpusReader(patterns, settings, log, fetch=False)
        return next(group_chunks(read_chunks(reader)), [])


def duplicate_line(source: str, line: int, kept_source: str, kept_line: int) -> str:
    """Return a dropped document and the earlier one that stays as a line of JSON."""
    places = {
        "source": source,
        "line": line,
        "kept_source": kept_source,
        "kept_line": kept_line,
    }
    return json.dumps(places, ensure_ascii=False)


def digest(text: str) -> bytes:
    """Return a hash of the words of a document.

    Duplicates have the same words in the same order: the text is normalised to NFC and
    each run of white space to one space.
    """
    words = unicodedata.normalize("NFC", text).split()
    data = " ".join(words).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(data, digest_size=16).digest()


class ChunkRecords(NamedTuple):
    """Records and counts of some chunks."""

    shard_bytes: list[bytes]
    """Item p contains the records p, p + shards, p + 2 * shards, ... of the chunks."""
    counts: dict[str, int]


class ChunkBuilder:
    """Convert documents to serialised records."""

    def __init__(self, vocabulary: Vocabulary, config: PretrainingConfig, shards: int):
        self._tokenizer = WordPieceTokenizer(vocabulary, config.tokenization)
        self._unknown = chr(vocabulary.ids[UNKNOWN])
        self._settings = config.records
        self._encoder = records.RecordEncoder(vocabulary, config.records.max_length)
        self._shards = shards

    def build(self, chunks: list[Chunk]) -> ChunkRecords:
        """Tokenize, pack and serialise chunks."""
        tokenized = self.tokenize(chunks)
        examples, counts = self.pack(chunks, tokenized, self._settings.order)
        framed = list(map(records.frame, self._encoder.encode(examples)))
        shard_bytes = [b"".join(framed[p :: self._shards]) for p in range(self._shards)]
        return ChunkRecords(shard_bytes, dict(counts))

    def tokenize(self, chunks: list[Chunk]) -> list[list[list[Wordpieces]]]:
        """Return the wordpieces of each sentence, by chunk and document."""
        encode = self._tokenizer.wordpieces
        return [[list(map(encode, d.split("\n"))) for d in c.documents] for c in chunks]

    def pack(
        self, chunks: list[Chunk], tokenized: list[list[list[Wordpieces]]], order: str
    ) -> tuple[list[Example], collections.Counter[str]]:
        """Return the examples of tokenized chunks, and counts.

        The random numbers of a chunk depend on its key alone. Those of the first chunk
        of the first source are the original's after `random.seed(seed)`.
        """
        counts: collections.Counter[str] = collections.Counter()
        examples = []
        for chunk, documents in zip(chunks, tokenized, strict=True):
            text = "".join(itertools.chain.from_iterable(documents))
            counts["documents"] += len(documents)
            counts["sentences"] += sum(map(len, documents))
            counts["tokens"] += len(text)
            counts["unknown"] += text.count(self._unknown)
            rng = random.Random(chunk.seed(self._settings.seed))
            examples += ORDERS[order](documents, self._settings.max_length, rng)
        packed = sum(len(a) + len(b) for a, b in examples)
        counts["discarded"] = counts["tokens"] - packed
        counts["records"] = len(examples)
        counts["positions"] = packed + sum(3 if b else 2 for _, b in examples)
        return examples, counts

    def digests(self, chunks: list[Chunk]) -> list[list[bytes]]:
        """Return the hash of each document of each chunk."""
        return [list(map(digest, chunk.documents)) for chunk in chunks]


def with_order(
    patterns: Iterable[str], vocabulary: Vocabulary, config: PretrainingConfig
) -> tuple[PretrainingConfig, list[str]]:
    """Choose `records.order`, if it is not set, by the first chunks of the corpus.

    Return the config with an order, and a line for each order that was measured.
    """
    if config.records.order is not None:
        return config, []
    sample = _first_chunks(patterns, config.corpus)
    builder, settings = ChunkBuilder(vocabulary, config, 1), config.records
    tokenized, lines, discarded = builder.tokenize(sample), [], {}
    for order in ORDERS:
        examples, counts = builder.pack(sample, tokenized, order)
        discarded[order] = counts["discarded"] / max(1, counts["tokens"])
        positions = len(examples) * settings.max_length
        padding = 1 - counts["positions"] / max(1, positions)
        lines.append(
            f"--order={order}: {discarded[order]:.1%} of the first "
            f"{counts['tokens']:,} tokens discarded, {padding:.1%} padding"
        )
    order = "document" if discarded["original"] > checks.DISCARDED_LIMIT else "original"
    settings = dataclasses.replace(settings, order=order)
    config = dataclasses.replace(config, records=settings)
    return config, [*lines, f"--order={order} is used"]


def build(
    patterns: Iterable[str],
    vocabulary: Vocabulary,
    config: PretrainingConfig,
    output: str,
    *,
    workers: int = 1,
    overwrite: bool = False,
) -> Manifest:
    """Write shards, vocabulary, config and, last, the manifest.

    The config has an order: see `with_order`.
    """
    if workers < 1:
        raise InputError(f"--workers must be at least 1, not {workers}")
    with contextlib.ExitStack() as stack:
        name = stack.enter_context(records.records_output(output, overwrite))
        folder = pathlib.Path(name)
        log = DataErrorLog(config.corpus.on_error, folder / records.PROBLEMS)
        report = DataErrorLog("report", folder / records.DUPLICATES, prints=False)
        stack.callback(log.close)
        stack.callback(report.close)
        reader = CorpusReader(patterns, config.corpus, log)
        shards = config.records.shards or shard_count(reader.estimated_text_bytes)
        call = stack.enter_context(_workers(workers, vocabulary, config, shards))
        chunks = group_chunks(read_chunks(reader))
        if config.records.deduplicate == EXACT:
            hashed = call("digests", chunks)
            chunks = _drop_duplicates(hashed, reader.sources, report)
        built = (result for _, result in call("build", chunks))
        totals = _write_shards(built, reader, folder, shards)
        tokenizer = WordPieceTokenizer(vocabulary, config.tokenization)
        manifest = make_manifest(tokenizer, config, log.counts, report.counts, *totals)
        write_metadata(name, tokenizer, config, manifest)
    return manifest


Call = Callable[[str, Iterable[Any]], Iterator[tuple[Any, Any]]]


@contextlib.contextmanager
def _workers(count: int, *arguments: Any) -> Iterator[Call]:
    """Yield a function that calls a method of `ChunkBuilder` on items, in order.

    It yields each item with its result. `arguments` are those of `ChunkBuilder`.
    """
    if count == 1:
        worker = ChunkBuilder(*arguments)
        yield lambda method, items: ((i, getattr(worker, method)(i)) for i in items)
        return
    spawn = multiprocessing.get_context("spawn")  # a fork of threads may deadlock
    pool = ProcessPoolExecutor(count, spawn, _start_worker, arguments)
    # The first calls start the processes, in another thread: Ctrl-C and SIGTERM raise
    # an exception in the main thread, which would leave a process that is started with
    # half of its arguments. A process inherits the blocked SIGINT, so that Ctrl-C,
    # which a terminal sends to every process, does not interrupt its imports.
    blocked = signal.SIG_BLOCK, [signal.SIGINT]
    starter = ThreadPoolExecutor(1, "", signal.pthread_sigmask, blocked)

    def call(method: str, items: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
        queue: collections.deque[tuple[Any, Future]] = collections.deque()
        for item in items:
            submitted = starter.submit(pool.submit, _call_worker, method, item)
            queue.append((item, submitted.result()))
            if len(queue) > 3 * count:
                item, future = queue.popleft()
                yield item, future.result()
        for item, future in queue:
            yield item, future.result()

    try:
        yield call
    except BrokenProcessPool as error:
        raise InputError(
            f"A process of --workers={count} was killed, probably for lack of memory, "
            "of which each needs a few hundred MB; reduce --workers"
        ) from error
    finally:
        starter.shutdown()
        pool.shutdown(cancel_futures=True)


def _start_worker(*arguments: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process handles it
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    global _worker
    _worker = ChunkBuilder(*arguments)


def _exit_with_parent() -> None:
    """Exit when the main process ends, even if it is killed."""
    multiprocessing.parent_process().join()
    os._exit(1)


def _call_worker(method: str, item: Any) -> Any:
    return getattr(_worker, method)(item)


def write_metadata(
    folder: str,
    tokenizer: WordPieceTokenizer,
    config: PretrainingConfig,
    manifest: Manifest,
) -> None:
    """Write vocabulary, config and manifest to a path or a URL."""
    texts = {
        **tokenizer.files(records.VOCABULARY),
        records.CONFIG: config_lib.dump_config(config),
        records.MANIFEST: manifest.text,
    }
    for name, text in texts.items():
        ObjectFolder(folder).write(name, text.encode())


def shard_count(text_bytes: int) -> int:
    """Return the number of files for a corpus: one per 32 MB of text, at most 512."""
    return min(_MAX_SHARDS, max(1, math.ceil(text_bytes / _TEXT_BYTES_PER_SHARD)))


def _drop_duplicates(
    hashed: Iterable[tuple[list[Chunk], list[list[bytes]]]],
    sources: Sequence[str],
    report: DataErrorLog,
) -> Iterator[list[Chunk]]:
    """Yield the chunks without duplicates, given the hashes of their documents."""
    places: dict[bytes, tuple[int, int]] = {}
    for chunks, digests in hashed:
        kept = []
        for chunk, keys in zip(chunks, digests, strict=True):
            is_first = []
            for key, line in zip(keys, chunk.lines, strict=True):
                place = chunk.source, line
                source, first_line = first = places.setdefault(key, place)
                is_first.append(first is place)
                if first is not place:
                    kept_place = sources[source], first_line
                    report.write(duplicate_line(chunk.name, line, *kept_place), EXACT)
            kept.append(chunk.select(is_first))
        yield kept


def _write_shards(
    chunks: Iterable[ChunkRecords],
    reader: CorpusReader,
    folder: pathlib.Path,
    count: int,
) -> tuple[dict[str, int], list[Shard]]:
    """Write the records to the shards in turn, as the original does."""
    names = records.shard_names(count)
    digests = [hashlib.sha256() for _ in names]
    counts: collections.Counter[str] = collections.Counter()
    start = time.perf_counter()
    with progress_bar(reader) as bar, contextlib.ExitStack() as stack:
        files = [stack.enter_context((folder / name).open("wb")) for name in names]
        for chunk in chunks:
            for number, data in enumerate(chunk.shard_bytes, counts["records"]):
                files[number % count].write(data)
                digests[number % count].update(data)
            counts.update(chunk.counts)
            speed = counts["tokens"] / (time.perf_counter() - start)
            documents = f"{counts['documents']:,} documents, {speed:,.0f} tokens/s"
            bar.set_postfix_str(documents, refresh=False)
            bar.update(reader.position_bytes - bar.n)
    numbers = [len(range(i, counts["records"], count)) for i in range(count)]
    sizes = [(folder / name).stat().st_size for name in names]
    sums = [digest.hexdigest() for digest in digests]
    shards = list(map(Shard, names, numbers, sizes, sums))
    return counts, shards


def make_manifest(
    tokenizer: WordPieceTokenizer,
    config: PretrainingConfig,
    errors: collections.Counter[str],
    duplicate_counts: collections.Counter[str],
    counts: dict[str, int],
    shards: list[Shard],
) -> Manifest:
    """Return the manifest of records."""
    if not counts.get("tokens"):
        raise InputError("--input must contain text with letters or digits")
    positions = counts["records"] * config.records.max_length
    return Manifest(
        documents=counts["documents"],
        sentences=counts["sentences"],
        tokens=counts["tokens"],
        discarded_tokens=counts["discarded"],
        unknown_share=counts["unknown"] / max(1, counts["tokens"]),
        records=counts["records"],
        padding_share=1 - counts["positions"] / positions,
        seed=config.records.seed,
        settings=dataclasses.asdict(config),
        tokenizer=tokenizer.identity(),
        unicode=unicodedata.unidata_version,
        problems=dict(errors),
        shards=shards,
        duplicates=dict(duplicate_counts),
    )
