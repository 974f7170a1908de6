"""The documentation matches the code: commands parse, Python runs, the site builds."""

import ast
import copy
import csv
import functools
import importlib
import json
import re
import shlex

import pytest

from electra_tf.config import loader
from electra_tf.config.finetuning import FinetuningConfig
from electra_tf.config.pretraining import PretrainingConfig
from electra_tf.runs.exporting import export_saved_model
from electra_tf.tasks.classifier import TextClassifier
from tests import tiny
from tests.conftest import ROOT, python
from tests.tiny import build_records

DOCS = ROOT / "docs"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]
FILES = [
    *PAGES,
    *sorted((ROOT / "configs").rglob("*.yaml")),
    *sorted((ROOT / "electra_tf").rglob("*.py")),
]


def name_of(path):
    return str(path.relative_to(ROOT))


def blocks(path, language):
    """Return the fenced blocks of a page in a language."""
    text = path.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.S | re.M)


def command_lines(path):
    """Return (command, arguments) of the command lines of a file.

    They are in the blocks of a page, the docstring of a module, or a config's comments.
    """
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        text = "\n".join(blocks(path, r"\w*"))
    elif path.suffix == ".py":
        text = ast.get_docstring(ast.parse(text)) or ""
    text = re.sub(r"\\\n[# ]*", "", text)
    prompt = r"^[#\s$]*(?:exec |echo .* \| )?(?:electra-tf |python -m electra_tf\.)"
    lines = re.findall(rf"{prompt}(\w+) (-[^\n]*)", text, re.M)
    # Without redirections.
    return [(command, re.split(r"\s[>|&]", rest)[0]) for command, rest in lines]


@functools.cache
def flags_of(command):
    return importlib.import_module(f"electra_tf.{command}").FLAGS


@pytest.mark.parametrize("path", list(filter(command_lines, FILES)), ids=name_of)
def test_command_lines_are_accepted_by_the_parser(path, monkeypatch):
    monkeypatch.chdir(ROOT)
    for command, rest in command_lines(path):
        values = copy.deepcopy(flags_of(command))
        left = values(["command", *shlex.split(rest, comments=True)])
        assert left == ["command"], f"{command} {rest}"
        if "set" in values:
            root = FinetuningConfig if command == "finetune" else PretrainingConfig
            loader.load_config(values.config, values.set, root=root)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory, corpus_file, vocabulary, pretrained):
    """Return a folder with `records` of 128 positions and a pre-training `run`."""
    workspace = tmp_path_factory.mktemp("docs")
    build_records(corpus_file, workspace / "records", vocabulary, max_length=128)
    (workspace / "run").symlink_to(pretrained)
    columns = "\t" * 7
    pairs = "".join(f"{n}{columns}a film {n}\ta list {n}\t{n % 6}\n" for n in range(40))
    rows = "sentence\tlabel\n" + "a dull film\t0\na fine film\t1\n" * 20
    for task, text in (("STS-B", f"a header\n{pairs}"), ("SST-2", rows)):
        (workspace / task).mkdir()
        for name in ("train.tsv", "dev.tsv"):
            (workspace / task / name).write_text(text)
    write_tutorials(workspace, pretrained)
    return workspace


def write_tutorials(folder, pretrained):
    """Write a table, a model, its held-out predictions and its export."""
    texts, labels = tiny.texts(60)[0], ["keras", "numpy", "scipy"] * 20
    rows = list(zip(texts, labels, strict=True))
    for name, header in (
        ("functions.csv", ("sentence", "package")),
        ("model/trial_1/dev.csv", ("sentence", "package")),
    ):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([header, *rows])
        rows = rows[:9]
    model = TextClassifier.from_preset(str(pretrained), labels=sorted(set(labels)))
    model.save(folder / "model" / "model.keras")
    export_saved_model(model, str(folder / "served_model"))


def python_blocks():
    for path in PAGES:
        for number, block in enumerate(blocks(path, "python")):
            yield pytest.param(path, block, id=f"{name_of(path)}: {number}")


@pytest.mark.tools
@pytest.mark.parametrize(("path", "block"), list(python_blocks()))
def test_python_blocks_run(path, block, workspace, monkeypatch):
    if "insecure_channel" in block or "import spacy" in block:
        pytest.skip("needs a server or spaCy")
    monkeypatch.chdir(workspace)
    block = re.sub(r"epochs=\d+\)", "epochs=2)", block)
    exec(compile(block, name_of(path), "exec"), {})  # an exception fails the test


@pytest.mark.tools
@pytest.mark.parametrize("path", sorted(DOCS.rglob("*.ipynb")), ids=name_of)
def test_notebooks_run(path, workspace, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib").use("Agg")
    # A folder of its own, as the pages' examples export to the same names.
    for name in ("run", "records"):
        (tmp_path / name).symlink_to(workspace / name)
    monkeypatch.chdir(tmp_path)
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    sources = ["".join(c["source"]) for c in cells if c["cell_type"] == "code"]
    assert sources
    names = {}
    for source in sources:
        exec(compile(source, name_of(path), "exec"), names)


@pytest.mark.tools
def test_the_site_builds_without_warnings(tmp_path):
    pytest.importorskip("mkdocs", reason="needs the extra `docs`")
    result = python("-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path)
    assert result.returncode == 0, result.stderr
    # The lists of settings are made from the code.
    page = (tmp_path / "how_to" / "resume" / "index.html").read_text()
    may, stay = page.split("must stay as they are")
    assert "records.deduplicate" in may
    assert "input.batch_size" in stay
