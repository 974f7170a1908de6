"""`serve_check --attack`: requests that are small to send and large to compute.

After the real requests, resident memory is the steady memory. Then every attack, and a
series of generated ones from several threads, must end in a response or an error within
the deadline, and the server's peak must stay below twice the steady memory. A limit on
private memory (RLIMIT_DATA) ends a server that would take more by as much again.
"""

import dataclasses
import sys
import time
from collections.abc import Callable, Iterable
from concurrent import futures

import grpc
import serve_check_attack_requests as attacks
from serve_check_client import Client
from serve_check_memory import Peak, ProcessMemory
from serve_check_requests import Signature

MAX_FACTOR = 2.0
"""Peak memory in units of the steady memory, at most."""
DEFAULT_LIMITS = {"rows": 4096, "bytes": 2**21, "positions": 2**16}
"""For a model without limits in its `about.json`."""
_SLOW = 0.05  # seconds or more: worth a line of the table
# Other statuses mean that the server failed, hung or ended.
_ERRORS = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.OUT_OF_RANGE,
    grpc.StatusCode.UNIMPLEMENTED,
}
_UNREADABLE = "Exception deserializing request"


@dataclasses.dataclass
class Row:
    """One line of the table: an attack or a series of them."""

    name: str
    result: str
    seconds: float
    peak: float
    failures: list[str]


class Attacker:
    """Sends attacks to a server and measures its memory.

    Args:
        client: Client of the server.
        memory: Memory of its process.
        deadline: Seconds for one request.
    """

    def __init__(self, client: Client, memory: ProcessMemory, deadline: float):
        self._client, self._memory, self._deadline = client, memory, deadline
        self.steady = memory.read("VmRSS")
        self.rows: list[Row] = []
        try:
            memory.limit(MAX_FACTOR * self.steady)
            self.limited = True
        except (AttributeError, OSError, ValueError):
            self.limited = False  # no prlimit, or no /proc

    def measure(self, name: str, run: Callable[[], tuple[str, list[str]]]) -> Row:
        """Add a row for what `run` sends."""
        start = time.perf_counter()
        with Peak(self._memory) as peak:
            result, failures = run()
        if peak.mib > MAX_FACTOR * self.steady:
            failures.append(
                f"{name}: the server's memory must stay below {MAX_FACTOR:g} times its "
                f"steady {self.steady:.0f} MiB. Received: {peak.mib:.0f} MiB"
            )
        seconds = time.perf_counter() - start
        self.rows.append(Row(name, result, seconds, peak.mib, failures))
        return self.rows[-1]

    def send(self, attack: attacks.Attack) -> tuple[str, list[str]]:
        """Send one attack, and return its result and its failures."""
        try:
            if attack.raw:
                self._client.send_bytes(attack.raw, self._deadline)
            else:
                self._client.send_message(
                    attack.signature, attack.tensors, attack.expand, self._deadline
                )
        except grpc.RpcError as error:
            code, message = error.code(), error.details() or ""
            result = f"{code.name}: {' '.join(message.split())}"
            accepted = code in _ERRORS or _UNREADABLE in message
            return result, [] if accepted else [f"{attack.name}: {result[:200]}"]
        if attack.expected == attacks.REFUSED:
            return "a response", [f"{attack.name}: expected an error"]
        return "a response", []

    def send_each(self, named: Iterable[attacks.Attack]) -> None:
        """Send attacks one after another, each with a row of its own."""
        for attack in named:
            name = f"{attack.signature}: {attack.name}"
            self.measure(name, lambda attack=attack: self.send(attack))

    def send_generated(
        self, signatures: list[Signature], seed: int, count: int, threads: int
    ) -> None:
        """Send generated attacks from several threads."""

        def send_share(thread: int) -> list[tuple[str, list[str]]]:
            return [
                self.send(attacks.generated(signatures, seed, number))
                for number in range(thread, count, threads)
            ]

        def run() -> tuple[str, list[str]]:
            with futures.ThreadPoolExecutor(threads) as pool:
                shares = list(pool.map(send_share, range(threads)))
            results = [result for share in shares for result in share]
            responses = sum(text == "a response" for text, _ in results)
            text = f"{responses:,} responses, {len(results) - responses:,} errors"
            return text, [failure for _, failures in results for failure in failures]

        self.measure(f"{count:,} generated requests, {threads} threads", run)

    def print_table(self, verbose: bool) -> None:
        """Print a line for each attack; without `verbose`, not for quick rejections."""
        method = "VmHWM" if self._memory.reset_peak() else "sampled VmRSS"
        limit = "RLIMIT_DATA" if self.limited else "none on this system"
        print(
            f"attacks: steady memory {self.steady:.0f} MiB, peaks by {method}; limit "
            f"of private memory: {limit}\n{'':70}{'s':>7}{'MiB':>7}{'x':>6}"
        )
        hidden = 0
        for row in self.rows:
            if not (verbose or row.failures or row.seconds >= _SLOW):
                hidden += 1
                continue
            factor = row.peak / self.steady
            print(
                f"{row.name[:69]:70}{row.seconds:7.2f}{row.peak:7.0f}{factor:6.2f}  "
                f"{row.result[:90]}"
            )
        peak = max(row.peak for row in self.rows)
        print(
            f"{len(self.rows)} rows, {hidden} of them quick and not listed. Highest "
            f"peak: {peak:.0f} MiB, {peak / self.steady:.2f} times the steady memory"
        )
        sys.stdout.flush()
