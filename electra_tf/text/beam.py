"""Build records with Apache Beam, on one machine or on many.

    sources -> chunks of documents -> duplicates dropped -> records -> shards

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
import hashlib
import json
import pathlib
import shlex
import signal
import tempfile
import threading
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

import psutil

from electra_tf.config.data import CorpusConfig
from electra_tf.config.pretraining import PretrainingConfig
from electra_tf.errors import InputError
from electra_tf.storage.objects import ObjectFolder
from electra_tf.text import builder, records
from electra_tf.text.builder import EXACT, Chunk, read_chunks
from electra_tf.text.corpus import CorpusReader
from electra_tf.text.data_errors import DataErrorLog
from electra_tf.text.records import Manifest, Shard
from electra_tf.text.tokenizer import WordPieceTokenizer
from electra_tf.text.vocab import Vocabulary

try:
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.runners.runner import PipelineState
except ImportError as import_error:
    raise InputError(
        f"--runner=beam needs apache-beam ({import_error}): pip install "
        "'electra_tf[beam]', or pass --runner=local"
    ) from import_error

# Outputs of a step beside its main one: parts of files, as (name of the file, a part),
# and notes for the launching process, as (kind of the note, value).
_PARTS, _NOTES = "parts", "notes"
# Kinds of notes: (number of a source, message of an InputError), results of WriteFile,
# and counts by name.
_FAILURE, _FILE = "failure", "file"
_COUNTS, _PROBLEMS, _DUPLICATES = "counts", "problems", "duplicates"
_SUMMARY = "summary.jsonl"  # the notes of all steps
_MAX_MESSAGE = 600  # characters of a runner's error


def build(
    patterns: Iterable[str],
    vocabulary: Vocabulary,
    config: PretrainingConfig,
    output: str,
    *,
    options: str = "",
    overwrite: bool = False,
) -> Manifest:
    """Write shards, vocabulary, config and, last, the manifest.

    The config has an order: see `builder.with_order`.
    """
    settings = config.records
    reader = CorpusReader(patterns, config.corpus, DataErrorLog("stop", ""), False)
    shards = settings.shards or builder.shard_count(reader.estimated_text_bytes)
    names = records.shard_names(shards)
    with records.records_output(output, overwrite, is_shared=True) as folder:
        job = _Job(options, reader.sources, config.corpus)
        chunks = job.chunks
        if settings.deduplicate == EXACT:
            chunks = _drop_duplicates(job)
        build_records = BuildRecords(vocabulary, config, shards)
        # One worker reads a source, many take its chunks.
        spread = chunks | "Spread" >> beam.Reshuffle()
        failures = beam.pvalue.AsList(job.failures)
        built = job.apply("Chunks", spread, beam.ParDo(build_records, failures))
        # A shard without records is an empty file.
        empty = [(name, ((), b"", 0)) for name in names]
        empty = job.pipeline | "Shards" >> beam.Create(empty)
        summary = job.run(folder, built, empty)
        files = {name: Shard(name, *numbers) for name, *numbers in summary[_FILE]}
        tokenizer = WordPieceTokenizer(vocabulary, config.tokenization)
        manifest = builder.make_manifest(
            tokenizer,
            config,
            _sum(summary[_PROBLEMS]),
            _sum(summary[_DUPLICATES]),
            _sum(summary[_COUNTS]),
            [files[name] for name in names],
        )
        builder.write_metadata(folder, tokenizer, config, manifest)
    return manifest


class ReadSource(beam.DoFn):
    """Read the chunks of a source, an element (number, path or URL)."""

    def __init__(self, settings: CorpusConfig):
        self._settings = settings

    def process(self, element: tuple[int, str]) -> Iterator[Any]:
        """Yield chunks, a failure, a part of problems.txt and counts."""
        number, source = element
        with tempfile.TemporaryDirectory() as folder:
            problems = pathlib.Path(folder, records.PROBLEMS)
            log = DataErrorLog(self._settings.on_error, problems, prints=False)
            try:
                reader = CorpusReader([source], self._settings, log, False)
                yield from read_chunks(reader, number)
            except InputError as error:
                yield _note(_FAILURE, (number, error.args))
            log.close()
            if log.counts:
                part = (number,), problems.read_bytes(), log.counts.total()
                yield _part(records.PROBLEMS, part)
        yield _note(_PROBLEMS, dict(log.counts))


class BuildRecords(beam.DoFn):
    """Convert chunks to parts of shards, and counts."""

    def __init__(self, vocabulary: Vocabulary, config: PretrainingConfig, shards: int):
        self._arguments = vocabulary, config, shards
        self._names = records.shard_names(shards)
        self._builder: builder.ChunkBuilder | None = None

    def setup(self) -> None:
        """Create the tokenizer, once per worker."""
        self._builder = builder.ChunkBuilder(*self._arguments)

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
        yield _note(_COUNTS, built.counts)


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


def _part(name: str, part: tuple[tuple, bytes, int]) -> beam.pvalue.TaggedOutput:
    return beam.pvalue.TaggedOutput(_PARTS, (name, part))


def _note(kind: str, value: Any) -> beam.pvalue.TaggedOutput:
    return beam.pvalue.TaggedOutput(_NOTES, (kind, value))


class _Job:
    """A pipeline over the chunks of all sources, with the parts and notes of steps."""

    def __init__(self, options: str, sources: list[str], settings: CorpusConfig):
        try:
            parsed = PipelineOptions(shlex.split(options))
            parsed.get_all_options()  # parses the values
        except (ValueError, SystemExit) as error:  # argparse prints and exits
            raise InputError(
                "--beam_options must be options of Beam, as on a command line, not "
                f"{options!r} ({error})"
            ) from error
        self._options = options
        try:
            self.pipeline = beam.Pipeline(options=parsed)
        except Exception as error:
            raise self._error(error) from error
        self._parts: list[beam.PCollection] = []
        self._notes: list[beam.PCollection] = []
        numbered = (
            self.pipeline
            | "Sources" >> beam.Create([*enumerate(sources)])
            | "SpreadSources" >> beam.Reshuffle()
        )
        self.chunks = self.apply("Read", numbered, beam.ParDo(ReadSource(settings)))
        # Some runners confuse the outputs of a step if they are arguments themselves.
        is_failure = beam.Filter(lambda note: note[0] == _FAILURE)
        self.failures = self._notes[0] | "Failures" >> is_failure

    def apply(
        self, label: str, elements: beam.PCollection, step: beam.ParDo
    ) -> beam.PCollection:
        """Return the main outputs of a step; the others are written by `run`."""
        outputs = elements | label >> step.with_outputs(_PARTS, _NOTES, main="main")
        self._parts.append(outputs[_PARTS])
        self._notes.append(outputs[_NOTES])
        return outputs["main"]

    def run(self, folder: str, *parts: beam.PCollection) -> dict[str, list[Any]]:
        """Write files from parts, and return the values of all notes by kind."""
        files = (
            [*self._parts, *parts]
            | "Parts" >> beam.Flatten()
            | "ByName" >> beam.GroupByKey()
            | "WriteFiles" >> beam.ParDo(WriteFile(folder))
            | "FileNotes" >> beam.Map(lambda file: (_FILE, file))
        )
        _ = (
            [*self._notes, files]
            | "Notes" >> beam.Flatten()
            | "Lines" >> beam.Map(lambda n: ((), json.dumps(n).encode() + b"\n", 1))
            | "Named" >> beam.Map(lambda line: (_SUMMARY, line))
            | "AllLines" >> beam.GroupByKey()
            | "WriteSummary" >> beam.ParDo(WriteFile(folder))
        )
        try:
            with _workers_end_on_signal():
                result = self.pipeline.run()
                try:
                    state = result.wait_until_finish()
                except BaseException:
                    result.cancel()  # a job on other machines would run on
                    raise
        except Exception as error:
            raise self._error(error) from error
        if state != PipelineState.DONE:
            raise self._error(state)
        summary = collections.defaultdict(list)
        for line in ObjectFolder(folder).read(_SUMMARY).splitlines():
            kind, value = json.loads(line)
            summary[kind].append(value)
        ObjectFolder(folder).delete(_SUMMARY)
        if summary[_FAILURE]:
            _, message = min(summary[_FAILURE])
            raise InputError(*message)
        return summary

    def _error(self, state: Any) -> InputError:
        if isinstance(state, Exception):
            state = f"{type(state).__name__}: {state}"[:_MAX_MESSAGE]
        return InputError(
            f"The pipeline of --beam_options={self._options!r} must finish: {state}"
        )


def _drop_duplicates(job: _Job) -> beam.PCollection:
    """Return the chunks without documents that have the words of an earlier one."""
    repeats = (
        job.chunks
        | "Hash" >> beam.FlatMap(_hashes)
        | "ByHash" >> beam.GroupByKey()
        | "Repeats" >> beam.FlatMap(_repeats)
    )
    keyed = job.chunks | "KeyChunks" >> beam.Map(lambda chunk: (chunk.key, chunk))
    joined = {"chunks": keyed, "repeats": repeats} | "Join" >> beam.CoGroupByKey()
    return job.apply("Drop", joined, beam.FlatMap(_drop))


def _hashes(chunk: Chunk) -> Iterator[tuple[bytes, tuple]]:
    """Yield the hash and the place of each document."""
    pairs = zip(chunk.documents, chunk.lines, strict=True)
    for position, (text, line) in enumerate(pairs):
        yield builder.digest(text), (*chunk.key, position, line, chunk.name)


def _repeats(element: tuple[bytes, Iterable[tuple]]) -> Iterator[tuple]:
    """Yield (key of the chunk, (position, report)) for all but the first place."""
    _, places = element  # read twice, as a frequent text has many
    first = min(places)
    for place in places:
        if place != first:
            source, number, position, line, name = place
            text = builder.duplicate_line(name, line, first[4], first[3])
            yield (source, number), (position, text)


def _drop(element: tuple[tuple, dict[str, Iterable]]) -> Iterator[Any]:
    key, values = element
    (chunk,) = values["chunks"]
    repeats = dict(values["repeats"])
    yield chunk.select(n not in repeats for n in range(len(chunk.documents)))
    for position, text in sorted(repeats.items()):
        data = f"{text}\n".encode("utf-8", "replace")
        yield _part(records.DUPLICATES, ((*key, position), data, 1))
    yield _note(_DUPLICATES, {EXACT: len(repeats)})


def _sum(counts: Iterable[dict[str, int]]) -> collections.Counter[str]:
    """Return the sums by name, in the order of the names, without sums of zero."""
    total: collections.Counter[str] = collections.Counter()
    for one in counts:
        total.update(one)
    return collections.Counter({name: n for name, n in sorted(total.items()) if n})


@contextlib.contextmanager
def _workers_end_on_signal() -> Iterator[None]:
    """End worker processes of this machine before SIGINT and SIGTERM are handled.

    After an exception Beam waits for its worker processes, which do not end.
    """

    def stop(number: int, frame: Any) -> None:
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        handlers[number](number, frame)

    handlers = {}
    # Python runs signal handlers in the main thread only.
    if threading.current_thread() is threading.main_thread():
        handlers = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)}
        handlers = {n: handler for n, handler in handlers.items() if callable(handler)}
    for number in handlers:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
