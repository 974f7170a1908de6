"""Compare score, size and latency of a model in Keras, SavedModel, LiteRT and ONNX.

tools/benchmark formats --model=sst2 --task=sst2 --data=glue

Scores are those of the task's dev split (classification and tagging).
"""

import argparse
import os
import tempfile
import time
import types
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import peers

Run = Callable[[Mapping[str, Any]], Any]


def main() -> None:
    """Export the model, measure it, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, text in (
        ("--model", "the --output of finetune"),
        ("--task", "--task of finetune"),
        ("--data", "--data of finetune"),
    ):
        parser.add_argument(name, required=True, help=text)
    parser.add_argument("--lengths", default="16,128", help="positions, at batch 1")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of 20 requests")
    options = parser.parse_args()
    for name in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"):
        os.environ.setdefault(name, "1")
    with tempfile.TemporaryDirectory() as folder:
        formats = export_all(options.model, folder)
        for line in scores(options, {n: run for n, (run, _) in formats.items()}):
            print(line, flush=True)
        for name, (_, size) in formats.items():
            print(f"{name:20} {size / 1e6:8.2f} MB")
        for length in map(int, options.lengths.split(",")):
            latencies(formats, length, options.rounds)


def export_all(path: str, folder: str) -> dict[str, tuple[Run, int]]:
    """Export a model to all formats; return functions of ids and sizes in bytes."""
    import tensorflow as tf

    from electra_tf.serving import export
    from electra_tf.serving.formats.litert import FILES, open_litert
    from electra_tf.serving.formats.onnx import FILE, open_onnx

    spec = export.load_exportable(path)
    folders = {
        name: export.export(
            spec, f"{folder}/{name}", export_format=name, log=lambda line: None
        )
        for name in export.FORMATS
    }
    saved_model = folders["saved_model"]
    run = _run_signature(tf.saved_model.load(saved_model).signatures["tokens"])
    weights = "variables/variables.data-00000-of-00001"
    size = sum(
        os.path.getsize(f"{saved_model}/{f}") for f in ("saved_model.pb", weights)
    )
    opened = {"SavedModel": (run, size)}
    lite = zip(("LiteRT float32", "LiteRT int8"), FILES, strict=True)
    for name, file, read in (
        *((name, f"{folders['litert']}/{file}", open_litert) for name, file in lite),
        ("ONNX", f"{folders['onnx']}/{FILE}", open_onnx),
    ):
        opened[name] = read(file), os.path.getsize(file)
    return opened


def scores(options: argparse.Namespace, formats: Mapping[str, Any]) -> list[str]:
    """Return lines with the scores of each format."""
    from electra_tf import sources
    from electra_tf.serving.task_models import to_float32
    from electra_tf.tasks.datasets import read_task
    from electra_tf.tasks.load import load
    from electra_tf.text.data_errors import DataErrorLog

    model = to_float32(load(sources.open(options.model)))
    log = DataErrorLog("report", os.devnull, "The data must fit the task")
    task = read_task(options.task, options.data, model.settings.data, log)
    split = next(iter(task.eval_splits.values()))
    examples = model.examples(split.items)
    lines = []
    for name, run in {"Keras": None, **formats}.items():
        outputs = outputs_of(run, examples) if run else model.outputs_of(examples)
        predictions = model.decode(split.items, examples, outputs)
        decoded = types.SimpleNamespace(
            labels=getattr(model, "labels", ()),
            predict=lambda items, given=predictions: given,
        )
        predictions = task.scorer.predict(decoded, split.items)
        results = task.scorer.score(split, predictions)
        text = "  ".join(f"{key} {value:.2f}" for key, value in results.items())
        lines.append(f"{name:20} {text}  ({len(split):,} items)")
    return lines


def outputs_of(run: Run, examples: Any) -> list[Any]:
    """Return the outputs of each example, as `TextModel.outputs_of` does."""
    from electra_tf.tasks.examples import prediction_batch_indices

    results: list[Any] = [None] * len(examples)
    for rows in prediction_batch_indices(examples.lengths, 32):
        by_name = run(examples.batch(rows, len(rows))[0])
        for index, row in enumerate(rows):
            outputs = {name: array[index] for name, array in by_name.items()}
            results[row] = outputs.get("logits", outputs)
    return results


def latencies(formats: Mapping[str, tuple[Run, int]], length: int, rounds: int) -> None:
    """Print the latency of a request of one row."""
    import numpy as np

    ids = np.random.default_rng(0).integers(5, 1000, (1, length)).astype(np.int32)
    request = {"token_ids": ids, "segment_ids": 0 * ids, "padding_mask": ids**0}

    def measure(run: Run) -> float:
        times = []
        for _ in range(20):
            start = time.perf_counter()
            run(request)
            times.append(time.perf_counter() - start)
        return 1e6 * float(np.median(times))

    print(f"\nmicroseconds of a request of {length} positions")
    measures = {name: partial(measure, run) for name, (run, _) in formats.items()}
    for name, values in peers.interleaved(rounds, measures).items():
        print(f"{name:20} {np.median(values):10,.0f} µs at {length} positions")


def _run_signature(signature: Any) -> Run:
    """Return a loaded signature as a function of arrays, without strings."""
    import tensorflow as tf

    def run(inputs: Mapping[str, Any]) -> dict[str, Any]:
        tensors = {name: tf.constant(array) for name, array in inputs.items()}
        outputs = signature(**tensors)
        return {n: of.numpy() for n, of in outputs.items() if of.dtype != tf.string}

    return run


if __name__ == "__main__":
    main()
