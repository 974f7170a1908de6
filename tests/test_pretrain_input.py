"""Invalid input of the command: one paragraph, no file is written."""

import pathlib
import shutil

import pytest

from electra_tf.training.checkpoint import open_checkpoint
from electra_tf.training.metric_logger import read_metrics
from tests.conftest import failure
from tests.pretrain_commands import arguments

BAD = {
    "a typo": (["training.stpes=3"], {}, "did you mean `training.steps`?"),
    "no steps": (["training.steps=0"], {}, "`training.steps` must be greater than 0"),
    "a missing config": ([], {"config": "gone.yaml"}, "gone.yaml"),
    "missing evaluation records": ([], {"evaluation_data": "gone"}, "'gone'"),
    "a vocabulary of another size": (
        ["model.vocabulary_size=30522"],
        {},
        "30522, with 1000 entries",
    ),
    "another length": (["records.max_length=64"], {}, "records.max_length=32"),
    "a batch larger than the records": (
        ["input.batch_size=100000"],
        {},
        "input.batch_size",
    ),
    "no workers": ([], {"strategy": "multi_worker"}, "TF_CONFIG"),
    "a run directory at a URL": (
        [],
        {"model_dir": "gs://bucket/run"},
        "pass --model_dir=run --backup=gs://bucket/run",
    ),
    "an unknown store": ([], {"backup": "nowhere://bucket/run"}, "nowhere://"),
    "a backup that is no URL": ([], {"backup": "backup"}, "--backup=file://"),
    "a report of a dry run": (
        [],
        {"report": "report.html", "dry_run": True},
        "--report must not be used with --dry_run",
    ),
    "a wrong flag": ([], {"stratgy": "auto"}, "stratgy"),
}


@pytest.mark.parametrize("name", BAD)
def test_invalid_input_is_one_paragraph_and_writes_nothing(
    folder, here, tmp_path, name
):
    sets, flags, words = BAD[name]
    flags = {"data": folder, "model_dir": tmp_path / "run", **flags}
    given = arguments(flags.pop("data"), flags.pop("model_dir"), *sets, **flags)
    message = failure(here("pretrain", *given))
    assert words in message
    assert not list(tmp_path.iterdir())


QUICK = ("objective.name=mlm", "training.steps=4", "training.log_every=1")


def test_a_damaged_record_of_the_evaluation_is_named(folder, here, tmp_path):
    records = shutil.copytree(folder, tmp_path / "records")
    shard = sorted(records.glob("*tfrecord*"))[-1]
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    sets = (*QUICK, "training.evaluation_batches=null")
    given = arguments(folder, tmp_path / "run", *sets, evaluation_data=records)
    message = failure(here("pretrain", *given))
    assert f"{shard}: record " in message
    assert "is bad: it is corrupt" in message
    assert read_metrics(str(tmp_path / "run")) == []  # before the first step


def test_a_disk_without_room_for_a_checkpoint_is_an_error(
    folder, here, tmp_path, monkeypatch
):
    usage, given = shutil.disk_usage(tmp_path), arguments(folder, tmp_path, *QUICK)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=10_000))
    message = failure(here("pretrain", *given))
    assert f"{tmp_path}, with 0 MB free" in message
    assert read_metrics(str(tmp_path)) == []
    monkeypatch.undo()
    assert here("pretrain", *given).returncode == 0
    # The weights and two slots of the optimizer.
    found = open_checkpoint(str(tmp_path))
    size = sum(f.stat().st_size for f in pathlib.Path(found.path).rglob("*"))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=size // 2))
    shutil.rmtree(tmp_path)
    assert "MB free" in failure(here("pretrain", *given))


def test_a_missing_tpu_is_an_error(here, folder, tmp_path):
    message = failure(here("pretrain", *arguments(folder, tmp_path / "run"), "--tpu"))
    assert "TPU" in message
    assert "without --tpu" in message
    assert not (tmp_path / "run").exists()
