"""The comparison of the paper's systems: equal FLOPs, intervals, a toy run."""

import json
import random
import runpy

import pytest
import yaml
from scipy import stats

from electra_tf.config.loader import load_config
from electra_tf.errors import InputError
from electra_tf.model.cost import step_flops
from tests.conftest import ROOT, python

PROGRAM = ROOT / "tools" / "reproduce_lib" / "reproduce.py"
PAPER = PROGRAM.with_name("paper.yaml")
SETS = (
    *("records.max_length=32", "model.depth=1", "model.width=32", "model.heads=2"),
    *("model.feed_forward=64", "model.generator_width=0.5", "input.batch_size=8"),
    *("optimizer.warmup_steps=2", "training.precision=float32"),
    *("training.log_every=5", "training.save_every=10", "training.evaluate_every=10"),
)


@pytest.fixture(scope="module")
def tool():
    return runpy.run_path(str(PROGRAM))


def comparison(path, vocabulary_size=100, **changes):
    """Write a comparison of toy systems."""
    systems = {
        "electra": {"config": "tiny"},
        "mlm": {"config": "tiny", "set": ["objective.name=mlm"]},
        "wide/2": {"config": "tiny", "set": ["model.generator_width=1.0"]},
    }
    sets = ["training.epochs=1", "training.batch_size=8"]
    finetuning = {"tasks": ["sst2"], "trials": 2, "set": sets}
    content = {
        "reference": "electra",
        "steps": 20,
        "set": [*SETS, f"model.vocabulary_size={vocabulary_size}"],
        "systems": systems,
        "finetuning": finetuning,
    }
    path.write_text(yaml.safe_dump(content | changes))
    return path


def test_all_systems_of_the_paper_have_the_same_flops(tool):
    runs = tool["read_comparison"](PAPER).runs
    names = {"electra", "electra_15", "replace_mlm", "all_tokens_mlm", "mlm"}
    assert names | {"two_stage", "adversarial"} < {run.system for run in runs}
    reference = next(run for run in runs if run.system == "electra")
    assert reference.config.training.steps == 766_000
    steps = {run.system: run.config.training.steps for run in runs}
    # The softmax over all tokens costs a quarter of the encoder's FLOPs.
    assert steps["all_tokens_mlm"] < 0.9 * steps["electra"] < steps["mlm"]
    for run in runs:
        assert run.flops == pytest.approx(reference.flops, rel=1e-3)


def test_logits_that_are_computed_twice_by_hand(tool):
    size = 2 * 3 * 100  # FLOPs of a position's logits of width 1
    for name, factor in {
        **{"electra": 0, "replace_mlm": 0, "all_tokens_mlm": 16 * size * 32},
        "electric": 8 * size * (32 + 5),  # 15% of 32 positions
    }.items():
        settings = {"objective.name": name, "model.vocabulary_size": 100}
        sizes = {"training.steps": 2, "input.batch_size": 3, "records.max_length": 32}
        tables = {"model.sharing": "none", "model.generator_embedding": 8}
        widths = {"model.width": 64, "model.embedding": 16}
        config = load_config(overrides={**settings, **sizes, **tables, **widths})
        assert tool["training_flops"](config) == 2 * (step_flops(config) + factor)


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"trials": 3}, "trials"),
        ({"reference": "other"}, "other"),
        ({"systems": {"electra": {"config": "tiny", "sets": []}}}, "sets"),
        ({"finetuning": {"task": []}}, "task"),
        ({"set": ["model.depth=1"]}, "model.depth=1"),
    ],
)
def test_a_mistake_in_a_comparison_is_named(tool, tmp_path, changes, found):
    path = comparison(tmp_path / "file.yaml", **changes)
    with pytest.raises(InputError, match=f"Received: {found}"):
        tool["read_comparison"](path)


def test_intervals_are_those_of_students_t(tool):
    values = [70.0, 71.5, 69.0, 72.0]
    mean, half = tool["interval"]([values])
    error = stats.sem(values)
    low, high = stats.t.interval(0.95, 3, loc=mean, scale=error)
    assert (mean - half, mean + half) == pytest.approx((low, high))
    # Pre-trainings count by the means of their trials.
    pairs = [[value - 1, value + 1] for value in values]
    assert tool["interval"](pairs) == pytest.approx((mean, half))


@pytest.mark.tools
def test_a_toy_comparison_runs_end_to_end(tool, folder, tmp_path):
    pytest.importorskip("matplotlib", reason="needs the extra quickstart")
    entries = len((folder / "vocab.txt").read_text(encoding="utf-8").splitlines())
    path = comparison(tmp_path / "toy.yaml", entries)
    data, work, rng = tmp_path / "glue" / "SST-2", tmp_path / "work", random.Random(0)
    data.mkdir(parents=True)
    for name in ("train", "dev"):
        rows = [f"the quick fox {n}\t{rng.randint(0, 1)}\n" for n in range(24)]
        (data / f"{name}.tsv").write_text("".join(["sentence\tlabel\n", *rows]))
    flags = f"--comparison={path}", f"--work={work}", f"--data={data.parent}"
    flags += f"--records={folder}", f"--heldout={folder}"

    result = python(PROGRAM, *flags, "--only=electra|mlm")
    assert result.returncode == 0, result.stderr
    table = (work / "table.md").read_text(encoding="utf-8")
    assert "| electra | 20 |" in table
    assert "wide/2" not in table
    for run in ("electra-seed0", "mlm-seed0"):
        done = json.loads((work / run / "run.json").read_text())
        assert done["heldout"]["masked_lm_loss"] > 0
        scores = tool["task_scores"](work / run / "sst2")
        mean, half = tool["interval"]([scores])
        assert len(scores) == 2
        assert f"{mean:.1f} ± {half:.1f}" in table
    drawn = (work / "scores.svg").read_text()
    assert "<svg" in drawn

    # What is finished is skipped; other settings for it are an error.
    again = python(PROGRAM, *flags, "--only=electra|mlm")
    assert again.returncode == 0, again.stderr
    assert "electra-tf" not in again.stdout
    assert (work / "table.md").read_text(encoding="utf-8") == table
    comparison(path, entries, steps=30)
    other = python(PROGRAM, *flags, "--only=electra")
    assert other.returncode == 1
    assert str(work / "electra-seed0" / "run.json") in other.stderr
