"""Write the function of ids as ONNX files, and run them.

One file has float32 weights, the other int8 weights of matmuls, one scale per column.
"""

import os
from typing import Any

from electra_tf.serving.signatures import Request, Response, Runtime

ONNX_FILES = ("model.onnx", "model.int8.onnx")
OPSET = 17
"""Operator set of ONNX 1.12 (2022), which runtimes of the last years support."""
_AXES = ("batch", "length")


def write(function: Any, folder: str) -> list[str]:
    """Write the float32 and the int8 file; return their paths.

    Both accept any number of rows and positions: the inputs' axes are named `batch` and
    `length`. They have none of the assertions of the function.
    """
    import tf2onnx
    from onnxruntime import quantization

    signature = function.input_signature
    model, _ = tf2onnx.convert.from_function(function, signature, opset=OPSET)
    for value in model.graph.input:
        for axis, name in zip(value.type.tensor_type.shape.dim, _AXES, strict=True):
            axis.dim_param = name
    path, int8 = (os.path.join(folder, name) for name in ONNX_FILES)
    with open(path, "wb") as file:
        file.write(model.SerializeToString())
    # Adds the shapes without which `quantize_dynamic` logs a warning.
    quantization.quant_pre_process(
        path, int8, skip_optimization=True, skip_symbolic_shape=True
    )
    # Quantized token tables would save memory only, and lose accuracy. Weights have
    # seven bits, as the sum of two products overflows on processors without VNNI.
    quantization.quantize_dynamic(
        int8,
        int8,
        op_types_to_quantize=["MatMul"],
        per_channel=True,
        reduce_range=True,
    )
    return [path, int8]


def load(path: str) -> Runtime:
    """Open a file that `write` wrote, to run on the CPU."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4  # fatal: errors are raised, too
    session = onnxruntime.InferenceSession(
        path, options, providers=["CPUExecutionProvider"]
    )
    names = [output.name for output in session.get_outputs()]

    def run(inputs: Request) -> Response:
        return dict(zip(names, session.run(names, dict(inputs)), strict=True))

    return run
