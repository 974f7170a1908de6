"""Wait for all workers before TensorFlow does.

TensorFlow waits for the other workers in C++, holds the interpreter's lock and replaces
the handler of SIGTERM: in that time nothing is reported and no signal ends the process.
So the workers first find each other here, and TensorFlow has little to wait for.
"""

import contextlib
import faulthandler
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence

from electra_tf.errors import InputError

_LIMIT = 1800.0  # seconds until all workers must have started
_REGISTER_LIMIT = 120.0  # seconds that TensorFlow may then wait
_REPORT_SECONDS, _POLL_SECONDS = 15.0, 0.5


def wait_for_workers(addresses: Sequence[str], own: int, limit: float = _LIMIT) -> None:
    """Wait until a process listens at the address of every worker."""
    begin = reported = time.monotonic()
    missing = [a for index, a in enumerate(addresses) if index != own]
    with _listen(addresses[own]):
        while missing := [a for a in missing if not _accepts_connections(a)]:
            now = time.monotonic()
            if now - begin > limit:
                raise InputError(
                    f"All workers must start within {limit:.0f} s",
                    f"no connection to {', '.join(missing)}",
                    "Look at the logs of these workers, then run all commands again",
                )
            if now - reported > _REPORT_SECONDS:
                reported = now
                line = f"still waiting for workers after {now - begin:.0f} s: "
                line += f"no connection to {', '.join(missing)}"
                print(line, file=sys.stderr, flush=True)
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
            "The port of this worker in TF_CONFIG must be free",
            f"{address}: {error}",
            "End the process that uses it, or set another port on all workers",
        ) from error


def _accepts_connections(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=2).close()
    except (OSError, ValueError, OverflowError):
        return False
    return True
