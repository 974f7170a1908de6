"""Peers of a benchmark: processes on the same cores, of which one works at a time.

Peers take turns in each round, so that a change of the machine's load affects all of
them. The helpers at the end serve all benchmarks.
"""

import argparse
import contextlib
import multiprocessing.connection
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# Without it, the first peer of TensorFlow takes the GPU's memory from the others.
os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
ROOT = pathlib.Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
OURS, TORCH, COMPILED = "electra_tf", "torch", "torch.compile"
OPENVINO = "openvino"
SPAWN = multiprocessing.get_context("spawn")
VOCAB = "vocab/bert_uncased_en.txt"


def parser(doc: str, peers: Sequence[str]) -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = result.add_argument
    add("--config", default=str(ROOT / "configs/small.yaml"))
    add("--set", action="append", default=[], help="--set of pretrain")
    add("--threads", type=int, default=1)
    add("--rounds", type=int, default=5)
    add("--peers", default=",".join(peers), help="peers to run")
    result.set_defaults(device="cpu")
    return result


def names(
    options: argparse.Namespace, known: Sequence[str], required: Sequence[str]
) -> list[str]:
    found = options.peers.split(",")
    if set(required) - set(found) or set(found) - set(known):
        sys.exit(
            f"error: --peers must contain {' and '.join(required)}, and only "
            f"{', '.join(known)}, not {options.peers}"
        )
    return found


def standard_file(name: str) -> str | None:
    """Return the path of a file below ELECTRA_TF_DATA, if that is set."""
    data = os.environ.get("ELECTRA_TF_DATA")
    return data and f"{data}/{name}"


class Peer:
    def __init__(
        self,
        name: str,
        serve: "Callable[[Channel, argparse.Namespace], None]",
        options: argparse.Namespace,
    ):
        self.name, self.memory, begin = name, 0.0, time.perf_counter()
        self._connection, other = SPAWN.Pipe()
        channel = Channel(name, options.device, other)
        # TensorFlow and PyTorch read these while they are imported.
        if options.device == "cpu":
            for threads in ("OMP_NUM", "TF_NUM_INTRAOP", "TF_NUM_INTEROP"):
                os.environ[f"{threads}_THREADS"] = str(options.threads)
            os.environ["CUDA_VISIBLE_DEVICES"] = ""
        process = SPAWN.Process(target=_run, args=(serve, channel, options))
        process.start()
        other.close()
        self.first = self._receive()
        self.start = time.perf_counter() - begin

    def ask(self, question: Any) -> Any:
        self._connection.send(question)
        return self._receive()

    def end(self) -> None:
        self._connection.close()

    def _receive(self) -> Any:
        try:
            self.memory, answer = self._connection.recv()
        except EOFError:
            sys.exit(f"error: the process of {self.name} failed")
        return answer


class Channel(NamedTuple):
    """A peer's side of the connection."""

    peer: str
    device: str
    connection: multiprocessing.connection.Connection

    def answer(self, value: Any = None) -> None:
        """Answer a question or, at first, report that the peer is ready."""
        self.connection.send((peak_memory(self.peer, self.device), value))

    def questions(self) -> Iterator[Any]:
        """Yield the questions until the benchmark ends."""
        with contextlib.suppress(EOFError):
            while True:
                yield self.connection.recv()


def _run(serve: Callable, channel: Channel, options: argparse.Namespace) -> None:
    """Run a peer's function on as many cores as it has threads."""
    if channel.device == "cpu":
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, cores[: options.threads])
    os.dup2(2, 1)  # libraries may print
    serve(channel, options)


def peak_memory(peer: str, device: str) -> float:
    """Return the peak GiB of this process, on the host or on the GPU."""
    if device == "cpu":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    if peer.startswith(TORCH):
        import torch

        return torch.cuda.max_memory_allocated() / 2**30
    import tensorflow as tf

    return tf.config.experimental.get_memory_info("GPU:0")["peak"] / 2**30


def interleaved(
    rounds: int, measures: Mapping[str, Callable[[], float]]
) -> dict[str, list[float]]:
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
    print(f"\n{'':44} {'median':>12} {'min':>12} {'max':>12}  ratio  ({unit})")
    for name, values in results.items():
        print(
            f"{name:44} {statistics.median(values):12,.0f} {min(values):12,.0f} "
            f"{max(values):12,.0f} {ratio(values, results[base]):6.2f}"
        )


def report_peers(
    found: Sequence[Peer],
    results: Mapping[str, list[float]],
    tokens: int,
    columns: Mapping[str, Callable[[Peer], str]],
) -> None:
    """Print a table of the peers, from milliseconds for so many tokens.

    `columns` are the cells of further columns by their heads.
    """
    heads = "".join(f"{head:>12}" for head in columns)
    print(
        f"{'':16}{'ms':>9}{'min':>9}{'max':>9}{'tokens/s':>11}{'time/ours':>11}"
        f"{'GiB':>6}{'start s':>9}{heads}"
    )
    for peer in found:
        times = results[peer.name]
        median = statistics.median(times)
        cells = "".join(f"{cell(peer):>12}" for cell in columns.values())
        print(
            f"{peer.name:16}{median:9,.1f}{min(times):9,.1f}{max(times):9,.1f}"
            f"{1e3 * tokens / median:11,.0f}{ratio(times, results[OURS]):11.2f}"
            f"{peer.memory:6.2f}{peer.start:9.1f}{cells}"
        )


def run_command(name: str, **flags: object) -> None:
    arguments = [f"--{flag}={value}" for flag, value in flags.items()]
    command = [sys.executable, "-m", f"electra_tf.{name}", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(command, check=True, capture_output=True, env=environment)


def text_lines(source: str | None, megabytes: float) -> list[str]:
    from electra_tf.config.data import CorpusConfig
    from electra_tf.text.corpus import CorpusReader
    from electra_tf.text.data_errors import DataErrorLog

    source = source or standard_file("corpus/wiki_en.train-0*.txt.xz")
    if not source:
        sys.exit("error: pass a text with --input=FILE (ELECTRA_TF_DATA is unset)")
    lines, remaining = [], megabytes * 1e6
    log = DataErrorLog("report", os.devnull)
    for document in CorpusReader([source], CorpusConfig(), log):
        lines += [*document.lines, ""]
        remaining -= sum(len(line.encode()) + 1 for line in document.lines)
        if remaining <= 0:
            break
    return lines
