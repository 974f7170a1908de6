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
import os
import pathlib
import random
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator

from electra_tf import durable_files
from electra_tf.config import loader as config_lib
from electra_tf.config.pretraining import PretrainingConfig
from electra_tf.errors import InputError
from electra_tf.storage.lease import Lease, is_lease
from electra_tf.storage.mirror import push, temporary_folder
from electra_tf.storage.objects import ObjectFolder, is_url
from electra_tf.text import duplicates, records
from electra_tf.text.chunks import Chunk, group_chunks, read_chunks
from electra_tf.text.corpus import CorpusReader, progress_bar
from electra_tf.text.data_errors import DataErrorLog
from electra_tf.text.duplicates import DuplicateIndex, DuplicateReport, Fingerprint
from electra_tf.text.examples import ORDERS, Example
from electra_tf.text.records import (
    Manifest,
    RecordEncoder,
    Shard,
    frame,
    records_lock,
)
from electra_tf.text.tokenizer import Tokenizer, settings_path
from electra_tf.text.vocab import UNKNOWN, Vocabulary
from electra_tf.text.warnings import AccentLoss, AccentLossCounter
from electra_tf.text.worker_pool import WorkerPool

_TEXT_BYTES_PER_SHARD = 32_000_000
_MAX_SHARDS = 512
CONFIG = "config.yaml"
_MARK = "unfinished"  # a file, because object stores have no folders


@dataclasses.dataclass(frozen=True)
class ChunkRecords:
    """Records and counts of some chunks."""

    shard_bytes: list[bytes]
    """Item p contains the records p, p + shards, p + 2 * shards, ... of the chunks."""
    counts: dict[str, int]
    accent_loss: AccentLoss


class ChunkBuilder:
    """Convert documents to serialised records."""

    def __init__(self, vocabulary: Vocabulary, config: PretrainingConfig, shards: int):
        self._tokenizer = Tokenizer(vocabulary, config.tokenization)
        self._unknown = chr(vocabulary.ids[UNKNOWN])
        self._settings = config.records
        self._encoder = RecordEncoder(vocabulary, config.records.max_length)
        self._shards = shards

    def build(self, chunks: list[Chunk]) -> ChunkRecords:
        """Tokenize, pack and serialise chunks.

        Args:
            chunks: The chunks. The random numbers of each depend on its key alone;
                those of the first chunk of the first source are those of the original
                after `random.seed(seed)`.

        Returns:
            The records in order, and counts for the manifest.
        """
        counts: collections.Counter[str] = collections.Counter()
        words, characters = self._tokenizer.too_long
        examples: list[Example] = []
        accent_loss = AccentLoss()
        for chunk in chunks:
            counter = AccentLossCounter(self._tokenizer.settings)
            for text in chunk.documents:
                counter.add(text)
            accent_loss += counter.result()
            examples += self._pack(chunk, counts)
        records = list(map(frame, self._encoder.encode(examples)))
        packed = sum(len(a) + len(b) for a, b in examples)
        special = sum(3 if b else 2 for _, b in examples)
        counts["discarded"] = counts["tokens"] - packed
        counts["records"] = len(examples)
        counts["positions"] = packed + special
        counts["too_long_words"] = self._tokenizer.too_long[0] - words
        counts["too_long_characters"] = self._tokenizer.too_long[1] - characters
        shard_bytes = [
            b"".join(records[p :: self._shards]) for p in range(self._shards)
        ]
        return ChunkRecords(shard_bytes, dict(counts), accent_loss)

    def fingerprints(self, chunks: list[Chunk]) -> list[list[Fingerprint]]:
        """Return the fingerprint of each document of each chunk."""
        kind = self._settings.deduplicate
        return [duplicates.fingerprints(chunk, kind) for chunk in chunks]

    def _pack(
        self, chunk: Chunk, counts: collections.Counter[str]
    ) -> Iterator[Example]:
        encode = self._tokenizer.wordpieces
        wordpieces = [list(map(encode, text.split("\n"))) for text in chunk.documents]
        text = "".join(itertools.chain.from_iterable(wordpieces))
        counts["documents"] += len(wordpieces)
        counts["sentences"] += sum(map(len, wordpieces))
        counts["tokens"] += len(text)
        counts["unknown"] += text.count(self._unknown)
        rng = random.Random(chunk.seed(self._settings.seed))
        pack = ORDERS[self._settings.order]
        return pack(wordpieces, self._settings.max_length, rng)


def build(
    patterns: Iterable[str],
    vocabulary: Vocabulary,
    config: PretrainingConfig,
    output: str,
    *,
    workers: int = 1,
    overwrite: bool = False,
    allow_accent_loss: bool = False,
) -> Manifest:
    """Write shards, vocabulary, config and, last, the manifest.

    Args:
        patterns: Paths, globs, URLs and TFDS names.
        vocabulary: The vocabulary.
        config: All settings.
        output: The folder, a path or a URL.
        workers: Number of processes that tokenize.
        overwrite: Replace existing records.
        allow_accent_loss: Allow accent stripping in other scripts.
    """
    if workers < 1:
        raise InputError(
            "--workers must be at least 1", str(workers), "Remove the flag"
        )
    with records_output(output, overwrite) as name, contextlib.ExitStack() as stack:
        folder = pathlib.Path(name)
        log = DataErrorLog(config.corpus.on_error, folder / records.PROBLEMS)
        report = DuplicateReport(folder / records.DUPLICATES)
        reader = CorpusReader(patterns, config.corpus, log)
        shards = config.records.shards or shard_count(reader.estimated_text_bytes)
        pool = WorkerPool(workers, ChunkBuilder, vocabulary, config, shards)
        for file in (log, report):
            stack.callback(file.close)
        stack.enter_context(pool)
        chunks = group_chunks(read_chunks(reader))
        if config.records.deduplicate != "none":
            index = DuplicateIndex(config.records, reader.sources)
            chunks = _drop_duplicates(chunks, pool, index, report)
        built = (result for _, result in pool.map("build", chunks))
        if not allow_accent_loss:
            built = _check_accent_loss(built)
        totals = _write_shards(built, reader, folder, shards)
        tokenizer = Tokenizer(vocabulary, config.tokenization)
        manifest = make_manifest(tokenizer, config, log.counts, report.counts, *totals)
        write_metadata(name, tokenizer, config, manifest)
    return manifest


@contextlib.contextmanager
def records_output(
    output: str, overwrite: bool, is_shared: bool = False
) -> Iterator[str]:
    """Yield a folder whose files replace the records of `output` after the block.

    It is `_building` in the output, or a local folder if the output is a URL. A folder
    with `_building` and without a manifest is half-written.

    Args:
        output: The folder of records, a path or a URL.
        overwrite: Replace existing records.
        is_shared: Other machines write to the folder, too: it is in the output always.
    """
    target = ObjectFolder(output)
    is_half_written = _check_output(target, overwrite)
    try:
        with _output_lock(output) as check_lock, contextlib.ExitStack() as stack:
            building = target / records.BUILDING
            folder = building.url
            if is_url(output) and not is_shared:
                folder = stack.enter_context(temporary_folder())
            with _removed_on_error(building, output, is_half_written):
                building.clear()
                if folder == building.url:
                    building.write(_MARK, b"")
                yield folder
            _publish(folder, target, check_lock)
    except OSError as error:
        raise InputError(
            "--output must be writable and have as much free space as the text",
            f"{error} (--output={output})",
            "Free some space or pass another --output; the new files are removed",
        ) from error


def _check_output(target: ObjectFolder, overwrite: bool) -> bool:
    """Reject a folder that must not be written; return whether it is half-written."""
    names = [name for name in target.find() if not is_lease(name)]
    is_complete = records.MANIFEST in names
    is_half_written = not is_complete and records.is_half_written(names)
    if names and not (is_complete or is_half_written):
        raise InputError(
            "--output must be a new or empty folder, or a folder of records",
            f"{target.url}, which contains other files",
            "Pass another folder",
        )
    if names and not overwrite:
        state = "complete" if is_complete else "half-written"
        raise InputError(
            "Without --overwrite, --output must not contain records",
            f"{target.url}, which contains {state} records",
            "Pass --overwrite to replace them, or pass another folder",
        )
    return is_half_written


@contextlib.contextmanager
def _output_lock(output: str) -> Iterator[Callable[[], None]]:
    """Lock an output; yield a function that raises an error if the lock is lost."""
    if is_url(output):
        with Lease(ObjectFolder(output), "--output") as lease:
            yield lease.check
    else:
        os.makedirs(output, exist_ok=True)
        with records_lock(output, exclusive=True):
            yield lambda: None


@contextlib.contextmanager
def _removed_on_error(
    building: ObjectFolder, output: str, is_half_written: bool
) -> Iterator[None]:
    """Delete the new files if the block fails, and a new local output."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError, InputError):
            building.clear()
            if is_half_written:  # it must stay marked as such
                building.write(_MARK, b"")
            elif not is_url(output):
                os.rmdir(output)
        raise


def _publish(folder: str, target: ObjectFolder, check_lock: Callable[[], None]) -> None:
    """Replace old records by new files, the manifest last.

    An interruption leaves `_building` and no manifest.
    """
    building = target / records.BUILDING
    names = [name for name in ObjectFolder(folder).find() if name != _MARK]
    if not is_url(folder):
        durable_files.sync(folder)
    check_lock()
    building.write(_MARK, b"")
    target.delete(records.MANIFEST)
    for name in target.find():
        if name.startswith(
            (records.SHARD_PREFIX, records.PROBLEMS, records.DUPLICATES)
        ):
            target.delete(name)
    for group in (set(names) - {records.MANIFEST}, {records.MANIFEST}):
        check_lock()
        if folder == building.url:  # needs no disk space
            target.move({f"{records.BUILDING}/{name}": name for name in group})
        else:
            push(target, folder, sorted(group))
    building.clear()


def write_metadata(
    folder: str, tokenizer: Tokenizer, config: PretrainingConfig, manifest: Manifest
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
    index: DuplicateIndex,
    report: DuplicateReport,
) -> Iterator[list[Chunk]]:
    """Yield the chunks without duplicates; the workers compute the fingerprints."""
    for chunks, hashes in pool.map("fingerprints", groups):
        kept = []
        for chunk, chunk_hashes in zip(chunks, hashes, strict=True):
            rest, dropped = index.drop(chunk, chunk_hashes)
            kept.append(rest)
            report.add(dropped)
        yield kept


def _check_accent_loss(chunks: Iterable[ChunkRecords]) -> Iterator[ChunkRecords]:
    """Yield the results, after a check of the accent loss so far."""
    total = AccentLoss()
    for chunk in chunks:
        total += chunk.accent_loss
        total.check()
        yield chunk


def _write_shards(
    chunks: Iterable[ChunkRecords],
    reader: CorpusReader,
    folder: pathlib.Path,
    count: int,
) -> tuple[dict[str, int], AccentLoss, list[Shard]]:
    """Write the records to the shards in turn, as the original does."""
    names = records.shard_names(count)
    digests = [hashlib.sha256() for _ in names]
    counts: collections.Counter[str] = collections.Counter()
    accent_loss = AccentLoss()
    with _Progress(reader) as progress, contextlib.ExitStack() as stack:
        files = [stack.enter_context((folder / name).open("wb")) for name in names]
        for chunk in chunks:
            for number, data in enumerate(chunk.shard_bytes, counts["records"]):
                files[number % count].write(data)
                digests[number % count].update(data)
            counts.update(chunk.counts)
            accent_loss += chunk.accent_loss
            progress.update(counts)
    shards = [
        Shard(
            name,
            len(range(i, counts["records"], count)),
            (folder / name).stat().st_size,
            digests[i].hexdigest(),
        )
        for i, name in enumerate(names)
    ]
    return counts, accent_loss, shards


class _Progress:
    """Progress bar over the bytes of the input, with documents and tokens/s."""

    def __init__(self, reader: CorpusReader):
        self._reader = reader
        self._start = time.perf_counter()
        self._bar = progress_bar(reader)

    def __enter__(self) -> "_Progress":
        return self

    def __exit__(self, *_) -> None:
        self._bar.close()

    def update(self, counts: dict[str, int]) -> None:
        speed = counts["tokens"] / (time.perf_counter() - self._start)
        self._bar.set_postfix_str(
            f"{counts['documents']:,} documents, {speed:,.0f} tokens/s", refresh=False
        )
        self._bar.update(self._reader.position_bytes - self._bar.n)


def make_manifest(
    tokenizer: Tokenizer,
    config: PretrainingConfig,
    errors: collections.Counter[str],
    duplicate_counts: collections.Counter[str],
    counts: dict[str, int],
    accent_loss: AccentLoss,
    shards: list[Shard],
) -> Manifest:
    """Return the manifest of records."""
    if not counts.get("tokens"):
        raise InputError(
            "--input must contain text", "0 tokens", "Name files with letters or digits"
        )
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
        too_long_words=counts["too_long_words"],
        too_long_characters=counts["too_long_characters"],
        stripped_share=accent_loss.share,
        stripped_example=accent_loss.example,
        duplicates=dict(duplicate_counts),
    )
