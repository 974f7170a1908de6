"""Run a grid of systems, resumably, and write a page that compares them.

Each run is an ordinary `pretrain`, `evaluate` and `finetune`. Its row, a JSON file in
--rows, is written when all its scores exist; a run with a row is skipped. An
interrupted run continues from its checkpoint.
"""

import argparse
import datetime
import json
import math
import pathlib
import resource
import sys
import time

import page
import scores
from grid import Grid, Run

from electra_tf.errors import InputError
from electra_tf.text.vocab import Vocabulary
from electra_tf.training.checkpoint import saved_steps
from electra_tf.training.metric_logger import read_metrics

_CURVE = ("masked_lm_loss", "disc_auc", "main_lm_loss", "cloze_loss")


def main() -> None:
    """Carry out the missing runs, then write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("grid", type=pathlib.Path, help="A grid file.")
    parser.add_argument("--records", type=pathlib.Path, help="Training records.")
    parser.add_argument("--heldout", type=pathlib.Path, help="Held-out records.")
    parser.add_argument("--data", type=pathlib.Path, help="tagging, blimp and glue.")
    parser.add_argument("--work", type=pathlib.Path, help="Folder of the runs.")
    parser.add_argument("--rows", type=pathlib.Path, required=True, help="Result rows.")
    parser.add_argument("--page", type=pathlib.Path, help="Folder of the page.")
    parser.add_argument("--minutes", type=float, help="Start no run after these.")
    parser.add_argument("--report_only", action="store_true", help="Run nothing.")
    options = parser.parse_args()
    if not options.report_only:
        needed = ("records", "heldout", "data", "work")
        if missing := [name for name in needed if getattr(options, name) is None]:
            flags = ", ".join(f"--{name}" for name in missing)
            parser.error(f"a grid that runs must have {flags}")
        try:
            run_grid(options)
        except InputError as error:
            raise SystemExit(f"error: {error}") from error
    if options.page:
        page.write(options.rows, options.page)


def run_grid(options: argparse.Namespace) -> None:
    """Carry out the runs without a row.

    Args:
        options: Of the command line.
    """
    vocabulary = Vocabulary.read(options.records / "vocab.txt")
    grid = Grid.read(options.grid, len(vocabulary))
    options.rows.mkdir(parents=True, exist_ok=True)
    missing = [run for run in grid.runs if not _has_row(run, options.rows)]
    begin, flops_done = time.monotonic(), 0.0
    for number, run in enumerate(missing):
        elapsed = time.monotonic() - begin
        if options.minutes and elapsed > 60 * options.minutes:
            return
        left = sum(r.budget for r in missing[number:])
        eta = ""
        if flops_done:
            eta = f", about {elapsed / flops_done * left / 60:.0f} min left"
        done = len(grid.runs) - len(missing) + number
        print(
            f"[{done + 1}/{len(grid.runs)}] {run.name}: {run.steps:,} steps, "
            f"{run.flops:.3g} FLOPs{eta}",
            file=sys.stderr,
        )
        row = carry_out(run, grid, options)
        path = options.rows / f"{run.name}.json"
        path.write_text(json.dumps(row, indent=1) + "\n", encoding="utf-8")
        flops_done += run.budget


def _has_row(run: Run, folder: pathlib.Path) -> bool:
    """Return whether a run has a row; exit if the row is of other settings."""
    path = folder / f"{run.name}.json"
    if not path.exists():
        return False
    row = json.loads(path.read_text(encoding="utf-8"))
    found, expected = (row["steps"], row["sets"]), (run.steps, list(run.sets))
    if found != expected:
        raise SystemExit(
            f"error: {path} must be a row of the grid's run {run.name}. Received: "
            f"steps and settings {found}, not {expected}. Remove the row, so that the "
            "run is carried out again, or restore the grid file."
        )
    return True


def carry_out(run: Run, grid: Grid, options: argparse.Namespace) -> dict:
    """Train and score one run.

    Args:
        run: The run.
        grid: Its scores and shares.
        options: Of the command line.

    Returns:
        Its row.
    """
    folder = options.work / run.name
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "log.txt"
    is_resumed = (folder / "run").exists()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    keep = ",".join(map(str, (*grid.shares, 1.0)))
    scores.run_command(
        "pretrain",
        "--config=tiny",
        f"--data={options.records}",
        f"--evaluation_data={options.heldout}",
        f"--model_dir={folder / 'run'}",
        *(f"--set={item}" for item in run.settings),
        f"--set=training.keep_at=[{keep}]",
        "--set=training.keep=1",
        log=log,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    steps = saved_steps(str(folder / "run" / "checkpoints"))
    results = {}
    for name in grid.scores:
        results |= scores.score(name, steps[run.steps], options.data, log, run.seed)
    by_share = {}
    is_scored_on_the_way = run.seed == 0 and "/" not in run.system
    for share in grid.shares if is_scored_on_the_way else ():
        step = min(steps, key=lambda n: abs(n - share * run.steps))
        by_share[str(share)] = scores.score(
            "probe", steps[step], options.data, log, run.seed
        )
    evaluations = [
        line
        for line in read_metrics(str(folder / "run"))
        if line["kind"] == "evaluation"
    ]
    last = {
        name: value
        for name, value in evaluations[-1].items()
        if isinstance(value, float) and math.isfinite(value) and name != "time"
    }
    return {
        "system": run.system,
        "seed": run.seed,
        "steps": run.steps,
        "flops": run.flops,
        "sets": list(run.sets),
        # An interrupted run's time before the interruption is not known.
        "cpu_seconds": None if is_resumed else after.ru_utime - before.ru_utime,
        "date": datetime.date.today().isoformat(),
        "scores": results,
        "shares": by_share,
        "heldout": last,
        "curve": [
            {"step": e["step"], **{n: e[n] for n in _CURVE if n in e}}
            for e in evaluations
        ],
    }


if __name__ == "__main__":
    main()
