"""One model in all formats: the scores are the task's, the sizes the files'."""

import csv
import re
import subprocess
import sys

import pytest
from conftest import ROOT
from tasks import tiny

from electra_tf.tasks.classification.model import TextClassifier

TEXTS, NUMBERS = tiny.texts(40, longest=11, shortest=3)
LABELS = ("bad", "good")


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    """A model that was trained on a table, and the table."""
    folder = tmp_path_factory.mktemp("formats")
    with (folder / "texts.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "kind"])
        writer.writerows(
            (text, LABELS[n]) for text, n in zip(TEXTS, NUMBERS, strict=True)
        )
    columns = {"data_text_columns": ("text",), "data_label_column": "kind"}
    settings = tiny.settings(data_dev_share=0.5, **columns)
    TextClassifier(tiny.start(), LABELS, settings).save(folder / "model.keras")
    return folder


@pytest.mark.slow  # four exports; a minute
def test_all_formats_are_scored_weighed_and_timed(given):
    done = subprocess.run(
        [
            sys.executable,
            ROOT / "tools/benchmarks/benchmark_formats.py",
            "--rounds=1",
            *(f"--model={given}", "--task=csv", f"--data={given}/texts.csv"),
            "--lengths=8",
        ],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    formats = ("SavedModel", "LiteRT float32", "LiteRT int8", "ONNX")
    lines = done.stdout.splitlines()
    scores = {
        line[:20].strip(): float(line.split("accuracy ")[1].split()[0])
        for line in lines
        if "accuracy" in line
    }
    assert set(scores) == {"Keras", *formats}
    # Half of twenty texts right or wrong by what rounding does: int8 may differ.
    exact = {scores[name] for name in scores if "int8" not in name}
    assert len(exact) == 1
    for unit in ("MB", "µs"):
        told = {
            line[:20].strip(): float(re.search(rf"([\d.]+) {unit}", line)[1])
            for line in lines
            if f" {unit}" in line
        }
        assert set(told) == set(formats)
        assert all(value > 0 for value in told.values())
