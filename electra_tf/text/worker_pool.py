"""Call methods of an object in several worker processes, in a fixed order."""

import collections
import concurrent.futures
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

from electra_tf.errors import InputError


class WorkerPool:
    """Context manager that maps items in worker processes or in this process."""

    def __init__(self, count: int, factory: Callable[..., Any], *arguments):
        self._count, self._worker_of = count, (factory, *arguments)
        self._pool: ProcessPoolExecutor | None = None
        self._starter = ThreadPoolExecutor(1)
        self._worker: Any = None

    def __enter__(self) -> "WorkerPool":
        if self._count > 1:
            # A fork of a process with TensorFlow's threads may deadlock.
            spawn = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(
                self._count, spawn, _start_worker, self._worker_of
            )
        else:
            factory, *arguments = self._worker_of
            self._worker = factory(*arguments)
        return self

    def __exit__(self, *_) -> None:
        self._starter.shutdown()
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def map(self, method: str, items: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
        """Yield each item and its result in order, with a bounded number in memory."""
        if self._pool is None:
            for item in items:
                yield item, getattr(self._worker, method)(item)
            return
        queue: collections.deque[tuple[Any, Future]] = collections.deque()
        try:
            for item in items:
                submitted = self._starter.submit(_submit, self._pool, method, item)
                queue.append((item, submitted.result()))
                if len(queue) > 3 * self._count:
                    item, future = queue.popleft()
                    yield item, future.result()
            for item, future in queue:
                yield item, future.result()
        except concurrent.futures.process.BrokenProcessPool as error:
            raise InputError(
                f"A process of --workers={self._count} was killed, probably for lack "
                "of memory, of which each needs a few hundred MB; reduce --workers"
            ) from error


def _submit(pool: ProcessPoolExecutor, method: str, item: Any) -> Future:
    """Submit a call; the first calls start the worker processes.

    This runs in a thread of its own, because Ctrl-C and SIGTERM raise an exception in
    the main thread, which would leave a process that is started with half of its
    arguments. A process inherits the blocked SIGINT, so that Ctrl-C, which a terminal
    sends to every process, does not interrupt its imports.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    return pool.submit(_call_worker, method, item)


def _start_worker(factory: Callable[..., Any], *arguments) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process handles it
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    global _worker
    _worker = factory(*arguments)


def _exit_with_parent() -> None:
    """Exit when the main process ends, even if it is killed."""
    multiprocessing.parent_process().join()
    os._exit(1)


def _call_worker(method: str, item: Any) -> Any:
    return getattr(_worker, method)(item)
