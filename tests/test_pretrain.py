"""The command: killed, stopped, resumed, started from another run's weights."""

import contextlib
import os
import re
import shutil
import signal
import threading
import time

import numpy as np
import pytest

from electra_tf import cli
from electra_tf.runs.pretraining import Run
from electra_tf.training.checkpoint import open_checkpoint, saved_steps
from electra_tf.training.metric_logger import read_metrics
from electra_tf.training.run_directory import run_lock
from tests.conftest import failure
from tests.pretrain_commands import (
    arguments,
    assert_equal_runs,
    file_contents,
    kill,
    metric_lines,
    resume,
    start,
    wait_for,
)
from tests.tiny import build_records

pytestmark = pytest.mark.runs


def newest(folder):
    return max(saved_steps(str(folder / "checkpoints")), default=0)


def unfinished(folder):
    path = folder / "checkpoints"
    with contextlib.suppress(FileNotFoundError), os.scandir(path) as found:
        return any(entry.name.endswith(".partial") for entry in found)


@pytest.fixture(scope="session")
def whole(folder, tmp_path_factory):
    """An uninterrupted run in its own process."""
    output = tmp_path_factory.mktemp("whole") / "run"
    process = start(*arguments(folder, output, evaluation_data=folder))
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert out.endswith(f": {output}/checkpoints/step_00000060\n")
    assert "random weights, seed 0" in err
    return output


def test_files_and_losses_of_a_run(whole):
    steps = saved_steps(str(whole / "checkpoints"))
    assert sorted(steps) == [30, 57, 60]
    logged = metric_lines(whole)
    assert [step for kind, step in logged if kind == "train"] == list(range(4, 61, 4))
    evaluations = [logged[key] for key in logged if key[0] == "evaluation"]
    assert [line["step"] for line in evaluations] == [12, 24, 36, 48, 60]
    first, last = evaluations[0], evaluations[-1]
    assert first["masked_lm_loss"] > last["masked_lm_loss"] + 0.1
    assert last["disc_auc"] > 0.8
    kinds = {path.parent.name for path in whole.rglob("*tfevents*")}
    assert kinds == {"train", "evaluation"}


def run_with_signal(number, condition, run):
    """Call `run`, and send this process a signal as soon as a condition holds."""

    def wait_and_send():
        while not condition():
            time.sleep(0.01)
        os.kill(os.getpid(), number)

    # The signal may arrive after `run` has ended.
    before = signal.signal(number, lambda *_: None)
    sender = threading.Thread(target=wait_and_send, daemon=True)
    sender.start()
    try:
        return run()
    finally:
        sender.join(60)
        signal.signal(number, before)


def test_a_stopped_run_resumes_to_the_same_result(folder, whole, tmp_path, here):
    """Kill it during a save, then stop it by SIGTERM and by SIGINT."""
    output = tmp_path / "run"
    given, resumed_at = arguments(folder, output, evaluation_data=folder), []
    for _ in range(5):
        process, first = start(*given), newest(output)
        resumed_at.append(first)
        wait_for(process, lambda first=first: newest(output) > first)
        # A save takes longer than the period.
        kill(process, lambda: unfinished(output), period=0.0002)
        if unfinished(output):
            break
    assert unfinished(output), "no kill hit a save"
    for number, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
        first = newest(output)
        resumed_at.append(first)
        done = run_with_signal(
            number,
            lambda first=first: newest(output) > first,
            lambda: here("pretrain", *given),
        )
        assert done.returncode == code, done.stderr
        words = f"resuming after step {first} of 60"
        assert (words if first else "random weights") in done.stderr
        assert first < newest(output) < 60
        assert done.stdout.startswith(f"stopped by {number.name}; ")
        assert done.stdout.endswith(
            f" {output}/checkpoints/step_{newest(output):08d}\n"
        )
    resumed_at.append(newest(output))
    done = here("pretrain", *given)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("training completed")
    assert_equal_runs(output, whole, resumed_at)


def test_a_run_resumes_once_its_damaged_newest_checkpoint_is_deleted(
    folder, whole, tmp_path, here
):
    run = shutil.copytree(whole, tmp_path / "run")
    damaged = run / "checkpoints" / "step_00000060"
    weights = damaged / "weights.safetensors"
    content = bytearray(weights.read_bytes())
    content[-100] ^= 1
    weights.write_bytes(content)
    given = arguments(folder, run, evaluation_data=folder)
    for more in ([], ["--dry_run"]):
        with unchanged(run):
            message = failure(here("pretrain", *given, *more))
        assert f"{weights} is damaged" in message
        assert f"the folder {damaged} again, or delete it" in message
    shutil.rmtree(damaged)
    done = here("pretrain", *given)
    assert done.returncode == 0, done.stderr
    assert "resuming after step 57 of 60" in done.stderr
    assert_equal_runs(run, whole, resumed_at=[57])


@contextlib.contextmanager
def unchanged(run):
    """Check that the block does not change a run directory."""
    before = file_contents(run), (run / "metrics.jsonl").read_bytes()
    yield
    assert (file_contents(run), (run / "metrics.jsonl").read_bytes()) == before


def test_a_report_has_curves_and_replaced_tokens(folder, whole, here, tmp_path):
    report = tmp_path / "new" / "report.html"
    given = arguments(folder, whole, evaluation_data=folder)
    with unchanged(whole):
        done = here("pretrain", *given, f"--report={report}")
    assert done.returncode == 0, done.stderr
    text = report.read_text("utf-8")
    captions = re.findall("<figcaption>(.*?)</figcaption>", text)
    assert re.sub("<.*?>", " ", captions[0]).split() == [
        *("Discriminator:", "AUC", "disc_auc", "training", "held", "out")
    ]
    names = re.findall("<code>(.*?)</code>", "".join(captions))
    assert {"loss", "learning_rate", "tokens_per_second"} <= set(names[3:])
    tokens = re.findall(r'<(span|ins) style="[^"]*" title="([\d.]+)">', text)
    replaced = [tag for tag, _ in tokens if tag == "ins"]
    assert 0 < len(replaced) == text.count("<del>") < 0.2 * len(tokens)
    shares = [float(share) for _, share in tokens]
    assert 0 <= min(shares) < max(shares) <= 1


def test_a_completed_run_is_extended(folder, whole, here, tmp_path):
    run = shutil.copytree(whole, tmp_path / "run")
    given = arguments(folder, run, "training.steps=75")
    with unchanged(run):
        planned = here("pretrain", *given, "--dry_run")
    done = here("pretrain", *given)
    assert done.returncode == 0, done.stderr
    # 1e-3 * (1 - 59 / 60), then 1e-3 * (1 - 60 / 75).
    note = "training.steps is 75, was 60: "
    rates = "it was 1.667e-05 at step 60 and is 0.0002 at step 61"
    for text in (done.stderr, planned.stdout):
        (line,) = (line for line in text.splitlines() if note in line)
        assert line.endswith(rates)
    assert "resuming after step 60 of 75" in done.stderr
    # Step 30 is a milestone of the old length and not of the new one.
    assert sorted(saved_steps(str(run / "checkpoints"))) == [30, 72, 75]
    rate = read_metrics(str(run))[-1]["learning_rate"]  # that of the last update
    assert rate == pytest.approx(1e-3 * (1 - 74 / 75), rel=1e-3)
    killed = shutil.copytree(run, tmp_path / "killed")
    shutil.rmtree(killed / "checkpoints" / "step_00000075")
    given = arguments(folder, killed, "training.steps=75")
    done = here("pretrain", *given)
    assert done.returncode == 0, done.stderr
    assert note not in done.stderr
    assert_equal_runs(killed, run)


@pytest.fixture(scope="module")
def longer(corpus_file, vocabulary, tmp_path_factory):
    """Records of 64 positions."""
    output = tmp_path_factory.mktemp("longer") / "out"
    build_records(corpus_file, output, vocabulary, max_length=64, shards=1)
    return output


def test_a_resumed_run_must_have_the_same_records(longer, whole, here):
    given = arguments(longer, whole, "records.max_length=64")
    with unchanged(whole):
        message = failure(here("pretrain", *given))
    assert "`records.max_length` is 64, was 32" in message
    assert "records_sha256 is" in message


def test_two_phases(longer, whole, here, tmp_path):
    second = ("records.max_length=64", "training.steps=3", "training.log_every=1")
    run = tmp_path / "second"
    given = arguments(longer, run, *second, init_checkpoint=whole)
    done = here("pretrain", *given)
    assert done.returncode == 0, done.stderr
    for words in (
        f"{whole}/checkpoints/step_00000060, step 60:",
        "loaded: all ",
        "not loaded: optimizer slots, step",
        "  records.max_length: 32 -> 64",
        "  training.steps: 60 -> 3",
    ):
        assert words in done.stderr
    before = [m for m in read_metrics(str(whole)) if m["kind"] == "train"]
    first = read_metrics(str(run))[0]
    assert first["step"] == 1
    for name in ("masked_lm_loss", "disc_loss"):
        # Nearer to the end of the first phase than to its start.
        fall = before[0][name] - before[-1][name]
        assert abs(first[name] - before[-1][name]) < 0.4 * fall, name
    given = arguments(longer, run, *second, init_checkpoint=tmp_path / "gone")
    with unchanged(run):
        done = here("pretrain", *given)
    assert done.returncode == 0, done.stderr
    assert "all 3 steps are completed" in done.stderr
    longer_run = ("training.steps=4", *second[:1], *second[2:])
    done = resume(here, longer, run, *longer_run, init_checkpoint=tmp_path / "gone")
    assert "--init_checkpoint is not read" in done.stderr
    metadata = open_checkpoint(str(run)).metadata
    assert metadata["init_checkpoint"] == str(whole)


@pytest.mark.parametrize(
    ("signal_", "code", "name"),
    [(cli.Terminated, 143, "SIGTERM"), (KeyboardInterrupt, 130, "SIGINT")],
)
def test_a_signal_before_the_first_step(
    folder, here, tmp_path, monkeypatch, signal_, code, name
):
    def begin(*_):
        raise signal_

    monkeypatch.setattr(Run, "train", begin)
    done = here("pretrain", *arguments(folder, tmp_path / "run"))
    assert (done.returncode, done.stderr) == (code, "")
    assert done.stdout.startswith(f"stopped by {name}; ")


def test_a_second_run_in_a_run_directory_is_an_error(folder, whole, here):
    with run_lock(str(whole)), unchanged(whole):
        message = failure(here("pretrain", *arguments(folder, whole)))
    assert f"{whole} is locked by a running process" in message


FROZEN = (
    "objective.freeze_generator=true",
    "model.sharing=none",
    "model.generator_embedding=16",
    "training.steps=4",
)


def test_a_frozen_generator_keeps_its_weights(folder, whole, tmp_path, here):
    given = arguments(folder, tmp_path / "run", *FROZEN, init_checkpoint=whole)
    result = here("pretrain", *given, "--set=training.accumulation=2")
    assert result.returncode == 0, result.stderr
    before, after = (
        open_checkpoint(str(path)).weights() for path in (whole, tmp_path / "run")
    )
    moved = {
        name: not np.array_equal(after[name], array)
        for name, array in before.items()
        if name.startswith(("electra/generator/", "electra/discriminator/"))
    }
    assert not any(moved[name] for name in moved if "/generator/" in name)
    assert all(moved[name] for name in moved if "/discriminator/" in name)
    tables = "electra/{}/encoder/embeddings/word_embeddings"
    np.testing.assert_array_equal(
        after[tables.format("generator")], before[tables.format("discriminator")]
    )


def test_a_frozen_generator_must_be_given(folder, whole, tmp_path, here):
    given = arguments(folder, tmp_path / "run", *FROZEN)
    assert "must start from a generator" in failure(here("pretrain", *given))
    half = tmp_path / "half"
    convert = ["--format=huggingface", "--part=discriminator"]
    result = here("convert", f"--from={whole}", f"--to={half}", *convert)
    assert result.returncode == 0, result.stderr
    message = failure(here("pretrain", *given, f"--init_checkpoint={half}"))
    assert "must have the whole generator" in message
