"""Scores of a pre-trained checkpoint, each by an ordinary command."""

import gzip
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile

_FINETUNE = {
    # Task, its data below --data, and the score in results.json.
    "chunk_f1": ("chunking", "tagging/conll2000", "test_f1"),
    "cola": ("cola", "glue", "dev_mcc"),
    "sst2": ("sst2", "glue", "dev_accuracy"),
}
NAMES = ("probe", "blimp", *_FINETUNE)
"""Names for the grid's `scores`."""
_ROWS = {"sst2": 10_000}  # of the training data, the first ones; others: all


def run_command(name: str, *arguments: str, log: pathlib.Path) -> str:
    """Run a command of the package and return what it printed.

    Args:
        name: Of the command.
        arguments: Its flags.
        log: File that gets its messages.
    """
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"}
    with log.open("a", encoding="utf-8") as messages:
        result = subprocess.run(
            [sys.executable, "-m", f"electra_tf.{name}", *arguments],
            stdout=subprocess.PIPE,
            stderr=messages,
            text=True,
            env=environment,
        )
    if result.returncode:
        raise SystemExit(f"electra_tf.{name} failed; its messages are in {log}")
    return result.stdout


def score(
    name: str, checkpoint: str, data: pathlib.Path, log: pathlib.Path, seed: int
) -> dict[str, float]:
    """Return the numbers of one evaluation by name.

    Args:
        name: One of `NAMES`.
        checkpoint: Its path.
        data: Folder with `tagging`, `blimp` and `glue`.
        log: File that gets the messages of the commands.
        seed: Of fine-tuning.
    """
    if name == "probe":
        report = _evaluate("probe", data / "tagging/conll2000", checkpoint, log)
        return {
            f"probe_{kind}_{which}": report[kind][which]
            for kind in ("pos", "chunk")
            for which in ("best", "last")
        }
    if name == "blimp":
        report = _evaluate("blimp", data / "blimp", checkpoint, log)
        return {"blimp": report["accuracy"]}
    task, folder, metric = _FINETUNE[name]
    with tempfile.TemporaryDirectory() as output:
        source = data / folder
        if name in _ROWS:
            source = _first_rows(source / "SST-2", pathlib.Path(output), _ROWS[name])
        run_command(
            "finetune",
            f"--task={task}",
            f"--data={source}",
            f"--checkpoint={checkpoint}",
            f"--output={output}/model",
            f"--set=training.seed={seed}",
            "--set=data.max_length=64",
            log=log,
        )
        results = pathlib.Path(output, "model", "results.json")
        report = json.loads(results.read_text(encoding="utf-8"))
    return {name: report["scores"][metric]["median"]}


def _first_rows(source: pathlib.Path, folder: pathlib.Path, count: int) -> pathlib.Path:
    """Copy train and dev of a GLUE task, the header and `count` rows of train."""
    target = folder / source.name
    target.mkdir()
    for split, rows in (("train", count), ("dev", None)):
        (path,) = source.glob(f"{split}.tsv*")
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rt", encoding="utf-8") as file:
            lines = itertools.islice(file, None if rows is None else rows + 1)
            (target / f"{split}.tsv").write_text("".join(lines), encoding="utf-8")
    return target


def _evaluate(
    task: str, data: pathlib.Path, checkpoint: str, log: pathlib.Path
) -> dict:
    flags = f"--task={task}", f"--data={data}", f"--checkpoint={checkpoint}"
    printed = run_command("evaluate", *flags, log=log)
    return json.loads(printed.strip().splitlines()[-1])
