"""Checkpoints after a save, a kill, a full disk and damage; restored trainers."""

import shutil

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

from electra_tf.errors import InputError
from electra_tf.training import checkpoint as checkpoint_lib
from electra_tf.training.checkpoint import (
    CheckpointManager,
    assign,
    delete_unfinished,
    open_checkpoint,
    open_newest,
    restore,
    saved_steps,
    steps_at_shares,
    training_state,
    write_safetensors,
)
from tests.conftest import full_disk
from tests.training.toy import Toy

FILES = {"config.yaml": b"training: {steps: 10}\n", "vocab.txt": b"[PAD]\n"}
NAMES = ["weights.safetensors", "optimizer.safetensors", *FILES]
METADATA = {"records": 7, "vocabulary": "abc"}


def arrays(step):
    weights = {"a/kernel": np.full([2, 3], step, "f"), "a/bias": np.zeros(3, "f")}
    return weights, {f"m/{name}": -values for name, values in weights.items()}


def save(checkpoints, step, **files):
    return checkpoints.save(step, *arrays(step), {**FILES, **files}, METADATA)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "run" / "checkpoints"


@pytest.fixture
def checkpoints(folder):
    return CheckpointManager(str(folder), 2, lambda step, _: step in {3, 5})


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_saved_checkpoint_is_read_back(checkpoints, folder):
    path = save(checkpoints, 3)
    assert path == str(folder / "step_00000003")
    checkpoint = open_checkpoint(path)
    assert (checkpoint.path, checkpoint.step) == (path, 3)
    assert checkpoint.metadata == METADATA
    saved = (checkpoint.weights(), checkpoint.slots())
    for expected, actual in zip(arrays(3), saved, strict=True):
        assert_equal(actual, expected)
    assert checkpoint.read("vocab.txt") == FILES["vocab.txt"]
    assert names(folder / "step_00000003") == sorted([*NAMES, "checkpoint.json"])


def assert_equal(actual, expected):
    assert actual.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(actual[name], values, name)


def test_old_checkpoints_are_deleted_except_permanent_ones(checkpoints, folder):
    for step in range(1, 11):
        save(checkpoints, step)
        assert open_newest(str(folder)).step == step
    assert names(folder) == [f"step_{n:08d}" for n in (3, 5, 9, 10)]


def test_steps_at_shares():
    shares = (0.0625, 0.125, 0.25, 0.5, 1.0)
    assert steps_at_shares(shares, 1000) == {63, 125, 250, 500, 1000}
    assert steps_at_shares((0.07,), 100) == {7}  # 7.000000000000001 in floating point
    assert steps_at_shares((1e-9,), 1000) == {1}


def test_open_checkpoint_accepts_run_and_checkpoint_folders(checkpoints, folder):
    save(checkpoints, 2)
    save(checkpoints, 4)
    for path in (folder.parent, folder, folder / "step_00000004"):
        assert open_checkpoint(str(path)).step == 4
    assert open_checkpoint(str(folder / "step_00000002")).step == 2
    missing = folder / "missing"
    with pytest.raises(InputError, match=f"'{missing}' must be a folder"):
        open_checkpoint(str(missing))


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("weights.safetensors", lambda data: data[:-1], "bytes in place of"),
        ("optimizer.safetensors", lambda data: data[:-1] + b"?", "another checksum"),
        ("vocab.txt", lambda data: None, "no such file"),
        ("checkpoint.json", lambda data: data[: len(data) // 2], "JSONDecodeError"),
        ("checkpoint.json", lambda data: b"[]", "TypeError"),
        ("checkpoint.json", lambda d: d.replace(b'"step"', b'"stop"'), "'step'"),
        ("checkpoint.json", lambda d: d.replace(b'"files"', b'"fills"'), "'files'"),
        ("checkpoint.json", lambda d: d.replace(b'"vocab', b'"../vocab'), "elsewhere"),
        ("checkpoint.json", lambda d: d.replace(b": 3", b": 7"), "another checksum"),
    ],
)
def test_a_damaged_file_is_an_error(checkpoints, folder, name, change, words):
    path = folder / "step_00000003" / name
    save(checkpoints, 3)
    changed = change(path.read_bytes())
    path.unlink() if changed is None else path.write_bytes(changed)
    for opened in (folder, path.parent):
        with pytest.raises(InputError) as error:
            open_checkpoint(str(opened))
        assert f"{path} is damaged: " in str(error.value)
        assert words in str(error.value)


def test_another_format_is_an_error(checkpoints, folder):
    path = folder / "step_00000003" / "checkpoint.json"
    save(checkpoints, 3)
    path.write_text(path.read_text().replace('"format": 1', '"format": 2'))
    with pytest.raises(InputError, match="format 2"):
        open_newest(str(folder))


class Killed(dict):
    """Arrays whose writing is interrupted."""

    def items(self):
        raise KeyboardInterrupt


def test_a_kill_during_a_save_leaves_no_checkpoint(checkpoints, folder, monkeypatch):
    save(checkpoints, 1)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", lambda *_, **__: None)  # as nothing is deleted
        with pytest.raises(KeyboardInterrupt):
            checkpoints.save(2, arrays(2)[0], Killed(), FILES, METADATA)
    assert names(folder) == ["step_00000001", "step_00000002.partial"]
    assert open_newest(str(folder)).step == 1
    delete_unfinished(str(folder))
    assert names(folder) == ["step_00000001"]
    save(checkpoints, 2)
    assert open_newest(str(folder)).step == 2


def test_a_kill_during_a_deletion_leaves_no_checkpoint(
    checkpoints, folder, monkeypatch
):
    save(checkpoints, 1)
    save(checkpoints, 2)

    def rmtree(path, **_):
        (path / "vocab.txt").unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint_lib.shutil, "rmtree", rmtree)
        with pytest.raises(KeyboardInterrupt):
            save(checkpoints, 3)
    assert "step_00000001" not in names(folder)
    assert open_newest(str(folder)).step == 3
    delete_unfinished(str(folder))
    assert names(folder) == ["step_00000002", "step_00000003"]


def test_a_folder_without_a_manifest_is_an_error_and_stays(checkpoints, folder):
    save(checkpoints, 1)
    path = folder / "step_00000005"
    path.mkdir()
    (path / "weights.safetensors").write_bytes(b"precious")
    with pytest.raises(InputError, match=r"step_00000005/checkpoint\.json"):
        delete_unfinished(str(folder))
    assert (path / "weights.safetensors").read_bytes() == b"precious"
    assert list(saved_steps(str(folder))) == [1]


def test_a_full_disk_does_not_change_earlier_checkpoints(checkpoints, folder):
    save(checkpoints, 1)
    with pytest.raises(InputError, match="File too large") as error, full_disk(10_000):
        save(checkpoints, 2, large=bytes(20_000))
    assert "training.keep" in str(error.value)
    assert names(folder) == ["step_00000001"]
    assert open_newest(str(folder)).step == 1


def test_arrays_of_any_layout_are_written(tmp_path):
    rng = np.random.default_rng(0)
    dtypes = ("f4", "f2", "f8", "i8", "i4", "u1", "?", ml_dtypes.bfloat16)
    arrays = {f"{n}/\u00e9": rng.normal(size=(n + 1, 3)).astype(d).T
              for n, d in enumerate(dtypes)}  # fmt: skip
    arrays["scalar"] = np.array(3, np.float32)
    for tensors in ({}, arrays):
        write_safetensors(tmp_path / "file", tensors, {"format": "pt"})
        assert_equal(safetensors.numpy.load_file(tmp_path / "file"), tensors)


def test_a_restored_trainer_continues_bit_for_bit(checkpoints, folder):
    trained, other = Toy(), Toy()
    for number in range(3):
        trained.train_step(tf.constant([number, number], tf.float32))
    checkpoints.save(3, *training_state(trained), {"config.yaml": b""}, {})
    restore(other, open_newest(str(folder)))
    assert int(other.optimizer.iterations) == 3
    for toy in (trained, other):
        toy.train_step(tf.constant([4.0, 4.0]))
    states = zip(training_state(other), training_state(trained), strict=True)
    for actual, expected in states:
        assert_equal(actual, expected)


def test_assign_lists_all_differences_and_assigns_nothing():
    variables = {name: tf.Variable(tf.zeros([2])) for name in ("same", "long", "new")}
    arrays = {"same": np.ones(2, "f"), "long": np.ones(3, "f"), "old": np.ones(2, "f")}
    with pytest.raises(InputError) as error:
        assign(variables, arrays, "source")
    for text in ("source", "surplus old", "long has shape (3,), not (2,)"):
        assert text in str(error.value)
    assert "missing new" in str(error.value)
    assert not any(variable.numpy().any() for variable in variables.values())
    with pytest.raises(InputError, match=r"missing 17; and 12 more"):
        assign({str(10 + n): tf.Variable(0.0) for n in range(20)}, {}, "source")
