"""SQuAD's official scores, versions 1.1 and 2.0, to the last digit."""

import collections
import functools
import operator
import re
import string
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence

from electra_tf.errors import InputError
from electra_tf.tasks.squad.decoding import best_threshold
from electra_tf.tasks.squad.reader import Question

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_SHOWN = 3  # ids in a message


def normalize(text: str) -> str:
    """Lower-cases; drops ASCII punctuation, then a, an and the; single spaces."""
    text = text.lower().translate(_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", text).split())


def exact(gold: str, predicted: str) -> int:
    """1 if both are the same once normalised, else 0."""
    return int(normalize(gold) == normalize(predicted))


def f1(gold: str, predicted: str, empty_agrees: bool = True) -> float:
    """Harmonic mean of precision and recall over the normalised words.

    Args:
        gold: The right text.
        predicted: The text that is scored.
        empty_agrees: Two texts without words score 1 (version 2.0), not 0 (1.1).

    Returns:
        0 to 1.
    """
    right, said = normalize(gold).split(), normalize(predicted).split()
    if empty_agrees and not (right and said):
        return float(right == said)
    common = collections.Counter(right) & collections.Counter(said)
    same = common.total()
    if not same:
        return 0.0
    precision, recall = same / len(said), same / len(right)
    return 2 * precision * recall / (precision + recall)


def _print(line: str) -> None:
    print(line, file=sys.stderr)


def score_v1(
    questions: Sequence[Question],
    predictions: Mapping[str, str],
    tell: Callable[[str], None] = _print,
) -> dict[str, float]:
    """Scores of SQuAD 1.1; a missing prediction scores 0 and is told.

    Args:
        questions: With their gold answers, one or more each.
        predictions: Text for each id.
        tell: Takes a line on missing and on surplus ids, if there are any.

    Returns:
        `exact_match` and `f1`, in percent.

    Raises:
        InputError: A question has no gold answer, or a prediction is no string.
    """
    _check_gold(questions, lambda question: bool(question.answers))
    missing = _compare_ids(questions, predictions, tell)
    if missing:
        tell(f"{_some(missing, 'question')} without a prediction; each scores 0")
    exact_sum = f1_sum = 0.0
    for question in questions:
        if question.id in predictions:
            said = predictions[question.id]
            texts = [answer.text for answer in question.answers]
            exact_sum += max(exact(text, said) for text in texts)
            f1_sum += max(f1(text, said, empty_agrees=False) for text in texts)
    return {
        "exact_match": 100.0 * exact_sum / len(questions),
        "f1": 100.0 * f1_sum / len(questions),
    }


def score_v2(
    questions: Sequence[Question],
    predictions: Mapping[str, str],
    na_probs: Mapping[str, float] | None = None,
    na_threshold: float = 1.0,
    tell: Callable[[str], None] = _print,
) -> dict[str, float]:
    """Scores of SQuAD 2.0 (evaluate-v2.0.py).

    Args:
        questions: With their gold answers; those without one are impossible.
        predictions: Text for each id, empty for no answer.
        na_probs: For each id, how much speaks for no answer, a probability or not.
        na_threshold: A larger value of `na_probs` counts as no answer, whatever the
            prediction says. The original's for its logits is -2.75.
        tell: Takes a line on surplus ids, if there are any.

    Returns:
        `exact`, `f1` and `total`; these for the questions that have answers
        (`HasAns_`) and that have none (`NoAns_`); with `na_probs`, the scores the best
        thresholds would give and these thresholds (see `best_threshold`). In percent.

    Raises:
        InputError: A prediction or a value of `na_probs` is missing, a prediction is
            no string, or the questions have no gold.
    """
    odds = _checked_odds(questions, predictions, na_probs, na_threshold, tell)
    has_answer = {q.id: bool(q.answers) for q in questions}
    pairs = {q.id: _score(q, predictions[q.id]) for q in questions}
    raw = {
        name: {key: pair[place] for key, pair in pairs.items()}
        for place, name in enumerate(("exact", "f1"))
    }
    final = {
        name: {
            key: float(not has_answer[key]) if odds[key] > na_threshold else value
            for key, value in scores.items()
        }
        for name, scores in raw.items()
    }
    result = _means(final, list(has_answer))
    for prefix, wanted in (("HasAns", True), ("NoAns", False)):
        if ids := [key for key, has in has_answer.items() if has == wanted]:
            means = _means(final, ids)
            result |= {f"{prefix}_{name}": mean for name, mean in means.items()}
    if na_probs is not None:
        for name, scores in raw.items():
            best = best_threshold(na_probs, scores, has_answer, predictions)
            result[f"best_{name}"], result[f"best_{name}_thresh"] = best
    return result


def _checked_odds(
    questions: Sequence[Question],
    predictions: Mapping[str, str],
    na_probs: Mapping[str, float] | None,
    na_threshold: float,
    tell: Callable[[str], None],
) -> Mapping[str, float]:
    """A number for each question, once all that goes into the scores is checked."""
    _check_gold(questions, lambda question: question.impossible or question.answers)
    missing = _compare_ids(questions, predictions, tell)
    if missing:
        raise InputError(
            "Each question has a prediction",
            f"{_some(missing, 'question')} without one, of {len(questions)}",
            'Predict all of the file; no answer is ""',
        )
    if na_probs is None:
        if na_threshold < 0:  # all of the official script's zeros would exceed it
            raise InputError(
                "A threshold below 0 is one of given na_probs",
                f"{na_threshold} and no na_probs",
                "Give the null odds, or leave the threshold out",
            )
        return dict.fromkeys(predictions, 0.0)
    lacking = [q.id for q in questions if not _is_number(na_probs.get(q.id))]
    if lacking:
        raise InputError(
            "na_probs has a number for each question",
            f"{_some(lacking, 'question')} without one, of {len(questions)}",
            "Give the null odds that were written with the predictions",
        )
    return na_probs


def _score(question: Question, said: str) -> tuple[int, float]:
    """Exact match and F1 of one question by the rules of version 2.0."""
    texts = [answer.text for answer in question.answers if normalize(answer.text)]
    texts = texts or [""]
    return max(exact(t, said) for t in texts), max(f1(t, said) for t in texts)


def _means(
    scores: Mapping[str, Mapping[str, float]], ids: list[str]
) -> dict[str, float]:
    means = {
        name: 100.0 * _sum(values[key] for key in ids) / len(ids)
        for name, values in scores.items()
    }
    return {**means, "total": len(ids)}


def _sum(values: Iterable[float]) -> float:
    # One after the other, as the official script; from Python 3.12 on `sum` differs.
    return functools.reduce(operator.add, values, 0)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and value == value


def _check_gold(
    questions: Sequence[Question], has_gold: Callable[[Question], object]
) -> None:
    without = [question.id for question in questions if not has_gold(question)]
    if without or not questions:
        raise InputError(
            "Scores need gold: answers (and in version 2.0 also is_impossible)",
            f"{_some(without, 'question')} without, of {len(questions)}",
            "Use a file with answers; impossible questions need the scores of "
            "version 2.0",
        )


def _compare_ids(
    questions: Sequence[Question],
    predictions: Mapping[str, str],
    tell: Callable[[str], None],
) -> list[str]:
    """Ids without prediction; predictions without question are told."""
    ids = dict.fromkeys(question.id for question in questions)
    wrong = [key for key in ids if not isinstance(predictions.get(key, ""), str)]
    if wrong:
        raise InputError(
            "A prediction is a string",
            f"{_some(wrong, 'other')}, the first {predictions[wrong[0]]!r:.50}",
            'Write one text for each id; no answer is ""',
        )
    surplus = [key for key in predictions if key not in ids]
    if surplus:
        tell(f"{_some(surplus, 'prediction')} for no question of the file; not scored")
    return [key for key in ids if key not in predictions]


def _some(ids: Sequence[str], what: str) -> str:
    """How many, and the first few."""
    if not ids:
        return f"0 {what}s"
    more = ", ..." if len(ids) > _SHOWN else ""
    plural = "" if len(ids) == 1 else "s"
    return f"{len(ids)} {what}{plural} ({', '.join(ids[:_SHOWN])}{more})"
