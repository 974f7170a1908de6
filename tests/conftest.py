"""Shared fixtures: golden vocabulary, data sets, records, runs, command lines."""

import atexit
import contextlib
import copy
import gc
import importlib
import io
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# XLA compiles a part of every new step. To optimise it takes longer than tiny steps.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true",
)
# The cache of record counts is not the user's.
os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="electra_tf_cache")
atexit.register(shutil.rmtree, os.environ["XDG_CACHE_HOME"], ignore_errors=True)

# A shell ignores SIGINT in background jobs. Commands that the tests start would inherit
# this and could not be interrupted.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = pathlib.Path(__file__).parents[1]
GOLDEN = ROOT / "tests" / "golden"
RUN = GOLDEN / "saved" / "run"  # of four steps; `pretrained` also has logs


def pytest_collection_modifyitems(items):
    """Run the tests that start many processes first.

    An idle pytest-xdist worker takes tests from the end of another worker's list, and
    would have to create their shared fixtures again.
    """
    items.sort(key=lambda item: item.path.name != "test_replicas.py")
    gc.freeze()  # the collector then skips the objects of imported modules
    gc.set_threshold(100_000, 20, 20)


@pytest.fixture
def transfers(monkeypatch):
    """Return (kind, URL) of uploads, downloads and deletions of objects, in order."""
    from electra_tf.storage.objects import ObjectFolder

    done = []
    for kind in ("upload", "download", "delete"):
        original = getattr(ObjectFolder, kind)

        def counted(self, *paths, kind=kind, original=original):
            done.append((kind, self.url_of(paths[kind == "upload"])))
            return original(self, *paths)

        monkeypatch.setattr(ObjectFolder, kind, counted)
    return done


def contents(folder):
    """Return the bytes of all files in a folder by path."""
    files = (path for path in pathlib.Path(folder).rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.fixture(scope="session")
def vocabulary():
    from electra_tf.text.vocab import Vocabulary

    return Vocabulary.read(GOLDEN / "vocab.txt")


@pytest.fixture(scope="session")
def corpus_file(tmp_path_factory):
    """Return a file of 200 documents of random words of the golden text."""
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
    """Return a folder of records of 32 positions in five shards."""
    from tests.tiny import build_records

    output = tmp_path_factory.mktemp("records") / "out"
    build_records(corpus_file, output, vocabulary, max_length=32, shards=5)
    return output


@pytest.fixture(scope="session")
def data():
    """Return the folder of public data sets, which are not in the repository."""
    folder = os.environ.get("ELECTRA_TF_DATA")
    if not folder:
        pytest.skip("ELECTRA_TF_DATA names no folder of data sets")
    return pathlib.Path(folder)


@pytest.fixture(scope="session")
def command():
    """Return a function that runs `python -m electra_tf.NAME` in a new process."""

    def run(name, *arguments):
        return python("-m", f"electra_tf.{name}", *map(str, arguments))

    return run


def python(*arguments, **variables):
    """Run Python in a process that finds the modules of the tests."""
    path = str(ROOT)
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": path, **variables},
        capture_output=True,
        text=True,
        cwd=ROOT,
    )


@pytest.fixture(scope="session")
def pretrained(folder, tmp_path_factory):
    """Return a run of three steps, evaluated on its training records."""
    from electra_tf.runs.pretraining import Run
    from tests.tiny import resolve
    from tests.training.toy import one_device

    model_dir = tmp_path_factory.mktemp("pretrained") / "run"
    sets = ["training.steps=3", "training.evaluation_batches=null"]
    sets += ["model.max_positions=128"]  # default data.max_length of fine-tuning
    experiment = resolve(folder, *sets)
    records = experiment.open(str(folder))
    Run(experiment, one_device(), records, str(model_dir), records).train()
    return model_dir


_FLAGS = {}  # unparsed flags by command


@pytest.fixture
def here(capsys, monkeypatch):
    """Return a function like `command` that runs in this process, which is faster."""

    def run(name, *arguments, input=""):
        from electra_tf import cli

        module = importlib.import_module(f"electra_tf.{name}")
        values = copy.deepcopy(_FLAGS.setdefault(name, module.FLAGS))
        monkeypatch.setattr(module, "FLAGS", values)
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        # A command freezes all objects, so the objects of tests would never be freed.
        monkeypatch.setattr(gc, "freeze", lambda: None)
        file = io.BytesIO(input.encode(errors="surrogateescape"))
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(file)))
        handler, code = signal.getsignal(signal.SIGTERM), 0
        try:
            cli.run(module.main, values, module.__doc__)
        except SystemExit as error:
            code = error.code
        finally:
            signal.signal(signal.SIGTERM, handler)
        out, err = capsys.readouterr()
        if isinstance(code, str):  # Python prints it when a process exits
            code, err = 1, f"{err}{code}\n"
        return subprocess.CompletedProcess(name, code, out, err)

    return run


def flags(**given):
    """Return arguments of a command; flags that are None are left out."""
    return [f"--{name}={value}" for name, value in given.items() if value is not None]


def failure(result):
    """Return the error message of a failed command."""
    assert result.returncode == 1, result.stderr
    assert "Traceback" not in result.stderr
    message = result.stderr.strip().splitlines()[-1]
    assert message.startswith("error: ")
    return message


@contextlib.contextmanager
def full_disk(size):
    """Let no file of this process grow beyond a size, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
