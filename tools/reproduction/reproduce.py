"""Run a grid of systems, resumably, and write a page that compares them.

Each run is an ordinary `pretrain`, then `finetune` and `evaluate`. --rows gets a JSON
file for each run, written when it is trained and again after each score; what each row
of dev got, NAME.rows.json.xz; and rates.json, the chosen learning rates. What is there
is not repeated: run the same command again after an interruption. Several processes
must have different runs, by --only.
"""

import argparse
import datetime
import hashlib
import json
import math
import pathlib
import platform
import re
import signal
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import metrics
import page
import scores
from grid import Grid, Run

import electra_tf
from electra_tf import durable_files
from electra_tf.errors import InputError
from electra_tf.training.checkpoint import saved_steps
from electra_tf.training.metric_logger import read_metrics

_CURVE = ("step", "masked_lm_loss", "disc_auc")
_INPUTS = ("records", "heldout", "data", "work", "rows")
_DOCS = pathlib.Path(__file__).parents[2] / "docs"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add, path = parser.add_argument, pathlib.Path
    add("grid", type=path, help="A grid file.")
    add("--records", type=path, help="Training records.")
    add("--heldout", type=path, help="Held-out records.")
    add("--data", type=path, help="tagging, blimp and glue.")
    add("--work", type=path, help="Folder of the runs.")
    add("--rows", type=path, help="With --report_only by default GRID_rows.")
    add("--page", type=path, help="With --report_only by default docs/GRID.")
    add("--only", default="", help="Runs whose name has this pattern.")
    add("--minutes", type=float, default=math.inf, help="Start nothing after these.")
    add("--list", action="store_true", help="Print the runs, no more.")
    add("--report_only", action="store_true", help="Run nothing.")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped by SIGTERM"))
    try:
        if not options.grid.is_file():
            parser.error(f"the grid must be a file, not {options.grid}")
        grid = Grid.read(options.grid)
        if options.list:
            print("\n".join(map(describe, grid.runs)))
            return
        if options.report_only:
            rows = options.grid.with_name(f"{options.grid.stem}_rows")
            options.rows = options.rows or rows
            options.page = options.page or _DOCS / options.grid.stem
            if not any(options.rows.glob("*.json")):
                parser.error(f"--rows must contain rows of runs, not {options.rows}")
        elif missing := [name for name in _INPUTS if not getattr(options, name)]:
            flags = ", ".join(f"--{name}" for name in missing)
            parser.error(f"a grid that runs must have {flags}")
        else:
            Runner(grid, options).run()
        if options.page:
            page.write(grid, options.rows, options.page)
            print(f"page: {options.page / 'results.md'}")
    except InputError as error:
        raise SystemExit(f"error: {error}") from error


def describe(run: Run) -> str:
    facts = [stage.facts for stage in run.stages]
    steps = " + ".join(f"{stage['steps']:,}" for stage in facts)
    flops, paper, positions = (
        sum(stage[name] for stage in facts)
        for name in ("flops", "original_flops", "positions")
    )
    return (
        f"{run.name}: {steps} steps, {positions:.3g} positions, {flops:.4g} FLOPs "
        f"executed, {paper:.4g} by the paper's rule"
    )


class Runner:
    def __init__(self, grid: Grid, options: argparse.Namespace):
        self._grid, self._options = grid, options
        self._package = package()

    def run(self) -> None:
        for folder in (self._options.rows, self._options.work):
            folder.mkdir(parents=True, exist_ok=True)
        for path in self._options.rows.glob("*.json"):
            self._read(path)  # all are of one package
        begin, minutes = time.monotonic(), self._options.minutes
        carry_out = {"pretrain": self._pretrain, "tune": self._tune}
        for run, kind, name in self._grid.units():
            is_chosen = re.search(self._options.only, run.name)
            if not is_chosen or self._is_done(run, kind, name):
                continue
            if time.monotonic() - begin > 60 * minutes:
                print("the time is over; run the command again", file=sys.stderr)
                return
            text = describe(run) if kind == "pretrain" else f"{run.name}: {kind} {name}"
            waits = self._waits_for(run, kind, name)
            after = f", waits for {waits}" if waits else ""
            now = f"{datetime.datetime.now():%m-%d %H:%M}"
            print(f"{now} {text}{after}", file=sys.stderr)
            if not waits:
                carry_out.get(kind, self._score)(run, name)

    def _row_path(self, run: Run) -> pathlib.Path:
        return self._options.rows / f"{run.name}.json"

    def _rows_path(self, run: Run) -> pathlib.Path:
        return self._options.rows / f"{run.name}.rows.json.xz"

    def _row(self, run: Run) -> dict[str, Any] | None:
        """Return a run's row; exit if it is of other settings or of another package."""
        row = self._read(self._row_path(run))
        stages = [stage.facts for stage in run.stages]
        if row and json.loads(json.dumps(stages)) != row["stages"]:
            raise SystemExit(
                f"error: {self._row_path(run)} must be a row of the grid's run "
                f"{run.name}, but has other settings or FLOPs; remove it to run again"
            )
        return row

    def _read(self, path: pathlib.Path) -> dict[str, Any] | None:
        if not path.exists():
            return None
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["package"] != self._package:
            raise SystemExit(
                f"error: {path} must be of the package that runs, {self._package}, not "
                f"{content['package']}; use that package or other --rows"
            )
        return content

    def _rates(self, run: Run) -> dict[str, float]:
        if len(self._grid.rates) == 1:
            return dict.fromkeys(self._grid.tasks, self._grid.rates[0])
        found = self._read(self._options.rows / "rates.json") or {}
        chosen = found.get("runs", {}).get(self._grid.chooser(run).name, {})
        return {task: entry["rate"] for task, entry in chosen.items()}

    def _is_done(self, run: Run, kind: str, name: str) -> bool:
        row = self._row(run)
        if kind == "tune":
            return name in self._rates(run)
        if kind != "pretrain":
            return bool(row) and name in row["done"]
        # Without its checkpoint, a run is done only if nothing is left to score.
        is_chosen = set(self._grid.tasks) <= self._rates(run).keys()
        is_tuned = is_chosen or self._grid.chooser(run) != run
        names = set(self._grid.content["scores"])
        is_scored = bool(row) and names <= set(row["done"])
        return bool(row) and (self._checkpoint(run) or (is_scored and is_tuned))

    def _waits_for(self, run: Run, kind: str, name: str) -> str:
        """Return what a unit needs first and lacks."""
        if kind != "pretrain" and not (self._row(run) and self._checkpoint(run)):
            return "its training"
        if kind == "finetune" and name not in self._rates(run):
            return f"the rates that {self._grid.chooser(run).name} chooses"
        return ""

    def _checkpoint(self, run: Run) -> str | None:
        stage = run.stages[-1]
        folder = self._options.work / run.name / stage.name / "checkpoints"
        return saved_steps(str(folder)).get(stage.config.training.steps)

    def _pretrain(self, run: Run, _: str) -> None:
        folder = self._options.work / run.name
        folder.mkdir(exist_ok=True)
        flags = [f"--data={self._options.records}", "--config=tiny"]
        flags += [f"--evaluation_data={self._options.heldout}"]
        log, spent, start = folder / "log.txt", folder / "cpu_seconds.json", []
        for stage in run.stages:
            output = f"--model_dir={folder / stage.name}"
            sets = [f"--set={item}" for item in stage.sets]
            arguments = "pretrain", *flags, *start, output, *sets
            scores.run_command(*arguments, log=log, spent=_attempt(spent))
            start = [f"--init_checkpoint={folder / stage.name}"]
        self._rows_path(run).unlink(missing_ok=True)
        _write_json(self._row_path(run), self._new_row(run, folder))

    def _new_row(self, run: Run, folder: pathlib.Path) -> dict[str, Any]:
        lines = read_metrics(str(folder / run.stages[-1].name))
        found = [line for line in lines if line["kind"] == "evaluation"]
        facts = [stage.facts for stage in run.stages]
        seconds = json.loads((folder / "cpu_seconds.json").read_text(encoding="utf-8"))
        return {
            "system": run.system,
            "rung": run.rung,
            "seed": run.seed,
            "stages": facts,
            **{
                name: sum(stage[name] for stage in facts)
                for name in ("positions", "flops", "original_flops")
            },
            "cpu_seconds": round(sum(seconds)),
            "commands": len(seconds),
            "package": self._package,
            "date": datetime.date.today().isoformat(),
            "processor": _processor(),
            "heldout": {
                name: value
                for name, value in (found[-1] if found else {}).items()
                if isinstance(value, float) and math.isfinite(value) and name != "time"
            },
            "curve": [{n: e[n] for n in _CURVE if n in e} for e in found],
            "done": {},
            "scores": {},
        }

    def _tune(self, run: Run, name: str) -> None:
        rates = self._grid.rates
        found = (self._finetune(run, name, rate, tenth=True) for rate in rates)
        means = [round(statistics.fmean(metrics.each(name, f)), 4) for f in found]
        path = self._options.rows / "rates.json"
        content = self._read(path) or {"package": self._package, "runs": {}}
        content["runs"].setdefault(run.name, {})[name] = {
            "rate": rates[means.index(max(means))],
            "tuning_scores": {f"{r:g}": m for r, m in zip(rates, means, strict=True)},
        }
        _write_json(path, content)

    def _score(self, run: Run, name: str) -> None:
        row, log = self._row(run), self._options.work / run.name / "log.txt"
        row["done"][name] = datetime.date.today().isoformat()
        if name in scores.TASKS:
            rate = self._rates(run)[name]
            rows = self._finetune(run, name, rate, tenth=False)
            path = self._rows_path(run)
            scores.write_rows(path, scores.read_rows(path) | {name: rows})
            row["scores"][name] = metrics.each(name, rows)
        else:
            evaluate = getattr(scores, name)
            row["scores"] |= evaluate(self._checkpoint(run), self._options.data, log)
        _write_json(self._row_path(run), row)

    def _finetune(self, run: Run, name: str, rate: float, tenth: bool) -> dict:
        part = "tenth" if tenth else "whole"
        source = self._options.work / f"data-{part}" / name
        scores.prepare(name, self._options.data, source, tenth)
        settings = self._grid.content["finetune"]
        return scores.finetune(
            name,
            self._checkpoint(run),
            source,
            self._options.work / run.name / f"{name}-{part}-{rate:g}",
            [*settings["flags"], f"--set=optimizer.learning_rate={rate}"],
            int(settings["seeds"]),
        )


def package() -> dict[str, str]:
    """Return path, version and a hash over the files of the package in use."""
    folder = pathlib.Path(electra_tf.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(f"{path.relative_to(folder)}\n".encode() + path.read_bytes())
    return {
        "path": str(folder),
        "version": electra_tf.__version__,
        "sha256": digest.hexdigest(),
    }


def _attempt(path: pathlib.Path) -> Callable[[float], None]:
    """Return a function that stores the CPU seconds of a new attempt in a list."""
    before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    return lambda seconds: _write_json(path, [*before, round(seconds, 1)])


def _write_json(path: pathlib.Path, content: Any) -> None:
    durable_files.write(path, f"{json.dumps(content, indent=1)}\n")


def _processor() -> str:
    path = pathlib.Path("/proc/cpuinfo")
    text = path.read_text() if path.exists() else ""
    found = re.search(r"model name\s*: (.*)", text)
    return found[1] if found else platform.processor()


if __name__ == "__main__":
    main()
