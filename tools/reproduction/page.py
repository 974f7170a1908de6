"""Write the page of a grid's rows: tables, intervals, plots, and what follows."""

import functools
import itertools
import json
import lzma
import math
import pathlib
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import metrics
import numpy as np
from bootstrap import crossings, interval, resample, sampled_scores
from grid import Grid

PRIMARY = "chunking", "sst2", "cola", "stsb", "mnli"
"""Tasks whose unweighted mean is the primary score, fixed before the first run."""
_AGREE = 3  # of the tasks, for a system that wins


class Results:
    """Scores of the finished runs, and samples of them.

    Args:
        grid: The grid.
        folder: Of the rows.
    """

    def __init__(self, grid: Grid, folder: pathlib.Path):
        self.grid, self._folder = grid, folder
        self.rows = {
            run: json.loads(path.read_text(encoding="utf-8"))
            for run in grid.runs
            if (path := folder / f"{run.name}.json").exists()
        }
        self.rungs = [*dict.fromkeys(run.rung for run in grid.runs if run.rung)]
        self.systems = [*dict.fromkeys(run.system for run in grid.runs if run.rung)]

    def finished(self, system: str, rung: str, tasks: Sequence[str]) -> dict[int, Any]:
        """Return the runs by seed that have the scores of all given tasks."""
        return {
            run.seed: run
            for run, row in self.rows.items()
            if (run.system, run.rung) == (system, rung)
            and set(tasks) <= set(row["scores"])
        }

    def mean(
        self, system: str, rung: str, tasks: Sequence[str], seeds: Sequence[int]
    ) -> np.ndarray:
        """Return the mean of some tasks over some seeds: [1 + SAMPLES]."""
        runs = self.finished(system, rung, tasks)
        return np.mean(
            [
                resample(
                    [self._samples(runs[seed], task) for seed in seeds],
                    f"{system} {rung} {task}",
                )
                for task in tasks
            ],
            0,
        )

    def difference(
        self, pair: Sequence[str], rung: str, tasks: Sequence[str]
    ) -> tuple[np.ndarray, int] | None:
        """Return the first system minus the second, and the number of their seeds."""
        first, second = (self.finished(system, rung, tasks) for system in pair)
        if not (seeds := sorted(set(first) & set(second))):
            return None
        a, b = (self.mean(system, rung, tasks, seeds) for system in pair)
        return a - b, len(seeds)

    @functools.cache  # noqa: B019
    def _samples(self, run: Any, task: str) -> np.ndarray:
        path = self._folder / f"{run.name}.rows.json.xz"
        rows = json.loads(lzma.decompress(path.read_bytes()))[task]
        return sampled_scores(task, metrics.arrays(rows))


def write(grid: Grid, folder: pathlib.Path, output: pathlib.Path) -> None:
    """Write `results.md` and plots.

    Args:
        grid: The grid.
        folder: Of its rows, perhaps not all of them yet.
        output: Folder of the page.
    """
    results = Results(grid, folder)
    output.mkdir(parents=True, exist_ok=True)
    parts = [
        "# Results of the ladder",
        "Made by `tools/reproduce GRID --report_only --rows=ROWS --page=PAGE`. Scores "
        "are in percent. An interval is the 95% interval of a bootstrap over seeds, "
        "seeds of fine-tuning and rows of dev; with two seeds or one, over the seeds "
        "of fine-tuning and the rows alone.",
        *_conclusions(results),
        *_missing(results),
        "## Training and primary score",
        *_table(
            "run seeds updates positions FLOPs paper's_rule CPU_seconds primary median",
            _primary_lines(results),
        ),
        "## Differences",
        *_table("rung difference over primary " + " ".join(PRIMARY), _pairs(results)),
        "## Scores by task",
        *_table("run " + " ".join(grid.tasks), _task_lines(results)),
    ]
    others = [n for n in ("probe_pos", "probe_chunk", "blimp")]
    parts += _table("run " + " ".join(others), _other_lines(results, others))
    parts += ["## Rates of fine-tuning", *_rates(folder)]
    text = "\n\n".join(part for part in parts if part) + "\n"
    (output / "results.md").write_text(text, encoding="utf-8")
    _plot(results, output)


def _table(head: str, lines: Iterator[Sequence[str]]) -> list[str]:
    rows = [[word.replace("_", " ") for word in head.split()], *lines]
    if len(rows) == 1:
        return []
    rows.insert(1, ["---"] * len(rows[0]))
    return ["\n".join(f"| {' | '.join(map(str, row))} |" for row in rows)]


def _groups(results: Results) -> Iterator[tuple[str, str, list[Mapping]]]:
    """Yield system, rung and rows."""
    names = dict.fromkeys((run.rung, run.system) for run in results.grid.runs)
    for rung, system in sorted(
        names, key=lambda name: results.rungs.index(name[0]) if name[0] else -1
    ):
        rows = [
            row
            for run, row in results.rows.items()
            if (run.system, run.rung) == (system, rung)
        ]
        if rows:
            yield system, rung, rows


def _cell(values: np.ndarray, sign: str = "") -> str:
    value, low, high = interval(values)
    return f"{value:{sign}.1f} ({low:{sign}.1f} to {high:{sign}.1f})"


def _score(results: Results, system: str, rung: str, tasks: Sequence[str]) -> str:
    if not (runs := results.finished(system, rung, tasks)):
        return ""
    return _cell(results.mean(system, rung, tasks, sorted(runs)))


def _primary_lines(results: Results) -> Iterator[Sequence[str]]:
    for system, rung, rows in _groups(results):
        row = rows[0]
        primary = [p for row in rows if (p := primary_of(row)) is not None]
        yield (
            f"{system} {rung}".strip(), len(rows),
            " + ".join(f"{stage['steps']:,}" for stage in row["stages"]),
            *(f"{row[n]:.3g}" for n in ("positions", "flops", "original_flops")),
            f"{statistics.median(row['cpu_seconds'] for row in rows):,.0f}",
            _score(results, system, rung, PRIMARY),
            f"{statistics.median(primary):.1f}" if primary else "",
        )  # fmt: skip


def primary_of(row: Mapping[str, Any]) -> float | None:
    """Return a run's primary score; None: a task is missing."""
    if not set(PRIMARY) <= set(row["scores"]):
        return None
    return statistics.fmean(statistics.fmean(row["scores"][n]) for n in PRIMARY)


def _task_lines(results: Results) -> Iterator[Sequence[str]]:
    for system, rung, _ in _groups(results):
        cells = [_score(results, system, rung, [name]) for name in results.grid.tasks]
        yield f"{system} {rung}".strip(), *cells


def _other_lines(results: Results, names: Sequence[str]) -> Iterator[Sequence[str]]:
    for system, rung, rows in _groups(results):
        found = [[r["scores"][n] for r in rows if n in r["scores"]] for n in names]
        cells = [
            f"{statistics.fmean(v):.1f} ({min(v):.1f} to {max(v):.1f})" if v else ""
            for v in found
        ]
        if any(cells):
            yield f"{system} {rung}".strip(), *cells


def _pairs(results: Results) -> Iterator[Sequence[str]]:
    for rung in results.rungs:
        for second, first in itertools.combinations(results.systems, 2):
            found = [
                results.difference((first, second), rung, tasks)
                for tasks in (PRIMARY, *([name] for name in PRIMARY))
            ]
            if any(found):
                seeds = max(number for _, number in filter(None, found))
                over = f"{seeds} seeds, fine-tunings, rows"
                if seeds < 3:
                    over = f"fine-tunings and rows, not the seeds ({seeds})"
                cells = [_cell(item[0], "+") if item else "" for item in found]
                yield rung, f"{first} - {second}", over, *cells


def _rates(folder: pathlib.Path) -> list[str]:
    path = folder / "rates.json"
    if not path.exists():
        return ["None are chosen yet."]
    systems = json.loads(path.read_text(encoding="utf-8"))["systems"]
    tasks = [*dict.fromkeys(task for chosen in systems.values() for task in chosen)]
    lines = [
        [system, *(f"{chosen[t]['rate']:g}" if t in chosen else "" for t in tasks)]
        for system, chosen in systems.items()
    ]
    return _table("system " + " ".join(tasks), iter(lines))


def _missing(results: Results) -> list[str]:
    lines = []
    for run in results.grid.runs:
        row = results.rows.get(run)
        left = [
            n for n in results.grid.content["scores"] if not row or n not in row["done"]
        ]
        if not row:
            lines.append(f"- {run.name}: not trained")
        elif left:
            lines.append(f"- {run.name}: {', '.join(left)}")
    return ["## Missing", "\n".join(lines)] if lines else []


def _conclusions(results: Results) -> list[str]:
    """Return what holds for each pair of systems, by the rule that was fixed before."""
    lines = []
    for second, first in itertools.combinations(results.systems, 2):
        budgets = {
            rung: float(results.grid.content["rungs"][rung]["positions"])
            for rung in results.rungs
            if results.difference((first, second), rung, PRIMARY)
        }
        if budgets:
            lines.append(f"- {_conclusion(results, first, second, budgets)}")
    reading = (
        "A system wins at a budget if the interval of its difference is above 0, at "
        f"least {_AGREE} of the {len(PRIMARY)} tasks agree, and the difference is not "
        "smaller than at the budget before."
    )
    lines += _advice(results)
    return [
        "## What holds",
        reading,
        "\n".join(lines) or "No rung has two systems yet.",
    ]


def _advice(results: Results) -> Iterator[str]:
    """Yield for each rung the systems that no other one is ahead of."""
    for rung in results.rungs:
        scored = [s for s in results.systems if results.finished(s, rung, PRIMARY)]
        worse = set()
        for pair in itertools.permutations(scored, 2):
            found = results.difference(pair, rung, PRIMARY)
            if found and interval(found[0])[1] > 0:
                worse.add(pair[1])
        if len(scored) > 1:
            best = " or ".join(system for system in scored if system not in worse)
            yield f"- With the compute of {rung} positions of masked LM, use {best}."


def _conclusion(
    results: Results, first: str, second: str, budgets: Mapping[str, float]
) -> str:
    curve = [results.difference((first, second), rung, PRIMARY)[0] for rung in budgets]
    texts, previous = [], None
    for rung, values in zip(budgets, curve, strict=True):
        texts.append(
            f"{rung}: {_verdict(results, (first, second), rung, values, previous)}"
        )
        previous = values[0]
    return (
        f"{first} and {second}. "
        + "; ".join(texts)
        + ". "
        + _crossing(first, curve, budgets)
    )


def _verdict(
    results: Results,
    pair: Sequence[str],
    rung: str,
    values: np.ndarray,
    previous: float | None,
) -> str:
    """Return who is ahead at a rung."""
    value, low, high = interval(values)
    tasks = [results.difference(pair, rung, [name])[0][0] for name in PRIMARY]
    side = 1 if value >= 0 else -1
    agree = sum(side * difference > 0 for difference in tasks)
    figures = f"{_cell(values, '+')}, {agree} of {len(PRIMARY)} tasks agree"
    if (seeds := results.difference(pair, rung, PRIMARY)[1]) < 3:
        figures += f", {seeds} seeds"
    if low <= 0 <= high:
        return f"no difference shown ({figures})"
    name = pair[0] if side > 0 else pair[1]
    if agree < _AGREE:
        return f"{name} is ahead in the mean, not on most tasks ({figures})"
    if previous is None:
        return f"{name} is ahead; one budget shows no trend ({figures})"
    if side * (value - previous) < 0:
        return f"{name} is ahead by less than at the budget before ({figures})"
    return f"{name} wins ({figures})"


def _crossing(
    first: str, curve: Sequence[np.ndarray], budgets: Mapping[str, float]
) -> str:
    """Return at which budget the difference changes its sign."""
    if len(curve) < 2:
        return "One budget gives no crossing."
    found = crossings(np.stack(curve), [*budgets.values()])
    rises = curve[-1][0] > curve[0][0]
    value, low, high = (
        f"{x:.3g}" if math.isfinite(x) else "never" for x in interval(found)
    )
    is_within = min(budgets.values()) <= found[0] <= max(budgets.values())
    where = "within the rungs" if is_within else "extrapolated"
    return (
        f"{first} {'gains' if rises else 'loses'} with the budget; the line through "
        f"the differences crosses 0 at {value} positions ({where}; {low} to {high})."
    )


def _plot(results: Results, output: pathlib.Path) -> None:
    """Draw the score against three costs, and the differences by task."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    matplotlib.rcParams["svg.hashsalt"] = "ladder"
    figure, axes = plt.subplots(2, 2, figsize=(11, 8), layout="constrained")
    costs = {"flops": "executed FLOPs", "positions": "positions",
             "cpu_seconds": "CPU seconds"}  # fmt: skip
    for axis, (cost, label) in zip(axes.flat, costs.items(), strict=False):
        _draw_scores(axis, results, cost)
        axis.set(
            xlabel=f"{label} of pre-training", ylabel="primary score", xscale="log"
        )
    _draw_tasks(axes[1, 1], results)
    for axis in axes.flat:
        if axis.get_legend_handles_labels()[0]:
            axis.legend(fontsize=8)
    figure.savefig(output / "results.svg", metadata={"Date": None})
    plt.close(figure)


def _draw_scores(axis: Any, results: Results, cost: str) -> None:
    """Draw a point for each run, and a line through the means of the rungs."""
    points: dict[str, dict[str, list]] = {}
    for run, row in results.rows.items():
        if (value := primary_of(row)) is not None:
            group = points.setdefault(run.system, {}).setdefault(run.rung, [])
            group.append((row[cost], value))
    for number, (system, rungs) in enumerate(points.items()):
        color = f"C{number}"
        if "" in rungs:
            level = np.mean(rungs[""], 0)[1]
            axis.axhline(level, color=color, linestyle=":", label=system)
            continue
        axis.plot(
            *np.array([np.mean(g, 0) for g in rungs.values()]).T,
            color=color,
            label=system,
        )
        axis.plot(
            *np.array([p for g in rungs.values() for p in g]).T,
            "o",
            color=color,
            markersize=3,
        )


def _draw_tasks(axis: Any, results: Results) -> None:
    """Draw the differences to the reference by task, with their intervals."""
    reference, number = results.grid.content["reference"], 0
    for system, rung in itertools.product(results.systems, results.rungs):
        found = {
            name: item[0]
            for name in PRIMARY
            if system != reference
            and (item := results.difference((system, reference), rung, [name]))
        }
        if not found:
            continue
        value, low, high = np.array([interval(v) for v in found.values()]).T
        x = np.array([PRIMARY.index(name) for name in found]) + 0.1 * number
        axis.errorbar(x, value, [value - low, high - value], fmt="o", markersize=4,
                      label=f"{system} {rung}")  # fmt: skip
        number += 1
    axis.axhline(0, color="gray", linewidth=0.8)
    axis.set_xticks(range(len(PRIMARY)), PRIMARY)
    axis.set(ylabel=f"difference to {reference}")
