"""Train the runs of a grid with equal FLOPs, resumably, and print their folders.

Each run is an ordinary `pretrain`. --rows gets a JSON file for each one when it is
trained: settings, costs and the held-out curve. What is there is not repeated: run the
same command again after an interruption. Several processes must have different runs, by
--only. `tools/score_preset.py` takes what is printed, and scores it.
"""

import argparse
import datetime
import json
import math
import pathlib
import platform
import re
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import grid
import scores
from grid import Run

from electra_tf import durable_files
from electra_tf.errors import InputError
from electra_tf.training.metric_logger import read_metrics

_CURVE = ("step", "masked_lm_loss", "disc_auc")
_INPUTS = ("records", "heldout", "work", "rows")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add, path = parser.add_argument, pathlib.Path
    add("grid", type=path, help="A grid file.")
    add("--records", type=path, help="Training records.")
    add("--heldout", type=path, help="Held-out records.")
    add("--work", type=path, help="Folder of the runs.")
    add("--rows", type=path, help="Folder of the JSON files.")
    add("--only", default="", help="Runs whose name has this pattern.")
    add("--minutes", type=float, default=math.inf, help="Start nothing after these.")
    add("--list", action="store_true", help="Print the runs, no more.")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped by SIGTERM"))
    if not options.grid.is_file():
        parser.error(f"the grid must be a file. Received: {options.grid}")
    try:
        runs = [r for r in grid.read(options.grid) if re.search(options.only, r.name)]
    except InputError as error:
        raise SystemExit(f"error: {error}") from error
    if not runs:
        parser.error(f"--only must match the name of a run. Received: {options.only}")
    if options.list:
        print("\n".join(map(describe, runs)))
    elif missing := [name for name in _INPUTS if not getattr(options, name)]:
        flags = ", ".join(f"--{name}" for name in missing)
        parser.error(f"a grid that runs must have {flags}")
    else:
        train(runs, options)


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


def train(runs: list[Run], options: argparse.Namespace) -> None:
    """Train what has no row, and print NAME=FOLDER of each run."""
    for folder in (options.rows, options.work):
        folder.mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()
    for run in runs:
        path = options.rows / f"{run.name}.json"
        if not _is_done(run, path):
            if time.monotonic() - begin > 60 * options.minutes:
                print("the time is over; run the command again", file=sys.stderr)
                return
            now = f"{datetime.datetime.now():%m-%d %H:%M}"
            print(f"{now} {describe(run)}", file=sys.stderr)
            _write_json(path, _pretrain(run, options))
        print(f"{run.name}={options.work / run.name / run.stages[-1].name}", flush=True)


def _is_done(run: Run, path: pathlib.Path) -> bool:
    """Return whether a run has a row; exit if it is of other settings."""
    if not path.exists():
        return False
    stages = json.loads(json.dumps([stage.facts for stage in run.stages]))
    if stages != json.loads(path.read_text(encoding="utf-8"))["stages"]:
        raise SystemExit(
            f"error: {path} must be a row of the grid's run {run.name}, but has other "
            "settings or FLOPs; remove it to run again"
        )
    return True


def _pretrain(run: Run, options: argparse.Namespace) -> dict[str, Any]:
    folder = options.work / run.name
    folder.mkdir(exist_ok=True)
    flags = [f"--data={options.records}", "--config=tiny"]
    flags += [f"--evaluation_data={options.heldout}"]
    log, spent, start = folder / "log.txt", folder / "cpu_seconds.json", []
    for stage in run.stages:
        output = f"--model_dir={folder / stage.name}"
        sets = [f"--set={item}" for item in stage.sets]
        arguments = "pretrain", *flags, *start, output, *sets
        scores.run_command(*arguments, log=log, spent=_attempt(spent))
        start = [f"--init_checkpoint={folder / stage.name}"]
    return _row(run, folder)


def _row(run: Run, folder: pathlib.Path) -> dict[str, Any]:
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
        "date": datetime.date.today().isoformat(),
        "processor": _processor(),
        "heldout": {
            name: value
            for name, value in (found[-1] if found else {}).items()
            if isinstance(value, float) and math.isfinite(value) and name != "time"
        },
        "curve": [{n: e[n] for n in _CURVE if n in e} for e in found],
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
