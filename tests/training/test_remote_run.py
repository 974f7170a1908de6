"""A run directory at a URL: what is uploaded, in which order, and what is fetched."""

import contextlib
import pathlib
import uuid

import numpy as np
import pytest

from electra_tf.errors import InputError
from electra_tf.storage.objects import ObjectFolder
from electra_tf.training.checkpoint import CheckpointManager, open_checkpoint
from electra_tf.training.remote_run import open_remote_run, open_run_copy

CONFIG = b"training:\n  steps: 100\n"
FILES = {"config.yaml", "weights.safetensors", "optimizer.safetensors"}


@pytest.fixture
def store():
    return ObjectFolder(f"memory://{uuid.uuid4().hex}/run")


def save(run, *steps, keep=2):
    manager = CheckpointManager(f"{run.folder}/checkpoints", keep, mirror=run)
    for step in steps:
        weights = {"w": np.full((3,), step, np.float32)}
        pathlib.Path(run.folder, "metrics.jsonl").write_text(f"{step}\n")
        manager.save(step, weights, {"m/w": weights["w"]}, {"config.yaml": CONFIG}, {})


def steps(store):
    names = (store / "checkpoints").find()
    return sorted({int(name[5:13]) for name in names if "checkpoint.json" in name})


def newest(folder):
    checkpoint = open_checkpoint(str(folder))
    return checkpoint.step, checkpoint.weights()["w"].tolist()


def write(store, name, content=b"x"):
    store.write(f"checkpoints/{name}", content)


def test_every_checkpoint_is_uploaded_and_old_ones_are_deleted(store):
    with open_remote_run(store.url) as run:
        save(run, 1, 2, 3)
        assert steps(store) == [2, 3]
    assert set((store / "checkpoints" / "step_00000003").find()) == {
        "checkpoint.json",
        *FILES,
    }
    assert not (store / "checkpoints" / "step_00000001").find()
    assert store.read("metrics.jsonl") == b"3\n"
    assert not [name for name in store.find() if name.startswith("lease/")]
    assert not pathlib.Path(run.folder).exists()


def test_the_manifest_is_written_last_and_deleted_first(store, monkeypatch):
    done = []
    for name in ("upload", "delete"):
        original = getattr(ObjectFolder, name)

        def counted(self, *args, name=name, original=original):
            done.append((name, self.url_of(args[-1]).removeprefix(store.url)))
            return original(self, *args)

        monkeypatch.setattr(ObjectFolder, name, counted)
    with open_remote_run(store.url) as run:
        save(run, 1, 2, keep=1)
        first, second = (
            f"/checkpoints/step_0000000{n}/checkpoint.json" for n in (1, 2)
        )
        saved = [path for kind, path in done if kind == "upload"]
        deleted = [path for kind, path in done if kind == "delete"]
    assert saved[3:5] == ["/metrics.jsonl", first]
    assert saved[-1] == second
    assert deleted[0] == first
    assert len(deleted) == 4


def test_another_machine_resumes_from_the_newest_complete_checkpoint(store):
    with open_remote_run(store.url) as run:
        save(run, 1, 2)
    write(store, "step_00000009/weights.safetensors")
    with open_remote_run(store.url) as run:
        assert newest(run.folder) == (2, [2, 2, 2])
        assert pathlib.Path(run.folder, "metrics.jsonl").read_text() == "2\n"
        (note,) = run.notes
        assert f"{store.url}/checkpoints/step_00000009" in note
        save(run, 3)
        assert steps(store) == [2, 3]


def test_a_working_copy_follows_the_store(store):
    with contextlib.suppress(KeyError), open_remote_run(store.url) as run:
        save(run, 1, 2)
        for name in ("step_00000002/checkpoint.json", "step_00000002/config.yaml"):
            store.delete(f"checkpoints/{name}")
        raise KeyError  # as if killed while step 2 was uploaded
    assert pathlib.Path(run.folder, "checkpoints", "step_00000002").exists()
    with open_remote_run(store.url) as run:
        assert newest(run.folder) == (1, [1, 1, 1])
        save(run, 2)
        assert steps(store) == [1, 2]


def test_a_failed_upload_ends_the_run_and_leaves_no_checkpoint(store, monkeypatch):
    original = ObjectFolder.upload

    def fail(self, path, name):
        if "00000002/weights" in name:
            raise InputError("The store must accept", self.url_of(name), "Retry")
        original(self, path, name)

    monkeypatch.setattr(ObjectFolder, "upload", fail)
    with (
        pytest.raises(InputError, match="step_00000002/weights"),
        open_remote_run(store.url) as run,
    ):
        save(run, 1, 2)
    assert steps(store) == [1]


def test_a_damaged_checkpoint_stops_the_run_unless_fallback_is_set(store):
    with open_remote_run(store.url) as run:
        save(run, 1, 2)
    write(store, "step_00000002/weights.safetensors", b"damaged")
    with (
        pytest.raises(InputError, match="--fallback") as error,
        open_remote_run(store.url),
    ):
        pass
    assert f"{store.url}/checkpoints/step_00000002/weights" in str(error.value)
    with open_remote_run(store.url, fallback=True) as run:
        assert newest(run.folder) == (1, [1, 1, 1])
        assert "checkpoint.json.damaged" in run.notes[0]
    assert not (store / "checkpoints" / "step_00000002").info("checkpoint.json")


def test_a_run_without_its_lease_publishes_nothing(store):
    with open_remote_run(store.url) as run:
        save(run, 1)
        (name,) = (store / "lease").find()
        store.delete(f"lease/{name}")
        with pytest.raises(InputError, match="lost"):
            save(run, 2)
        with pytest.raises(InputError, match="lost"):
            run.check()
    assert steps(store) == [1]


def test_workers_read_the_run_of_the_chief(store):
    with open_remote_run(store.url) as chief:
        save(chief, 1)
        with open_remote_run(store.url, worker=1) as worker:
            assert worker.folder != chief.folder
            assert worker.lock_token() == chief.lock_token() > 0
            assert newest(worker.folder)[0] == 1
        with pytest.raises(InputError, match="leased by"), open_remote_run(store.url):
            pass


def test_a_copy_of_a_run_needs_no_lease(store):
    with open_remote_run(store.url) as run:
        save(run, 1)
        before = store.find()
        with open_run_copy(store.url) as folder:
            assert newest(folder)[0] == 1
        assert store.find() == before
