"""When a run tells, measures, saves, stops and goes on, on a trainer of six numbers."""

import math
import shutil
import signal

import numpy as np
import pytest

from electra_tf.errors import InputError
from electra_tf.training.checkpoint import (
    CheckpointManager,
    open_checkpoint,
    restore,
    training_state,
)
from electra_tf.training.loop import StepCost, _MetricWindow
from electra_tf.training.metric_logger import read_metrics
from training.toy import Toy, train

PACE = {
    "time",
    "tokens_per_second",
    "flops_per_second",
    "share_of_peak",
    "input_share",
    "seconds_left",
}


def lines(folder):
    """(kind, step) -> numbers, without those of the clock."""
    found = {}
    for line in read_metrics(str(folder)):
        assert (line["kind"], line["step"]) not in found
        found[line["kind"], line["step"]] = {
            name: value for name, value in line.items() if name not in PACE
        }
    return found


def saved(folder):
    return sorted(int(p.name[5:]) for p in (folder / "checkpoints").iterdir())


def newest(folder):
    return CheckpointManager(str(folder / "checkpoints"), 1, (), 20).newest()


def measure():
    return {"loss": (6.0, 2.0)}


class At:
    """An evaluation in which something happens, the n-th time."""

    def __init__(self, time, action):
        self.calls, self._time, self._action = 0, time, action

    def __call__(self):
        self.calls += 1
        if self.calls == self._time:
            self._action()
        return measure()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The folder of a run that nothing stopped."""
    folder = tmp_path_factory.mktemp("whole")
    assert train(Toy(), folder, measure, keep_at=(0.15,)) == 0
    return folder


@pytest.fixture
def run_toy(tmp_path):
    """Trains a toy in `tmp_path`, from its newest checkpoint on."""

    def run(toy, evaluate=measure, **settings):
        return train(toy, tmp_path, evaluate, **settings)

    return run


def test_each_thing_happens_at_its_steps(whole):
    evaluations = [("evaluation", step) for step in range(2, 21, 2)]
    trained = [("train", step) for step in range(5, 21, 5)]
    found = lines(whole)
    # A line before the evaluation of the same step.
    wanted = sorted([*trained, *evaluations], key=lambda p: (p[1], p[0] != "train"))
    assert list(found) == wanted
    assert found["evaluation", 6]["loss"] == 3.0
    assert saved(whole) == [3, 7, 14, 20]
    assert newest(whole).metadata == {"data": "toy"}


def test_the_last_step_is_told_and_saved_wherever_it_is(run_toy, tmp_path):
    rare = {"log_every": 50, "save_every": 50, "evaluate_every": 50}
    assert run_toy(Toy(steps=7), steps=7, **rare) == 0
    assert list(lines(tmp_path)) == [("train", 7), ("evaluation", 7)]
    assert saved(tmp_path) == [7]


def test_a_line_tells_the_mean_of_its_steps(whole):
    toy, losses = Toy(), []
    for number in range(10):
        batch = np.array([number - 0.5, number + 0.5], "f")
        losses.append(float(toy.train_step(batch)["loss"][0]))
    assert losses[0] == 0.5 * (1 + 4)
    for step in (5, 10):
        found = lines(whole)["train", step]["loss"]
        assert found == pytest.approx(np.mean(losses[step - 5 : step]), rel=1e-6)


def finished(folder):
    """All that must not depend on how often a run was stopped."""
    checkpoint = open_checkpoint(str(folder))
    return checkpoint.read("weights.safetensors"), checkpoint.read(
        "optimizer.safetensors"
    )


def resumed(folder):
    toy = Toy()
    restore(toy, newest(folder))
    return toy


def test_a_signal_saves_and_the_run_goes_on_bit_for_bit(run_toy, tmp_path, whole):
    stop = At(5, lambda: signal.raise_signal(signal.SIGTERM))  # at step 10
    assert run_toy(Toy(), stop, keep_at=(0.15,)) == signal.SIGTERM
    # One call later, where there is nothing to be told or saved.
    assert newest(tmp_path).step == 12
    assert ("train", 10) in lines(tmp_path)
    assert max(lines(tmp_path), key=lambda p: p[1]) == ("evaluation", 12)
    stop = At(2, lambda: signal.raise_signal(signal.SIGINT))  # at step 16
    assert run_toy(resumed(tmp_path), stop) == signal.SIGINT
    assert newest(tmp_path).step == 18
    assert run_toy(resumed(tmp_path)) == 0
    assert finished(tmp_path) == finished(whole)
    assert lines(tmp_path) == lines(whole)


def test_a_kill_between_two_lines_changes_no_line(run_toy, tmp_path, whole):
    with pytest.raises(ZeroDivisionError):
        run_toy(Toy(), At(8, lambda: 1 / 0))  # at step 16
    assert newest(tmp_path).step == 14
    assert ("train", 15) in lines(tmp_path)
    assert run_toy(resumed(tmp_path)) == 0
    assert finished(tmp_path) == finished(whole)
    assert lines(tmp_path) == lines(whole)


def test_a_second_signal_does_not_wait(run_toy):
    def twice():
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run_toy(Toy(), At(1, twice))


def test_signals_are_given_back(run_toy):
    before = [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)]
    inside = []
    run_toy(Toy(), At(1, lambda: inside.append(signal.getsignal(signal.SIGTERM))))
    assert [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)] == before
    assert inside[0] not in before


def test_a_finished_run_does_nothing(run_toy, tmp_path, whole):
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    toy = resumed(tmp_path)
    assert run_toy(toy, At(1, lambda: 1 / 0)) == 0
    assert toy.traced == 0
    assert saved(tmp_path) == saved(whole)
    assert finished(tmp_path) == finished(whole)
    assert lines(tmp_path) == lines(whole)


def test_a_process_that_does_not_write_trains_the_same(run_toy, tmp_path, whole):
    toy, evaluation = Toy(), At(0, None)
    assert run_toy(toy, evaluation, writes=False) == 0
    assert evaluation.calls == 10
    assert not list(tmp_path.iterdir())
    for name, values in newest(whole).weights().items():
        np.testing.assert_array_equal(training_state(toy)[0][name], values)


def test_a_loss_that_is_not_finite_stops_the_run(run_toy, tmp_path):
    # Each step multiplies the weights by some 10^20.
    with pytest.raises(InputError) as found:
        run_toy(Toy(rate=1e20, clip_norm=None), save_every=1, log_every=1)
    good = newest(tmp_path)
    assert found.value.received == (
        f"NaN or infinity in loss, gradient_norm, in steps {good.step + 1} to "
        f"{good.step + 1}; the last good checkpoint: {good.path}"
    )
    assert f"--init_checkpoint={good.path}" in found.value.remedy
    for arrays in (good.weights(), good.slots()):
        assert all(np.isfinite(values).all() for values in arrays.values())
    assert all(step <= good.step for _, step in lines(tmp_path))


def test_weights_that_overflow_are_not_saved(run_toy, tmp_path):
    # The loss of the first step is finite, what it makes of the weights is not.
    with pytest.raises(InputError) as found:
        run_toy(Toy(rate=2e38), save_every=1)
    assert found.value.received.startswith("NaN or infinity in toy/")
    assert "in steps 1 to 1; the last good checkpoint: none yet" in str(found.value)
    assert "--init_checkpoint" not in found.value.remedy
    assert newest(tmp_path) is None


def test_calls_take_two_seconds_once_the_pace_is_known():
    window = _MetricWindow({})
    metrics = {"tokens": (5.0, 1.0)}
    assert window.steps_a_call == 1
    window.note(metrics, 1, 60.0, 1.0)  # the first call traces and compiles
    assert window.steps_a_call == 1
    pace = window.pace(5.0, 10, StepCost(7, 100.0))
    assert all(map(math.isnan, pace.values()))
    window.note(metrics, 1, 0.25, 0.05)
    assert window.steps_a_call == 8
    window.note(metrics, 3, 1.75, 0.15)
    assert window.steps_a_call == 4  # 4 steps in 2 seconds
    assert window.metrics["tokens"] == (15.0, 3.0)
    assert window.pace(5.0, 10, StepCost(7, 100.0)) == pytest.approx(
        {
            "tokens_per_second": 10.0,
            "flops_per_second": 14.0,
            "share_of_peak": 0.14,
            "input_share": 0.1,
            "seconds_left": 5.0,
        }
    )
    after = window.next_window()
    assert (after.metrics, after.steps_a_call) == ({}, 4)
    after.note(metrics, 1, 1e-9, 0.0)
    assert after.steps_a_call == 1000
