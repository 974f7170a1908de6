"""Test the fine-tuning benchmark."""

import importlib.util
import json
import random
import subprocess
import sys

import pytest
from conftest import GOLDEN, ROOT

pytestmark = pytest.mark.tools

PEERS = ("torch", "transformers", "accelerate")


@pytest.fixture(scope="module")
def glue(tmp_path_factory):
    """Return a folder in the format of MRPC with 48 training pairs."""
    words = " ".join(json.loads((GOLDEN / "dataset_builder.json").read_text())["lines"])
    words, rng = words.split(), random.Random(0)
    folder = tmp_path_factory.mktemp("glue") / "MRPC"
    folder.mkdir()
    for name, count in (("train", 48), ("dev", 4)):
        rows = ["Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"]
        for number in range(count):
            texts = (" ".join(rng.choices(words, k=rng.randint(2, 9))) for _ in "ab")
            rows.append("\t".join([str(number % 2), "1", "2", *texts]))
        (folder / f"{name}.tsv").write_text("\n".join(rows) + "\n")
    return folder.parent


def run(*arguments):
    return subprocess.run(
        [
            sys.executable,
            ROOT / "tools/benchmarks/benchmark_finetune.py",
            *map(str, arguments),
        ],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )


def measure(glue, peers, *arguments):
    """Return the lines of the table, and all output, for three epochs."""
    result = run(
        f"--config={ROOT / 'configs' / 'tiny.yaml'}",
        "--set=model.depth=1",
        f"--data={glue}",
        f"--vocab={GOLDEN / 'vocab.txt'}",
        "--examples=40",
        "--batch_size=8",
        "--length=32",
        "--rounds=2",
        f"--peers={peers}",
        *arguments,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.split("first\n")[-1].splitlines(), result.stdout


def check(row, tokens):
    """Check that a row is consistent; return name, ratio and extra first seconds."""
    name, *numbers = row.split()
    median, low, high, rate, ratio, first, more, memory, start = (
        float(number.replace(",", "")) for number in numbers
    )
    assert 0 < low <= median <= high
    assert first - median == pytest.approx(more, abs=0.02)
    # The times are rounded to hundredths of a second.
    low, high = tokens / (median + 0.005), tokens / max(median - 0.005, 1e-9)
    assert 0.99 * low <= rate <= 1.01 * high
    assert memory > 0.1
    assert start > 1
    return name, ratio, more


def num_tokens(text):
    """Return the number of real tokens, from the line above the table."""
    head = next(line for line in text.splitlines() if " examples of " in line)
    examples, mean = head.split(": ")[1].split(" examples of ")
    assert examples == "40"
    return 40 * float(mean.split()[0])


@pytest.mark.slow
def test_first_epoch_is_listed_separately(glue):
    (_, ours), text = measure(glue, "electra_tf")
    name, ratio, more = check(ours, num_tokens(text))
    assert (name, ratio) == ("electra_tf", 1)
    # Tracing and compiling take much longer than five small steps.
    assert more > 0.5


@pytest.mark.skipif(
    not all(map(importlib.util.find_spec, PEERS)), reason="needs interop-test"
)
def test_comparison_with_the_trainer(glue):
    rows, text = measure(glue, "electra_tf,torch,torch.grouped")
    _, *rows, last = rows
    tokens = num_tokens(text)
    assert [check(row, tokens)[0] for row in rows] == [
        "electra_tf",
        "torch",
        "torch.grouped",
    ]
    best = min(rows[1:], key=lambda row: float(row.split()[1])).split()[0]
    assert last.startswith("electra_tf takes ")
    assert f" of the time of {best}, " in last


def test_invalid_flags(glue, monkeypatch):
    monkeypatch.delenv("ELECTRA_TF_DATA", raising=False)
    assert "--data=GLUE and --vocab=FILE" in run().stderr
    flags = f"--data={glue}", f"--vocab={GOLDEN / 'vocab.txt'}"
    assert "--peers must contain electra_tf" in run(*flags, "--peers=torch").stderr
    result = run(*flags, "--torch_python=false")
    assert result.returncode == 1
    assert "packages torch, transformers, accelerate" in result.stderr
    result = run(*flags, "--examples=49", "--peers=electra_tf")
    assert "--examples must be at most 48. Received: 49" in result.stderr
