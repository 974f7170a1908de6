"""Softmax over the vocabulary at many positions, in bounded memory.

The logits of all positions of a batch would be its largest tensor by far: 16,384
positions of 30,522 entries take 2 GB, and their gradient as much again.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from electra_tf.kernels.weak_functions import custom_gradient

_CHUNK_VALUES = 2**24  # logits that exist at a time: 64 MiB


class LogProbabilities(NamedTuple):
    """Logarithms of softmax probabilities, float32 [X]."""

    label_X: tf.Tensor
    """Of the labels."""
    other_X: tf.Tensor
    """Of the other given tokens, without gradient."""
    largest_X: tf.Tensor
    """Of the most likely tokens, without gradient."""


def log_probabilities(
    hidden_XE: tf.Tensor,
    table_VE: tf.Tensor,
    bias_V: tf.Tensor,
    labels_X: tf.Tensor,
    others_X: tf.Tensor,
    chunk: int | None = None,
) -> LogProbabilities:
    """Compute log softmax(hidden table^T + bias) of two tokens at each position.

    Logits are computed chunk by chunk, and again in the backward pass: 4/3 of the FLOPs
    in exchange for memory that does not grow with the number of positions. Only the
    log-probabilities of the labels have a gradient. `chunk` is the number of positions
    of a chunk; None: those of 64 MiB of logits.
    """
    positions, size = hidden_XE.shape[0], table_VE.shape[0]
    chunk = min(positions, chunk or max(1, _CHUNK_VALUES // size))
    split = functools.partial(_chunks, positions=positions, size=chunk)
    labels_KC, others_KC = split(labels_X), split(others_X)

    @custom_gradient
    def compute(hidden_XE: tf.Tensor, table_VE: tf.Tensor, bias_V: tf.Tensor):
        hidden_KCE = split(hidden_XE)

        def logits(index: tf.Tensor) -> tf.Tensor:
            return tf.matmul(hidden_KCE[index], table_VE, transpose_b=True) + bias_V

        def forward(index: tf.Tensor) -> tuple[tf.Tensor, ...]:
            logits_CV = logits(index)
            log_sum_C = tf.reduce_logsumexp(logits_CV, -1)
            label_C, other_C = (
                tf.gather(logits_CV, ids_KC[index], batch_dims=1)
                for ids_KC in (labels_KC, others_KC)
            )
            largest_C = tf.reduce_max(logits_CV, -1)
            return label_C - log_sum_C, other_C - log_sum_C, largest_C - log_sum_C

        def backward(upstream_X: tf.Tensor, *_) -> tuple[tf.Tensor, ...]:
            grad_hidden_XE, *others = _backward(
                split(upstream_X), labels_KC, hidden_KCE, table_VE, bias_V, logits
            )
            return grad_hidden_XE[:positions], *others

        results = tf.map_fn(
            forward,
            tf.range(labels_KC.shape[0]),
            fn_output_signature=(tf.float32,) * 3,
            parallel_iterations=1,
        )
        return tuple(tf.reshape(x_KC, [-1])[:positions] for x_KC in results), backward

    label_X, other_X, largest_X = compute(hidden_XE, table_VE, bias_V)
    return LogProbabilities(
        label_X, tf.stop_gradient(other_X), tf.stop_gradient(largest_X)
    )


def _chunks(x_X: tf.Tensor, positions: int, size: int) -> tf.Tensor:
    """Return [X, ...] as chunks [K, size, ...], padded with zeros."""
    count = -(-positions // size)
    padding = [[0, count * size - positions]] + [[0, 0]] * (len(x_X.shape) - 1)
    return tf.reshape(tf.pad(x_X, padding), [count, size, *x_X.shape[1:]])


def _backward(
    upstream_KC: tf.Tensor,
    labels_KC: tf.Tensor,
    hidden_KCE: tf.Tensor,
    table_VE: tf.Tensor,
    bias_V: tf.Tensor,
    logits: Callable[[tf.Tensor], tf.Tensor],
) -> tuple[tf.Tensor, ...]:
    """Return the gradients of hidden states, table and bias, chunk by chunk."""
    count = labels_KC.shape[0]

    def add(index, of_hidden, of_table_VE, of_bias_V):
        one_hot_CV = tf.one_hot(labels_KC[index], table_VE.shape[0])
        of_logits_CV = upstream_KC[index][:, None] * (
            one_hot_CV - tf.nn.softmax(logits(index))
        )
        of_table_VE += tf.matmul(of_logits_CV, hidden_KCE[index], transpose_a=True)
        of_hidden = of_hidden.write(index, tf.matmul(of_logits_CV, table_VE))
        of_bias_V += tf.reduce_sum(of_logits_CV, 0)
        return index + 1, of_hidden, of_table_VE, of_bias_V

    empty = tf.TensorArray(tf.float32, count, element_shape=hidden_KCE.shape[1:])
    start = 0, empty, tf.zeros_like(table_VE), tf.zeros_like(bias_V)
    _, of_hidden, of_table_VE, of_bias_V = tf.while_loop(
        lambda index, *_: index < count, add, start, parallel_iterations=1
    )
    return of_hidden.concat(), of_table_VE, of_bias_V
