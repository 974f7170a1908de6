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
from collections.abc import Callable, Iterator, Sequence

import hypothesis
import input_commands
import input_kinds
from hypothesis import strategies as st
from input_kinds import KINDS, Kind

from electra_tf.errors import InputError

MAX_SECONDS = 20.0
"""Time of one input, at most."""
MAX_BYTES = 1 << 30
"""Memory of one input, at most, above what its process had before."""
_ADDRESS_SPACE = 8 << 30  # TensorFlow maps much more than it uses
_STATUS, _RESET = pathlib.Path("/proc/self/status"), "/proc/self/clear_refs"
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

    Returns:
        `inputs`, `answers`, `errors` (InputErrors and errors of flags), the same for
        each kind as `KIND answers` and `KIND errors`, `failed`, and `failures`: a line
        for each different failure, with the folder of its first input.
    """
    chosen = {name: KINDS[name] for name in kinds or KINDS}
    total = sum(kind.weight for kind in chosen.values())
    campaign = _Campaign(seed)
    remaining, weights = count, total
    for name, kind in chosen.items():
        share = round(remaining * kind.weight / weights)
        remaining, weights = remaining - share, weights - kind.weight
        campaign.run(name, kind, share)
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
    return input_commands.run(count, seed, MAX_SECONDS, MAX_BYTES)


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
        done, seed = 0, self._seed
        while done < count:  # Hypothesis ends early where it has no new inputs
            for case in _examples(kind.cases, count - done, seed):
                with tempfile.TemporaryDirectory(prefix="electra_tf_") as folder:
                    self._read(name, kind, case, pathlib.Path(folder), seed)
                done += 1
            seed += 1_000_003

    def _read(
        self, name: str, kind: Kind, case: input_kinds.Case, folder: pathlib.Path,
        seed: int,
    ) -> None:  # fmt: skip
        case.write(folder)
        self._counts["inputs"] += 1
        problem = ""
        before, start = _reset_peak(), time.perf_counter()
        try:
            with _limits():
                kind.read(folder, case)
            outcome = "answers"
        except (InputError, *input_kinds.FLAG_ERRORS) as error:
            outcome = "errors"
            if not str(error).strip():
                problem = f"an empty {type(error).__name__}"
        except _TooSlow:
            outcome, problem = "", f"over {MAX_SECONDS:.0f} s in {_place()}"
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            outcome, problem = "", f"{type(error).__name__} in {_place()}: {error}"
        seconds, taken = time.perf_counter() - start, _peak() - before
        if seconds > MAX_SECONDS and not problem:
            problem = f"{seconds:.0f} s"
        if taken > MAX_BYTES and not problem:
            problem = f"{taken / 2**20:,.0f} MiB"
        if problem:
            self._keep(name, problem, folder, seed, case)
        else:
            self._counts[outcome] += 1
            self._counts[f"{name} {outcome}"] += 1

    def _keep(
        self, name: str, problem: str, folder: pathlib.Path, seed: int,
        case: input_kinds.Case,
    ) -> None:  # fmt: skip
        """Keep the input of a failure that is not known yet."""
        self._counts["failed"] += 1
        key = f"{name}: {problem.partition(':')[0]}"
        self._repeated[key] += 1
        if key in self._failures:
            return
        target = self._kept / f"{name}_{seed}_{self._counts['inputs']}"
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
    examples: list[input_kinds.Case] = []

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=min(count, 250),  # memory: a part of them is held at once
        database=None,
        deadline=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(strategy)
    def collect(example):
        examples.append(example)

    collect()
    yield from examples[:count]


@contextlib.contextmanager
def _limits() -> Iterator[None]:
    """Limit time and address space, and drop what is printed."""

    def stop(*_):
        raise _TooSlow

    handler = signal.signal(signal.SIGALRM, stop)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_mapped() + 2 * MAX_BYTES, hard))
    signal.setitimer(signal.ITIMER_REAL, MAX_SECONDS)
    try:
        with (
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.signal(signal.SIGALRM, handler)


def _place() -> str:
    """Return the product's innermost frame of the current exception."""
    frames = traceback.extract_tb(sys.exc_info()[2])
    ours = [f for f in frames if "/electra_tf/" in f.filename] or frames
    path = pathlib.Path(ours[-1].filename)
    return f"{path.parent.name}/{path.name} line {ours[-1].lineno}"


def _status(field: str) -> int:
    for line in _STATUS.read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    return 0


def _mapped() -> int:
    return _status("VmSize")


def _peak() -> int:
    return _status("VmHWM")


def _reset_peak() -> int:
    """Set the peak of this process to its memory, and return that."""
    with contextlib.suppress(OSError):
        pathlib.Path(_RESET).write_text("5")
    return _status("VmRSS")


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
