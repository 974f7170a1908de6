"""Build a folder of records with several worker processes.

The main process reads the corpus in chunks of whole documents and writes the records;
workers tokenize and pack. The result of a chunk depends only on its text, its key and
the seed, so the output is the same for any number of workers.
"""

import collections
import contextlib
import dataclasses
import hashlib
import itertools
import math
import pathlib
import random
import time
import unicodedata
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from electra_tf.config import loader as config_lib
from electra_tf.config.pretraining import PretrainingConfig
from electra_tf.errors import InputError
from electra_tf.storage.objects import ObjectFolder
from electra_tf.text import duplicates, records
from electra_tf.text.chunks import Chunk, first_chunks, group_chunks, read_chunks
from electra_tf.text.corpus import CorpusReader, progress_bar
from electra_tf.text.data_errors import DataErrorLog
from electra_tf.text.examples import ORDERS, Example
from electra_tf.text.records import Manifest, Shard
from electra_tf.text.tokenizer import WordPieceTokenizer, settings_path
from electra_tf.text.vocab import UNKNOWN, Vocabulary
from electra_tf.text.warnings import DISCARDED_LIMIT
from electra_tf.text.wordpieces import Wordpieces
from electra_tf.text.worker_pool import WorkerPool

_TEXT_BYTES_PER_SHARD = 32_000_000
_MAX_SHARDS = 512
CONFIG = "config.yaml"


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
        return [list(map(duplicates.digest, chunk.documents)) for chunk in chunks]


def with_order(
    patterns: Iterable[str], vocabulary: Vocabulary, config: PretrainingConfig
) -> tuple[PretrainingConfig, list[str]]:
    """Choose `records.order`, if it is not set, by the first chunks of the corpus.

    Return the config with an order, and a line for each order that was measured.
    """
    if config.records.order is not None:
        return config, []
    sample = first_chunks(patterns, config.corpus)
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
    order = "document" if discarded["original"] > DISCARDED_LIMIT else "original"
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
    """Write shards, vocabulary, config and, last, the manifest."""
    config, _ = with_order(patterns, vocabulary, config)
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
        pool = stack.enter_context(
            WorkerPool(workers, ChunkBuilder, vocabulary, config, shards)
        )
        chunks = group_chunks(read_chunks(reader))
        if config.records.deduplicate != "none":
            index = duplicates.DuplicateIndex(reader.sources)
            chunks = _drop_duplicates(chunks, pool, index, report)
        built = (result for _, result in pool.map("build", chunks))
        totals = _write_shards(built, reader, folder, shards)
        tokenizer = WordPieceTokenizer(vocabulary, config.tokenization)
        manifest = make_manifest(tokenizer, config, log.counts, report.counts, *totals)
        write_metadata(name, tokenizer, config, manifest)
    return manifest


def write_metadata(
    folder: str,
    tokenizer: WordPieceTokenizer,
    config: PretrainingConfig,
    manifest: Manifest,
) -> None:
    """Write vocabulary, config and manifest to a path or a URL."""
    texts = {
        records.VOCABULARY: tokenizer.vocabulary.text,
        settings_path(records.VOCABULARY).name: tokenizer.identity_text,
        CONFIG: config_lib.dump_config(config),
        records.MANIFEST: manifest.text,
    }
    for name, text in texts.items():
        ObjectFolder(folder).write(name, text.encode())


def shard_count(text_bytes: int) -> int:
    """Return the number of files for a corpus: one per 32 MB of text, at most 512."""
    return min(_MAX_SHARDS, max(1, math.ceil(text_bytes / _TEXT_BYTES_PER_SHARD)))


def _drop_duplicates(
    groups: Iterable[list[Chunk]],
    pool: WorkerPool,
    index: duplicates.DuplicateIndex,
    report: DataErrorLog,
) -> Iterator[list[Chunk]]:
    """Yield the chunks without duplicates; the workers compute the hashes."""
    for chunks, hashes in pool.map("digests", groups):
        kept = []
        for chunk, chunk_hashes in zip(chunks, hashes, strict=True):
            rest, dropped = index.drop(chunk, chunk_hashes)
            kept.append(rest)
            for duplicate in dropped:
                report.write(duplicate.text, duplicates.EXACT)
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
