"""Build records and count words with Apache Beam, on one machine or on many.

    sources -> chunks of documents -> duplicates dropped -> records -> shards
                                   -> words and their counts

The examples are those of `builder.py`, because the chunks and their random numbers are
the same. Only their order differs: record n of a chunk belongs to the shard (first + n)
modulo the number of shards, where `first` is a hash of the chunk's key.

A runner may run a bundle several times, or at the same time on two workers. So all
files and counts are computed from keyed data, and the content of a file depends on its
name alone. Beam's own counters, which include repeated bundles, are not used. Errors of
the input are data, too: the launching process raises them, with the message of the
local command. An exception in a worker would be retried instead.
"""

import collections
import contextlib
import dataclasses
import hashlib
import json
import pathlib
import shlex
import signal
import tempfile
import threading
import uuid
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

import psutil

from electra_tf.config.data import TokenizationConfig
from electra_tf.config.pretraining import PretrainingConfig
from electra_tf.errors import InputError
from electra_tf.storage.objects import ObjectFolder
from electra_tf.text import duplicates, records
from electra_tf.text.builder import (
    ChunkBuilder,
    make_manifest,
    shard_count,
    with_order,
    write_metadata,
)
from electra_tf.text.chunks import Chunk, read_chunks
from electra_tf.text.corpus import CorpusReader
from electra_tf.text.data_errors import DataErrorLog
from electra_tf.text.duplicates import Duplicate
from electra_tf.text.records import Manifest, Shard, records_output
from electra_tf.text.tokenizer import WordPieceTokenizer
from electra_tf.text.vocab import Vocabulary
from electra_tf.text.vocab_training import WordCounter, WordCounts, drop_rare
from electra_tf.text.warnings import AccentLoss

try:
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.runners.runner import PipelineState
except ImportError as import_error:
    raise InputError(
        "apache-beam must be installed for --runner=beam",
        f"Python without it ({import_error})",
        "Install it: pip install 'electra_tf[beam]', or pass --runner=local",
    ) from import_error

# Outputs of steps beside their main one: (number of a source, arguments of an
# InputError), (name of a file, a part of it), counts by name, and (key of a chunk,
# fields of an AccentLoss).
_FAILURES, _PARTS, _COUNTS, _ACCENTS = "failures", "parts", "counts", "accents"
_FILES = "files"  # results of WriteFile
_SUMMARY = "summary.jsonl"  # results of all steps, for the launching process
_PROBLEM, _DUPLICATE, _TOO_LONG = "problem: ", "duplicate: ", "too long: "
_EXACT = "exact"
_WORD_FILES = 64
_MAX_MESSAGE = 600  # characters of a runner's error


def build(
    patterns: Iterable[str],
    vocabulary: Vocabulary,
    config: PretrainingConfig,
    output: str,
    *,
    options: str = "",
    overwrite: bool = False,
    allow_accent_loss: bool = False,
) -> Manifest:
    """Write shards, vocabulary, config and, last, the manifest."""
    config, _ = with_order(patterns, vocabulary, config)
    settings = config.records
    if settings.deduplicate == "near":
        raise InputError(
            "With --runner=beam, --deduplicate must be none or exact",
            "--deduplicate=near, which compares each document with all earlier ones",
            "Pass --deduplicate=exact, or use --runner=local",
        )
    reader = CorpusReader(patterns, config.corpus, DataErrorLog("stop", ""), False)
    shards = settings.shards or shard_count(reader.estimated_text_bytes)
    with records_output(output, overwrite, is_shared=True) as folder:
        pipeline = _new_pipeline(options)
        corpus = _read(pipeline, reader.sources, config)
        parts, counts = [corpus[_PARTS]], [corpus[_COUNTS]]
        if settings.deduplicate == _EXACT:
            corpus |= _drop_duplicates(corpus["chunks"])
            parts.append(corpus[_PARTS])
            counts.append(corpus[_COUNTS])
        step = BuildRecords(vocabulary, config, shards)
        built = _each_chunk(corpus, step, "records")
        # A shard without records is an empty file.
        names = [(name, ((), b"", 0)) for name in records.shard_names(shards)]
        parts += [built["records"], pipeline | "Shards" >> beam.Create(names)]
        _write(folder, parts, [built[_COUNTS], *counts], corpus, built)
        summary = _run(pipeline, folder, options)
        files = {name: Shard(name, *numbers) for name, *numbers in summary[_FILES]}
        tokenizer = WordPieceTokenizer(vocabulary, config.tokenization)
        manifest = make_manifest(
            tokenizer,
            config,
            _counts_of(summary, _PROBLEM),
            _counts_of(summary, _DUPLICATE),
            summary[_COUNTS],
            _accent_loss(summary, allow_accent_loss),
            [files[name] for name in records.shard_names(shards)],
        )
        write_metadata(folder, tokenizer, config, manifest)
    return manifest


def count_words(
    patterns: Iterable[str],
    settings: PretrainingConfig,
    error_log: DataErrorLog,
    folder: str,
    *,
    options: str = "",
    allow_accent_loss: bool = False,
) -> WordCounts:
    """Count the words of a corpus, with files in `folder` or in --temp_location."""
    reader = CorpusReader(patterns, settings.corpus, error_log, False)
    pipeline = _new_pipeline(options)
    if location := pipeline.options.get_all_options().get("temp_location"):
        folder = f"{location.rstrip('/')}/electra_tf-{uuid.uuid4().hex}"
    corpus = _read(pipeline, reader.sources, settings)
    counted = _each_chunk(corpus, CountWords(settings.tokenization), "words")
    words = (
        counted["words"]
        | "SumWords" >> beam.CombinePerKey(sum)
        | "WordParts" >> beam.Map(_word_part)
    )
    parts, counts = [words, corpus[_PARTS]], [counted[_COUNTS], corpus[_COUNTS]]
    _write(folder, parts, counts, corpus, counted)
    try:
        summary = _run(pipeline, folder, options)
        contents = {
            name: ObjectFolder(folder).read(name) for name, *_ in summary[_FILES]
        }
    finally:
        ObjectFolder(folder).clear()
    problems = contents.pop(records.PROBLEMS, b"").decode()
    error_log.extend(problems, _counts_of(summary, _PROBLEM))
    lines = (line for content in contents.values() for line in content.splitlines())
    all_words = collections.Counter(dict(map(json.loads, lines)))
    repeated = drop_rare(all_words)
    dropped = summary[_COUNTS].get("dropped", 0) + len(all_words) - len(repeated)
    too_long = _counts_of(summary, _TOO_LONG)
    accent_loss = _accent_loss(summary, allow_accent_loss)
    return WordCounts(
        repeated, too_long["words"], too_long["characters"], dropped, accent_loss
    )


def _word_part(element: tuple[str, int]) -> tuple[str, tuple]:
    """Return a word and its count as a line of a file."""
    name = f"words-{zlib.crc32(element[0].encode()) % _WORD_FILES:05d}"
    return name, (element[:1], json.dumps(element).encode() + b"\n", 1)


class ReadSource(beam.DoFn):
    """Read the chunks of a source, an element (number, path or URL)."""

    def __init__(self, config: PretrainingConfig):
        self._settings = config.corpus

    def process(self, element: tuple[int, str]) -> Iterator[Any]:
        """Yield chunks, failures, a part of problems.txt and counts."""
        number, source = element
        with tempfile.TemporaryDirectory() as folder:
            problems = pathlib.Path(folder, records.PROBLEMS)
            log = DataErrorLog(self._settings.on_error, problems, prints=False)
            try:
                reader = CorpusReader([source], self._settings, log, False)
                yield from read_chunks(reader, number)
            except InputError as error:
                message = error.required, error.received, error.remedy
                yield _output(_FAILURES, (number, message))
            log.close()
            if log.counts:
                part = (number,), problems.read_bytes(), log.counts.total()
                yield _output(_PARTS, (records.PROBLEMS, part))
        yield _output(_COUNTS, {_PROBLEM + kind: n for kind, n in log.counts.items()})


class BuildRecords(beam.DoFn):
    """Convert chunks to parts of shards, counts and accent losses."""

    def __init__(self, vocabulary: Vocabulary, config: PretrainingConfig, shards: int):
        self._arguments = vocabulary, config, shards
        self._names = records.shard_names(shards)
        self._builder: ChunkBuilder | None = None

    def setup(self) -> None:
        """Create the tokenizer, once per worker."""
        self._builder = ChunkBuilder(*self._arguments)

    def process(self, chunk: Chunk, failures: list[Any]) -> Iterator[Any]:
        """Build the records of one chunk, unless reading has failed anywhere."""
        if failures:
            return
        built = self._builder.build([chunk])
        shards = len(self._names)
        first = zlib.crc32(repr(chunk.key).encode())
        for number, data in enumerate(built.shard_bytes):
            if data:
                count = len(range(number, built.counts["records"], shards))
                yield self._names[(first + number) % shards], (chunk.key, data, count)
        yield _output(_COUNTS, built.counts)
        yield _output(_ACCENTS, (chunk.key, dataclasses.astuple(built.accent_loss)))


class CountWords(beam.DoFn):
    """Convert chunks to words and their counts, other counts, and accent losses."""

    def __init__(self, settings: TokenizationConfig):
        self._settings = settings

    def process(self, chunk: Chunk, failures: list[Any]) -> Iterator[Any]:
        """Count the words of one chunk, unless reading has failed anywhere."""
        if failures:
            return
        counter = WordCounter(self._settings)
        for text in chunk.documents:
            counter.add(text.split("\n"))
        yield from counter.words().items()
        counts = {_TOO_LONG + kind: count for kind, count in counter.too_long.items()}
        yield _output(_COUNTS, {**counts, "dropped": counter.dropped})
        loss = dataclasses.astuple(counter.accent_loss.loss)
        yield _output(_ACCENTS, (chunk.key, loss))


class WriteFile(beam.DoFn):
    """Write a file from its parts, in the order of their keys.

    Elements are (name, parts); a part is (key, bytes, number of lines or records).
    Outputs are (name, sum of the numbers, size, SHA-256).
    """

    def __init__(self, folder: str):
        self._folder = folder

    def process(
        self, element: tuple[str, Iterable[tuple[tuple, bytes, int]]]
    ) -> Iterator[tuple[str, int, int, str]]:
        """Write one file."""
        name, parts = element
        count, size, digest = 0, 0, hashlib.sha256()
        with tempfile.NamedTemporaryFile() as file:
            for _, data, number in sorted(parts, key=lambda part: part[0]):
                file.write(data)
                digest.update(data)
                count, size = count + number, size + len(data)
            file.flush()
            ObjectFolder(self._folder).upload(file.name, name)
        yield name, count, size, digest.hexdigest()


def _output(name: str, value: Any) -> beam.pvalue.TaggedOutput:
    return beam.pvalue.TaggedOutput(name, value)


def _read(
    pipeline: beam.Pipeline, sources: list[str], config: PretrainingConfig
) -> dict[str, beam.PCollection]:
    """Return the chunks of all sources and the other outputs of `ReadSource`."""
    outputs = (
        pipeline
        | "Sources" >> beam.Create([*enumerate(sources)])
        | "SpreadSources" >> beam.Reshuffle()
        | "Read"
        >> beam.ParDo(ReadSource(config)).with_outputs(
            _FAILURES, _PARTS, _COUNTS, main="chunks"
        )
    )
    return {name: outputs[name] for name in ("chunks", _FAILURES, _PARTS, _COUNTS)}


def _each_chunk(
    corpus: dict[str, beam.PCollection], step: beam.DoFn, main: str
) -> dict[str, beam.PCollection]:
    """Return the outputs of a step; one worker reads a source, many take its chunks."""
    # Some runners confuse the outputs of a step if they are arguments themselves.
    failures = corpus[_FAILURES] | "Failures" >> beam.Map(_identity)
    process = beam.ParDo(step, beam.pvalue.AsList(failures))
    outputs = (
        corpus["chunks"]
        | "SpreadChunks" >> beam.Reshuffle()
        | "Chunks" >> process.with_outputs(_COUNTS, _ACCENTS, main=main)
    )
    return {name: outputs[name] for name in (main, _COUNTS, _ACCENTS)}


def _drop_duplicates(chunks: beam.PCollection) -> dict[str, beam.PCollection]:
    """Drop documents with the words of an earlier one.

    Return the remaining chunks, parts of duplicates.jsonl, and counts.
    """
    repeats = (
        chunks
        | "Hash" >> beam.FlatMap(_hashes)
        | "ByHash" >> beam.GroupByKey()
        | "Repeats" >> beam.FlatMap(_repeats)
    )
    keyed = chunks | "KeyChunks" >> beam.Map(lambda chunk: (chunk.key, chunk))
    outputs = (
        {"chunks": keyed, "repeats": repeats}
        | "JoinRepeats" >> beam.CoGroupByKey()
        | "Drop" >> beam.FlatMap(_drop).with_outputs(_PARTS, _COUNTS, main="chunks")
    )
    return {name: outputs[name] for name in ("chunks", _PARTS, _COUNTS)}


def _hashes(chunk: Chunk) -> Iterator[tuple[bytes, tuple]]:
    """Yield the hash and the place of each document."""
    pairs = zip(chunk.documents, chunk.lines, strict=True)
    for position, (text, line) in enumerate(pairs):
        yield duplicates.digest(text), (*chunk.key, position, line, chunk.name)


def _repeats(element: tuple[bytes, Iterable[tuple]]) -> Iterator[tuple]:
    """Yield (key of the chunk, (position, duplicate)) for all but the first place."""
    _, places = element  # read twice, as a frequent text has many
    first = min(places)
    for place in places:
        if place != first:
            source, number, position, line, name = place
            duplicate = Duplicate(name, line, _EXACT, 1.0, first[4], first[3])
            yield (source, number), (position, duplicate)


def _drop(element: tuple[tuple, dict[str, Iterable]]) -> Iterator[Any]:
    key, values = element
    (chunk,) = values["chunks"]
    repeats = dict(values["repeats"])
    yield chunk.select(n not in repeats for n in range(len(chunk.documents)))
    for position, duplicate in sorted(repeats.items()):
        data = f"{duplicate}\n".encode("utf-8", "replace")
        yield _output(_PARTS, (records.DUPLICATES, ((*key, position), data, 1)))
    yield _output(_COUNTS, {_DUPLICATE + _EXACT: len(repeats)})


def _write(
    folder: str,
    parts: list[beam.PCollection],
    counts: list[beam.PCollection],
    corpus: dict[str, beam.PCollection],
    results: dict[str, beam.PCollection],
) -> None:
    """Write files from parts, and the summary, which `_run` returns."""
    files = (
        parts
        | "Parts" >> beam.Flatten()
        | "ByName" >> beam.GroupByKey()
        | "WriteFiles" >> beam.ParDo(WriteFile(folder))
    )
    values = [(_FILES, files), (_FAILURES, corpus[_FAILURES])]
    values += [(_ACCENTS, results[_ACCENTS]), *((_COUNTS, one) for one in counts)]
    lines = [
        collection | f"Summary{number}" >> beam.Map(_summary_line, name)
        for number, (name, collection) in enumerate(values)
    ]
    _ = (
        lines
        | "Summary" >> beam.Flatten()
        | "SummaryByName" >> beam.GroupByKey()
        | "WriteSummary" >> beam.ParDo(WriteFile(folder))
    )


def _summary_line(value: Any, name: str) -> tuple[str, tuple[tuple, bytes, int]]:
    return _SUMMARY, ((), json.dumps([name, value]).encode() + b"\n", 1)


def _identity(value: Any) -> Any:
    return value


def _counts_of(summary: dict[str, Any], prefix: str) -> collections.Counter[str]:
    """Return the counts whose names have a prefix, without it."""
    counts = {
        name.removeprefix(prefix): count
        for name, count in sorted(summary[_COUNTS].items())
        if name.startswith(prefix) and count
    }
    return collections.Counter(counts)


def _accent_loss(summary: dict[str, Any], is_allowed: bool) -> AccentLoss:
    losses = (AccentLoss(*loss) for _, loss in sorted(summary[_ACCENTS]))
    total = sum(losses, AccentLoss())
    if not is_allowed:
        total.check()
    return total


def _new_pipeline(options: str) -> beam.Pipeline:
    try:
        parsed = PipelineOptions(shlex.split(options))
        parsed.get_all_options()  # parses the values
    except (ValueError, SystemExit) as error:  # argparse prints its message and exits
        raise InputError(
            "--beam_options must be options of Beam, as on a command line",
            f"{options!r} ({error})",
            "Correct them; the documentation of the runner lists its options",
        ) from error
    try:
        return beam.Pipeline(options=parsed)
    except Exception as error:
        raise _pipeline_error(options, error) from error


def _run(pipeline: beam.Pipeline, folder: str, options: str) -> dict[str, Any]:
    try:
        with _workers_end_on_signal():
            result = pipeline.run()
            try:
                state = result.wait_until_finish()
            except BaseException:
                result.cancel()  # a job on other machines would run on
                raise
    except Exception as error:
        raise _pipeline_error(options, error) from error
    if state != PipelineState.DONE:
        raise _pipeline_error(options, state)
    summary = collections.defaultdict(list)
    for line in ObjectFolder(folder).read(_SUMMARY).splitlines():
        name, value = json.loads(line)
        summary[name].append(value)
    ObjectFolder(folder).delete(_SUMMARY)
    if summary[_FAILURES]:
        _, message = min(summary[_FAILURES])
        raise InputError(*message)
    counts: collections.Counter[str] = collections.Counter()
    for values in summary[_COUNTS]:
        counts.update(values)
    return {**summary, _COUNTS: counts}


def _pipeline_error(options: str, state: Any) -> InputError:
    if isinstance(state, Exception):
        state = f"{type(state).__name__}: {state}"[:_MAX_MESSAGE]
    return InputError(
        "The Beam pipeline must finish",
        f"--beam_options={options!r}: {state}",
        "Read the log of the runner, and run the command again",
    )


@contextlib.contextmanager
def _workers_end_on_signal() -> Iterator[None]:
    """End worker processes of this machine before SIGINT and SIGTERM are handled.

    After an exception Beam waits for its worker processes, which do not end.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # Python runs signal handlers in the main thread only
        return
    handlers = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)}
    handlers = {n: handler for n, handler in handlers.items() if callable(handler)}

    def stop(number: int, frame: Any) -> None:
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        handlers[number](number, frame)

    for number in handlers:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
