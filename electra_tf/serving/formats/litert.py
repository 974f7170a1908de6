"""Write the function of ids as LiteRT (TensorFlow Lite) files, and run them.

One file has float32 weights, the other int8 weights with dynamic-range quantization.
"""

import os
import re
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.lite.python.convert_phase import ConverterError

from electra_tf.errors import InputError
from electra_tf.serving.export_spec import IDS, Request, Response
from electra_tf.serving.formats.token_runtime import (
    TokenRuntime,
    drop_string_outputs,
    missing_extra,
)

FILES = ("model.float32.tflite", "model.int8.tflite")


def write_litert(function: Any, folder: str) -> list[str]:
    """Write the float32 and the int8 file.

    Both accept any number of rows and positions. They have neither the assertions of
    the function nor its string outputs.

    Returns:
        The paths, in the order of `FILES`.
    """
    concrete = drop_string_outputs(function).get_concrete_function()
    holder = tf.Module()
    holder.tracked = concrete.variables  # the converter freezes those of the module
    paths = []
    for name in FILES:
        converter = tf.lite.TFLiteConverter.from_concrete_functions([concrete], holder)
        if "int8" in name:
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        model = _convert(converter)
        path = os.path.join(folder, name)
        with open(path, "wb") as file:
            file.write(model)
        paths.append(path)
    return paths


def open_litert(path: str, threads: int = 1) -> TokenRuntime:
    """Open a file that `write_litert` wrote."""
    try:
        from ai_edge_litert.interpreter import Interpreter
    except ImportError as error:
        raise missing_extra("litert", error) from error
    try:
        runner = Interpreter(
            model_path=path, num_threads=threads
        ).get_signature_runner()
    except ValueError as error:
        raise InputError(
            "A LiteRT model must be a file that export --format=litert wrote",
            f"{path}: {error}",
            "Export it again",
        ) from error

    def run(inputs: Request) -> Response:
        rows, length = inputs[IDS[0]].shape
        if rows:
            return runner(**inputs)
        # LiteRT does not accept empty inputs: run a dummy row and drop its outputs.
        dummy = dict.fromkeys(IDS, np.zeros([1, max(length, 1)], np.int32))
        return {name: array[:0] for name, array in runner(**dummy).items()}

    return TokenRuntime(run, path, (RuntimeError, ValueError))


def _convert(converter: Any) -> bytes:
    try:
        return converter.convert()
    except ConverterError as error:
        operations = re.findall(r"(?:TF Select|Custom) ops: (.*)", str(error))
        names = ", ".join(dict.fromkeys(operations)) or str(error)[:300]
        raise InputError(
            "All operations of the model must exist in LiteRT",
            f"{names}, which does not",
            "Export a SavedModel or ONNX, and report it",
        ) from error
