"""Texts and pairs of texts -> [CLS] A [SEP] B [SEP]."""

from collections.abc import Sequence
from typing import Any

from electra_tf.errors import InputError
from electra_tf.tasks.batching import EncodedExamples
from electra_tf.text.tokenizer import Tokenizer
from electra_tf.text.vocab import CLS, SEP

Text = str | Sequence[str]
_SPECIAL = 3  # [CLS] and two [SEP]


def encode_texts(
    tokenizer: Tokenizer,
    texts: Sequence[Text],
    max_length: int,
    targets: Sequence[Any] | None = None,
) -> EncodedExamples:
    """Tokenizes, truncates and joins, as the original does.

    Args:
        tokenizer: The checkpoint's.
        texts: Strings, or pairs of strings.
        max_length: Positions with special tokens; the longer text of a pair loses its
            last pieces first, the second one where both are equally long.
        targets: A number for each text.

    Returns:
        Examples with these as their target.

    Raises:
        InputError: Something else than a text or a pair; other numbers than texts; no
            room for special tokens.
    """
    if max_length < _SPECIAL:
        raise InputError(
            "An input has room for [CLS] and two [SEP]",
            f"max_length {max_length}",
            f"Set it to {_SPECIAL} or more",
        )
    if targets is not None and len(targets) != len(texts):
        raise InputError(
            "There is a target for each text",
            f"{len(texts)} texts and {len(targets)} targets",
            "Pass lists of one length",
        )
    cls, sep = (tokenizer.vocabulary.ids[token] for token in (CLS, SEP))
    ids, segments, cut = [], [], 0
    for place, text in enumerate(texts):
        parts = [tokenizer.encode(part) for part in _parts(text, place)]
        cut += truncate(parts, max_length - 1 - len(parts))
        row = [cls, *parts[0], sep]
        first = len(row)
        if len(parts) == 2:
            row += [*parts[1], sep]
        ids.append(row)
        segments.append([0] * first + [1] * (len(row) - first))
    return EncodedExamples(ids, segments, max_length, targets, cut)


def truncate(parts: list[list[int]], longest: int) -> bool:
    """Cuts pieces off the end of the longer part until all fit.

    Args:
        parts: One or two lists of ids, which are cut in place; of equally long ones
            the second is.
        longest: Pieces of all parts together.

    Returns:
        Whether anything was cut.
    """
    surplus = sum(map(len, parts)) - longest
    for _ in range(max(0, surplus)):
        longer = 0 if len(parts) == 1 or len(parts[0]) > len(parts[1]) else 1
        parts[longer].pop()
    return surplus > 0


def _parts(text: Any, place: int) -> list[str]:
    if isinstance(text, str):
        return [text]
    pair = isinstance(text, list | tuple) and len(text) == 2
    if pair and all(isinstance(part, str) for part in text):
        return list(text)
    raise InputError(
        "A text is a string, or a pair of strings",
        f"{text!r:.80} at place {place}",
        "Pass a list of strings, or of pairs of strings",
    )
