"""Checkpoints after a save, a kill, a full disk and damage to the files."""

import functools
import hashlib
import json
import resource
import shutil
import weakref

import numpy as np
import pytest
import safetensors.numpy
from conftest import GOLDEN

from electra_tf.errors import InputError
from electra_tf.training import checkpoint_manager
from electra_tf.training.checkpoint import (
    CONFIG,
    WEIGHTS,
    foreign_weights,
    newest_intact,
    open_checkpoint,
    saved_steps,
    steps_at_shares,
)
from electra_tf.training.checkpoint_manager import CheckpointManager, safetensors_parts
from electra_tf.training.checkpoint_manifest import MANIFEST
from electra_tf.training.trainer_state import VariableArray

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
    return CheckpointManager(str(folder), keep=2, keep_at=(0.25, 0.5), steps=10)


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
        assert expected.keys() == actual.keys()
        for name, values in expected.items():
            assert actual[name].dtype == np.float32
            np.testing.assert_array_equal(actual[name], values)
    assert checkpoint.read("vocab.txt") == FILES["vocab.txt"]
    assert checkpoints.read(3, "vocab.txt") == FILES["vocab.txt"]
    assert checkpoints.read(3, "none") is checkpoints.read(4, "vocab.txt") is None
    assert names(folder) == ["step_00000003"]
    assert names(folder / "step_00000003") == sorted([*NAMES, "checkpoint.json"])


def test_the_manifest_lists_sizes_and_checksums(checkpoints, folder):
    path = folder / "step_00000003"
    save(checkpoints, 3)
    manifest = json.loads((path / "checkpoint.json").read_text())
    assert manifest.pop("files") == {
        name: [len(data), hashlib.sha256(data).hexdigest()]
        for name in NAMES
        for data in [(path / name).read_bytes()]
    }
    assert len(manifest.pop("sha256")) == 64
    assert manifest == {"format": 1, "step": 3, "details": METADATA}


def test_equal_arrays_give_equal_bytes(checkpoints, folder, tmp_path):
    save(checkpoints, 3)
    shutil.copytree(folder, tmp_path / "first")
    shutil.rmtree(folder)
    save(checkpoints, 3)
    for name in [*NAMES, "checkpoint.json"]:
        path = f"step_00000003/{name}"
        assert (folder / path).read_bytes() == (tmp_path / "first" / path).read_bytes()


def test_old_checkpoints_are_deleted_except_keep_at(checkpoints, folder):
    for step in range(1, 11):
        save(checkpoints, step)
        assert checkpoints.newest().step == step
    # ceil(0.25 * 10) and 0.5 * 10 are permanent; 9 and 10 are the newest two.
    assert names(folder) == [f"step_{n:08d}" for n in (3, 5, 9, 10)]


@pytest.mark.parametrize(
    ("shares", "steps", "expected"),
    [
        ((0.0625, 0.125, 0.25, 0.5, 1.0), 1000, {63, 125, 250, 500, 1000}),
        ((0.07,), 100, {7}),  # 7.000000000000001 in floating point
        ((1e-9,), 1000, {1}),
        ((0.1, 0.11), 10, {1, 2}),
        ((), 10, set()),
    ],
)
def test_steps_at_shares(shares, steps, expected):
    assert steps_at_shares(shares, steps) == expected


def test_open_checkpoint_accepts_run_and_checkpoint_folders(checkpoints, folder):
    save(checkpoints, 2)
    save(checkpoints, 4)
    for path in (folder.parent, folder, folder / "step_00000004"):
        assert open_checkpoint(str(path)).step == 4
    assert open_checkpoint(str(folder / "step_00000002")).step == 2


def test_a_folder_without_checkpoints_is_an_error(tmp_path, checkpoints):
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(InputError, match=f"Received: '{path}'"):
            open_checkpoint(str(path))
    assert checkpoints.newest() is None
    checkpoints.clean()
    assert names(tmp_path) == []


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("change", ["cut", "flip", "remove"])
def test_a_damaged_file_is_an_error(checkpoints, folder, name, change):
    path = folder / "step_00000003" / name
    save(checkpoints, 3)
    data = path.read_bytes()
    if change == "remove":
        path.unlink()
    else:
        last = bytes([data[-1] ^ 1]) if change == "flip" else b""
        path.write_bytes(data[:-1] + last)
    calls = [checkpoints.newest]
    calls += [functools.partial(open_checkpoint, str(p)) for p in (folder, path.parent)]
    for call in calls:
        with pytest.raises(InputError) as error:
            call()
        assert f"{path} must have the {len(data)} bytes" in error.value.required
        received = {
            "cut": f"{len(data) - 1} bytes",
            "flip": "another checksum",
            "remove": "no such file",
        }
        assert received[change] in error.value.received


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text[: len(text) // 2], "checkpoint.json .*JSONDecodeError"),
        (lambda text: "[]", "checkpoint.json .*TypeError"),
        (lambda text: text.replace('"step"', '"stop"'), "KeyError: 'step'"),
        (lambda text: text.replace('"files"', '"fills"'), "KeyError: 'files'"),
        (lambda text: text.replace('"format": 1', '"format": 2'), "format 2"),
        (lambda text: text.replace('"vocab.txt"', '"../vocab.txt"'), "elsewhere"),
        (lambda text: text.replace('"vocab.txt"', '"/etc/passwd"'), "elsewhere"),
        (lambda text: text.replace('"step": 3', '"step": "3"'), "step '3'"),
        (lambda text: text.replace('"step": 3', '"step": 7'), "another checksum"),
        (lambda text: text.replace('"sha256"', '"sha257"'), "sha257"),
        (lambda text: "[" * 100_000, "RecursionError|JSONDecodeError"),
        (lambda text: " " * 2**24 + text, "at most"),
    ],
)
def test_a_damaged_manifest_is_an_error(checkpoints, folder, change, message):
    path = folder / "step_00000003" / "checkpoint.json"
    save(checkpoints, 3)
    path.write_text(change(path.read_text()))
    with pytest.raises(InputError, match=message):
        checkpoints.newest()


@pytest.mark.parametrize("file", range(len(NAMES) + 1))
def test_a_kill_during_a_save_leaves_no_checkpoint(
    checkpoints, folder, monkeypatch, file
):
    save(checkpoints, 1)
    written = []

    def write(path, parts):
        written.append(path.name)
        data = b"".join(parts)
        path.write_bytes(data[: len(data) // 2] if len(written) > file else data)
        if len(written) > file:
            raise KeyboardInterrupt  # like a kill: no handler cleans up
        return [len(data), ""]

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint_manager, "_write_file", write)
        with pytest.raises(KeyboardInterrupt):
            save(checkpoints, 2)
    assert len(written) == file + 1
    assert written[-1] == [*NAMES, "checkpoint.json"][file]
    assert names(folder) == ["step_00000001", "step_00000002.unfinished"]
    assert open_checkpoint(str(folder)).step == checkpoints.newest().step == 1
    checkpoints.clean()
    assert names(folder) == ["step_00000001"]
    save(checkpoints, 2)
    assert checkpoints.newest().step == 2


def test_a_kill_during_a_deletion_leaves_no_checkpoint(
    checkpoints, folder, monkeypatch
):
    save(checkpoints, 1)
    save(checkpoints, 2)

    def rmtree(path, **_):
        (path / "vocab.txt").unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint_manager.shutil, "rmtree", rmtree)
        with pytest.raises(KeyboardInterrupt):
            save(checkpoints, 3)
    assert "step_00000001" not in names(folder)
    assert checkpoints.newest().step == 3
    assert checkpoints.clean() == []
    assert names(folder) == ["step_00000002", "step_00000003"]


def test_folders_without_a_manifest_are_renamed_and_reported(checkpoints, folder):
    save(checkpoints, 1)
    for number in range(2):
        (folder / "step_00000005").mkdir()
        (folder / "step_00000005" / "weights.safetensors").write_bytes(b"precious")
        (line,) = checkpoints.clean()
        aside = f"step_00000005.without_manifest{number or ''}"
        assert line.endswith(aside)
        assert "no checkpoint.json" in line
        assert (folder / aside / "weights.safetensors").read_bytes() == b"precious"
    assert checkpoints.clean() == []
    assert list(saved_steps(str(folder))) == [1]


def test_a_linked_checkpoint_is_never_changed(checkpoints, folder, tmp_path):
    save(checkpoints, 1)
    archive = tmp_path / "archive"
    (folder / "step_00000001").rename(archive)
    (folder / "step_00000001").symlink_to(archive, target_is_directory=True)
    before = {path.name: path.read_bytes() for path in archive.iterdir()}
    assert checkpoints.newest().step == 1
    for step in (2, 3, 4):  # deletes step 1
        save(checkpoints, step)
    assert "step_00000001" not in names(folder)
    assert {path.name: path.read_bytes() for path in archive.iterdir()} == before
    (archive / "checkpoint.json").unlink()
    (folder / "step_00000009").symlink_to(archive, target_is_directory=True)
    (folder / "step_00000010.unfinished").symlink_to(archive, target_is_directory=True)
    assert len(checkpoints.clean()) == 1
    assert (archive / "weights.safetensors").exists()


def test_the_newest_intact_checkpoint(checkpoints, folder):
    save(checkpoints, 1)
    save(checkpoints, 2)
    (folder / "step_00000002" / "vocab.txt").write_text("x")
    newest, damaged = newest_intact(str(folder.parent))
    assert newest.step == 1
    assert list(damaged) == [str(folder / "step_00000002")]
    (folder / "step_00000001" / "checkpoint.json").write_text("{}")
    with pytest.raises(InputError, match="not damaged"):
        newest_intact(str(folder.parent))


def test_a_save_copies_one_variable_at_a_time(checkpoints):
    alive = peak = 0

    class Variable:
        shape, dtype = (1000,), np.dtype(np.float32)

        def __array__(self, dtype=None, copy=None):
            nonlocal alive, peak
            alive += 1
            peak = max(peak, alive)
            array = np.zeros(1000, np.float32)
            weakref.finalize(array, release)
            return array

    def release():
        nonlocal alive
        alive -= 1

    weights = {f"w{n}": VariableArray(Variable()) for n in range(20)}
    path = checkpoints.save(1, weights, {}, {}, {})
    assert len(open_checkpoint(path).weights()) == 20
    assert peak <= 2


def test_a_full_disk_does_not_change_earlier_checkpoints(checkpoints, folder):
    save(checkpoints, 1)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))  # bytes of one file
    try:
        with pytest.raises(InputError, match=r"File too large.*training\.keep"):
            save(checkpoints, 2, large=bytes(20_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert names(folder) == ["step_00000001"]
    assert checkpoints.newest().step == 1


def test_the_caller_sets_the_remedy_of_a_full_disk(folder):
    manager = CheckpointManager(str(folder), 1, (), 1, remedy="Free space")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
    try:
        with pytest.raises(InputError) as error:
            save(manager, 1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "Free space" in str(error.value)
    assert "training.keep" not in str(error.value)
    assert not names(folder)


@pytest.mark.parametrize(
    ("files", "path", "described"),
    [
        (["config.json", "model.safetensors"], "", "config.json, model.safetensors"),
        (["pytorch_model-00001-of-00002.bin"], "", "pytorch_model-00001"),
        (["pytorch_model.bin"], "pytorch_model.bin", "pytorch_model.bin"),
        (["model.ckpt-10.index"], "model.ckpt-10", "model.ckpt-10.index"),
        (["m.index"], "m.data-00000-of-00001", "m.index"),
        (["m.index"], "", "m.index"),
    ],
)
def test_weights_of_other_libraries_are_recognised(tmp_path, files, path, described):
    for name in files:
        (tmp_path / name).write_bytes(b"x")
    path = str(tmp_path / path) if path else str(tmp_path)
    with pytest.raises(InputError) as error:
        open_checkpoint(path)
    assert repr(path) in error.value.received
    assert described in error.value.received


@pytest.mark.parametrize("name", ["model.h5", "weights.safetensors", "index"])
def test_other_files_are_not_weights_of_other_libraries(tmp_path, name):
    (tmp_path / name).write_bytes(b"x")
    assert foreign_weights(str(tmp_path)) is None
    assert foreign_weights(str(tmp_path / name)) is None


def test_a_step_is_saved_once(checkpoints, folder):
    save(checkpoints, 1)
    weights = folder / "step_00000001" / "weights.safetensors"
    before = weights.stat().st_mtime_ns
    assert checkpoints.save(1, *arrays(2), FILES, METADATA) == str(weights.parent)
    assert weights.stat().st_mtime_ns == before
    assert checkpoints.newest().weights()["a/kernel"][0, 0] == 1


def test_parts_of_a_file_are_those_of_safetensors():
    rng = np.random.default_rng(0)
    dtypes = ("f4", "f2", "f8", "i8", "i4", "u1", "?", "f4")
    arrays = {f"{n}/\u00e9": rng.normal(size=(n + 1, 3)).astype(d).T
              for n, d in enumerate(dtypes)}  # fmt: skip
    arrays["scalar"] = np.array(3, np.float32)
    whole = {name: np.array(a, order="C") for name, a in arrays.items()}
    for tensors in ({}, arrays):
        for metadata in (None, {"format": "pt"}):
            parts = b"".join(safetensors_parts(tensors, metadata))
            expected = {name: whole[name] for name in tensors}
            assert parts == safetensors.numpy.save(expected, metadata)


SAVED = GOLDEN / "saved" / "run" / "checkpoints" / "step_00000004"


@pytest.fixture
def changed(tmp_path):
    """Return a function that changes a file of a checkpoint, and its checksum."""

    def write(name, change):
        folder = tmp_path / "changed"
        shutil.copytree(SAVED, folder)
        content = change((folder / name).read_bytes())
        (folder / name).write_bytes(content)
        manifest = json.loads((folder / MANIFEST).read_bytes())
        manifest["files"][name] = [len(content), hashlib.sha256(content).hexdigest()]
        (folder / MANIFEST).write_text(json.dumps(manifest))
        return open_checkpoint(str(folder))

    return write


@pytest.mark.parametrize("content", [b"", b"\xff" * 100, b"\2\0\0\0\0\0\0\0{x"])
def test_damaged_weights_with_a_right_checksum_are_an_error(content, changed):
    checkpoint = changed(WEIGHTS, lambda _: content)
    with pytest.raises(InputError, match=WEIGHTS):
        checkpoint.weights()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("depth: 1", "depth: 1000000000"),
        ("width: 16", "width: 1048576"),
        ("embedding: 8", "embedding: 100000000"),
        ("vocabulary_size: 1000", "vocabulary_size: 1000000000"),
        ("max_positions: 64", "max_positions: 1000000000"),
        ("feed_forward: null", "feed_forward: 1000000000"),
        ("sharing: emb", "generator_feed_forward: 1000000000\n  sharing: emb"),
        ("tokenization:", "\xff"),
    ],
)
def test_settings_of_a_larger_model_are_an_error(old, new, changed):
    encoding = "latin-1" if new == "\xff" else "utf-8"
    checkpoint = changed(
        CONFIG, lambda data: data.replace(old.encode(), new.encode(encoding), 1)
    )
    with pytest.raises(InputError, match=f"{WEIGHTS}|{CONFIG}"):
        checkpoint.config()
