"""The documentation matches the code: commands, flags, links, Python, settings."""

import copy
import importlib
import json
import os
import re
import shlex
import subprocess
import sys

import numpy as np
import pytest
import yaml
from conftest import ROOT
from tiny import build_records

from electra_tf.config import loader
from electra_tf.config.finetuning import FinetuningConfig
from electra_tf.config.pretraining import PretrainingConfig

DOCS = ROOT / "docs"
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    ROOT / "tests" / "golden" / "README.md",
    *sorted(DOCS.rglob("*.md")),
]
COMMANDS = {
    "build_vocab", "build_records", "pretrain", "evaluate", "finetune", "predict",
    "export", "convert", "score",
}  # fmt: skip


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


def command_lines():
    for path in PAGES:
        text = path.read_text(encoding="utf-8").replace("\\\n", "")
        pattern = (
            r"^\s*(?:\$ |exec )?(?:electra-tf |python -m electra_tf\.)(\w+) ([^\n]*)"
        )
        for command, rest in re.findall(pattern, "\n".join(blocks_of(text)), re.M):
            rest = re.split(r"\s[>|&]", rest)[0]  # without redirections
            yield pytest.param(command, rest, id=f"{name_of(path)}: {command}")


def blocks_of(text):
    return re.findall(r"^```\w*\n(.*?)^```", text, re.S | re.M)


def test_every_command_has_an_example():
    assert {parameter.values[0] for parameter in command_lines()} >= COMMANDS


@pytest.mark.parametrize(("command", "rest"), list(command_lines()))
def test_command_lines_are_accepted_by_the_parser(command, rest, monkeypatch):
    monkeypatch.chdir(ROOT)
    values = copy.deepcopy(importlib.import_module(f"electra_tf.{command}").FLAGS)
    assert values(["command", *shlex.split(rest, comments=True)]) == ["command"]
    if "set" in values:
        root = FinetuningConfig if command == "finetune" else PretrainingConfig
        loader.load_config(values.config, values.set, root=root)


# ---- Scripts for clusters.


def bash_scripts():
    """Yield the scripts in blocks of bash and of Kubernetes Jobs."""
    for path in PAGES:
        for number, block in enumerate(blocks(path, "bash")):
            yield pytest.param(block, id=f"{name_of(path)}: {number}")
        for block in blocks(path, "yaml"):
            for script in job_scripts(block):
                yield pytest.param(script, id=f"{name_of(path)}: Job")


def job_scripts(text):
    for document in yaml.safe_load_all(text):
        if document.get("kind") == "Job":
            for container in document["spec"]["template"]["spec"]["containers"]:
                assert container["command"][:2] == ["bash", "-c"]
                yield container["command"][2]


@pytest.mark.parametrize("script", list(bash_scripts()))
def test_scripts_have_valid_syntax(script):
    result = subprocess.run(
        ["bash", "-n"], input=script, text=True, capture_output=True
    )
    assert (result.returncode, result.stderr) == (0, "")


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


def test_the_slurm_script_sets_tf_config(tf_configs):
    (script,) = (b for b in blocks(DOCS / "scaling.md", "bash") if "#SBATCH" in b)
    configs = tf_configs(script, SLURM_JOB_NODELIST="node[0-1]")
    assert configs == expected_configs("node0:2222", "node1:2222")


def test_the_kubernetes_job_sets_tf_config(tf_configs):
    (script,) = job_scripts("".join(blocks(DOCS / "scaling.md", "yaml")))
    for index in range(2):
        configs = tf_configs(script, WORKERS="2", JOB_COMPLETION_INDEX=str(index))
    assert configs == expected_configs(
        "electra-0.electra:2222", "electra-1.electra:2222"
    )


def flags():
    """Yield the flags that the prose of a page names as `--name`."""
    for path in PAGES:
        if path.name == "CHANGELOG.md":
            continue  # it names flags of earlier versions
        text = prose(path)
        for name in sorted(set(re.findall(r"`--(?:\[no\])?([a-z][a-z_]*)", text))):
            yield pytest.param(name, id=f"{name_of(path)}: --{name}")


@pytest.mark.parametrize("name", list(flags()))
def test_documented_flags_exist(name):
    known = {"help", "cpu_replicas"}
    for command in COMMANDS:
        known |= set(importlib.import_module(f"electra_tf.{command}").FLAGS)
    tools = (ROOT / "tools").rglob("*.py")
    known |= {f for p in tools for f in re.findall(r'"--([a-z_]+)"', p.read_text())}
    # Flags of other programs.
    known |= {"enable_batching", "batching_parameters_file", "strict"}
    known |= {"model_config_file", "monitoring_config_file", "kill", "signal"}
    known |= {"memory", "grpc_channel_arguments"}
    assert name in known or name.removeprefix("no") in known


_NOT_SETTINGS = {"py", "json", "keras", "npz", "safetensors", "save"}


def settings():
    """Yield the names in a page that look like settings, `section.name`."""
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        sections = "|".join(config_sections())
        for name in sorted(set(re.findall(rf"`((?:{sections})\.\w+)[`=: ]", text))):
            if name.split(".")[1] in _NOT_SETTINGS:
                continue  # a file or a method
            yield pytest.param(name, id=f"{name_of(path)}: {name}")


def config_sections():
    sections = {}
    for root in (PretrainingConfig, FinetuningConfig):
        for section, field in root.__pydantic_fields__.items():
            names = set(field.annotation.__pydantic_fields__)
            sections[section] = sections.get(section, set()) | names
    return sections


@pytest.mark.parametrize("name", list(settings()))
def test_documented_settings_exist(name):
    section, _, setting = name.partition(".")
    assert setting in config_sections()[section]


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
    return ids


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_link_targets_exist(path):
    text = prose(path)
    for target in re.findall(r"\]\(\s*(?!https?:)([^)\s]+)\s*\)", text):
        name, _, anchor = target.partition("#")
        other = (path.parent / name).resolve() if name else path
        assert other.exists(), f"{name_of(path)}: {target}"
        if anchor and other.suffix == ".md":
            assert anchor in anchors(other), f"{name_of(path)}: {target}"


def test_every_page_is_in_the_navigation():
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for path in DOCS.glob("*.md"):
        assert re.search(rf"\s{re.escape(path.name)}$", text, re.M), path.name
        assert path.name == "index.md" or f"({path.name})" in (
            DOCS / "index.md"
        ).read_text(encoding="utf-8")


@pytest.mark.tools
def test_mkdocs_builds_in_strict_mode(tmp_path):
    pytest.importorskip("mkdocs", reason="needs the extra `docs`")
    pytest.importorskip("material", reason="needs the extra `docs`")
    command = ["mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    result = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "site" / "performance" / "index.html").exists()


def test_the_configuration_page_is_up_to_date():
    script = ROOT / "tools" / "write_configuration_docs.py"
    result = subprocess.run(
        [sys.executable, script, "--check"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr


def test_the_readme_is_short():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert text.count("\n") <= 200
    assert len(text.encode()) <= 12_000


# ---- Python.


@pytest.fixture(scope="module")
def workspace(tmp_path_factory, corpus_file, vocabulary, pretrained):
    """Return a folder with `records` of 128 positions and a pre-training `run`."""
    workspace = tmp_path_factory.mktemp("docs")
    build_records(corpus_file, workspace / "records", vocabulary, max_length=128)
    (workspace / "run").symlink_to(pretrained)
    return workspace


def python_blocks():
    for path in PAGES:
        for number, block in enumerate(blocks(path, "python")):
            yield pytest.param(path, block, id=f"{name_of(path)}: {number}")


# Replacements of slow settings in the documents.
FASTER = {"steps_per_epoch=10, epochs=3": "steps_per_epoch=2, epochs=1"}


@pytest.mark.tools
@pytest.mark.parametrize(("path", "block"), list(python_blocks()))
def test_python_blocks_run(path, block, workspace, monkeypatch):
    for shown, faster in FASTER.items():
        block = block.replace(shown, faster)
    code = compile(block, name_of(path), "exec")
    if "insecure_channel" in block:
        return  # needs a server; the client of `serve_check` makes the same calls
    monkeypatch.chdir(workspace)
    names = {}
    exec(code, names)  # an exception fails the test
    if "model" in names and "labels" in names:
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
