import fcntl
import math
import os
import struct
import sys
import termios
import time

import numpy as np
import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.plugin_event_accumulator import (
    EventAccumulator,
)

from electra_tf.errors import InputError
from electra_tf.training.metric_logger import MetricLogger, read_metrics

NAN = math.nan
VALUES = {
    "loss": 24.314,
    "masked_lm_loss": 6.9,
    "masked_lm_accuracy": 0.1234,
    "disc_auc": 0.7125,
    "disc_precision": NAN,
    "learning_rate": 5e-4,
    "gradient_norm": 1.5,
    "tokens_per_second": 12345.4,
    "seconds_left": 751.0,
}


@pytest.fixture
def clock(monkeypatch):
    """Make time.time() return 1000.5."""
    monkeypatch.setattr("electra_tf.training.metric_logger.time.time", lambda: 1000.5)


def make_logger(folder, resumed_at=0):
    return MetricLogger(str(folder), steps=20_000, resumed_at=resumed_at)


def run(folder, first, last, resumed_at=0):
    """Log each step from `first` to `last`, and an evaluation at every third step."""
    with make_logger(folder, resumed_at) as logger:
        for step in range(first, last + 1):
            # TensorBoard gets no point of a value that is not finite.
            logger.train(step, {"loss": step / 4, "disc_precision": NAN})
            if step % 3 == 0:
                logger.evaluation(step, {"disc_auc": step / 8, "loss": math.inf})


def steps(folder):
    return [(line["step"], line["kind"]) for line in read_metrics(str(folder))]


def points(folder, kind):
    """Return (tag, step, value) of the points that TensorBoard shows."""
    events = EventAccumulator(str(folder / "tensorboard" / kind)).Reload()
    return [
        (tag, event.step, float(tf.make_ndarray(event.tensor_proto)))
        for tag in sorted(events.Tags()["tensors"], reverse=True)
        for event in events.Tensors(tag)
    ]


def test_each_log_is_one_line_of_the_file(tmp_path, clock):
    with make_logger(tmp_path / "new" / "run") as logger:
        logger.train(100, {"loss": 24.5, "disc_precision": NAN, "learning_rate": 5e-4})
        logger.evaluation(100, {"disc_auc": np.float32(0.75), "loss": math.inf})
        # Each log is flushed.
        assert (tmp_path / "new" / "run" / "metrics.jsonl").read_text() == (
            '{"step": 100, "kind": "train", "time": 1000.5, "loss": 24.5, '
            '"disc_precision": null, "learning_rate": 0.0005}\n'
            '{"step": 100, "kind": "evaluation", "time": 1000.5, "disc_auc": 0.75, '
            '"loss": null}\n'
        )
    first, _ = read_metrics(str(tmp_path / "new" / "run"))
    assert math.isnan(first.pop("disc_precision"))
    expected = {"step": 100, "kind": "train", "time": 1000.5, "loss": 24.5}
    assert first == {**expected, "learning_rate": 5e-4}
    assert read_metrics(str(tmp_path / "missing")) == []


def test_a_resumed_run_logs_each_step_once(tmp_path, capsys):
    run(tmp_path / "uninterrupted", 1, 12)
    run(tmp_path / "killed", 1, 9)
    capsys.readouterr()
    time.sleep(1.01)  # files are read in the order of their names, which have seconds
    run(tmp_path / "killed", 6, 12, resumed_at=5)
    assert "removed 6 lines of metrics.jsonl after step 5" in capsys.readouterr().err
    assert len(steps(tmp_path / "killed")) == 12 + 4
    assert steps(tmp_path / "killed") == steps(tmp_path / "uninterrupted")
    expected = [("loss", n, n / 4) for n in range(1, 13)]
    assert points(tmp_path / "killed", "train") == expected
    expected = [("disc_auc", n, n / 8) for n in (3, 6, 9, 12)]
    assert points(tmp_path / "killed", "evaluation") == expected


@pytest.mark.parametrize("rest", [b'{"step": 6, "ki', b"\0\0\0", b"\xff", b"{"])
def test_an_incomplete_last_line_is_removed(tmp_path, rest):
    path = tmp_path / "metrics.jsonl"
    lines = b'{"kind":"train",  "step":4, "old": 1e0}\n{"step": 5, "kind": "train"}\n'
    path.write_bytes(lines + rest)
    assert steps(tmp_path) == [(4, "train"), (5, "train")]
    with make_logger(tmp_path, resumed_at=6):
        pass
    assert path.read_bytes() == lines


@pytest.mark.parametrize(
    "line",
    [b"{", b"", b"\xff\xfe", b"[5]", b'{"step": 5}', b'{"step": 5.5, "kind":""}'],
)
def test_a_damaged_complete_line_is_an_error(tmp_path, line):
    path = tmp_path / "metrics.jsonl"
    good = b'{"step": 5, "kind": "train"}\n'
    path.write_bytes(good + line + b"\n" + good)
    with pytest.raises(InputError, match=r"metrics\.jsonl, line 2 is damaged"):
        make_logger(tmp_path, resumed_at=5)
    with pytest.raises(InputError, match=r"metrics\.jsonl, line 2 is damaged"):
        read_metrics(str(tmp_path))
    assert path.read_bytes() == good + line + b"\n" + good


def test_without_a_terminal_each_log_is_a_plain_line(tmp_path, capsys):
    with make_logger(tmp_path) as logger:
        logger.set_status("compiling")
        logger.train(1000, VALUES)
        logger.log("a word")
        logger.evaluation(1000, {"masked_lm_loss": 6.88824, "disc_precision": NAN})
        logger.train(2000, dict.fromkeys(VALUES, NAN))
        logger.train(3000, {"loss": 2.0, "seconds_left": 360_000.6})
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "compiling",
        "step 1,000/20,000  loss 24.31  masked_lm_accuracy 0.123  disc_auc 0.713  "
        "learning_rate 5.00e-04  gradient_norm 1.50  12,345 tokens/s  00:12:31 "
        "left",
        "a word",
        "evaluation at step 1,000  masked_lm_loss 6.8882  disc_precision -",
        "step 2,000/20,000  loss -  masked_lm_accuracy -  disc_auc -  "
        "learning_rate -  gradient_norm -  - tokens/s  - left",
        "step 3,000/20,000  loss 2.00  100:00:01 left",
    ]


def terminal_output(monkeypatch, rows, columns, log):
    """Call `log` with a terminal as standard error and return its output."""
    reader, terminal = os.openpty()
    size = struct.pack("HHHH", rows, columns, 0, 0)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, size)
    with monkeypatch.context() as patch, os.fdopen(terminal, "w") as stream:
        patch.setattr(sys, "stderr", stream)
        log()
        stream.flush()
        output = os.read(reader, 100_000)
        os.set_blocking(reader, False)
        while True:
            try:
                output += os.read(reader, 100_000)
            except BlockingIOError:
                break
    os.close(reader)
    return output.decode()


@pytest.mark.parametrize(("rows", "columns"), [(24, 80), (0, 0)])
def test_a_terminal_shows_one_updated_line(tmp_path, monkeypatch, rows, columns):
    loggers = []

    def log():
        with MetricLogger(str(tmp_path), steps=1_000_000, resumed_at=400_000) as logger:
            loggers.append(logger)  # or garbage collection would close the bar again
            logger.train(500_000, VALUES | {"tokens_per_second": 9e5})
            logger.log("a word")
            logger.set_status("measuring")
            logger.evaluation(500_000, {"disc_auc": 0.5})
            values = {k: v for k, v in VALUES.items() if k != "disc_auc"}
            logger.train(600_000, values | {"loss": 6.9, "masked_lm_accuracy": NAN})

    output = terminal_output(monkeypatch, rows, columns, log)
    assert output.endswith("\n")
    lines = [line for line in output.split("\r") if line.strip()]
    shown = [line.split("|")[0].rstrip() for line in lines]
    first = (
        "00:12:31 left  500,000/1,000,000  loss 24.31  disc_auc 0.713  900,000 tokens/s"
    )
    last = (
        "00:12:31 left  600,000/1,000,000  loss 6.90  masked_lm_accuracy -  "
        "12,345 tokens/s"
    )
    assert [text for i, text in enumerate(shown) if text != shown[i - 1]] == [
        "step 400,000/1,000,000",
        first,
        "a word",
        first,
        "measuring ...",
        "evaluation at step 500,000  disc_auc 0.5000",
        first,
        last[: columns - 1] if columns else last,
    ]
    assert all(len(line) < columns for line in lines) or not columns
