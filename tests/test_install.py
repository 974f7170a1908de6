"""What is installed: packages, configs, dependencies, and the commands in a wheel."""

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
from conftest import ROOT, failure

PACKAGE = ROOT / "electra_tf"
CONFIGS = sorted(path.name for path in (ROOT / "configs").glob("*.yaml"))
# Packages that have another name than the module that is imported.
DISTRIBUTION = {
    "absl": "absl-py",
    "ai_edge_litert": "ai-edge-litert",
    "google_crc32c": "google-crc32c",
    "official": "tf-models-official",
    "sklearn": "scikit-learn",
    "tensorflow_datasets": "tensorflow-datasets",
    "tensorflow_serving": "tensorflow-serving-api",
    "tensorflow_text": "tensorflow-text",
    "yaml": "pyyaml",
}
NOT_IMPORTED = {
    "importlib_resources": "TensorFlow Datasets imports it and does not require it",
    "tensorboard": "Keras's callback writes through it",
    "setuptools": "TensorBoard imports its pkg_resources",
    "accelerate": "the trainer of transformers imports it",
    "libtpu": "JAX loads it",
    "pytest-xdist": "a plugin of pytest",
    "ruff": "a command",
    "mkdocs": "a command",
    "mkdocs-material": "a theme of MkDocs",
}
BROKEN_KERAS = ("3.12.0", "3.13.0")


def setup():
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    return parser


def names(requirements):
    rows = [row.strip() for row in requirements.splitlines()]
    found = {re.match(r"[\w.-]+", row)[0].lower() for row in rows if row[:1].isalnum()}
    return found - {"electra_tf"}


def extras():
    return {
        extra: names(rows) for extra, rows in setup()["options.extras_require"].items()
    }


def imported(*folders):
    """Names of the distributions that files import, within functions too."""
    # Modules of tests and tools import one another; the package's have full names.
    others = [folder for folder in folders if folder != PACKAGE]
    local = {path.stem for folder in others for path in folder.rglob("*")}
    local |= {"electra_tf", "tools", "tests", *sys.stdlib_module_names}
    found = set()
    for path in (path for folder in folders for path in folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                found.add(node.module.split(".")[0])
    return {DISTRIBUTION.get(name, name) for name in found - local}


def test_all_packages_and_data_files_are_listed():
    folders = {path.parent for path in PACKAGE.rglob("*.py")}
    found = {".".join(path.relative_to(ROOT).parts) for path in folders}
    options = setup()["options"]
    assert set(options["packages"].split()) == found | {"electra_tf.configs"}
    assert options["package_dir"].split() == ["electra_tf.configs", "=", "configs"]
    assert (PACKAGE / "py.typed").exists()


def test_what_the_package_imports_is_declared():
    base = names(setup()["options"]["install_requires"])
    optional = {name for extra in extras().values() for name in extra}
    found = imported(PACKAGE)
    assert {"tensorflow", "pyarrow"} <= found
    assert found <= base | optional


def test_what_is_declared_is_imported():
    base = names(setup()["options"]["install_requires"])
    assert base - imported(PACKAGE) <= set(NOT_IMPORTED)
    everywhere = imported(PACKAGE, ROOT / "tools", ROOT / "tests")
    for extra, declared in extras().items():
        assert declared <= everywhere | set(NOT_IMPORTED), extra


def test_the_installed_versions_are_ones_that_are_allowed():
    import keras

    required = setup()["options"]["install_requires"]
    assert "keras>=3.12.1,!=3.13.0,<4" in required
    assert keras.__version__ not in BROKEN_KERAS
    assert (3, 12, 1) <= tuple(map(int, keras.__version__.split(".")[:3])) < (4,)


def test_the_constraints_have_a_version_for_each_requirement():
    text = (ROOT / "constraints.txt").read_text()
    rows = [row for row in text.splitlines() if not row.startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+==[\w.+]+", row) for row in rows)
    found = {row.split("==")[0].lower().replace("_", "-") for row in rows}
    base = names(setup()["options"]["install_requires"])
    wanted = (base | extras()["test"] | extras()["serving"]) - {"setuptools"}
    assert {name.replace("_", "-") for name in wanted} <= found


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A copy of the tracked and the new files."""
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(
        listing, cwd=ROOT, capture_output=True, text=True, check=True
    )
    folder = tmp_path_factory.mktemp("checkout")
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """The folder of programs of an empty virtual environment."""
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


@pytest.fixture(scope="module")
def wheel(checkout, environment, tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    run(environment / "pip", "wheel", "--no-deps", f"--wheel-dir={folder}", checkout)
    return next(folder.glob("*.whl"))


@pytest.mark.slow
def test_a_wheel_has_all_modules_and_configs(wheel):
    held = set(zipfile.ZipFile(wheel).namelist())
    modules = {str(path.relative_to(ROOT)) for path in PACKAGE.rglob("*.py")}
    assert modules <= held
    assert {f"electra_tf/configs/{name}" for name in CONFIGS} <= held
    assert "electra_tf/py.typed" in held
    assert not [name for name in held if name.startswith(("tests", "tools", "configs"))]


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
    where = "import electra_tf; print(electra_tf.__file__)"
    assert "site-packages" in run(python, "-c", where, cwd=tmp_path).stdout
    listed = run(environment / "electra-tf", cwd=tmp_path).stdout
    assert "pretrain" in listed

    # The same names from an editable install of a checkout.
    run(environment / "pip", "install", "--quiet", "--no-deps", "-e", checkout)
    assert str(checkout) in run(python, "-c", where, cwd=tmp_path).stdout
    again = ("pretrain", "--data=records", "--model_dir=run2", "--dry_run")
    command(*again, "--config=tiny")
    arguments = (environment / "electra-tf", *again, "--config=tinny")
    assert "Did you mean 'tiny'?" in failure(run(*arguments, cwd=tmp_path, check=False))
