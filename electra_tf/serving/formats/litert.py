"""Write the function of ids as LiteRT (TensorFlow Lite) files, and run them.

One file has float32 weights, the other int8 weights with dynamic-range quantization.
"""

import os
from typing import Any

import tensorflow as tf

from electra_tf.serving.signatures import Request, Response, Runtime

LITERT_FILES = ("model.float32.tflite", "model.int8.tflite")


def write(function: Any, folder: str) -> list[str]:
    """Write the float32 and the int8 file; return their paths.

    Both accept any number of rows and positions, without the assertions of the
    function.
    """
    concrete = function.get_concrete_function()
    holder = tf.Module()
    holder.tracked = concrete.variables  # the converter freezes those of the module
    paths = [os.path.join(folder, name) for name in LITERT_FILES]
    for path in paths:
        converter = tf.lite.TFLiteConverter.from_concrete_functions([concrete], holder)
        if "int8" in path:
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        with open(path, "wb") as file:
            file.write(converter.convert())
    return paths


def load(path: str) -> Runtime:
    """Open a file that `write` wrote. The result is not thread-safe."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=path, num_threads=1)
    runner = interpreter.get_signature_runner()

    def run(inputs: Request) -> Response:
        return dict(runner(**inputs))

    return run
