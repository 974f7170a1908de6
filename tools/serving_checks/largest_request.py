"""Time the largest request of ids that an exported model accepts.

    python tools/serving_checks/largest_request.py --model=served --length=512
    python tools/serving_checks/largest_request.py --kind=tagger --config=small

The first line measures an export, the second a new one with random weights. The rows
have --length positions, as many as `about.json` allows. The model answers one row
first, so that the time has no start-up cost.
"""

import argparse
import json
import os
import pathlib
import resource
import sys
import tempfile
import time

import numpy as np
from serve_check_memory import Peak, ProcessMemory
from serve_check_server import newest_version

ROOT = pathlib.Path(__file__).parents[2]
KINDS = ("classifier", "tagger", "answerer", "regressor")


def export_random(kind: str, config: str, folder: pathlib.Path) -> str:
    """Export a model of a task with random weights."""
    import electra_tf

    vocabulary = ROOT / "tests" / "golden" / "vocab.txt"
    classes = {
        "classifier": (electra_tf.TextClassifier, {"labels": ["no", "yes"]}),
        "regressor": (electra_tf.TextRegressor, {}),
        "tagger": (electra_tf.TokenClassifier, {"labels": ["O", "B-X", "I-X"]}),
        "answerer": (electra_tf.QuestionAnswerer, {}),
    }
    model_class, head = classes[kind]
    model = model_class.from_preset(config, vocabulary=str(vocabulary), **head)
    output = folder / "served"
    electra_tf.export_saved_model(model, str(output))
    return str(output)


def measure(model: str, length: int) -> dict[str, float]:
    """Return positions, seconds and memory of the largest request.

    Returns:
        `positions`, `cpu_seconds` of all threads, `wall_seconds`, and `peak_MiB` above
        the memory after the first answer.
    """
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  its operations are in the graph

    folder = newest_version(model)[1]
    about = json.loads((folder / "assets.extra" / "about.json").read_text())
    if "limits" not in about:
        sys.exit(f"error: {model} must be an export with limits. Export it again.")
    rows = about["limits"]["positions"] // length
    signature = tf.saved_model.load(str(folder)).signatures["tokens"]
    rng = np.random.default_rng(0)
    ids_BL = rng.integers(5, 100, (rows, length)).astype(np.int32)

    def answer(count: int) -> None:
        ids = tf.constant(ids_BL[:count])
        inputs = {"token_ids": ids, "segment_ids": tf.zeros_like(ids)}
        signature(**inputs, padding_mask=tf.ones_like(ids))

    answer(1)
    memory = ProcessMemory(os.getpid())
    before, start = memory.read("VmRSS"), time.perf_counter()
    usage = resource.getrusage(resource.RUSAGE_SELF)
    with Peak(memory) as peak:
        answer(rows)
    seconds = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - usage.ru_utime - usage.ru_stime
    return {
        "positions": rows * length,
        "cpu_seconds": round(cpu, 1),
        "wall_seconds": round(seconds, 1),
        "peak_MiB": round(peak.mib - before),
    }


def main() -> None:
    """Print the measurement as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--model", help="folder of versions that export wrote")
    source.add_argument("--kind", choices=KINDS, help="a new export, random weights")
    parser.add_argument("--config", default="small", help="sizes for --kind")
    parser.add_argument("--length", type=int, default=512, help="positions of a row")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = options.model
        if options.kind:
            model = export_random(options.kind, options.config, pathlib.Path(folder))
        print(json.dumps(measure(model, options.length)))


if __name__ == "__main__":
    sys.exit(main())
