"""Builds a folder of records: one process reads and writes, the others do the work.

The corpus is dealt out in chunks of whole documents. What a chunk becomes depends on
its text, its number and the seed alone, so the output is the same for any number of
worker processes.
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

from electra_tf.config import loader as config_lib
from electra_tf.config.pretraining import PretrainingConfig
from electra_tf.errors import InputError
from electra_tf.text import records
from electra_tf.text.accent_loss import AccentLoss, AccentLossCounter
from electra_tf.text.corpus import CorpusReader, progress_bar
from electra_tf.text.data_errors import DataErrorLog
from electra_tf.text.examples import ORDERS
from electra_tf.text.records import Manifest, RecordEncoder, Shard, frame
from electra_tf.text.tokenizer import Tokenizer
from electra_tf.text.vocab import UNKNOWN, Vocabulary

_CHUNK_CHARACTERS = 2_000_000
_TEXT_BYTES_PER_SHARD = 32_000_000
_MAX_SHARDS = 512
CONFIG = "config.yaml"


@dataclasses.dataclass(frozen=True)
class Chunk:
    """What one chunk of documents became."""

    parts: list[bytes]
    """Part p holds the records p, p + shards, p + 2 * shards, ... of the chunk."""
    counts: dict[str, int]
    stripped: AccentLoss


class ChunkBuilder:
    """Turns documents into serialised records.

    Args:
        vocabulary: The pieces.
        config: Tokenization and packing.
        shards: How many files the records are dealt out to.
    """

    def __init__(self, vocabulary: Vocabulary, config: PretrainingConfig, shards: int):
        self._tokenizer = Tokenizer(vocabulary, config.tokenization)
        self._unknown = chr(vocabulary.ids[UNKNOWN])
        self._settings = config.records
        self._encoder = RecordEncoder(vocabulary, config.records.max_length)
        self._shards = shards

    def build(self, index: int, documents: list[str]) -> Chunk:
        """Tokenizes, packs and serialises one chunk.

        Args:
            index: Number of the chunk in the corpus. The first one draws what the
                original draws after `random.seed(seed)`.
            documents: Their text, lines joined by newlines.

        Returns:
            The records in order, and counts for the manifest.
        """
        encode = self._tokenizer.wordpieces
        words, characters = self._tokenizer.too_long
        stripped = AccentLossCounter(self._tokenizer.settings)
        for text in documents:
            stripped.add(text)
        pieces = [list(map(encode, text.split("\n"))) for text in documents]
        rng = random.Random(self._settings.seed + (index << 64))
        pack = ORDERS[self._settings.order]
        examples = list(pack(pieces, self._settings.max_length, rng))
        records = list(map(frame, self._encoder.encode(examples)))
        text = "".join(itertools.chain.from_iterable(pieces))
        kept = sum(len(a) + len(b) for a, b in examples)
        words_now, characters_now = self._tokenizer.too_long
        special = sum(3 if b else 2 for _, b in examples)
        return Chunk(
            [b"".join(records[p :: self._shards]) for p in range(self._shards)],
            {
                "documents": len(documents),
                "sentences": sum(map(len, pieces)),
                "tokens": len(text),
                "unknown": text.count(self._unknown),
                "discarded": len(text) - kept,
                "records": len(examples),
                "positions": kept + special,
                "too_long_words": words_now - words,
                "too_long_characters": characters_now - characters,
            },
            stripped.found(),
        )


def build(
    reader: CorpusReader,
    problems: DataErrorLog,
    vocabulary: Vocabulary,
    config: PretrainingConfig,
    output: pathlib.Path,
    *,
    workers: int = 1,
    overwrite: bool = False,
    may_strip: bool = False,
) -> Manifest:
    """Writes shards, vocabulary, config and, last, the manifest.

    Until then everything lies in `output/_building`: a folder with `_building` and no
    manifest is a half-written one.

    Args:
        reader: The corpus.
        problems: Bad input is counted here; its counts go into the manifest.
        vocabulary: The pieces.
        config: Tokenization and packing.
        output: The folder to fill; made if missing.
        workers: Processes; 1 works in this process.
        overwrite: Replace records that are already there, once the new are complete.
        may_strip: Strip accents however much of other scripts that changes; see
            `stripping.py`.

    Returns:
        The manifest that was written.

    Raises:
        InputError: Bad input, an unusable output, over 1% of the letters stripped.
    """
    _check_output(output, overwrite)
    if workers < 1:
        raise InputError("--workers is 1 or more", str(workers), "Leave it out")
    shards = config.records.shards or shard_count(reader.estimated_text_bytes)
    with _building(output) as folder, contextlib.closing(problems):
        with WorkerPool(workers, vocabulary, config, shards) as pool:
            chunks = pool.map(_chunks(reader))
            if not may_strip:
                chunks = _checked(chunks)
            counts, stripped, written = _write_shards(chunks, reader, folder, shards)
        tokenizer = Tokenizer(vocabulary, config.tokenization)
        manifest = _manifest(
            tokenizer, config, counts, stripped, problems.counts, written
        )
        _write_beside(folder, tokenizer, config, manifest)
    _publish(folder, output)
    return manifest


@contextlib.contextmanager
def _building(output: pathlib.Path) -> Iterator[pathlib.Path]:
    """The folder to work in, removed with all it holds if anything goes wrong."""
    folder = output / records.BUILDING
    half_written = folder.exists() and not (output / records.MANIFEST).exists()
    try:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        yield folder
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            # What was half-written before must not look complete now.
            folder.mkdir() if half_written else output.rmdir()
        if isinstance(error, OSError):
            raise InputError(
                "The output can be written; it takes about as much room as the text",
                f"{error} (output {output})",
                "Free some space or name another --output; what was begun is removed",
            ) from error
        raise


def _write_beside(
    folder: pathlib.Path,
    tokenizer: Tokenizer,
    config: PretrainingConfig,
    manifest: Manifest,
) -> None:
    """Writes what stands beside the shards."""
    tokenizer.save(folder / records.VOCABULARY)
    (folder / CONFIG).write_text(config_lib.dump_config(config), encoding="utf-8")
    manifest.write(folder)


def shard_count(text_bytes: int) -> int:
    """Returns how many files suit a corpus: not one of 12 GB, nor 1,000 of a few kB."""
    return min(_MAX_SHARDS, max(1, math.ceil(text_bytes / _TEXT_BYTES_PER_SHARD)))


def _check_output(output: pathlib.Path, overwrite: bool) -> None:
    if not output.exists() or (output.is_dir() and not any(output.iterdir())):
        return
    ours = (output / records.MANIFEST, output / records.BUILDING)
    if not any(path.exists() for path in ours):
        raise InputError(
            "--output is a new or empty folder, or one of electra_tf's records",
            f"{output}, which holds something else",
            "Name another folder",
        )
    if not overwrite:
        state = "complete" if ours[0].exists() else "half-written"
        raise InputError(
            "An existing output is replaced only on request",
            f"{output}, which holds {state} records",
            "Pass --overwrite to replace them, or name another folder",
        )


def _publish(building: pathlib.Path, output: pathlib.Path) -> None:
    """Moves the finished files into place, the manifest last; old records go only now.

    Nothing here takes room on the disk. Broken off, it leaves `_building` and no
    manifest: a half-written folder.
    """
    (output / records.MANIFEST).unlink(missing_ok=True)
    (output / records.PROBLEMS).unlink(missing_ok=True)
    for path in output.glob(f"{records.SHARD_PREFIX}-*-of-*"):
        path.unlink()
    for path in building.iterdir():
        if path.name != records.MANIFEST:
            path.replace(output / path.name)
    (building / records.MANIFEST).replace(output / records.MANIFEST)
    building.rmdir()


def _chunks(reader: CorpusReader) -> Iterator[tuple[int, list[str]]]:
    """Whole documents, until there are enough characters for a chunk."""
    index, size, documents = 0, 0, []
    for document in reader:
        # One string travels to the workers faster than many.
        documents.append("\n".join(document.lines))
        size += len(documents[-1])
        if size >= _CHUNK_CHARACTERS:
            yield index, documents
            index, size, documents = index + 1, 0, []
    if documents:
        yield index, documents


class WorkerPool:
    """A context in which chunks are built, by processes or in this one.

    Args:
        count: Processes; 1 works in this process.
        arguments: Those of `ChunkBuilder`.
    """

    def __init__(self, count: int, *arguments):
        self._count = count
        self._arguments = arguments
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> "WorkerPool":
        if self._count > 1:
            self._pool = ProcessPoolExecutor(
                self._count,
                # A fork of a process that runs TensorFlow's threads may hang.
                multiprocessing.get_context("spawn"),
                _start_worker,
                self._arguments,
            )
        return self

    def __exit__(self, *_) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def map(self, chunks: Iterable[tuple[int, list[str]]]) -> Iterator[Chunk]:
        """Builds all chunks, yields them in order, holds a few at a time."""
        if self._pool is None:
            builder = ChunkBuilder(*self._arguments)
            yield from itertools.starmap(builder.build, chunks)
            return
        waiting: collections.deque[Future] = collections.deque()
        try:
            for chunk in chunks:
                waiting.append(self._pool.submit(_build_in_worker, *chunk))
                if len(waiting) > 3 * self._count:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except concurrent.futures.process.BrokenProcessPool as error:
            raise InputError(
                "Each worker process has a few hundred MB of memory",
                "a worker that was killed from outside",
                "Use fewer --workers",
            ) from error


def _start_worker(*arguments) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process ends the run
    threading.Thread(target=_end_with_parent, daemon=True).start()
    global _builder
    _builder = ChunkBuilder(*arguments)


def _end_with_parent() -> None:
    """Ends this process when the main one is gone, even if it was killed."""
    multiprocessing.parent_process().join()
    os._exit(1)


def _build_in_worker(index: int, documents: list[str]) -> Chunk:
    return _builder.build(index, documents)


def _checked(chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    """Stops where stripping accents has changed too much of the text so far."""
    found = AccentLoss()
    for chunk in chunks:
        found += chunk.stripped
        found.check()
        yield chunk


def _write_shards(
    chunks: Iterable[Chunk], reader: CorpusReader, folder: pathlib.Path, count: int
) -> tuple[dict[str, int], AccentLoss, list[Shard]]:
    """Deals the records out to the shards in turn, as the original does."""
    names = records.shard_names(count)
    digests = [hashlib.sha256() for _ in names]
    numbers: collections.Counter[str] = collections.Counter()
    stripped = AccentLoss()
    with _Progress(reader) as progress, contextlib.ExitStack() as stack:
        files = [stack.enter_context((folder / name).open("wb")) for name in names]
        for chunk in chunks:
            for number, part in enumerate(chunk.parts, numbers["records"]):
                files[number % count].write(part)
                digests[number % count].update(part)
            numbers.update(chunk.counts)
            stripped += chunk.stripped
            progress.show(numbers)
    if not numbers["tokens"]:
        raise InputError(
            "The input holds text", "not a single token", "Look at the input files"
        )
    shards = [
        Shard(
            name,
            len(range(i, numbers["records"], count)),
            (folder / name).stat().st_size,
            digests[i].hexdigest(),
        )
        for i, name in enumerate(names)
    ]
    return numbers, stripped, shards


class _Progress:
    """A bar over the bytes of the input, with documents, tokens/s and time left."""

    def __init__(self, reader: CorpusReader):
        self._reader = reader
        self._start = time.perf_counter()
        self._bar = progress_bar(reader)

    def __enter__(self) -> "_Progress":
        return self

    def __exit__(self, *_) -> None:
        self._bar.close()

    def show(self, numbers: dict[str, int]) -> None:
        pace = numbers["tokens"] / (time.perf_counter() - self._start)
        self._bar.set_postfix_str(
            f"{numbers['documents']:,} documents, {pace:,.0f} tokens/s", refresh=False
        )
        self._bar.update(self._reader.position_bytes - self._bar.n)


def _manifest(
    tokenizer: Tokenizer,
    config: PretrainingConfig,
    counts: dict[str, int],
    stripped: AccentLoss,
    problems: collections.Counter[str],
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
        problems=dict(problems),
        shards=shards,
        too_long_words=counts["too_long_words"],
        too_long_characters=counts["too_long_characters"],
        stripped_share=stripped.share,
        stripped_example=stripped.example,
    )
