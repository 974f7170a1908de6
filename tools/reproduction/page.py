"""Write tables and plots of a grid's rows."""

import collections
import csv
import json
import pathlib
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]

GROUPS = {
    "Systems at equal compute": ("", "untrained"),
    "Generator sizes": ("generator/",),
    "Sharing": ("sharing/",),
    "Training of the generator": ("training/",),
}
"""Tables by title: prefixes of the systems' names; "" selects names without prefix."""


def write(rows_folder: pathlib.Path, output: pathlib.Path) -> None:
    """Write `results.md`, `results.csv` and plots.

    Args:
        rows_folder: Folder of rows.
        output: Folder of the page.
    """
    rows = [
        json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(rows_folder.glob("*.json"))
    ]
    output.mkdir(parents=True, exist_ok=True)
    names = list(dict.fromkeys(name for row in rows for name in row["scores"]))
    (output / "results.md").write_text(_tables(rows, names), encoding="utf-8")
    with (output / "results.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["system", "seed", "steps", "flops", "share", *names])
        for row in rows:
            first = row["system"], row["seed"], row["steps"], f"{row['flops']:.4e}"
            table.writerow([*first, 1, *(row["scores"].get(n, "") for n in names)])
            for share, values in row["shares"].items():
                table.writerow([*first, share, *(values.get(n, "") for n in names)])
    _plot(rows, output)


def _tables(rows: Sequence[Row], names: Sequence[str]) -> str:
    """Return a table per group: medians, and the range over the seeds."""
    lines = []
    for title, prefixes in GROUPS.items():
        chosen = [row for row in rows if _is_in(row["system"], prefixes)]
        if not chosen:
            continue
        lines += [f"### {title}", ""]
        lines += ["| system | seeds | steps | FLOPs | " + " | ".join(names) + " |"]
        lines += ["|---" * (4 + len(names)) + "|"]
        for system, group in _by_system(chosen).items():
            cells = [_cell([r["scores"].get(name) for r in group]) for name in names]
            lines.append(
                f"| {system} | {len(group)} | {group[0]['steps']:,} | "
                f"{group[0]['flops']:.3g} | " + " | ".join(cells) + " |"
            )
        lines.append("")
    return "\n".join(lines)


def _cell(values: Iterable[float | None]) -> str:
    found = [v for v in values if v is not None]
    if not found:
        return ""
    text = f"{statistics.median(found):.1f}"
    if len(found) > 1:
        text += f" ({min(found):.1f} to {max(found):.1f})"
    return text


def _is_in(system: str, prefixes: Sequence[str]) -> bool:
    return any(
        system.startswith(prefix) if prefix else "/" not in system
        for prefix in prefixes
    )


def _by_system(rows: Sequence[Row]) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = collections.defaultdict(list)
    for row in rows:
        groups[row["system"]].append(row)
    return groups


def _plot(rows: Sequence[Row], output: pathlib.Path) -> None:
    """Draw the probe's accuracy against FLOPs, and learning curves."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    score = "probe_chunk_best"
    figure, axes = pyplot.subplots(1, 2, figsize=(11, 4.5))
    for system, group in _by_system(rows).items():
        if "/" in system or not any(row["shares"] for row in group):
            continue
        points: dict[float, list[float]] = collections.defaultdict(list)
        for row in group:
            for share, values in {**row["shares"], "1": row["scores"]}.items():
                if score in values:
                    points[float(share) * row["flops"]].append(values[score])
        x = sorted(points)
        axes[0].plot(x, [statistics.median(points[n]) for n in x], "o-", label=system)
        curve = group[0]["curve"]
        for name in ("masked_lm_loss",):
            found = [(p["step"], p[name]) for p in curve if name in p]
            if found:
                axes[1].plot(*zip(*found, strict=True), label=system)
    axes[0].set(xscale="log", xlabel="training FLOPs", ylabel="chunk tags, probe (%)")
    axes[1].set(xlabel="step", ylabel="held-out masked-LM loss")
    for axis in axes:
        axis.grid(alpha=0.3)
    axes[0].legend(fontsize=8)
    figure.tight_layout()
    for suffix in ("png", "svg"):
        metadata = {"Date": None} if suffix == "svg" else {}
        figure.savefig(output / f"results.{suffix}", dpi=110, metadata=metadata)
    pyplot.close(figure)
