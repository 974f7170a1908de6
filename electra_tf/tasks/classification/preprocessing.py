"""Encode texts and pairs of texts as [CLS] A [SEP] B [SEP]."""

from collections.abc import Sequence
from typing import Any

from electra_tf.errors import InputError
from electra_tf.tasks.examples import EncodedExamples
from electra_tf.text.tokenizer import Tokenizer
from electra_tf.text.vocab import CLS, SEP

Text = str | Sequence[str]
_NUM_SPECIAL = 3  # [CLS] and two [SEP]


def encode_texts(
    tokenizer: Tokenizer,
    texts: Sequence[Text],
    max_length: int,
    targets: Sequence[Any] | None = None,
) -> EncodedExamples:
    """Tokenize, truncate and join texts by the rules of the original."""
    if max_length < _NUM_SPECIAL:
        raise InputError(
            "max_length must be at least 3, for [CLS] and two [SEP]",
            f"max_length={max_length}",
            f"Set it to {_NUM_SPECIAL} or more",
        )
    if targets is not None and len(targets) != len(texts):
        raise InputError(
            "targets must have the length of texts",
            f"{len(texts)} texts and {len(targets)} targets",
            "Pass one target for each text",
        )
    cls, sep = (tokenizer.vocabulary.ids[token] for token in (CLS, SEP))
    ids, segments, num_truncated = [], [], 0
    for index, text in enumerate(texts):
        parts = [tokenizer.encode(part) for part in _split_pair(text, index)]
        num_truncated += truncate(parts, max_length - 1 - len(parts))
        row = [cls, *parts[0], sep]
        first = len(row)
        if len(parts) == 2:
            row += [*parts[1], sep]
        ids.append(row)
        segments.append([0] * first + [1] * (len(row) - first))
    return EncodedExamples(ids, segments, max_length, targets, num_truncated)


def truncate(parts: list[list[int]], max_length: int) -> bool:
    """Cut wordpieces off the end of the longer text until both fit.

    Args:
        parts: One or two lists of ids, which are cut in place. The second list is cut
            where both are equally long.
        max_length: Wordpieces of all lists together, at most.
    """
    surplus = sum(map(len, parts)) - max_length
    for _ in range(max(0, surplus)):
        longer = 0 if len(parts) == 1 or len(parts[0]) > len(parts[1]) else 1
        parts[longer].pop()
    return surplus > 0


def _split_pair(text: Any, index: int) -> list[str]:
    if isinstance(text, str):
        return [text]
    pair = isinstance(text, list | tuple) and len(text) == 2
    if pair and all(isinstance(part, str) for part in text):
        return list(text)
    raise InputError(
        "A text must be a string, or a pair of strings",
        f"{text!r:.80} at index {index}",
        "Pass a list of strings, or of pairs of strings",
    )
