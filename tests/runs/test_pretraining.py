"""The files between the command and the losses."""

import pathlib
import traceback

import pytest

from electra_tf.pretraining.objectives.electra import ElectraObjective
from electra_tf.runs import pretraining
from tests.tiny import SMALL


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
    with pytest.raises(ZeroDivisionError):
        here("pretrain", f"--data={folder}", f"--model_dir={tmp_path}", *sets)
    names = [path.relative_to(package).as_posix() for path in passed]
    # `losses` is replaced here; its file is the fifth.
    assert [name for name in names if name != "cli.py"] == [
        "pretrain.py",
        "runs/pretraining.py",
        "training/loop.py",
        "pretraining/pretrainer.py",
    ]
