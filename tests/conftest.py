"""What tests share: the golden vocabulary, the data sets, the real command lines."""

import copy
import gc
import importlib
import io
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


def pytest_collection_modifyitems(items):
    """Puts first what starts many processes.

    Of two processes the one that is done takes tests from the other's end, and would
    have to make again what they share.
    """
    items.sort(key=lambda item: item.path.name != "test_replicas.py")
    gc.freeze()  # what was imported is no garbage, and long to search


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


@pytest.fixture(scope="session")
def pretrained(command, folder, tmp_path_factory):
    """A run of three steps, measured on its own records."""
    from runs.test_experiment import SMALL

    model_dir = tmp_path_factory.mktemp("pretrained") / "run"
    sets = [*SMALL, "training.steps=3", "training.evaluation_batches=null"]
    sets += ["model.max_positions=128"]  # as fine-tuning asks for unless told
    result = command(
        "pretrain",
        f"--data={folder}",
        f"--evaluation_data={folder}",
        f"--model_dir={model_dir}",
        *(f"--set={item}" for item in sets),
    )
    assert result.returncode == 0, result.stderr
    return model_dir


_FLAGS = {}  # of a command, as nobody has parsed them


@pytest.fixture
def here(capsys, monkeypatch):
    """As `command`, but within this process: without TensorFlow's start."""

    def run(name, *arguments, input=""):
        from electra_tf import cli

        module = importlib.import_module(f"electra_tf.{name}")
        values = copy.deepcopy(_FLAGS.setdefault(name, module.FLAGS))
        monkeypatch.setattr(module, "FLAGS", values)
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        # A command freezes all there is; tests leave much behind.
        monkeypatch.setattr(gc, "freeze", lambda: None)
        stdin = io.TextIOWrapper(io.BytesIO(input.encode()))
        monkeypatch.setattr(sys, "stdin", stdin)
        handler, code = signal.getsignal(signal.SIGTERM), 0
        try:
            cli.run(module.main, values, module.__doc__)
        except SystemExit as ended:
            code = ended.code
        finally:
            signal.signal(signal.SIGTERM, handler)
        out, err = capsys.readouterr()
        if isinstance(code, str):  # printed by Python at the end of a process
            code, err = 1, f"{err}{code}\n"
        return subprocess.CompletedProcess(name, code, out, err)

    return run


def failure(result):
    """The one paragraph on standard error of a command that failed."""
    assert result.returncode == 1, result.stderr
    assert "Traceback" not in result.stderr
    message = result.stderr.strip().splitlines()[-1]
    assert message.startswith("error: ")
    return message
