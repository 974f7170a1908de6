"""Peers of a benchmark: processes on the same cores, of which one works at a time.

A peer prints the seconds of its start. Then it prints numbers for each line that it
reads. Peers take turns in each round, so that a change of the machine's load affects
all of them. The helpers at the end serve all benchmarks.
"""

import argparse
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
ROOT = pathlib.Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
OURS, TORCH, COMPILED = "electra_tf", "torch", "torch.compile"


def parser(
    doc: str, peers: Sequence[str], **defaults: object
) -> argparse.ArgumentParser:
    """Return a parser with the options of all benchmarks with peers."""
    result = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = result.add_argument
    add("--config", default=str(ROOT / "configs/small.yaml"))
    add("--set", action="append", default=[], help="--set of pretrain")
    add("--threads", type=int, default=1)
    add("--rounds", type=int, default=5)
    add("--peers", default=",".join(peers), help="peers to run")
    add("--torch_python", default=sys.executable, help="has torch and transformers")
    for name, kind in (("--peer", str), ("--begin", float), ("--work", str)):
        add(name, type=kind, help=argparse.SUPPRESS)
    result.set_defaults(known=peers, device="cpu", **defaults)
    return result


def names(options: argparse.Namespace, required: Sequence[str]) -> list[str]:
    """Return the names of --peers, or exit if one is unknown or lacks a package."""
    found = options.peers.split(",")
    if set(required) - set(found) or set(found) - set(options.known):
        sys.exit(
            f"error: --peers must contain {' and '.join(required)}, and only "
            f"{', '.join(options.known)}. Received: {options.peers}"
        )
    packages = getattr(options, "packages", "torch, transformers")
    needs_torch = any(name.startswith(TORCH) for name in found)
    command = [options.torch_python, "-c", f"import {packages}"]
    if needs_torch and subprocess.run(command).returncode:
        sys.exit(
            f"error: {options.torch_python} must have the packages {packages}. Install "
            "them with tools/install test,interop-test, pass another interpreter with "
            f"--torch_python, or omit the peers: --peers={','.join(required)}"
        )
    return found


class Peer:
    """Process of a peer, which gets the arguments of this one."""

    def __init__(self, name: str, options: argparse.Namespace):
        python = options.torch_python if name.startswith(TORCH) else sys.executable
        cores, environment = sorted(os.sched_getaffinity(0)), dict(os.environ)
        if options.device == "cpu":
            cores = cores[: options.threads]
            for threads in ("OMP_NUM", "TF_NUM_INTRAOP", "TF_NUM_INTEROP"):
                environment[f"{threads}_THREADS"] = str(options.threads)
            environment["CUDA_VISIBLE_DEVICES"] = ""
        more = [f"--peer={name}", f"--begin={time.time()}", f"--work={options.work}"]
        self.name, self.memory = name, 0.0
        self._process = subprocess.Popen(
            [python, *sys.argv, *more],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            preexec_fn=lambda: os.sched_setaffinity(0, cores),
        )
        self.start = self._read()[0]

    def ask(self, line: object) -> list[float]:
        """Send a line; return the numbers after the first, which is the peak memory."""
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        self.memory, *numbers = self._read()
        return numbers

    def end(self) -> None:
        """End the process."""
        self._process.stdin.close()
        self._process.wait()

    def _read(self) -> list[float]:
        line = self._process.stdout.readline()
        if not line:
            sys.exit(f"error: {self.name} ended with {self._process.wait()}")
        return [float(word) for word in line.split()]


class Channel:
    """A peer's side: reads lines, and prints numbers where libraries print nothing."""

    def __init__(self, options: argparse.Namespace):
        self._options = options
        self._output = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)

    def ready(self) -> None:
        """Print the seconds since the start of the process."""
        print(time.time() - self._options.begin, file=self._output, flush=True)

    def lines(self) -> Iterator[str]:
        """Yield the lines of the benchmark."""
        yield from sys.stdin

    def answer(self, *numbers: float) -> None:
        """Print peak GiB and the numbers that answer a line."""
        print(peak_memory(self._options), *numbers, file=self._output, flush=True)


def peak_memory(options: argparse.Namespace) -> float:
    """Return the peak GiB of this process, on the host or on the GPU."""
    if options.device == "cpu":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    if options.peer.startswith(TORCH):
        import torch

        return torch.cuda.max_memory_allocated() / 2**30
    import tensorflow as tf

    return tf.config.experimental.get_memory_info("GPU:0")["peak"] / 2**30


def interleaved(
    rounds: int, measures: Mapping[str, Callable[[], float]]
) -> dict[str, list[float]]:
    """Return the results of all measures, which run in turn in each round."""
    results: dict[str, list[float]] = {name: [] for name in measures}
    for number in range(rounds):
        for name, measure in measures.items():
            results[name].append(measure())
            print(f"round {number + 1}: {name}: {results[name][-1]:,.0f}", flush=True)
    return results


def ratio(values: Iterable[float], base: Iterable[float]) -> float:
    """Return the median of the ratios of each round."""
    return statistics.median(a / b for a, b in zip(values, base, strict=True))


def report(results: Mapping[str, list[float]], unit: str, base: str) -> None:
    """Print median, range, and the ratio to `base`."""
    print(f"\n{'':44} {'median':>12} {'min':>12} {'max':>12}  ratio  ({unit})")
    for name, values in results.items():
        print(
            f"{name:44} {statistics.median(values):12,.0f} {min(values):12,.0f} "
            f"{max(values):12,.0f} {ratio(values, results[base]):6.2f}"
        )


def run_command(name: str, **flags: object) -> None:
    """Run a command of the package."""
    arguments = [f"--{flag}={value}" for flag, value in flags.items()]
    command = [sys.executable, "-m", f"electra_tf.{name}", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(command, check=True, capture_output=True, env=environment)


def text_lines(source: str | None, megabytes: float) -> list[str]:
    """Return the first lines of a text, by default of English Wikipedia."""
    from electra_tf.config.data import CorpusConfig
    from electra_tf.text.corpus import CorpusReader
    from electra_tf.text.data_errors import DataErrorLog

    data = os.environ.get("ELECTRA_TF_DATA")
    if source is None and not data:
        sys.exit("error: pass a text with --input=FILE (ELECTRA_TF_DATA is unset)")
    source = source or f"{data}/corpus/wiki_en.train-0*.txt.xz"
    lines, remaining = [], megabytes * 1e6
    log = DataErrorLog("report", os.devnull)
    for document in CorpusReader([source], CorpusConfig(), log):
        lines += [*document.lines, ""]
        remaining -= sum(len(line.encode()) + 1 for line in document.lines)
        if remaining <= 0:
            break
    return lines
