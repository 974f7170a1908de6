"""End a process whose collective operation does not return.

A worker that sleeps or lost its network holds all others in an operation of C++, where
neither Python's signal handlers nor exceptions work. A thread of each worker ends it.
"""

import contextlib
import dataclasses
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator

_USUAL = 10  # times the usual duration
_UNKNOWN = 1800.0  # seconds for an operation of unknown duration
_WAKE = 0  # a byte in the pipe that is no signal
_STOPPING = (signal.SIGTERM, signal.SIGINT)


def end_process(message: str) -> None:
    """Print a message and end the process at once, with the exit status 1."""
    # Buffers of the main thread may be locked, so they are not flushed.
    os.write(sys.stderr.fileno(), f"{message}\n".encode())
    os._exit(1)


@dataclasses.dataclass
class _Deadline:
    seconds: float
    end: float


class Watchdog:
    """Thread that ends this process when an operation takes too long.

    An operation may take `timeout` seconds beyond ten times its usual time, and
    `timeout` seconds after SIGTERM or SIGINT. `end` is called with a message.
    """

    def __init__(self, timeout: float, end: Callable[[str], None] = end_process):
        self._timeout, self._end = timeout, end
        self._deadline: _Deadline | None = None
        self._is_running = False

    def __enter__(self) -> "Watchdog":
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        # The interpreter writes the numbers of signals at once, also while the main
        # thread is in C++ and runs no handler.
        self._old = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        self._is_running = True
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        signal.set_wakeup_fd(self._old)
        self._is_running = False
        self._wake()
        self._thread.join()
        os.close(self._reader)
        os.close(self._writer)

    @contextlib.contextmanager
    def expect(self, usual: float | None = None) -> Iterator[None]:
        """Limit the duration of a block, by its usual one or else to half an hour."""
        seconds = _UNKNOWN if usual is None else self._timeout + _USUAL * usual
        self._deadline = _Deadline(seconds, time.monotonic() + seconds)
        self._wake()
        try:
            yield
        finally:
            self._deadline = None

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._writer, bytes([_WAKE]))

    def _watch(self) -> None:
        while self._is_running:
            deadline = self._deadline
            left = deadline and max(0.0, deadline.end - time.monotonic())
            if select.select([self._reader], [], [], left)[0]:
                numbers = set(os.read(self._reader, 4096))
                # The operation may have begun while this thread waited.
                if (deadline := self._deadline) and numbers.intersection(_STOPPING):
                    end = time.monotonic() + self._timeout
                    if end < deadline.end:
                        deadline.seconds, deadline.end = self._timeout, end
            elif deadline is self._deadline and deadline is not None:
                self._end(
                    f"error: All workers must answer within {deadline.seconds:.0f} s: "
                    "another worker hangs, or the network is down; look at the logs of "
                    "the other workers, end them all, then run the same commands again "
                    "to resume from the newest checkpoint."
                )
                return


def no_limit(usual: float | None = None) -> contextlib.AbstractContextManager:
    """Return a context without a limit, for a process without other workers."""
    return contextlib.nullcontext()
