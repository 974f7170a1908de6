"""Runs of pre-training, and the files between the command and the gradient."""

import pathlib
import traceback

import pytest
import tensorflow as tf

from electra_tf.pretraining.objectives.electra import ElectraObjective
from electra_tf.runs import pretraining
from electra_tf.training.checkpoint import open_checkpoint
from runs.test_experiment import SMALL, resolve


@pytest.fixture(scope="module")
def run(folder, tmp_path_factory):
    """A run of two steps: experiment, records, run directory, newest checkpoint."""
    experiment = resolve(folder, "training.steps=2")
    record_set = experiment.open(str(folder))
    model_dir = str(tmp_path_factory.mktemp("runs") / "first")
    stop_signal, newest = pretraining.run_pretraining(
        experiment, tf.distribute.get_strategy(), model_dir, record_set
    )
    assert stop_signal == 0
    return experiment, record_set, model_dir, newest


def test_a_run_ends_with_a_checkpoint_of_its_last_step(run):
    experiment, record_set, model_dir, newest = run
    checkpoint = open_checkpoint(model_dir)
    assert (checkpoint.path, checkpoint.step) == (newest, 2)
    assert checkpoint.metadata["records"] == record_set.total
    slots, weights = checkpoint.slots(), checkpoint.weights()
    assert set(slots) == {f"{slot}/{path}" for slot in "mv" for path in weights}
    assert any(values.any() for values in slots.values())
    assert checkpoint.read("config.yaml") == experiment.files()["config.yaml"]


def test_a_completed_run_changes_nothing(run, capsys):
    experiment, record_set, model_dir, newest = run
    before = open_checkpoint(model_dir).read("checkpoint.json")
    devices = tf.distribute.get_strategy()
    result = pretraining.run_pretraining(experiment, devices, model_dir, record_set)
    assert result == (0, newest)
    assert "all 2 steps are completed" in capsys.readouterr().err
    assert open_checkpoint(model_dir).read("checkpoint.json") == before


def test_init_checkpoint_sets_the_initial_weights(run, folder, tmp_path, capsys):
    _, record_set, model_dir, _ = run
    # The learning rate is too small to change the weights.
    experiment = resolve(folder, "training.steps=1", "optimizer.learning_rate=1e-30")
    _, newest = pretraining.run_pretraining(
        experiment,
        tf.distribute.get_strategy(),
        str(tmp_path),
        record_set,
        init_checkpoint=model_dir,
    )
    assert "optimizer.learning_rate: 0.0005 -> 1e-30" in capsys.readouterr().err
    initial, final = open_checkpoint(model_dir).weights(), open_checkpoint(newest)
    for path, values in final.weights().items():
        assert (values == initial[path]).all(), path


def test_changed_steps_are_explained_with_both_learning_rates(run, folder):
    _, _, model_dir, _ = run
    newest = open_checkpoint(model_dir)
    sets = ("training.steps=8", "optimizer.warmup_steps=0")
    (note,) = pretraining.explain_changed_steps(resolve(folder, *sets), newest)
    # 5e-4 * (1 - 2 / 8) without a warm-up.
    assert "training.steps is 8, was 2" in note
    assert "is 0.000375 at step 3" in note
    unchanged = resolve(folder, "training.steps=2")
    assert pretraining.explain_changed_steps(unchanged, newest) == []
    assert pretraining.explain_changed_steps(resolve(folder, *sets), None) == []


def test_five_files_lie_between_the_command_and_the_losses(
    folder, tmp_path, here, monkeypatch
):
    package, passed = pathlib.Path(pretraining.__file__).parents[1], []

    def losses(*_):
        paths = [pathlib.Path(frame.filename) for frame in traceback.extract_stack()]
        passed.extend(dict.fromkeys(p for p in paths if p.is_relative_to(package)))
        raise ZeroDivisionError

    monkeypatch.setattr(ElectraObjective, "losses", losses)
    sets = [f"--set={item}" for item in (*SMALL, "training.steps=1")]
    with pytest.raises(Exception, match="ZeroDivisionError"):
        here("pretrain", f"--data={folder}", f"--model_dir={tmp_path}", *sets)
    names = [path.relative_to(package).as_posix() for path in passed]
    # `losses` is replaced here; its file is the fifth.
    assert [name for name in names if name != "cli.py"] == [
        "pretrain.py",
        "runs/pretraining.py",
        "training/loop.py",
        "pretraining/pretrainer.py",
    ]
