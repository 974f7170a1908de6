"""Load a SavedModel as a server does, and compare its outputs with Keras's.

Run in a fresh process: `python validate.py SAVED_MODEL CASES`. It imports only
TensorFlow and tensorflow-text, because a server has no other package. CASES is a pickle
of the exporter: a list of (signature, request, expected outputs). The report is printed
as one line of JSON.
"""

import json
import os
import pathlib
import pickle
import sys
from typing import Any

import numpy as np
import tensorflow as tf

# Operations of tensorflow-text in stock TF Serving, which embeds kernels of 2.12.
TEXT_OPERATIONS = frozenset(
    ("CaseFoldUTF8", "NormalizeUTF8", "RegexSplitWithOffsets",
     "WordpieceTokenizeWithOffsets")
)  # fmt: skip
# Operations that call back into the Python process that built the graph.
_PYTHON_OPERATIONS = frozenset(
    ("PyFunc", "PyFuncStateless", "EagerPyFunc", "NumpyFunction")
)
TOLERANCE = 1e-4
"""Largest difference, relative above 1. Two ways to compute the same logits in float32
differ by 1e-5 in a network of 6 layers of width 384."""
ROWS = "rows"
"""Stands for an output whose difference is 0 if every output has one row for each row
of the request, else infinity."""


def unknown_operations(folder: str) -> list[str]:
    """Return operations of a SavedModel that a stock server cannot run.

    `tf.raw_ops` has those of TensorFlow alone, without those of tensorflow-text.
    """
    content = pathlib.Path(folder, "saved_model.pb").read_bytes()
    name, field = "tensorflow.SavedModel", "meta_graphs"
    _, ([metas],) = tf.io.decode_proto([content], name, [field], [tf.string])
    metas = map(tf.compat.v1.MetaGraphDef.FromString, metas.numpy())
    unknown = set()
    for graph in (meta.graph_def for meta in metas):
        functions = {function.signature.name for function in graph.library.function}
        nodes = [*graph.node]
        for function in graph.library.function:
            nodes += function.node_def
            if function.attr["_XlaMustCompile"].b:
                unknown.add("XLA")
        names = {node.op for node in nodes} - functions - TEXT_OPERATIONS
        unknown |= {
            name for name in names
            if name in _PYTHON_OPERATIONS or not hasattr(tf.raw_ops, name)
        }  # fmt: skip
    return sorted(unknown)


def count_variables(folder: str) -> tuple[int, int]:
    """Return the number of variables of a SavedModel, and of their elements."""
    shapes = [
        shape
        for name, shape in tf.train.list_variables(f"{folder}/variables/variables")
        if name.endswith("VARIABLE_VALUE")
    ]
    return len(shapes), sum(int(np.prod(shape)) for shape in shapes)


def compare_outputs(model: Any, cases: list[tuple]) -> dict[str, float]:
    """Call a loaded model; return the largest difference by signature and output."""
    largest: dict[str, float] = {}
    for signature, request, expected in cases:
        inputs = {name: tf.constant(array) for name, array in request.items()}
        outputs = model.signatures[signature](**inputs)
        rows = {len(tensor) for tensor in (*inputs.values(), *outputs.values())}
        differences = {ROWS: 0.0 if len(rows) == 1 else float("inf")}
        for name, array in expected.items():
            differences[name] = max_difference(outputs[name].numpy(), array)
        for name, difference in differences.items():
            key = f"{signature}: {name}"
            largest[key] = max(largest.get(key, 0.0), difference)
    return largest


def max_difference(actual: np.ndarray, expected: np.ndarray) -> float:
    """Return the largest difference between two arrays."""
    if actual.shape != expected.shape:
        return float("inf")
    if actual.dtype == object or not actual.size:
        return 0.0 if np.array_equal(actual, expected) else float("inf")
    scale = np.maximum(1.0, np.abs(expected))
    largest = np.max(np.abs(actual.astype(np.float64) - expected) / scale)
    return float("inf") if np.isnan(largest) else float(largest)


def main(folder: str, cases: str) -> None:
    """Print the report as JSON."""
    operations = unknown_operations(folder)
    import tensorflow_text  # noqa: F401  imported late, see unknown_operations

    model = tf.saved_model.load(folder)
    variables, numbers = count_variables(folder)
    report = {
        "unknown_operations": operations,
        "variables": variables,
        "numbers": numbers,
        "differences": compare_outputs(
            model, pickle.loads(pathlib.Path(cases).read_bytes())
        ),
    }
    print(json.dumps(report), flush=True)
    os._exit(0)  # skips the slow shutdown of TensorFlow


if __name__ == "__main__":
    main(*sys.argv[1:])
