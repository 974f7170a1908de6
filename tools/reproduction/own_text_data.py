"""Texts, rows and tables of own_text.py."""

import collections
import csv
import gzip
import json
import pathlib
import random
from collections.abc import Iterator, Mapping
from typing import Any

import defaults

Rows = list[tuple[str, str]]
"""Texts and labels."""
_APART = 1500


def sst2(data: pathlib.Path) -> tuple[list[str], Rows, dict[str, Rows]]:
    """Return unlabelled texts, rows to train and rows to score."""
    lines, dev = (_lines(data / f"glue/SST-2/{n}.tsv")[1:] for n in ("train", "dev"))
    random.Random(0).shuffle(lines)
    apart, train = defaults.sentences(lines)
    apart, train, dev = (_columns(part) for part in (apart, train, dev))
    texts, whole = [], ""
    for text in sorted({t for t, _ in train}, key=lambda t: (-len(t), t)):
        if text not in whole:
            texts.append(text)
            whole += f"\n{text}"
    random.Random(0).shuffle(texts)
    return texts, train, {"apart": apart, "dev": dev}


def waimai(data: pathlib.Path) -> tuple[list[str], Rows, dict[str, Rows]]:
    """Return unlabelled texts, rows to train and rows to score."""
    return _reviews(data / "zh/waimai_10k.csv")


def hotels(data: pathlib.Path) -> tuple[list[str], Rows, dict[str, Rows]]:
    """Return unlabelled texts, rows to train and rows to score."""
    return _reviews(data / "zh/ChnSentiCorp_htl_all.csv")


READERS = {"sst2": sst2, "waimai": waimai, "hotels": hotels}
"""Readers by task: of the folder of the data."""


def _reviews(path: pathlib.Path) -> tuple[list[str], Rows, dict[str, Rows]]:
    table = csv.DictReader(_lines(path))
    found = {" ".join(row["review"].split()): row["label"] for row in table}
    rows = sorted((text, label) for text, label in found.items() if text)
    random.Random(0).shuffle(rows)
    train, apart = rows[_APART:], rows[:_APART]
    return [text for text, _ in train], train, {"apart": apart}


def _lines(path: pathlib.Path) -> list[str]:
    opened = open if path.exists() else gzip.open
    path = path if path.exists() else pathlib.Path(f"{path}.gz")
    with opened(path, "rt", encoding="utf-8-sig") as file:
        return file.read().rstrip("\n").split("\n")


def _columns(lines: list[str]) -> Rows:
    return [(text.strip(), label) for text, label in (x.split("\t") for x in lines)]


def runs(plan: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the fine-tunings of the groups."""
    for group in plan["groups"]:
        for seed in group["seeds"]:
            for system in group["systems"]:
                yield {"system": system, "rows": group["rows"], "seed": seed}


def same(run: Mapping[str, Any], row: Mapping[str, Any]) -> bool:
    """Return whether a row is that of a run."""
    return all(row.get(name) == value for name, value in run.items())


def read(path: pathlib.Path) -> list[dict[str, Any]]:
    """Return the rows of a task."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def table(name: str, plan: Mapping[str, Any], folder: pathlib.Path, split: str) -> str:
    """Return a Markdown table: mean, range and number of seeds."""
    found, trained = collections.defaultdict(list), {}
    for row in read(folder / f"{name}.jsonl"):
        if "trained" in row:
            trained[row["trained"]] = row
        elif split in row:
            found[row["system"], row["rows"]].append(
                {"score": row[split], "degenerate": None}
            )
    sizes = list(dict.fromkeys(group["rows"] for group in plan["groups"]))
    lines = ["", f"### {name}, {split}", "", "| system | steps | minutes |"]
    lines[-1] += "".join(f" {size} rows |" for size in sizes)
    lines.append("|---" * (3 + len(sizes)) + "|")
    for system in dict.fromkeys(run["system"] for run in runs(plan)):
        row = trained.get(system)
        cost = f"{row['steps']:,} | {row['seconds'] / 60:.1f}" if row else " | "
        cells = " | ".join(defaults.cell(found[system, size]) for size in sizes)
        lines.append(f"| {system} | {cost} | {cells} |")
    return "\n".join(lines[1:])
