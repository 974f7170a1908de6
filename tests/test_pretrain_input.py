"""Invalid input of the command: one paragraph, no file is written."""

import resource
import shutil

import numpy as np
import pytest
from conftest import failure
from pretrain_commands import arguments

from electra_tf import pretrain
from electra_tf.training.checkpoint import open_checkpoint

BAD = {
    "a typo": (["training.stpes=3"], {}, "Did you mean `training.steps`?"),
    "no steps": (["training.steps=0"], {}, "`training.steps` must be greater than 0"),
    "a missing config": ([], {"config": "gone.yaml"}, "gone.yaml"),
    "missing records": ([], {"data": "gone"}, "'gone'"),
    "no records": ([], {"data": None}, "no --data"),
    "no run directory": ([], {"model_dir": None}, "no --model_dir"),
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
    "contradicting devices": ([], {"strategy": "mirrored", "tpu": "x"}, "--tpu"),
    "one replica of two": ([], {"cpu_replicas": 2}, "--cpu_replicas"),
    "no checkpoint": ([], {"init_checkpoint": "gone"}, "'gone'"),
    "an unknown store": ([], {"model_dir": "nowhere://bucket/run"}, "nowhere://"),
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


def damaged_copy(folder, copy, change):
    """Copy the records and change the last file; return its path."""
    shutil.copytree(folder, copy)
    shard = sorted(copy.glob("*tfrecord*"))[-1]
    data = bytearray(shard.read_bytes())
    shard.write_bytes(change(data))
    return shard


def test_a_truncated_record_file_is_named(folder, here, tmp_path):
    shard = damaged_copy(folder, tmp_path / "records", lambda data: data[:-3])
    given = arguments(shard.parent, tmp_path / "run")
    message = failure(here("pretrain", *given))
    assert str(shard) in message
    (shard.parent / "manifest.json").unlink()  # as written by other builders
    message = failure(here("pretrain", *given))
    assert f"{shard}: record " in message
    given = arguments(folder, tmp_path / "run", evaluation_data=shard.parent)
    assert str(shard) in failure(here("pretrain", *given))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("flag", ["data", "evaluation_data"])
def test_a_damaged_record_is_named_while_training(folder, here, tmp_path, flag):
    def flip(data):
        data[len(data) // 2] ^= 1
        return data

    shard = damaged_copy(folder, tmp_path / "records", flip)
    sets = (*QUICK, "training.evaluation_batches=null", "input.shuffle_window=5000")
    flags = {"evaluation_data": folder, flag: shard.parent}
    data = flags.pop("data", folder)
    message = failure(
        here("pretrain", *arguments(data, tmp_path / "run", *sets, **flags))
    )
    assert f"{shard}: record " in message
    assert "is corrupt or truncated" in message


def test_a_full_disk_is_an_error(folder, here, tmp_path):
    given = arguments(folder, tmp_path / "run", *QUICK)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, hard))  # bytes per file
    try:
        message = failure(here("pretrain", *given))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "File too large" in message
    assert "run the same command again" in message
    assert not list((tmp_path / "run" / "checkpoints").iterdir())


def test_a_loss_that_is_not_finite_stops_the_run(folder, here, tmp_path):
    sets = ("optimizer.learning_rate=1e30", "optimizer.clip_norm=null")
    sets = (*QUICK, *sets, "training.save_every=1")
    message = failure(here("pretrain", *arguments(folder, tmp_path, *sets)))
    good = open_checkpoint(str(tmp_path))
    span = f"in steps {good.step + 1} to {good.step + 1}; "
    assert f"{span}the last good checkpoint: {good.path}" in message
    assert "a lower optimizer.learning_rate" in message
    for arrays in (good.weights(), good.slots()):
        assert all(np.isfinite(values).all() for values in arrays.values())


@pytest.mark.parametrize(
    ("sets", "flags", "words"),
    [
        (["input.batch_size=100000"], {}, "input.batch_size"),
        ([], {"init_checkpoint": "/nowhere"}, "'/nowhere'"),
    ],
)
def test_a_dry_run_checks_the_input(folder, here, sets, flags, words):
    given = arguments(folder, None, *sets, **flags)
    assert words in failure(here("pretrain", *given, "--dry_run"))


def test_a_dry_run_prints_estimates_and_writes_nothing(
    folder, here, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    done = here("pretrain", *arguments(folder, None), "--dry_run")
    assert done.returncode == 0, done.stderr
    for words in (
        "vocabulary_size: 1000",
        "keep_at:",
        "electra/discriminator/head: 1,089 parameters",  # 33 * 32 + 33
        "FLOPs per step",
        "GiB of this process",
        "time to train: about ",
    ):
        assert words in done.stdout
    assert not list(tmp_path.iterdir())


def test_help_shows_every_flag_with_its_default(here):
    done = here("pretrain", "--help")
    assert done.returncode == 0
    for name in pretrain.FLAGS:
        flag = pretrain.FLAGS[name]
        assert f"{name}: " in done.stdout
        if flag.default not in (None, []):
            assert f"(default: {flag.default_as_str})" in done.stdout


def test_a_missing_tpu_is_an_error(command, folder, tmp_path):
    result = command("pretrain", *arguments(folder, tmp_path / "run"), "--tpu")
    message = failure(result)
    assert "TPU" in message
    assert "--strategy=auto" in message
    assert not (tmp_path / "run").exists()
