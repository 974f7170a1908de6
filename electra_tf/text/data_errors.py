"""Errors in input data, and dropped documents, reported with file and line.

An error stops the run, or is counted and listed in a file; none is ignored.
"""

import collections
import dataclasses
import io
import pathlib
import sys

from tqdm import tqdm

from electra_tf.errors import InputError

_REPORT_HINT = ", or pass --on_error=report to list such errors and continue"


@dataclasses.dataclass(frozen=True, slots=True)
class DataError:
    """One error in the input data."""

    source: str
    line: int
    """Line number from 1; 0 for an error of the whole file."""
    kind: str
    """Category, by which errors are counted."""
    detail: str
    """Description of the error and of its effect if the run continues."""
    remedy: str
    """How to fix it."""

    def __str__(self) -> str:
        place = f"{self.source}:{self.line}" if self.line else self.source
        return f"{place}: {self.kind}: {self.detail}"


class DataErrorLog:
    """Log of data errors: stop at the first, or count and list all of them."""

    def __init__(
        self,
        on_error: str,
        path: str | pathlib.Path,
        rule: str = "The input must be readable UTF-8 text",
        prints: bool = True,
    ):
        self.counts: collections.Counter[str] = collections.Counter()
        self._stop, self._rule, self._prints = on_error == "stop", rule, prints
        self._path, self._can_report = pathlib.Path(path), bool(str(path))
        self._file: io.TextIOBase | None = None

    def add(self, error: DataError) -> None:
        """Count an error and write it to the file."""
        if self._stop:
            raise InputError(
                self._rule,
                str(error),
                error.remedy + (_REPORT_HINT if self._can_report else ""),
            )
        print(error, file=self._open())
        if self._prints and not self.counts[error.kind]:
            # tqdm.write leaves a progress bar intact.
            tqdm.write(f"problem: {error}", file=sys.stderr)
        self.counts[error.kind] += 1

    def extend(self, text: str, counts: collections.Counter[str]) -> None:
        """Add errors that other processes reported."""
        if text:
            self._open().write(text)
        self.counts.update(counts)

    def _open(self) -> io.TextIOBase:
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("w", encoding="utf-8", errors="replace")
        return self._file

    def close(self) -> None:
        """Close the file of errors, if one was written."""
        if self._file is not None:
            self._file.close()
