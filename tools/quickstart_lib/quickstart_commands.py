"""How a quick start runs: real command lines, in a folder that it owns."""

import json
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

from quickstart_text import whole

from electra_tf.errors import InputError

ROOT = pathlib.Path(__file__).resolve().parents[2]
OPTIONS, SECONDS = "quickstart.json", "seconds.json"
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Commands:
    """Run the real command lines, each shown first, and pass signals on.

    Args:
        folder: The quick start's; the seconds that each stage took are kept there,
            over all starts.
    """

    def __init__(self, folder: pathlib.Path):
        self._file = folder / SECONDS
        self.seconds: dict[str, float] = {}
        if self._file.exists():
            self.seconds = json.loads(self._file.read_text())
        self._signal = 0

    def run(self, name: str, *arguments: str, stage: str = "") -> None:
        """Run `python -m electra_tf.NAME` in this terminal; exit if it fails."""
        shown = [near(sys.executable), "-m", f"electra_tf.{name}", *arguments]
        print(f"\n$ {shlex.join(shown)}", flush=True)
        begin = time.perf_counter()
        self._child = subprocess.Popen([sys.executable, *shown[1:]])
        # Ctrl-C reaches both processes: the command saves, and this one waits for it.
        before = {s: signal.signal(s, self._note) for s in _SIGNALS}
        try:
            code = self._child.wait()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            self.add(stage or name, begin)
        if self._signal:
            interrupted(128 + self._signal)
        if code:
            sys.exit(code)

    def add(self, stage: str, begin: float) -> None:
        """Count the seconds since `begin` to a stage."""
        spent = time.perf_counter() - begin
        self.seconds[stage] = self.seconds.get(stage, 0) + spent
        whole(self._file, json.dumps(self.seconds))

    def _note(self, number: int, _) -> None:
        self._signal = number
        if number == signal.SIGTERM:
            self._child.terminate()


def interrupted(code: int) -> None:
    """Exit with the command that continues."""
    again = shlex.join([near(ROOT / "tools" / "quickstart"), *sys.argv[1:]])
    print(f"\nstopped; nothing is lost, continue with\n  {again}")
    sys.exit(code)


def near(path: str | os.PathLike) -> str:
    """Return a path as one would type it here."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative


def claim(folder: pathlib.Path, options: Mapping[str, Any]) -> None:
    """Take a new folder, or one that an earlier start with the same options made.

    Raises:
        InputError: The folder holds something else, or began with other options.
    """
    noted = folder / OPTIONS
    if noted.exists():
        then = json.loads(noted.read_text())
        if then != options:
            raise InputError(
                f"A quick start must continue with its first options ({folder})",
                f"{options}, where it began with {then}",
                "Give the same options again, or another folder with --output",
            )
    elif folder.exists() and any(folder.iterdir()):
        raise InputError(
            "--output must be a new folder or one of an earlier quick start",
            f"{folder}, which holds something else",
            "Name another one",
        )
    folder.mkdir(parents=True, exist_ok=True)
    whole(noted, json.dumps(options))


def done(path: pathlib.Path, what: str) -> bool:
    """Return whether a stage's last file is there, and print that it is."""
    if path.exists():
        print(f"{what}: done before, {near(path)}")
    return path.exists()
