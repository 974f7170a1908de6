"""Write the page of a grid's rows: what holds, tables and plots."""

import json
import pathlib
import statistics
import textwrap
from collections.abc import Iterable, Iterator, Sequence

import plots
from conclusions import advice, conclusions
from grid import Grid
from results import PRIMARY, Results, cell, primary_of

_OTHERS = "probe_pos", "probe_chunk", "blimp"
_COSTS = "positions", "flops", "original_flops", "cpu_seconds"


def write(grid: Grid, folder: pathlib.Path, output: pathlib.Path) -> None:
    results = Results(grid, folder)
    output.mkdir(parents=True, exist_ok=True)
    processors = sorted({row["processor"] for row in results.rows.values()})
    parts = [
        "# Results of the ladder",
        "\n".join(advice(results)) or "No rung has two systems with two seeds yet.",
        "All were fine-tuned from the vector of [CLS], as published, which small "
        "networks do not stand. [Scored once more with today's defaults](../"
        "reproducing-the-paper.md#the-ladder-masked-lm-and-replaced-tokens-at-small-"
        "budgets), `mlm` has 63 and 69 on STS-B and `electra` stays ahead of it; "
        "[what to train](../pretraining.md#masked-lm-or-electra).",
        "![Score against costs, and differences by task](results.svg)",
        "Made by `tools/reproduce GRID --report_only`. Scores are in percent. An "
        "interval is the 95% interval of a bootstrap over seeds, seeds of fine-tuning "
        "and rows of dev; with two seeds or one, over the seeds of fine-tuning and the "
        f"rows alone. Processor: {'; '.join(processors)}.",
        *conclusions(results),
        *_missing(results),
        *_run_tables(results),
        "## Differences",
        _table(["rung", "difference", "over", "primary", *PRIMARY], _pairs(results)),
        "## Rates of fine-tuning",
        _rates(grid, folder),
    ]
    text = "\n".join(map(_wrap, "\n\n".join(parts).split("\n")))
    (output / "results.md").write_text(f"{text}\n", encoding="utf-8")
    plots.draw(results, output)


def _wrap(line: str) -> str:
    if line.startswith(("#", "|", "!")):
        return line
    indent = "  " if line.startswith("- ") else ""
    return textwrap.fill(line, 120, subsequent_indent=indent, break_on_hyphens=False)


def _table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in rows)


def _run_tables(results: Results) -> list[str]:
    """Return tables with a line for each system and rung."""
    costs, tasks, others = [], [], []
    names = dict.fromkeys((run.system, run.rung) for run in results.grid.runs)
    for name in sorted(names, key=lambda name: ["", *results.rungs].index(name[1])):
        rows = [r for r in results.rows.values() if (r["system"], r["rung"]) == name]
        if not rows:
            continue
        title = " ".join(name).strip()
        steps = " + ".join(f"{stage['steps']:,}" for stage in rows[0]["stages"])
        spent = [_median([row[c] for row in rows]) for c in _COSTS]
        primary = [p for row in rows if (p := primary_of(row)) is not None]
        median = f"{statistics.median(primary):.1f}" if primary else ""
        cells = [
            cell(results.mean(*name, part, sorted(runs))) if runs else ""
            for part in (PRIMARY, *([task] for task in results.grid.tasks))
            if (runs := results.finished(*name, part)) is not None
        ]
        costs.append([title, len(rows), steps, *spent, cells[0], median])
        tasks.append([title, *cells[1:]])
        found = ([r["scores"][n] for r in rows if n in r["scores"]] for n in _OTHERS)
        others.append([title, *map(_mean_and_range, found)])
    head = "positions", "FLOPs", "paper's rule", "CPU seconds", "primary", "median"
    return [
        "## Training and primary score",
        _table(["run", "seeds", "updates", *head], costs),
        "## Scores by task",
        _table(["run", *results.grid.tasks], tasks),
        "Without fine-tuning, with the range over the seeds:",
        _table(["run", *_OTHERS], others),
    ]


def _mean_and_range(values: list[float]) -> str:
    if not values:
        return ""
    return f"{statistics.fmean(values):.1f} ({min(values):.1f} to {max(values):.1f})"


def _median(costs: list[float | None]) -> str:
    """Return the median of known costs: the GPU runs have no CPU seconds."""
    known = [cost for cost in costs if cost is not None]
    share = f" ({len(known)} of {len(costs)})" if len(known) < len(costs) else ""
    return f"{statistics.median(known):.3g}{share}" if known else ""


def _pairs(results: Results) -> Iterator[Sequence[str]]:
    for rung in results.rungs:
        for pair in results.pairs:
            parts = (PRIMARY, *([name] for name in PRIMARY))
            found = [results.difference(pair, rung, tasks) for tasks in parts]
            if any(found):
                seeds = max(number for _, number in filter(None, found))
                over = f"{seeds} seeds, fine-tunings, rows"
                if seeds < 3:
                    over = f"fine-tunings and rows, not the seeds ({seeds})"
                cells = [cell(item[0], "+") if item else "" for item in found]
                yield rung, " - ".join(pair), over, *cells


def _rates(grid: Grid, folder: pathlib.Path) -> str:
    path = folder / "rates.json"
    if not path.exists():
        return "None are chosen yet."
    runs = json.loads(path.read_text(encoding="utf-8"))["runs"]
    lines = []
    for name in (run.name for run in grid.runs if run.name in runs):
        rates = {task: f"{chosen['rate']:g}" for task, chosen in runs[name].items()}
        lines.append([name, *(rates.get(task, "") for task in grid.tasks)])
    return _table(["chosen by", *grid.tasks], lines)


def _missing(results: Results) -> list[str]:
    lines = []
    for run in results.grid.runs:
        row = results.rows.get(run)
        names = results.grid.content["scores"]
        left = [name for name in names if not row or name not in row["done"]]
        if left:
            lines.append(f"- {run.name}: {', '.join(left) if row else 'not trained'}")
    return ["## Missing", "\n".join(lines)] if lines else []
