"""Run the commands of a quick start in its folder."""

import contextlib
import json
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

from electra_tf import durable_files
from electra_tf.errors import InputError

ROOT = pathlib.Path(__file__).resolve().parents[2]
OPTIONS, SECONDS = "quickstart.json", "seconds.json"
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Commands:
    """Runner of command lines, which prints them and forwards signals.

    A file in the folder has the seconds of each stage, summed over all runs.
    """

    def __init__(self, folder: pathlib.Path):
        self._file = folder / SECONDS
        self.seconds: dict[str, float] = {}
        if self._file.exists():
            self.seconds = json.loads(self._file.read_text())
        self._signal = 0

    def run(self, name: str, *arguments: str) -> None:
        """Run `python -m electra_tf.NAME` in this terminal; exit if it fails."""
        command = [short_path(sys.executable), "-m", f"electra_tf.{name}", *arguments]
        print(f"\n$ {shlex.join(command)}", flush=True)
        with self.timed(name):
            self._child = subprocess.Popen([sys.executable, *command[1:]])
            # Ctrl-C reaches both processes. The command saves while this one waits.
            before = {s: signal.signal(s, self._handle) for s in _SIGNALS}
            code = self._child.wait()
            for number, handler in before.items():
                signal.signal(number, handler)
        if self._signal:
            exit_interrupted(128 + self._signal)
        if code:
            sys.exit(code)

    @contextlib.contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Add the seconds of the block to a stage."""
        begin = time.perf_counter()
        yield
        seconds = time.perf_counter() - begin
        self.seconds[stage] = self.seconds.get(stage, 0) + seconds
        durable_files.write(self._file, json.dumps(self.seconds))

    def _handle(self, number: int, _) -> None:
        self._signal = number
        if number == signal.SIGTERM:
            self._child.terminate()


def exit_interrupted(code: int) -> None:
    """Print the command that continues, and exit."""
    command = shlex.join([short_path(ROOT / "tools" / "quickstart"), *sys.argv[1:]])
    print(f"\nstopped; nothing is lost, continue with\n  {command}")
    sys.exit(code)


def short_path(path: str | os.PathLike) -> str:
    """Return a path relative to the working directory if it is below."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative


def check_folder(
    folder: pathlib.Path, options: Mapping[str, Any], name: str = OPTIONS
) -> None:
    """Check that a folder is new or has the same options, and write the options."""
    path = folder / name
    if path.exists():
        previous = json.loads(path.read_text())
        if previous != options:
            raise InputError(
                f"The same command must continue with its first options ({folder})",
                f"{options}; the first were {previous}",
                "Pass the first options, or another folder with --output",
            )
    elif folder.exists() and any(folder.iterdir()):
        raise InputError(
            "--output must be a new folder or one of the same command",
            f"{folder}, which has other files",
            "Pass another --output",
        )
    folder.mkdir(parents=True, exist_ok=True)
    durable_files.write(path, json.dumps(options))
