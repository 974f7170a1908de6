"""A run in its folder, without the command line around it."""

import pytest
import tensorflow as tf

from electra_tf.runs import pretraining
from electra_tf.training.checkpoint import open_checkpoint
from runs.test_experiment import resolve


@pytest.fixture(scope="module")
def run(folder, tmp_path_factory):
    """A run of two steps: its experiment, records, folder and last checkpoint."""
    experiment = resolve(folder, "training.steps=2")
    found = experiment.open(str(folder))
    place = str(tmp_path_factory.mktemp("runs") / "first")
    ended, last = pretraining.run_pretraining(
        experiment, tf.distribute.get_strategy(), place, found
    )
    assert ended == 0
    return experiment, found, place, last


def test_a_run_ends_with_a_checkpoint_of_its_last_step(run):
    experiment, found, place, last = run
    checkpoint = open_checkpoint(place)
    assert (checkpoint.path, checkpoint.step) == (last, 2)
    assert checkpoint.metadata["records"] == found.total
    slots, weights = checkpoint.slots(), checkpoint.weights()
    assert set(slots) == {f"{slot}/{path}" for slot in "mv" for path in weights}
    assert any(values.any() for values in slots.values())
    assert checkpoint.read("config.yaml") == experiment.files()["config.yaml"]


def test_a_run_that_is_done_says_so_and_changes_nothing(run, capsys):
    experiment, found, place, last = run
    before = open_checkpoint(place).read("checkpoint.json")
    devices = tf.distribute.get_strategy()
    assert pretraining.run_pretraining(experiment, devices, place, found) == (0, last)
    assert "nothing is left to do: all 2 steps are done" in capsys.readouterr().err
    assert open_checkpoint(place).read("checkpoint.json") == before


def test_a_run_can_begin_with_anothers_weights(run, folder, tmp_path, capsys):
    _, found, place, _ = run
    # With a rate of nearly nothing the weights stay where they began.
    other = resolve(folder, "training.steps=1", "optimizer.learning_rate=1e-30")
    devices = tf.distribute.get_strategy()
    _, last = pretraining.run_pretraining(
        other, devices, str(tmp_path), found, init=place
    )
    told = capsys.readouterr().err
    assert "loaded: all" in told
    assert "optimizer.learning_rate: 0.0005 -> 1e-30" in told
    theirs, ours = open_checkpoint(place).weights(), open_checkpoint(last).weights()
    assert all((ours[path] == theirs[path]).all() for path in theirs)


def test_another_length_is_told_with_the_rates_before_and_after(run, folder):
    _, _, place, _ = run
    newest = open_checkpoint(place)
    rates = ("training.steps=8", "optimizer.warmup_steps=0")
    (told,) = pretraining.new_length(resolve(folder, *rates), newest)
    # 5e-4 * (1 - 2 / 8) without a warm-up.
    assert "training.steps is 8, was 2" in told
    assert "is 0.000375 at step 3" in told
    assert pretraining.new_length(resolve(folder, "training.steps=2"), newest) == []
    assert pretraining.new_length(resolve(folder, *rates), None) == []
