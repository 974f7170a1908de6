"""Compute outputs for tokenized texts, in batches of similar lengths."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from electra_tf.kernels.fused_layer_ops import FusedLayerOps, has_only_cpus
from electra_tf.model.layer_ops import LayerOps
from electra_tf.tasks.examples import EncodedExamples, prediction_batch_indices

IDS = tf.TensorSpec([None, None], tf.int32)
MANY_BATCHES = 8
"""From here on, fused operations save more time than their compilation takes."""
INPUTS = dict.fromkeys(("token_ids", "segment_ids", "padding_mask"), IDS)


def compiled(
    layer: keras.layers.Layer, key: tuple, function: Callable, *signature: Any
) -> Callable:
    """Return the compiled function of an earlier call with the same key, or this one.

    Weights that were added since then, as by `enable_lora`, need another trace.
    """
    functions = vars(layer).setdefault("_compiled_for_texts", {})
    return functions.setdefault(
        (*key, len(layer.weights)), tf.function(function, signature, autograph=False)
    )


def evaluation_ops(compiled: bool = True) -> LayerOps:
    """Return the operations of a step without dropout, fused ones on CPUs.

    XLA compiles the fused ones again for each shape of a batch.
    """
    is_fused = compiled and has_only_cpus()
    return FusedLayerOps(None, on_cpu=True) if is_fused else LayerOps(training=False)


def outputs_by_row(
    examples: EncodedExamples,
    batch_size: int,
    function: Callable[[Mapping[str, np.ndarray], Sequence[int]], Any],
) -> list[Any]:
    """Return the outputs for each example, structures of NumPy arrays.

    The function gets the inputs of a batch and the numbers of its examples.
    """
    results: list[Any] = [None] * len(examples)
    for rows in prediction_batch_indices(examples.lengths, batch_size):
        inputs, _, _ = examples.batch(rows, len(rows))
        outputs = function(inputs, rows)
        outputs = tf.nest.map_structure(lambda tensor: tensor.numpy(), outputs)
        for index, row in enumerate(rows):
            results[row] = tf.nest.map_structure(lambda a, i=index: a[i], outputs)
    return results
