"""Scores of predicted tags: spans as conlleval counts them, or single words."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from electra_tf.errors import InputError
from electra_tf.tasks.schemes import conlleval_spans, to_bioes

Tags = Sequence[Sequence[str]]
"""One tag for each word of each sentence."""


def score_spans(gold: Tags, predicted: Tags) -> dict[str, Any]:
    """Compute precision, recall and F1 of spans.

    A predicted span is correct if its first word, last word and type are. The scores
    equal those of conlleval.pl, the scorer of the CoNLL tasks; a score with a
    denominator of 0 is 0.
    """
    _check_lengths(gold, predicted)
    gold_spans = [conlleval_spans(tags) for tags in gold]
    predicted_spans = [conlleval_spans(tags) for tags in predicted]
    correct_spans = [
        set(a) & set(b) for a, b in zip(gold_spans, predicted_spans, strict=True)
    ]
    counts = [
        Counter(span.kind for spans in side for span in spans)
        for side in (gold_spans, predicted_spans, correct_spans)
    ]
    if _bioes_marks(predicted) - _bioes_marks(gold):
        gold = [to_bioes(tags) for tags in gold]
    return {
        **_rates(*(count.total() for count in counts)),
        "accuracy": _accuracy(gold, predicted),
        "types": {
            kind: _rates(*(count[kind] for count in counts))
            for kind in sorted(counts[0] | counts[1])
        },
    }


def score_tokens(gold: Tags, predicted: Tags) -> dict[str, Any]:
    """Compute the accuracy of tags of single words, such as parts of speech."""
    _check_lengths(gold, predicted)
    pairs = [
        pair
        for sides in zip(gold, predicted, strict=True)
        for pair in zip(*sides, strict=True)
    ]
    gold_counts = Counter(a for a, _ in pairs)
    predicted_counts = Counter(b for _, b in pairs)
    correct_counts = Counter(a for a, b in pairs if a == b)
    return {
        "accuracy": _accuracy(gold, predicted),
        "tokens": len(pairs),
        "types": {
            tag: _rates(gold_counts[tag], predicted_counts[tag], correct_counts[tag])
            for tag in sorted(gold_counts | predicted_counts)
        },
    }


def _rates(gold: int, predicted: int, correct: int) -> dict[str, float | int]:
    return {
        "precision": _percent(correct, predicted),
        "recall": _percent(correct, gold),
        "f1": _percent(2 * correct, gold + predicted),
        "gold": gold,
        "predicted": predicted,
        "correct": correct,
    }


def _accuracy(gold: Tags, predicted: Tags) -> float:
    sides = list(zip(gold, predicted, strict=True))
    correct = sum(a == b for side in sides for a, b in zip(*side, strict=True))
    return _percent(correct, sum(len(a) for a, _ in sides))


def _percent(part: int, whole: int) -> float:
    return 100.0 * part / whole if whole else 0.0


def _bioes_marks(sentences: Tags) -> set[str]:
    """Return the marks E and S that the tags use."""
    return {tag[:1] for tags in sentences for tag in tags} & {"E", "S"}


def _check_lengths(gold: Tags, predicted: Tags) -> None:
    lengths = list(map(len, gold)), list(map(len, predicted))
    if lengths[0] == lengths[1]:
        return
    arrived = f"{len(gold)} sentences with tags and {len(predicted)} predicted"
    if len(gold) == len(predicted):
        pairs = enumerate(zip(*lengths, strict=True))
        index = next(index for index, (a, b) in pairs if a != b)
        arrived = (
            f"in sentence {index + 1} {lengths[0][index]} tags and "
            f"{lengths[1][index]} predicted"
        )
    raise InputError(
        "Each word with a gold tag must have a predicted tag",
        arrived,
        "Score predictions of the same file",
    )
