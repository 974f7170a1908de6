"""The grid of systems: equal compute, rows, and the page made of them."""

import csv
import json
import runpy
import subprocess
import sys

import pytest
from conftest import ROOT

from electra_tf.errors import InputError

TOOL = ROOT / "tools" / "reproduction"
COUNT_FLOPS = ROOT / "tools" / "count_flops.py"
GRID = """
budget: 2.0e+12
base: [input.batch_size=64]
scores: [probe]
shares: [0.5]
systems:
  electra: {seeds: 2}
  mlm: {sets: [objective.name=mlm]}
  training/two_stage:
    budget: 0.5
    sets: [objective.name=two_stage, model.sharing=gdes, model.generator_width=1.0]
"""


@pytest.fixture
def modules(monkeypatch):
    """Import the tool's modules, which lie beside its program."""
    monkeypatch.syspath_prepend(str(TOOL))
    import grid
    import page

    yield grid, page
    for name in ("grid", "page"):
        del sys.modules[name]


@pytest.fixture
def run_tool(monkeypatch, capsys):
    """Run a program of tools in this process; return what it printed."""

    def run(path, *arguments):
        monkeypatch.setattr(sys, "argv", [str(path), *map(str, arguments)])
        monkeypatch.syspath_prepend(str(path.parent))
        runpy.run_path(str(path), run_name="__main__")
        return capsys.readouterr().out

    yield run
    for name in ("grid", "page", "scores"):
        sys.modules.pop(name, None)


def test_count_flops_counts_the_rows_of_a_ramp(run_tool):
    sets = "--set=input.batch_size=128", "--set=training.steps=4000"
    whole, ramp = (
        run_tool(COUNT_FLOPS, "tiny", *sets, *more).splitlines()[1].split()
        for more in ((), ("--set=input.batch_size_ramp=[[2000, 64]]",))
    )
    for column in (2, 5):  # by the rules, and executed
        expected = 0.75 * float(whole[column])
        assert float(ramp[column]) == pytest.approx(expected, rel=1e-3)


def test_count_flops_reports_an_unknown_config(run_tool):
    with pytest.raises(SystemExit, match=r"error: .*'nosuch'"):
        run_tool(COUNT_FLOPS, "nosuch")


HEAD = GRID.partition("systems:")[0]


@pytest.mark.parametrize(
    ("content", "received"),
    [
        (GRID.replace("budget: 2", "budgets: 2"), "budgets"),
        (f"{HEAD}systems: []\n", "systems"),
        (f"{HEAD}systems: {{a: }}\n", "a: None"),
        (f"{HEAD}systems: {{a: {{seed: 2}}}}\n", "seed"),
    ],
)
def test_keys_of_a_grid_file_are_checked(content, received, modules, tmp_path):
    grid, _ = modules
    path = tmp_path / "grid.yaml"
    path.write_text(content)
    with pytest.raises(InputError) as error:
        grid.Grid.read(path, vocabulary_size=1000)
    assert received in error.value.received


def test_all_runs_of_a_budget_have_the_same_flops(modules, tmp_path):
    grid, _ = modules
    path = tmp_path / "grid.yaml"
    path.write_text(GRID)
    read = grid.Grid.read(path, vocabulary_size=1000)
    names = [run.name for run in read.runs]
    # The first seed of every system comes first.
    assert names == [
        "electra-seed0", "mlm-seed0", "training_two_stage-seed0", "electra-seed1",
    ]  # fmt: skip
    for run in read.runs:
        assert run.steps % 2 == 0
        assert run.flops == pytest.approx(run.budget, rel=0.02)
        assert f"training.steps={run.steps}" in run.settings
    steps = {run.system: run.steps for run in read.runs}
    assert steps["mlm"] > steps["electra"]
    assert read.runs[2].budget == read.runs[0].budget / 2


def row(system, seed, score, share):
    return {
        "system": system,
        "seed": seed,
        "steps": 100,
        "flops": 2e12,
        "scores": {"probe_chunk_best": score},
        "shares": {"0.5": {"probe_chunk_best": share}},
        "curve": [{"step": 50, "masked_lm_loss": 6.0}, {"step": 100}],
    }


def test_the_page_has_medians_ranges_and_plots(modules, tmp_path):
    pytest.importorskip("matplotlib", reason="needs the extra `quickstart`")
    _, page = modules
    rows = [row("electra", n, s, s - 5) for n, s in enumerate((70.0, 74.0, 71.0))]
    rows += [row("sharing/none", 0, 69.0, 60.0)]
    rows += [row("training/adversarial", 0, 61.0, 50.0)]
    rows += [row(f"generator/64-{s}", 0, 60.0, 50.0) for s in ("half", "quarter")]
    (tmp_path / "rows").mkdir()
    for number, values in enumerate(rows):
        path = tmp_path / "rows" / f"{number}.json"
        path.write_text(json.dumps(values))
    page.write(tmp_path / "rows", tmp_path / "page")
    text = (tmp_path / "page" / "results.md").read_text()
    assert "| electra | 3 | 100 | 2e+12 | 71.0 (70.0 to 74.0) |" in text
    assert text.index("### Systems") < text.index("electra") < text.index("### Sharing")
    assert "| sharing/none | 1 | 100 | 2e+12 | 69.0 |" in text
    # ELECTRA itself is the row to compare with.
    assert "| electra |" in text[text.index("### Sharing") :]
    assert "| electra | 0 | 65.0 | 70.0 |" in text
    with (tmp_path / "page" / "results.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [line["share"] for line in table] == ["1", "0.5"] * 7
    assert table[1]["probe_chunk_best"] == "65.0"
    for suffix in ("png", "svg"):
        assert (tmp_path / "page" / f"results.{suffix}").stat().st_size > 1000
    drawn = (tmp_path / "page" / "results.svg").read_text()
    assert "generator width" in drawn
    assert "training/adversarial" in drawn
    assert "sharing/none" not in drawn


def test_a_row_of_other_settings_is_an_error(run_tool, folder, tmp_path, capsys):
    path, rows = tmp_path / "grid.yaml", tmp_path / "rows"
    path.write_text(GRID)
    rows.mkdir()
    (rows / "mlm-seed0.json").write_text(json.dumps({"steps": 2, "sets": []}))
    given = [path, f"--rows={rows}", f"--work={tmp_path / 'work'}"]
    given += [f"--heldout={folder}", f"--data={folder}"]
    with pytest.raises(SystemExit):
        run_tool(TOOL / "reproduce.py", *given)
    assert "must have --records" in capsys.readouterr().err
    with pytest.raises(SystemExit, match=r"mlm-seed0\.json must be a row"):
        run_tool(TOOL / "reproduce.py", *given, f"--records={folder}")
    assert not (tmp_path / "work").exists()


@pytest.mark.slow
def test_a_grid_goes_on_from_its_rows(folder, data, tmp_path):
    path = tmp_path / "grid.yaml"
    sets = "model.depth=1, training.save_every=5, training.evaluate_every=5"
    path.write_text(GRID.replace("64]", f"8, {sets}]").replace("2.0e+12", "1.0e+10"))
    command = [
        *(sys.executable, TOOL / "reproduce.py", path, f"--records={folder}"),
        *(f"--heldout={folder}", f"--data={data}", f"--work={tmp_path / 'work'}"),
        f"--rows={tmp_path / 'rows'}",
    ]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "[4/4] electra-seed1" in result.stderr
    rows = sorted((tmp_path / "rows").iterdir())
    assert len(rows) == 4
    values = json.loads(rows[0].read_text())
    assert values["scores"]["probe_pos_best"] > 0
    assert values["shares"]["0.5"]["probe_pos_best"] > 0
    rows[0].unlink()
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stderr.count("steps,") == 1
    # The run was complete, so its training is not repeated.
    assert json.loads(rows[0].read_text())["scores"] == values["scores"]
