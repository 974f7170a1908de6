"""Official scores of SQuAD 1.1 and 2.0, equal to the scripts in every digit."""

import collections
import re
import string
from collections.abc import Mapping, Sequence

import numpy as np

from electra_tf.tasks.data.squad_json import Question

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


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
) -> dict[str, float]:
    """Compute the scores of SQuAD 1.1; a missing prediction scores 0."""
    sums = [0.0, 0.0]
    for question in questions:
        if question.id in predictions:
            predicted = predictions[question.id]
            texts = [answer.text for answer in question.answers]
            sums[0] += max(exact(text, predicted) for text in texts)
            sums[1] += max(f1(text, predicted, empty_agrees=False) for text in texts)
    means = (100.0 * value / len(questions) for value in sums)
    return dict(zip(("exact_match", "f1"), means, strict=True))


def score_v2(
    questions: Sequence[Question],
    predictions: Mapping[str, str],
    na_probs: Mapping[str, float] | None = None,
    na_threshold: float = 1.0,
) -> dict[str, float]:
    """Compute the scores of SQuAD 2.0, as evaluate-v2.0.py does."""
    odds = dict.fromkeys(predictions, 0.0) if na_probs is None else na_probs
    by_id = {q.id: q for q in questions}
    scores_N2 = np.array([_score(q, predictions[q.id]) for q in by_id.values()])
    has_answer_N = np.array([bool(q.answers) for q in by_id.values()])
    is_empty_N = np.array([odds[key] > na_threshold for key in by_id])
    final_N2 = np.where(is_empty_N[:, None], ~has_answer_N[:, None], scores_N2)
    everything_N = np.ones_like(has_answer_N)
    groups = {"": everything_N, "HasAns_": has_answer_N, "NoAns_": ~has_answer_N}
    result = {}
    for prefix, group_N in groups.items():
        if count := int(group_N.sum()):
            # It adds one value at a time, as the official script does. np.sum and,
            # from Python 3.12 on, `sum` round otherwise.
            sums_2 = np.cumsum(final_N2[group_N], axis=0)[-1]
            means = (100.0 * sums_2 / count).tolist()
            result[f"{prefix}exact"], result[f"{prefix}f1"] = means
            result[f"{prefix}total"] = count
    if na_probs is not None:
        result |= _best_thresholds(na_probs, by_id, scores_N2, predictions)
    return result


def _score(question: Question, predicted: str) -> list[float]:
    """Return exact match and F1 of one question by the rules of version 2.0."""
    texts = [answer.text for answer in question.answers if normalize(answer.text)]
    texts = texts or [""]
    return [max(rate(text, predicted) for text in texts) for rate in (exact, f1)]


def _best_thresholds(
    null_odds: Mapping[str, float],
    by_id: Mapping[str, Question],
    scores_N2: np.ndarray,
    predictions: Mapping[str, str],
) -> dict[str, float]:
    """Find the best scores and their thresholds, as the official script does.

    Questions whose odds exceed the threshold have no answer. Like the script, return a
    threshold of 0 where no answer to any question scores best, and count questions
    with equal odds one by one; the best score is then too high for many equal odds.
    """
    gains = {
        key: scores_2 if by_id[key].answers else [-bool(predictions[key])] * 2
        for key, scores_2 in zip(by_id, scores_N2, strict=True)
    }
    ids = sorted((key for key in null_odds if key in by_id), key=null_odds.get)
    start = sum(not question.answers for question in by_id.values())
    sums_M2 = np.cumsum([[start, start], *map(gains.get, ids)], axis=0)
    thresholds, result = [0.0, *map(null_odds.get, ids)], {}
    for name, sums_M in zip(("exact", "f1"), sums_M2.T, strict=True):
        best = int(np.argmax(sums_M))  # the first of equal sums
        result[f"best_{name}"] = 100.0 * float(sums_M[best]) / len(ids)
        result[f"best_{name}_thresh"] = thresholds[best]
    return result
