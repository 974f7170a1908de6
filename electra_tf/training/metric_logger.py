"""What a run tells while it trains: metrics.jsonl, TensorBoard, a line of progress."""

import contextlib
import json
import math
import os
import pathlib
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf
from tqdm import tqdm

from electra_tf.errors import InputError

METRICS = "metrics.jsonl"
TENSORBOARD = "tensorboard"
TRAIN, EVALUATION = "train", "evaluation"


class MetricLogger:
    """Writes the numbers of a run to its folder and shows them on standard error.

    A run that was killed and goes on tells each step once: what a resumed run will
    report anew is removed from the file, and TensorBoard is told to drop it.

    Args:
        folder: The run's folder; made if missing.
        steps: Steps of the whole training.
        resumed_at: Step of the checkpoint the run goes on from; 0 for a fresh run.
        quiet: Show nothing; the files are written all the same.

    Raises:
        InputError: A line of an earlier metrics.jsonl that is damaged.
    """

    def __init__(
        self, folder: str, *, steps: int, resumed_at: int, quiet: bool = False
    ):
        pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
        path = pathlib.Path(folder, METRICS)
        forgotten = _forget_later(path, resumed_at)
        self._metrics = path.open("a", encoding="utf-8")
        self._events = {
            kind: _Events(pathlib.Path(folder, TENSORBOARD, kind), resumed_at)
            for kind in (TRAIN, EVALUATION)
        }
        self._progress = _Quiet() if quiet else _progress(steps, resumed_at)
        if forgotten:
            self.log(
                f"{forgotten} lines of {METRICS} from after step {resumed_at:,} are "
                "taken out: no checkpoint holds those steps, they are done again"
            )

    def __enter__(self) -> "MetricLogger":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def train(self, step: int, values: Mapping[str, float]) -> None:
        """Reports a log of training and moves the progress on.

        Args:
            step: Steps done so far.
            values: Numbers by name. One that is not finite has no meaning here (a
                metric of weight zero): null in the file, no point in TensorBoard.
        """
        self._write(TRAIN, step, values)
        self._progress.show(step, values)

    def evaluation(self, step: int, values: Mapping[str, float]) -> None:
        """Reports the metrics on held-out records and prints a line with all of them.

        Args:
            step: Steps done so far.
            values: Numbers by name, as for `train`.
        """
        self._write(EVALUATION, step, values)
        told = (f"{name} {_number(value, '.4f')}" for name, value in values.items())
        self.log(f"evaluation at step {step:,}  {'  '.join(told)}")

    def log(self, text: str) -> None:
        """Prints a line without tearing the progress.

        Args:
            text: What to print.
        """
        self._progress.log(text)

    def set_status(self, what: str) -> None:
        """Says what takes a while now: on a terminal, until there is more to show.

        Args:
            what: What is being done.
        """
        self._progress.set_status(what)

    def close(self) -> None:
        """Ends the line of progress and closes the files; twice does no harm."""
        self._progress.close()
        self._metrics.close()
        for events in self._events.values():
            events.close()

    def _write(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        now = time.time()
        finite = {
            name: float(value) for name, value in values.items() if math.isfinite(value)
        }
        line = {"step": step, "kind": kind, "time": now}
        line |= {name: finite.get(name) for name in values}
        self._metrics.write(json.dumps(line, allow_nan=False) + "\n")
        self._metrics.flush()
        self._events[kind].write(step, now, finite)


def read_metrics(folder: str) -> list[dict[str, Any]]:
    """Reads back what `Reports` wrote, to plot it or to feed a health check again.

    Args:
        folder: The run's folder.

    Returns:
        A mapping for each line, in order: `step`, `kind` (`train` or `evaluation`),
        `time` and the numbers, null as NaN. Empty without a file. A last line that
        was only half written is left out.

    Raises:
        InputError: Another line that is damaged.
    """
    return [
        {name: math.nan if value is None else value for name, value in line.items()}
        for _, line in _lines(pathlib.Path(folder, METRICS))
    ]


def _lines(path: pathlib.Path) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """Each whole line, as it stands there and parsed."""
    data = path.read_bytes() if path.exists() else b""
    # What follows the last newline was being written when the run was killed.
    for number, line in enumerate(data.split(b"\n")[:-1], 1):
        try:
            parsed = json.loads(line)
            whole = isinstance(parsed["step"], int) and isinstance(parsed["kind"], str)
        except (ValueError, KeyError, TypeError):
            whole = False
        if not whole:
            raise InputError(
                f"Each line of {METRICS} is a JSON object with a step and a kind",
                f"{path}, line {number}: {line[:80].decode(errors='replace')!r}",
                "Delete that line, or move the file away to begin a new one",
            )
        yield line, parsed


def _forget_later(path: pathlib.Path, step: int) -> int:
    """Removes lines beyond a step, and half a one, all or none; tells how many."""
    lines = list(_lines(path))
    kept = b"".join(raw + b"\n" for raw, line in lines if line["step"] <= step)
    if path.exists():
        fresh = path.with_name(f"{path.name}.new")
        fresh.write_bytes(kept)
        os.replace(fresh, path)
    return sum(line["step"] > step for _, line in lines)


class _Events:
    """A file for TensorBoard, begun with its first point: an empty run is no run.

    Such a file is a TFRecord file of `Event` messages. `tf.summary` writes the same
    but for the start of a session, at which TensorBoard drops the points of the same
    folder from that step on: those that a killed run reported and this one repeats.
    """

    def __init__(self, folder: pathlib.Path, resumed_at: int):
        self._folder, self._first_step = folder, resumed_at + 1
        self._file: tf.io.TFRecordWriter | None = None

    def write(self, step: int, now: float, values: Mapping[str, float]) -> None:
        points = [
            tf.compat.v1.Summary.Value(tag=name, simple_value=value)
            for name, value in values.items()
        ]
        summary = tf.compat.v1.Summary(value=points)
        with self._explaining():
            if self._file is None:
                self._begin(now)
            self._add(tf.compat.v1.Event(wall_time=now, step=step, summary=summary))
            self._file.flush()

    def close(self) -> None:
        if self._file is not None:
            with self._explaining():
                self._file.close()

    @contextlib.contextmanager
    def _explaining(self) -> Iterator[None]:
        """A full disk under the name it has everywhere else."""
        try:
            yield
        except tf.errors.OpError as error:
            raise OSError(f"{self._folder}: {error.message}") from error

    def _begin(self, now: float) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        # TensorBoard reads a folder's files in the order of their names.
        path = self._folder / f"events.out.tfevents.{time.time_ns()}"
        self._file = tf.io.TFRecordWriter(str(path))
        self._add(tf.compat.v1.Event(wall_time=now, file_version="brain.Event:2"))
        start = tf.compat.v1.SessionLog(status=tf.compat.v1.SessionLog.START)
        first = self._first_step
        self._add(tf.compat.v1.Event(wall_time=now, step=first, session_log=start))

    def _add(self, event: tf.compat.v1.Event) -> None:
        self._file.write(event.SerializeToString())


class _Quiet:
    """The progress of a quiet run: none. The other kinds have the same methods."""

    def show(self, step: int, values: Mapping[str, float]) -> None:
        pass

    def log(self, text: str) -> None:
        pass

    def set_status(self, what: str) -> None:
        self.log(what)

    def close(self) -> None:
        pass


class _Lines(_Quiet):
    """A plain line for each log, for a file or a pipe."""

    def __init__(self, steps: int):
        self._steps, self._stream = steps, sys.stderr

    def show(self, step: int, values: Mapping[str, float]) -> None:
        self.log(_told(step, self._steps, values))

    def log(self, text: str) -> None:
        print(text, file=self._stream, flush=True)


class _Bar(_Quiet):
    """One line that is drawn anew with each log, for a terminal."""

    def __init__(self, steps: int, resumed_at: int):
        self._line = _told(resumed_at, steps, {})
        self._bar = tqdm(
            total=steps,
            initial=resumed_at,
            desc=self._line,
            file=sys.stderr,
            # The bar comes last: where the terminal is narrow, it is what gives way.
            bar_format="{desc}  |{bar}|",
            # A long run sees its terminal resized; but some containers say that
            # theirs have no rows, and would get no line.
            dynamic_ncols=min(os.get_terminal_size(sys.stderr.fileno())) > 0,
            nrows=20,
        )

    def show(self, step: int, values: Mapping[str, float]) -> None:
        hidden = {"learning_rate", "gradient_norm", "share_of_peak", "seconds_left"}
        if "disc_auc" in values:
            hidden.add("masked_lm_accuracy")
        shown = {name: value for name, value in values.items() if name not in hidden}
        self._bar.n = step
        told = _told(step, self._bar.total, shown).removeprefix("step ")
        # First what must not be cut off where the terminal is narrow.
        left = _clock(values.get("seconds_left", math.nan))
        self._line = f"{left} left  {told}"
        self._bar.set_description_str(self._line)

    def log(self, text: str) -> None:
        self._bar.set_description_str(self._line, refresh=False)
        self._bar.write(text, file=self._bar.fp)

    def set_status(self, what: str) -> None:
        self._bar.set_description_str(f"{what} ...")

    def close(self) -> None:
        self._bar.close()


def _progress(steps: int, resumed_at: int) -> _Quiet:
    return _Bar(steps, resumed_at) if sys.stderr.isatty() else _Lines(steps)


def _told(step: int, steps: int, values: Mapping[str, float]) -> str:
    """The line of progress, with those of the numbers that are there."""
    parts = [f"step {step:,}/{steps:,}"]
    parts += (
        form.format(_number(values[name], spec))
        for name, (form, spec) in _PARTS.items()
        if name in values
    )
    if "seconds_left" in values:
        parts.append(f"{_clock(values['seconds_left'])} left")
    return "  ".join(parts)


_PARTS = {
    "loss": ("loss {}", ".2f"),
    "masked_lm_accuracy": ("masked_lm_accuracy {}", ".3f"),
    "disc_auc": ("disc_auc {}", ".3f"),
    "learning_rate": ("learning_rate {}", ".2e"),
    "gradient_norm": ("gradient_norm {}", ".2f"),
    "tokens_per_second": ("{} tokens/s", ",.0f"),
    "share_of_peak": ("{} of peak", ".1%"),
}


def _number(value: float, spec: str) -> str:
    return format(value, spec) if math.isfinite(value) else "-"


def _clock(seconds: float) -> str:
    if not math.isfinite(seconds):
        return "-"
    minutes, second = divmod(round(max(0, seconds)), 60)
    return f"{minutes // 60:02d}:{minutes % 60:02d}:{second:02d}"
