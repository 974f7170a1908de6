"""Run the fault campaign: kills, damage, generated input.

    tools/faults                              all sections: about an hour
    tools/faults kills corruptions --scale=0.1
    tools/faults planted                      defects that the tests must catch

Each section is repeated as often as its full count times --scale, and prints a row of
the table in docs/reliability.md. The exit status is 1 if anything failed.

  kills        SIGKILL of real `pretrain` commands, also in writes of checkpoints; each
               resumed run must end with the weights of the uninterrupted one
  corruptions  flipped bytes, truncated and deleted files of checkpoints, records and
               .keras files; each must be an error that names the file, or harmless
  inputs       generated files and flags, read as the commands do
  strings      the tokenizer outside and inside the graph

`planted --help` shows the options of that section. `tools/serve_check` loads servers.
"""

import argparse
import datetime
import importlib
import os
import pathlib
import sys
import time

ROOT = pathlib.Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

# Module, function, and full count of each section.
SECTIONS = {
    "kills": ("kills", "run_kills", 50),
    "corruptions": ("corruptions", "run_corruptions", 50),
    "inputs": ("generated_inputs", "run_inputs", 10_000),
    "strings": ("strings", "compare_tokenizers", 1_000_000),
}


def run_section(name: str, scale: float, seed: int) -> bool:
    """Run a section, print its row and its failures; return whether any failed."""
    module, function, full = SECTIONS[name]
    count, begin = max(1, round(full * scale)), time.monotonic()
    result = getattr(importlib.import_module(module), function)(count, seed)
    failures = result.pop("failures")
    counts = ", ".join(f"{n.replace('_', ' ')} {v:,}" for n, v in result.items())
    minutes, today = (time.monotonic() - begin) / 60, datetime.date.today()
    print(
        f"| {name} | {count:,} | {count / full:.0%} | {counts} | {len(failures)} "
        f"| {minutes:.1f} | {today} |",
        flush=True,
    )
    print("\n".join(failures[:50]), file=sys.stderr)
    return bool(failures)


def main() -> int:
    if sys.argv[1:2] == ["planted"]:
        import planted_defects

        del sys.argv[1]
        return planted_defects.main()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sections", nargs="*", default=list(SECTIONS))
    parser.add_argument("--scale", type=float, default=1.0, help="share of the counts")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.scale <= 0:
        sys.exit(f"error: --scale must be positive. Received: {options.scale}")
    if unknown := set(options.sections) - set(SECTIONS):
        sys.exit(f"error: sections: {', '.join(SECTIONS)}. Received: {unknown}")
    print("| section | run | of full | counts | failures | minutes | date |")
    failed = [
        run_section(name, options.scale, options.seed) for name in options.sections
    ]
    return int(any(failed))


if __name__ == "__main__":
    sys.exit(main())
