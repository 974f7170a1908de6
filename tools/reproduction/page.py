"""Write tables and plots of a grid's rows."""

import collections
import csv
import json
import pathlib
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]
_SCORE, _LABEL = "probe_chunk_best", "chunk tags, probe (%)"
_SHARES = {"quarter": 0.25, "half": 0.5, "full": 1.0}

GROUPS = {
    "Systems at equal compute": ("", "untrained/"),
    "Generator sizes": ("generator/",),
    "Sharing": ("electra", "sharing/"),
    "Training of the generator": ("electra", "training/"),
}
"""Tables by title: systems, or prefixes with a slash; "" selects names without one."""


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
    for title, members in GROUPS.items():
        chosen = [row for row in rows if _is_in(row["system"], members)]
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
    return "\n".join([*lines, *_share_table(rows)])


def _share_table(rows: Sequence[Row]) -> list[str]:
    """Return the table of the score at shares of training."""
    shares = sorted({share for row in rows for share in row["shares"]}, key=float)
    if not shares:
        return []
    heads = [f"{float(share):.4g}" for share in shares]
    lines = [f"### {_LABEL[0].upper()}{_LABEL[1:]}, at shares of training", ""]
    lines += ["| system | seed | " + " | ".join([*heads, "1"]) + " |"]
    lines += ["|---" * (3 + len(shares)) + "|"]
    for row in rows:
        if row["shares"]:
            values = [*(row["shares"].get(s, {}) for s in shares), row["scores"]]
            cells = " | ".join(_cell([value.get(_SCORE)]) for value in values)
            lines.append(f"| {row['system']} | {row['seed']} | {cells} |")
    return [*lines, ""]


def _cell(values: Iterable[float | None]) -> str:
    found = [v for v in values if v is not None]
    if not found:
        return ""
    text = f"{statistics.median(found):.1f}"
    if len(found) > 1:
        text += f" ({min(found):.1f} to {max(found):.1f})"
    return text


def _is_in(system: str, members: Sequence[str]) -> bool:
    prefix, slash, _ = system.rpartition("/")
    return system in members or prefix + slash in members


def _by_system(rows: Sequence[Row]) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = collections.defaultdict(list)
    for row in rows:
        groups[row["system"]].append(row)
    return groups


def _plot(rows: Sequence[Row], output: pathlib.Path) -> None:
    """Draw the score against FLOPs and generator size, and learning curves."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(15, 4.5))
    _draw_efficiency(axes[0], rows)
    _draw_generators(axes[1], rows)
    _draw_curves(axes[2], rows)
    for axis in axes:
        axis.grid(alpha=0.3)
        if axis.get_legend_handles_labels()[0]:
            axis.legend(fontsize=8)
    figure.tight_layout()
    for suffix in ("png", "svg"):
        metadata = {"Date": None} if suffix == "svg" else {}
        figure.savefig(output / f"results.{suffix}", dpi=110, metadata=metadata)
    pyplot.close(figure)


def _draw_efficiency(axis: Any, rows: Sequence[Row]) -> None:
    """Draw medians over the seeds at each share of training, or at its end alone."""
    ticks: list[float] = []
    for system, group in _by_system(rows).items():
        points: dict[float, list[float]] = collections.defaultdict(list)
        for row in group if _is_in(system, ("", "training/")) else ():
            for share, values in {**row["shares"], "1": row["scores"]}.items():
                if _SCORE in values:
                    points[float(share) * row["flops"]].append(values[_SCORE])
        if points:
            x = sorted(points)
            y = [statistics.median(points[flops]) for flops in x]
            axis.plot(x, y, "o-", label=system)
            ticks = max(ticks, x, key=len)  # other systems' budgets are nearly equal
    axis.set(xscale="log", xlabel="training FLOPs", ylabel=_LABEL)
    axis.set_xticks(ticks, [f"{flops:.2g}" for flops in ticks])
    axis.minorticks_off()


def _draw_generators(axis: Any, rows: Sequence[Row]) -> None:
    """Draw a line for each width of the discriminator."""
    lines: dict[str, dict[str, float]] = collections.defaultdict(dict)
    for system, group in _by_system(rows).items():
        kind, _, name = system.partition("/")
        values = [row["scores"][_SCORE] for row in group if _SCORE in row["scores"]]
        if kind == "generator" and values:
            width, _, share = name.partition("-")
            lines[width][share] = statistics.median(values)
    for width, points in sorted(lines.items(), key=lambda item: int(item[0])):
        shares = [share for share in _SHARES if share in points]
        x, y = [_SHARES[s] for s in shares], [points[s] for s in shares]
        axis.plot(x, y, "o-", label=f"discriminator {width} wide")
    axis.set(xlabel="generator width / discriminator width", ylabel=_LABEL)


def _draw_curves(axis: Any, rows: Sequence[Row]) -> None:
    """Draw the held-out masked-LM loss of the first seeds."""
    for system, group in _by_system(rows).items():
        points = [(p["step"], p["masked_lm_loss"]) for p in group[0]["curve"]
                  if "masked_lm_loss" in p and "/" not in system]  # fmt: skip
        if points:
            axis.plot(*zip(*points, strict=True), label=system)
    axis.set(xlabel="step", ylabel="held-out masked-LM loss")
