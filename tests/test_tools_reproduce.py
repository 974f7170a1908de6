"""The grid of systems: equal compute, units of work, rows, and their scores."""

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
scores: [cola, probe]
finetune: {seeds: 2, flags: [], rates: [6.0e-4, 1.0e-4]}
systems:
  mlm: {sets: [objective.name=mlm]}
  electra: {sets: [model.generator_width=0.25]}
  warm: {warm_start: {system: mlm, share: 0.3}, sets: [model.generator_width=0.25]}
  untrained: {steps: 2, seeds: 1, sets: [objective.name=mlm]}
"""
MODULES = (
    *("conclusions", "grid", "metrics", "page", "plots", "reproduce"),
    *("results", "scores"),
)


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
        return tool("grid").Grid.read(path)

    return read_text


@pytest.mark.parametrize(
    ("known", "unknown"),
    [("base:", "basis:"), ("steps: 2", "step: 2"), ("cola", "colla")],
)
def test_unknown_names_in_a_grid_file_are_errors(known, unknown, read):
    with pytest.raises(InputError, match=f"not {unknown.partition(':')[0]}"):
        read(GRID.replace(known, unknown))


def test_all_systems_of_a_rung_have_the_same_flops(read):
    budgets = {}
    for run in read().runs:
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


def test_seed_0_of_each_rung_chooses_the_rates_of_its_rung(read):
    grid = read()
    kinds = {}
    for run, kind, _ in grid.units():
        kinds.setdefault(run, {})[kind] = None
    for run, found in kinds.items():
        tune = [] if run.seed else ["tune"]
        assert [*found] == ["pretrain", *tune, "finetune", "probe"]
        chooser = grid.chooser(run)
        assert (chooser.system, chooser.rung) == (run.system, run.rung)
        assert [*kinds].index(chooser) <= [*kinds].index(run)
        assert "tune" in kinds[chooser]


def test_parts_of_the_data_are_disjoint_and_always_the_same(tool):
    split = tool("scores").split
    rows = [f"{n}\tpremise {n // 2}\thypothesis\n" for n in range(100)]
    parts = split(rows, [40, 20], tool("scores")._premise)
    assert parts == split(rows, [40, 20], tool("scores")._premise)
    assert [len(part) for part in parts[:2]] == [40, 20]
    assert sorted(row for part in parts for row in part) == sorted(rows)
    premises = [{row.split("\t")[1] for row in part} for part in parts]
    assert sum(map(len, premises)) == len(set.union(*premises))
    assert parts[0] == sorted(parts[0], key=rows.index)
    assert parts[0] != rows[:40]


def test_tenths_are_of_the_training_data(tool, tmp_path):
    scores = tool("scores")
    glue = tmp_path / "glue" / "SST-2"
    glue.mkdir(parents=True)
    for name, count in (("train", 200), ("dev", 30)):
        lines = [f"{name} {n} \t{n % 2}\n" for n in range(count)]
        (glue / f"{name}.tsv").write_text("sentence\tlabel\n" + "".join(lines))
    files = {}
    for tenth in (False, True):
        folder = tmp_path / f"prepared{tenth}"
        scores.prepare("sst2", tmp_path, folder, tenth)
        for stem in ("train", "dev"):
            head, *rows = (folder / f"{stem}.tsv").read_text().splitlines()
            assert head == "sentence\tlabel"
            files[tenth, stem] = rows
    assert [len(files[False, stem]) for stem in ("train", "dev")] == [200, 30]
    assert [len(files[True, stem]) for stem in ("train", "dev")] == [20, 20]
    assert not set(files[True, "train"]) & set(files[True, "dev"])
    assert set(files[True, "dev"]) < set(files[False, "train"])


def test_scores_of_stored_rows_are_those_of_the_libraries(tool):
    from scipy import stats
    from sklearn import metrics

    rows_of = tool("scores").rows_of
    arrays, rng = tool("metrics").arrays, np.random.default_rng(0)

    def score(name, columns):
        return tool("metrics").score(name, columns, np.ones((1, columns.shape[-1])))[0]

    def answers(values):
        lines = [f"{n}\t{value}\n" for n, value in enumerate(values)]
        return "index\tprediction\n" + "".join(lines)

    gold, *seeds = rng.integers(2, size=(3, 200))
    dev = "".join(f"x\t{label}\t\ta sentence\n" for label in gold)
    found = rows_of("cola", dev, [answers(seed) for seed in seeds])
    for seed, columns in zip(seeds, arrays(found), strict=True):
        expected = 100 * metrics.matthews_corrcoef(gold, seed)
        assert score("cola", columns) == pytest.approx(expected)
    constant = rows_of("cola", dev, [answers(np.ones(200, int))])
    assert score("cola", arrays(constant)[0]) == 0

    gold = rng.integers(26, size=150) / 5
    predicted = gold + rng.normal(size=150)
    dev = "sentence1\tscore\n" + "".join(f"text\t{value:.3f}\n" for value in gold)
    found = rows_of("stsb", dev, [answers(predicted)])
    assert "text" not in json.dumps(found)
    expected = 100 * stats.spearmanr(gold, predicted).statistic
    assert score("stsb", arrays(found)[0]) == pytest.approx(expected)

    dev = "index\tsentence1\tsentence2\tgold_label\n0\ta\tb\tneutral\n1\ta\tb\tneutral"
    found = rows_of("mnli", dev, [answers(["neutral", "entailment"])])
    assert found == {"right": ["10"]}
    assert score("mnli", arrays(found)[0]) == 50


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
    values = tool("metrics").arrays(found)[0]
    f1 = score_spans(*columns)["f1"]
    score = tool("metrics").score("chunking", values, np.ones((1, 3)))
    assert score == pytest.approx(f1)


@pytest.mark.parametrize("task", ["cola", "stsb", "sst2", "mnli", "chunking"])
def test_weights_of_rows_are_the_rows_repeated(task, tool):
    rng, score = np.random.default_rng(0), tool("metrics").score
    columns = rng.integers(2, size=(2, 30)).astype(float)
    if task == "chunking":
        columns = rng.integers(4, size=(3, 30)).astype(float)
    if task == "stsb":
        columns = rng.integers(6, size=(2, 30)) / 2
    weights = rng.multinomial(30, np.full(30, 1 / 30), 5).astype(float)
    found = score(task, columns, weights)
    for value, counts in zip(found, weights.astype(int), strict=True):
        repeated = np.repeat(columns, counts, 1)
        expected = score(task, repeated, np.ones((1, 30)))[0]
        assert value == pytest.approx(expected)


def right(rng, share, rows=400):
    """Return answers of three seeds of fine-tuning with a share of right ones."""
    values = np.zeros((3, 1, rows))
    values[:, :, : round(share * rows)] = 1
    return values[:, :, rng.permutation(rows)]


def test_the_bootstrap_finds_a_known_difference(tool):
    bootstrap, rng = tool("metrics"), np.random.default_rng(0)

    def samples(shares, name):
        runs = [bootstrap.sampled_scores("mnli", right(rng, s)) for s in shares]
        return bootstrap.resample(runs, name)

    difference = samples([0.9] * 3, "a") - samples([0.6] * 3, "b")
    value, low, high = bootstrap.interval(difference)
    assert value == pytest.approx(30)
    assert 20 < low < 28 < 32 < high < 40
    # One run of one share of right rows: only the rows vary, as a binomial number.
    alone = samples([0.6], "c")[1:]
    assert alone.std() == pytest.approx(100 * np.sqrt(0.6 * 0.4 / 400), rel=0.05)
    # Three seeds that differ much are drawn, two are not.
    assert samples([0.2, 0.5, 0.8], "d")[1:].std() > 10
    assert samples([0.2, 0.8], "e")[1:].std() < 5


def test_the_crossing_of_two_rungs_is_on_their_line(tool):
    crossings = tool("metrics").crossings
    differences = np.array([[-2.0, -2, 1], [-1.0, -3, 2]])
    found = crossings(differences, [10, 100])
    assert found[0] == pytest.approx(1000)
    assert found[1] == np.inf  # it falls, the data's line rises
    assert found[2] == pytest.approx(1)


LADDER = (
    GRID.replace("cola, probe", "chunking, sst2, cola, stsb, mnli, blimp")
    .replace("1.0e+6, seeds: 2", "1.0e+6, seeds: 3")
    .replace("4.0e+6, seeds: 1", "4.0e+6, seeds: 2")
    .replace("steps: 2, seeds: 1", "steps: 2, seeds: 2")
)


@pytest.fixture
def rows(tool, read, tmp_path):
    """Write rows in which ELECTRA is ahead, more at the second rung, but not MNLI."""
    rng, folder = np.random.default_rng(0), tmp_path / "rows"
    folder.mkdir()
    grid = read(LADDER)
    for run in grid.runs:
        if run.system == "warm" or run.name == "electra-1k-seed2":
            continue
        share = {"mlm": 0.5, "electra": 0.7, "untrained": 0.4}[run.system]
        share += 0.2 * (run.rung == "4k") * (run.system == "electra")
        found = {}
        for name in ("sst2", "cola"):
            gold, wrong = "01" * 150, rng.random((2, 300)) > share
            texts = [
                "".join(str(int(g) ^ w) for g, w in zip(gold, line, strict=True))
                for line in wrong
            ]
            found[name] = {"gold": gold, "predicted": texts}
        noise = rng.normal(scale=1 / share, size=(2, 300))
        scores = np.linspace(0, 5, 300)
        found["stsb"] = {
            "gold": scores.tolist(),
            "predicted": (scores + noise).tolist(),
        }
        pairs = (rng.random((2, 300)) < 1.2 - share).astype(int)
        answers = (rng.random((2, 300)) < share).astype(int)
        found["mnli"] = {"right": ["".join(map(str, line)) for line in pairs]}
        counts = answers.tolist()
        found["chunking"] = {"tp": counts, "fp": (1 - answers).tolist(), "fn": counts}
        names = [*found, "blimp"]
        each = {name: tool("metrics").each(name, found[name]) for name in found}
        facts = [stage.facts for stage in run.stages]
        row = {
            "system": run.system, "rung": run.rung, "seed": run.seed, "stages": facts,
            "positions": facts[0]["positions"], "flops": facts[0]["flops"],
            "original_flops": facts[0]["original_flops"],
            "cpu_seconds": 50 if run.seed else None,  # None: trained on a GPU
            "processor": "a model",
            "done": dict.fromkeys(names, "2026-11-25"),
            "scores": each | {"blimp": 55.5},
        }  # fmt: skip
        (folder / f"{run.name}.json").write_text(json.dumps(row))
        packed = lzma.compress(json.dumps(found).encode())
        (folder / f"{run.name}.rows.json.xz").write_bytes(packed)
    return folder


def test_the_page_says_what_holds_and_what_is_missing(run_tool, rows, tmp_path):
    pytest.importorskip("matplotlib", reason="needs the extra `quickstart`")
    output = tmp_path / "page"
    flags = f"--rows={rows}", f"--page={output}", "--report_only"
    run_tool(TOOL / "reproduce.py", tmp_path / "grid.yaml", *flags)
    text = (output / "results.md").read_text()
    assert "- warm-1k-seed0: not trained" in text
    assert "- mlm-1k-seed0" not in text
    lines = [
        line for line in text.splitlines() if line.startswith("| 4k | electra - mlm")
    ]
    assert len(lines) == 1
    assert "not the seeds (2)" in lines[0]
    words = " ".join(text.split())
    assert "electra wins (+" in words
    assert "4k positions of masked LM, use for the mean of the tasks electra, " in words
    assert "for sst2 electra" in words
    assert "for mnli mlm" in words
    assert "None is shown to be better than untrained on mnli." in words
    assert "| untrained |" in text
    drawn = (output / "results.svg").read_bytes()
    assert b"electra 4k" in drawn
    run_tool(TOOL / "reproduce.py", tmp_path / "grid.yaml", *flags)
    assert (output / "results.md").read_text() == text
    assert (output / "results.svg").read_bytes() == drawn
    for path in rows.glob("electra-4k-seed1*"):
        path.unlink()
    run_tool(TOOL / "reproduce.py", tmp_path / "grid.yaml", *flags)
    one = (output / "results.md").read_text()  # one seed of 4k has no conclusion
    assert "| 4k | electra - mlm | fine-tunings and rows, not the seeds (1)" in one
    assert "4k:" not in one
    assert "compute of 4k" not in one
    for path in rows.glob("electra*"):
        path.unlink()
    run_tool(TOOL / "reproduce.py", tmp_path / "grid.yaml", *flags)
    assert "No rung has two systems with two" in (output / "results.md").read_text()


def write_tasks(folder):
    """Write small files of CoLA and of chunks."""
    (folder / "glue" / "CoLA").mkdir(parents=True)
    (folder / "tagging" / "conll2000").mkdir(parents=True)
    for stem, count in (("train", 300), ("dev", 40)):
        rows = [f"x\t{n % 2}\t\t{'good' if n % 2 else 'bad'} {n}" for n in range(count)]
        (folder / "glue" / "CoLA" / f"{stem}.tsv").write_text("\n".join(rows))
    for stem in ("train", "test"):
        sentence = "the DT B-NP\ncat NN I-NP\nran VB B-VP\n\n"
        path = folder / "tagging" / "conll2000" / f"{stem}.txt"
        path.write_text(40 * sentence)


@pytest.mark.slow
def test_a_grid_goes_on_after_it_was_killed(folder, tmp_path):
    write_tasks(tmp_path)
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
    command += [f"--records={folder}", f"--heldout={folder}", f"--data={tmp_path}"]
    command += [f"--work={tmp_path / 'work'}", f"--rows={tmp_path / 'rows'}"]
    command += ["--only=mlm"]
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
    assert len(row["scores"]["cola"]) == 2
    assert row["scores"]["probe_pos"] == 100
    assert row["commands"] >= 2
    assert row["cpu_seconds"] > 0
    rates = json.loads((rows / "rates.json").read_text())["runs"]["mlm-4k-seed0"]
    assert set(rates["cola"]["tuning_scores"]) == {"0.0006", "0.0001"}
    assert (rows / "mlm-4k-seed0.rows.json.xz").exists()
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""


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
