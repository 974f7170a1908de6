"""Write the function of ids as an ONNX file, and run it."""

import os
from typing import Any

from electra_tf.errors import InputError
from electra_tf.serving.export_spec import Request, Response
from electra_tf.serving.formats.token_runtime import (
    TokenRuntime,
    drop_string_outputs,
    missing_extra,
)

FILE = "model.onnx"
OPSET = 17
"""Operator set of ONNX 1.12 (2022), which runtimes of the last years support."""
_AXES = ("batch", "length")


def write_onnx(function: Any, folder: str) -> str:
    """Write the file.

    It accepts any number of rows and positions: the inputs' axes are named `batch` and
    `length`. It has neither the assertions of the function nor its string outputs.
    """
    try:
        import tf2onnx
    except ImportError as error:
        raise missing_extra("onnx", error) from error
    function = drop_string_outputs(function)
    signature = function.input_signature
    model, _ = tf2onnx.convert.from_function(function, signature, opset=OPSET)
    _check_operations(model)
    for value in model.graph.input:
        for axis, name in zip(value.type.tensor_type.shape.dim, _AXES, strict=True):
            axis.dim_param = name
    path = os.path.join(folder, FILE)
    with open(path, "wb") as file:
        file.write(model.SerializeToString())
    return path


def open_onnx(path: str, threads: int = 1) -> TokenRuntime:
    """Open a file that `write_onnx` wrote.

    Returns:
        The model, which runs on the CPU.
    """
    try:
        import onnxruntime
        from onnxruntime.capi import onnxruntime_pybind11_state as errors
    except ImportError as error:
        raise missing_extra("onnx", error) from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4  # fatal: errors are raised, too
    try:
        session = onnxruntime.InferenceSession(
            path, options, providers=["CPUExecutionProvider"]
        )
    except (errors.NoSuchFile, errors.InvalidProtobuf, errors.Fail) as error:
        raise InputError(
            "An ONNX model must be a file that export --format=onnx wrote",
            f"{path}: {error}",
            "Export it again",
        ) from error
    names = [output.name for output in session.get_outputs()]
    failures = errors.Fail, errors.InvalidArgument, errors.RuntimeException

    def run(inputs: Request) -> Response:
        return dict(zip(names, session.run(names, dict(inputs)), strict=True))

    return TokenRuntime(run, path, failures)


def _check_operations(model: Any) -> None:
    """Raise an error for operations of TensorFlow that tf2onnx did not convert."""
    from onnx import defs

    unknown = {
        node.op_type for node in model.graph.node
        if not defs.has(node.op_type, OPSET, node.domain)
    }  # fmt: skip
    if unknown:
        raise InputError(
            "All operations of the model must exist in ONNX",
            f"{', '.join(sorted(unknown))}, which does not",
            "Export a SavedModel or LiteRT, and report it",
        )
