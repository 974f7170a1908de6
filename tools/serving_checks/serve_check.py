"""Serve an exported model with TF Serving's protocol, and test it with requests.

A separate process implements TF Serving's gRPC protocol (its limits are listed in
serve_check_server.py). The client sends real requests and compares the responses with
the SavedModel called directly. It then sends invalid requests, and random ones from
several threads. Each must end within 60 seconds in a response of the expected shape or
in an error with a message, and the server must still respond correctly afterwards.
`--attack` adds requests that are small to send and large to compute, under a limit of
memory (see serve_check_attack.py). Exits with 1 if a check fails.
"""

import argparse
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import serve_check_attack_requests as attack_requests
import serve_check_requests as requests
from serve_check_attack import DEFAULT_LIMITS, Attacker
from serve_check_client import (
    DEADLINE,
    Client,
    Direct,
    Tally,
    send,
    send_all,
)
from serve_check_memory import ProcessMemory

SERVER = pathlib.Path(__file__).with_name("serve_check_server.py")


class Server:
    """Server process, with its standard error in a file."""

    def __init__(self, process: subprocess.Popen[str], errors: Any):
        self.process, self._errors = process, errors
        line = process.stdout.readline()
        if not line:
            process.wait()
            sys.exit(self.last_errors() or "error: the server ended without a message")
        self.info = json.loads(line)
        self.memory = ProcessMemory(process.pid)

    def resident(self) -> float:
        """Return resident MiB; NaN on systems without /proc."""
        return self.memory.read("VmRSS")

    def last_errors(self) -> str:
        """Return the last lines of standard error."""
        self._errors.seek(0)
        return "".join(self._errors.readlines()[-5:]).strip()


@contextlib.contextmanager
def run_server(options: argparse.Namespace, runtime: str) -> Iterator[Server]:
    """Run a server until the block ends."""
    command = [sys.executable, str(SERVER)]
    command += [f"--{key}={getattr(options, key)}" for key in ("model", "port")]
    command += [f"--threads={options.threads}", f"--runtime={runtime}"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(command, stderr=errors, text=True, **pipes) as process,
    ):
        try:
            yield Server(process, errors)
        finally:
            process.stdin.close()  # ends the server
            try:
                process.wait(DEADLINE)
            except subprocess.TimeoutExpired:
                process.kill()


def check(options: argparse.Namespace, runtime: str) -> list[str]:
    """Run all series against one server, print the table, and return the failures."""
    with run_server(options, runtime) as server:
        client = Client(server.info["port"])
        signatures = client.signatures()
        rng = np.random.default_rng(options.seed)
        cases = [
            case
            for signature in signatures
            for case in requests.real(signature, options.texts, options.ids, rng)
        ]
        direct = Direct(server.info["folder"], cases)
        print_model(server, signatures, runtime)
        real, hostile, fuzz, after = map(Tally, ("real", "hostile", "random", "after"))

        def send_real(count: int, tally: Tally) -> None:
            def make_case(number: int) -> requests.Case:
                return cases[number % len(cases)]

            send_all(client, count, options.threads, tally, make_case, direct.compare)

        send_real(max(1, options.requests // 10), real)
        early_memory = server.resident()
        send_real(options.requests - max(1, options.requests // 10), real)
        growth = server.resident() - early_memory
        attacker = None
        if options.attack:
            attacker = Attacker(client, server.memory, options.deadline)
        send_hostile(client, signatures, hostile, options.verbose)
        send_all(
            client, options.fuzz, options.threads, fuzz,
            lambda number: requests.random_case(
                signatures, options.ids, options.seed, number
            ),
        )  # fmt: skip
        attack_failures = []
        if attacker:
            attack_failures = attack(options, server, signatures, attacker)
        send_real(len(cases), after)
        tallies = [real, hostile, fuzz, after]
        failures = [failure for tally in tallies for failure in tally.failures]
        failures += attack_failures
        failures += server_failures(options, client, server, growth)
        print_results(tallies, early_memory, growth, server, failures)
        if options.keep:
            wait(server)
    return failures


def attack(
    options: argparse.Namespace,
    server: Server,
    signatures: list[requests.Signature],
    attacker: Attacker,
) -> list[str]:
    """Send the attacks, print their table, and return the failures."""
    limits = server.info["limits"]
    if not limits:
        print("the model has no limits in about.json: declared shapes are not checked")
    for signature in signatures:
        attacker.send_each(attack_requests.named(signature, limits or DEFAULT_LIMITS))
    attacker.send_generated(signatures, options.seed, options.fuzz, options.threads)
    attacker.print_table(options.verbose)
    return [failure for row in attacker.rows for failure in row.failures]


def send_hostile(
    client: Client, signatures: list[requests.Signature], tally: Tally, verbose: bool
) -> None:
    """Send the hostile requests one after another."""
    start = time.perf_counter()
    for signature in signatures:
        for case in requests.hostile(signature):
            result = send(client, case, lambda case, response: "", tally)
            if verbose:
                print(f"  {case.name:44} {result}", flush=True)
    tally.seconds = time.perf_counter() - start


def server_failures(
    options: argparse.Namespace, client: Client, server: Server, growth: float
) -> list[str]:
    """Return failures of the server as a whole."""
    failures = []
    if server.info["project_modules"]:
        failures.append(f"the server imports {server.info['project_modules']}")
    if not client.classify_is_unimplemented():
        failures.append("Classify does not return UNIMPLEMENTED")
    if server.process.poll() is not None:
        failures.append(f"the server ended: {server.last_errors()}")
    if growth > options.growth:
        failures.append(f"memory grew by {growth:.1f} MiB, more than {options.growth}")
    return failures


def print_model(
    server: Server, signatures: list[requests.Signature], runtime: str
) -> None:
    """Print the served version and its signatures."""
    info = server.info
    names = ", ".join(
        f"{signature.name}({', '.join(signature.inputs)})" for signature in signatures
    )
    print(
        f"\n{info['folder']} as version {info['version']}, runtime {runtime}: {names}\n"
        f"loaded in {info['load_s']:.1f} s; {info['warmup_requests']} warm-up requests "
        f"in {info['warmup_s']:.1f} s; port {info['port']}",
        flush=True,
    )


def print_results(
    tallies: list[Tally],
    early_memory: float,
    growth: float,
    server: Server,
    failures: list[str],
) -> None:
    """Print the table and the failures."""
    print(
        f"{'':14}{'requests':>9}{'responses':>10}{'errors':>8}{'failures':>9}"
        f"{'p50 ms':>9}{'p99 ms':>9}{'req/s':>10}"
    )
    for tally in tallies:
        print(tally)
    print(
        f"server's memory: {early_memory:.1f} MiB after a tenth of the real requests, "
        f"growth {growth:.1f} MiB until their end; {server.resident():.1f} MiB at last"
    )
    for failure in failures[:20]:
        print(f"failure: {failure}")
    if len(failures) > 20:
        print(f"... and {len(failures) - 20:,} more")
    sys.stdout.flush()


def wait(server: Server) -> None:
    """Wait for Ctrl-C, or for the end of the server."""
    print(f"serving at localhost:{server.info['port']} until Ctrl-C", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        server.process.wait()


def parse() -> argparse.Namespace:
    """Return the validated options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", required=True, help="folder of the versions")
    parser.add_argument("--input", help="text file with one text per line, UTF-8")
    parser.add_argument(
        "--requests", type=int, default=200, help="number of real requests"
    )
    parser.add_argument(
        "--fuzz", type=int, default=1000, help="number of random requests"
    )
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0, help="seed of the requests")
    parser.add_argument(
        "--ids", type=int, default=100, help="token ids are below this number"
    )
    parser.add_argument(
        "--growth",
        type=float,
        default=128,
        help="maximum growth of the server's memory, MiB",
    )
    parser.add_argument(
        "--attack",
        action="store_true",
        help="send attacks on the server's memory, and --fuzz generated ones",
    )
    parser.add_argument(
        "--deadline", type=float, default=DEADLINE, help="seconds for an attack"
    )
    parser.add_argument("--port", type=int, default=0, help="0: any free port")
    parser.add_argument(
        "--runtime",
        default="session,function",
        help="session, function or both (see serve_check_server.py)",
    )
    parser.add_argument(
        "--keep", action="store_true", help="serve until Ctrl-C after the checks"
    )
    parser.add_argument(
        "--verbose", action="store_true", help="print each hostile request"
    )
    options = parser.parse_args()
    options.texts = requests.TEXTS
    if options.input:
        lines = pathlib.Path(options.input).read_text(encoding="utf-8").splitlines()
        options.texts = [line for line in lines if line.strip()]
        if not options.texts:
            sys.exit(f"error: --input={options.input} must contain texts; it is empty")
    if set(options.runtime.split(",")) - {"session", "function"}:
        sys.exit(
            "error: --runtime must be session, function or session,function. "
            f"Received: {options.runtime}"
        )
    if min(options.requests, options.threads) < 1:
        sys.exit("error: --requests and --threads must be at least 1")
    return options


def main() -> None:
    """Run the checks with each runtime."""
    options, failures = parse(), []
    for runtime in options.runtime.split(","):
        failures += check(options, runtime)
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
