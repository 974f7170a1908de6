import importlib
import os
import pathlib
import signal
import subprocess
import sys
import threading

import pytest

from electra_tf import cli
from electra_tf.config import loader
from electra_tf.errors import InputError
from electra_tf.runs.html_report import write_page
from tests.conftest import ROOT, failure, python

NAMES = {
    "max_length": "records.max_length",
    "shards": "records.shards",
    "order": "records.order",
    "lower_case": "tokenization.lower_case",
    "coverage": "vocabulary.character_coverage",
    "field": "corpus.field",
}


def parse(*arguments):
    values = cli.Flags()
    cli.define_config_flags(values, NAMES)
    values(["command", *arguments])
    return values


def test_flags_have_type_default_and_help_of_their_setting():
    values = parse()
    assert values.max_length == 128
    assert values.shards is None
    assert values.lower_case is True
    assert values["order"].parser.enum_values == ["original", "document"]
    assert values["max_length"].help.startswith("Positions of a record")


def test_only_present_flags_override_the_config(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("records: {max_length: 64, shards: 2}")
    values = parse(f"--config={path}", "--nolower_case", "--set", "records.seed=3")
    settings = cli.resolve(values, NAMES)
    assert settings.records.max_length == 64
    assert (settings.records.shards, settings.records.seed) == (2, 3)
    assert settings.tokenization.lower_case is False
    # A flag set to its default overrides the file too.
    again = cli.resolve(parse(f"--config={path}", "--max_length=128"), NAMES)
    assert again.records.max_length == 128


def output_flags(*arguments):
    values = cli.Flags()
    values.strings(output="", report="", data="", model="")
    values.lists(input="")
    values.switches(overwrite="")
    values(["command", *arguments])
    return values


def check(*arguments, flag="output"):
    cli.check_output(output_flags(*arguments), flag)


def test_an_output_that_cannot_be_written_or_replaced_is_named(tmp_path):
    existing = tmp_path / "existing.txt"
    existing.write_text("a\n")
    check()
    check(f"--output={tmp_path}/new/folder/new.txt")
    check(f"--output={existing}", "--overwrite")
    check("--output=/dev/null")
    assert {*map(str, tmp_path.rglob("*"))} == {
        str(tmp_path / name) for name in ("existing.txt", "new", "new/folder")
    }
    for path, words in (
        (existing, "existing.txt' exists; .*--overwrite"),
        (existing.as_uri(), "--overwrite"),
        (tmp_path, "a folder"),
        (existing / "x", "cannot be written in .*existing.txt'"),
        (tmp_path / ("x" * 250), "too long"),
        ("/proc/new.html", r"'/proc/new\.html' cannot be written"),
    ):
        with pytest.raises(InputError, match=f"(?s)--output .*{words}"):
            check(f"--output={path}")


def test_an_output_must_be_no_input(tmp_path):
    folder, link = tmp_path / "data", tmp_path / "link"
    folder.mkdir()
    table, other = folder / "table.csv", tmp_path / "other.csv"
    model = tmp_path / "model.keras"
    for path in (table, other, model):
        path.write_text("text\na\n")
    link.symlink_to(table)
    for output, *inputs in (
        (table, f"--data={table}"),
        (table, f"--data={folder}"),
        (link, f"--data={table}"),
        (table, f"--input={other},{folder}/*.csv"),
        (table, f"--report={table}"),
        (model, f"--model={tmp_path}"),
    ):
        words = f"--output must be no input, but {inputs[0].split('=')[0]} "
        with pytest.raises(InputError, match=words):
            check(f"--output={output}", *inputs, "--overwrite")
    check(f"--output={other}", f"--data={folder}", "--overwrite")


def test_a_folder_with_an_input_is_not_replaced(tmp_path):
    path = tmp_path / "corpus" / "text.txt"
    path.parent.mkdir()
    path.write_text("text\n")
    for folder in (path.parent, tmp_path):
        values = output_flags(f"--output={folder}", f"--input={path}")
        with pytest.raises(InputError, match=r"--output .* --input names .*text\.txt"):
            cli.check_replaced_folder(values, "output")
    cli.check_replaced_folder(output_flags(f"--output={tmp_path}/new"), "output")


def test_a_report_replaces_an_earlier_one_alone(tmp_path):
    path = tmp_path / "report.html"
    write_page(str(path), "title", [])
    check(f"--report={path}", flag="report")
    path.write_text("<html>another page</html>")
    with pytest.raises(InputError, match="exists"):
        check(f"--report={path}", flag="report")


@pytest.mark.parametrize("stdin", ["-", "/dev/stdin"])
def test_paths_follow_the_conventions_of_the_shell(monkeypatch, tmp_path, stdin):
    monkeypatch.setenv("HOME", str(tmp_path))
    pipe, paths = tmp_path / "pipe", {}
    os.mkfifo(pipe)
    values = cli.Flags()
    values.strings(output="", report="", input="", data="", text="")
    values.lists(heldout="")

    def read_pipe():
        paths.update(values.flag_values_dict())
        assert pathlib.Path(values.data).read_text() == "piped\n"

    writer = os.open(pipe, os.O_RDWR)
    os.write(writer, b"piped\n")
    timer = threading.Timer(0.5, os.close, [writer])
    timer.start()
    given = "--output=-", "--report=~/r.html", f"--input={stdin}", f"--data={pipe}"
    given = *given, "--text=~", "--heldout=a,~/b"
    monkeypatch.setattr(sys, "argv", ["command", *given])
    cli.run(read_pipe, values, "usage")
    assert (paths["output"], paths["input"]) == ("/dev/stdout", None)
    assert paths["report"] == f"{tmp_path}/r.html"
    assert (paths["text"], paths["heldout"]) == ("~", ["a", f"{tmp_path}/b"])
    assert not os.path.exists(paths["data"])  # the copy is temporary


@pytest.mark.parametrize("kind", ["strings", "lists"])
def test_a_closed_standard_input_is_named(monkeypatch, kind):
    values = cli.Flags()
    getattr(values, kind)(input="")
    monkeypatch.setattr(sys, "argv", ["command", "--input=-"])
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(SystemExit, match=r"--input .* standard input is closed"):
        cli.run(lambda: None, values, "usage")


def test_a_closed_standard_error_leaves_standard_output_clean(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["command"])
    monkeypatch.setattr(sys, "stderr", None)
    cli.run(lambda: cli.warn(["a warning"]), cli.Flags(), "usage")
    assert capsys.readouterr().out == ""


PRINT = """
from electra_tf import cli
cli.run(lambda: cli.write_lines(["caf\\xe9 \\u65e5"], None), cli.Flags(), "")
"""


def test_characters_that_standard_output_lacks_are_escaped():
    result = python("-c", PRINT, PYTHONIOENCODING="ascii")
    assert result.stdout == "caf\\xe9 \\u65e5\n", result.stderr


def test_help_needs_no_docstrings():
    result = python("-m", "electra_tf.predict", "--help", PYTHONOPTIMIZE="2")
    assert "--model" in result.stdout, result.stderr


def run(monkeypatch, error, *arguments):
    def main():
        if error:
            raise error

    values = cli.Flags()
    cli.define_config_flags(values, NAMES)
    monkeypatch.setattr(sys, "argv", ["command", *arguments])
    before = signal.getsignal(signal.SIGTERM)
    try:
        cli.run(main, values, "The usage.")
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (InputError("X must be Y,\n  not Z"), "error: X must be Y, not Z."),
        (OSError(28, "No space left on device"), "No space left on device"),
        (KeyboardInterrupt(), "interrupted"),
    ],
)
def test_errors_are_printed_as_a_paragraph(monkeypatch, error, words):
    with pytest.raises(SystemExit) as end:
        run(monkeypatch, error)
    assert words in end.value.code


def test_a_reader_that_ends_early_is_no_error():
    program = (
        "from absl import flags; from electra_tf import cli; "
        "cli.run(lambda: [print(n) for n in range(10**6)], cli.Flags(), '')"
    )
    command = [sys.executable, "-c", program]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, cwd=ROOT) as process:
        assert process.stdout.readline() == b"0\n"
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 128 + signal.SIGPIPE


@pytest.mark.parametrize(
    ("command", "given", "words"),
    [
        ("finetune", "--epochs=2", "set it with --set training.epochs=2"),
        ("finetune", "--epochs 2", "set it with --set training.epochs=2"),
        ("finetune", "--learning_rate=1", "with --set optimizer.learning_rate=1"),
        ("finetune", "--max_length=64", "set it with --set data.max_length=64"),
        ("finetune", "--text-columns=a_b", "pass --text_columns=a_b"),
        ("finetune", "--model=finetune_small", "pass --config=finetune_small"),
        ("finetune", "--trails=3", "did you mean --trials?"),
        ("pretrain", "--seed=3", "set it with --set training.seed=3"),
        ("pretrain", "--model_size=base", "pass --config=base"),
        ("pretrain", "--dry_run=maybe", "--dry_run must be true or false, not 'maybe'"),
        ("pretrain", "--data=a --data=b", "--data must be set once, with commas"),
        ("export", "--epochs=3", "--help describes all flags"),
        ("build_records", "--max-length=64", "pass --max_length=64"),
        ("build_records", "--input=a --input=b", "--input must be set once, with com"),
        ("build_records", "--vocab=", "--input and --vocab and --output must be set"),
    ],
)
def test_wrong_flags_get_a_remedy(here, command, given, words):
    assert words in failure(here(command, *given.split()))


@pytest.mark.parametrize(
    ("command", "known", "unknown"),
    [
        ("pretrain", "small", ("records", "finetune")),
        ("build_records", "records_512", ("finetune",)),
        ("finetune", "finetune_small", ("records", "small", "ablations")),
    ],
)
def test_help_lists_the_configs_of_the_command(command, known, unknown):
    flag = importlib.import_module(f"electra_tf.{command}").FLAGS["config"]
    names = flag.help.rpartition(": ")[2].rstrip(".").split(", ")
    assert known in names
    assert not [name for name in names if name.startswith(unknown)]
    assert {*names} <= {*loader.installed()}


def test_help_does_not_run_the_command(monkeypatch, capsys):
    run(monkeypatch, AssertionError("ran"), "--help")
    printed = capsys.readouterr().out
    assert printed.startswith("The usage.")
    assert "(default: '128')" in printed


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], None),
        (["--tpu"], "local"),
        (["--tpu", "--strategy=tpu"], "local"),
        (["--tpu=node-1"], "node-1"),
        (["--notpu"], None),
    ],
)
def test_tpu_has_an_optional_value(given, expected):
    values = cli.Flags()
    cli.define_device_flags(values)
    assert values(["command", *given]) == ["command"]
    assert values.tpu == expected
