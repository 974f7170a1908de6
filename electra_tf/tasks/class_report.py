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

RATES = ("precision", "recall", "f1", "support")
_MAX_MATRIX = 20  # classes of a printed confusion matrix
_MAX_ROWS = 50  # classes of a printed table
_MAX_PAIRS = 15  # pairs of classes that are printed in place of a matrix
_MAX_WIDTH = 100  # characters of names as headers of a matrix

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
    """Return `classes`, `averages` and perhaps `accuracy` of classes.

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
    for key, row in rows.items():
        *rates, support = row.values()
        values = [*(100 * rate for rate in rates), int(support)]
        rows[key] = dict(zip(RATES, values, strict=True))
    classes = {name: rows.pop(number) for number, name in enumerate(names)}
    return {"classes": classes, "averages": rows, **accuracy}


def tag_report(gold: Tags, predicted: Tags, tags: Iterable[str]) -> ClassReport:
    """Compute the scores of the tags of single words."""
    sides = [[tag for row in side for tag in row] for side in (gold, predicted)]
    return class_report(*sides, sorted(tags))


def span_report(gold: Tags, predicted: Tags) -> ClassReport:
    """Compute the scores of types of spans; the confusion is that of words' types."""
    scores = score_spans(gold, predicted)
    total, *types = (
        {**{rate: row[rate] for rate in RATES[:3]}, "support": row["gold"]}
        for row in (scores, *scores["types"].values())
    )

    def average(weights: Sequence[int]) -> dict[str, float]:
        rows = list(zip(weights, types, strict=True))
        means = {
            rate: sum(w * row[rate] for w, row in rows) / (sum(weights) or 1)
            for rate in RATES[:3]
        }
        return means | {"support": total["support"]}

    def kind_of(tag: str) -> str:
        return OUTSIDE if tag[:1] in (OUTSIDE, ".") else tag.partition("-")[2]

    sides = [
        [kind_of(tag) for row in side for tag in row] for side in (gold, predicted)
    ]
    return {
        "classes": dict(zip(scores["types"], types, strict=True)),
        "averages": {
            "micro avg": total,
            "macro avg": average([1] * len(types)),
            "weighted avg": average([row["support"] for row in types]),
        },
        "confusion": _confusion(zip(*sides, strict=True), [OUTSIDE, *scores["types"]]),
    }


def _confusion(
    pairs: Iterable[tuple[str, str]], names: Sequence[str]
) -> dict[str, dict[str, int]]:
    """Return counts by gold and predicted class, without zeros."""
    counts = collections.Counter(pairs)
    return {
        gold: {p: count for p in names if (count := counts[gold, p])} for gold in names
    }


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


def describe_baseline(report: ClassReport) -> str:
    """Return a line on the accuracy of the largest class; empty: no accuracy."""
    supports = {name: row["support"] for name, row in report["classes"].items()}
    if "accuracy" not in report or not sum(supports.values()):
        return ""
    largest = max(supports, key=supports.__getitem__)
    share = 100 * supports[largest] / sum(supports.values())
    return f"Always answering {largest!r:.40} would score {share:.1f}% accuracy."


def format_class_report(report: ClassReport) -> str:
    """Format the table of classes and the confusion matrix, or its largest errors."""
    classes, note = list(report["classes"].items()), []
    if len(classes) > _MAX_ROWS:
        note = [f"  the {_MAX_ROWS} classes of {len(classes):,} with the lowest f1"]
        classes = sorted(classes, key=lambda row: row[1]["f1"])[:_MAX_ROWS]
    rows = [["", *RATES], *(class_row(*one) for one in classes), [""] * 5]
    lines = [*_table(rows + total_rows(report)), *note]
    if report["confusion"]:
        of = "" if "accuracy" in report else " of words"
        lines += _confusion_lines(report["confusion"], of)
    lines += filter(None, [describe_baseline(report)])
    return "\n".join(lines)


def _confusion_lines(confusion: Mapping[str, Mapping[str, int]], of: str) -> list[str]:
    if not has_matrix(confusion):
        lines = [f"most confused classes{of} (gold -> predicted):"]
        for count, gold, predicted in confused_pairs(confusion)[:_MAX_PAIRS]:
            share = 100 * count / sum(confusion[gold].values())
            of_gold = f"({share:.0f}% of {gold})"
            lines.append(f"  {count:>7,}  {gold} -> {predicted} {of_gold}")
        return lines
    heads = titles = list(confusion)
    if len(heads) * max(map(_width, heads)) > _MAX_WIDTH:
        heads = [str(number) for number, _ in enumerate(titles, 1)]
        titles = [f"{head:>2} {name}" for head, name in zip(heads, titles, strict=True)]
    rows = [
        [title, *(f"{row.get(name, 0):,}" for name in confusion)]
        for title, row in zip(titles, confusion.values(), strict=True)
    ]
    title = f"confusion matrix{of} (rows: gold, columns: predicted):"
    return [title, *_table([["", *heads], *rows])]


def class_row(name: str, rates: Mapping[str, float]) -> list[str]:
    """Return name, rates and support of a class or an average as texts."""
    return [name, *(f"{rates[r]:.2f}" for r in RATES[:3]), f"{rates['support']:,}"]


def total_rows(report: ClassReport) -> list[list[str]]:
    """Return rows as `class_row` for the accuracy, if there is one, and averages."""
    averages, rows = report["averages"], []
    if "accuracy" in report:
        support = f"{averages['macro avg']['support']:,}"
        rows.append(["accuracy", "", "", f"{report['accuracy']:.2f}", support])
    return rows + [class_row(*one) for one in averages.items()]


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table; the first column is on the left, others right."""
    widths = [max(map(_width, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        spaces = [" " * (w - _width(c)) for w, c in zip(widths, row, strict=True)]
        cells = [s + c for s, c in zip(spaces[1:], row[1:], strict=True)]
        lines.append("  ".join(["", row[0] + spaces[0], *cells]).rstrip())
    return lines


def _width(text: str) -> int:
    """Return the columns of a text in a terminal."""
    return sum(
        0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF")
        for c in text
    )
