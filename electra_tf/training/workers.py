"""Wait for other workers, exchange numbers with them, and report a lost one."""

import contextlib
import faulthandler
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from electra_tf.errors import InputError

_LIMIT = 1800.0  # seconds until all workers must have started
_REGISTER_LIMIT = 120.0  # seconds that TensorFlow may then wait
_REPORT_SECONDS, _POLL_SECONDS = 15.0, 0.5


def wait_for_workers(addresses: Sequence[str], own: int, limit: float = _LIMIT) -> None:
    """Wait until a process listens at the address of every worker.

    TensorFlow waits for the other workers in C++, holds the interpreter's lock and
    replaces the handler of SIGTERM: in that time nothing is reported and no signal ends
    the process. So the workers find each other here first.
    """
    begin = reported = time.monotonic()
    missing = [a for index, a in enumerate(addresses) if index != own]
    with _listen(addresses[own]):
        while missing := [a for a in missing if not _accepts_connections(a)]:
            now, text = time.monotonic(), f"no connection to {', '.join(missing)}"
            if now - begin > limit:
                raise InputError(
                    f"All workers must start within {limit:.0f} s: {text}; look at "
                    "their logs, then run all commands again"
                )
            if now - reported > _REPORT_SECONDS:
                reported, waited = now, f"{now - begin:.0f} s: {text}"
                print(f"still waiting for workers after {waited}", file=sys.stderr)
            time.sleep(_POLL_SECONDS)


@contextlib.contextmanager
def limited_registration() -> Iterator[None]:
    """End the process if TensorFlow does not connect the workers in this block.

    The traceback and the exit are faulthandler's, whose thread needs no lock of the
    interpreter.
    """
    line = "all workers have started; they must connect within "
    print(f"{line}{_REGISTER_LIMIT:.0f} s, else this process ends", flush=True)
    handler = signal.getsignal(signal.SIGTERM)
    faulthandler.dump_traceback_later(_REGISTER_LIMIT, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.signal(signal.SIGTERM, handler)


def _listen(address: str) -> socket.socket:
    """Return a socket that others can connect to; TensorFlow's server follows it."""
    ipv6 = {"family": socket.AF_INET6, "dualstack_ipv6": True}
    options = ipv6 if socket.has_dualstack_ipv6() else {}
    try:
        port = int(address.rpartition(":")[2])
        return socket.create_server(("", port), backlog=128, **options)
    except (OSError, ValueError, OverflowError) as error:
        raise InputError(
            f"The port of this worker in TF_CONFIG must be free, not {address}: {error}"
        ) from error


def _accepts_connections(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=2).close()
    except (OSError, ValueError, OverflowError):
        return False
    return True


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Return whether this process is the chief, the only worker that writes."""
    return host_of(strategy)[0] == 0


def host_of(strategy: tf.distribute.Strategy) -> tuple[int, int]:
    """Return the number of this process, which reads its rows, and of all such."""
    resolver = strategy.cluster_resolver
    is_one = not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)
    if is_one or not resolver.task_type:
        return 0, 1
    own, workers = place_in(resolver)
    return own, len(workers)


def place_in(resolver: Any) -> tuple[int, list[str]]:
    """Return the place of this worker among all, and the addresses of all."""
    if not (workers := addresses_in(resolver)):
        raise ValueError("no TF_CONFIG, or one without workers")
    task = resolver.task_type, resolver.task_id
    return workers.index(resolver.cluster_spec().task_address(*task)), workers


def addresses_in(resolver: Any) -> list[str]:
    """Return the addresses of all workers, the chief's first."""
    jobs = resolver.cluster_spec().as_dict()
    return [*jobs.get("chief", []), *jobs.get("worker", [])]


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
        hosts = host_of(self._strategy)[1]
        rows = self.all_gather(step, lock_token)
        steps, tokens = (row[:: len(row) // hosts] for row in rows)  # one per worker
        shared = "the same --model_dir, on a file system that all workers share"
        if min(steps) != max(steps):
            found = ", ".join(f"worker {i} at {int(s):,}" for i, s in enumerate(steps))
            raise InputError(
                f"All workers must start at one step, of {shared}: {found}"
            )
        if min(tokens) != max(tokens):
            others = [str(i) for i, token in enumerate(tokens) if token != tokens[0]]
            raise InputError(
                f"All workers must use {shared}: worker {', '.join(others)} has "
                "another folder than worker 0"
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
    lost = ("Aborted", "Cancelled", "DeadlineExceeded", "Unavailable")
    try:
        yield
    except tuple(getattr(tf.errors, f"{name}Error") for name in lost) as error:
        raise InputError(
            f"All workers must run until the end of training ({type(error).__name__}); "
            "look for an error in their logs, then run the same commands again to "
            "resume from the newest checkpoint"
        ) from error
