"""The command: metrics as a table and as JSON."""

import json
import shutil

from tests.conftest import GOLDEN, failure


def test_metrics_equal_those_of_training(here, pretrained, folder, tmp_path):
    """A checkpoint needs no other file of its run."""
    path = max((pretrained / "checkpoints").glob("step_*"))
    checkpoint = shutil.copytree(path, tmp_path / "checkpoint")
    records = shutil.copytree(folder, tmp_path / "records")
    output = tmp_path / "metrics.json"
    given = [f"--checkpoint={checkpoint}", f"--data={records}", f"--output={output}"]
    result = here("evaluate", *given)
    assert result.returncode == 0, result.stderr
    printed = json.loads(result.stdout.splitlines()[-1])
    assert printed == json.loads(output.read_text())
    lines = (pretrained / "metrics.jsonl").read_text().splitlines()
    metrics = [json.loads(line) for line in lines]
    logged = next(line for line in metrics if line["kind"] == "evaluation")
    names = set(logged) - {"step", "kind", "time"}
    assert names == {
        "masked_lm_loss",
        "masked_lm_accuracy",
        "sampled_masked_lm_accuracy",
        "disc_loss",
        "disc_accuracy",
        "disc_precision",
        "disc_recall",
        "disc_auc",
    }
    for name in names:
        assert printed[name] == logged[name], name
        assert f"  {name}" in result.stdout
    assert printed["step"] == 3
    assert 6.5 < printed["masked_lm_loss"] < 7.2  # log 1000 = 6.9 after three steps
    manifest = json.loads((folder / "manifest.json").read_text())
    assert printed["records"] == sum(s["records"] for s in manifest["shards"])


def test_a_flag_names_the_spans_of_characters(here, tmp_path):
    row = {"text": "the file", "entities": [], "ner": [[4, 99, "PER"]]}
    (tmp_path / "dev.json").write_text(json.dumps([row | {"ner": [[0, 3, "X"]]}, row]))
    given = [f"--model={GOLDEN}/saved/tagger", f"--data={tmp_path}/dev.json"]
    start = f"--checkpoint={GOLDEN}/saved/run", f"--output={tmp_path}/out"
    train = "--task=tagging", f"--data={tmp_path}/dev.json", *start
    assert "4:99" in failure(here("finetune", *train, "--spans_column=ner"))
    message = failure(here("evaluate", *given, "--spans_column=ner"))
    assert "4:99 is no span of 8 characters" in message
    message = failure(here("evaluate", *given, "--batches=2"))
    assert "--batches must not be used with --model" in message
