"""Serve an exported model with TF Serving's protocol, and test it with requests.

A separate process implements TF Serving's `Predict` (see serve_check_server.py). The
client sends real requests and compares the responses with the SavedModel called
directly. It then sends hostile requests, and random ones from several threads. Each
must end within 60 seconds in a response of the expected shape or in an error with a
message, the server's peak of memory must stay below twice that after the real requests,
and the server must still respond correctly afterwards. `--attack` adds requests that
are small to send and large to compute. Exits with 1 if a check fails.
"""

import argparse
import itertools
import os
import pathlib
import sys
import time

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import serve_check_requests as requests
from serve_check_client import (
    Client,
    Direct,
    Server,
    Tally,
    run_server,
    send,
    send_all,
    signatures_of,
)
from serve_check_server import read_about

MAX_GROWTH = 128  # MiB while real requests are sent
MAX_FACTOR = 2.0  # of the steady memory
DEFAULT_LIMITS = {"rows": 4096, "bytes": 2**21, "positions": 2**16}
_SLOW = 0.05  # seconds of a hostile request that are worth a line


def check(options: argparse.Namespace) -> list[str]:
    """Run all series against one server, print the table, and return the failures."""
    with run_server(options.model, options.threads) as server:
        client, folder = Client(server.info["port"]), server.info["folder"]
        signatures = signatures_of(folder)
        names = ", ".join(f"{one.name}({', '.join(one.inputs)})" for one in signatures)
        print(f"{folder}: {names}\n{server.info['started']}", flush=True)
        rng = np.random.default_rng(options.seed)
        cases = [
            case
            for signature in signatures
            for case in requests.real(signature, options.texts, rng)
        ]
        direct = Direct(folder, cases)
        real, hostile, fuzz, after = map(Tally, ("real", "hostile", "random", "after"))

        def send_real(count: int, tally: Tally) -> float:
            """Send valid requests, and return the server's memory."""
            chosen = itertools.islice(itertools.cycle(cases), count)
            send_all(client, chosen, options.threads, tally, direct.compare)
            return server.memory()

        first = max(1, options.requests // 10)
        early = send_real(first, real)
        steady = send_real(options.requests - first, real)
        failures = send_hostile(client, server, signatures, hostile, options)
        random_cases = (
            requests.random_case(signatures, options.seed, number)
            for number in range(options.fuzz)
        )
        with server.sampled_memory() as samples:
            send_all(client, random_cases, options.threads, fuzz)
        failures += memory_failures("random requests", max(samples), steady)
        send_real(len(cases), after)
        tallies = [real, hostile, fuzz, after]
        failures += [failure for tally in tallies for failure in tally.failures]
        failures += server_failures(server, steady - early)
        print(Tally.HEADER, *tallies, sep="\n")
        print(
            f"server's memory: {early:.1f} MiB after a tenth of the real requests, "
            f"growth {steady - early:.1f} MiB until their end; "
            f"{server.memory():.1f} MiB at last"
        )
        for failure in failures[:20]:
            print(f"failure: {failure}")
        if len(failures) > 20:
            print(f"... and {len(failures) - 20:,} more")
    return failures


def send_hostile(
    client: Client,
    server: Server,
    signatures: list[requests.Signature],
    tally: Tally,
    options: argparse.Namespace,
) -> list[str]:
    """Send the hostile requests one after another; return failures of memory."""
    failures, steady, begin = [], server.memory(), time.perf_counter()
    about = read_about(pathlib.Path(server.info["folder"]))
    limits = about.get("limits", DEFAULT_LIMITS)
    for signature in signatures:
        cases = [*requests.hostile(signature)]
        if options.attack:
            length = about.get("max_length", 64)
            cases += requests.attacks(signature, limits, length)
        for case in cases:
            start = time.perf_counter()
            with server.sampled_memory() as samples:
                result = send(client, case, lambda case, response: "", tally)
            seconds, peak = time.perf_counter() - start, max(samples)
            failures += memory_failures(case.name, peak, steady)
            if options.verbose or (options.attack and seconds >= _SLOW):
                print(
                    f"  {case.name[:64]:64}{seconds:7.2f} s{peak:7.0f} MiB  "
                    f"{result[:90]}",
                    flush=True,
                )
    tally.seconds = time.perf_counter() - begin
    return failures


def memory_failures(name: str, peak: float, steady: float) -> list[str]:
    """Return a line if the server's memory was too large."""
    if not peak > MAX_FACTOR * steady:
        return []
    return [
        f"{name}: the server's memory must stay below {MAX_FACTOR:g} times its steady "
        f"{steady:.0f} MiB. Received: {peak:.0f} MiB"
    ]


def server_failures(server: Server, growth: float) -> list[str]:
    """Return failures of the server as a whole."""
    failures = []
    if server.info["project_modules"]:
        failures.append(f"the server imports {server.info['project_modules']}")
    if server.process.poll() is not None:
        failures.append(f"the server ended: {server.last_errors()}")
    if growth > MAX_GROWTH:
        failures.append(f"memory grew by {growth:.1f} MiB, more than {MAX_GROWTH}")
    return failures


def parse() -> argparse.Namespace:
    """Return the validated options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--model", required=True, help="folder of the versions")
    add("--input", help="text file with one text per line, UTF-8")
    add("--requests", type=int, default=200, help="number of real requests")
    add("--fuzz", type=int, default=1000, help="number of random requests")
    add("--threads", type=int, default=4)
    add("--seed", type=int, default=0, help="seed of the requests")
    add("--attack", action="store_true", help="add attacks on the server's memory")
    add("--verbose", action="store_true", help="print each hostile request")
    options = parser.parse_args()
    options.texts = requests.TEXTS
    if options.input:
        lines = pathlib.Path(options.input).read_text(encoding="utf-8").splitlines()
        options.texts = [line for line in lines if line.strip()]
        if not options.texts:
            sys.exit(f"error: --input={options.input} must contain texts; it is empty")
    if min(options.requests, options.threads) < 1:
        sys.exit("error: --requests and --threads must be at least 1")
    return options


if __name__ == "__main__":
    sys.exit(bool(check(parse())))
