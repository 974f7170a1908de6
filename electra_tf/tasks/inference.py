"""Compute outputs for tokenized texts, in batches of similar lengths."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from electra_tf.kernels.fused_layer_ops import FusedLayerOps, has_only_cpus
from electra_tf.model.layer_ops import LayerOps
from electra_tf.tasks.examples import EncodedExamples, prediction_batch_indices

IDS_SPEC = tf.TensorSpec([None, None], tf.int32)
MANY_BATCHES = 8  # from which on compiling fused operations saves time
INPUT_SPECS = dict.fromkeys(("token_ids", "segment_ids", "padding_mask"), IDS_SPEC)


def compiled(
    layer: keras.layers.Layer, key: tuple, function: Callable, *signature: Any
) -> Callable:
    """Return the compiled function of a key, new after Keras's `enable_lora`."""
    functions = vars(layer).setdefault("_compiled_for_texts", {})
    key = (*key, len(layer.weights))
    if key not in functions:
        # TensorFlow warns of retracing where several seeds have a `tf.function` each.
        traced = tf.function(function, signature, autograph=False)
        functions[key] = traced.get_concrete_function()
    return functions[key]


def evaluation_ops(compiled: bool = True) -> LayerOps:
    """Return operations without dropout; the fused ones are compiled for each shape."""
    is_fused = compiled and has_only_cpus()
    return FusedLayerOps(None, on_cpu=True) if is_fused else LayerOps(training=False)


def outputs_by_row(
    examples: EncodedExamples,
    batch_size: int,
    function: Callable[[Mapping[str, np.ndarray], Sequence[int]], Any],
) -> list[Any]:
    """Return the outputs of each example, by a function of a batch and its rows."""
    results: list[Any] = [None] * len(examples)
    for rows in prediction_batch_indices(examples.lengths, batch_size):
        inputs, _, _ = examples.batch(rows, len(rows))
        outputs = function(inputs, rows)
        outputs = tf.nest.map_structure(lambda tensor: tensor.numpy(), outputs)
        for index, row in enumerate(rows):
            results[row] = tf.nest.map_structure(lambda a, i=index: a[i], outputs)
    return results
