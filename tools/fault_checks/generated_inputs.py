"""Read generated files and flags: each must give a right answer or an InputError.

python tools/fault_checks/generated_inputs.py --count=10000 --commands=200
"""

import argparse
import collections
import contextlib
import io
import pathlib
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence

import hypothesis
import input_commands
import input_kinds
from hypothesis import strategies as st
from input_kinds import KINDS, Kind
from process_memory import PeakMemory, mapped

from electra_tf.errors import InputError

MAX_SECONDS = 20.0
"""CPU time of one input, at most; it may wait longer for other processes."""
MAX_BYTES = 1 << 30
"""Memory of one input, at most, above what its process had before."""
_MAX_WAIT = 300.0  # seconds, for an input that hangs without computing
_BATCH = 250  # inputs that are held in memory
_MAX_LISTED = 50


class _TooSlow(BaseException):
    """Raised by the alarm; no handler of the product catches it."""


def run_in_process(
    count: int, seed: int, kinds: Sequence[str] | None = None
) -> dict[str, int | list[str]]:
    """Read generated inputs with the functions that the commands call.

    Args:
        count: Number of inputs.
        seed: The same seed gives the same inputs.
        kinds: Names of `KINDS` to read; None: all, by their weights.
    """
    campaign = _Campaign(seed)
    weights = {name: KINDS[name].weight for name in kinds or KINDS}
    for name, share in _shares(count, weights).items():
        campaign.run(name, KINDS[name], share)
        print(f"{name}: {share:,} inputs read", file=sys.stderr, flush=True)
    return campaign.report()


def run_commands(count: int, seed: int) -> dict[str, int | list[str]]:
    """Give generated inputs to real commands.

    Args:
        count: Number of commands.
        seed: The same seed gives the same commands.

    Returns:
        As `run_in_process`: `commands`, `answers`, `errors`, the same for each kind,
        `failed` and `failures`.
    """
    cases = [
        (name, case)
        for name, share in _shares(count, input_commands.kinds()).items()
        for case in _examples(KINDS[name].cases, share, seed)
    ]
    return input_commands.run(cases, MAX_SECONDS, MAX_BYTES)


def _shares(count: int, weights: Mapping[str, int]) -> dict[str, int]:
    """Divide a number of inputs by weights."""
    shares, left, total = {}, count, sum(weights.values())
    for name, weight in weights.items():
        shares[name] = round(left * weight / total)
        left, total = left - shares[name], total - weight
    return shares


class _Campaign:
    """Counts of inputs by their results, and the failures."""

    def __init__(self, seed: int):
        self._seed = seed
        self._counts: collections.Counter[str] = collections.Counter()
        self._failures: dict[str, str] = {}
        self._repeated: collections.Counter[str] = collections.Counter()
        self._kept = pathlib.Path(tempfile.gettempdir(), "electra_tf_failures")

    def run(self, name: str, kind: Kind, count: int) -> None:
        """Read inputs of one kind."""
        for case in _examples(kind.cases, count, self._seed):
            with tempfile.TemporaryDirectory(prefix="electra_tf_") as folder:
                self._read(name, kind, case, pathlib.Path(folder))

    def _read(
        self, name: str, kind: Kind, case: input_kinds.Case, folder: pathlib.Path
    ) -> None:
        case.write(folder)
        self._counts["inputs"] += 1
        problem = ""
        memory, start = PeakMemory(), time.process_time()
        try:
            with _limits():
                kind.read(folder, case)
            outcome = "answers"
        except (InputError, *input_kinds.FLAG_ERRORS) as error:
            outcome = "errors"
            if not str(error).strip():
                problem = f"an empty {type(error).__name__}"
        except _TooSlow:
            outcome, problem = "", f"over {MAX_SECONDS} s: in {_place()}"
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            outcome, problem = "", f"{type(error).__name__} in {_place()}: {error}"
        seconds, taken = time.process_time() - start, memory.taken
        if seconds > MAX_SECONDS and not problem:
            problem = f"over {MAX_SECONDS} s: {seconds:.0f} s"
        if taken > MAX_BYTES and not problem:
            problem = f"over {MAX_BYTES >> 20} MiB: {taken >> 20:,} MiB"
        if problem:
            self._keep(name, problem, folder, case)
        else:
            self._counts[outcome] += 1
            self._counts[f"{name} {outcome}"] += 1

    def _keep(
        self, name: str, problem: str, folder: pathlib.Path, case: input_kinds.Case
    ) -> None:
        """Keep the input of a failure that is not known yet."""
        self._counts["failed"] += 1
        key = f"{name}: {problem.partition(':')[0]}"
        self._repeated[key] += 1
        if key in self._failures:
            return
        target = self._kept / f"{name}_{self._seed}_{self._counts['inputs']}"
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(folder, target, symlinks=True)
        arguments = f" with {case.arguments!r:.300}" if case.arguments else ""
        self._failures[key] = f"{name}: {problem:.300}; read {target}{arguments}"

    def report(self) -> dict[str, int | list[str]]:
        """Return the counts and the failures."""
        report: dict[str, int | list[str]] = {
            name: self._counts[name] for name in ("inputs", "answers", "errors")
        }
        report |= {n: c for n, c in sorted(self._counts.items()) if " " in n}
        report["failed"] = self._counts["failed"]
        report["failures"] = [
            f"{self._repeated[key]} x {line}" for key, line in self._failures.items()
        ][:_MAX_LISTED]
        return report


def _examples(
    strategy: st.SearchStrategy, count: int, seed: int
) -> Iterator[input_kinds.Case]:
    """Yield examples of a strategy; the same seed gives the same ones."""
    while count > 0:  # Hypothesis ends early where it has no new examples
        examples = _batch(strategy, min(count, _BATCH), seed)[:count]
        yield from examples
        count, seed = count - len(examples), seed + 1_000_003


def _batch(
    strategy: st.SearchStrategy, count: int, seed: int
) -> list[input_kinds.Case]:
    examples: list[input_kinds.Case] = []

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(strategy)
    def collect(example):
        examples.append(example)

    collect()
    return examples


@contextlib.contextmanager
def _limits() -> Iterator[None]:
    """Limit time and address space, and drop what is printed."""

    def stop(*_):
        raise _TooSlow

    numbers = {signal.ITIMER_PROF: signal.SIGPROF, signal.ITIMER_REAL: signal.SIGALRM}
    handlers = {number: signal.signal(number, stop) for number in numbers.values()}
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (mapped() + 2 * MAX_BYTES, hard))
    signal.setitimer(signal.ITIMER_PROF, MAX_SECONDS)
    signal.setitimer(signal.ITIMER_REAL, _MAX_WAIT)
    try:
        with (
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            yield
    finally:
        for timer in numbers:
            signal.setitimer(timer, 0)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _place() -> str:
    """Return the product's innermost frame of the current exception."""
    frames = traceback.extract_tb(sys.exc_info()[2])
    ours = [f for f in frames if "/electra_tf/" in f.filename] or frames
    path = pathlib.Path(ours[-1].filename)
    return f"{path.parent.name}/{path.name} line {ours[-1].lineno}"


def main() -> int:
    """Print the counts; the exit status is 1 after a failure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--commands", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", help="names, separated by commas; default: all")
    arguments = parser.parse_args()
    kinds = arguments.kinds.split(",") if arguments.kinds else None
    steps: list[Callable[[], dict[str, int | list[str]]]] = []
    if arguments.count:
        steps.append(lambda: run_in_process(arguments.count, arguments.seed, kinds))
    if arguments.commands:
        steps.append(lambda: run_commands(arguments.commands, arguments.seed))
    failed = 0
    for step in steps:
        report = step()
        failed += report["failed"]
        for name, value in report.items():
            if isinstance(value, list):
                print("\n".join(value))
            else:
                print(f"{name}: {value:,}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
