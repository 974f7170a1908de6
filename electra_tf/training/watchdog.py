"""Answer signals at once, and end a process whose operation does not return.

A step is an operation of C++, in which neither Python's signal handlers nor exceptions
work. A worker that sleeps or lost its network holds all others in it. So a thread reads
signals and times.
"""

import contextlib
import dataclasses
import math
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator

_USUAL = 10  # times the usual duration
_UNKNOWN = 1800.0  # seconds for an operation of unknown duration
_WAKE = 0  # a byte in the pipe that is no signal
_STDERR = 2  # `sys.stderr` may have no file
_STOPPING = (signal.SIGTERM, signal.SIGINT)


def end_process(message: str, status: int = 1) -> None:
    """Print a message and end the process at once."""
    _print(message)
    os._exit(status)


def _print(message: str) -> None:
    # Buffers of the main thread may be locked, so standard error's file is written.
    os.write(_STDERR, f"{message}\n".encode())


@dataclasses.dataclass
class _Deadline:
    seconds: float
    end: float


class Watchdog:
    """Thread that ends this process when an operation takes too long.

    An operation may take `timeout` seconds beyond ten times its usual time, and
    `timeout` seconds after SIGTERM or SIGINT; None: as long as it takes. In an
    operation, and where signals are deferred, the first of these signals is answered by
    a line, and a second one ends the process. `end` is called with a message and for a
    signal with the exit status.
    """

    def __init__(self, timeout: float | None, end: Callable[..., None] = end_process):
        self._timeout = math.inf if timeout is None else timeout
        self._end, self._is_stopping = end, False
        self._deadline: _Deadline | None = None
        self._is_running = self._defers = False
        self.stop_signal = 0
        """Number of the first deferred signal, 0 without one."""

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
        if self._timeout == math.inf:
            seconds = math.inf
        self._deadline = _Deadline(seconds, time.monotonic() + seconds)
        self._wake()
        try:
            yield
        finally:
            self._deadline = None

    @contextlib.contextmanager
    def deferring_signals(self) -> Iterator[None]:
        """Let SIGTERM and SIGINT set `stop_signal`, instead of ending the block."""
        old = {number: signal.signal(number, self._store) for number in _STOPPING}
        self._defers = True
        try:
            yield
        finally:
            self._defers = False
            for number, handler in old.items():
                signal.signal(number, handler)

    def _store(self, number: int, _) -> None:
        self.stop_signal = self.stop_signal or number

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._writer, bytes([_WAKE]))

    def _watch(self) -> None:
        while self._is_running:
            deadline = self._deadline
            left = None
            if deadline and deadline.end < math.inf:
                left = max(0.0, deadline.end - time.monotonic())
            if select.select([self._reader], [], [], left)[0]:
                numbers = set(os.read(self._reader, 4096))
                # The operation may have begun while this thread waited.
                stopping = numbers.intersection(_STOPPING)
                deadline = self._deadline
                if stopping and (deadline or self._defers):
                    if self._is_stopping:
                        return self._stop(stopping.pop())
                    self._is_stopping = True
                    _print("stopping after this step; press again to stop now")
                    end = time.monotonic() + self._timeout
                    if deadline and end < deadline.end:
                        deadline.seconds, deadline.end = self._timeout, end
            elif deadline is self._deadline and deadline is not None:
                self._end(
                    f"error: All workers must answer within {deadline.seconds:.0f} s: "
                    "another worker hangs, or the network is down; look at the logs of "
                    "the other workers, end them all, then run the same commands again "
                    "to resume from the newest checkpoint."
                )
                return

    def _stop(self, number: int) -> None:
        self._end(
            f"stopped by {signal.Signals(number).name}; run the same command again to "
            "resume from the newest checkpoint, if any",
            128 + number,
        )
