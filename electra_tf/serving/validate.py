"""Loads a SavedModel as a server does, and holds it against what it should answer.

Run in a process of its own: `python proof.py SAVED_MODEL CASES`. It imports
TensorFlow and tensorflow-text alone: what else a SavedModel needs would not be there on
a server. CASES is a folder with `cases.json` and arrays; what was
found is printed as one line of JSON.
"""

import json
import os
import pathlib
import sys

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow.python.framework import op_def_registry

# What stock TF Serving has of tensorflow-text (it embeds 2.12's kernels for these).
TEXT_OPERATIONS = frozenset(
    ("CaseFoldUTF8", "NormalizeUTF8", "RegexSplitWithOffsets",
     "WordpieceTokenizeWithOffsets")
)  # fmt: skip
# They call back into the Python that made the graph.
_PYTHON = frozenset(("PyFunc", "PyFuncStateless", "EagerPyFunc", "NumpyFunction"))
TOLERANCE = 1e-5
ROWS = ": rows"
"""Beside the outputs it is told, as 0 or infinity, whether all have a row for each."""


def unknown_operations(folder: str) -> list[str]:
    """Operations of a SavedModel that a stock server would not run.

    Args:
        folder: With saved_model.pb. `tensorflow_text` must not be imported yet, as it
            registers operations.

    Returns:
        Their names, sorted; `XLA` for functions that only XLA may compile, which a
        stock server refuses unless told otherwise.
    """
    model = saved_model_pb2.SavedModel()
    model.ParseFromString(pathlib.Path(folder, "saved_model.pb").read_bytes())
    found = set()
    for graph in (meta.graph_def for meta in model.meta_graphs):
        functions = {function.signature.name for function in graph.library.function}
        nodes = [*graph.node]
        for function in graph.library.function:
            nodes += function.node_def
            if function.attr["_XlaMustCompile"].b:
                found.add("XLA")
        names = {node.op for node in nodes} - functions - TEXT_OPERATIONS
        found |= {
            name for name in names
            if name in _PYTHON or op_def_registry.get(name) is None
        }  # fmt: skip
    return sorted(found)


def stored(folder: str) -> tuple[int, int]:
    """Variables of a SavedModel: how many, and how many numbers they hold.

    Args:
        folder: Of the SavedModel.

    Returns:
        Both; what is no variable (the table of objects) is left out.
    """
    shapes = [
        shape
        for name, shape in tf.train.list_variables(f"{folder}/variables/variables")
        if name.endswith("VARIABLE_VALUE")
    ]
    return len(shapes), sum(int(np.prod(shape)) for shape in shapes)


def differences(model: object, cases: list[dict], arrays: str) -> dict[str, float]:
    """Asks a loaded model and compares what it answers.

    Args:
        model: What `tf.saved_model.load` returned.
        cases: Each with the names of a signature, of its inputs and of outputs.
        arrays: The folder of their arrays.

    Returns:
        The largest difference by signature and output, relative where the numbers are
        above 1; infinity for other shapes or other strings.
    """
    largest: dict[str, float] = {}
    for number, case in enumerate(cases):
        inputs = {
            name: tf.constant(_load(f"{arrays}/{number}.in.{name}.npy"))
            for name in case["inputs"]
        }
        outputs = model.signatures[case["signature"]](**inputs)
        rows = {len(of) for of in inputs.values()} | {
            len(of) for of in outputs.values()
        }
        key = case["signature"] + ROWS
        largest[key] = max(largest.get(key, 0.0), 0.0 if len(rows) == 1 else np.inf)
        for name in case["outputs"]:
            right = _load(f"{arrays}/{number}.out.{name}.npy")
            key = f"{case['signature']}: {name}"
            by = difference(outputs[name].numpy(), right)
            largest[key] = max(largest.get(key, 0.0), by)
    return largest


def _load(path: str) -> np.ndarray:
    return np.load(path, allow_pickle=True)  # written a moment ago by the exporter


def difference(found: np.ndarray, right: np.ndarray) -> float:
    """How far numbers are from the right ones.

    Args:
        found: Numbers, or strings.
        right: What they should be.

    Returns:
        The largest difference, relative where the right ones are above 1; infinity for
        another shape or another string.
    """
    if found.shape != right.shape:
        return float("inf")
    if found.dtype == object or not found.size:
        return 0.0 if np.array_equal(found, right) else float("inf")
    scale = np.maximum(1.0, np.abs(right))
    worst = np.max(np.abs(found.astype(np.float64) - right) / scale)
    return float("inf") if np.isnan(worst) else float(worst)


def main(folder: str, arrays: str) -> None:
    """Prints what was found.

    Args:
        folder: The SavedModel.
        arrays: The cases.
    """
    operations = unknown_operations(folder)
    import tensorflow_text  # noqa: F401  only now, see unknown_operations

    cases = json.loads(pathlib.Path(arrays, "cases.json").read_text())
    model = tf.saved_model.load(folder)
    variables, numbers = stored(folder)
    found = {
        "unknown_operations": operations,
        "variables": variables,
        "numbers": numbers,
        "differences": differences(model, cases, arrays),
    }
    print(json.dumps(found), flush=True)
    os._exit(0)  # no time lost on taking TensorFlow apart


if __name__ == "__main__":
    main(*sys.argv[1:])
