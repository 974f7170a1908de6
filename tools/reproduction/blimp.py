"""Accuracy on BLiMP's minimal pairs (Warstadt et al., 2020), without fine-tuning."""

import argparse
import collections
import glob
import json
import os
import statistics
import sys
from typing import Any

from electra_tf.errors import InputError
from electra_tf.runs.scoring import TextScorer
from electra_tf.tasks.data.table import read
from electra_tf.text.data_errors import DataErrorLog

_FIELDS = ("UID", "linguistics_term", "sentence_good", "sentence_bad")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", required=True, help="A pre-trained model.")
    parser.add_argument("--data", required=True, help="File or folder of BLiMP.")
    options = parser.parse_args()
    try:
        report = evaluate_blimp(options.checkpoint, options.data)
    except InputError as error:
        sys.exit(f"error: {error}")
    print(json.dumps(report))


def evaluate_blimp(path: str, data: str, batch_size: int = 64) -> dict[str, Any]:
    """Compare the scores of acceptable and unacceptable sentences.

    Return the accuracy in percent, the mean over paradigms, also of each phenomenon and
    paradigm. Equal scores count as wrong.
    """
    pairs = read_pairs(data)
    scorer = TextScorer.from_preset(path, batch_size)
    sentences = [pair[name] for pair in pairs for name in _FIELDS[2:]]
    scored = scorer.score(sentences, lambda index: pairs[index // 2]["place"])
    values = [score.score for score in scored]
    for line in scorer.unknown.lines(data):
        print(line, file=sys.stderr)
    results: dict[str, list[bool]] = collections.defaultdict(list)
    terms = {pair["UID"]: pair["linguistics_term"] for pair in pairs}
    for pair, good, bad in zip(pairs, values[::2], values[1::2], strict=True):
        results[pair["UID"]].append(good > bad)
    paradigms = {uid: 100 * statistics.fmean(r) for uid, r in sorted(results.items())}
    phenomena = {
        term: statistics.fmean(v for uid, v in paradigms.items() if terms[uid] == term)
        for term in sorted(set(terms.values()))
    }
    return {
        "checkpoint": path,
        "rule": scorer.rule,
        "pairs": len(pairs),
        "accuracy": statistics.fmean(paradigms.values()),
        "phenomena": phenomena,
        "paradigms": paradigms,
    }


def read_pairs(data: str) -> list[dict[str, str]]:
    files = [data]
    if os.path.isdir(data):
        files = sorted(glob.glob(os.path.join(glob.escape(data), "*.jsonl*")))
    log = DataErrorLog("stop")
    pairs = []
    for table in (read(path, log, _FIELDS) for path in files):
        for index in range(len(table)):
            pair = table.row(index)
            if missing := [name for name in _FIELDS if pair[name] is None]:
                raise InputError(
                    f"{table.place(index)} must have {', '.join(_FIELDS)}, but lacks "
                    f"{', '.join(missing)}; pass BLiMP's .jsonl files"
                )
            pairs.append({**pair, "place": table.place(index)})
    if not pairs:
        raise InputError(f"{data} must be a .jsonl file of BLiMP, or their folder")
    return pairs


if __name__ == "__main__":
    main()
