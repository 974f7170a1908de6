"""Parts that the Beam pipelines for records and for word counts share.

Data errors are data: they are collected and raised by the launching process, with the
message of the local command. An exception in a worker would be retried instead.
"""

import collections
import contextlib
import dataclasses
import itertools
import json
import shlex
import signal
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import psutil

from electra_tf.config.pretraining import CorpusConfig
from electra_tf.errors import InputError
from electra_tf.text import beam_files, records
from electra_tf.text.accent_loss import AccentLoss
from electra_tf.text.beam_files import WORK, BeamFiles, WriteFile
from electra_tf.text.chunks import group_chunks, read_chunks
from electra_tf.text.corpus import CorpusReader
from electra_tf.text.data_errors import DataErrorList

import apache_beam as beam  # isort: skip (beam_files reports if it is missing)
from apache_beam.options.pipeline_options import PipelineOptions  # isort: skip
from apache_beam.runners.runner import PipelineState  # isort: skip

FAILURES, LINES, COUNTS = "failures", "lines", "counts"
"""Outputs of `ReadChunks` beside the chunks."""
ACCENTS = "accents"
"""Output of the steps that sample the accents: one list a chunk."""
PROBLEM = "problem: "
"""Prefix of counts of data errors."""
_SOURCES, _SUMMARY = "sources.json", "summary.json"
_MAX_MESSAGE = 600  # characters of a runner's error


class ReadChunks(beam.DoFn):
    """Read the chunks of one source.

    Elements are (number of the source, path). Outputs are the chunks; with FAILURES,
    (number, arguments of an InputError); with LINES, parts of problems.txt; with
    COUNTS, numbers of data errors.

    Args:
        settings: Options of reading.
    """

    def __init__(self, settings: CorpusConfig):
        self._settings = settings

    def process(self, element: tuple[int, str]) -> Iterator[Any]:
        """Read one source."""
        number, source = element
        log, line_numbers = DataErrorList(self._settings.on_error), itertools.count()
        try:
            reader = CorpusReader([source], self._settings, log, BeamFiles())
            for chunk in read_chunks(reader, number):
                yield chunk
                yield from _outputs(log, number, line_numbers)
        except InputError as error:
            message = error.required, error.received, error.remedy
            yield beam.pvalue.TaggedOutput(FAILURES, (number, message))
        yield from _outputs(log, number, line_numbers)


def _outputs(
    log: DataErrorList, number: int, line_numbers: Iterator[int]
) -> Iterator[Any]:
    for error in log.take():
        data = f"{error}\n".encode("utf-8", "replace")
        part = (number, next(line_numbers)), data, 1
        yield beam.pvalue.TaggedOutput(LINES, (records.PROBLEMS, part))
        yield beam.pvalue.TaggedOutput(COUNTS, {PROBLEM + error.kind: 1})


def read_corpus(
    pipeline: beam.Pipeline, folder: str, settings: CorpusConfig
) -> dict[str, beam.PCollection]:
    """Return the outputs of `ReadChunks` for the sources of `run_pipeline`.

    Args:
        pipeline: The pipeline.
        folder: The folder that the pipeline writes.
        settings: Options of reading.

    Returns:
        The collections `chunks`, FAILURES, LINES and COUNTS.
    """
    outputs = (
        pipeline
        | "Folder" >> beam.Create([folder])
        | "Sources" >> beam.FlatMap(_sources)
        | "SpreadSources" >> beam.Reshuffle()
        | "Read"
        >> beam.ParDo(ReadChunks(settings)).with_outputs(
            FAILURES, LINES, COUNTS, main="chunks"
        )
    )
    return {name: outputs[name] for name in ("chunks", FAILURES, LINES, COUNTS)}


def _sources(folder: str) -> Iterator[tuple[int, str]]:
    yield from enumerate(json.loads(_read(folder, _SOURCES)))


def _read(folder: str, name: str) -> bytes:
    return beam_files.read(beam_files.join(folder, WORK), name)


def write_summary(
    pipeline: beam.Pipeline,
    folder: str,
    counts: Iterable[beam.PCollection],
    **lists: beam.PCollection,
) -> None:
    """Write the results that the launching process reads.

    Args:
        pipeline: The pipeline.
        folder: The folder that the pipeline writes.
        counts: Collections of dicts of numbers, which are added up.
        lists: Collections of JSON values.
    """
    totals = (
        tuple(counts)
        | "AllCounts" >> beam.Flatten()
        | "SumCounts" >> beam.CombineGlobally(_sum_counts)
    )
    lists = {name: as_list(values, f"{name}List") for name, values in lists.items()}
    _ = (
        pipeline
        | "Once" >> beam.Create([None])
        | "Summarize" >> beam.Map(_summary, beam.pvalue.AsSingleton(totals), **lists)
        | "WriteSummary" >> beam.ParDo(WriteFile(beam_files.join(folder, WORK)))
    )


def as_list(values: beam.PCollection, label: str) -> beam.pvalue.AsList:
    """Return a collection as an argument of other steps.

    Args:
        values: The collection.
        label: Name of the step.
    """
    # Some runners confuse the outputs of a step if they are arguments themselves.
    return beam.pvalue.AsList(values | label >> beam.Map(_identity))


def _identity(value: Any) -> Any:
    return value


def _sum_counts(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    total: collections.Counter[str] = collections.Counter()
    for values in counts:
        total.update(values)
    return dict(total)


def _summary(_: None, counts: dict[str, int], **lists: list[Any]) -> tuple[str, list]:
    data = json.dumps({"counts": counts, **lists}).encode()
    return _SUMMARY, [((), data, 1)]


def run_pipeline(
    construct: Callable[[beam.Pipeline], None],
    folder: str,
    sources: list[str],
    options: str,
) -> dict[str, Any]:
    """Run a pipeline and return its summary.

    Args:
        construct: Adds the steps to a pipeline; it calls `read_corpus`
            and `write_summary`, the latter with a list of FAILURES.
        folder: The folder that the pipeline writes.
        sources: Paths and names, in order.
        options: Options of Beam, as on a command line.

    Raises:
        InputError: The input has errors, or the pipeline failed.
    """
    with beam_files.writing(beam_files.join(folder, WORK), _SOURCES) as file:
        file.write(json.dumps(sources).encode())
    pipeline = beam.Pipeline(options=PipelineOptions(shlex.split(options)))
    construct(pipeline)
    try:
        with _workers_end_on_signal():
            state = _run(pipeline)
    except Exception as error:
        state = f"{type(error).__name__}: {error}"[:_MAX_MESSAGE]
        raise _pipeline_error(options, state) from error
    if state != PipelineState.DONE:
        raise _pipeline_error(options, state)
    summary = json.loads(_read(folder, _SUMMARY))
    if summary[FAILURES]:
        _, message = min(summary[FAILURES])
        raise InputError(*message)
    return summary


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


def _run(pipeline: beam.Pipeline) -> str:
    result = pipeline.run()
    try:
        return result.wait_until_finish()
    except BaseException:
        result.cancel()  # a job on other machines would run on
        raise


def _pipeline_error(options: str, state: str) -> InputError:
    return InputError(
        "The Beam pipeline must finish",
        f"--beam_options={options!r}: {state}",
        "Read the log of the runner, and run the command again",
    )


def problem_counts(counts: dict[str, int]) -> collections.Counter[str]:
    """Return the number of data errors by kind.

    Args:
        counts: Counts of a summary.
    """
    problems = {
        name.removeprefix(PROBLEM): count
        for name, count in sorted(counts.items())
        if name.startswith(PROBLEM)
    }
    return collections.Counter(problems)


def write_files(
    parts: Iterable[beam.PCollection], folder: str, label: str
) -> beam.PCollection:
    """Write files from parts, one worker a file.

    Args:
        parts: Collections of (name, part); see `WriteFile`.
        folder: The folder that the pipeline writes.
        label: Name of the steps.

    Returns:
        The outputs of `WriteFile`.
    """
    return (
        tuple(parts)
        | f"{label}Parts" >> beam.Flatten()
        | f"{label}ByName" >> beam.GroupByKey()
        | f"Write{label}" >> beam.ParDo(WriteFile(folder))
    )


@dataclasses.dataclass(frozen=True)
class _ChunkAccents:
    """Accent loss of one chunk."""

    size: int
    accent_loss: AccentLoss


def sum_accent_losses(values: Iterable[list], *, check: bool) -> AccentLoss:
    """Return the accent loss of all chunks.

    Args:
        values: (key, characters, fields of an AccentLoss) of each chunk.
        check: Whether to check the sum after each group of chunks, as the local
            builder does.

    Raises:
        InputError: Accent stripping changes more than 1% of the letters.
    """
    total = AccentLoss()
    chunks = [
        _ChunkAccents(size, AccentLoss(*loss)) for _, size, loss in sorted(values)
    ]
    for group in group_chunks(chunks):
        for chunk in group:
            total += chunk.accent_loss
        if check:
            total.check()
    return total


def temporary_folder(options: str, default: str) -> str:
    """Return a new folder in --temp_location of Beam, or the default.

    Args:
        options: Options of Beam, as on a command line.
        default: The folder without --temp_location.
    """
    parsed = PipelineOptions(shlex.split(options)).get_all_options()
    location = parsed.get("temp_location")
    if not location:
        return default
    return beam_files.join(location, f"electra_tf-{uuid.uuid4().hex}")
