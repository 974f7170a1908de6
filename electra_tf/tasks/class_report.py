"""Scores of each class or type of span, and confusion matrix, in percent and counts.

scikit-learn's `classification_report` and seqeval's have the same rows: a row for each
class that occurs, and averages over them.
"""

import collections
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from electra_tf.tasks.data.schemes import OUTSIDE
from electra_tf.tasks.metrics import Tags, score_spans

_RATES = ("precision", "recall", "f1", "support")
_MAX_MATRIX = 20  # classes of a printed confusion matrix
_MAX_ROWS = 50  # classes of a printed table
_MAX_PAIRS = 15  # pairs of classes that are printed in place of a matrix
_MAX_WIDTH = 100  # columns of a matrix with names as headers

ClassReport = Mapping[str, Any]
"""`classes`: `precision`, `recall`, `f1` and `support` by class; `averages`: the same
by name; `accuracy` where each example has one class; `confusion`: counts by gold and
predicted class, empty for sets of classes."""


def class_report(
    gold: Sequence[str], predicted: Sequence[str], labels: Sequence[str]
) -> ClassReport:
    """Compute the scores of classes, in the order of `labels`."""
    used = set(gold) | set(predicted)
    names = [label for label in labels if label in used]
    confusion = _confusion(zip(gold, predicted, strict=True), names)
    return {**_rates(gold, predicted, names, names), "confusion": confusion}


def label_set_report(
    gold_NC: np.ndarray, predicted_NC: np.ndarray, labels: Sequence[str]
) -> ClassReport:
    """Compute the scores of classes from zeros and ones, each against its absence."""
    # Another column, as scikit-learn reads a single one as the classes 0 and 1.
    sides = (np.pad(side, [(0, 0), (0, 1)]) for side in (gold_NC, predicted_NC))
    return {**_rates(*sides, labels, range(len(labels))), "confusion": {}}


def _rates(
    gold: Any, predicted: Any, names: Sequence[str], labels: Sequence[Any]
) -> dict[str, Any]:
    """Return `classes`, `averages` and perhaps `accuracy`.

    `labels`: what scikit-learn calls each of `names`.
    """
    from sklearn import metrics

    rows = metrics.classification_report(
        gold,
        predicted,
        labels=list(labels),
        target_names=range(len(names)),  # a class may be called "accuracy"
        output_dict=True,
        zero_division=0,
    )
    accuracy = {"accuracy": 100 * rows.pop("accuracy")} if "accuracy" in rows else {}
    rows.pop("samples avg", None)  # of sets of classes
    rows = {key: _percent(row) for key, row in rows.items()}
    classes = {name: rows.pop(number) for number, name in enumerate(names)}
    return {"classes": classes, "averages": rows, **accuracy}


def tag_report(gold: Tags, predicted: Tags, tags: Iterable[str]) -> ClassReport:
    """Compute the scores of the tags of single words."""
    sides = [[tag for row in side for tag in row] for side in (gold, predicted)]
    return class_report(*sides, sorted(tags))


def span_report(gold: Tags, predicted: Tags) -> ClassReport:
    """Compute the scores of types of spans; the confusion is that of words' types."""
    scores = score_spans(gold, predicted)
    types = {kind: _renamed(rates) for kind, rates in scores["types"].items()}
    total = scores["gold"]

    def average(shares: Mapping[str, float]) -> dict[str, float]:
        means = {
            rate: sum(types[kind][rate] * share for kind, share in shares.items())
            for rate in _RATES[:3]
        }
        return means | {"support": total}

    weighted = {kind: row["support"] / (total or 1) for kind, row in types.items()}
    words = [
        (_type(a), _type(b))
        for sides in zip(gold, predicted, strict=True)
        for a, b in zip(*sides, strict=True)
    ]
    return {
        "classes": types,
        "averages": {
            "micro avg": _renamed(scores),
            "macro avg": average(dict.fromkeys(types, 1 / (len(types) or 1))),
            "weighted avg": average(weighted),
        },
        "confusion": _confusion(words, [OUTSIDE, *types]),
    }


def format_class_report(report: ClassReport) -> str:
    """Format the table of classes and the confusion matrix, or its largest errors."""
    of_words = "" if "accuracy" in report else " of words"
    table, confusion = _format_table(report), report["confusion"]
    return f"{table}\n{_format_confusion(confusion, of_words)}" if confusion else table


def confused_pairs(confusion: Mapping[str, Any]) -> list[tuple[int, str, str]]:
    """Return the number of each error (gold, predicted), the most frequent first."""
    pairs = [
        (count, gold, predicted)
        for gold, row in confusion.items()
        for predicted, count in row.items()
        if gold != predicted
    ]
    return sorted(pairs, key=lambda pair: -pair[0])


def has_matrix(confusion: Mapping[str, Any]) -> bool:
    """Return whether a confusion matrix is small enough to read."""
    return len(confusion) <= _MAX_MATRIX


def _percent(row: Mapping[str, float]) -> dict[str, float]:
    *rates, support = row.values()
    percent = [100 * rate for rate in rates]
    return dict(zip(_RATES, [*percent, int(support)], strict=True))


def _renamed(rates: Mapping[str, Any]) -> dict[str, Any]:
    return {n: rates[n] for n in _RATES[:3]} | {"support": rates["gold"]}


def _type(tag: str) -> str:
    return OUTSIDE if tag[:1] in (OUTSIDE, ".") else tag.partition("-")[2]


def _confusion(
    pairs: Iterable[tuple[str, str]], names: Sequence[str]
) -> dict[str, dict[str, int]]:
    """Return counts by gold and predicted class, without zeros."""
    counts = collections.Counter(pairs)
    return {
        gold: {p: count for p in names if (count := counts[gold, p])} for gold in names
    }


def _format_table(report: ClassReport) -> str:
    classes = report["classes"]
    rows, note = list(classes.items()), ""
    if len(rows) > _MAX_ROWS:
        rows = sorted(rows, key=lambda row: row[1]["f1"])[:_MAX_ROWS]
        note = f"\n  the {_MAX_ROWS} classes of {len(classes):,} with the lowest f1"
    width = max(map(_width, ["weighted avg", *(name for name, _ in rows)]))
    header = "".join(f"{name:>11}" for name in (*_RATES[:3], "support"))
    lines = [f"  {_pad('', width)}{header}", *(_row(width, *row) for row in rows), ""]
    if "accuracy" in report:
        support = report["averages"]["macro avg"]["support"]
        accuracy = f"{'':22}{report['accuracy']:>11.2f}{support:>11,}"
        lines.append(f"  {_pad('accuracy', width)}{accuracy}")
    lines += [_row(width, *row) for row in report["averages"].items()]
    return "\n".join(lines) + note


def _row(width: int, name: str, rates: Mapping[str, float]) -> str:
    cells = "".join(f"{rates[rate]:>11.2f}" for rate in _RATES[:3])
    return f"  {_pad(name, width)}{cells}{rates['support']:>11,}"


def _format_confusion(confusion: Mapping[str, Mapping[str, int]], of: str) -> str:
    if not has_matrix(confusion):
        lines = [f"most confused classes{of} (gold -> predicted):"]
        for count, gold, predicted in confused_pairs(confusion)[:_MAX_PAIRS]:
            share = 100 * count / sum(confusion[gold].values())
            lines.append(
                f"  {count:>7,}  {gold} -> {predicted} ({share:.0f}% of {gold})"
            )
        return "\n".join(lines)
    names = list(confusion)
    largest = max((n for row in confusion.values() for n in row.values()), default=0)
    heads, width = names, max(map(_width, names))
    if len(names) * max(7, width + 2) > _MAX_WIDTH:
        heads = [str(number) for number, _ in enumerate(names, 1)]
        width += len(heads[-1]) + 1
    column = 2 + max(len(f"{largest:,}"), *map(_width, heads))
    lines = [f"confusion matrix{of} (rows: gold, columns: predicted):"]
    lines.append(
        f"  {_pad('', width)}" + "".join(_pad(h, column, left=True) for h in heads)
    )
    for name, head in zip(names, heads, strict=True):
        title = name if head == name else f"{head:>{len(heads[-1])}} {name}"
        counts = "".join(f"{confusion[name].get(p, 0):>{column},}" for p in names)
        lines.append(f"  {_pad(title, width)}{counts}")
    return "\n".join(lines)


def _width(text: str) -> int:
    """Return the columns of a text in a terminal."""
    return sum(
        0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF")
        for c in text
    )


def _pad(text: str, width: int, left: bool = False) -> str:
    space = " " * (width - _width(text))
    return space + text if left else text + space
