"""Common parts of the benchmarks: texts, peers, interleaved rounds, tables."""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
from collections.abc import Callable

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
ROOT = pathlib.Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]


def text_lines(source: str | None, megabytes: float) -> list[str]:
    """Return the first lines of a text, by default of English Wikipedia."""
    from electra_tf.config.pretraining import CorpusConfig
    from electra_tf.text.corpus import CorpusReader
    from electra_tf.text.data_errors import DataErrorLog

    if source is None:
        data = os.environ.get("ELECTRA_TF_DATA")
        if not data:
            sys.exit("error: pass a text with --input=FILE (ELECTRA_TF_DATA is unset)")
        source = f"{data}/corpus/wiki_en.train-0*.txt.xz"
    lines, remaining = [], megabytes * 1e6
    log = DataErrorLog("report", os.devnull)
    for document in CorpusReader([source], CorpusConfig(), log):
        lines += [*document.lines, ""]
        remaining -= sum(len(line.encode()) + 1 for line in document.lines)
        if remaining <= 0:
            break
    return lines


def check_peers(
    options: argparse.Namespace,
    required: list[str],
    known: list[str],
    packages: str = "torch, transformers",
) -> list[str]:
    """Return the names of --peers, or exit if one is unknown or lacks a package."""
    names = options.peers.split(",")
    if set(required) - set(names) or set(names) - set(known):
        sys.exit(
            f"error: --peers must contain {' and '.join(required)}, and only "
            f"{', '.join(known)}. Received: {options.peers}"
        )
    if options.peer or not any(name.startswith("torch") for name in names):
        return names
    if subprocess.run([options.torch_python, "-c", f"import {packages}"]).returncode:
        sys.exit(
            f"error: {options.torch_python} must have the packages {packages}. Install "
            "them with tools/install test,interop-test, pass another interpreter with "
            f"--torch_python, or omit the peers: --peers={','.join(required)}"
        )
    return names


def interleaved(
    rounds: int, measures: dict[str, Callable[[], float]]
) -> dict[str, list[float]]:
    """Return the results of all measures, which run in turn in each round.

    So a change of the machine's load affects all of them.
    """
    results: dict[str, list[float]] = {name: [] for name in measures}
    for number in range(rounds):
        for name, measure in measures.items():
            results[name].append(measure())
            print(f"round {number + 1}: {name}: {results[name][-1]:,.0f}", flush=True)
    return results


def report(results: dict[str, list[float]], unit: str, base: str) -> None:
    """Print median, range, and the median of the ratios to `base` in each round."""
    print(f"\n{'':44} {'median':>12} {'min':>12} {'max':>12}  ratio  ({unit})")
    for name, values in results.items():
        ratios = [a / b for a, b in zip(values, results[base], strict=True)]
        print(
            f"{name:44} {statistics.median(values):12,.0f} {min(values):12,.0f} "
            f"{max(values):12,.0f} {statistics.median(ratios):6.2f}"
        )
