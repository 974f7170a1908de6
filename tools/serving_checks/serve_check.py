"""Serves an exported model as TF Serving would and sends it what clients send.

A process of its own answers TF Serving's gRPC protocol (serve_check_server.py tells how
far it goes). A client compares its answers with the SavedModel called directly, sends
requests by hand that no client should send, and random ones from several threads. Each
must end in an answer of the right shape or in an error with words, within 60 seconds,
and the server must answer as before afterwards. The exit code is 1 where one does not.
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
import serve_check_requests as requests
from serve_check_client import (
    DEADLINE,
    Client,
    Direct,
    Tally,
    send,
    send_all,
)

SERVER = pathlib.Path(__file__).with_name("serve_check_server.py")


class Server:
    """The other process; what it writes on standard error goes to a file."""

    def __init__(self, process: subprocess.Popen[str], errors: Any):
        self.process, self._errors = process, errors
        line = process.stdout.readline()
        if not line:
            process.wait()
            sys.exit(self.last_words() or "error: the server said nothing")
        self.told = json.loads(line)

    def memory(self) -> float:
        """MiB that are resident; not a number where the system does not tell."""
        path = pathlib.Path(f"/proc/{self.process.pid}/status")
        if not path.exists():
            return float("nan")
        lines = dict(line.split(":", 1) for line in path.read_text().splitlines())
        return float(lines.get("VmRSS", "nan").split()[0]) / 1024

    def last_words(self) -> str:
        """The end of what it wrote on standard error."""
        self._errors.seek(0)
        return "".join(self._errors.readlines()[-5:]).strip()


@contextlib.contextmanager
def served(options: argparse.Namespace, runtime: str) -> Iterator[Server]:
    """A server that ends with the block."""
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
            process.stdin.close()  # which it ends with
            try:
                process.wait(DEADLINE)
            except subprocess.TimeoutExpired:
                process.kill()


def check(options: argparse.Namespace, runtime: str) -> list[str]:
    """Runs all series against one server, prints the table, returns the faults."""
    with served(options, runtime) as server:
        client = Client(server.told["port"])
        signatures = client.signatures()
        draw = np.random.default_rng(options.seed)
        cases = [
            case
            for signature in signatures
            for case in requests.real(signature, options.texts, options.ids, draw)
        ]
        direct = Direct(server.told["folder"], cases)
        show_start(server, signatures, runtime)
        real, hostile, fuzz, after = map(Tally, ("real", "hostile", "random", "after"))

        def send_real(count: int, tally: Tally) -> None:
            def case_of(number: int) -> requests.Case:
                return cases[number % len(cases)]

            send_all(client, count, options.threads, tally, case_of, direct.differs)

        send_real(max(1, options.requests // 10), real)
        early = server.memory()
        send_real(options.requests - max(1, options.requests // 10), real)
        growth = server.memory() - early
        send_hostile(client, signatures, hostile, options.verbose)
        send_all(
            client, options.fuzz, options.threads, fuzz,
            lambda number: requests.random_case(
                signatures, options.ids, options.seed, number
            ),
        )  # fmt: skip
        send_real(len(cases), after)
        tallies = [real, hostile, fuzz, after]
        faults = [fault for tally in tallies for fault in tally.faults]
        faults += others(options, client, server, growth)
        show_end(tallies, early, growth, server, faults)
        if options.keep:
            keep(server)
    return faults


def send_hostile(
    client: Client, signatures: list[requests.Signature], tally: Tally, verbose: bool
) -> None:
    """Sends what is wrong by hand, one after another."""
    start = time.perf_counter()
    for signature in signatures:
        for case in requests.hostile(signature):
            ended = send(client, case, lambda case, answer: "", tally)
            if verbose:
                print(f"  {case.name:44} {ended}", flush=True)
    tally.seconds = time.perf_counter() - start


def others(
    options: argparse.Namespace, client: Client, server: Server, growth: float
) -> list[str]:
    """Faults that are not a request's."""
    found = []
    if server.told["ours"]:
        found.append(f"the server needs {server.told['ours']}")
    if not client.refuses_classify():
        found.append("Classify is not said to be unimplemented")
    if server.process.poll() is not None:
        found.append(f"the server ended: {server.last_words()}")
    if growth > options.growth:
        found.append(f"memory grew by {growth:.1f} MiB, more than {options.growth}")
    return found


def show_start(
    server: Server, signatures: list[requests.Signature], runtime: str
) -> None:
    """Prints what is served."""
    told = server.told
    names = ", ".join(
        f"{signature.name}({', '.join(signature.inputs)})" for signature in signatures
    )
    print(
        f"\n{told['folder']} as version {told['version']}, runtime {runtime}: {names}\n"
        f"loaded in {told['load_s']:.1f} s; {told['warmed']} warm-up requests in "
        f"{told['warmup_s']:.1f} s; port {told['port']}",
        flush=True,
    )


def show_end(
    tallies: list[Tally],
    early: float,
    growth: float,
    server: Server,
    faults: list[str],
) -> None:
    """Prints the table, and what went wrong."""
    print(
        f"{'':14}{'requests':>9}{'answers':>9}{'errors':>8}{'faults':>8}"
        f"{'p50 ms':>9}{'p99 ms':>9}{'req/s':>10}"
    )
    for tally in tallies:
        print(tally)
    print(
        f"server's memory: {early:.1f} MiB after a tenth of the real requests, growth "
        f"{growth:.1f} MiB until their end; {server.memory():.1f} MiB after all"
    )
    for fault in faults[:20]:
        print(f"fault: {fault}")
    if len(faults) > 20:
        print(f"... and {len(faults) - 20:,} more")
    sys.stdout.flush()


def keep(server: Server) -> None:
    """Waits for Ctrl-C, or for the server's end."""
    print(f"serving at localhost:{server.told['port']} until Ctrl-C", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        server.process.wait()


def parse() -> argparse.Namespace:
    """The options; what they name is there."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", required=True, help="the folder above the versions")
    parser.add_argument("--input", help="a file of texts, one a line, in UTF-8")
    parser.add_argument("--requests", type=int, default=200, help="real ones")
    parser.add_argument("--fuzz", type=int, default=1000, help="random ones")
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0, help="of the random ones")
    parser.add_argument(
        "--ids", type=int, default=100, help="the vocabulary has as many, or more"
    )
    parser.add_argument(
        "--growth",
        type=float,
        default=128,
        help="MiB that memory may grow by, for shapes met for the first time too",
    )
    parser.add_argument("--port", type=int, default=0, help="0: any that is free")
    parser.add_argument(
        "--runtime", default="session,function", help="see serve_check_server.py"
    )
    parser.add_argument("--keep", action="store_true", help="serve on until Ctrl-C")
    parser.add_argument("--verbose", action="store_true", help="each hostile request")
    options = parser.parse_args()
    options.texts = requests.TEXTS
    if options.input:
        lines = pathlib.Path(options.input).read_text(encoding="utf-8").splitlines()
        options.texts = [line for line in lines if line.strip()]
        if not options.texts:
            sys.exit(f"error: {options.input} holds texts, one a line; it is empty")
    if set(options.runtime.split(",")) - {"session", "function"}:
        sys.exit(
            f"error: --runtime is session, function or both, not {options.runtime}"
        )
    if min(options.requests, options.threads) < 1:
        sys.exit("error: --requests and --threads are 1 or more")
    return options


def main() -> None:
    """Checks with one runtime after the other."""
    options, faults = parse(), []
    for runtime in options.runtime.split(","):
        faults += check(options, runtime)
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
