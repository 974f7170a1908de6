"""Draw scores of fine-tuning beside the cost of pre-training.

    python tools/reproduction/costs.py tools/reproduction/costs.yaml \\
        docs/images/costs.svg

Scores are made from the rows that the file names, with the defaults of fine-tuning.
"""

import argparse
import itertools
import pathlib
import statistics
import sys
from typing import Any

import yaml

FOLDER = pathlib.Path(__file__).parent
_STYLES = ("--", ":", "-.", (0, (1, 5)))
sys.path.insert(0, str(FOLDER.parent))  # tools
import scores  # noqa: E402
from score_preset import score  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("output", type=pathlib.Path)
    options = parser.parse_args()
    content = yaml.safe_load(options.file.read_text(encoding="utf-8"))
    draw(content, options.file.parent, options.output)


def found(entry: dict[str, Any], task: str, folder: pathlib.Path) -> list[float]:
    """Return the score of each pre-training, in percent; none if it was not scored."""
    if "scores" in entry:
        return [entry["scores"][task]] if task in entry["scores"] else []
    paths = sorted(folder.glob(f"{entry['rows']}.rows.json.xz"))
    if not paths:
        raise SystemExit(f"error: {entry['rows']} must have rows in {folder}")
    rows = [scores.read_rows(path) for path in paths]
    return [statistics.fmean(score(task, r[task])) for r in rows if task in r]


def draw(content: dict[str, Any], folder: pathlib.Path, output: pathlib.Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    matplotlib.rcParams |= {"svg.hashsalt": "costs", "svg.fonttype": "none"}
    tasks = content["tasks"]
    figure, (axes,) = plt.subplots(
        1,
        len(tasks),
        squeeze=False,
        figsize=(5.5 * len(tasks), 4.6),
        layout="constrained",
    )
    per_minute, per_hour = (
        content["gpu_flops_per_minute"],
        content["cores_flops_per_hour"],
    )
    hours = lambda minutes: minutes * per_minute / per_hour  # noqa: E731
    minutes = lambda hours: hours * per_hour / per_minute  # noqa: E731
    for axis, (task, label) in zip(axes, tasks.items(), strict=True):
        axis.set_xscale("log")
        for entry in content["systems"]:
            values = found(entry, task, folder)
            cost = entry["flops"] / per_minute
            axis.plot([cost] * len(values), values, "o", label=entry["name"])
        for entry, style in zip(
            content["lines"], itertools.cycle(_STYLES), strict=False
        ):
            for value in found(entry, task, folder):
                axis.axhline(value, ls=style, color="gray", label=entry["name"])
        axis.set(xlabel="minutes of one GPU", ylabel=label)
        axis.secondary_xaxis("top", (hours, minutes)).set_xlabel("hours of two cores")
    axes[0].legend(fontsize=8)
    figure.savefig(output, metadata={"Date": None})
    plt.close(figure)


if __name__ == "__main__":
    main()
