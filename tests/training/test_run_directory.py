"""Lock of a run directory, and settings that may change on resume."""

import dataclasses
import subprocess
import sys

import pytest

from electra_tf.config import loader as config_lib
from electra_tf.config.pretraining import PretrainingConfig, TrainingConfig
from electra_tf.errors import InputError
from electra_tf.training.checkpoint import Checkpoint
from electra_tf.training.run_directory import (
    RESUME_SAFE_FIELDS,
    check_resumable,
    is_milestone,
    lock_token,
    run_lock,
)
from tests.conftest import ROOT

METADATA = {"vocabulary": "abc", "records": 7}


@pytest.fixture
def checkpoint(tmp_path):
    (tmp_path / "config.yaml").write_text(config_lib.dump_config(PretrainingConfig()))
    return Checkpoint(str(tmp_path), 5, METADATA)


def test_a_killed_process_releases_the_lock(tmp_path):
    program = (
        "import sys; from electra_tf.training.run_directory import run_lock\n"
        "with run_lock(sys.argv[1]): print('ready', flush=True); sys.stdin.read()"
    )
    folder = tmp_path / "a" / "run"
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    with process:
        assert process.stdout.readline() == "ready\n"
        words = f"--model_dir {folder} is locked"
        with pytest.raises(InputError, match=words), run_lock(str(folder)):
            pass
        first = lock_token(str(folder))
        assert 0 < first < 2**50
        process.kill()
        process.wait()
    with run_lock(str(folder)), run_lock(str(tmp_path / "b")):
        # Each lock has its own token, also in the same folder.
        tokens = {first, lock_token(str(folder)), lock_token(str(tmp_path / "b"))}
        assert len(tokens) == 3
    assert lock_token(str(tmp_path / "missing")) == 0


def test_a_failed_run_deletes_only_a_new_empty_folder(tmp_path):
    new, with_file, old = (tmp_path / name for name in ("new", "with_file", "old"))
    old.mkdir()

    def fail_in(folder):
        with run_lock(str(folder)):
            (folder / "task").mkdir()
            if folder == with_file:
                (folder / "task" / "problems.txt").touch()
            raise ZeroDivisionError

    for folder in (new, with_file, old):
        with pytest.raises(ZeroDivisionError):
            fail_in(folder)
    assert not new.exists()
    assert (with_file / "task" / "problems.txt").exists()
    assert old.exists()
    with run_lock(str(new)):
        assert new.exists()
    assert new.exists()


def test_a_file_is_an_error(tmp_path):
    file = tmp_path / "file"
    file.write_text("content")
    with (
        pytest.raises(InputError, match=r"--model_dir must be .*/file"),
        run_lock(str(file)),
    ):
        pass
    assert file.read_text() == "content"
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("steps", [5, 2_000_000])
def test_resume_safe_fields_and_steps_may_change(checkpoint, steps):
    sets = [
        *("training.log_every=7", "training.keep_at=[0.3]", "evaluation.seed=7"),
        *("vocabulary.size=5", "corpus.field=body", f"training.steps={steps}"),
    ]
    config = config_lib.load_config(overrides=sets)
    check_resumable(checkpoint, config, {**METADATA, "new": 1})
    # Each entry is an existing field or section.
    sections = dataclasses.asdict(PretrainingConfig())
    for name in RESUME_SAFE_FIELDS:
        section, _, setting = name.partition(".")
        assert not setting or setting in sections[section]
        assert section in sections


SETS = [
    *("training.seed=1", "training.log_every=3", "model.depth=2", "records.seed=4"),
    *("training.xla=on", "input.batch_size=64", "optimizer.clip_norm=null"),
    "tokenization.lower_case=false",
]
CHANGES = (
    "`tokenization.lower_case` is False, was True; `input.batch_size` is 64, was 128; "
    "`model.depth` is 2, was 12; `optimizer.clip_norm` is None, was 1.0; "
    "`training.seed` is 1, was 0; `training.xla` is 'on', was 'auto'; "
    "vocabulary is None, was 'abc'; records is 8, was 7; restore the values"
)


@pytest.mark.parametrize(
    ("sets", "metadata", "words", "loads"),
    [
        (SETS, {"records": 8}, CHANGES, False),
        (["model.dropout=0.2"], METADATA, "`model.dropout` is 0.2, was 0.1", True),
        (
            ["training.steps=4"],
            METADATA,
            "4, was 1000000: it must be at least 5",
            False,
        ),
    ],
)
def test_other_settings_must_not_change(checkpoint, sets, metadata, words, loads):
    with pytest.raises(InputError) as error:
        check_resumable(checkpoint, config_lib.load_config(overrides=sets), metadata)
    assert words in str(error.value)
    assert ("--init_checkpoint=" in str(error.value)) == loads


def test_milestones_of_a_run_with_another_length():
    then = config_lib.load_config(overrides=["training.steps=40"])
    config = config_lib.dump_config(then).encode()
    now = TrainingConfig(steps=60, keep_at=(0.25, 0.5))
    milestones = {n for n in range(1, 61) if is_milestone(now, n, config)}
    assert milestones == {10, 20, 15, 30}
    assert is_milestone(now, 7, None)
