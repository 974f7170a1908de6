"""Plots of the page."""

import itertools
import pathlib
from typing import Any

import numpy as np
from metrics import interval
from results import PRIMARY, Results, primary_of


def draw(results: Results, output: pathlib.Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    matplotlib.rcParams["svg.hashsalt"] = "ladder"
    figure, axes = plt.subplots(2, 2, figsize=(11, 8), layout="constrained")
    costs = {"flops": "executed FLOPs", "positions": "positions",
             "cpu_seconds": "CPU seconds (CPU runs)"}  # fmt: skip
    for axis, (cost, label) in zip(axes.flat, costs.items(), strict=False):
        _draw_scores(axis, results, cost)
        axis.set(xlabel=f"{label} of pre-training", ylabel="primary score")
    _draw_tasks(axes[1, 1], results)
    for axis, place in zip(axes.flat, [(0, 1)] * 3 + [(1, 1)], strict=True):
        if axis.get_legend_handles_labels()[0]:
            axis.legend(fontsize=8, loc="upper left", bbox_to_anchor=place)
    figure.savefig(output / "results.svg", metadata={"Date": None})
    plt.close(figure)


def _draw_scores(axis: Any, results: Results, cost: str) -> None:
    points: dict[str, dict[str, list]] = {}
    for run, row in results.rows.items():
        value = primary_of(row)
        if value is not None and row[cost] is not None:
            group = points.setdefault(run.system, {}).setdefault(run.rung, [])
            group.append((row[cost], value))
    axis.set_xscale("log")
    if reference := points.get(results.grid.content["reference"]):
        marks = [np.mean(group, 0)[0] for group in reference.values()]
        axis.set_xticks(marks, [f"{mark:.3g}" for mark in marks])
        axis.minorticks_off()
    for number, (system, rungs) in enumerate(points.items()):
        color = f"C{number}"
        if "" in rungs:
            level = np.mean(rungs[""], 0)[1]
            axis.axhline(level, color=color, linestyle=":", label=system)
            continue
        means = np.array([np.mean(group, 0) for group in rungs.values()])
        axis.plot(*means.T, color=color, label=system)
        single = np.array([point for group in rungs.values() for point in group])
        axis.plot(*single.T, "o", color=color, markersize=3)


def _draw_tasks(axis: Any, results: Results) -> None:
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
