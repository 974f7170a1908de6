"""Steps at which a run logs, evaluates, saves and stops, and how it resumes."""

import functools
import json
import os
import shutil
import signal

import numpy as np
import pytest

from electra_tf.errors import InputError
from electra_tf.training.checkpoint import open_checkpoint, open_newest, restore
from tests.pretrain_commands import assert_equal_lines, metric_lines
from tests.training.toy import Toy, train


def saved_steps(folder):
    return sorted(int(p.name[5:]) for p in (folder / "checkpoints").iterdir())


def newest(folder):
    return open_newest(str(folder / "checkpoints"))


def evaluate():
    return {"loss": (6.0, 2.0)}


class ActAt:
    """Evaluation that calls `action` at its n-th call."""

    def __init__(self, call, action):
        self.calls, self._call, self._action = 0, call, action

    def __call__(self):
        self.calls += 1
        if self.calls == self._call:
            self._action()
        return evaluate()


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """Return the folder of a run without interruption."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    assert train(Toy(), folder, evaluate, keep_at=(0.15,)) == 0
    return folder


@pytest.fixture
def run_toy(tmp_path):
    """Return a function that trains a toy in `tmp_path`."""

    def run(toy, evaluate=evaluate, **settings):
        return train(toy, tmp_path, evaluate, **settings)

    return run


def test_a_run_logs_evaluates_and_saves_at_the_configured_steps(uninterrupted):
    evaluations = [("evaluation", step) for step in range(2, 21, 2)]
    training = [("train", step) for step in range(5, 21, 5)]
    metrics = metric_lines(uninterrupted)
    # The line of a step precedes its evaluation.
    expected = sorted([*training, *evaluations], key=lambda p: (p[1], p[0] != "train"))
    assert list(metrics) == expected
    assert metrics["evaluation", 6]["loss"] == 3.0
    # The rate of the last update, while other metrics are means since the last line.
    rates = [metrics["train", step]["learning_rate"] for step in (5, 20)]
    assert rates == pytest.approx([0.1 * 16 / 20, 0.1 / 20])
    assert saved_steps(uninterrupted) == [3, 7, 14, 20]
    assert newest(uninterrupted).metadata == {"data": "toy"}


def test_metrics_are_on_disk_before_their_checkpoint(run_toy, tmp_path, monkeypatch):
    metrics, fsync, replace = tmp_path / "metrics.jsonl", os.fsync, os.replace
    on_disk, published = {}, {}  # content of the file; its steps at each publication

    def record_fsync(descriptor):
        fsync(descriptor)
        if os.path.samestat(os.fstat(descriptor), metrics.stat()):
            on_disk["lines"] = metrics.read_text().splitlines()

    def record_replace(source, target):
        lines = map(json.loads, on_disk.get("lines", []))
        published[os.path.basename(target)] = [line["step"] for line in lines]
        replace(source, target)

    monkeypatch.setattr(os, "fsync", record_fsync)
    monkeypatch.setattr(os, "replace", record_replace)
    assert run_toy(Toy(), evaluate_every=50) == 0
    assert published == {
        "step_00000007": [5],
        "step_00000014": [5, 10],
        "step_00000020": [5, 10, 15, 20, 20],  # the last step is also evaluated
    }


def final_state(folder):
    """Return the bytes of the newest weights and optimizer slots."""
    checkpoint = open_checkpoint(str(folder))
    return checkpoint.read("weights.safetensors"), checkpoint.read(
        "optimizer.safetensors"
    )


def restored_toy(folder):
    toy = Toy()
    restore(toy, newest(folder))
    return toy


def test_a_signal_saves_a_checkpoint_that_resumes_bit_for_bit(
    run_toy, tmp_path, uninterrupted
):
    stop = ActAt(5, functools.partial(signal.raise_signal, signal.SIGTERM))  # step 10
    assert run_toy(Toy(), stop, keep_at=(0.15,)) == signal.SIGTERM
    # The next call of steps ends at 12, where nothing but the signal needs a save.
    assert newest(tmp_path).step == 12
    assert ("train", 10) in metric_lines(tmp_path)
    assert max(metric_lines(tmp_path), key=lambda p: p[1]) == ("evaluation", 12)
    stop = ActAt(2, functools.partial(signal.raise_signal, signal.SIGINT))  # step 16
    assert run_toy(restored_toy(tmp_path), stop) == signal.SIGINT
    assert newest(tmp_path).step == 18
    assert run_toy(restored_toy(tmp_path)) == 0
    assert final_state(tmp_path) == final_state(uninterrupted)
    assert_equal_lines(tmp_path, uninterrupted, resumed_at=[12, 18])


def test_a_run_killed_after_a_line_resumes_from_the_checkpoint_before_it(
    run_toy, tmp_path, uninterrupted
):
    with pytest.raises(ZeroDivisionError):
        run_toy(Toy(), ActAt(8, lambda: 1 / 0))  # at step 16
    assert newest(tmp_path).step == 14
    assert ("train", 15) in metric_lines(tmp_path)
    assert run_toy(restored_toy(tmp_path)) == 0
    assert final_state(tmp_path) == final_state(uninterrupted)
    assert_equal_lines(tmp_path, uninterrupted, resumed_at=[14])


def test_a_finished_run_does_nothing(run_toy, tmp_path, uninterrupted):
    shutil.copytree(uninterrupted, tmp_path, dirs_exist_ok=True)
    toy = restored_toy(tmp_path)
    assert run_toy(toy, ActAt(1, lambda: 1 / 0)) == 0
    assert toy.traced == 0
    assert saved_steps(tmp_path) == saved_steps(uninterrupted)
    assert final_state(tmp_path) == final_state(uninterrupted)
    assert_equal_lines(tmp_path, uninterrupted)


def test_a_non_finite_loss_ends_the_run(run_toy, tmp_path):
    # Each step multiplies the weights by about 10^20.
    with pytest.raises(InputError) as error:
        run_toy(Toy(rate=1e20, clip_norm=None), save_every=1, log_every=1)
    good = newest(tmp_path)
    assert str(error.value).startswith(
        f"NaN or infinity in loss, gradient_norm, in steps {good.step + 1} to "
        f"{good.step + 1}; the last good checkpoint: {good.path}"
    )
    assert f"--init_checkpoint={good.path}" in str(error.value)
    for arrays in (good.weights(), good.slots()):
        assert all(np.isfinite(values).all() for values in arrays.values())
    assert all(step <= good.step for _, step in metric_lines(tmp_path))


def test_overflowing_weights_are_not_saved(run_toy, tmp_path):
    # The loss of the first step is finite, but its update overflows.
    with pytest.raises(InputError) as error:
        run_toy(Toy(rate=2e38), save_every=1)
    assert str(error.value).startswith("NaN or infinity in toy/")
    assert "in steps 1 to 1; the last good checkpoint: none yet" in str(error.value)
    assert "--init_checkpoint" not in str(error.value)
    assert newest(tmp_path) is None
