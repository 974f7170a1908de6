"""The grid of systems: equal compute, rows, their scores, and what they cost."""

import json
import lzma
import runpy
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from conftest import ROOT

from electra_tf.errors import InputError

pytestmark = pytest.mark.tools

TOOL = ROOT / "tools" / "reproduction"
GRID = """
reference: mlm
rungs:
  1k: {positions: 1.0e+6, seeds: 2}
  4k: {positions: 4.0e+6, seeds: 1}
base: [records.max_length=64, model.vocabulary_size=1000, input.batch_size=64]
systems:
  mlm: {sets: [objective.name=mlm]}
  electra: {sets: [model.generator_width=0.25]}
  warm: {warm_start: {system: mlm, share: 0.3}, sets: [model.generator_width=0.25]}
  untrained: {steps: 2, seeds: 1, sets: [objective.name=mlm]}
"""
MODULES = "grid", "reproduce", "score_preset", "scores"


@pytest.fixture
def tool(monkeypatch):
    """Return a function that imports a module of the tool, which lies beside it."""
    monkeypatch.syspath_prepend(str(TOOL))
    yield __import__
    for name in MODULES:
        sys.modules.pop(name, None)


@pytest.fixture
def run_tool(monkeypatch, capsys):
    """Run a program of tools in this process; return what it printed."""

    def run(path, *arguments):
        monkeypatch.setattr(sys, "argv", [str(path), *map(str, arguments)])
        monkeypatch.syspath_prepend(str(path.parent))
        handler = signal.getsignal(signal.SIGTERM)
        try:
            runpy.run_path(str(path), run_name="__main__")
        finally:
            signal.signal(signal.SIGTERM, handler)
        return capsys.readouterr().out

    yield run
    for name in MODULES:
        sys.modules.pop(name, None)


@pytest.fixture
def read(tool, tmp_path):
    """Return a function that reads a grid."""

    def read_text(text=GRID):
        path = tmp_path / "grid.yaml"
        path.write_text(text)
        return tool("grid").read(path)

    return read_text


@pytest.mark.parametrize(
    ("known", "unknown"),
    [("base:", "basis:"), ("steps: 2", "step: 2")],
)
def test_unknown_names_in_a_grid_file_are_errors(known, unknown, read):
    with pytest.raises(InputError, match=f"not {unknown.partition(':')[0]}"):
        read(GRID.replace(known, unknown))


def test_all_systems_of_a_rung_have_the_same_flops(read):
    budgets = {}
    for run in read():
        facts = [stage.facts for stage in run.stages]
        for stage, values in zip(run.stages, facts, strict=True):
            steps = stage.config.training.steps
            assert steps % 2 == 0
            assert stage.config.optimizer.warmup_steps == max(1, steps // 20)
            assert stage.config.training.seed == run.seed
            assert values["flops"] > 0
        flops = sum(values["flops"] for values in facts)
        if run.rung:
            budget = budgets.setdefault(run.rung, flops)
            assert flops == pytest.approx(budget, rel=0.01)
        if run.system == "warm":
            assert facts[0]["flops"] == pytest.approx(0.3 * flops, rel=0.02)
            orders = [stage.config.input.seed for stage in run.stages]
            assert orders[0] != orders[1]
    assert budgets["4k"] == pytest.approx(4 * budgets["1k"], rel=0.01)


def test_parts_of_the_data_are_disjoint_and_always_the_same(tool):
    split, premise = tool("scores").split, tool("scores")._premise
    rows = [f"{n}\tpremise {n // 2}\thypothesis\n" for n in range(100)]
    parts = split(rows, 41, premise)
    assert parts == split(rows, 41, premise)
    assert [len(part) for part in parts] == [40, 60]  # two rows have each premise
    assert sorted(row for part in parts for row in part) == sorted(rows)
    assert not {*map(premise, parts[0])} & {*map(premise, parts[1])}
    assert parts[0] == sorted(parts[0], key=rows.index)
    assert parts[0] != rows[:40]


def test_scores_of_stored_rows_are_those_of_the_libraries(tool):
    from scipy import stats
    from sklearn import metrics

    rows_of, each = tool("scores").rows_of, tool("scores").each
    rng = np.random.default_rng(0)

    def answers(values):
        lines = [f"{n}\t{value}\n" for n, value in enumerate(values)]
        return "index\tprediction\n" + "".join(lines)

    gold, *seeds = rng.integers(2, size=(3, 200))
    dev = "".join(f"x\t{label}\t\ta sentence\n" for label in gold)
    found = rows_of("cola", dev, [answers(seed) for seed in seeds])
    expected = [100 * metrics.matthews_corrcoef(gold, seed) for seed in seeds]
    assert each("cola", found) == pytest.approx(expected)
    constant = rows_of("cola", dev, [answers(np.ones(200, int))])
    assert each("cola", constant) == [0]

    gold = rng.integers(26, size=150) / 5
    predicted = gold + rng.normal(size=150)
    dev = "sentence1\tscore\n" + "".join(f"text\t{value:.3f}\n" for value in gold)
    found = rows_of("stsb", dev, [answers(predicted)])
    assert "text" not in json.dumps(found)
    expected = 100 * stats.spearmanr(gold, predicted).statistic
    assert each("stsb", found) == pytest.approx([expected], abs=1e-3)

    dev = "index\tsentence1\tsentence2\tgold_label\n0\ta\tb\tneutral\n1\ta\tb\tneutral"
    found = rows_of("mnli", dev, [answers(["neutral", "entailment"])])
    assert found == {"right": ["10"]}
    assert each("mnli", found) == [50]


def test_chunks_are_counted_as_the_package_scores_them(tool):
    from electra_tf.tasks.metrics import score_spans

    sentences = [  # word, gold, predicted
        "a B-NP B-NP\nb I-NP E-NP\nc B-VP S-VP",
        "a B-NP S-NP\nb I-NP O\nc O S-PP",
        "a O O",
    ]
    columns = [
        [[line.split()[i] for line in s.split("\n")] for s in sentences] for i in (1, 2)
    ]
    text = "\n\n".join(sentences) + "\n"
    found = tool("scores").rows_of("chunking", "", [text])
    assert found == {"tp": [[2, 0, 0]], "fp": [[0, 2, 0]], "fn": [[0, 1, 0]]}
    f1 = score_spans(*columns)["f1"]
    assert tool("scores").each("chunking", found) == pytest.approx([f1])


@pytest.mark.slow
def test_a_grid_goes_on_after_it_was_killed(folder, tmp_path):
    vocabulary = len((folder / "vocab.txt").read_text().splitlines())
    text = GRID.replace("=1000", f"={vocabulary}").replace("=64", "=32")
    text = text.replace("input.batch_size=32]", "input.batch_size=8, model.depth=1]")
    for old, new in (
        ("1.0e+6", "4.0e+3"),
        ("4.0e+6", "8.0e+4"),
        ("seeds: 2}", "seeds: 1}"),
    ):
        text = text.replace(old, new)
    text = text.replace("model.depth=1", "model.depth=1, training.save_every=5")
    (tmp_path / "grid.yaml").write_text(text)
    command = [sys.executable, TOOL / "reproduce.py", tmp_path / "grid.yaml"]
    command += [f"--records={folder}", f"--heldout={folder}"]
    command += [f"--work={tmp_path / 'work'}", f"--rows={tmp_path / 'rows'}"]
    command += ["--only=mlm-4k"]
    log, checkpoints = tmp_path / "log", tmp_path / "work/mlm-4k-seed0/main/checkpoints"
    for number in (signal.SIGKILL, signal.SIGTERM):
        with log.open("w") as messages:
            process = subprocess.Popen(command, cwd=ROOT, stderr=messages)
            count = len(list(checkpoints.glob("step_*")))
            for _ in range(1200):
                found = list(checkpoints.glob("step_*"))
                if len(found) > count or process.poll() is not None:
                    break
                time.sleep(0.1)
        process.send_signal(number)
        process.wait()
        time.sleep(5)  # the command that it ran ends by itself
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    rows = tmp_path / "rows"
    row = json.loads((rows / "mlm-4k-seed0.json").read_text())
    assert row["commands"] >= 2
    assert row["cpu_seconds"] > 0
    assert row["positions"] == row["stages"][0]["positions"] > 0
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    assert result.stdout == f"mlm-4k-seed0={tmp_path / 'work/mlm-4k-seed0/main'}\n"


def test_costs_are_drawn_beside_the_scores_of_rows(tmp_path, run_tool):
    pytest.importorskip("matplotlib", reason="needs the extra quickstart")
    rows = {"cola": {"gold": "0110", "predicted": ["0110", "1001"]}}
    content = json.dumps(rows).encode()
    (tmp_path / "a-seed0.rows.json.xz").write_bytes(lzma.compress(content))
    file = tmp_path / "costs.yaml"
    file.write_text("""
gpu_flops_per_minute: 1.0e+3
cores_flops_per_hour: 1.0e+2
tasks: {cola: "CoLA, dev", stsb: "STS-B, dev"}
systems: [{name: a, rows: "a-seed*", flops: 4.0e+3}]
lines: [{name: published, scores: {cola: 20.0}}]
""")
    command = TOOL / "costs.py", file, tmp_path / "costs.svg"
    run_tool(*command)
    drawn = (tmp_path / "costs.svg").read_text()
    for words in ("CoLA, dev", "STS-B, dev", "published", "hours of two cores"):
        assert words in drawn
    run_tool(*command)
    assert (tmp_path / "costs.svg").read_text() == drawn
    costs = runpy.run_path(str(TOOL / "costs.py"))
    entry = {"name": "a", "rows": "a-seed*"}
    assert costs["found"](entry, "cola", tmp_path) == [0.0]  # the mean of 100 and -100
    assert costs["found"](entry, "stsb", tmp_path) == []
    with pytest.raises(SystemExit, match="b must have rows in"):
        costs["found"]({"name": "b", "rows": "b"}, "cola", tmp_path)
