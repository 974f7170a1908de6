"""Log metrics to metrics.jsonl, TensorBoard and a progress line."""

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

from electra_tf import durable_files
from electra_tf.errors import InputError

_MAX_LINE = 1 << 24  # bytes
METRICS = "metrics.jsonl"
TENSORBOARD = "tensorboard"
TRAIN, EVALUATION = "train", "evaluation"


class MetricLogger:
    """Logger that writes metrics to the run directory and to standard error.

    A resumed run repeats the steps after its checkpoint. Their lines are removed from
    metrics.jsonl, and TensorBoard drops their points, so each step is logged once.
    """

    def __init__(self, folder: str, *, steps: int, resumed_at: int):
        pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
        path = pathlib.Path(folder, METRICS)
        removed_lines = _remove_later(path, resumed_at)
        self._metrics = path.open("a", encoding="utf-8")
        durable_files.sync_folder(folder)
        self._events = {
            kind: _Events(pathlib.Path(folder, TENSORBOARD, kind), resumed_at)
            for kind in (TRAIN, EVALUATION)
        }
        is_terminal = sys.stderr.isatty()
        self._progress = (
            _ProgressBar(steps, resumed_at) if is_terminal else _ProgressLines(steps)
        )
        if removed_lines:
            self.log(
                f"removed {removed_lines} lines of {METRICS} after step "
                f"{resumed_at:,}: the run repeats these steps"
            )

    def __enter__(self) -> "MetricLogger":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def train(self, step: int, values: Mapping[str, float]) -> None:
        """Log training metrics and update the progress."""
        self._write(TRAIN, step, values)
        self._progress.show(step, values)

    def evaluation(self, step: int, values: Mapping[str, float]) -> None:
        """Log metrics on held-out records and print them in one line."""
        self._write(EVALUATION, step, values)
        texts = (f"{name} {_number(value, '.4f')}" for name, value in values.items())
        self.log(f"evaluation at step {step:,}  {'  '.join(texts)}")

    def sync(self) -> None:
        """Flush metrics.jsonl to disk, so that a power cut does not lose its lines."""
        os.fsync(self._metrics.fileno())

    def log(self, text: str) -> None:
        """Print a line above the progress."""
        self._progress.log(text)

    def set_status(self, status: str) -> None:
        """Show the current slow operation, on a terminal until the next log."""
        self._progress.set_status(status)

    def close(self) -> None:
        """End the progress line and close the files; a second call does nothing."""
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
    """Read the lines that `MetricLogger` wrote."""
    return [
        {name: math.nan if value is None else value for name, value in line.items()}
        for _, line in _lines(pathlib.Path(folder, METRICS))
    ]


def _lines(path: pathlib.Path) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """Yield each complete line, raw and parsed."""
    if not path.exists():
        return
    with path.open("rb") as file:
        number = 0
        while line := file.readline(_MAX_LINE):
            number += 1
            if not line.endswith(b"\n") and len(line) < _MAX_LINE:
                return  # an incomplete line of a killed run
            line = line.removesuffix(b"\n")
            yield line, _parse(line, f"{path}, line {number}")


def _parse(line: bytes, place: str) -> dict[str, Any]:
    try:
        parsed = json.loads(line)
        is_valid = isinstance(parsed["step"], int) and isinstance(parsed["kind"], str)
    except (ValueError, KeyError, TypeError, RecursionError):
        is_valid = False
    if not is_valid:
        raise InputError(
            f"Each line of {METRICS} must be a JSON object with `step` and `kind`",
            f"{place}: {line[:80].decode(errors='replace')!r}",
            "Delete the line, or move the file away to start a new one",
        )
    return parsed


def _remove_later(path: pathlib.Path, step: int) -> int:
    """Remove lines after a step atomically and return their number."""
    lines = list(_lines(path))
    kept_data = b"".join(raw + b"\n" for raw, line in lines if line["step"] <= step)
    if path.exists():
        durable_files.write(path, kept_data)
    return sum(line["step"] > step for _, line in lines)


class _Events:
    """TensorBoard file, created with its first point.

    It is a TFRecord file of `Event` messages. Unlike the files of `tf.summary`, it
    begins with a session start. There TensorBoard drops the folder's points from that
    step on, which a killed run logged and the resumed run logs again.
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
        with self._reraise_write_errors():
            if self._file is None:
                self._begin(now)
            self._add(tf.compat.v1.Event(wall_time=now, step=step, summary=summary))
            self._file.flush()

    def close(self) -> None:
        if self._file is not None:
            with self._reraise_write_errors():
                self._file.close()

    @contextlib.contextmanager
    def _reraise_write_errors(self) -> Iterator[None]:
        """Raise TensorFlow's write errors, such as a full disk, as OSError."""
        try:
            yield
        except tf.errors.OpError as error:
            raise OSError(f"{self._folder}: {error.message}") from error

    def _begin(self, now: float) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        # TensorBoard reads the files of a folder in name order.
        path = self._folder / f"events.out.tfevents.{time.time_ns()}"
        self._file = tf.io.TFRecordWriter(str(path))
        self._add(tf.compat.v1.Event(wall_time=now, file_version="brain.Event:2"))
        start = tf.compat.v1.SessionLog(status=tf.compat.v1.SessionLog.START)
        first = self._first_step
        self._add(tf.compat.v1.Event(wall_time=now, step=first, session_log=start))

    def _add(self, event: tf.compat.v1.Event) -> None:
        self._file.write(event.SerializeToString())


class _ProgressLines:
    """Progress as one plain line for each log, for a file or a pipe."""

    def __init__(self, steps: int):
        self._steps, self._stream = steps, sys.stderr

    def show(self, step: int, values: Mapping[str, float]) -> None:
        self.log(_progress_line(step, self._steps, values))

    def log(self, text: str) -> None:
        print(text, file=self._stream, flush=True)

    def set_status(self, status: str) -> None:
        self.log(status)

    def close(self) -> None:
        pass


class _ProgressBar:
    """Progress as one line that each log redraws, for a terminal."""

    def __init__(self, steps: int, resumed_at: int):
        self._line = _progress_line(resumed_at, steps, {})
        self._bar = tqdm(
            total=steps,
            initial=resumed_at,
            desc=self._line,
            file=sys.stderr,
            # The bar is last, because a narrow terminal cuts the end of the line.
            bar_format="{desc}  |{bar}|",
            # Follow terminal resizes, except in containers that report a size of 0,
            # where tqdm would print nothing.
            dynamic_ncols=min(os.get_terminal_size(sys.stderr.fileno())) > 0,
            nrows=20,
        )

    def show(self, step: int, values: Mapping[str, float]) -> None:
        hidden = {"learning_rate", "gradient_norm", "share_of_peak", "seconds_left"}
        if "disc_auc" in values:
            hidden.add("masked_lm_accuracy")
        shown = {name: value for name, value in values.items() if name not in hidden}
        self._bar.n = step
        line = _progress_line(step, self._bar.total, shown).removeprefix("step ")
        # The time left is first, so that a narrow terminal does not cut it.
        left = _duration(values.get("seconds_left", math.nan))
        self._line = f"{left} left  {line}"
        self._bar.set_description_str(self._line)

    def log(self, text: str) -> None:
        self._bar.set_description_str(self._line, refresh=False)
        self._bar.write(text, file=self._bar.fp)

    def set_status(self, status: str) -> None:
        self._bar.set_description_str(f"{status} ...")

    def close(self) -> None:
        self._bar.close()


def _progress_line(step: int, steps: int, values: Mapping[str, float]) -> str:
    """Return the progress line with the numbers in `values`."""
    texts = [f"step {step:,}/{steps:,}"]
    texts += (
        template.format(_number(values[name], spec))
        for name, (template, spec) in _PROGRESS_FORMATS.items()
        if name in values
    )
    if "seconds_left" in values:
        texts.append(f"{_duration(values['seconds_left'])} left")
    return "  ".join(texts)


_PROGRESS_FORMATS = {
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


def _duration(seconds: float) -> str:
    if not math.isfinite(seconds):
        return "-"
    minutes, second = divmod(round(max(0, seconds)), 60)
    return f"{minutes // 60:02d}:{minutes % 60:02d}:{second:02d}"
