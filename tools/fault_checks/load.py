"""Send requests at the highest rate to a served model, and measure latencies."""

import pathlib
import sys
import tempfile
import time
from concurrent import futures

import numpy as np
import serve_check_requests as requests
import small_runs
from serve_check_client import (
    Client,
    Direct,
    Tally,
    run_server,
    send,
    signatures_of,
)

_THREADS = 4
_MODEL = small_runs.ROOT / "tests" / "golden" / "saved" / "classifier"


def run_load(count: int, seed: int) -> dict:
    """Load a server for `count` seconds; every response is compared.

    Args:
        count: Seconds.
        seed: Of the requests.

    Returns:
        `seconds`, `requests`, `per_second`, `p50_ms` and `p99_ms`, the server's
        `memory_growth_MiB`, `failed`, and `failures`.
    """
    from electra_tf.serving.export import export_saved_model

    with tempfile.TemporaryDirectory() as name:
        output = pathlib.Path(name, "served")
        # The exporter prints a report; standard output has the counts.
        stdout, sys.stdout = sys.stdout, sys.stderr
        try:
            export_saved_model(_MODEL, output)
        finally:
            sys.stdout = stdout
        with run_server(str(output), _THREADS) as server:
            client = Client(server.info["port"])
            rng = np.random.default_rng(seed)
            cases = [
                case
                for signature in signatures_of(server.info["folder"])
                for case in requests.real(signature, requests.TEXTS, rng)
            ]
            direct = Direct(server.info["folder"], cases)
            _load(client, cases, direct, min(5.0, count / 10))  # to warm up
            memory = server.memory()
            tallies, seconds = _load(client, cases, direct, count)
            growth = server.memory() - memory
    latencies = [ms for tally in tallies for ms in tally.latencies]
    failures = [failure for tally in tallies for failure in tally.failures]
    p50, p99 = np.percentile(latencies or [np.nan], [50, 99])
    return {
        "seconds": round(seconds),
        "requests": len(latencies) + len(failures),
        "per_second": round(len(latencies) / seconds),
        "p50_ms": round(float(p50), 1),
        "p99_ms": round(float(p99), 1),
        "memory_growth_MiB": round(growth),
        "failed": len(failures),
        "failures": failures[:20],
    }


def _load(
    client: Client, cases: list[requests.Case], direct: Direct, seconds: float
) -> tuple[list[Tally], float]:
    """Send requests from several threads, each as soon as the last is answered."""
    tallies = [Tally(f"thread {number}") for number in range(_THREADS)]
    begin = time.monotonic()

    def send_share(thread: int) -> None:
        number = thread
        while time.monotonic() - begin < seconds:
            send(client, cases[number % len(cases)], direct.compare, tallies[thread])
            number += _THREADS

    with futures.ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(send_share, range(_THREADS)))  # raises exceptions of the threads
    return tallies, time.monotonic() - begin
