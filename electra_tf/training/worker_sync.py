"""Exchange numbers between workers and report a lost worker."""

import contextlib
from collections.abc import Iterator

import tensorflow as tf

from electra_tf.errors import InputError


class WorkerSync:
    """All-gather of numbers over workers; a single process gets its own numbers.

    Args:
        strategy: The replicas.
    """

    def __init__(self, strategy: tf.distribute.Strategy):
        self._strategy = strategy
        self._gathered = tf.function(self._gather)

    def all_gather(self, *own: float) -> list[list[float]]:
        """Gather numbers from all workers; blocks until every worker calls it.

        Args:
            own: Numbers of this worker, equally many in each worker.

        Returns:
            For each number, its values by replica.
        """
        if not isinstance(self._strategy, tf.distribute.MultiWorkerMirroredStrategy):
            return [[number] for number in own]
        return self._gathered(tf.constant([own], tf.float64)).numpy().T.tolist()

    def check(self, step: int, place: int) -> None:
        """Raise an InputError unless all workers have one start step and run directory.

        Args:
            step: First step of this worker.
            place: Lock token of its run directory.
        """
        steps, places = self.all_gather(step, place)
        remedy = "Give them one --model_dir on a file system that all of them share"
        if min(steps) != max(steps):
            raise InputError(
                "All workers go on from the same step",
                ", ".join(f"worker {i} at {int(s):,}" for i, s in enumerate(steps)),
                remedy,
            )
        if min(places) != max(places):
            others = [i for i, p in enumerate(places) if p != places[0]]
            raise InputError(
                "All workers see the folder that the first one writes to",
                f"another folder at worker {', '.join(map(str, others))}",
                remedy,
            )

    def _gather(self, row: tf.Tensor) -> tf.Tensor:
        """Return the rows of all replicas, [replicas, numbers]."""

        def gather() -> tf.Tensor:
            # A sum of one-hot rows: TensorFlow's `all_gather` can abort at the end.
            context = tf.distribute.get_replica_context()
            replicas = context.num_replicas_in_sync
            own = context.replica_id_in_sync_group
            place = tf.one_hot(own, replicas, dtype=tf.float64)
            return context.all_reduce(tf.distribute.ReduceOp.SUM, place[:, None] * row)

        rows = self._strategy.run(gather)
        return self._strategy.experimental_local_results(rows)[0]


@contextlib.contextmanager
def reraise_worker_errors() -> Iterator[None]:
    """Raise an InputError if a collective operation fails."""
    try:
        yield
    except (tf.errors.UnavailableError, tf.errors.AbortedError) as error:
        raise InputError(
            "All workers run until the end of training",
            f"a worker that is gone ({type(error).__name__})",
            "See what the others said, then start all of them again: the same "
            "command goes on from the newest checkpoint",
        ) from error
