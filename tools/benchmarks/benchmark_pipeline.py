"""Measure rows per second from records in the page cache to batches."""

import argparse
import pathlib
import tempfile
import time

import benchmark_common as common


def make_records(folder: pathlib.Path, length: int, lines: list[str]):
    from electra_tf.config.pretraining import (
        CorpusConfig,
        PretrainingConfig,
        RecordsConfig,
    )
    from electra_tf.text import vocab_training
    from electra_tf.text.builder import build
    from electra_tf.text.corpus import CorpusReader
    from electra_tf.text.data_errors import DataErrorLog
    from electra_tf.text.record_set import open_records
    from electra_tf.text.tokenizer import Tokenizer

    config = PretrainingConfig(records=RecordsConfig(max_length=length))
    counter = vocab_training.WordCounter(config.tokenization)
    counter.add(lines)
    vocabulary = vocab_training.train_wordpieces(counter.words(), config.vocabulary)
    text = folder / "text.txt"
    text.write_text("\n".join(lines), encoding="utf-8")
    errors = DataErrorLog("report", folder / "errors.txt")
    reader = CorpusReader([str(text)], CorpusConfig(), errors)
    build(reader, errors, vocabulary, config, folder / "out", workers=2)
    return open_records(
        str(folder / "out"),
        max_length=length,
        tokenizer=Tokenizer(vocabulary, config.tokenization),
    )


def measure_batches(record_set, batch_size: int, rows: int) -> float:
    """Return rows per second after the first batch."""
    from electra_tf.config.pretraining import InputConfig
    from electra_tf.text.pipeline import training_batches

    batches = iter(training_batches(record_set, InputConfig(batch_size=batch_size)))
    next(batches)
    count = rows // batch_size
    start = time.perf_counter()
    for _ in range(count):
        next(batches)
    return count * batch_size / (time.perf_counter() - start)


def measure_reading(record_set, rows: int) -> float:
    """Return rows per second of the limit: reading without shuffling or parsing."""
    import tensorflow as tf

    dataset = (
        tf.data.TFRecordDataset(record_set.paths)
        .repeat()
        .batch(1024)
        .take(rows // 1024)
    )
    start = time.perf_counter()
    count = dataset.reduce(0, lambda n, payloads: n + tf.size(payloads))
    return int(count) / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--input", help="text file; default: English of ELECTRA_TF_DATA"
    )
    parser.add_argument("--megabytes", type=float, default=50)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=200_000)
    options = parser.parse_args()
    lines = common.text_lines(options.input, options.megabytes)
    with tempfile.TemporaryDirectory() as folder:
        record_set = make_records(pathlib.Path(folder), options.length, lines)
        print(
            f"{record_set.total:,} records of {options.length}, {options.rounds} rounds"
        )
        results = common.interleaved(
            options.rounds,
            {
                "bare TFRecordDataset": lambda: measure_reading(
                    record_set, options.rows
                ),
                **{
                    f"training_batches of {size}": (
                        lambda size=size: measure_batches(
                            record_set, size, options.rows
                        )
                    )
                    for size in (32, 128, 1024)
                    if size <= record_set.total
                },
            },
        )
    common.report(results, "rows/s", base="bare TFRecordDataset")


if __name__ == "__main__":
    main()
