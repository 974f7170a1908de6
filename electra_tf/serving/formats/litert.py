"""The function of ids as LiteRT files, for phones and small machines.

LiteRT was called TensorFlow Lite. One file holds float32 weights, the other eight bits
for each (dynamic range: products take int8 weights and make float32 sums).
"""

import os
import re
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.lite.python.convert_phase import ConverterError

from electra_tf.errors import InputError
from electra_tf.serving.export_spec import IDS, Answer, Request
from electra_tf.serving.formats.token_runtime import (
    TokenRuntime,
    drop_string_outputs,
    missing_extra,
)

FILES = ("model.float32.tflite", "model.int8.tflite")


def write_litert(function: Any, folder: str) -> list[str]:
    """Writes both files.

    Rows and positions stay free. Checks within the function are lost, and so are its
    outputs of strings.

    Args:
        function: A `tf.function` of `token_ids`, `segment_ids` and `padding_mask`,
            int32 [B, L], that returns tensors by name (see `checked_ids.of_ids`).
        folder: An existing one.

    Returns:
        Their paths, in the order of `FILES`.

    Raises:
        InputError: The function does what LiteRT has no operation for.
    """
    concrete = drop_string_outputs(function).get_concrete_function()
    holder = tf.Module()
    holder.variables_of_it = concrete.variables  # the converter takes them from here
    paths = []
    for name in FILES:
        converter = tf.lite.TFLiteConverter.from_concrete_functions([concrete], holder)
        if "int8" in name:
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        model = _converted(converter)
        path = os.path.join(folder, name)
        with open(path, "wb") as file:
            file.write(model)
        paths.append(path)
    return paths


def open_litert(path: str, threads: int = 1) -> TokenRuntime:
    """Opens a file that `write_litert` wrote.

    Args:
        path: Of the file.
        threads: That a request may use.

    Returns:
        What answers ids.

    Raises:
        InputError: The extra `litert` is not installed, or the file is none.
    """
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
            "A LiteRT model is a file that export --format=litert wrote",
            f"{path}: {error}",
            "Export it again",
        ) from error

    def ask(ids: Request) -> Answer:
        rows, length = ids[IDS[0]].shape
        if rows:
            return runner(**ids)
        # LiteRT cannot tell of no rows: those of one that nobody asked about, cut off.
        row = np.zeros([1, max(length, 1)], np.int32)
        return {name: of[:0] for name, of in runner(**dict.fromkeys(IDS, row)).items()}

    return TokenRuntime(ask, path, (RuntimeError, ValueError))


def run_litert(path: str, inputs: Request) -> Answer:
    """Opens a file and asks it once.

    Args:
        path: That `write_litert` wrote.
        inputs: As for `Converted`.

    Returns:
        Numbers by name.
    """
    return open_litert(path)({name: np.asarray(of) for name, of in inputs.items()})


def _converted(converter: Any) -> bytes:
    try:
        return converter.convert()
    except ConverterError as error:
        said = re.findall(r"(?:TF Select|Custom) ops: (.*)", str(error))
        names = ", ".join(dict.fromkeys(said)) or str(error)[:300]
        raise InputError(
            "LiteRT has an operation for each one of the model",
            f"{names}, for which it has none",
            "Export a SavedModel or ONNX, and report it",
        ) from error
