"""Run the fault campaign: kills, damage, full disks, generated input, load.

Each section runs in its own process and is repeated as often as its full count times
--scale. Its counts are added to the JSON file --output, which keeps the sections of
earlier runs. --report writes them as a table into docs/reliability.md. Exits with 1 if
anything failed.

  kills        SIGKILL of real `pretrain` commands, also in writes of checkpoints; each
               resumed run must end with the weights of the uninterrupted one
  corruptions  flipped bytes, truncated and deleted files of checkpoints, records and
               .keras files; each must be an error that names the file, or harmless
  disks        commands with too little space for a file; each must end with one
               message, and leave what was there before
  inputs       generated files and flags, read in process
  commands     the same through real commands
  strings      the tokenizer outside and inside the graph
  load         requests at the highest rate to a served model, for seconds
"""

import argparse
import datetime
import importlib
import json
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

ROOT = pathlib.Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tools" / "serving_checks")]
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

# Module, function, and full count of each section.
SECTIONS = {
    "kills": ("kills", "run_kills", 50),
    "corruptions": ("corruptions", "run_corruptions", 50),
    "disks": ("full_disks", "run_full_disks", 12),
    "inputs": ("generated_inputs", "run_in_process", 10_000),
    "commands": ("generated_inputs", "run_commands", 200),
    "strings": ("strings", "compare_tokenizers", 1_000_000),
    "load": ("load", "run_load", 600),
}
_RESULTS = ROOT / "tools" / "fault_checks" / "results.json"
_PAGE = ROOT / "docs" / "reliability.md"
_BEGIN, _END = "<!-- faults: begin -->", "<!-- faults: end -->"
_SHOWN = 10  # numbers of a row


def run_section(name: str, count: int, seed: int) -> dict[str, Any]:
    """Run a section in a new process and return its counts."""
    begin = time.monotonic()
    command = [sys.executable, __file__, f"--section={name}", f"--count={count}"]
    result = subprocess.run(
        [*command, f"--seed={seed}"], stdout=subprocess.PIPE, text=True
    )
    lines = result.stdout.strip().splitlines()
    if result.returncode or not lines:
        sys.exit(f"error: the section {name} ended with status {result.returncode}")
    return {
        **json.loads(lines[-1]),
        "requested": count,
        "full": SECTIONS[name][2],
        "seed": seed,
        "minutes": round((time.monotonic() - begin) / 60, 1),
        "date": datetime.date.today().isoformat(),
    }


def count_failures(result: Mapping[str, Any]) -> int:
    """Return the number of failures of a section: listed ones or counted ones."""
    counted = [result.get(name, 0) for name in ("failed", "different", "silent")]
    return max(len(result["failures"]), *counted)


def table(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the results as a Markdown table."""
    lines = [
        "| section | run | of the full campaign | counts | failures | minutes | date |",
        "|---|---|---|---|---|---|---|",
    ]
    hidden = {"requested", "full", "seed", "minutes", "date", "failures"}
    for name in SECTIONS:
        if name not in results:
            lines.append(f"| {name} | not run | 0% | | | | |")
            continue
        result = results[name]
        # The counts of each kind of input (`KIND errors`) are in the JSON file.
        counts = [
            f"{label.replace('_', ' ')} {value:,}"
            for label, value in result.items()
            if label not in hidden and " " not in label
        ]
        lines.append(
            f"| {name} | {result['requested']:,} "
            f"| {result['requested'] / result['full']:.0%} "
            f"| {', '.join(counts[:_SHOWN])} | {count_failures(result)} "
            f"| {result['minutes']} | {result['date']} |"
        )
    return "\n".join(lines)


def write_report(
    results: Mapping[str, Mapping[str, Any]], page: pathlib.Path = _PAGE
) -> None:
    """Replace the table between the markers of a page."""
    text = page.read_text(encoding="utf-8")
    if _BEGIN not in text or _END not in text:
        sys.exit(f"error: {page} must contain {_BEGIN} and {_END}")
    before, rest = text.split(_BEGIN, 1)
    _, after = rest.split(_END, 1)
    new = f"{before}{_BEGIN}\n{table(results)}\n{_END}{after}"
    page.write_text(new, encoding="utf-8")


def parse() -> argparse.Namespace:
    """Return the validated options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", help="sections, separated by commas")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the counts")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", default=str(_RESULTS), help="JSON file to update")
    parser.add_argument(
        "--report", action="store_true", help="write the table; run only --only"
    )
    parser.add_argument("--page", default=str(_PAGE), help="page of the table")
    parser.add_argument("--section", choices=SECTIONS, help=argparse.SUPPRESS)
    parser.add_argument("--count", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    default = [] if options.report else list(SECTIONS)
    options.only = options.only.split(",") if options.only else default
    if unknown := set(options.only) - set(SECTIONS):
        sys.exit(
            f"error: --only must contain {', '.join(SECTIONS)}. Received: "
            f"{', '.join(sorted(unknown))}"
        )
    if options.scale <= 0:
        sys.exit(f"error: --scale must be positive. Received: {options.scale}")
    return options


def main() -> None:
    """Run the sections, update the results, and write the table."""
    options = parse()
    if options.section:
        module, function, _ = SECTIONS[options.section]
        run = getattr(importlib.import_module(module), function)
        print(json.dumps(run(options.count, options.seed)), flush=True)
        return
    path, failed = pathlib.Path(options.output), 0
    results = json.loads(path.read_text()) if path.exists() else {}
    for name in options.only:
        count = max(1, round(SECTIONS[name][2] * options.scale))
        results[name] = run_section(name, count, options.seed)
        path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        failed += count_failures(results[name])
        print(f"{name}: {json.dumps(results[name])[:1500]}", flush=True)
    if options.report:
        write_report(results, pathlib.Path(options.page))
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
