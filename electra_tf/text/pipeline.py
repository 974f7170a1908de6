"""Records -> a shuffled, resumable stream of `Batch`.

The order of the records is a pure function of (seed, epoch), so the number of a batch
is all there is to know about the stream's position. An epoch reads the shards in a
random order and shuffles them window by window; `build_records` deals records out to
the shards in turn, so a window holds text from all over the corpus.

Every host draws the same global batches and parses its own rows of them. A host thus
reads all records, a few MB a second where training is fastest; in exchange a batch is
the same on one host and on many.
"""

import os
from collections.abc import Callable

import tensorflow as tf

from electra_tf.batch import Batch
from electra_tf.config.pretraining import InputConfig
from electra_tf.errors import InputError
from electra_tf.text.record_set import RecordSet
from electra_tf.text.records import FEATURES

_SHARD_ORDER, _WINDOW_ORDER = 0, 1  # purposes that the seed is folded with
_READY = 4  # parsed batches that wait to be taken


def training_batches(
    found: RecordSet,
    settings: InputConfig,
    *,
    first_batch: int = 0,
    host: int = 0,
    hosts: int = 1,
) -> tf.data.Dataset:
    """Yields batches for ever; each epoch drops what does not fill its last batch.

    Args:
        found: The records.
        settings: Batch size (of all hosts together), seed and shuffle window.
        first_batch: How many batches were consumed before; the stream goes on with
            exactly the next record.
        host: Number of this host; it gets rows [host * B / hosts, ...) of each batch.
        hosts: Number of hosts.

    Returns:
        A dataset of `Batch`, each tensor int32 [batch_size / hosts, max_length].

    Raises:
        InputError: Fewer records than one batch, rows that cannot be shared equally.
    """
    rows = _rows_of_host(settings.batch_size, host, hosts)
    batches = found.total // settings.batch_size
    if first_batch < 0:
        raise InputError("Batches are numbered from 0", str(first_batch), "Pass 0")
    if not batches:
        raise InputError(
            f"An epoch holds at least one batch of {settings.batch_size} records",
            f"{found.total} records",
            f"Set input.batch_size to {found.total} or less, or build more records",
        )
    first_epoch, skipped = divmod(first_batch, batches)

    def epoch(number: tf.Tensor) -> tf.data.Dataset:
        skip = tf.where(number == first_epoch, skipped * settings.batch_size, 0)
        payloads = _shuffled(found, settings, number, tf.cast(skip, tf.int64))
        return payloads.rebatch(settings.batch_size, drop_remainder=True)

    payloads = tf.data.Dataset.range(first_epoch, tf.int64.max).flat_map(epoch)
    return _parsed(payloads, found, rows)


def evaluation_batches(
    found: RecordSet, batch_size: int, *, host: int = 0, hosts: int = 1
) -> tf.data.Dataset:
    """Yields every record once, in order; the last batch is filled with zero rows.

    Args:
        found: The records.
        batch_size: Rows of all hosts together.
        host: Number of this host.
        hosts: Number of hosts.

    Returns:
        A finite dataset of `Batch`, equally long on each host. A row that only fills
        up has an input mask of zeros and thus no weight.
    """
    rows = _rows_of_host(batch_size, host, hosts)
    payloads = tf.data.TFRecordDataset(found.paths).batch(batch_size)
    return _parsed(payloads, found, rows)


def _parsed(
    payloads: tf.data.Dataset, found: RecordSet, rows: slice
) -> tf.data.Dataset:
    """Batches of payloads as `Batch`es, ready before they are asked for."""
    options = tf.data.Options()
    # With its tuner on, an iterator that has run for minutes takes up to one more to
    # end: the tuner sleeps ever longer, and is waited for.
    options.autotune.enabled = False
    parser = _parser(found, rows)
    parsed = payloads.map(parser, os.cpu_count(), deterministic=True)
    return parsed.prefetch(_READY).with_options(options)


def _rows_of_host(batch_size: int, host: int, hosts: int) -> slice:
    if not 0 <= host < hosts:
        raise InputError(
            "Hosts are numbered from 0 to their number less one",
            f"host {host} of {hosts}",
            "Pass the worker's index and the number of workers",
        )
    if batch_size % hosts:
        raise InputError(
            f"A batch is shared equally by {hosts} hosts",
            f"{batch_size} rows",
            f"Set input.batch_size to a multiple of {hosts}",
        )
    own = batch_size // hosts
    return slice(host * own, (host + 1) * own)


def _shuffled(
    found: RecordSet, settings: InputConfig, epoch: tf.Tensor, skip: tf.Tensor
) -> tf.data.Dataset:
    """The payloads of an epoch from record `skip` on, as shuffled windows."""
    seed = tf.stack([tf.constant(settings.seed, tf.int64), epoch])
    order = _permutation(len(found.paths), seed, _SHARD_ORDER, 0)
    ends = tf.cumsum(tf.gather(tf.constant(found.counts, tf.int64), order))
    # Whole windows and whole shards before the first record are not even read.
    window = skip // settings.shuffle_window
    start = window * settings.shuffle_window
    shard = tf.searchsorted(ends, start[None], side="right")[0]
    before = tf.where(shard > 0, ends[tf.maximum(shard - 1, 0)], 0)
    paths = tf.gather(tf.constant(found.paths), order[shard:])

    def shuffle(number: tf.Tensor, payloads_W: tf.Tensor) -> tf.Tensor:
        order_W = _permutation(tf.size(payloads_W), seed, _WINDOW_ORDER, number)
        done = tf.where(number == window, skip - start, 0)
        return tf.gather(payloads_W, order_W[done:])

    return (
        tf.data.TFRecordDataset(paths)
        .skip(start - before)
        .batch(settings.shuffle_window)
        .enumerate(window)
        .map(shuffle)
        .prefetch(1)
    )


def _permutation(size, seed: tf.Tensor, purpose: int, number) -> tf.Tensor:
    """A permutation drawn from random bits, which are the same in every mode."""
    seed = tf.random.fold_in(seed, purpose, alg="philox")
    seed = tf.random.fold_in(seed, number, alg="philox")
    bits = tf.random.stateless_uniform(
        [size], seed, minval=None, maxval=None, dtype=tf.int64, alg="philox"
    )
    return tf.argsort(bits, stable=True)


def _parser(found: RecordSet, rows: slice) -> Callable[[tf.Tensor], Batch]:
    """A function from a batch of payloads to this host's rows as a `Batch`."""
    spec = {
        name: tf.io.FixedLenFeature([found.max_length], tf.int64) for name in FEATURES
    }
    own = rows.stop - rows.start

    def parse(payloads_B: tf.Tensor) -> Batch:
        features = tf.io.parse_example(payloads_B[rows], spec)
        ids = features["input_ids"]
        # Called by number alone: `explain` finds the file and the record.
        tf.debugging.assert_non_negative(ids)
        tf.debugging.assert_less(ids, tf.constant(found.vocabulary_size, tf.int64))
        return Batch(*(_whole(features[name], own) for name in FEATURES))

    return parse


def _whole(values_BL: tf.Tensor, size: int) -> tf.Tensor:
    """int32 of a static shape, filled up with rows of zeros."""
    values_BL = tf.cast(values_BL, tf.int32)
    padding = [[0, size - tf.shape(values_BL)[0]], [0, 0]]
    return tf.ensure_shape(tf.pad(values_BL, padding), [size, values_BL.shape[1]])
