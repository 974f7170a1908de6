"""Build a folder of records with Apache Beam, on one machine or on many.

    sources -> chunks of documents -> duplicates dropped -> records -> shards

The examples are those of `builder.py`, because the chunks and their random numbers are
the same. Only their order differs: record n of a chunk belongs to the shard (first + n)
modulo the number of shards, where `first` is a hash of the chunk's key.

A runner may run a bundle several times. So all files and counts are computed from keyed
data; Beam's own counters, which include repeated bundles, are not used.
"""

import collections
import dataclasses
import functools
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

from electra_tf.config.pretraining import PretrainingConfig
from electra_tf.errors import InputError
from electra_tf.text import duplicates, records
from electra_tf.text.beam_files import BeamFiles, output_folder
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
from electra_tf.text.beam_run import run_pipeline
from electra_tf.text.builder import (
    ChunkBuilder,
    make_manifest,
    shard_count,
)
from electra_tf.text.chunks import Chunk
from electra_tf.text.corpus import CorpusReader
from electra_tf.text.data_errors import DataErrorList
from electra_tf.text.duplicates import Duplicate
from electra_tf.text.records import Manifest, Shard
from electra_tf.text.tokenizer import Tokenizer
from electra_tf.text.vocab import Vocabulary

import apache_beam as beam  # isort: skip (beam_files reports if it is missing)

_EXACT = "exact"
_DUPLICATE = "duplicate: "


class BuildRecords(beam.DoFn):
    """Convert chunks to records.

    Outputs are (name of a shard, part), as for `WriteFile`; with COUNTS, the counts of
    the chunk; with ACCENTS, (key, characters, fields of an AccentLoss).
    """

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
        yield beam.pvalue.TaggedOutput(COUNTS, built.counts)
        loss = dataclasses.astuple(built.accent_loss)
        yield beam.pvalue.TaggedOutput(ACCENTS, (chunk.key, chunk.size, loss))


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
    if config.records.deduplicate == "near":
        raise InputError(
            "With --runner=beam, --deduplicate must be none or exact",
            "--deduplicate=near, which compares each document with all earlier ones",
            "Pass --deduplicate=exact, or use --runner=local",
        )
    log = DataErrorList(config.corpus.on_error)
    reader = CorpusReader(patterns, config.corpus, log, BeamFiles())
    shards = config.records.shards or shard_count(reader.estimated_text_bytes)
    with output_folder(output, overwrite) as (folder, publish):
        construct = functools.partial(
            _construct, folder=folder, vocabulary=vocabulary, config=config,
            shards=shards,
        )  # fmt: skip
        summary = run_pipeline(construct, folder, reader.sources, options)
        accent_loss = sum_accent_losses(summary[ACCENTS], check=not allow_accent_loss)
        tokenizer = Tokenizer(vocabulary, config.tokenization)
        manifest = make_manifest(
            tokenizer,
            config,
            problem_counts(summary["counts"]),
            _duplicate_counts(summary["counts"]),
            collections.Counter(summary["counts"]),
            accent_loss,
            _shards(summary["files"], shards),
        )
        publish(tokenizer, config, manifest)
    return manifest


def _construct(
    pipeline: beam.Pipeline,
    folder: str,
    vocabulary: Vocabulary,
    config: PretrainingConfig,
    shards: int,
) -> None:
    """Add the steps to a pipeline."""
    corpus = read_corpus(pipeline, folder, config.corpus)
    chunks, lines, counts = corpus["chunks"], [corpus[LINES]], [corpus[COUNTS]]
    if config.records.deduplicate == "exact":
        dropped = drop_exact_duplicates(chunks)
        chunks = dropped["chunks"]
        lines.append(dropped[LINES])
        counts.append(dropped[COUNTS])
    else:
        # A source is read by one worker; its chunks are built by many.
        chunks = chunks | "SpreadChunks" >> beam.Reshuffle()
    built = chunks | "Build" >> beam.ParDo(
        BuildRecords(vocabulary, config, shards), as_list(corpus[FAILURES], "Failures")
    ).with_outputs(COUNTS, ACCENTS, main="records")
    # A shard without records is an empty file.
    names = [(name, ((), b"", 0)) for name in records.shard_names(shards)]
    empty = pipeline | "ShardNames" >> beam.Create(names)
    files = write_files((built["records"], empty, *lines), folder, "Files")
    write_summary(
        pipeline,
        folder,
        [built[COUNTS], *counts],
        **{FAILURES: corpus[FAILURES], ACCENTS: built[ACCENTS], "files": files},
    )


def drop_exact_duplicates(
    chunks: beam.PCollection,
) -> dict[str, beam.PCollection]:
    """Drop documents with the words of an earlier one.

    Returns:
        `chunks`, the chunks without duplicates; LINES, parts of duplicates.jsonl; and
        COUNTS.
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
        | "Drop" >> beam.FlatMap(_drop).with_outputs(LINES, COUNTS, main="chunks")
    )
    return {name: outputs[name] for name in ("chunks", LINES, COUNTS)}


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
        part = (*key, position), data, 1
        yield beam.pvalue.TaggedOutput(LINES, (records.DUPLICATES, part))
    yield beam.pvalue.TaggedOutput(COUNTS, {_DUPLICATE + _EXACT: len(repeats)})


def _duplicate_counts(counts: dict[str, int]) -> collections.Counter[str]:
    count = counts.get(_DUPLICATE + _EXACT, 0)
    return collections.Counter({_EXACT: count} if count else {})


def _shards(files: list[list], count: int) -> list[Shard]:
    """Return the entries of the manifest for the written files."""
    written = {name: Shard(name, *numbers) for name, *numbers in files}
    return [written[name] for name in records.shard_names(count)]
