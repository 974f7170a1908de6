"""Backups of run directories: what is uploaded, in which order; what is restored."""

import uuid

import numpy as np
import pytest

from electra_tf.errors import InputError
from electra_tf.storage.objects import ObjectFolder
from electra_tf.training.backup import Backup
from electra_tf.training.checkpoint import (
    CheckpointManager,
    open_checkpoint,
    saved_steps,
)
from tests.conftest import contents

CONFIG = b"training:\n  steps: 100\n"
FILES = {
    "checkpoint.json",
    "config.yaml",
    "weights.safetensors",
    "optimizer.safetensors",
}


@pytest.fixture
def store():
    return ObjectFolder(f"memory://{uuid.uuid4().hex}/run")


@pytest.fixture
def run(tmp_path):
    return tmp_path / "run"


def save(run, store, *steps, keep=2, permanent=(), seed=0):
    manager = CheckpointManager(
        str(run / "checkpoints"),
        keep,
        lambda step, config: config == CONFIG and step in permanent,
        Backup(store.url, run),
    )
    for step in steps:
        weights = {"w": np.full((3,), step + seed, np.float32)}
        run.mkdir(exist_ok=True)
        (run / "metrics.jsonl").write_text(f"{step}\n")
        manager.save(step, weights, {"m/w": weights["w"]}, {"config.yaml": CONFIG}, {})


def steps(store):
    names = (store / "checkpoints").find()
    return sorted({int(name[5:13]) for name in names if "checkpoint.json" in name})


def restored(store, folder):
    """Restore a backup to a new folder."""
    folder.mkdir()
    lines = Backup(store.url, folder).restore()
    return sorted(saved_steps(str(folder / "checkpoints"))), lines


def test_the_backup_has_the_checkpoints_that_the_run_keeps(run, store):
    save(run, store, 1, 2, 3, 4, permanent={1})
    assert steps(store) == [1, 3, 4]
    names = set(store.find())
    assert names == {"metrics.jsonl"} | {
        f"checkpoints/step_0000000{step}/{file}" for step in (1, 3, 4) for file in FILES
    }
    assert store.read("metrics.jsonl") == b"4\n"


def test_the_manifest_is_uploaded_last_and_deleted_first(run, store, transfers):
    save(run, store, 1, 2, keep=1)
    first, second = (
        f"{store.url}/checkpoints/step_0000000{n}/checkpoint.json" for n in (1, 2)
    )
    uploads = [path for kind, path in transfers if kind == "upload"]
    assert uploads[0] == f"{store.url}/metrics.jsonl"
    assert uploads[len(uploads) // 2 - 1] == first
    assert uploads[-1] == second
    deletions = transfers[transfers.index(("upload", second)) + 1 :]
    assert deletions[0] == ("delete", first)
    assert len(deletions) == 1 + len(FILES) - 1


def test_an_empty_folder_gets_the_newest_checkpoint_alone(
    run, store, tmp_path, transfers
):
    save(run, store, 1, 2, 3)
    store.write("checkpoints/step_00000009/weights.safetensors", b"interrupted")
    transfers.clear()
    found, (line,) = restored(store, tmp_path / "new")
    assert found == [3]
    assert "step_00000003" in line
    assert store.url in line
    downloads = {path for kind, path in transfers if kind == "download"}
    assert downloads == {
        f"{store.url}/checkpoints/step_00000003/{file}"
        for file in FILES - {"checkpoint.json"}
    }
    ours, theirs = contents(tmp_path / "new"), contents(run)
    assert ours == {name: theirs[name] for name in theirs if "00000002" not in name}
    newest = open_checkpoint(str(tmp_path / "new"))
    assert newest.weights()["w"].tolist() == [3, 3, 3]
    assert restored(ObjectFolder(f"{store.url}_empty"), tmp_path / "none") == ([], [])


def test_a_restored_run_goes_on_and_the_backup_keeps_what_it_would(
    run, store, tmp_path
):
    save(run, store, 1, 2, 3, 4, keep=2, permanent={1})
    restored(store, tmp_path / "new")
    save(tmp_path / "new", store, 5, keep=2, permanent={1})
    assert steps(store) == [1, 4, 5]
    assert sorted(saved_steps(str(tmp_path / "new" / "checkpoints"))) == [4, 5]
    assert Backup(store.url, tmp_path / "new").restore() == []


def test_settings_are_read_without_weights(run, store, transfers):
    save(run, store, 1, 2)
    transfers.clear()
    with Backup(store.url, run.parent / "new").settings_folder() as folder:
        newest = open_checkpoint(folder, verify=False)
        assert newest.step == 2
        assert newest.config().training.steps == 100
    assert not transfers


def test_a_killed_restore_begins_anew(run, store, tmp_path, monkeypatch):
    save(run, store, 1, 2, keep=1)
    original = ObjectFolder.download

    def kill(self, name, path):
        if "00000002" in self.url and name == "weights.safetensors":
            raise KeyError
        original(self, name, path)

    with monkeypatch.context() as patch:
        patch.setattr(ObjectFolder, "download", kill)
        with pytest.raises(KeyError):
            restored(store, tmp_path / "new")
    assert not saved_steps(str(tmp_path / "new" / "checkpoints"))
    Backup(store.url, tmp_path / "new").restore()
    assert contents(tmp_path / "new") == contents(run)


def test_a_failed_upload_is_an_error_and_the_next_start_uploads(
    run, store, monkeypatch
):
    original = ObjectFolder.upload

    def fail(self, path, name):
        if "00000002" in self.url and name == "weights.safetensors":
            self.write(name, b"the first part")
            raise InputError(f"{self.url_of(name)} is not accepted")
        original(self, path, name)

    with monkeypatch.context() as patch:
        patch.setattr(ObjectFolder, "upload", fail)
        with pytest.raises(InputError, match="step_00000002/weights"):
            save(run, store, 1, 2)
    assert steps(store) == [1]
    store.write("checkpoints/step_00000003/weights.safetensors", b"of an earlier run")
    backup = Backup(store.url, run)
    assert backup.restore() == []
    (line,) = backup.update()
    assert f"{store.url}/checkpoints/step_00000003" in line
    assert steps(store) == [1, 2]
    assert not (store / "checkpoints" / "step_00000003").find()


def test_a_checkpoint_that_is_backed_up_is_not_uploaded_again(run, store, transfers):
    save(run, store, 1, 2)
    transfers.clear()
    assert Backup(store.url, run).update() == []
    assert not transfers


@pytest.mark.parametrize(("other", "seed"), [(2, 1), (3, 0), (1, 1)])
def test_the_backup_of_another_run_is_an_error(run, store, tmp_path, other, seed):
    save(run, store, 1, 2)
    before = store.find()
    save(tmp_path / "other", ObjectFolder(f"{store.url}_other"), other, seed=seed)
    with pytest.raises(InputError, match="--backup has") as error:
        Backup(store.url, tmp_path / "other").restore()
    assert f"{store.url}/checkpoints/step_00000002" in str(error.value)
    assert store.find() == before


def test_a_damaged_backup_is_an_error_that_names_the_object(run, store, tmp_path):
    save(run, store, 1, 2)
    name = "checkpoints/step_00000002/weights.safetensors"
    store.write(name, store.read(name)[:-1] + b"\0")
    with pytest.raises(InputError, match="another checksum") as error:
        restored(store, tmp_path / "new")
    assert f"{store.url}/{name}" in str(error.value)
    (store / "checkpoints" / "step_00000002").clear()
    assert restored(store, tmp_path / "newer")[0] == [1]


def test_a_backup_is_read_like_a_run(run, store, monkeypatch, tmp_path):
    from electra_tf import sources

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    save(run, store, 1, 2)
    assert sources.open_source(store.url).own_checkpoint.step == 2
