"""Accuracy on BLiMP's minimal pairs (Warstadt et al., 2020), without fine-tuning."""

import collections
import glob
import os
import sys
from collections.abc import Mapping
from typing import Any

from electra_tf.errors import InputError
from electra_tf.runs.scoring import RULES, TextScorer
from electra_tf.text.files import BROKEN, encoding_remedy, open_compressed
from electra_tf.text.json_file import parse_json

_FIELDS = ("UID", "linguistics_term", "sentence_good", "sentence_bad")


def evaluate_blimp(path: str, data: str, batch_size: int = 64) -> dict[str, Any]:
    """Compare the scores of acceptable and unacceptable sentences.

    Returns:
        Accuracy in percent overall (the mean over paradigms), per phenomenon and per
        paradigm. Equal scores count as wrong.
    """
    pairs = read_pairs(data)
    scorer = TextScorer.from_preset(path, batch_size)
    sentences = [pair[f"sentence_{kind}"] for pair in pairs for kind in ("good", "bad")]
    names = [f"{pair['place']}" for pair in pairs for _ in range(2)]
    scores = [s.score for s in scorer.score(sentences, names.__getitem__)]
    for line in scorer.unknown.lines(data):
        print(line, file=sys.stderr)
    results: dict[str, list[bool]] = collections.defaultdict(list)
    phenomena: dict[str, str] = {}
    for number, pair in enumerate(pairs):
        good, bad = scores[2 * number : 2 * number + 2]
        results[pair["UID"]].append(good > bad)
        phenomena[pair["UID"]] = pair["linguistics_term"]
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
    """Read minimal pairs."""
    files = [data]
    if os.path.isdir(data):
        files = sorted(glob.glob(os.path.join(glob.escape(data), "*.jsonl*")))
    pairs = []
    for path in files:
        try:
            with open_compressed(path) as file:
                lines = file.read().decode("utf-8-sig").splitlines()
        except UnicodeDecodeError as error:
            raise InputError(
                "Minimal pairs must be UTF-8", f"{path}: {error}", encoding_remedy(path)
            ) from error
        except (OSError, *BROKEN) as error:
            raise InputError(
                "--data must be a file or folder of BLiMP's pairs",
                f"{path}: {error}",
                "Check the path",
            ) from error
        for number, line in enumerate(lines, 1):
            pairs.append(_parse(line, f"{path}, line {number}"))
    if not pairs:
        raise InputError(
            "--data must contain minimal pairs",
            f"{data}, without any",
            "Pass BLiMP's .jsonl files, or their folder",
        )
    return pairs


def _parse(line: str, place: str) -> dict[str, str]:
    try:
        pair = parse_json(line)
        return {**{name: str(pair[name]) for name in _FIELDS}, "place": place}
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"Each line must be a JSON object with {', '.join(_FIELDS)}",
            f"{place}: {type(error).__name__} {error}",
            "Pass BLiMP's .jsonl files",
        ) from error
