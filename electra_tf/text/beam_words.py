"""Count the words of a corpus with Apache Beam, for `vocab_training.py`."""

import collections
import dataclasses
import functools
import json
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

from electra_tf.config.pretraining import PretrainingConfig, TokenizationConfig
from electra_tf.text import beam_files, records
from electra_tf.text.beam_files import BeamFiles
from electra_tf.text.beam_pipeline import (
    ACCENTS,
    COUNTS,
    FAILURES,
    LINES,
    as_list,
    problem_counts,
    read_corpus,
    sum_accent_losses,
    write_files,
    write_summary,
)
from electra_tf.text.beam_run import run_pipeline, temporary_folder
from electra_tf.text.chunks import Chunk
from electra_tf.text.corpus import CorpusReader
from electra_tf.text.data_errors import DataErrorLog
from electra_tf.text.vocab_training import WordCounter, WordCounts, drop_rare

import apache_beam as beam  # isort: skip (beam_files reports if it is missing)

_FILES = 64
_DROPPED, _TOO_LONG = "dropped", "too long "


class CountWords(beam.DoFn):
    """Count the words of a chunk.

    Outputs are (word, count); with COUNTS, numbers of over-long and dropped words; with
    ACCENTS, (key, characters, fields of an AccentLoss).
    """

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
        counts[_DROPPED] = counter.dropped
        yield beam.pvalue.TaggedOutput(COUNTS, counts)
        loss = dataclasses.astuple(counter.accent_loss.result())
        yield beam.pvalue.TaggedOutput(ACCENTS, (chunk.key, chunk.size, loss))


def count_words(
    patterns: Iterable[str],
    settings: PretrainingConfig,
    error_log: DataErrorLog,
    folder: str,
    *,
    options: str = "",
    allow_accent_loss: bool = False,
) -> WordCounts:
    """Count the words of a corpus in a pipeline."""
    reader = CorpusReader(patterns, settings.corpus, error_log, BeamFiles())
    folder = temporary_folder(options, folder)
    construct = functools.partial(_construct, folder=folder, settings=settings)
    try:
        summary = run_pipeline(construct, folder, reader.sources, options)
        counts, files = summary["counts"], [name for name, *_ in summary["files"]]
        if records.PROBLEMS in files:
            text = beam_files.read(folder, records.PROBLEMS).decode()
            error_log.extend(text, problem_counts(counts))
            files.remove(records.PROBLEMS)
        words = collections.Counter(dict(_read_words(folder, files)))
    finally:
        beam_files.delete(folder)
    accent_loss = sum_accent_losses(summary[ACCENTS], check=not allow_accent_loss)
    repeated = drop_rare(words)
    return WordCounts(
        repeated,
        counts.get(_TOO_LONG + "words", 0),
        counts.get(_TOO_LONG + "characters", 0),
        counts.get(_DROPPED, 0) + len(words) - len(repeated),
        accent_loss,
    )


def _construct(
    pipeline: beam.Pipeline, folder: str, settings: PretrainingConfig
) -> None:
    """Add the steps to a pipeline."""
    corpus = read_corpus(pipeline, folder, settings.corpus)
    counted = (
        corpus["chunks"]
        | "SpreadChunks" >> beam.Reshuffle()
        | "Count"
        >> beam.ParDo(
            CountWords(settings.tokenization), as_list(corpus[FAILURES], "Failures")
        ).with_outputs(COUNTS, ACCENTS, main="words")
    )
    parts = (
        counted["words"]
        | "SumWords" >> beam.CombinePerKey(sum)
        | "WordParts" >> beam.Map(_part)
    )
    files = write_files((parts, corpus[LINES]), folder, "Files")
    write_summary(
        pipeline,
        folder,
        [counted[COUNTS], corpus[COUNTS]],
        **{FAILURES: corpus[FAILURES], ACCENTS: counted[ACCENTS], "files": files},
    )


def _part(element: tuple[str, int]) -> tuple[str, tuple]:
    """Return a word and its count as a line of a file."""
    word = element[0]
    name = f"words-{zlib.crc32(word.encode()) % _FILES:05d}"
    return name, ((word,), json.dumps(element).encode() + b"\n", 1)


def _read_words(folder: str, names: Iterable[str]) -> Iterator[tuple[str, int]]:
    for name in sorted(names):
        for line in beam_files.read(folder, name).splitlines():
            word, count = json.loads(line)
            yield word, count
