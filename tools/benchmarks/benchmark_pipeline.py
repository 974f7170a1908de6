"""Measure rows per second from records in the page cache to batches."""

import argparse
import pathlib
import tempfile
import time
from functools import partial

import peers


def make_records(folder: pathlib.Path, length: int, lines: list[str]):
    """Build vocabulary and records of a text in `folder/out`, and open them."""
    from electra_tf.config.pretraining import (
        PretrainingConfig,
        RecordsConfig,
    )
    from electra_tf.text import vocab_training
    from electra_tf.text.builder import build
    from electra_tf.text.record_set import open_records
    from electra_tf.text.tokenizer import Tokenizer

    config = PretrainingConfig(records=RecordsConfig(max_length=length))
    counter = vocab_training.WordCounter(config.tokenization)
    counter.add(lines)
    vocabulary = vocab_training.train_wordpieces(counter.words(), config.vocabulary)
    text = folder / "text.txt"
    text.write_text("\n".join(lines), encoding="utf-8")
    build([str(text)], vocabulary, config, str(folder / "out"), workers=2)
    tokenizer = Tokenizer(vocabulary, config.tokenization)
    return open_records(str(folder / "out"), max_length=length, tokenizer=tokenizer)


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

    files = tf.data.TFRecordDataset(record_set.paths)
    dataset = files.repeat().batch(1024).take(rows // 1024)
    start = time.perf_counter()
    count = dataset.reduce(0, lambda n, payloads: n + tf.size(payloads))
    return int(count) / (time.perf_counter() - start)


def main() -> None:
    """Build records, and print the rates."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--input", help="text file; default: English Wikipedia")
    parser.add_argument("--megabytes", type=float, default=50)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=200_000)
    options = parser.parse_args()
    lines = peers.text_lines(options.input, options.megabytes)
    with tempfile.TemporaryDirectory() as folder:
        records = make_records(pathlib.Path(folder), options.length, lines)
        print(f"{records.total:,} records of {options.length}, {options.rounds} rounds")
        measures = {
            "bare TFRecordDataset": partial(measure_reading, records, options.rows)
        }
        for size in (32, 128, 1024):
            if size <= records.total:
                name = f"training_batches of {size}"
                measures[name] = partial(measure_batches, records, size, options.rows)
        results = peers.interleaved(options.rounds, measures)
    peers.report(results, "rows/s", base="bare TFRecordDataset")


if __name__ == "__main__":
    main()
