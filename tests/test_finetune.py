"""The command: scores of a table; killed, stopped and resumed."""

import csv
import json
import os
import re
import signal

import numpy as np
import pytest

from electra_tf.tasks.class_report import format_class_report
from electra_tf.training.checkpoint import saved_steps
from tests import tiny
from tests.conftest import failure, flags
from tests.pretrain_commands import start, wait_for

pytestmark = pytest.mark.runs

TEXTS, NUMBERS = tiny.texts(40, longest=11, shortest=10)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("table") / "texts.csv"
    rows = enumerate(zip(TEXTS, NUMBERS, strict=True))
    lines = (f"n{i},{text},{('bad', 'good')[n]},x" for i, (text, n) in rows)
    lines = ["id,text,kind,prediction", *lines]
    path.write_text("\n".join(lines) + "\n")
    return path


def given(checkpoint, table, output, **changes):
    columns = {"text_columns": "text", "label_column": "kind"}
    paths = {"data": table, "checkpoint": checkpoint, "output": output}
    others = {"task": "csv", "trials": 2, "keep": "best"}
    sets = ("training.epochs=3", "training.batch_size=12", "data.dev_share=0.2")
    sets = [f"--set={item}" for item in sets]
    return [*flags(**columns | paths | others | changes), *sets]


def run(arguments, number=0, stop_at=None):
    """Run the command, and send a signal once it saved; return code, stdout, stderr."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    process = start(*arguments, command="finetune", env=environment)
    if stop_at:
        wait_for(process, lambda: saved_steps(str(stop_at)), period=0.002)
        process.send_signal(number)
    out, err = process.communicate()
    return process.returncode, out, err


@pytest.fixture(scope="module")
def whole(pretrained, table, tmp_path_factory):
    """An uninterrupted run."""
    output = tmp_path_factory.mktemp("whole") / "run"
    report = output.with_name("report.html")
    code, out, err = run(given(pretrained, table, output, report=report))
    assert code == 0, err
    return output, out


def logged_trials(folder):
    lines = (folder / "trials.jsonl").read_text().splitlines()
    trials = [json.loads(line) for line in lines]
    return [{k: v for k, v in trial.items() if k != "seconds"} for trial in trials]


def test_output_and_files_of_a_run(whole):
    output, stdout = whole
    assert "csv: 32 training examples, 9 steps in 3 epochs (by the " in stdout
    assert "optimizer.name=adamw" in stdout.splitlines()[0]
    assert re.search(r"^train: \d+ of class 'bad', \d+ of class 'good'$", stdout, re.M)
    assert stdout.count("  epoch 3: ") == 2
    *_, summary, last = stdout.strip().splitlines()
    assert summary.startswith("csv dev_macro_f1: median ")
    assert last == (
        f"model: {output}/model.keras; to use it: electra-tf predict "
        f"--model={output} --input=FILE"
    )
    results = json.loads((output / "results.json").read_text())
    scores = results["scores"]
    trials = logged_trials(output)
    assert [trial["seed"] for trial in trials] == [0, 1]
    values = [trial["scores"]["dev_accuracy"] for trial in trials]
    assert scores["dev_accuracy"]["median"] == pytest.approx(np.mean(values))
    assert scores["dev_accuracy"]["trials"] == 2
    best = trials[int(values[1] > values[0])]  # the first of equal ones
    assert results["best_trial"] == best["number"]
    report = results["classes"]["dev"]
    assert report["accuracy"] == best["scores"]["dev_accuracy"]
    assert report["averages"]["macro avg"]["f1"] == best["scores"]["dev_macro_f1"]
    assert f"csv dev, trial {best['number']} of 2:\n" in stdout
    assert format_class_report(report) in stdout
    assert len((output / "trial_2" / "dev.tsv").read_text().splitlines()) == 9
    with open(output / "trial_1" / "dev.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert all(TEXTS[int(row["id"][1:])] == row["text"] for row in rows)
    accuracy = np.mean([row["gold"] == row["prediction"] for row in rows])
    assert 100 * accuracy == trials[0]["scores"]["dev_accuracy"]


@pytest.mark.parametrize(
    ("number", "trial", "code"), [(signal.SIGKILL, 2, -9), (signal.SIGTERM, 1, 143)]
)
def test_a_stopped_run_resumes_to_the_same_result(
    pretrained, table, whole, tmp_path, number, trial, code
):
    arguments = given(pretrained, table, tmp_path / "run", report=tmp_path / "r.html")
    saved = tmp_path / "run" / f"trial_{trial}" / "checkpoints"
    stopped, out, err = run(arguments, number, saved)
    assert stopped == code, err
    assert ("stopped by SIGTERM" in out) == (number == signal.SIGTERM)
    if trial == 2:
        assert len(logged_trials(tmp_path / "run")) == 1
    code, out, err = run(arguments)
    assert code == 0, err
    assert f"csv trial {trial}: resuming after " in out
    assert ("csv trial 1 of 2" in out) == (trial == 1)
    assert logged_trials(tmp_path / "run") == logged_trials(whole[0])
    results = [
        (path / "results.json").read_text() for path in (tmp_path / "run", whole[0])
    ]
    assert results[0] == results[1]
    report = (tmp_path / "r.html").read_text()
    assert report == whole[0].with_name("report.html").read_text()
    assert report.count("<figure>") == 4  # the loss and three metrics
    loss = re.search('points="(.*?)"', report)[1]
    assert len(loss.split()) == 9
    tiny.assert_same_bits(tiny.load(str(tmp_path / "run")), tiny.load(str(whole[0])))


def test_evaluate_counts_the_texts_of_training(whole, table, here, tmp_path):
    model = f"--model={whole[0]}"
    saved = tmp_path / "saved.csv"
    report = tmp_path / "report.html"
    given = [f"--data={table}", f"--save_predictions={saved}", f"--report={report}"]
    result = here("evaluate", model, *given)
    with saved.open() as file:
        rows = list(csv.DictReader(file))
    assert [row["text"] for row in rows] == TEXTS
    assert [row["id"] for row in rows] == [f"n{i}" for i in range(len(TEXTS))]
    columns = ["id", "text", "kind", "input_prediction", "gold", "prediction"]
    assert [*rows[0]][:6] == columns
    wrong = {row["text"] for row in rows if row["gold"] != row["prediction"]}
    page = report.read_text()
    assert sum(f">{text}</td>" in page for text in wrong) == min(len(wrong), 30)
    assert "trained on the texts of 32 of the 40 examples of data" in result.stderr
    assert "confusion matrix" in result.stdout
    report = json.loads(result.stdout.splitlines()[-1])
    assert report["classes"]["data"]["accuracy"] == report["accuracy"]
    (tmp_path / "new.csv").write_text("text,kind\nthe other,bad\n")
    result = here("evaluate", model, f"--data={tmp_path / 'new.csv'}")
    assert "trained on" not in result.stderr


def test_invalid_input_is_an_error(pretrained, table, whole, tmp_path, here):
    output = tmp_path / "run"
    for arguments, words in (
        (["--task=csv"], ["--data and --checkpoint and --output must be set"]),
        (
            given(pretrained, table, output, task="rte"),
            ["--text_columns, --label_column", "--task=rte"],
        ),
        (
            given(pretrained, table, whole[0], keep="last"),
            ['training.keep was "best" and is "last"'],
        ),
        (given(tmp_path, table, output), [str(tmp_path)]),
        (given(pretrained, table, output, report=tmp_path), ["--report", "a folder"]),
        (given(pretrained, table, output, label_column="knid"), ["knid"]),
    ):
        message = failure(here("finetune", *arguments))
        assert all(word in message for word in words)
    assert not list(tmp_path.iterdir())
