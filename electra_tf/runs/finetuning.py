"""From a task's name to trials: which reader, which published settings."""

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from electra_tf.config.finetuning import FinetuningConfig
from electra_tf.errors import InputError
from electra_tf.tasks.classification import glue
from electra_tf.tasks.classification.csv_data import csv_task
from electra_tf.tasks.classification.glue_submission import (
    submission_files,
    write_submission,
)
from electra_tf.tasks.classification.task import glue_task
from electra_tf.tasks.pretrained import PretrainedEncoder
from electra_tf.tasks.runner import MultiSeedRunner
from electra_tf.tasks.squad.task import squad_task
from electra_tf.tasks.tagging.task import tagging_task
from electra_tf.tasks.task import Task
from electra_tf.tasks.trials import Trial, format_summary, pluralize, summary
from electra_tf.text.data_errors import DataErrorLog
from electra_tf.training.run_directory import run_lock

NAMES = (*glue.TASKS, "glue", "squad1", "squad2", "chunking", "tagging", "csv")
# Published for a task, whatever the model's size (the original's configuration).
_PUBLISHED: dict[str, dict[str, Any]] = {
    **{name: {"training.epochs": row.epochs} for name, row in glue.TASKS.items()},
    "squad1": {"training.epochs": 2, "data.max_length": 512},
    "squad2": {"training.epochs": 2, "data.max_length": 512},
    "chunking": {"data.max_length": 256},
}
_RESULTS, _PROBLEMS = "results.json", "problems.txt"
_RULE = "The data is as the task needs it"

Settings = Callable[[Mapping[str, Any]], FinetuningConfig]


def run_finetuning(
    name: str,
    data: str,
    checkpoint: str,
    output: str,
    trials: int,
    settings: Settings,
    devices: tf.distribute.Strategy,
) -> None:
    """Trains and measures a task, or all of GLUE.

    Args:
        name: One of `NAMES`.
        data: The task's file or folder.
        checkpoint: What pretrain wrote.
        output: The folder of the trials.
        trials: Seeds.
        settings: From published values by dotted name to all settings.
        devices: The replicas.
    """
    start = PretrainedEncoder.open(checkpoint)
    with run_lock(output, "--output"):
        if name == "glue":
            _all(data, start, output, trials, settings, devices)
        else:
            run_task(name, data, start, output, trials, settings, devices)


def _all(
    data: str,
    start: PretrainedEncoder,
    output: str,
    trials: int,
    settings: Settings,
    devices: tf.distribute.Strategy,
) -> None:
    """Every task of GLUE that has data; the paper's table, the leaderboard's zip."""
    tasks = [task for task in glue.TASKS if task != "ax" and _has_data(data, task)]
    if not tasks:
        raise InputError(
            "--data holds one of GLUE's tasks, with train and dev, or more",
            f"{data!r}, with none",
            "Fetch GLUE's files, or name the folder of the folders CoLA, SST-2, ...",
        )
    idle = [task for task in glue.TASKS if task not in (*tasks, "ax")]
    print(f"with data: {', '.join(tasks)}; without: {', '.join(idle) or 'none'}")
    _check_test_sets(data, tasks)
    done, answers = {}, {}
    for task in tasks:
        folder = os.path.join(output, task)
        done[task] = run_task(task, data, start, folder, trials, settings, devices)
        answers |= _answers(task, done[task], folder)
    table = _table(done)
    print(table)
    with open(os.path.join(output, "glue.txt"), "w", encoding="utf-8") as file:
        file.write(table + "\n")
    path = os.path.join(output, "submission.zip")
    filled = write_submission(path, answers)
    print(f"for the leaderboard: {path}")
    if filled:
        print(f"one answer for all rows, as there is no better: {', '.join(filled)}")


def run_task(
    name: str,
    data: str,
    start: PretrainedEncoder,
    output: str,
    trials: int,
    settings: Settings,
    devices: tf.distribute.Strategy,
) -> list[Trial]:
    """Trains and measures one task.

    Args:
        name: One of `NAMES`, but not `glue`.
        data: As for `run`.
        start: The checkpoint, read.
        output: As for `run`.
        trials: As for `run`.
        settings: As for `run`.
        devices: As for `run`.

    Returns:
        The trials.
    """
    base = dict(_PUBLISHED.get(name, {}))
    known, wanted = start.shape.max_positions, base.get("data.max_length", 128)
    base["data.max_length"] = min(wanted, known)
    chosen = settings(base)
    if chosen.data.max_length == known < wanted:
        print(f"{name}: inputs of {known} positions, not {wanted}: the encoder's limit")
    os.makedirs(output, exist_ok=True)
    problems = os.path.join(output, _PROBLEMS)
    log = DataErrorLog(chosen.data.on_error, problems, _RULE)
    try:
        task = read_task(name, data, chosen, log)
    finally:
        log.close()
    for kind, number in log.counts.items():
        print(f"{pluralize(number, 'problem')}: {kind} (see {output}/{_PROBLEMS})")
    done = MultiSeedRunner(task, start, chosen, output, devices).run(trials)
    print(format_summary(done, name))
    results = {score: _json(summary(done, score)) for score in done[0].scores}
    with open(os.path.join(output, _RESULTS), "w", encoding="utf-8") as file:
        json.dump({"task": name, "scores": results}, file, indent=1)
    return done


def read_task(
    name: str, data: str, settings: FinetuningConfig, log: DataErrorLog
) -> Task:
    """Reads a task's data.

    Args:
        name: One of `NAMES`, but not `glue`.
        data: Its file or folder.
        settings: All of fine-tuning.
        log: Where bad rows are told.

    Returns:
        The task.

    Raises:
        InputError: Data that is not as it should be.
    """
    if name in glue.TASKS:
        return glue_task(name, data, log)
    if name == "csv":
        return csv_task(data, settings.data, log)
    if name in ("chunking", "tagging"):
        return tagging_task(name, data, settings.data, log)
    return squad_task(name, data, settings.data, log)


def _json(found: Mapping[str, float]) -> dict[str, float | None]:
    """JSON knows no infinity."""
    return {name: v if math.isfinite(v) else None for name, v in found.items()}


def _check_test_sets(data: str, tasks: Sequence[str]) -> None:
    """Refuses cut test files before anything is trained."""
    log = DataErrorLog("stop", "", "GLUE's test files are as published")
    for name, (task, stem, rows) in submission_files().items():
        wanted = task in tasks or (task == "ax" and "mnli" in tasks)
        path = glue.find(data, task, stem) if wanted else None
        if path and (found := len(glue.read(path, task, log))) != rows:
            raise InputError(
                f"The leaderboard's {name} has {rows} rows",
                f"{path}, with {found}",
                "Use the whole test file, or take it away",
            )


def _has_data(data: str, task: str) -> bool:
    stems = ("train", glue.TASKS[task].dev[0])
    return all(glue.find(data, task, stem) for stem in stems)


def _answers(task: str, done: list[Trial], folder: str) -> dict[str, list[str]]:
    """What the best trial said of the test sets, by the leaderboard's file."""
    monitor = next(iter(done[0].scores))
    best = max(done, key=lambda trial: trial.scores[monitor])
    found = {}
    for name, (of, stem, _) in submission_files().items():
        path = os.path.join(folder, f"trial_{best.number}", f"{stem}.tsv")
        if of in (task, *(["ax"] if task == "mnli" else [])) and os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                lines = file.read().splitlines()[1:]
            found[name] = [line.split("\t")[1] for line in lines]
    return found


def _table(done: Mapping[str, list[Trial]]) -> str:
    """The paper's table: one score for each task, and their mean."""
    names = ("median", "mean", "sd", "min", "max")
    lines = [f"{'task':<6}{'score':<22}" + "".join(f"{n:>8}" for n in names) + "  runs"]
    medians = {}
    for task, trials in done.items():
        monitor = next(iter(trials[0].scores))
        found = summary(trials, monitor)
        medians[task] = found["median"]
        failed = f", {found['degenerate']:.0f} degenerate" * bool(found["degenerate"])
        numbers = "".join(f"{found[name]:>8.2f}" for name in names)
        runs = f"  {found['trials']:.0f}{failed}"
        lines.append(f"{task:<6}{monitor:<22}{numbers}{runs}")
    counted = [value for task, value in medians.items() if task != "wnli"]
    if counted:
        mean = sum(counted) / len(counted)
        lines.append(f"mean of {len(counted)} medians, without wnli: {mean:.2f}")
    return "\n".join(lines)
