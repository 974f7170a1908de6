"""Parts that the Beam pipelines for records and for word counts share.

Data errors are data: they are collected and raised by the launching process, with the
message of the local command. An exception in a worker would be retried instead.
"""

import collections
import dataclasses
import itertools
import json
from collections.abc import Iterable, Iterator
from typing import Any

from electra_tf.config.pretraining import CorpusConfig
from electra_tf.errors import InputError
from electra_tf.text import beam_files, records
from electra_tf.text.beam_files import WORK, BeamFiles, WriteFile
from electra_tf.text.chunks import group_chunks, read_chunks
from electra_tf.text.corpus import CorpusReader
from electra_tf.text.data_errors import DataErrorList
from electra_tf.text.warnings import AccentLoss

import apache_beam as beam  # isort: skip (beam_files reports if it is missing)

FAILURES, LINES, COUNTS = "failures", "lines", "counts"
"""Outputs of `ReadChunks` beside the chunks."""
ACCENTS = "accents"
"""Output of the steps that sample the accents: one list a chunk."""
PROBLEM = "problem: "
"""Prefix of counts of data errors."""
SOURCES, SUMMARY = "sources.json", "summary.json"
"""Files in WORK: input and results of a pipeline."""


class ReadChunks(beam.DoFn):
    """Read the chunks of one source.

    Elements are (number of the source, path). Outputs are the chunks; with FAILURES,
    (number, arguments of an InputError); with LINES, parts of problems.txt; with
    COUNTS, numbers of data errors.
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
    """Return the outputs of `ReadChunks` for the sources of `run_pipeline`."""
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
    yield from enumerate(
        json.loads(beam_files.read(beam_files.join(folder, WORK), SOURCES))
    )


def write_summary(
    pipeline: beam.Pipeline,
    folder: str,
    counts: Iterable[beam.PCollection],
    **lists: beam.PCollection,
) -> None:
    """Write the results that the launching process reads."""
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
    """Return a collection as an argument of other steps."""
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
    return SUMMARY, [((), data, 1)]


def problem_counts(counts: dict[str, int]) -> collections.Counter[str]:
    """Return the number of data errors by kind."""
    problems = {
        name.removeprefix(PROBLEM): count
        for name, count in sorted(counts.items())
        if name.startswith(PROBLEM)
    }
    return collections.Counter(problems)


def write_files(
    parts: Iterable[beam.PCollection], folder: str, label: str
) -> beam.PCollection:
    """Write files from parts, one worker a file."""
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
    """Return the accent loss of all chunks."""
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
