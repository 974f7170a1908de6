"""Build a folder of records with several worker processes.

The main process reads the corpus in chunks of whole documents and writes the records;
workers tokenize and pack. The result of a chunk depends only on its text, its number
and the seed, so the output is the same for any number of workers.
"""

import collections
import concurrent.futures
import contextlib
import dataclasses
import hashlib
import itertools
import math
import multiprocessing
import os
import pathlib
import random
import shutil
import signal
import threading
import time
import unicodedata
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor

from electra_tf import durable_files
from electra_tf.config import loader as config_lib
from electra_tf.config.pretraining import PretrainingConfig
from electra_tf.errors import InputError
from electra_tf.text import records
from electra_tf.text.accent_loss import AccentLoss, AccentLossCounter
from electra_tf.text.corpus import CorpusReader, progress_bar
from electra_tf.text.data_errors import DataErrorLog
from electra_tf.text.examples import ORDERS
from electra_tf.text.records import Manifest, RecordEncoder, Shard, frame
from electra_tf.text.records_lock import records_lock
from electra_tf.text.tokenizer import Tokenizer
from electra_tf.text.vocab import UNKNOWN, Vocabulary

_CHUNK_CHARACTERS = 2_000_000
_TEXT_BYTES_PER_SHARD = 32_000_000
_MAX_SHARDS = 512
CONFIG = "config.yaml"


@dataclasses.dataclass(frozen=True)
class Chunk:
    """Records and counts of one chunk of documents."""

    shard_bytes: list[bytes]
    """Item p contains the records p, p + shards, p + 2 * shards, ... of the chunk."""
    counts: dict[str, int]
    accent_loss: AccentLoss


class ChunkBuilder:
    """Convert documents to serialised records.

    Args:
        vocabulary: The vocabulary.
        config: Tokenization and packing.
        shards: Number of files that the records are distributed to.
    """

    def __init__(self, vocabulary: Vocabulary, config: PretrainingConfig, shards: int):
        self._tokenizer = Tokenizer(vocabulary, config.tokenization)
        self._unknown = chr(vocabulary.ids[UNKNOWN])
        self._settings = config.records
        self._encoder = RecordEncoder(vocabulary, config.records.max_length)
        self._shards = shards

    def build(self, index: int, documents: list[str]) -> Chunk:
        """Tokenize, pack and serialise one chunk.

        Args:
            index: Number of the chunk in the corpus. The random numbers of chunk 0
                are those of the original after `random.seed(seed)`.
            documents: Texts of the documents, lines joined by newlines.

        Returns:
            The records in order, and counts for the manifest.
        """
        encode = self._tokenizer.wordpieces
        words_before, characters_before = self._tokenizer.too_long
        accent_loss = AccentLossCounter(self._tokenizer.settings)
        for text in documents:
            accent_loss.add(text)
        wordpieces = [list(map(encode, text.split("\n"))) for text in documents]
        rng = random.Random(self._settings.seed + (index << 64))
        pack = ORDERS[self._settings.order]
        examples = list(pack(wordpieces, self._settings.max_length, rng))
        records = list(map(frame, self._encoder.encode(examples)))
        text = "".join(itertools.chain.from_iterable(wordpieces))
        packed = sum(len(a) + len(b) for a, b in examples)
        words, characters = self._tokenizer.too_long
        special = sum(3 if b else 2 for _, b in examples)
        return Chunk(
            [b"".join(records[p :: self._shards]) for p in range(self._shards)],
            {
                "documents": len(documents),
                "sentences": sum(map(len, wordpieces)),
                "tokens": len(text),
                "unknown": text.count(self._unknown),
                "discarded": len(text) - packed,
                "records": len(examples),
                "positions": packed + special,
                "too_long_words": words - words_before,
                "too_long_characters": characters - characters_before,
            },
            accent_loss.result(),
        )


def build(
    reader: CorpusReader,
    error_log: DataErrorLog,
    vocabulary: Vocabulary,
    config: PretrainingConfig,
    output: pathlib.Path,
    *,
    workers: int = 1,
    overwrite: bool = False,
    allow_accent_loss: bool = False,
) -> Manifest:
    """Write shards, vocabulary, config and, last, the manifest.

    The files are written to `output/_building` and moved to `output` when they are
    complete. A folder with `_building` and without a manifest is half-written.

    Args:
        reader: The corpus.
        error_log: Log of data errors; the manifest contains its counts.
        vocabulary: The vocabulary.
        config: Tokenization and packing.
        output: The folder to write; created if missing.
        workers: Number of worker processes; 1 runs in this process.
        overwrite: Replace existing records when the new ones are complete.
        allow_accent_loss: Skip the check of `accent_loss.py`.

    Returns:
        The written manifest.

    Raises:
        InputError: The input has errors, the output is unusable, or accent stripping
            changes more than 1% of the letters.
    """
    _check_output(output, overwrite)
    if workers < 1:
        raise InputError(
            "--workers must be at least 1", str(workers), "Remove the flag"
        )
    shards = config.records.shards or shard_count(reader.estimated_text_bytes)
    with contextlib.suppress(OSError):  # `_building` raises it in words
        output.mkdir(parents=True, exist_ok=True)
    with records_lock(output, exclusive=True):
        with _building(output) as folder, contextlib.closing(error_log):
            with WorkerPool(workers, vocabulary, config, shards) as pool:
                chunks = pool.map(_chunks(reader))
                if not allow_accent_loss:
                    chunks = _check_accent_loss(chunks)
                totals = _write_shards(chunks, reader, folder, shards)
            tokenizer = Tokenizer(vocabulary, config.tokenization)
            manifest = _manifest(tokenizer, config, error_log.counts, *totals)
            _write_metadata(folder, tokenizer, config, manifest)
            durable_files.sync(folder)
        _publish(folder, output)
    return manifest


@contextlib.contextmanager
def _building(output: pathlib.Path) -> Iterator[pathlib.Path]:
    """Create the temporary folder; remove it if the build fails."""
    folder = output / records.BUILDING
    half_written = folder.exists() and not (output / records.MANIFEST).exists()
    try:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        yield folder
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            # An output that was half-written before must stay marked as half-written.
            folder.mkdir() if half_written else output.rmdir()
        if isinstance(error, OSError):
            raise InputError(
                "--output must be writable and have as much free space as the text",
                f"{error} (--output={output})",
                "Free some space or pass another --output; the new files are removed",
            ) from error
        raise


def _write_metadata(
    folder: pathlib.Path,
    tokenizer: Tokenizer,
    config: PretrainingConfig,
    manifest: Manifest,
) -> None:
    """Write vocabulary, config and manifest."""
    tokenizer.save(folder / records.VOCABULARY)
    (folder / CONFIG).write_text(config_lib.dump_config(config), encoding="utf-8")
    manifest.write(folder)


def shard_count(text_bytes: int) -> int:
    """Return the number of files for a corpus: one per 32 MB of text, at most 512."""
    return min(_MAX_SHARDS, max(1, math.ceil(text_bytes / _TEXT_BYTES_PER_SHARD)))


def _check_output(output: pathlib.Path, overwrite: bool) -> None:
    if not output.exists() or (output.is_dir() and not any(output.iterdir())):
        return
    manifest, building = output / records.MANIFEST, output / records.BUILDING
    if not (manifest.exists() or building.exists()):
        raise InputError(
            "--output must be a new or empty folder, or a folder of records",
            f"{output}, which contains other files",
            "Pass another folder",
        )
    if not overwrite:
        state = "complete" if manifest.exists() else "half-written"
        raise InputError(
            "Without --overwrite, --output must not contain records",
            f"{output}, which contains {state} records",
            "Pass --overwrite to replace them, or pass another folder",
        )


def _publish(building: pathlib.Path, output: pathlib.Path) -> None:
    """Replace old records by the new files, the manifest last.

    Moving files needs no disk space. An interruption leaves `_building` and no
    manifest, so that the folder is recognised as half-written.
    """
    (output / records.MANIFEST).unlink(missing_ok=True)
    (output / records.PROBLEMS).unlink(missing_ok=True)
    for path in output.glob(f"{records.SHARD_PREFIX}-*-of-*"):
        path.unlink()
    for path in building.iterdir():
        if path.name != records.MANIFEST:
            path.replace(output / path.name)
    durable_files.sync_folder(output)
    durable_files.publish(building / records.MANIFEST, output / records.MANIFEST)
    building.rmdir()


def _chunks(reader: CorpusReader) -> Iterator[tuple[int, list[str]]]:
    """Yield numbered groups of whole documents of about 2 million characters."""
    index, size, documents = 0, 0, []
    for document in reader:
        # A worker receives one long string faster than many short ones.
        documents.append("\n".join(document.lines))
        size += len(documents[-1])
        if size >= _CHUNK_CHARACTERS:
            yield index, documents
            index, size, documents = index + 1, 0, []
    if documents:
        yield index, documents


class WorkerPool:
    """Context manager that builds chunks in worker processes or in this process.

    Args:
        count: Number of processes; 1 runs in this process.
        arguments: Arguments of `ChunkBuilder`.
    """

    def __init__(self, count: int, *arguments):
        self._count = count
        self._arguments = arguments
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> "WorkerPool":
        if self._count > 1:
            self._pool = ProcessPoolExecutor(
                self._count,
                # A fork of a process with TensorFlow's threads may deadlock.
                multiprocessing.get_context("spawn"),
                _start_worker,
                self._arguments,
            )
        return self

    def __exit__(self, *_) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def map(self, chunks: Iterable[tuple[int, list[str]]]) -> Iterator[Chunk]:
        """Yield the built chunks in order, with a bounded number in memory."""
        if self._pool is None:
            builder = ChunkBuilder(*self._arguments)
            yield from itertools.starmap(builder.build, chunks)
            return
        queue: collections.deque[Future] = collections.deque()
        try:
            for chunk in chunks:
                # The first calls of `submit` start the worker processes.
                with _signals_deferred():
                    queue.append(self._pool.submit(_build_in_worker, *chunk))
                if len(queue) > 3 * self._count:
                    yield queue.popleft().result()
            while queue:
                yield queue.popleft().result()
        except concurrent.futures.process.BrokenProcessPool as error:
            raise InputError(
                "Each worker process must have a few hundred MB of memory",
                f"--workers={self._count}, of which one was killed",
                "Reduce --workers",
            ) from error


@contextlib.contextmanager
def _signals_deferred() -> Iterator[None]:
    """Handle SIGINT and SIGTERM after the block.

    An exception while a process is started would leave it with half of its arguments:
    it would print a traceback after the message of the main process. A process that is
    started in the block inherits a blocked SIGINT, so that Ctrl-C, which a terminal
    sends to every process, does not interrupt its imports.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # Python runs signal handlers in the main thread only
        return
    received: list[int] = []
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    handlers = {
        number: signal.signal(number, lambda number, _: received.append(number))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in handlers.items():
            signal.signal(number, handler)
    for number in received:
        signal.raise_signal(number)


def _start_worker(*arguments) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process handles it
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    global _builder
    _builder = ChunkBuilder(*arguments)


def _exit_with_parent() -> None:
    """Exit when the main process ends, even if it is killed."""
    multiprocessing.parent_process().join()
    os._exit(1)


def _build_in_worker(index: int, documents: list[str]) -> Chunk:
    return _builder.build(index, documents)


def _check_accent_loss(chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    """Yield the chunks, after a check of the accent loss so far."""
    total = AccentLoss()
    for chunk in chunks:
        total += chunk.accent_loss
        total.check()
        yield chunk


def _write_shards(
    chunks: Iterable[Chunk], reader: CorpusReader, folder: pathlib.Path, count: int
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
    if not counts["tokens"]:
        raise InputError(
            "--input must contain text", "0 tokens", "Check the files of --input"
        )
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


def _manifest(
    tokenizer: Tokenizer,
    config: PretrainingConfig,
    errors: collections.Counter[str],
    counts: dict[str, int],
    accent_loss: AccentLoss,
    shards: list[Shard],
) -> Manifest:
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
    )
