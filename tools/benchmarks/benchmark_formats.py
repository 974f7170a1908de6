"""One fine-tuned model as Keras, SavedModel, LiteRT and ONNX: score, size, latency.

tools/benchmark formats --model=sst2 --task=sst2 --data=glue

The scores are those of the task's dev part (classes and tags), by the same inputs.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import Any

from benchmark_common import interleaved

Answers = Callable[[Mapping[str, Any]], Any]


def main() -> None:
    """Exports, measures, prints."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, text in (
        ("--model", "the --output of finetune"),
        ("--task", "as finetune's"),
        ("--data", "as finetune's"),
    ):
        parser.add_argument(name, required=True, help=text)
    parser.add_argument("--lengths", default="16,128", help="positions, at batch 1")
    parser.add_argument("--rounds", type=int, default=5, help="of 20 requests each")
    given = parser.parse_args()
    for name in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"):
        os.environ.setdefault(name, "1")
    with tempfile.TemporaryDirectory() as place:
        formats, sizes = made(given.model, place)
        for line in scores(given.model, given.task, given.data, formats):
            print(line, flush=True)
        for name, size in sizes.items():
            print(f"{name:20} {size / 1e6:8.2f} MB")
        for length in map(int, given.lengths.split(",")):
            latencies(formats, length, given.rounds)


def made(path: str, place: str) -> tuple[dict[str, Any], dict[str, int]]:
    """Exports to all formats and opens them.

    Args:
        path: The output of finetune.
        place: An empty folder.

    Returns:
        What answers ids, by format, each with `outputs_of` but the SavedModel; and
        the sizes in bytes.
    """
    import tensorflow as tf

    from electra_tf.serving import export
    from electra_tf.serving.formats.litert import FILES, open_litert
    from electra_tf.serving.formats.onnx import FILE, open_onnx

    exportable = export.load_exportable(path)
    folders = {
        form: export.export(
            exportable, f"{place}/{form}", export_format=form, log=lambda line: None
        )
        for form in export.FORMATS
    }
    served = tf.saved_model.load(folders["saved_model"])
    lite = [f"{folders['litert']}/{name}" for name in FILES]
    onnx = f"{folders['onnx']}/{FILE}"
    formats = {
        "SavedModel": _numbers(served.signatures["tokens"]),
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
    """The task's scores by each format.

    Args:
        path: The output of finetune.
        name: The task's.
        data: The task's.
        formats: What `made` returned.

    Returns:
        Lines to print.
    """
    from electra_tf.runs import finetuning
    from electra_tf.serving.formats.token_runtime import TokenRuntime
    from electra_tf.serving.task_models import to_float32
    from electra_tf.tasks.inference import load
    from electra_tf.text.data_errors import DataErrorLog

    model = to_float32(load(path))
    log = DataErrorLog("report", os.devnull, "The data is as the task needs it")
    task = finetuning.read_task(name, data, model.settings, log)
    part = next(iter(task.measured.values()))
    examples = model.examples(part.items)
    askers = {"Keras": model, **formats}
    lines = []
    for form, asked in askers.items():
        if not hasattr(asked, "outputs_of"):
            asked = TokenRuntime(asked, form, ())
        said = model.decode(part.items, examples, asked.outputs_of(examples))
        found = task.score(part, said)
        words = "  ".join(f"{key} {value:.2f}" for key, value in found.items())
        lines.append(f"{form:20} {words}  ({len(part):,} items)")
    return lines


def latencies(formats: Mapping[str, Answers], length: int, rounds: int) -> None:
    """Prints milliseconds of a request of one row.

    Args:
        formats: What answers ids.
        length: Its positions.
        rounds: Of 20 requests each, in turn with the other formats'.
    """
    import numpy as np

    ids = np.random.default_rng(0).integers(5, 1000, (1, length)).astype(np.int32)
    request = {
        "token_ids": ids, "segment_ids": np.zeros_like(ids),
        "padding_mask": np.ones_like(ids),
    }  # fmt: skip

    def measured(ask: Answers) -> Callable[[], float]:
        def microseconds() -> float:
            times = []
            for _ in range(20):
                begun = time.perf_counter()
                ask(request)
                times.append(time.perf_counter() - begun)
            return 1e6 * float(np.median(times))

        return microseconds

    print(f"\nmicroseconds of a request of {length} positions")
    found = interleaved(rounds, {name: measured(ask) for name, ask in formats.items()})
    for name, values in found.items():
        print(f"{name:20} {np.median(values):10,.0f} µs at {length} positions")


def _numbers(signature: Any) -> Answers:
    """A loaded signature as a function of arrays."""
    import tensorflow as tf

    def ask(ids: Mapping[str, Any]) -> dict[str, Any]:
        said = signature(**{name: tf.constant(of) for name, of in ids.items()})
        return {n: of.numpy() for n, of in said.items() if of.dtype != tf.string}

    return ask


if __name__ == "__main__":
    main()
