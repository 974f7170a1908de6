"""Bad input, told with file and line.

A problem stops the run, or is counted and written down; nothing is skipped in silence.
"""

import collections
import dataclasses
import io
import pathlib
import sys

from tqdm import tqdm

from electra_tf.errors import InputError

_GO_ON = ", or go on and count such places with --on_error=report"


@dataclasses.dataclass(frozen=True, slots=True)
class DataError:
    """One piece of bad input."""

    source: str
    line: int
    """From 1; 0 where the whole file is meant."""
    kind: str
    """What `problems` of the manifest counts by."""
    detail: str
    """What was found and, in a run that goes on, what was done about it."""
    remedy: str

    def __str__(self) -> str:
        place = f"{self.source}:{self.line}" if self.line else self.source
        return f"{place}: {self.kind}: {self.detail}"


class DataErrorLog:
    """Stops at the first problem, or counts all and writes them to a file.

    Args:
        on_error: `stop` or `report`.
        path: Where `report` writes one line for each problem; empty where a command
            cannot go on.
        rule: What a problem breaks.
    """

    def __init__(
        self,
        on_error: str,
        path: str | pathlib.Path,
        rule: str = "The input is readable UTF-8 text",
    ):
        self.counts: collections.Counter[str] = collections.Counter()
        self._stop, self._rule = on_error == "stop", rule
        self._path, self._can_go_on = pathlib.Path(path), bool(str(path))
        self._file: io.TextIOBase | None = None

    def add(self, problem: DataError) -> None:
        """Takes note of a problem.

        Raises:
            InputError: The run is to stop at the first one.
        """
        if self._stop:
            raise InputError(
                self._rule,
                str(problem),
                problem.remedy + (_GO_ON if self._can_go_on else ""),
            )
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("w", encoding="utf-8", errors="replace")
        print(problem, file=self._file)
        if not self.counts[problem.kind]:
            tqdm.write(f"problem: {problem}", file=sys.stderr)  # beside a progress bar
        self.counts[problem.kind] += 1

    def close(self) -> None:
        """Finishes the file of problems, if there is one."""
        if self._file is not None:
            self._file.close()
