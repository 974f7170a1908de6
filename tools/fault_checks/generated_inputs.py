"""Read generated files and flags: each must give a right answer or an InputError."""

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
from collections.abc import Iterator, Sequence

import hypothesis
from absl import flags
from hypothesis import strategies as st
from input_kinds import KINDS, Case
from process_memory import PeakMemory, mapped

from electra_tf.errors import InputError

MAX_SECONDS = 20.0
"""CPU time of one input, at most."""
MAX_BYTES = 1 << 30
"""Memory of one input, at most, above what its process had before."""
_BATCH = 250  # inputs that are held in memory
_KEPT = pathlib.Path(tempfile.gettempdir(), "electra_tf_failures")


class _TooSlow(BaseException):
    """Raised by the alarm; no handler of the product catches it."""


def run_inputs(count: int, seed: int, kinds: Sequence[str] = tuple(KINDS)) -> dict:
    """Read generated inputs of some kinds with the functions that the commands call.

    Returns:
        `inputs`, `answers`, `errors`, and `failures`, whose files are kept.
    """
    counts = dict.fromkeys(("inputs", "answers", "errors"), 0)
    failures = []
    for name in kinds:
        for case in examples(KINDS[name].cases, max(1, count // len(kinds)), seed):
            counts["inputs"] += 1
            with tempfile.TemporaryDirectory(prefix="electra_tf_") as folder:
                case.write(pathlib.Path(folder))
                outcome = read_case(name, pathlib.Path(folder), case)
                if outcome in counts:
                    counts[outcome] += 1
                    continue
                kept = _KEPT / f"{name}_{seed}_{counts['inputs']}"
                shutil.copytree(folder, kept, symlinks=True, dirs_exist_ok=True)
                arguments = f"{case.arguments!r:.300}"
                failures.append(f"{name}: {outcome:.300}; {kept} with {arguments}")
        print(f"{name}: read", file=sys.stderr, flush=True)
    return {**counts, "failures": failures}


def examples(strategy: st.SearchStrategy, count: int, seed: int) -> Iterator[Case]:
    """Yield examples of a strategy; the same seed gives the same ones."""
    while count > 0:  # Hypothesis ends early where it has no new examples
        found = _batch(strategy, min(count, _BATCH), seed)[:count]
        yield from found
        count, seed = count - len(found), seed + 1_000_003


def _batch(strategy: st.SearchStrategy, count: int, seed: int) -> list[Case]:
    found: list[Case] = []
    settings = hypothesis.settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    collect = hypothesis.given(strategy)(lambda case: found.append(case))
    hypothesis.seed(seed)(settings(collect))()
    return found


def read_case(name: str, folder: pathlib.Path, case: Case) -> str:
    """Read a case; return `answers`, `errors`, or a description of a failure."""
    memory, start = PeakMemory(), time.process_time()
    try:
        with _limits():
            KINDS[name].read(folder, case)
        outcome = "answers"
    except (InputError, flags.Error) as error:
        outcome = "errors" if str(error).strip() else f"empty {type(error).__name__}"
    except _TooSlow:
        return f"over {MAX_SECONDS} s: in {_place()}"
    except Exception as error:
        return f"{type(error).__name__} in {_place()}: {error}"
    if time.process_time() - start > MAX_SECONDS:
        return f"over {MAX_SECONDS} s: {time.process_time() - start:.0f} s"
    if memory.taken > MAX_BYTES:
        return f"over {MAX_BYTES >> 20} MiB: {memory.taken >> 20:,} MiB"
    return outcome


@contextlib.contextmanager
def _limits() -> Iterator[None]:
    """Limit time and address space, and drop what is printed."""

    def stop(*_):
        raise _TooSlow

    old = signal.signal(signal.SIGPROF, stop)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (mapped() + 2 * MAX_BYTES, hard))
    signal.setitimer(signal.ITIMER_PROF, MAX_SECONDS)
    output = io.StringIO()
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.signal(signal.SIGPROF, old)


def _place() -> str:
    """Return the product's innermost frame of the current exception."""
    frames = traceback.extract_tb(sys.exc_info()[2])
    ours = [f for f in frames if "/electra_tf/" in f.filename] or frames
    path = pathlib.Path(ours[-1].filename)
    return f"{path.parent.name}/{path.name} line {ours[-1].lineno}"
