"""Give generated inputs to real commands."""

import collections
import dataclasses
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import process_memory
from input_kinds import KINDS, RUN, SAVED, STEP, Case

_ROOT = pathlib.Path(__file__).parents[2]
_RECORDS = SAVED / "records"
_ADDRESS_SPACE = 16 << 30  # TensorFlow maps much more than it uses
_MAX_SECONDS = 600.0  # of waiting; the limit of CPU time is an argument
_TRACEBACK = "Traceback (most recent call last)"
_TEXT = "the cat sat\n"

Arguments = Callable[[pathlib.Path, Case], list[str]]


def _file(command: str, flag: str, *rest: str) -> Arguments:
    """Return the arguments of a command that reads the first file of a case."""
    return lambda folder, case: [command, f"--{flag}={folder / case.name}", *rest]


def _folder(command: str, flag: str, *rest: str) -> Arguments:
    """Return the arguments of a command that reads the folder of a case."""
    return lambda folder, case: [
        command, f"--{flag}={pathlib.Path(folder, *case.arguments[:1])}", *rest,
    ]  # fmt: skip


_PLAN = ("--dry_run", f"--data={_RECORDS}")
_VOCABULARY = ("--input=text.txt", "--output=out", "--workers=1")
_TRAINED = ("--output=new.txt", "--size=200", "--min_frequency=1")
_COLUMNS = ("--text_columns=text", "--label_column=label")
_CONVERTED = ("--to=converted", "--format=huggingface")
_SCORED = (f"--model={SAVED / 'classifier'}", *_COLUMNS)
COMMANDS: dict[str, Arguments] = {
    "config": _file("pretrain", "config", *_PLAN),
    "finetuning config": _file(
        "finetune", "config", "--task=csv", "--data=none.csv", f"--checkpoint={RUN}",
        "--output=tuned",
    ),
    "--set": lambda _, case: [
        "pretrain", "--config=tiny", *_PLAN, *(f"--set={a}" for a in case.arguments)
    ],
    "flags": lambda _, case: list(case.arguments),
    "vocabulary": _file("build_records", "vocab", *_VOCABULARY),
    "vocabulary settings": lambda folder, _: [
        "build_records", f"--vocab={folder / 'vocab.txt'}", *_VOCABULARY
    ],
    "text": _file("build_vocab", "input", *_TRAINED),
    "JSON lines": _file("build_vocab", "input", *_TRAINED),
    "Parquet": _file("build_vocab", "input", *_TRAINED),
    "table": _file("evaluate", "data", *_SCORED),
    "CoNLL": _file("evaluate", "data", f"--model={SAVED / 'tagger'}"),
    "SQuAD": _file("evaluate", "data", f"--model={SAVED / 'answerer'}"),
    "predictions": lambda folder, case: [
        "evaluate", f"--task={case.arguments[0]}", f"--data={case.arguments[1]}",
        f"--predictions={case.name}",
    ],
    "n-best": _file("score", "input", f"--checkpoint={RUN}", "--nbest"),
    "BLiMP": _file("evaluate", "data", f"--checkpoint={RUN}", "--task=blimp"),
    "input of predict": lambda folder, case: [
        "predict", f"--input={case.name}", f"--model={SAVED / case.arguments[0]}"
    ],
    "records": lambda folder, _: [
        "evaluate", f"--data={folder}", f"--checkpoint={RUN}"
    ],
    "manifest": lambda folder, _: [
        "pretrain", f"--data={folder}", f"--config={STEP / 'config.yaml'}", "--dry_run"
    ],
    "checkpoint": _folder("score", "checkpoint", "--input=text.txt"),
    "Hugging Face folder": _folder("convert", "from", *_CONVERTED),
    "KerasHub or Model Garden": _folder("convert", "from", *_CONVERTED),
    "pytorch_model.bin": _folder("convert", "from", *_CONVERTED),
    ".keras": _file("predict", "model", "--input=text.txt"),
}  # fmt: skip
"""Arguments of the command that reads a case, by kind of input."""


@dataclasses.dataclass(frozen=True)
class Result:
    """End of a command."""

    status: int
    output: str
    seconds: float
    """CPU time."""
    memory: int
    """Bytes, at most."""


def run_command(arguments: list[str], folder: pathlib.Path, seconds: float) -> Result:
    """Run a command of the package.

    Args:
        arguments: Name of the command and its flags.
        folder: Working directory; gets the output.
        seconds: CPU time, at most.
    """

    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_SPACE, _ADDRESS_SPACE))
        resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 5))

    path = folder / "output.log"
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": str(_ROOT)}
    with path.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", f"electra_tf.{arguments[0]}", *arguments[1:]],
            stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
            cwd=folder, env=environment, preexec_fn=limit,
        )  # fmt: skip
        return _wait(process, path)


def _wait(process: subprocess.Popen, output: pathlib.Path) -> Result:
    """Wait for a process, whose end `Popen` does not see, and end one that hangs."""
    start, memory = time.monotonic(), 0
    while True:
        # Not the maximum that wait4 returns: it includes the memory of this process,
        # which the new one has between fork and exec.
        memory = max(memory, process_memory.peak(process.pid))
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            text = output.read_text(encoding="utf-8", errors="replace")
            seconds = usage.ru_utime + usage.ru_stime
            return Result(process.returncode, text, seconds, memory)
        if time.monotonic() - start > _MAX_SECONDS:
            process.kill()
        time.sleep(0.05)


def run(
    cases: list[tuple[str, Case]], max_seconds: float, max_bytes: int
) -> dict[str, int | list[str]]:
    """Run a command for each case and return their counts.

    Args:
        cases: Kind and input of each command.
        max_seconds: CPU time of a command, at most, above that of its start.
        max_bytes: Memory of a command, at most, above that of its start.
    """
    counts: collections.Counter[str] = collections.Counter()
    failures: list[str] = []
    with tempfile.TemporaryDirectory(prefix="electra_tf_") as name:
        folder = pathlib.Path(name)
        (folder / "text.txt").write_text(_TEXT)
        arguments = ["predict", f"--model={SAVED / 'classifier'}", "--input=text.txt"]
        start = run_command(arguments, folder, 600)
    for number, (kind, case) in enumerate(cases):
        with tempfile.TemporaryDirectory(prefix="electra_tf_") as name:
            folder = pathlib.Path(name)
            case.write(folder)
            (folder / "text.txt").write_text(_TEXT * 30)
            # A command line cannot contain NUL.
            arguments = [a.replace("\0", "") for a in COMMANDS[kind](folder, case)]
            result = run_command(arguments, folder, start.seconds + max_seconds)
            counts["commands"] += 1
            problem = _problem(result, start.memory + max_bytes)
            outcome = "answers" if result.status == 0 else "errors"
            line = f"{number + 1:,} of {len(cases):,} commands: {kind}: "
            print(line + (problem or outcome), file=sys.stderr, flush=True)
            if not problem:
                counts[outcome] += 1
                counts[f"{kind} {outcome}"] += 1
                continue
            counts["failed"] += 1
            kept = pathlib.Path(tempfile.gettempdir(), "electra_tf_failures")
            target = kept / f"command_{number}_{kind}".replace("/", "_")
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(folder, target, symlinks=True)
            failures.append(f"{kind}: {problem}: {arguments!r:.400} in {target}")
    names = ("commands", "answers", "errors")
    report: dict[str, int | list[str]] = {name: counts[name] for name in names}
    report |= {name: count for name, count in sorted(counts.items()) if " " in name}
    return report | {"failed": counts["failed"], "failures": failures}


def _problem(result: Result, max_bytes: int) -> str:
    lines = result.output.strip().splitlines() or [""]
    if _TRACEBACK in result.output:
        return f"traceback, {lines[-1]:.200}"
    if result.status < 0:
        return f"signal {-result.status}"
    if result.memory > max_bytes:
        return f"{result.memory / 2**20:,.0f} MiB"
    if result.status and not lines[-1]:
        return f"exit status {result.status} without a message"
    return ""


def kinds() -> dict[str, int]:
    """Return the weights of the kinds that commands read."""
    return {name: KINDS[name].weight for name in COMMANDS}
