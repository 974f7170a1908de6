"""Log metrics to metrics.jsonl, TensorBoard and a progress line."""

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

from electra_tf import compat, durable_files
from electra_tf.errors import InputError
from electra_tf.training.disk_errors import reraise_full_disk

METRICS = "metrics.jsonl"
TENSORBOARD = "tensorboard"
TRAIN, EVALUATION = "train", "evaluation"
_PROGRESS_FORMATS = {
    "loss": ("loss {}", ".2f"),
    "masked_lm_accuracy": ("masked_lm_accuracy {}", ".3f"),
    "disc_auc": ("disc_auc {}", ".3f"),
    "learning_rate": ("learning_rate {}", ".2e"),
    "gradient_norm": ("gradient_norm {}", ".2f"),
    "tokens_per_second": ("{} tokens/s", ",.0f"),
}
# Left out on a terminal, whose lines are short.
_HIDDEN = {"learning_rate", "gradient_norm", "seconds_left"}


class MetricLogger:
    """Logger that writes metrics to the run directory and to standard error.

    A resumed run repeats the steps after its checkpoint. Their lines are removed from
    metrics.jsonl, and TensorBoard drops their points, so each step is logged once.
    """

    def __init__(self, folder: str, steps: int, resumed_at: int):
        pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
        path = pathlib.Path(folder, METRICS)
        lines, removed = list(_lines(path)), 0
        if path.exists():
            kept = [raw for raw, line in lines if line["step"] <= resumed_at]
            removed = len(lines) - len(kept)
            durable_files.write(path, b"".join(kept))
        self._metrics = path.open("a", encoding="utf-8")
        durable_files.sync_folder(folder)
        self._folder, self._resumed_at = folder, resumed_at
        self._writers: dict[str, tf.summary.SummaryWriter] = {}
        self._progress = _Progress(steps, resumed_at)
        if removed:
            self.log(
                f"removed {removed} lines of {METRICS} after step {resumed_at:,}: the "
                "run repeats these steps"
            )

    def __enter__(self) -> "MetricLogger":
        return self

    def __exit__(self, *_) -> None:
        """End the progress line and close the files."""
        self._progress.close()
        self._metrics.close()
        for writer in self._writers.values():
            writer.close()

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

    def _write(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        finite = {
            name: float(value) for name, value in values.items() if math.isfinite(value)
        }
        line = {"step": step, "kind": kind, "time": time.time()}
        line |= {name: finite.get(name) for name in values}
        self._metrics.write(json.dumps(line, allow_nan=False) + "\n")
        self._metrics.flush()
        with reraise_full_disk(self._folder, "free space, then resume the run"):
            writer = self._writer(kind)
            with writer.as_default(step):
                for name, value in finite.items():
                    tf.summary.scalar(name, value)
            writer.flush()

    def _writer(self, kind: str) -> tf.summary.SummaryWriter:
        """Return the writer of a kind, whose file begins with a session start.

        There TensorBoard drops the folder's points from that step on, which a killed
        run logged and the resumed run logs again.
        """
        if kind not in self._writers:
            folder = os.path.join(self._folder, TENSORBOARD, kind)
            self._writers[kind] = writer = tf.summary.create_file_writer(folder)
            start = tf.compat.v1.SessionLog(status=tf.compat.v1.SessionLog.START)
            event = tf.compat.v1.Event(
                wall_time=time.time(), step=self._resumed_at + 1, session_log=start
            )
            tf.raw_ops.ImportEvent(
                writer=compat.summary_resource(writer), event=event.SerializeToString()
            )
        return self._writers[kind]


def read_metrics(folder: str) -> list[dict[str, Any]]:
    """Read the lines that `MetricLogger` wrote."""
    return [
        {name: math.nan if value is None else value for name, value in line.items()}
        for _, line in _lines(pathlib.Path(folder, METRICS))
    ]


def _lines(path: pathlib.Path) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """Yield each complete line, raw and parsed; a killed run may leave another one."""
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    for number, line in enumerate(lines, start=1):
        try:
            parsed = json.loads(line)
            is_valid = isinstance(parsed["step"], int) and "kind" in parsed
        except (ValueError, KeyError, TypeError):
            is_valid = False
        if not is_valid:
            raise InputError(f"{path}, line {number} is damaged: {line[:80]!r}")
        yield line + b"\n", parsed


class _Progress:
    """Progress on standard error: a bar on a terminal, else one line for each log."""

    def __init__(self, steps: int, resumed_at: int):
        self._line, self._stream = _progress_line(resumed_at, steps, {}), sys.stderr
        is_terminal = sys.stderr.isatty()
        self._bar = tqdm(
            total=steps,
            initial=resumed_at,
            desc=self._line,
            file=sys.stderr,
            disable=not is_terminal,
            # The bar is last, because a narrow terminal cuts the end of the line.
            bar_format="{desc}  |{bar}|",
            # Follow terminal resizes, except in containers that report a size of 0,
            # where tqdm would print nothing.
            dynamic_ncols=is_terminal
            and min(os.get_terminal_size(sys.stderr.fileno())) > 0,
            nrows=20,
        )
        self.close = self._bar.close

    def show(self, step: int, values: Mapping[str, float]) -> None:
        if self._bar.disable:
            self.log(_progress_line(step, self._bar.total, values))
            return
        hidden = _HIDDEN | ({"masked_lm_accuracy"} if "disc_auc" in values else set())
        shown = {name: value for name, value in values.items() if name not in hidden}
        self._bar.n = step
        line = _progress_line(step, self._bar.total, shown).removeprefix("step ")
        # The time left is first, so that a narrow terminal does not cut it.
        left = _duration(values.get("seconds_left", math.nan))
        self._line = f"{left} left  {line}"
        self._bar.set_description_str(self._line)

    def log(self, text: str) -> None:
        if not self._bar.disable:
            self._bar.set_description_str(self._line, refresh=False)
        tqdm.write(text, file=self._stream)
        self._stream.flush()

    def set_status(self, status: str) -> None:
        if self._bar.disable:
            self.log(status)
        else:
            self._bar.set_description_str(f"{status} ...")


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


def _number(value: float, spec: str) -> str:
    return format(value, spec) if math.isfinite(value) else "-"


def _duration(seconds: float) -> str:
    if not math.isfinite(seconds):
        return "-"
    minutes, second = divmod(round(max(0, seconds)), 60)
    return f"{minutes // 60:02d}:{minutes % 60:02d}:{second:02d}"
