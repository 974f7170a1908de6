"""The fine-tuning benchmark runs beside its peer, and says what it needs."""

import importlib.util
import json
import random
import subprocess
import sys

import pytest
from conftest import GOLDEN, ROOT

PEERS = ("torch", "transformers", "accelerate")


@pytest.fixture(scope="module")
def glue(tmp_path_factory):
    """A folder of MRPC's form: 48 pairs to learn from, short and long ones."""
    words = " ".join(json.loads((GOLDEN / "dataset_builder.json").read_text())["lines"])
    words, draw = words.split(), random.Random(0)
    folder = tmp_path_factory.mktemp("glue") / "MRPC"
    folder.mkdir()
    for name, count in (("train", 48), ("dev", 4)):
        rows = ["Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"]
        for number in range(count):
            some = (" ".join(draw.choices(words, k=draw.randint(2, 9))) for _ in "ab")
            rows.append("\t".join([str(number % 2), "1", "2", *some]))
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


def measured(glue, peers, *arguments):
    """What it prints of a small model's three epochs."""
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
    """A row's numbers hang together; returns its name and its median."""
    name, middle, least, most, rate, ratio, first, more, memory, start = row.split()
    middle, least, most, first, more = map(float, (middle, least, most, first, more))
    assert 0 < least <= middle <= most
    assert first - middle == pytest.approx(more, abs=0.02)
    # Rounded to hundredths, the shortest epochs tell little of the rate.
    low, high = tokens / (middle + 0.005), tokens / max(middle - 0.005, 1e-9)
    assert 0.99 * low <= float(rate.replace(",", "")) <= 1.01 * high
    assert float(memory) > 0.1
    assert float(start) > 1
    return name, float(ratio), more


def tokens_of(text):
    """Real tokens, from the line above the table."""
    head = next(line for line in text.splitlines() if " examples of " in line)
    examples, mean = head.split(": ")[1].split(" examples of ")
    assert examples == "40"
    return 40 * float(mean.split()[0])


@pytest.mark.slow
def test_the_benchmark_tells_the_first_epoch_apart(glue):
    (_, ours), text = measured(glue, "electra_tf")
    name, ratio, more = check(ours, tokens_of(text))
    assert (name, ratio) == ("electra_tf", 1)
    # Tracing and compiling take seconds, five small steps do not.
    assert more > 0.5


@pytest.mark.skipif(
    not all(map(importlib.util.find_spec, PEERS)), reason="needs interop-test"
)
def test_the_benchmark_measures_beside_the_trainer(glue):
    rows, text = measured(glue, "electra_tf,torch,torch.grouped")
    _, *rows, last = rows
    tokens = tokens_of(text)
    assert [check(row, tokens)[0] for row in rows] == [
        "electra_tf",
        "torch",
        "torch.grouped",
    ]
    best = min(rows[1:], key=lambda row: float(row.split()[1])).split()[0]
    assert last.startswith("electra_tf takes ")
    assert f" of the time of {best}, " in last


def test_the_benchmark_says_what_it_needs(glue, monkeypatch):
    monkeypatch.delenv("ELECTRA_TF_DATA", raising=False)
    assert "name --data=GLUE and --vocab=FILE" in run().stderr
    given = f"--data={glue}", f"--vocab={GOLDEN / 'vocab.txt'}"
    assert "--peers holds electra_tf" in run(*given, "--peers=torch").stderr
    lacking = run(*given, "--torch_python=false")
    assert lacking.returncode == 1
    assert "has not all of torch, transformers, accelerate" in lacking.stderr
    many = run(*given, "--examples=49", "--peers=electra_tf")
    assert "--examples is 48 or less; 49 were asked for" in many.stderr
