"""Installation: packages, configs, dependencies, and the commands of a wheel."""

import ast
import configparser
import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile

import pytest

from tests.conftest import ROOT, failure

PACKAGE = ROOT / "electra_tf"
CONFIGS = sorted(
    path.relative_to(ROOT / "configs").as_posix()
    for path in (ROOT / "configs").rglob("*.yaml")
)
PRESET_FILES = {
    path.relative_to(ROOT).as_posix()
    for path in (PACKAGE / "preset_files").glob("*/*")
    if path.is_file() and path.parent.name != "__pycache__"
}
FIRST_CLASSIFIER = """
from electra_tf import TextClassifier

texts, labels = ["good film", "bad film"] * 8, [1, 0] * 8
model = TextClassifier.from_preset("electra_wiki_en", num_classes=2)
model.fit(texts, labels, epochs=3)
print(model.evaluate(texts, labels))
"""
# Distribution names that differ from the imported module's.
DISTRIBUTION = {
    "absl": "absl-py",
    "ai_edge_litert": "ai-edge-litert",
    "apache_beam": "apache-beam",
    "google": "protobuf",
    "google_crc32c": "google-crc32c",
    "sklearn": "scikit-learn",
    "tensorflow_datasets": "tensorflow-datasets",
    "tensorflow_serving": "tensorflow-serving-api",
    "tensorflow_text": "tensorflow-text",
    "yaml": "pyyaml",
}


def setup():
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    return parser


def names(requirements):
    rows = [row.strip() for row in requirements.splitlines()]
    packages = {re.match(r"[\w.-]+", r)[0].lower() for r in rows if r[:1].isalnum()}
    return packages - {"electra_tf"}


def extras():
    return {
        extra: names(rows) for extra, rows in setup()["options.extras_require"].items()
    }


def imported():
    """Return the distributions that the package imports, including in functions."""
    modules = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                modules |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                modules.add(node.module.split(".")[0])
    own = {"electra_tf", *sys.stdlib_module_names}
    return {DISTRIBUTION.get(name, name) for name in modules - own}


def test_all_packages_and_data_files_are_listed():
    folders = {path.parent for path in PACKAGE.rglob("*.py")}
    packages = {".".join(path.relative_to(ROOT).parts) for path in folders}
    options = setup()["options"]
    assert set(options["packages"].split()) == packages | {"electra_tf.configs"}
    assert options["package_dir"].split() == ["electra_tf.configs", "=", "configs"]
    assert (PACKAGE / "py.typed").exists()


def test_imports_are_declared():
    base = names(setup()["options"]["install_requires"])
    optional = {name for extra in extras().values() for name in extra}
    packages = imported()
    assert {"tensorflow", "pyarrow"} <= packages
    assert packages <= base | optional


def test_constraints_pin_every_requirement():
    text = (ROOT / "constraints.txt").read_text()
    rows = [row for row in text.splitlines() if not row.startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+==[\w.+]+", row) for row in rows)
    pinned = {row.split("==")[0].lower().replace("_", "-") for row in rows}
    base = names(setup()["options"]["install_requires"])
    required = (base | extras()["test"] | extras()["serving"]) - {"setuptools"}
    assert {name.replace("_", "-") for name in required} <= pinned


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """Return a copy of the tracked and new files of the repository."""
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    result = subprocess.run(
        listing, cwd=ROOT, capture_output=True, text=True, check=True
    )
    folder = tmp_path_factory.mktemp("checkout")
    for name in result.stdout.splitlines():
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """Return the folder of programs of an empty virtual environment."""
    folder = tmp_path_factory.mktemp("environment") / "venv"
    venv.create(folder, with_pip=True)
    run(folder / "bin" / "pip", "install", "--quiet", "--upgrade", "pip")
    return folder / "bin"


def run(program, *arguments, cwd=None, check=True):
    clean = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    result = subprocess.run(
        [program, *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        env=clean,
    )
    assert not check or result.returncode == 0, result.stderr
    return result


PROGRAMS = {  # in place of Python and df
    "no_venv": 'case "$*" in *ensurepip*) exit 1 ;; esac; exec "$REAL" "$@"',
    "old": '[ "$1" = --version ] && echo "Python 3.9.2"; exit 1',
    # Makes an environment with itself as Python.
    "stub": """if [ "$1 $2" = "-m venv" ]; then
        mkdir -p "$3/bin" && cp "$0" "$3/bin/python"
    else echo "$0 $*"; fi""",
    "df": "echo; echo /dev/disk 9000000 7800000 1200000 87% /",
}


def run_tool(folder, command, python, **variables):
    """Run a tool in a folder of its own."""
    program, *arguments = command.split()
    (folder / "tools").mkdir()
    for name in ("install", program):
        shutil.copy(ROOT / "tools" / name, folder / "tools")
    shutil.copy(ROOT / "setup.cfg", folder)
    (folder / "bin").mkdir()
    for name, body in PROGRAMS.items():
        (folder / "bin" / name).write_text(f"#!/bin/sh\n{body}\n")
        (folder / "bin" / name).chmod(0o755)
    variables |= {"PYTHON": str(folder / "bin" / python), "REAL": sys.executable}
    return subprocess.run(
        [folder / "tools" / program, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **variables},
    )


@pytest.mark.tools
@pytest.mark.parametrize(
    ("python", "command", "words"),
    [
        ("no_venv", "quickstart", ["ensurepip", "python3-venv"]),
        ("old", "test", ["3.11 to 3.13", "3.9.2", "PYTHON="]),
        (sys.executable, "quickstart", ["3 GB", "1 GB"]),
        (sys.executable, "test", ["5 GB", "1 GB"]),
    ],
)
def test_what_is_missing_is_an_error_first(tmp_path, python, command, words):
    paths = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    result = run_tool(tmp_path, command, python, PATH=paths)
    assert result.returncode == 1
    error = result.stderr.strip()
    assert error.startswith("error: ")
    assert "\n" not in error
    assert all(word in error for word in words)
    assert not result.stdout
    assert not list(tmp_path.glob(".venv*"))


@pytest.mark.tools
@pytest.mark.parametrize(
    ("command", "folder"),
    [
        ("install", ".venv"),
        ("install serving,interop-test", ".venv"),
        ("install test", ".venv-test"),
        ("install docs,test", ".venv-test"),
        ("test -m slow", ".venv-test"),
        ("device_compile", ".venv-test"),
        ("quickstart", ".venv"),
    ],
)
def test_the_extra_test_leaves_the_environment_of_trainings_alone(
    tmp_path, command, folder
):
    result = run_tool(tmp_path, command, "stub")
    assert result.returncode == 0, result.stderr
    assert [path.name for path in tmp_path.glob(".venv*")] == [folder]
    assert f"{folder}/bin/python" in result.stdout.splitlines()[-1]


@pytest.mark.tools
@pytest.mark.parametrize("command", ["install", "quickstart", "test"])
def test_help_installs_nothing(tmp_path, command):
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools" / command, tmp_path / "tools")
    result = run(tmp_path / "tools" / command, "--help")
    assert f"tools/{command}" in result.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["tools"]


@pytest.fixture(scope="module")
def wheel(checkout, environment, tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    run(environment / "pip", "wheel", "--no-deps", f"--wheel-dir={folder}", checkout)
    return next(folder.glob("*.whl"))


@pytest.mark.slow
def test_a_wheel_has_all_modules_and_configs(wheel):
    files = set(zipfile.ZipFile(wheel).namelist())
    modules = {str(path.relative_to(ROOT)) for path in PACKAGE.rglob("*.py")}
    assert modules <= files
    assert {f"electra_tf/configs/{name}" for name in CONFIGS} <= files
    assert "electra_tf/py.typed" in files
    assert PRESET_FILES  # else the next line compares nothing
    assert files >= PRESET_FILES
    assert not [
        name for name in files if name.startswith(("tests", "tools", "configs"))
    ]


@pytest.mark.slow
def test_the_wheel_runs_in_an_empty_environment(
    wheel, environment, checkout, corpus_file, tmp_path
):
    run(environment / "pip", "install", "--quiet", wheel)
    python = environment / "python"

    def command(name, *arguments):
        return run(python, "-m", f"electra_tf.{name}", *arguments, cwd=tmp_path)

    command("build_vocab", f"--input={corpus_file}", "--output=v.txt", "--size=300")
    command(
        "build_records",
        "--config=tiny",
        f"--input={corpus_file}",
        "--vocab=v.txt",
        "--output=records",
    )
    run(
        *(environment / "electra-tf", "pretrain", "--config=tiny", "--data=records"),
        *("--model_dir=run", "--set=training.steps=2", "--set=input.batch_size=8"),
        cwd=tmp_path,
    )
    assert (tmp_path / "run" / "metrics.jsonl").exists()
    print_path = "import electra_tf; print(electra_tf.__file__)"
    assert "site-packages" in run(python, "-c", print_path, cwd=tmp_path).stdout
    commands = run(environment / "electra-tf", cwd=tmp_path).stdout
    assert "pretrain" in commands
    assert "electra_wiki_en" in run(environment / "electra-tf", "presets").stdout
    run(python, "-c", FIRST_CLASSIFIER, cwd=tmp_path)

    # An editable install of a checkout has the same commands.
    run(environment / "pip", "install", "--quiet", "--no-deps", "-e", checkout)
    assert str(checkout) in run(python, "-c", print_path, cwd=tmp_path).stdout
    dry_run = ("pretrain", "--data=records", "--model_dir=run2", "--dry_run")
    command(*dry_run, "--config=tiny")
    arguments = (environment / "electra-tf", *dry_run, "--config=tinny")
    assert "did you mean 'tiny'?" in failure(run(*arguments, cwd=tmp_path, check=False))
