"""Measure rows per second from records in the page cache to batches."""

import argparse
import pathlib
import tempfile
import time
from functools import partial

import peers


def measure_batches(records, batch_size: int, rows: int) -> float:
    from electra_tf.config.data import InputConfig
    from electra_tf.text.pipeline import training_batches

    batches = iter(training_batches(records, InputConfig(batch_size=batch_size)))
    next(batches)
    count = rows // batch_size
    start = time.perf_counter()
    for _ in range(count):
        next(batches)
    return count * batch_size / (time.perf_counter() - start)


def measure_reading(records, rows: int) -> float:
    """Return rows per second of the limit: reading without shuffling or parsing."""
    import tensorflow as tf

    files = tf.data.TFRecordDataset(records.paths)
    dataset = files.repeat().batch(1024).take(rows // 1024)
    start = time.perf_counter()
    count = dataset.reduce(0, lambda n, payloads: n + tf.size(payloads))
    return int(count) / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--input", help="text file; default: English Wikipedia")
    parser.add_argument("--megabytes", type=float, default=50)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=200_000)
    options = parser.parse_args()
    from electra_tf.tasks.tokenizer import Tokenizer
    from electra_tf.text.record_set import open_records

    length, limit = options.length, "bare TFRecordDataset"
    with tempfile.TemporaryDirectory() as name:
        text, vocab, out = (pathlib.Path(name) / n for n in ("text", "vocab", "out"))
        lines = peers.text_lines(options.input, options.megabytes)
        text.write_text("\n".join(lines), encoding="utf-8")
        peers.run_command("build_vocab", input=text, output=vocab)
        flags = {"vocab": vocab, "output": out, "max_length": length, "workers": 2}
        peers.run_command("build_records", input=text, **flags)
        tokenizer = Tokenizer.read(vocab)
        records = open_records(str(out), max_length=length, tokenizer=tokenizer)
        print(f"{records.total:,} records of {length}, {options.rounds} rounds")
        measures = {limit: partial(measure_reading, records, options.rows)}
        for size in (32, 128, 1024):
            if size <= records.total:
                measure = partial(measure_batches, records, size, options.rows)
                measures[f"training_batches of {size}"] = measure
        results = peers.interleaved(options.rounds, measures)
    peers.report(results, "rows/s", base=limit)


if __name__ == "__main__":
    main()
