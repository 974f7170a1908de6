"""The README.md of a converted model."""

import json
import pathlib
import re

from electra_tf.runs.conversion import convert_checkpoint


def code_blocks(card):
    return re.findall(r"```python\n(.*?)```", card, re.DOTALL)


def test_model_card_of_a_run_shows_metrics_and_code_that_runs(
    pretrained, tmp_path, monkeypatch
):
    target = tmp_path / "there"
    convert_checkpoint(pretrained, target, "huggingface")
    card = (target / "README.md").read_text()
    run = pathlib.Path(pretrained)
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().split("\n")
            if line]  # fmt: skip
    last = [row for row in rows if row["kind"] == "train"][-1]
    assert f"| {last['disc_loss']:.4f} |" in card
    assert "tokens_per_second" not in card
    assert "Records: " in card
    theirs, own = code_blocks(card)
    assert 'subfolder="generator"' in theirs
    monkeypatch.chdir(target)
    names = {}
    exec(own, names)
    assert names["encoder"].shape.width == names["classifier"].encoder.shape.width
    theirs, own = code_blocks((target / "generator" / "README.md").read_text())
    assert "AutoModelForMaskedLM" in theirs
    monkeypatch.chdir(target / "generator")
    exec(own, {})


def test_model_card_of_a_converted_model_shows_no_settings(pretrained, tmp_path):
    convert_checkpoint(pretrained, tmp_path / "hf", "huggingface")
    convert_checkpoint(tmp_path / "hf", tmp_path / "ours")
    convert_checkpoint(tmp_path / "ours", tmp_path / "there", "huggingface")
    card = (tmp_path / "there" / "README.md").read_text()
    assert "Converted from" in card
    assert "learning_rate" not in card
