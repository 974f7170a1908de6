import fcntl
import json
import math
import os
import struct
import sys
import termios

import numpy as np
import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from electra_tf.errors import InputError
from electra_tf.pretraining.health import HealthCheck
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
    "share_of_peak": 0.4321,
    "seconds_left": 751.0,
}


@pytest.fixture
def clock(monkeypatch):
    """Time stands still at 1,000.5 s."""
    monkeypatch.setattr("electra_tf.training.metric_logger.time.time", lambda: 1000.5)


def quiet(folder, resumed_at=0):
    return MetricLogger(str(folder), steps=20_000, resumed_at=resumed_at, quiet=True)


def run(folder, first, last, resumed_at=0):
    """A log at each step from `first` to `last`, an evaluation at each third."""
    with quiet(folder, resumed_at) as reports:
        for step in range(first, last + 1):
            reports.train(step, {"loss": step / 4})
            if step % 3 == 0:
                reports.evaluation(step, {"disc_auc": step / 8})


def steps(folder):
    return [(line["step"], line["kind"]) for line in read_metrics(str(folder))]


def points(folder, kind):
    """(tag, step, value) as TensorBoard would draw them."""
    found = EventAccumulator(str(folder / "tensorboard" / kind)).Reload()
    return [
        (tag, event.step, event.value)
        for tag in found.Tags()["scalars"]
        for event in found.Scalars(tag)
    ]


def test_the_file_holds_a_line_for_each_report(tmp_path, clock):
    with quiet(tmp_path / "new" / "run") as reports:
        reports.train(100, {"loss": 24.5, "disc_precision": NAN, "learning_rate": 5e-4})
        reports.evaluation(100, {"disc_auc": np.float32(0.75), "loss": math.inf})
        # Whoever looks on finds it there before the end.
        assert (tmp_path / "new" / "run" / "metrics.jsonl").read_text() == (
            '{"step": 100, "kind": "train", "time": 1000.5, "loss": 24.5, '
            '"disc_precision": null, "learning_rate": 0.0005}\n'
            '{"step": 100, "kind": "evaluation", "time": 1000.5, "disc_auc": 0.75, '
            '"loss": null}\n'
        )


def test_what_was_written_is_read_back(tmp_path, clock):
    with quiet(tmp_path) as reports:
        reports.train(7, {"loss": 24.5, "disc_precision": NAN})
    (line,) = read_metrics(str(tmp_path))
    assert math.isnan(line.pop("disc_precision"))
    assert line == {"step": 7, "kind": "train", "time": 1000.5, "loss": 24.5}
    assert read_metrics(str(tmp_path / "nothing")) == []


def test_a_resumed_run_holds_each_step_once(tmp_path):
    run(tmp_path / "whole", 1, 12)
    run(tmp_path / "killed", 1, 9)
    run(tmp_path / "killed", 6, 12, resumed_at=5)
    whole = [(n, "train") for n in range(1, 13)]
    whole += [(n, "evaluation") for n in (3, 6, 9, 12)]
    assert sorted(steps(tmp_path / "killed")) == sorted(whole)
    assert steps(tmp_path / "killed") == steps(tmp_path / "whole")


def test_a_run_that_begins_anew_forgets_all(tmp_path):
    run(tmp_path, 1, 9)
    run(tmp_path, 1, 2)
    assert steps(tmp_path) == [(1, "train"), (2, "train")]


def test_lines_up_to_the_checkpoint_stay_to_the_byte(tmp_path):
    path = tmp_path / "metrics.jsonl"
    kept = b'{"kind":"train",  "step":4, "old": 1e0}\n{"step": 5, "kind": "train"}\n'
    path.write_bytes(kept + b'{"step": 6, "kind": "train"}\n')
    quiet(tmp_path, resumed_at=5).close()
    assert path.read_bytes() == kept
    assert [p.name for p in tmp_path.iterdir()] == ["metrics.jsonl"]


@pytest.mark.parametrize("rest", [b'{"step": 6, "ki', b"\0\0\0", b"\xff", b"{"])
def test_a_half_written_last_line_is_removed(tmp_path, rest):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 5, "kind": "train"}\n' + rest)
    assert steps(tmp_path) == [(5, "train")]
    quiet(tmp_path, resumed_at=6).close()
    assert path.read_bytes() == b'{"step": 5, "kind": "train"}\n'


@pytest.mark.parametrize(
    "line",
    [b"{", b"", b"\xff\xfe", b"[5]", b'{"step": 5}', b'{"step": 5.5, "kind":""}'],
)
def test_a_damaged_line_elsewhere_is_named(tmp_path, line):
    path = tmp_path / "metrics.jsonl"
    good = b'{"step": 5, "kind": "train"}\n'
    path.write_bytes(good + line + b"\n" + good)
    with pytest.raises(InputError, match=r"metrics\.jsonl, line 2: "):
        quiet(tmp_path, resumed_at=5)
    with pytest.raises(InputError, match=r"metrics\.jsonl, line 2: "):
        read_metrics(str(tmp_path))
    assert path.read_bytes() == good + line + b"\n" + good


def test_lines_are_removed_all_at_once_or_not_at_all(tmp_path, monkeypatch):
    run(tmp_path, 1, 9)
    before = (tmp_path / "metrics.jsonl").read_bytes()

    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("electra_tf.training.metric_logger.os.replace", killed)
    with pytest.raises(KeyboardInterrupt):
        quiet(tmp_path, resumed_at=5)
    assert (tmp_path / "metrics.jsonl").read_bytes() == before


def test_tensorboard_finds_the_points(tmp_path):
    with quiet(tmp_path) as reports:
        reports.train(100, {"loss": 24.5, "disc_precision": NAN, "disc_auc": math.inf})
        # Whoever looks on finds it there before the end.
        assert points(tmp_path, "train") == [("loss", 100, 24.5)]
        assert not (tmp_path / "tensorboard" / "evaluation").exists()
        reports.train(200, {"loss": 23.5, "disc_precision": 0.5})
        reports.evaluation(200, {"disc_auc": 0.75})
    assert points(tmp_path, "train") == [
        ("loss", 100, 24.5),
        ("loss", 200, 23.5),
        ("disc_precision", 200, 0.5),
    ]
    assert points(tmp_path, "evaluation") == [("disc_auc", 200, 0.75)]


def test_tensorboard_drops_the_points_that_a_resumed_run_repeats(tmp_path):
    run(tmp_path, 1, 9)
    run(tmp_path, 6, 7, resumed_at=5)
    assert points(tmp_path, "train") == [("loss", n, n / 4) for n in range(1, 8)]
    assert points(tmp_path, "evaluation") == [
        ("disc_auc", n, n / 8) for n in range(3, 7, 3)
    ]
    first, second = sorted((tmp_path / "tensorboard" / "train").iterdir())
    starts = [
        event.step
        for path in (first, second)
        for event in tf.compat.v1.train.summary_iterator(str(path))
        if event.session_log.status == tf.compat.v1.SessionLog.START
    ]
    assert starts == [1, 6]


def test_a_full_disk_is_an_error_of_the_operating_system(tmp_path):
    reports = quiet(tmp_path)
    reports.train(1, {"loss": 1.0})
    reports._events["train"]._file = tf.io.TFRecordWriter("/dev/full")
    with pytest.raises(OSError, match=r"tensorboard/train: .*No space left"):
        reports.train(2, {"loss": 1.0})


def test_lines_that_no_checkpoint_holds_go_with_a_word(tmp_path, capsys):
    run(tmp_path, 1, 3)
    MetricLogger(str(tmp_path), steps=9, resumed_at=2).close()
    told = capsys.readouterr().err
    assert told.startswith("2 lines of metrics.jsonl from after step 2 are taken out")


def test_what_takes_a_while_is_told(tmp_path, capsys):
    with MetricLogger(str(tmp_path), steps=10, resumed_at=0) as reports:
        reports.set_status("compiling")
    assert capsys.readouterr().err == "compiling\n"


def test_off_a_terminal_each_report_is_a_plain_line(tmp_path, capsys):
    with MetricLogger(str(tmp_path), steps=20_000, resumed_at=0) as reports:
        reports.train(1000, VALUES)
        reports.log("a word")
        reports.evaluation(1000, {"masked_lm_loss": 6.88824, "disc_precision": NAN})
        reports.train(2000, dict.fromkeys(VALUES, NAN))
        reports.train(3000, {"loss": 2.0, "seconds_left": 360_000.6})
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "step 1,000/20,000  loss 24.31  masked_lm_accuracy 0.123  disc_auc 0.713  "
        "learning_rate 5.00e-04  gradient_norm 1.50  12,345 tokens/s  43.2% of peak  "
        "00:12:31 left",
        "a word",
        "evaluation at step 1,000  masked_lm_loss 6.8882  disc_precision -",
        "step 2,000/20,000  loss -  masked_lm_accuracy -  disc_auc -  "
        "learning_rate -  gradient_norm -  - tokens/s  - of peak  - left",
        "step 3,000/20,000  loss 2.00  100:00:01 left",
    ]


def test_a_quiet_run_says_nothing(tmp_path, capsys):
    with quiet(tmp_path) as reports:
        reports.train(1, VALUES)
        reports.evaluation(1, VALUES)
        reports.log("a word")
    assert capsys.readouterr() == ("", "")


def on_a_terminal(monkeypatch, rows, columns, tell):
    """All that a terminal of some size is sent."""
    ours, theirs = os.openpty()
    size = struct.pack("HHHH", rows, columns, 0, 0)
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, size)
    with monkeypatch.context() as patch, os.fdopen(theirs, "w") as stream:
        patch.setattr(sys, "stderr", stream)
        tell()
        stream.flush()
        sent = os.read(ours, 100_000)
        os.set_blocking(ours, False)
        while True:
            try:
                sent += os.read(ours, 100_000)
            except BlockingIOError:
                break
    os.close(ours)
    return sent.decode()


@pytest.mark.parametrize(("rows", "columns"), [(24, 80), (24, 200), (0, 0)])
def test_a_terminal_shows_one_living_line(tmp_path, monkeypatch, rows, columns):
    held = []

    def tell():
        with MetricLogger(
            str(tmp_path), steps=1_000_000, resumed_at=400_000
        ) as reports:
            held.append(reports)  # or its end would close it too
            reports.train(500_000, VALUES | {"tokens_per_second": 9e5})
            reports.log("a word")
            reports.set_status("measuring")
            reports.evaluation(500_000, {"disc_auc": 0.5})
            values = {k: v for k, v in VALUES.items() if k != "disc_auc"}
            reports.train(600_000, values | {"loss": 6.9, "masked_lm_accuracy": NAN})

    sent = on_a_terminal(monkeypatch, rows, columns, tell)
    assert sent.endswith("\n")
    parts = [part for part in sent.split("\r") if part.strip()]
    shown = [part.split("|")[0].rstrip() for part in parts]
    line = (
        "00:12:31 left  500,000/1,000,000  loss 24.31  disc_auc 0.713  900,000 tokens/s"
    )
    last = (
        "00:12:31 left  600,000/1,000,000  loss 6.90  masked_lm_accuracy -  "
        "12,345 tokens/s"
    )
    assert [text for i, text in enumerate(shown) if text != shown[i - 1]] == [
        "step 400,000/1,000,000",
        line,
        "a word",
        line,
        "measuring ...",
        "evaluation at step 500,000  disc_auc 0.5000",
        line,
        last[: columns - 1] if columns else last,
    ]
    assert all(len(part) < columns for part in parts) or not columns
    if columns == 200:
        for part, share in ((parts[0], 0.4), (parts[-1], 0.6)):
            bar = part.split("|")[1]
            assert abs(bar.count("█") / len(bar) - share) < 1 / 80


def test_a_health_check_learns_from_the_file_what_it_knew(tmp_path):
    def logs(first, last):
        for step in range(first, last, 100):
            yield step, {"disc_recall": 0.0, "loss": NAN, "input_share": 0.5}

    whole = HealthCheck(20_000, 1000, 30522)
    with quiet(tmp_path) as reports:
        for step, values in logs(100, 2400):
            whole.check(step, values)
            reports.train(step, values)
    again = HealthCheck(20_000, 1000, 30522)
    for line in read_metrics(str(tmp_path)):
        again.check(line["step"], line)
    expected = [whole.check(step, values) for step, values in logs(2400, 2600)]
    assert [len(texts) for texts in expected] == [0, 1]
    assert [again.check(*log) for log in logs(2400, 2600)] == expected


def test_every_line_is_valid_json(tmp_path):
    def refuse(word):
        raise AssertionError(word)

    with quiet(tmp_path) as reports:
        reports.train(1, {"a": NAN, "b": math.inf, "c": -math.inf, "d": np.float32(1)})
    text = (tmp_path / "metrics.jsonl").read_text()
    line = json.loads(text, parse_constant=refuse)
    assert [line[name] for name in "abcd"] == [None, None, None, 1.0]
