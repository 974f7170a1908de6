"""The documentation matches the code: commands, flags, links, Python, settings."""

import ast
import configparser
import copy
import functools
import importlib
import inspect
import json
import os
import re
import shlex
import subprocess

import numpy as np
import pytest
from conftest import ROOT, python
from tiny import build_records

import electra_tf
from electra_tf.__main__ import COMMANDS
from electra_tf.config import loader
from electra_tf.config.finetuning import FinetuningConfig
from electra_tf.config.pretraining import PretrainingConfig

DOCS = ROOT / "docs"
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    ROOT / "tests" / "golden" / "README.md",
    *sorted(DOCS.rglob("*.md")),
]
NAVIGATION = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
OTHERS = [
    *sorted((ROOT / "configs").rglob("*.yaml")),
    *sorted((ROOT / "electra_tf").rglob("*.py")),
]


def name_of(path):
    return str(path.relative_to(ROOT))


def blocks(path, language):
    """Return the fenced blocks of a language; "" selects blocks without one."""
    text = path.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.S | re.M)


def prose(path):
    """Return a page without its fenced blocks."""
    text = path.read_text(encoding="utf-8")
    return re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)


# ---- Commands and flags.


def command_lines(path):
    """Return (command, arguments) of the command lines of a file.

    They are in the blocks of a page, the docstring of a module, or a config's comments.
    """
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        text = "\n".join(re.findall(r"^```\w*\n(.*?)^```", text, re.S | re.M))
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


def test_every_command_has_an_example():
    lines = (line for path in PAGES for line in command_lines(path))
    # `presets` has no flags.
    assert {"presets", *(command for command, _ in lines)} == set(COMMANDS)


def test_command_lines_are_accepted_by_the_parser(monkeypatch):
    monkeypatch.chdir(ROOT)
    lines = (line for path in [*PAGES, *OTHERS] for line in command_lines(path))
    for command, rest in lines:
        values = copy.deepcopy(flags_of(command))
        left = values(["command", *shlex.split(rest, comments=True)])
        assert left == ["command"], f"{command} {rest}"
        if "set" in values:
            root = FinetuningConfig if command == "finetune" else PretrainingConfig
            loader.load_config(values.config, values.set, root=root)


# ---- Scripts for clusters.


def test_scripts_have_valid_syntax():
    for script in (block for path in PAGES for block in blocks(path, "bash")):
        result = subprocess.run(
            ["bash", "-n"], input=script, text=True, capture_output=True
        )
        assert (result.returncode, result.stderr) == (0, ""), script


# Programs that print what the cluster's programs would pass on.
PROGRAMS = {
    "scontrol": 'test "$*" = "show hostnames node[0-1]" && printf "node0\\nnode1\\n"',
    "srun": 'for i in 0 1; do SLURM_PROCID=$i "${@:2}"; done',
    "electra-tf": 'echo "$TF_CONFIG" >> "$CONFIGS"; echo "training completed"',
}


@pytest.fixture
def tf_configs(tmp_path):
    """Return a function that runs a script and returns the TF_CONFIG of its workers."""
    for name, body in PROGRAMS.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{body}\n")
        (tmp_path / name).chmod(0o755)

    def run(script, **variables):
        environment = {
            **os.environ,
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "CONFIGS": str(tmp_path / "configs"),
            **variables,
        }
        subprocess.run(["bash", "-c", script], env=environment, check=True)
        return list(map(json.loads, (tmp_path / "configs").read_text().splitlines()))

    return run


def expected_configs(*workers):
    return [
        {"cluster": {"worker": list(workers)}, "task": {"type": "worker", "index": n}}
        for n in range(len(workers))
    ]


def scaling_script(word):
    (script,) = (b for b in blocks(DOCS / "scaling.md", "bash") if word in b)
    return script


def test_the_slurm_script_sets_tf_config(tf_configs):
    configs = tf_configs(scaling_script("#SBATCH"), SLURM_JOB_NODELIST="node[0-1]")
    assert configs == expected_configs("node0:2222", "node1:2222")


def test_the_kubernetes_job_sets_tf_config(tf_configs):
    script = scaling_script("JOB_COMPLETION_INDEX")
    for index in range(2):
        configs = tf_configs(script, WORKERS="2", JOB_COMPLETION_INDEX=str(index))
    assert configs == expected_configs(
        "electra-0.electra:2222", "electra-1.electra:2222"
    )


OTHER_PROGRAMS = {
    "help", "enable_batching", "batching_parameters_file", "strict", "memory",
    "model_config_file", "monitoring_config_file", "kill", "signal",
    "grpc_channel_arguments",
}  # fmt: skip


@functools.cache
def known_flags():
    known = OTHER_PROGRAMS.union(*map(flags_of, COMMANDS))
    for path in (ROOT / "tools").rglob("*.py"):
        known.update(re.findall(r'"--([a-z_]+)"', path.read_text()))
    return known


def test_documented_flags_exist():
    for name in re.findall(r"`--(?:\[no\])?([a-z][a-z_]*)", "".join(map(prose, PAGES))):
        assert {name, name.removeprefix("no")} & known_flags(), f"--{name}"


_NOT_SETTINGS = {"py", "json", "keras", "npz", "safetensors", "save"}


def config_sections():
    sections = {}
    for root in (PretrainingConfig, FinetuningConfig):
        for section, field in root.__pydantic_fields__.items():
            names = set(field.annotation.__pydantic_fields__)
            sections[section] = sections.get(section, set()) | names
    return sections


def test_documented_settings_exist():
    sections = config_sections()
    pattern = rf"`({'|'.join(sections)})\.(\w+)[`=: ]"
    text = "".join(path.read_text(encoding="utf-8") for path in PAGES)
    for section, name in re.findall(pattern, text):
        known = sections[section] | _NOT_SETTINGS  # a file or a method
        assert name in known, f"{section}.{name}"


def test_documented_tools_exist():
    for path in PAGES:
        for name in re.findall(r"\btools/[\w./]+\w", path.read_text(encoding="utf-8")):
            assert (ROOT / name).exists(), f"{name_of(path)}: {name}"


# ---- Links.


def anchors(path):
    """Return the ids that MkDocs gives to the headings of a page."""
    ids, fenced = set(), False
    for line in path.read_text(encoding="utf-8").splitlines():
        fenced ^= line.startswith("```")
        if line.startswith("#") and not fenced:
            title = re.sub(r"[^\w\s-]", "", line.lstrip("# ").lower()).strip()
            ids.add(re.sub(r"[-\s]+", "-", title))
        ids.update(re.findall(r"^::: ([\w.]+)$", line))  # an entry of the reference
    return ids


def test_link_targets_exist():
    pattern = r"\]\(\s*(?!https?:)([^)\s]+)\s*\)"
    links = ((path, of) for path in PAGES for of in re.findall(pattern, prose(path)))
    for path, target in links:
        name, _, anchor = target.partition("#")
        other = (path.parent / name).resolve() if name else path
        assert other.exists(), f"{name_of(path)}: {target}"
        if anchor and other.suffix == ".md":
            assert anchor in anchors(other), f"{name_of(path)}: {target}"


def test_every_page_is_in_the_navigation():
    for path in (path for kind in ("md", "ipynb") for path in DOCS.rglob(f"*.{kind}")):
        name = str(path.relative_to(DOCS))
        assert re.search(rf"\s{re.escape(name)}$", NAVIGATION, re.M), name


# ---- The site, with its reference generated from docstrings.


def test_every_public_name_has_one_entry_in_the_reference():
    entries = [
        entry
        for path in (DOCS / "reference").glob("*.md")
        for entry in re.findall(r"^::: electra_tf\.(\w+)$", path.read_text(), re.M)
    ]
    assert sorted(entries) == sorted(electra_tf.__all__)


def test_returned_values_are_not_read_as_types():
    """The reference takes what is before a colon in the first line for a type."""
    values = [getattr(electra_tf, name) for name in electra_tf.__all__]
    classes = [value for value in values if inspect.isclass(value)]
    members = [m for cls in classes for m in vars(cls).values()]
    for item in values + members:
        doc = inspect.getdoc(item) or ""
        for line in re.findall(r"^ *(?:Returns|Yields):\n(.*)", doc, re.M):
            assert ":" not in line, f"{item}: {line}"


def test_every_extra_is_documented():
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    page = prose(DOCS / "getting-started.md")
    table = page.split("| extra | for |\n")[1].split("\n\n")[0]
    documented = re.findall(
        r"`([\w-]+)`", " ".join(re.findall("^\\|.*?\\|", table, re.M))
    )
    assert sorted(documented) == sorted(parser["options.extras_require"])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Return the folder of the built site."""
    for module in ("mkdocs", "material", "mkdocstrings", "mkdocs_jupyter"):
        pytest.importorskip(module, reason="needs the extra `docs`")
    folder = tmp_path_factory.mktemp("site")
    result = python("-m", "mkdocs", "build", "--strict", "--site-dir", folder)
    assert result.returncode == 0, result.stderr
    return folder


@pytest.mark.tools
def test_mkdocs_renders_reference_and_notebooks(site):
    reference = "".join(p.read_text() for p in (site / "reference").rglob("*.html"))
    for name in ("Encoder.from_preset", "Encoder.enable_lora", "Tokenizer.encode"):
        assert f'id="electra_tf.{name}"' in reference  # also inherited ones
    assert "Example:" not in reference
    for path in DOCS.rglob("*.ipynb"):
        page = (
            site / path.relative_to(DOCS).with_suffix("") / "index.html"
        ).read_text()
        assert "data:image/png" in page  # a figure


def test_the_configuration_page_is_up_to_date(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import write_configuration_docs as writer

    assert writer.PAGE.read_text(encoding="utf-8") == writer.render()


def test_the_page_of_other_libraries_is_up_to_date(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import write_coming_from as writer

    assert writer.PAGE.read_text(encoding="utf-8") == writer.render()


# ---- Python.


@pytest.fixture(scope="module")
def workspace(tmp_path_factory, corpus_file, vocabulary, pretrained):
    """Return a folder with `records` of 128 positions and a pre-training `run`."""
    workspace = tmp_path_factory.mktemp("docs")
    build_records(corpus_file, workspace / "records", vocabulary, max_length=128)
    (workspace / "run").symlink_to(pretrained)
    (workspace / "SST-2").mkdir()
    rows = "sentence\tlabel\n" + "a dull film\t0\na fine film\t1\n" * 20
    columns = "\t" * 7
    pairs = "".join(f"{n}{columns}a film {n}\ta list {n}\t{n % 6}\n" for n in range(40))
    (workspace / "STS-B").mkdir()
    for name in ("train.tsv", "dev.tsv"):
        (workspace / "SST-2" / name).write_text(rows)
        (workspace / "STS-B" / name).write_text("a header\n" + pairs)
    return workspace


def python_blocks():
    seen = set()  # README and the home page share a block
    for path in PAGES:
        for number, block in enumerate(blocks(path, "python")):
            if block not in seen:
                yield pytest.param(path, block, id=f"{name_of(path)}: {number}")
            seen.add(block)


# Replacements of slow settings in the documents.
FASTER = {
    "steps_per_epoch=10, epochs=3": "steps_per_epoch=2, epochs=1",
    "epochs=10)": "epochs=1)",
}


@pytest.mark.tools
@pytest.mark.parametrize(("path", "block"), list(python_blocks()))
def test_python_blocks_run(path, block, workspace, monkeypatch):
    for shown, faster in FASTER.items():
        block = block.replace(shown, faster)
    code = compile(block, name_of(path), "exec")
    if "insecure_channel" in block or "import spacy" in block:
        return  # needs a server or spaCy; `serve_check`'s client makes the same calls
    monkeypatch.chdir(workspace)
    names = {}
    exec(code, names)  # an exception fails the test
    if "scipy" in names:  # the example that learns
        held_out = names["texts"][:100], names["labels"][:100]
        assert names["model"].evaluate(*held_out)[1] > 0.85
    elif "model" in names and "labels" in names:
        probabilities = names["model"].predict(["good", "bad"])
        np.testing.assert_allclose(np.sum(probabilities, 1), 1, rtol=1e-5)


def test_fences_have_a_tested_language():
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        languages = set(re.findall(r"^```([^\n]+)$", text, re.M))
        assert languages <= {"python", "yaml", "bash", "json"}, name_of(path)


# ---- Notebooks.


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
        exec(compile(source, name_of(path), "exec"), names)  # an exception fails


def test_pages_that_messages_name_exist():
    heads = [path.read_text(encoding="utf-8").split("\n")[0] for path in PAGES]
    titles = {head.removeprefix("# ") for head in heads}
    titles |= set(re.findall(r"^ +- (.*): [\w-]+\.md$", NAVIGATION, re.M))
    named = set()
    for path in (ROOT / "electra_tf").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            text = node.value if isinstance(node, ast.Constant) else ""
            named.update(re.findall(r"page ([A-Z][\w ]*)", str(text)))
    assert "Use the encoder" in named
    assert [n for n in named if not n.startswith(tuple(titles))] == []
