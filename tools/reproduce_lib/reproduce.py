"""Compare the paper's systems of pre-training at equal FLOPs.

    tools/reproduce --records=records --heldout=heldout --data=glue --work=work

Pre-trains each system of the comparison with the same executed FLOPs, fine-tunes it on
each task with several seeds, and writes `table.md` and `scores.svg` in --work. What is
finished is skipped, what was stopped resumes: run the same command again. Several
processes can share --work if --only gives them different systems.
"""

import argparse
import dataclasses
import json
import math
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import yaml
from scipy import stats

from electra_tf import durable_files
from electra_tf.config.loader import load_config
from electra_tf.config.pretraining import PretrainingConfig
from electra_tf.errors import InputError
from electra_tf.model import cost
from electra_tf.training.checkpoint import open_checkpoint
from electra_tf.training.metric_logger import read_metrics

FOLDER = pathlib.Path(__file__).parent
CONFIDENCE = 0.95
AVERAGE = "average"  # over tasks

Scores = dict[str, dict[str, list[list[float]]]]
"""Scores by system, task or AVERAGE, pre-training and trial."""

_KEYS = {
    "comparison": {
        *("reference", "steps", "set", "pretraining_seeds", "systems", "finetuning")
    },
    "systems": {"config", "set"},
    "finetuning": {"tasks", "trials", "set"},
}
_DONE = "run.json"


def training_flops(config: PretrainingConfig) -> int:
    """Return the FLOPs that a training executes, with logits that it computes twice.

    A softmax at all positions computes its logits again in the backward pass. Electric
    also computes those at the drawn positions once more, to sample from them.
    """
    objective, positions = config.objective, config.records.max_length
    shape = config.model.encoder
    if objective.towers == 2:
        shape = config.model.generator
        positions += config.max_predictions_per_seq
    elif objective.softmax != "all":
        positions = 0
    again = 2 * shape.embedding * shape.vocabulary_size * positions
    step = cost.step_flops(config) + again * config.input.batch_size
    return step * config.training.steps


@dataclasses.dataclass(frozen=True)
class Run:
    """Pre-training of a system with one seed."""

    system: str
    seed: int
    config_name: str
    sets: tuple[str, ...]
    """All settings for `--set`."""
    config: PretrainingConfig

    @property
    def name(self) -> str:
        return f"{self.system.replace('/', '_')}-seed{self.seed}"

    @property
    def flops(self) -> float:
        return training_flops(self.config)

    @property
    def facts(self) -> dict[str, Any]:
        """Return what a finished run is compared with before it is skipped."""
        return {
            "system": self.system,
            "config": self.config_name,
            "set": list(self.sets),
            "steps": self.config.training.steps,
            "flops": self.flops,
        }


@dataclasses.dataclass(frozen=True)
class Comparison:
    runs: tuple[Run, ...]
    pretraining_seeds: int
    tasks: tuple[str, ...]
    trials: int
    finetuning_sets: tuple[str, ...]


# Plan.


def read_comparison(path: pathlib.Path) -> Comparison:
    """Return the runs of a file, each with the steps that the budget pays."""
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    _check_keys(path, content)
    systems, common = content["systems"], content.get("set", ())
    reference = systems[content["reference"]]
    budget = training_flops(_config(reference, common, content["steps"])[1])
    seeds = content.get("pretraining_seeds", 1)
    runs = [
        _run(name, system, common, seed, budget)
        for seed in range(seeds)
        for name, system in systems.items()
    ]
    finetuning = content["finetuning"]
    return Comparison(
        tuple(runs),
        seeds,
        tuple(finetuning["tasks"]),
        finetuning["trials"],
        tuple(finetuning.get("set", ())),
    )


def _check_keys(path: pathlib.Path, content: Mapping[str, Any]) -> None:
    parts = [("comparison", content), ("finetuning", content.get("finetuning", {}))]
    parts += [("systems", system) for system in content.get("systems", {}).values()]
    for name, part in parts:
        if unknown := part.keys() - _KEYS[name]:
            raise InputError(
                f"{path}: keys of {name} must be among {', '.join(sorted(_KEYS[name]))}"
                f". Received: {', '.join(sorted(unknown))}"
            )
    required = _KEYS["comparison"] - {"set", "pretraining_seeds"}
    if missing := required - content.keys():
        raise InputError(f"{path} must have the keys {', '.join(sorted(missing))}")
    if content["reference"] not in content["systems"]:
        raise InputError(
            f"{path}: reference must be a system. Received: {content['reference']}"
        )


def _run(
    name: str, system: Mapping[str, Any], common: Sequence[str], seed: int, budget: int
) -> Run:
    trial_steps = 10_000
    flops = training_flops(_config(system, common, trial_steps)[1])
    # Even, because `two_stage` gives each network half of the steps.
    steps = max(2, 2 * round(budget * trial_steps / flops / 2))
    seeds = f"training.seed={seed}", f"input.seed={seed}"
    sets, config = _config(system, [*common, *seeds], steps)
    return Run(name, seed, system["config"], sets, config)


def _config(
    system: Mapping[str, Any], common: Sequence[str], steps: int
) -> tuple[tuple[str, ...], PretrainingConfig]:
    sets = *common, *system.get("set", ()), f"training.steps={steps}"
    config = load_config(system["config"], sets)
    if config.model.vocabulary_size is None:
        raise InputError(
            "a comparison must set model.vocabulary_size, which FLOPs depend on. "
            f"Received: {' '.join(sets)}"
        )
    return sets, config


def describe(run: Run) -> str:
    rows = run.config.training.steps * run.config.input.batch_size
    tokens = rows * run.config.records.max_length
    return (
        f"{run.name}: {run.config.training.steps:,} steps, {tokens:.3g} tokens with "
        f"padding, {run.flops:.4g} FLOPs"
    )


# Train.


def train(run: Run, comparison: Comparison, options: argparse.Namespace) -> None:
    """Pre-train and fine-tune one run, unless it is finished."""
    folder = options.work / run.name
    folder.mkdir(parents=True, exist_ok=True)
    pretrained = folder / "pretrained"
    if not _is_done(run, folder):
        flags = [f"--config={run.config_name}", f"--data={options.records}"]
        flags += [f"--evaluation_data={options.heldout}", f"--model_dir={pretrained}"]
        flags += [f"--set={setting}" for setting in run.sets]
        log = folder / "pretrain.log"
        run_command("pretrain", *flags, log=log)
        _check_finished(
            open_checkpoint(str(pretrained)).step, run.config.training.steps, log
        )
        content = run.facts | {"heldout": _heldout(pretrained)}
        durable_files.write(folder / _DONE, f"{json.dumps(content, indent=1)}\n")
    for task in comparison.tasks:
        output = folder / task
        if len(task_scores(output)) >= comparison.trials:
            continue
        flags = [f"--task={task}", f"--data={options.data}", f"--output={output}"]
        flags += [f"--checkpoint={pretrained}", f"--trials={comparison.trials}"]
        flags += [f"--set={setting}" for setting in comparison.finetuning_sets]
        log = folder / f"{task}.log"
        run_command("finetune", *flags, log=log)
        _check_finished(len(task_scores(output)), comparison.trials, log)


def _check_finished(done: int, wanted: int, log: pathlib.Path) -> None:
    """Raise an error if a command ended early, as it does after SIGTERM."""
    if done < wanted:
        raise InputError(
            f"a command must finish {wanted} steps or trials. Received: {done}. Read "
            f"{log} and run again."
        )


def _is_done(run: Run, folder: pathlib.Path) -> bool:
    """Return whether a run is pre-trained; raise an error if with other settings."""
    path = folder / _DONE
    if not path.exists():
        return False
    found = json.loads(path.read_text(encoding="utf-8"))
    differing = [name for name, fact in run.facts.items() if found.get(name) != fact]
    if differing:
        raise InputError(
            f"{path} must have the {differing[0]} {run.facts[differing[0]]} of this "
            f"comparison. Received: {found.get(differing[0])}. Use another --work."
        )
    return True


def _heldout(pretrained: pathlib.Path) -> dict[str, float]:
    """Return the metrics of the last evaluation."""
    lines = [e for e in read_metrics(str(pretrained)) if e["kind"] == "evaluation"]
    names = "masked_lm_loss", "disc_auc"
    return {n: lines[-1][n] for n in names if n in lines[-1]} if lines else {}


def run_command(name: str, *flags: str, log: pathlib.Path) -> None:
    """Run a command of the package, with its messages in a file.

    The command has a session of its own, and SIGTERM passes on to it: it writes a
    checkpoint and ends.
    """
    print(f"electra-tf {name} {' '.join(flags)}", flush=True)
    with log.open("a", encoding="utf-8") as messages:
        process = subprocess.Popen(
            [sys.executable, "-m", f"electra_tf.{name}", *flags],
            stdout=messages,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        try:
            process.wait()
        except BaseException:
            process.terminate()
            process.wait()
            raise
    if process.returncode:
        raise InputError(
            f"{name} must end without an error. Received: exit status "
            f"{process.returncode}. Read {log}."
        )


# Report.


def task_scores(output: pathlib.Path) -> list[float]:
    """Return the score of each finished trial: the first one of the task, on dev."""
    path = output / "trials.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [next(iter(json.loads(line)["scores"].values())) for line in lines]


def collect(comparison: Comparison, work: pathlib.Path) -> Scores:
    """Return the scores of the runs whose tasks are all finished."""
    found: Scores = {}
    for run in comparison.runs:
        scores = {t: task_scores(work / run.name / t) for t in comparison.tasks}
        if any(len(trials) < comparison.trials for trials in scores.values()):
            continue
        scores = {t: trials[: comparison.trials] for t, trials in scores.items()}
        trials = zip(*scores.values(), strict=True)
        scores[AVERAGE] = [statistics.fmean(trial) for trial in trials]
        for task, values in scores.items():
            found.setdefault(run.system, {}).setdefault(task, []).append(values)
    return found


def interval(runs: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Return a mean and half the width of its confidence interval (Student's t).

    `runs` has the trials of each pre-training. Trials of one pre-training are not
    independent, so several pre-trainings count by their means.
    """
    values = [statistics.fmean(r) for r in runs] if len(runs) > 1 else runs[0]
    mean = statistics.fmean(values)
    if len(values) < 2:
        return mean, math.nan
    error = statistics.stdev(values) / math.sqrt(len(values))
    return mean, float(stats.t.ppf((1 + CONFIDENCE) / 2, len(values) - 1) * error)


def table(comparison: Comparison, scores: Scores) -> str:
    """Return a Markdown table with a row for each finished system, best first."""
    names = AVERAGE, *comparison.tasks
    lines = [
        f"Scores on dev: mean ± {CONFIDENCE:.0%} interval, over the seeds of "
        + ("fine-tuning." if comparison.pretraining_seeds == 1 else "pre-training."),
        "",
        f"| system | steps | FLOPs | {' | '.join(names)} |",
        "|---" * (len(names) + 3) + "|",
    ]
    runs = {run.system: run for run in comparison.runs}
    for system in by_average(scores):
        cells = [_cell(*interval(scores[system][name])) for name in names]
        steps, flops = runs[system].config.training.steps, runs[system].flops
        lines.append(f"| {system} | {steps:,} | {flops:.3g} | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def _cell(mean: float, half: float) -> str:
    return f"{mean:.1f}" if math.isnan(half) else f"{mean:.1f} ± {half:.1f}"


def by_average(scores: Scores) -> list[str]:
    """Return the systems, those with the highest average first."""
    return sorted(scores, key=lambda s: -interval(scores[s][AVERAGE])[0])


def plot(scores: Scores, path: pathlib.Path) -> None:
    """Draw the average of each system with its interval."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    systems = by_average(scores)[::-1]
    found = [interval(scores[system][AVERAGE]) for system in systems]
    means, halves = zip(*found, strict=True)
    figure, axes = pyplot.subplots(figsize=(6, 1 + 0.35 * len(systems)))
    errors = [0.0 if math.isnan(half) else half for half in halves]
    axes.errorbar(means, systems, xerr=errors, fmt="o", capsize=3)
    axes.set_xlabel(f"average score on dev, {CONFIDENCE:.0%} interval")
    axes.margins(y=0.15)
    axes.grid(axis="x", alpha=0.3)
    figure.savefig(path, bbox_inches="tight")
    pyplot.close(figure)


def report(comparison: Comparison, work: pathlib.Path) -> None:
    """Print and write the table, and draw the plot, of all finished systems."""
    scores = collect(comparison, work)
    if not scores:
        print("no system is finished")
        return
    text = table(comparison, scores)
    durable_files.write(work / "table.md", text)
    plot(scores, work / "scores.svg")
    print(f"\n{text}\nwritten to {work}/table.md and {work}/scores.svg")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add, path = parser.add_argument, pathlib.Path
    text = "YAML of the comparison; default: the paper's."
    add("--comparison", type=path, default=FOLDER / "paper.yaml", help=text)
    add("--records", help="Training records.")
    add("--heldout", help="Held-out records.")
    add("--data", help="Folder of the fine-tuning data.")
    add("--work", type=path, help="Folder of the runs and of the report.")
    add("--only", default="", help="Train the runs whose name has this pattern.")
    add("--list", action="store_true", help="Print the runs and exit.")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped by SIGTERM"))
    names = [] if options.list else ["records", "heldout", "data", "work"]
    if missing := [f"--{name}" for name in names if not getattr(options, name)]:
        parser.error(f"{', '.join(missing)} must be set")
    try:
        comparison = read_comparison(options.comparison)
        runs = [r for r in comparison.runs if re.search(options.only, r.name)]
        for run in runs:
            print(describe(run), flush=True)
            if not options.list:
                train(run, comparison, options)
        if not options.list:
            report(comparison, options.work)
    except (InputError, OSError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
