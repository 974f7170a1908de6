"""Test the benchmark of export formats."""

import csv
import re
import subprocess
import sys

import pytest
import tiny
from conftest import ROOT

from electra_tf.tasks.classifier import TextClassifier

pytestmark = pytest.mark.tools

TEXTS, NUMBERS = tiny.texts(40, longest=11, shortest=3)
LABELS = ("bad", "good")


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory):
    """Return a folder with a model and the CSV file of its task."""
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
def test_scores_sizes_and_latencies_of_all_formats(model_folder):
    result = subprocess.run(
        [
            sys.executable,
            ROOT / "tools/benchmarks/benchmark_formats.py",
            "--rounds=1",
            *(f"--model={model_folder}", "--task=csv"),
            f"--data={model_folder}/texts.csv",
            "--lengths=8",
        ],
        capture_output=True, text=True,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    formats = ("SavedModel", "LiteRT float32", "LiteRT int8", "ONNX")
    lines = result.stdout.splitlines()
    scores = {
        line[:20].strip(): float(match[1])
        for line in lines
        if (match := re.search(r"accuracy (\d[\d.]*)", line))
    }
    assert set(scores) == {"Keras", *formats}
    # Predictions of int8 may differ.
    exact = {scores[name] for name in scores if "int8" not in name}
    assert len(exact) == 1
    for unit in ("MB", "µs"):
        values = {
            line[:20].strip(): float(re.search(rf"([\d.]+) {unit}", line)[1])
            for line in lines
            if f" {unit}" in line
        }
        assert set(values) == set(formats)
        assert all(value > 0 for value in values.values())
