"""Accuracy on BLiMP's minimal pairs (Warstadt et al., 2020), without fine-tuning."""

import argparse
import collections
import glob
import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from electra_tf.errors import InputError
from electra_tf.runs.scoring import RULES, TextScorer
from electra_tf.tasks.data.table import read
from electra_tf.text.data_errors import DataErrorLog

_FIELDS = ("UID", "linguistics_term", "sentence_good", "sentence_bad")


def main() -> None:
    """Print a table on standard error, then the report as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", required=True, help="A pre-trained model.")
    parser.add_argument("--data", required=True, help="File or folder of BLiMP.")
    options = parser.parse_args()
    try:
        report = evaluate_blimp(options.checkpoint, options.data)
    except InputError as error:
        sys.exit(f"error: {error}")
    print(format_report(report), file=sys.stderr)
    print(json.dumps(report))


def evaluate_blimp(path: str, data: str, batch_size: int = 64) -> dict[str, Any]:
    """Compare the scores of acceptable and unacceptable sentences.

    Returns:
        Accuracy in percent overall (the mean over paradigms), per phenomenon and per
        paradigm. Equal scores count as wrong.
    """
    pairs = read_pairs(data)
    scorer = TextScorer.from_preset(path, batch_size)
    sentences = [pair[name] for pair in pairs for name in _FIELDS[2:]]
    scored = scorer.score(sentences, lambda index: pairs[index // 2]["place"])
    scores = [score.score for score in scored]
    for line in scorer.unknown.lines(data):
        print(line, file=sys.stderr)
    results: dict[str, list[bool]] = collections.defaultdict(list)
    phenomena: dict[str, str] = {}
    for pair, good, bad in zip(pairs, scores[::2], scores[1::2], strict=True):
        uid = pair["UID"]
        results[uid].append(good > bad)
        phenomena[uid] = pair["linguistics_term"]
    paradigms = {uid: 100 * sum(r) / len(r) for uid, r in sorted(results.items())}
    by_phenomenon: dict[str, list[float]] = collections.defaultdict(list)
    for uid, accuracy in paradigms.items():
        by_phenomenon[phenomena[uid]].append(accuracy)
    return {
        "checkpoint": path,
        "rule": scorer.rule,
        "pairs": len(pairs),
        "accuracy": _mean(paradigms.values()),
        "phenomena": {
            name: _mean(by_phenomenon[name]) for name in sorted(by_phenomenon)
        },
        "paradigms": paradigms,
    }


def format_report(report: Mapping[str, Any]) -> str:
    """Return the accuracies as a table."""
    lines = [
        f"{report['checkpoint']} on {report['pairs']:,} pairs",
        f"rule: {RULES[report['rule']]}",
        f"  {'overall':<56}{report['accuracy']:6.1f}",
    ]
    for kind in ("phenomena", "paradigms"):
        lines += ["", kind]
        lines += [f"  {name:<56}{value:6.1f}" for name, value in report[kind].items()]
    return "\n".join(lines)


def _mean(values: Any) -> float:
    values = list(values)
    return sum(values) / len(values)


def read_pairs(data: str) -> list[dict[str, str]]:
    """Read minimal pairs, each with its `place`."""
    files = [data]
    if os.path.isdir(data):
        files = sorted(glob.glob(os.path.join(glob.escape(data), "*.jsonl*")))
    log = DataErrorLog("stop", "", "Minimal pairs must be objects of JSON")
    pairs = []
    for table in (read(path, log, _FIELDS) for path in files):
        for index, pair in enumerate(table.rows()):
            if missing := [name for name in _FIELDS if pair[name] is None]:
                raise InputError(
                    f"Each line must be a JSON object with {', '.join(_FIELDS)}",
                    f"{table.place(index)} without {', '.join(missing)}",
                    "Pass BLiMP's .jsonl files",
                )
            pairs.append({**pair, "place": table.place(index)})
    if not pairs:
        raise InputError(
            "--data must contain minimal pairs",
            f"{data}, without any",
            "Pass BLiMP's .jsonl files, or their folder",
        )
    return pairs


if __name__ == "__main__":
    main()
