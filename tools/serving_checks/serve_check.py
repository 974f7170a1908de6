"""Serve an exported model in another process, and test the server with requests.

By default the server has TF Serving's gRPC protocol (see serve_check_server.py); with
--http it is `electra-tf serve`, whose JSON cannot declare a shape that its values do
not have.

    tools/serve_check --model=served --requests=1000 --fuzz=10000
    tools/serve_check --model=served --http

The client sends real requests and compares the responses with the SavedModel called
directly. It then sends hostile requests, and random ones from several threads. Each
must end within 60 seconds in a response of the expected shape or in an error with a
message, the server's peak of memory must stay below twice that after the real requests,
and the server must still respond correctly afterwards. `--attack` adds requests that
are small to send and large to compute. Exits with 1 if a check fails.
"""

import argparse
import contextlib
import itertools
import os
import pathlib
import sys
import time
from collections.abc import Iterator, Sequence

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import serve_check_requests as requests
import tensorflow as tf
from serve_check_client import (
    GrpcClient,
    HttpClient,
    Server,
    Tally,
    run_server,
    send,
    send_all,
)
from serve_check_server import newest_version, read_about, read_signatures

from electra_tf.serving.validate import TOLERANCE, max_difference

MAX_GROWTH = 128  # MiB while real requests are sent
MAX_FACTOR = 2.0  # of the steady memory
DEFAULT_LIMITS = {"rows": 4096, "bytes": 2**21, "positions": 2**16}
_SLOW = 0.05  # seconds of an attack that are worth a line
Client = GrpcClient | HttpClient


@contextlib.contextmanager
def serve(options: argparse.Namespace) -> Iterator[tuple[Server, Client]]:
    """Run the server that the options name, and yield it with a client."""
    if options.http:
        command = ["-m", "electra_tf", "serve", "--name=m", "--port=0"]
    else:
        program = pathlib.Path(__file__).with_name("serve_check_server.py")
        command = [str(program), f"--threads={options.threads}"]
    command = [sys.executable, *command, f"--model={options.model}"]
    with run_server(command) as server:
        if options.http:
            yield server, HttpClient(server.address, "m")
        else:
            yield server, GrpcClient(server.address)


def check(options: argparse.Namespace) -> list[str]:
    folder = newest_version(options.model)
    with serve(options) as (server, client):
        signatures = list(requests.signatures(read_signatures(folder)))
        names = ", ".join(f"{one.name}({', '.join(one.inputs)})" for one in signatures)
        print(f"{folder}: {names}\n{server.started}", flush=True)
        rng = np.random.default_rng(0)
        cases = [
            case for signature in signatures for case in requests.real(signature, rng)
        ]
        functions = tf.saved_model.load(str(folder)).signatures
        direct = {
            id(case): requests.call(functions[case.signature.name], case)
            for case in cases
        }

        def compare(case: requests.Case, response: requests.Arrays) -> str:
            """Return the first difference from the direct call, or nothing."""
            for name, expected in direct[id(case)].items():
                if (difference := max_difference(response[name], expected)) > TOLERANCE:
                    return f"{name} differs from the direct call by {difference:.2g}"
            return ""

        real, hostile, fuzz, after = map(Tally, ("real", "hostile", "random", "after"))

        def send_real(count: int, tally: Tally) -> float:
            """Send valid requests, and return the server's memory."""
            chosen = itertools.islice(itertools.cycle(cases), count)
            send_all(client, chosen, options.threads, tally, compare)
            return server.memory()

        first = max(1, options.requests // 10)
        early = send_real(first, real)
        steady = send_real(options.requests - first, real)
        unusual = hostile_cases(signatures, folder, options.attack)
        failures = send_hostile(client, server, unusual, hostile, options.attack)
        numbers = range(options.fuzz)
        random_cases = (requests.random_case(signatures, n) for n in numbers)
        server.reset_peak()
        send_all(client, filter(client.can_send, random_cases), options.threads, fuzz)
        failures += memory_failures("random requests", server.memory("VmHWM"), steady)
        send_real(len(cases), after)
        tallies = [real, hostile, fuzz, after]
        failures += [failure for tally in tallies for failure in tally.failures]
        if steady - early > MAX_GROWTH:
            failures.append(f"memory grew by {steady - early:.1f} MiB")
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


def hostile_cases(
    signatures: Sequence[requests.Signature], folder: pathlib.Path, attack: bool
) -> Iterator[requests.Case]:
    """Yield the hostile requests to an export."""
    about = read_about(folder)
    limits, length = about.get("limits", DEFAULT_LIMITS), about.get("max_length", 64)
    for signature in signatures:
        yield from requests.hostile(signature)
        if attack:
            yield from requests.attacks(signature, limits, length)


def send_hostile(
    client: Client,
    server: Server,
    cases: Iterator[requests.Case],
    tally: Tally,
    verbose: bool,
) -> list[str]:
    """Send the hostile requests one after another; return failures of memory."""
    failures, steady = [], server.memory()
    for case in filter(client.can_send, cases):
        start = time.perf_counter()
        server.reset_peak()
        result = send(client, case, tally)
        seconds, peak = time.perf_counter() - start, server.memory("VmHWM")
        failures += memory_failures(case.name, peak, steady)
        if verbose and seconds >= _SLOW:
            print(
                f"  {case.name[:64]:64}{seconds:7.2f} s{peak:7.0f} MiB  {result[:90]}",
                flush=True,
            )
    return failures


def memory_failures(name: str, peak: float, steady: float) -> list[str]:
    """Return a line if the server's memory was too large."""
    limit = f"{MAX_FACTOR:g} times its steady {steady:.0f} MiB"
    text = f"{name}: the server's memory must stay below {limit}, not {peak:.0f} MiB"
    return [text] * (peak > MAX_FACTOR * steady)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--model", required=True, help="folder of the versions")
    add("--http", action="store_true", help="test `electra-tf serve`")
    add("--requests", type=int, default=200, help="number of real requests")
    add("--fuzz", type=int, default=1000, help="number of random requests")
    add("--threads", type=int, default=4)
    add("--attack", action="store_true", help="add attacks on the server's memory")
    options = parser.parse_args()
    if min(options.requests, options.threads) < 1:
        sys.exit("error: --requests and --threads must be at least 1")
    return options


if __name__ == "__main__":
    sys.exit(bool(check(parse())))
