"""One run at a time in a folder, and what a run may change when it goes on."""

import dataclasses
import subprocess
import sys

import pytest
from conftest import ROOT

from electra_tf.config import loader as config_lib
from electra_tf.config.pretraining import PretrainingConfig
from electra_tf.errors import InputError
from electra_tf.training.checkpoint import Checkpoint
from electra_tf.training.run_directory import (
    RESUME_SAFE_FIELDS,
    acquire_lock,
    changed_fields,
    check_resumable,
    kept_before,
    lock_token,
    run_lock,
)

DETAILS = {"vocabulary": "abc", "records": 7}


@pytest.fixture
def checkpoint(tmp_path):
    (tmp_path / "config.yaml").write_text(config_lib.dump_config(PretrainingConfig()))
    return Checkpoint(str(tmp_path), 5, DETAILS)


def test_a_folder_is_held_until_it_is_let_go(tmp_path):
    folder = tmp_path / "a" / "run"
    held = acquire_lock(str(folder))
    with pytest.raises(InputError, match="where another process is at work"):
        acquire_lock(str(folder))
    other = acquire_lock(str(tmp_path / "b"))
    held.close()
    acquire_lock(str(folder)).close()
    other.close()


def test_a_process_that_is_killed_lets_go(tmp_path):
    program = (
        "import sys; from electra_tf.training.run_directory import acquire_lock;"
        "held = acquire_lock(sys.argv[1]); print('held', flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    with process:
        assert process.stdout.readline() == "held\n"
        with pytest.raises(InputError, match=str(tmp_path)):
            acquire_lock(str(tmp_path))
        process.kill()
        process.wait()
        acquire_lock(str(tmp_path)).close()


def test_who_holds_a_folder_marks_it(tmp_path):
    assert lock_token(str(tmp_path)) == 0
    with acquire_lock(str(tmp_path / "one")), acquire_lock(str(tmp_path / "other")):
        first = lock_token(str(tmp_path / "one"))
        assert 0 < first < 2**50
        assert lock_token(str(tmp_path / "other")) != first
        with pytest.raises(InputError):
            acquire_lock(str(tmp_path / "one"))
        assert lock_token(str(tmp_path / "one")) == first
    with acquire_lock(str(tmp_path / "one")):
        assert lock_token(str(tmp_path / "one")) != first


def test_a_new_folder_of_which_nothing_came_goes(tmp_path):
    new, begun, old = (tmp_path / name for name in ("new", "begun", "old"))
    old.mkdir()

    def fail_in(folder):
        with run_lock(str(folder)):
            (folder / "task").mkdir()
            if folder == begun:
                (folder / "task" / "problems.txt").touch()
            raise ZeroDivisionError

    for folder in (new, begun, old):
        with pytest.raises(ZeroDivisionError):
            fail_in(folder)
    assert not new.exists()
    assert (begun / "task" / "problems.txt").exists()
    assert old.exists()
    with run_lock(str(new)):
        assert new.exists()
    assert new.exists()


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match=r"file, a file\. Choose another name"):
        acquire_lock(str(tmp_path / "file"))
    assert (tmp_path / "file").read_text() == "mine"


def test_a_bucket_is_no_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="gcsfuse"):
        acquire_lock("gs://bucket/run")
    assert not list(tmp_path.iterdir())


def test_a_run_goes_on_as_it_began(checkpoint):
    for details in (DETAILS, {**DETAILS, "new": 1}):
        assert check_resumable(checkpoint, PretrainingConfig(), details) is None


FREE_NOW = (
    "training.log_every=7",
    "training.save_every=7",
    "training.keep=1",
    "training.keep_at=[0.3]",
    "training.evaluate_every=7",
    "training.evaluation_batches=null",
    "vocabulary.size=5",
    "corpus.field=body",
    "records.seed=4",
)
FIXED = (
    ("training.seed=7", "`training.seed` is 7, was 0"),
    ("training.accumulation=2", "`training.accumulation` is 2, was 1"),
    ("training.precision=mixed_bfloat16", "'mixed_bfloat16', was 'float32'"),
    ("training.xla=on", "`training.xla` is 'on', was 'auto'"),
    ("input.batch_size=64", "`input.batch_size` is 64, was 128"),
    ("input.shuffle_window=64", "`input.shuffle_window` is 64, was 65536"),
    ("model.dropout=0.2", "`model.dropout` is 0.2, was 0.1"),
    ("masking.rate=0.3", "`masking.rate` is 0.3, was 0.15"),
    ("objective.name=mlm", "`objective.name` is 'mlm', was 'electra'"),
    ("optimizer.learning_rate=0.1", "`optimizer.learning_rate` is 0.1, was 0.0005"),
    ("optimizer.clip_norm=null", "`optimizer.clip_norm` is None, was 1.0"),
    ("records.max_length=64", "`records.max_length` is 64, was 128"),
    ("tokenization.lower_case=false", "`tokenization.lower_case` is False, was True"),
)


def test_what_no_weight_depends_on_may_change(checkpoint):
    check_resumable(checkpoint, config_lib.load_config(sets=FREE_NOW), DETAILS)
    # Each name is one that exists, or the whole section is free.
    sections = dataclasses.asdict(PretrainingConfig())
    for name in RESUME_SAFE_FIELDS:
        section, _, setting = name.partition(".")
        assert section in sections
        assert not setting or setting in sections[section]


@pytest.mark.parametrize(("changed", "words"), FIXED)
def test_what_weights_depend_on_may_not(checkpoint, changed, words):
    with pytest.raises(InputError) as found:
        check_resumable(checkpoint, config_lib.load_config(sets=[changed]), DETAILS)
    assert words in str(found.value)
    assert f"--init_checkpoint={checkpoint.path}" in str(found.value)


@pytest.mark.parametrize("steps", [5, 7, 2_000_000])
def test_a_run_may_have_another_length(checkpoint, steps):
    now = config_lib.load_config(sets=[f"training.steps={steps}"])
    assert check_resumable(checkpoint, now, DETAILS) is None


def test_a_run_is_not_shorter_than_what_is_done(checkpoint):
    with pytest.raises(InputError) as found:
        check_resumable(
            checkpoint, config_lib.load_config(sets=["training.steps=4"]), DETAILS
        )
    for words in (
        "`training.steps`",
        "5 or more",
        f"4, with the checkpoint {checkpoint.path}",
    ):
        assert words in str(found.value)


def test_what_was_kept_of_a_shorter_run_stays(tmp_path):
    lengths = {10: 40, 20: 40, 30: 40, 40: 40, 50: 80, 60: 80}
    for step, steps in lengths.items():
        path = tmp_path / "checkpoints" / f"step_{step:08d}"
        path.mkdir(parents=True)
        (path / "checkpoint.json").touch()
        config = config_lib.load_config(sets=[f"training.steps={steps}"])
        (path / "config.yaml").write_text(config_lib.dump_config(config))
    assert kept_before(str(tmp_path), (0.25, 0.5)) == {10, 20}
    assert kept_before(str(tmp_path), (0.75, 1.0)) == {30, 40, 60}
    (tmp_path / "checkpoints" / "step_00000050" / "config.yaml").unlink()
    assert kept_before(str(tmp_path), ()) == {50}
    assert kept_before(str(tmp_path / "none"), (0.5,)) == set()


def test_all_that_changed_is_named(checkpoint):
    sets = ["training.seed=1", "training.log_every=3", "model.depth=2"]
    with pytest.raises(InputError) as found:
        check_resumable(checkpoint, config_lib.load_config(sets=sets), {"records": 8})
    assert found.value.received == (
        "`model.depth` is 2, was 12; `training.seed` is 1, was 0; "
        "vocabulary is None, was 'abc'; records is 8, was 7"
    )


def test_differences_are_pairs_by_name():
    then = config_lib.load_config(sets=["training.seed=1", "model.depth=2"])
    now = config_lib.load_config(sets=["training.seed=1", "records.max_length=64"])
    assert changed_fields(then, now) == {
        "model.depth": (2, 12),
        "records.max_length": (128, 64),
    }
    assert not changed_fields(now, now)
