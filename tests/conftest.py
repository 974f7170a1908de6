"""What tests share: the golden vocabulary, the data sets, the real command lines."""

import json
import os
import pathlib
import random
import signal
import subprocess
import sys

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

# A shell that starts the tests in the background has them ignore SIGINT; the commands
# that tests interrupt would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = pathlib.Path(__file__).parents[1]
GOLDEN = ROOT / "tests" / "golden"


@pytest.fixture(scope="session")
def vocabulary():
    from electra_tf.text.vocab import Vocabulary

    return Vocabulary.read(GOLDEN / "vocab.txt")


@pytest.fixture(scope="session")
def corpus_file(tmp_path_factory):
    """200 documents of the golden text's words, no two lines alike."""
    golden = json.loads((GOLDEN / "dataset_builder.json").read_text())["lines"]
    words, rng = " ".join(golden).split(), random.Random(0)
    lines = []
    for _ in range(200):
        lines += [
            " ".join(rng.choices(words, k=rng.randint(3, 25)))
            for _ in range(rng.randint(1, 14))
        ]
        lines.append("")
    path = tmp_path_factory.mktemp("corpus") / "text.txt"
    path.write_text("\n".join(lines))
    return path


@pytest.fixture(scope="session")
def folder(tmp_path_factory, corpus_file, vocabulary):
    """A folder of records of 32 positions in five shards."""
    from text.conftest import build_records

    output = tmp_path_factory.mktemp("records") / "out"
    build_records(corpus_file, output, vocabulary, max_length=32, shards=5)
    return output


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
