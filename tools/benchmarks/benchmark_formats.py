"""Compare score, size and latency of a model in Keras, SavedModel, LiteRT and ONNX.

tools/benchmark formats --model=sst2 --task=sst2 --data=glue

Scores are those of the task's dev split (classification and tagging).
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from benchmark_common import interleaved

Run = Callable[[Mapping[str, Any]], Any]


def main() -> None:
    """Export the model, measure it, and print the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
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
        formats, sizes = export_all(options.model, folder)
        for line in scores(options.model, options.task, options.data, formats):
            print(line, flush=True)
        for name, size in sizes.items():
            print(f"{name:20} {size / 1e6:8.2f} MB")
        for length in map(int, options.lengths.split(",")):
            latencies(formats, length, options.rounds)


def export_all(path: str, folder: str) -> tuple[dict[str, Any], dict[str, int]]:
    """Export a model to all formats and open them.

    Returns:
        Functions of ids by format, and the sizes in bytes. All formats but the
        SavedModel are `TokenRuntime`s.
    """
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
    saved_model = tf.saved_model.load(folders["saved_model"])
    lite = [f"{folders['litert']}/{name}" for name in FILES]
    onnx = f"{folders['onnx']}/{FILE}"
    formats = {
        "SavedModel": _run_signature(saved_model.signatures["tokens"]),
        "LiteRT float32": open_litert(lite[0]),
        "LiteRT int8": open_litert(lite[1]),
        "ONNX": open_onnx(onnx),
    }
    variables = f"{folders['saved_model']}/variables/variables.data-00000-of-00001"
    graph = f"{folders['saved_model']}/saved_model.pb"
    sizes = [os.path.getsize(graph) + os.path.getsize(variables)]
    sizes += map(os.path.getsize, [*lite, onnx])
    return formats, dict(zip(formats, sizes, strict=True))


def scores(path: str, name: str, data: str, formats: Mapping[str, Any]) -> list[str]:
    """Return lines with the scores of each format."""
    from electra_tf.runs import finetuning
    from electra_tf.serving.formats.token_runtime import TokenRuntime
    from electra_tf.serving.task_models import to_float32
    from electra_tf.tasks.inference import load
    from electra_tf.text.data_errors import DataErrorLog

    model = to_float32(load(path))
    log = DataErrorLog("report", os.devnull, "The data must fit the task")
    task = finetuning.read_task(name, data, model.settings, log)
    split = next(iter(task.eval_splits.values()))
    examples = model.examples(split.items)
    lines = []
    for name, runtime in {"Keras": model, **formats}.items():
        if not hasattr(runtime, "outputs_of"):
            runtime = TokenRuntime(runtime, name, ())
        outputs = runtime.outputs_of(examples)
        results = task.score(split, model.decode(split.items, examples, outputs))
        text = "  ".join(f"{key} {value:.2f}" for key, value in results.items())
        lines.append(f"{name:20} {text}  ({len(split):,} items)")
    return lines


def latencies(formats: Mapping[str, Run], length: int, rounds: int) -> None:
    """Print the latency of a request of one row."""
    import numpy as np

    ids = np.random.default_rng(0).integers(5, 1000, (1, length)).astype(np.int32)
    request = {
        "token_ids": ids, "segment_ids": np.zeros_like(ids),
        "padding_mask": np.ones_like(ids),
    }  # fmt: skip

    def measure(run: Run) -> float:
        times = []
        for _ in range(20):
            start = time.perf_counter()
            run(request)
            times.append(time.perf_counter() - start)
        return 1e6 * float(np.median(times))

    print(f"\nmicroseconds of a request of {length} positions")
    measures = {name: partial(measure, run) for name, run in formats.items()}
    for name, values in interleaved(rounds, measures).items():
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
