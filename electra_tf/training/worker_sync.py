"""Exchange numbers between workers and report a lost worker."""

import contextlib
from collections.abc import Iterator

import tensorflow as tf

from electra_tf.errors import InputError


class WorkerSync:
    """All-gather of numbers over workers, or of one process's numbers alone."""

    def __init__(self, strategy: tf.distribute.Strategy):
        self._strategy = strategy
        self._gather_rows = tf.function(self._gather)

    def all_gather(self, *numbers: float) -> list[list[float]]:
        """Gather numbers from all workers; block until every worker calls this.

        Returns:
            For each number, its values by replica.
        """
        if not isinstance(self._strategy, tf.distribute.MultiWorkerMirroredStrategy):
            return [[number] for number in numbers]
        row = tf.constant([numbers], tf.float64)
        return self._gather_rows(row).numpy().T.tolist()

    def check(self, step: int, lock_token: int) -> None:
        """Raise an InputError unless all workers share start step and run directory."""
        steps, tokens = self.all_gather(step, lock_token)
        remedy = "Pass the same --model_dir, on a file system that all workers share"
        if min(steps) != max(steps):
            raise InputError(
                "All workers must start at the same step",
                ", ".join(f"worker {i} at {int(s):,}" for i, s in enumerate(steps)),
                remedy,
            )
        if min(tokens) != max(tokens):
            others = [i for i, token in enumerate(tokens) if token != tokens[0]]
            raise InputError(
                "All workers must use the run directory of worker 0",
                f"another folder at worker {', '.join(map(str, others))}",
                remedy,
            )

    def _gather(self, row: tf.Tensor) -> tf.Tensor:
        """Return the rows of all replicas, [replicas, numbers]."""

        def gather() -> tf.Tensor:
            # A sum of one-hot rows, because TensorFlow's `all_gather` can abort when
            # the process exits.
            context = tf.distribute.get_replica_context()
            replicas = context.num_replicas_in_sync
            replica = context.replica_id_in_sync_group
            one_hot = tf.one_hot(replica, replicas, dtype=tf.float64)
            rows = one_hot[:, None] * row
            return context.all_reduce(tf.distribute.ReduceOp.SUM, rows)

        rows = self._strategy.run(gather)
        return self._strategy.experimental_local_results(rows)[0]


@contextlib.contextmanager
def reraise_worker_errors() -> Iterator[None]:
    """Raise an InputError if a collective operation fails."""
    try:
        yield
    except (
        tf.errors.AbortedError,
        tf.errors.CancelledError,
        tf.errors.DeadlineExceededError,
        tf.errors.UnavailableError,
    ) as error:
        raise InputError(
            "All workers must run until the end of training",
            f"a lost worker ({type(error).__name__})",
            "Look for an error in the logs of the other workers, then run the same "
            "commands again to resume from the newest checkpoint",
        ) from error
