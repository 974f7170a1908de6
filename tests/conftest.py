"""What tests share: the golden vocabulary, the data sets, the real command lines."""

import os
import pathlib
import subprocess
import sys

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

ROOT = pathlib.Path(__file__).parents[1]
GOLDEN = ROOT / "tests" / "golden"


@pytest.fixture(scope="session")
def vocabulary():
    from electra_tf.text.vocab import Vocabulary

    return Vocabulary.read(GOLDEN / "vocab.txt")


@pytest.fixture(scope="session")
def data():
    """The folder of public data sets, which the project does not ship."""
    folder = os.environ.get("ELECTRA_TF_DATA")
    if not folder:
        pytest.skip("ELECTRA_TF_DATA names no folder of data sets")
    return pathlib.Path(folder)


@pytest.fixture(scope="session")
def command():
    """Runs `python -m electra_tf.NAME` in a process of its own."""

    def run(name, *arguments, **kwargs):
        return subprocess.run(
            [sys.executable, "-m", f"electra_tf.{name}", *map(str, arguments)],
            capture_output=True,
            text=True,
            cwd=ROOT,
            **kwargs,
        )

    return run


def failure(result):
    """The one paragraph on standard error of a command that failed."""
    assert result.returncode == 1, result.stderr
    assert "Traceback" not in result.stderr
    message = result.stderr.strip().splitlines()[-1]
    assert message.startswith("error: ")
    return message
