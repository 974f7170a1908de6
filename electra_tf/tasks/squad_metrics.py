"""Official scores of SQuAD 1.1 and 2.0, equal to the scripts in every digit."""

import collections
import functools
import math
import operator
import re
import string
from collections.abc import Callable, Mapping, Sequence

from electra_tf.errors import InputError
from electra_tf.tasks.spans import best_threshold
from electra_tf.tasks.squad_json import Question
from electra_tf.tasks.tables import print_note

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_SHOWN = 3  # ids per message


def normalize(text: str) -> str:
    """Lower-case a text; remove ASCII punctuation, then articles and extra spaces."""
    text = text.lower().translate(_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", text).split())


def exact(gold: str, predicted: str) -> int:
    """Return 1 if both texts are equal after `normalize`, else 0."""
    return int(normalize(gold) == normalize(predicted))


def f1(gold: str, predicted: str, empty_agrees: bool = True) -> float:
    """Compute the F1 score over the words of the normalized texts."""
    gold_words, words = normalize(gold).split(), normalize(predicted).split()
    if empty_agrees and not (gold_words and words):
        return float(gold_words == words)
    common = collections.Counter(gold_words) & collections.Counter(words)
    count = common.total()
    if not count:
        return 0.0
    precision, recall = count / len(words), count / len(gold_words)
    return 2 * precision * recall / (precision + recall)


def score_v1(
    questions: Sequence[Question],
    predictions: Mapping[str, str],
    warn: Callable[[str], None] = print_note,
) -> dict[str, float]:
    """Compute the scores of SQuAD 1.1; a missing prediction scores 0."""
    require_gold(questions, allows_null=False)
    if missing := _missing_ids(questions, predictions, warn):
        warn(f"{_some(missing, 'question')} without a prediction; each scores 0")
    exact_sum = f1_sum = 0.0
    for question in questions:
        if question.id in predictions:
            predicted = predictions[question.id]
            texts = [answer.text for answer in question.answers]
            exact_sum += max(exact(text, predicted) for text in texts)
            f1_sum += max(f1(text, predicted, empty_agrees=False) for text in texts)
    return {
        "exact_match": 100.0 * exact_sum / len(questions),
        "f1": 100.0 * f1_sum / len(questions),
    }


def score_v2(
    questions: Sequence[Question],
    predictions: Mapping[str, str],
    na_probs: Mapping[str, float] | None = None,
    na_threshold: float = 1.0,
    warn: Callable[[str], None] = print_note,
) -> dict[str, float]:
    """Compute the scores of SQuAD 2.0, as evaluate-v2.0.py does."""
    require_gold(questions, allows_null=True)
    if missing := _missing_ids(questions, predictions, warn):
        raise InputError(
            "Each question must have a prediction",
            f"{_some(missing, 'question')} without one, of {len(questions)}",
            'Predict the whole file; write "" for no answer',
        )
    odds = dict.fromkeys(predictions, 0.0) if na_probs is None else na_probs
    if without := [q.id for q in questions if not _is_number(odds.get(q.id))]:
        raise InputError(
            "na_probs must have a number for each question",
            f"{_some(without, 'question')} without one, of {len(questions)}",
            "Pass the null_odds.json that was written with the predictions",
        )
    has_answer = {q.id: bool(q.answers) for q in questions}
    pairs = {q.id: _score(q, predictions[q.id]) for q in questions}
    raw = {
        name: {key: pair[index] for key, pair in pairs.items()}
        for index, name in enumerate(("exact", "f1"))
    }
    final = {
        name: {
            key: float(not has_answer[key]) if odds[key] > na_threshold else value
            for key, value in scores.items()
        }
        for name, scores in raw.items()
    }
    result = _means(final, list(has_answer))
    for prefix, group in (("HasAns", True), ("NoAns", False)):
        if ids := [key for key, has in has_answer.items() if has == group]:
            means = _means(final, ids)
            result |= {f"{prefix}_{name}": mean for name, mean in means.items()}
    if na_probs is not None:
        for name, scores in raw.items():
            best = best_threshold(na_probs, scores, has_answer, predictions)
            result[f"best_{name}"], result[f"best_{name}_thresh"] = best
    return result


def require_gold(questions: Sequence[Question], allows_null: bool) -> None:
    """Raise an error for a question without gold answers."""
    without = [
        question.id
        for question in questions
        if not (question.answers or (allows_null and question.impossible))
    ]
    if without or not questions:
        raise InputError(
            "Each question must have gold answers, or is_impossible in version 2.0",
            f"{_some(without, 'question')} without gold, of {len(questions)}",
            "Use a labelled file; impossible questions need --task=squad2, in finetune "
            "or in evaluate with --predictions",
        )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not math.isnan(value)


def _score(question: Question, predicted: str) -> tuple[int, float]:
    """Return exact match and F1 of one question by the rules of version 2.0."""
    texts = [answer.text for answer in question.answers if normalize(answer.text)]
    texts = texts or [""]
    return (
        max(exact(text, predicted) for text in texts),
        max(f1(text, predicted) for text in texts),
    )


def _means(
    scores: Mapping[str, Mapping[str, float]], ids: list[str]
) -> dict[str, float]:
    # From Python 3.12 on, `sum` compensates rounding errors; the official script adds
    # one value at a time.
    means = {
        name: 100.0 * functools.reduce(operator.add, map(values.get, ids)) / len(ids)
        for name, values in scores.items()
    }
    return {**means, "total": len(ids)}


def _missing_ids(
    questions: Sequence[Question],
    predictions: Mapping[str, str],
    warn: Callable[[str], None],
) -> list[str]:
    """Return the ids without a prediction; warn of predictions without a question."""
    ids = dict.fromkeys(question.id for question in questions)
    invalid = [key for key in ids if not isinstance(predictions.get(key, ""), str)]
    if invalid:
        raise InputError(
            "Predictions must be strings",
            f"{_some(invalid, 'other')}, the first {predictions[invalid[0]]!r:.50}",
            'Write one text for each id; write "" for no answer',
        )
    if surplus := [key for key in predictions if key not in ids]:
        warn(f"{_some(surplus, 'prediction')} without a question; not scored")
    return [key for key in ids if key not in predictions]


def _some(ids: Sequence[str], noun: str) -> str:
    """Return the number of ids and the first few."""
    more = ", ..." if len(ids) > _SHOWN else ""
    shown = f" ({', '.join(ids[:_SHOWN])}{more})" if ids else ""
    return f"{len(ids)} {noun}{'' if len(ids) == 1 else 's'}{shown}"
