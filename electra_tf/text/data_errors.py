"""Errors in input data, and dropped documents, reported with file and line.

An error stops the run, or is counted and listed in a file; none is ignored.
"""

import collections
import io
import pathlib
import sys

from tqdm import tqdm

from electra_tf.errors import InputError

_REPORT_HINT = ", or pass --on_error=report to list such errors and continue"


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

    def add(self, source: str, line: int, kind: str, detail: str, remedy: str) -> None:
        """Count an error and write it to the file.

        Errors are counted by `kind`. `line` is a number from 1, or 0 for the whole
        source.
        """
        place = f"{source}:{line}" if line else source
        text = f"{place}: {kind}: {detail}"
        if self._stop:
            hint = _REPORT_HINT if self._can_report else ""
            raise InputError(self._rule, text, remedy + hint)
        if self._prints and not self.counts[kind]:
            # tqdm.write leaves a progress bar intact.
            tqdm.write(f"problem: {text}", file=sys.stderr)
        self.write(text, kind)

    def write(self, text: str, kind: str) -> None:
        """Count a line and write it to the file."""
        print(text, file=self._open())
        self.counts[kind] += 1

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
