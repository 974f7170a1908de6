"""Fine-tune on all tasks of GLUE: the paper's table, and the leaderboard's files."""

import os
import pathlib
from collections.abc import Callable, Mapping

from electra_tf.errors import InputError
from electra_tf.tasks.data import glue
from electra_tf.tasks.trials import (
    STATISTICS,
    Trial,
    best_trial,
    summary,
    trial_folder,
)

_TABLE, _SUBMISSION = "glue.txt", "submission.zip"


def run_tasks(
    data: str, output: str, run: Callable[..., list[Trial]]
) -> dict[str, list[Trial]]:
    """Fine-tune on each GLUE task that has data; write the table and the submission."""
    stems = {
        name: ("train", *row.dev[:1]) for name, row in glue.TASKS.items() if row.dev
    }
    tasks = [
        name for name in stems if all(glue.find(data, name, s) for s in stems[name])
    ]
    if not tasks:
        raise InputError(
            f"--data {data!r} must contain train and dev of one of GLUE's tasks or more"
        )
    missing = ", ".join(task for task in stems if task not in tasks) or "none"
    print(f"tasks with data: {', '.join(tasks)}; without: {missing}")
    for name, (task, stem, rows) in glue.submission_files().items():
        is_scored = glue.training_task(task) in tasks
        path = glue.find(data, task, stem) if is_scored else None
        if path and (number := len(glue.read(path, task))) != rows:
            raise InputError(
                f"{path}: the test file of {name} must have {rows} rows, not {number}"
            )
    trials_by_task, predictions = {}, {}
    for task in tasks:
        folder = os.path.join(output, task)
        trials_by_task[task] = run(task, output=folder)
        predictions |= _best_test_predictions(task, trials_by_task[task], folder)
    table = _format_table(trials_by_task)
    print(table)
    pathlib.Path(output, _TABLE).write_text(table + "\n", encoding="utf-8")
    path = os.path.join(output, _SUBMISSION)
    placeholders = glue.write_submission(path, predictions)
    print(f"leaderboard submission: {path}")
    if placeholders:
        print(f"without predictions, one label for all rows: {', '.join(placeholders)}")
    return trials_by_task


def _best_test_predictions(
    task: str, trials: list[Trial], folder: str
) -> dict[str, list[str]]:
    """Return the best trial's test predictions by name of the leaderboard's file."""
    best = best_trial(trials)
    predictions = {}
    for name, (file_task, stem, _) in glue.submission_files().items():
        path = os.path.join(trial_folder(folder, best.number), f"{stem}.tsv")
        if glue.training_task(file_task) == task and os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                lines = file.read().splitlines()[1:]
            predictions[name] = [line.split("\t")[1] for line in lines]
    return predictions


def _format_table(trials_by_task: Mapping[str, list[Trial]]) -> str:
    """Format the paper's table: one score for each task, and their mean."""
    header = "".join(f"{name:>8}" for name in STATISTICS)
    lines = [f"{'task':<6}{'score':<22}{header}  trials"]
    medians = {}
    for task, trials in trials_by_task.items():
        monitor = next(iter(trials[0].scores))
        spread = summary(trials, monitor)
        medians[task] = spread["median"]
        numbers = "".join(f"{spread[name]:>8.2f}" for name in STATISTICS)
        count = f"  {spread['trials']:.0f}"
        if spread["degenerate"]:
            count += f", {spread['degenerate']:.0f} degenerate"
        lines.append(f"{task:<6}{monitor:<22}{numbers}{count}")
    scored = [value for task, value in medians.items() if task != "wnli"]
    if scored:
        mean = sum(scored) / len(scored)
        lines.append(f"mean of {len(scored)} medians, without wnli: {mean:.2f}")
    return "\n".join(lines)
