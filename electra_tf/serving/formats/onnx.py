"""The function of ids as an ONNX file, for other runtimes than TensorFlow."""

import os
from typing import Any

import numpy as np

from electra_tf.errors import InputError
from electra_tf.serving.export_spec import Answer, Request
from electra_tf.serving.formats.token_runtime import (
    TokenRuntime,
    drop_string_outputs,
    missing_extra,
)

FILE = "model.onnx"
OPSET = 17
"""ONNX 1.12 of 2022: what runtimes of the last years know."""
_AXES = ("batch", "length")


def write_onnx(function: Any, folder: str) -> str:
    """Writes the file.

    Rows and positions stay free: the inputs' axes are called `batch` and `length`.
    Checks within the function are lost, and so are its outputs of strings.

    Args:
        function: A `tf.function` of `token_ids`, `segment_ids` and `padding_mask`,
            int32 [B, L], that returns tensors by name (see `checked_ids.of_ids`).
        folder: An existing one.

    Returns:
        Its path.

    Raises:
        InputError: The extra `onnx` is not installed, or the function does what ONNX
            has no operation for.
    """
    try:
        import tf2onnx
    except ImportError as error:
        raise missing_extra("onnx", error) from error
    numbers = drop_string_outputs(function)
    signature = numbers.input_signature
    model, _ = tf2onnx.convert.from_function(numbers, signature, opset=OPSET)
    _require_known(model)
    for value in model.graph.input:
        for axis, name in zip(value.type.tensor_type.shape.dim, _AXES, strict=True):
            axis.dim_param = name
    path = os.path.join(folder, FILE)
    with open(path, "wb") as file:
        file.write(model.SerializeToString())
    return path


def open_onnx(path: str, threads: int = 1) -> TokenRuntime:
    """Opens a file that `write_onnx` wrote.

    Args:
        path: Of the file.
        threads: That a request may use.

    Returns:
        What answers ids, on the processor.

    Raises:
        InputError: The extra `onnx` is not installed, or the file is none.
    """
    try:
        import onnxruntime
        from onnxruntime.capi import onnxruntime_pybind11_state as errors
    except ImportError as error:
        raise missing_extra("onnx", error) from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4  # what it would print is raised too
    try:
        session = onnxruntime.InferenceSession(
            path, options, providers=["CPUExecutionProvider"]
        )
    except (errors.NoSuchFile, errors.InvalidProtobuf, errors.Fail) as error:
        raise InputError(
            "An ONNX model is a file that export --format=onnx wrote",
            f"{path}: {error}",
            "Export it again",
        ) from error
    names = [output.name for output in session.get_outputs()]
    failures = errors.Fail, errors.InvalidArgument, errors.RuntimeException
    return TokenRuntime(
        lambda ids: dict(zip(names, session.run(names, dict(ids)), strict=True)),
        path,
        failures,
    )


def run_onnx(path: str, inputs: Request) -> Answer:
    """Opens a file and asks it once.

    Args:
        path: That `write_onnx` wrote.
        inputs: As for `Converted`.

    Returns:
        Numbers by name.
    """
    return open_onnx(path)({name: np.asarray(of) for name, of in inputs.items()})


def _require_known(model: Any) -> None:
    """Stops where tf2onnx left an operation of TensorFlow in the graph."""
    from onnx import defs

    unknown = {
        node.op_type for node in model.graph.node
        if not defs.has(node.op_type, OPSET, node.domain)
    }  # fmt: skip
    if unknown:
        raise InputError(
            "ONNX has an operation for each one of the model",
            f"{', '.join(sorted(unknown))}, for which it has none",
            "Export a SavedModel or LiteRT, and report it",
        )
