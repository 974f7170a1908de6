"""Fine-tune on one task, or on all tasks of GLUE."""

import functools
import os
import shlex
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from electra_tf import durable_files, sources
from electra_tf.config.finetuning import FinetuningConfig
from electra_tf.interop import MODEL
from electra_tf.runs import glue_benchmark
from electra_tf.runs.html_report import Section, write_report
from electra_tf.sources import PretrainedEncoder
from electra_tf.tasks.class_report import format_class_report
from electra_tf.tasks.data import glue
from electra_tf.tasks.data.table import json_text
from electra_tf.tasks.defaults import (
    default_settings,
    describe_settings,
    is_published,
    longest,
)
from electra_tf.tasks.registry import named
from electra_tf.tasks.score import Mistake
from electra_tf.tasks.task_data import Reading
from electra_tf.tasks.trials import (
    Trial,
    Trials,
    best_trial,
    describe_better_epoch,
    format_score,
    format_summary,
    read_report,
    shown_scores,
    summary,
)
from electra_tf.training.bfloat16 import precision_hints
from electra_tf.training.run_directory import run_lock

RESULTS = "results.json"

MakeConfig = Callable[[Mapping[str, Any]], FinetuningConfig]
"""Function from default values by dotted name to a config."""


def run_finetuning(
    name: str,
    data: str,
    checkpoint: str,
    output: str,
    trials: int,
    make_config: MakeConfig,
    devices: tf.distribute.Strategy,
    report: str | None = None,
) -> None:
    """Lock the output folder and fine-tune on a task, or on all tasks of GLUE.

    `report`: path of an HTML file for the best trial of each task.
    """
    pretrained = sources.open_pretrained(checkpoint).encoder
    rest = {"trials": trials, "make_config": make_config, "devices": devices}
    run = functools.partial(run_task, data=data, pretrained=pretrained, **rest)
    with run_lock(output, "--output"):
        if name == glue.ALL:
            trials_by_task = glue_benchmark.run_tasks(data, output, run)
            folders = {task: os.path.join(output, task) for task in trials_by_task}
        else:
            trials_by_task, folders = {name: run(name, output=output)}, {name: output}
        if report:
            done = trials_by_task.items()
            sections = [_section(task, trials, folders[task]) for task, trials in done]
            write_report(report, f"Fine-tuning on {name}", sections)


def _section(task: str, trials: list[Trial], folder: str) -> Section:
    """Return the part of the report on a task."""
    best = best_trial(trials)
    report, scores = read_report(folder, best.number), shown_scores(best.scores)
    curves = {"loss": {"training": report["losses"]}}
    for score in shown_scores(best.epochs[0]) if best.epochs else ():
        points = [
            (number * report["epoch_steps"], epoch[score])
            for number, epoch in enumerate(best.epochs, 1)
        ]
        curves[score] = {"held out": points}
    return Section(
        title=f"{task}: trial {best.number} of {len(trials)}, the best on dev",
        header=["trial", "seed", *scores, ""],
        rows=[
            [
                t.number,
                t.seed,
                *(format_score(s, t.scores[s]) for s in scores),
                t.degenerate or "",
            ]
            for t in trials
        ],
        splits={
            name: (report["classes"].get(name), [Mistake(*row) for row in rows])
            for name, rows in report["mistakes"].items()
        },
        curves=curves,
    )


def describe_model(task: str, output: str) -> str:
    """Return a line about the path of the model, and how to use it."""
    folder = output.rstrip("/") + "/TASK" * (task == glue.ALL)
    return (
        f"model: {folder}/{MODEL}; to use it: electra-tf predict "
        f"--model={shlex.quote(folder)} --input=FILE"
    )


def run_task(
    name: str,
    data: str,
    pretrained: PretrainedEncoder,
    output: str,
    trials: int,
    make_config: MakeConfig,
    devices: tf.distribute.Strategy,
) -> list[Trial]:
    """Fine-tune and evaluate on one task; write the scores."""
    declaration = named(name)
    settings = _settings(name, pretrained, make_config)
    os.makedirs(output, exist_ok=True)
    reading = Reading(settings.data, print, pretrained.tokenizer)
    task = declaration.training_data(name, data, reading)
    done = Trials(task, pretrained, settings, output, devices).run(trials)
    best = best_trial(done)
    classes = read_report(output, best.number)["classes"]
    for split, report in classes.items():
        print(f"{name} {split}, trial {best.number} of {trials}:")
        print(format_class_report(report))
    print(format_summary(done, name))
    if line := describe_better_epoch(best, settings.training.keep):
        print(f"{name}: {line}")
    scores = {score: summary(done, score) for score in done[0].scores}
    report = {"task": name, "scores": scores}
    report |= {"best_trial": best.number, "classes": classes}
    with durable_files.replacing(os.path.join(output, RESULTS)) as file:
        file.write(json_text(report, indent=1))
    return done


def _settings(
    name: str, pretrained: PretrainedEncoder, make_config: MakeConfig
) -> FinetuningConfig:
    """Return the settings of a task, completed by defaults, and print them."""
    declaration = named(name)
    model, published = declaration.models[0], declaration.published.get(name, {})
    defaults = default_settings(pretrained, model.rate_scale)
    if "max_length" in published:
        defaults["data.max_length"] = longest(pretrained, published["max_length"])
    if is_published(pretrained) and "epochs" in published:
        defaults["training.epochs"] = published["epochs"]
    settings = make_config(defaults)
    line = describe_settings(pretrained, settings, defaults, model.kind)
    print("\n".join([f"{name}: {line}", *precision_hints(settings.training.precision)]))
    return settings
