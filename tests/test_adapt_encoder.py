"""Test the comparison of ways to continue an encoder: its plan, and a small one."""

import argparse
import sys

import pytest
from conftest import ROOT, python

from electra_tf.config.loader import load_config
from electra_tf.config.pretraining import PretrainingConfig

sys.path.insert(0, str(ROOT / "tools"))
import adapt_encoder

pytestmark = pytest.mark.tools
SYSTEM = "mlm_lower_layers"
CONFIG = """
model:
  {depth: 6, width: 384, embedding: 384, heads: 12, vocabulary_size: 30522}
"""


def test_systems_have_equal_flops(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG)
    shape = load_config(path, root=PretrainingConfig).model.encoder
    options = argparse.Namespace(
        config=path, shape=shape, length=64, steps=150, rate="1e-4"
    )
    stages = {
        name: adapt_encoder.stages(name, 0, options) for name in adapt_encoder.SYSTEMS
    }
    budget = stages["electra"][0]["flops"]
    assert stages["electra"][0]["steps"] == 150
    assert stages.pop("none") == []
    for parts in stages.values():
        flops = sum(part["flops"] for part in parts)
        assert flops == pytest.approx(budget, rel=0.01)
        for part in parts:
            config = load_config(path, part["sets"], root=PretrainingConfig)
            assert config.training.steps == part["steps"]
    lower = load_config(path, stages[SYSTEM][1]["sets"], root=PretrainingConfig).model
    assert (lower.generator.depth, lower.generator.heads) == (3, 12)


def test_the_table_has_means_and_ranges_of_the_seeds(tmp_path):
    stages = [{"steps": 80, "flops": 2e13}, {"steps": 75, "flops": 3e13}]
    for seed, predicted in enumerate(("0120", "0121")):
        rows = {
            "stages": stages,
            "heldout": {"masked_lm_loss": 2.5 + seed},
            "functions": {"gold": "0120", "predicted": [predicted]},
        }
        path = tmp_path / f"mlm_electra-seed{seed}.rows.json.xz"
        adapt_encoder.scores.write_rows(path, rows)
    line = adapt_encoder.table(tmp_path).splitlines()[2]
    assert line == (
        "| mlm_electra | 2 | 80 + 75 | 5.00e+13 | 87.5 (75.0 to 100.0) |  | "
        "3.000 (2.500 to 3.500) |  |"
    )


def test_a_small_comparison_resumes_and_is_reported_from_its_rows(tmp_path):
    from tiny import huggingface

    encoder, output = tmp_path / "encoder", tmp_path / "output"
    huggingface(
        encoder, lambda a: {n: v for n, v in a.items() if "predictions" not in n}
    )

    def run(*arguments):
        return python(ROOT / "tools" / "adapt_encoder.py", *arguments)

    sizes = "--seeds=1", "--steps=2", "--functions=40", "--megabytes=0.3"
    command = f"--encoder={encoder}", f"--output={output}", *sizes
    result = run(*command, "--systems", SYSTEM)
    assert result.returncode == 0, result.stderr
    tables = {
        split: (output / "functions" / f"{split}.tsv").read_text().splitlines()[1:]
        for split in ("train", "dev", "test")
    }
    sentences = [row.split("\t")[0] for rows in tables.values() for row in rows]
    assert len(set(sentences)) == len(sentences)
    assert len({row.split("\t")[1] for row in tables["test"]}) == 10
    corpus = (output / "train.txt").read_text()
    held_out = (output / "heldout.txt").read_text().split("\n")
    assert not set(held_out) & set(corpus.split("\n")) - {""}
    path = output / "rows" / f"{SYSTEM}-seed0.rows.json.xz"
    rows = adapt_encoder.scores.read_rows(path)
    assert len(rows["functions"]["gold"]) == len(tables["test"])
    assert rows["heldout"]["masked_lm_loss"] > 0
    table = result.stdout[result.stdout.index("| system") :]
    assert f"| {SYSTEM} | 1 |" in table
    report = run("--report_only", f"--output={output}")
    assert report.stdout == table
    again = run(*command, "--systems", SYSTEM)
    assert again.stdout.endswith(table)
    assert f"{SYSTEM}, seed 0" not in again.stdout
    other = run(*command, "--systems", SYSTEM, "--steps=3")
    assert other.returncode == 1
    assert "'steps': '2'" in other.stderr
