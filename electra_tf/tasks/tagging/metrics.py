"""How good predicted tags are: spans as conlleval counts them, or words."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from electra_tf.errors import InputError
from electra_tf.tasks.tagging.schemes import Decoder, conlleval_spans, to_bioes

Tags = Sequence[Sequence[str]]
"""One tag for each word of each sentence."""


def score_spans(
    gold: Tags, predicted: Tags, decode: Decoder = conlleval_spans
) -> dict[str, Any]:
    """Compares spans; one is right if its first word, last word and type are.

    The numbers are those of conlleval.pl, the scorer of the CoNLL tasks; where it
    divides by nothing the result is 0.

    Args:
        gold: The right tags, in any scheme.
        predicted: Tags of the same words. If they are BIOES (an E or S is among them
            that the gold tags never use), gold tags are put into BIOES before
            `accuracy` compares tag with tag; else it takes both as they stand.
        decode: Whose rules tell where spans are.

    Returns:
        `precision`, `recall`, `f1` and `accuracy` of tags, in percent; the numbers of
        spans `gold`, `predicted` and `correct`; and under `types` all of these but
        the accuracy for each type, sorted by name.

    Raises:
        InputError: The sentences do not correspond, or a tag is none of a span.
    """
    _check(gold, predicted)
    wanted = [decode(tags) for tags in gold]
    found = [decode(tags) for tags in predicted]
    right = [set(a) & set(b) for a, b in zip(wanted, found, strict=True)]
    counts = [
        Counter(span.kind for s in side for span in s)
        for side in (wanted, found, right)
    ]
    if _ends(predicted) - _ends(gold):
        gold = [to_bioes(tags, decode) for tags in gold]
    return {
        **_rates(*(count.total() for count in counts)),
        "accuracy": _accuracy(gold, predicted),
        "types": {
            kind: _rates(*(count[kind] for count in counts))
            for kind in sorted(counts[0] | counts[1])
        },
    }


def score_tokens(gold: Tags, predicted: Tags) -> dict[str, Any]:
    """Compares tags that stand for the words themselves, such as parts of speech.

    Args:
        gold: The right tags.
        predicted: Tags of the same words.

    Returns:
        `accuracy` in percent, the number of words `tokens`, and under `types` for each
        tag, sorted, what `score_spans` has there.

    Raises:
        InputError: The sentences do not correspond.
    """
    _check(gold, predicted)
    pairs = [
        pair
        for sides in zip(gold, predicted, strict=True)
        for pair in zip(*sides, strict=True)
    ]
    wanted, found = Counter(a for a, _ in pairs), Counter(b for _, b in pairs)
    right = Counter(a for a, b in pairs if a == b)
    return {
        "accuracy": _accuracy(gold, predicted),
        "tokens": len(pairs),
        "types": {
            tag: _rates(wanted[tag], found[tag], right[tag])
            for tag in sorted(wanted | found)
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
    hits = sum(a == b for side in sides for a, b in zip(*side, strict=True))
    return _percent(hits, sum(len(a) for a, _ in sides))


def _percent(part: int, whole: int) -> float:
    return 100.0 * part / whole if whole else 0.0


def _ends(sentences: Tags) -> set[str]:
    return {tag[:1] for tags in sentences for tag in tags} & {"E", "S"}


def _check(gold: Tags, predicted: Tags) -> None:
    lengths = list(map(len, gold)), list(map(len, predicted))
    if lengths[0] == lengths[1]:
        return
    found = f"{len(gold)} sentences with tags and {len(predicted)} predicted"
    if len(gold) == len(predicted):
        pairs = enumerate(zip(*lengths, strict=True))
        index = next(index for index, (a, b) in pairs if a != b)
        found = (
            f"in sentence {index + 1} {lengths[0][index]} tags and "
            f"{lengths[1][index]} predicted"
        )
    raise InputError(
        "Each word with a tag has a predicted one",
        found,
        "Score predictions of the same file",
    )
