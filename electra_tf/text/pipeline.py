"""Read records as a shuffled, resumable stream of `Batch`.

The order of the records is a pure function of (seed, epoch), so the number of a batch
determines the position in the stream. An epoch reads the shards in a random order and
shuffles them window by window. Each host reads all records and parses its rows of each
global batch, so a batch is the same for any number of hosts.
"""

import os

import numpy as np
import tensorflow as tf

from electra_tf.batch import Batch
from electra_tf.config.data import InputConfig
from electra_tf.errors import InputError
from electra_tf.text.record_set import RecordSet
from electra_tf.text.records import FEATURES

_SHARD_ORDER, _WINDOW_ORDER = 0, 1  # purposes that the seed is folded with
_PREFETCH = 4  # parsed batches


def training_batches(
    record_set: RecordSet,
    settings: InputConfig,
    *,
    first_batch: int = 0,
    host: int = 0,
    hosts: int = 1,
) -> tf.data.Dataset:
    """Return a stream of batches; each epoch drops an incomplete last batch.

    The stream is endless.

    Args:
        record_set: The records.
        settings: Global batch size, seed and shuffle window.
        first_batch: Number of batches consumed before; the stream resumes with the
            next record.
        host: Index of this host; it reads rows [host * B / hosts, ...) of each batch.
        hosts: Number of hosts.

    Returns:
        A dataset of `Batch`, each tensor int32 [rows / hosts, max_length].

    Raises:
        InputError: There are fewer records than one batch has, or the rows cannot be
            divided equally among the hosts.

    Example:
        import electra_tf

        config = electra_tf.load_config("tiny", ["input.batch_size=8"])
        records = electra_tf.open_records("records", max_length=32, tokenizer=None)
        for batch in electra_tf.training_batches(records, config.input).take(2):
            batch.input_ids_BL  # int32 [8, 32]
    """
    size = settings.batch_size
    if record_set.total < size:
        raise InputError(
            f"{record_set.total} records are less than a batch of {size}; lower "
            "input.batch_size or build more"
        )
    rows = _rows_of_host(size, host, hosts)
    first_epoch, skipped = divmod(first_batch, record_set.total // size)

    def epoch(number: tf.Tensor) -> tf.data.Dataset:
        skip = tf.where(number == first_epoch, skipped * size, 0)
        payloads = _shuffle_epoch(record_set, settings, number, tf.cast(skip, tf.int64))
        return payloads.rebatch(size, drop_remainder=True)

    payloads = tf.data.Dataset.range(first_epoch, tf.int64.max).flat_map(epoch)
    return _parse_batches(payloads, record_set, rows)


def evaluation_batches(
    record_set: RecordSet, batch_size: int, *, host: int = 0, hosts: int = 1
) -> tf.data.Dataset:
    """Return each record once, in order; the last batch is padded with zero rows."""
    rows = _rows_of_host(batch_size, host, hosts)
    payloads = tf.data.TFRecordDataset(record_set.paths).batch(batch_size)
    return _parse_batches(payloads, record_set, rows)


def count_tokens(record_set: RecordSet) -> np.ndarray:
    """Return how often each token occurs in the records, int64 [V]."""
    size = record_set.vocabulary_size
    counts_V = np.zeros(size, np.int64)
    for batch in evaluation_batches(record_set, 4096):
        real = batch.input_ids_BL[batch.input_mask_BL > 0]
        counts_V += np.bincount(real.numpy(), minlength=size)
    return counts_V


def _parse_batches(
    payloads: tf.data.Dataset, record_set: RecordSet, rows: slice
) -> tf.data.Dataset:
    """Parse batches of payloads to this host's rows as `Batch`, with prefetching."""
    length, size = record_set.max_length, rows.stop - rows.start
    spec = {name: tf.io.FixedLenFeature([length], tf.int64) for name in FEATURES}

    def parse(payloads_B: tf.Tensor) -> Batch:
        features = tf.io.parse_example(payloads_B[rows], spec)
        ids = features["input_ids"]
        # These errors contain no file name; `reraise_bad_records` finds them.
        tf.debugging.assert_non_negative(ids)
        tf.debugging.assert_less(ids, tf.constant(record_set.vocabulary_size, tf.int64))
        padding = [[0, size - tf.shape(ids)[0]], [0, 0]]
        padded = (
            tf.pad(tf.cast(features[name], tf.int32), padding) for name in FEATURES
        )
        return Batch(*(tf.ensure_shape(values, [size, length]) for values in padded))

    options = tf.data.Options()
    # An iterator waits at its end for the autotuning thread, which sleeps for up to a
    # minute.
    options.autotune.enabled = False
    parsed = payloads.map(parse, os.cpu_count(), deterministic=True)
    return parsed.prefetch(_PREFETCH).with_options(options)


def _rows_of_host(batch_size: int, host: int, hosts: int) -> slice:
    if not 0 <= host < hosts:
        raise InputError(f"host must be from 0 to {hosts - 1}, not {host}")
    if batch_size % hosts:
        raise InputError(
            f"input.batch_size must be a multiple of {hosts}, the number of hosts, not "
            f"{batch_size}"
        )
    size = batch_size // hosts
    return slice(host * size, (host + 1) * size)


def _shuffle_epoch(
    record_set: RecordSet, settings: InputConfig, epoch: tf.Tensor, skip: tf.Tensor
) -> tf.data.Dataset:
    """Return the payloads of an epoch from record `skip` on, as shuffled windows."""
    seed = tf.stack([tf.constant(settings.seed, tf.int64), epoch])
    order = _permutation(len(record_set.paths), seed, _SHARD_ORDER, 0)
    ends = tf.cumsum(tf.gather(tf.constant(record_set.counts, tf.int64), order))
    # Whole windows and shards before the first record are not read.
    window = skip // settings.shuffle_window
    start = window * settings.shuffle_window
    shard = tf.searchsorted(ends, start[None], side="right")[0]
    before = tf.where(shard > 0, ends[tf.maximum(shard - 1, 0)], 0)
    paths = tf.gather(tf.constant(record_set.paths), order[shard:])

    def shuffle(number: tf.Tensor, payloads_W: tf.Tensor) -> tf.Tensor:
        order_W = _permutation(tf.size(payloads_W), seed, _WINDOW_ORDER, number)
        offset = tf.where(number == window, skip - start, 0)
        return tf.gather(payloads_W, order_W[offset:])

    return (
        tf.data.TFRecordDataset(paths)
        .skip(start - before)
        .batch(settings.shuffle_window)
        .enumerate(window)
        .map(shuffle)
        .prefetch(1)
    )


def _permutation(size, seed: tf.Tensor, purpose: int, number) -> tf.Tensor:
    """Return a permutation from random bits, equal in eager and graph mode."""
    seed = tf.random.fold_in(seed, purpose, alg="philox")
    seed = tf.random.fold_in(seed, number, alg="philox")
    bits = tf.random.stateless_uniform(
        [size], seed, minval=None, maxval=None, dtype=tf.int64, alg="philox"
    )
    return tf.argsort(bits, stable=True)
