"""Errors in input data, with file and line: stop at the first, or list them all."""

import collections
import io
import pathlib
import sys

from tqdm import tqdm

from electra_tf.errors import InputError


def data_error(
    source: str, line: int, kind: str, detail: str, *remedies: str
) -> InputError:
    """Return the error of a line of a file; 0: of the whole file."""
    text = f"{_place(source, line)}: {kind}: {detail}"
    remedy = ", or ".join(r[:1].lower() + r[1:] for r in remedies if r)
    return InputError(f"{text}; {remedy}" if remedy else text)


def _place(source: str, line: int) -> str:
    return f"{source}:{line}" if line else source


class DataErrorLog:
    """Log of data errors: stop at the first, or count and list all of them.

    Args:
        on_error: `stop` or `report`.
        path: File of the list; empty: the command has no flag --on_error.
        prints: Whether the first error of each kind is printed.
    """

    def __init__(
        self,
        on_error: str,
        path: str | pathlib.Path = "",
        prints: bool = True,
    ):
        self.counts: collections.Counter[str] = collections.Counter()
        self._stop, self._prints = on_error == "stop", prints
        self._path = path and pathlib.Path(path)
        self._file: io.TextIOBase | None = None

    def add(
        self,
        source: str,
        line: int,
        kind: str,
        detail: str,
        remedy: str = "",
    ) -> None:
        """Count an error and write it to the file.

        Errors are counted by `kind`. `line` is a number from 1, or 0 for the whole
        source.
        """
        if self._stop:
            report = "pass --on_error=report to leave such rows out and list them"
            more = [remedy, report] if self._path else [remedy]
            raise data_error(source, line, kind, detail, *more)
        text = f"{_place(source, line)}: {kind}: {detail}"
        if self._prints and not self.counts[kind]:
            # tqdm.write leaves a progress bar intact.
            tqdm.write(f"problem: {text}", file=sys.stderr)
        self.write(text, kind)

    def write(self, text: str, kind: str) -> None:
        """Count a line and write it to the file."""
        if self._path:
            print(text, file=self._open())
        self.counts[kind] += 1

    def _open(self) -> io.TextIOBase:
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("w", encoding="utf-8", errors="replace")
        return self._file

    def close(self) -> None:
        """Close the file of errors, if one was written."""
        if self._file is not None:
            self._file.close()
