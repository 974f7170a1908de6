"""Find examples with equal texts."""

import hashlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from electra_tf.config.data import TokenizationConfig
from electra_tf.tasks.data.splits import texts_of
from electra_tf.text.checks import first_equals, normalized

if TYPE_CHECKING:
    from electra_tf.text.tokenizer import WordPieceTokenizer


def first_equal_items(
    items: Sequence[Any], tokenizer: "WordPieceTokenizer | None"
) -> np.ndarray:
    """Return the index of the first item with the texts of each item, int64 [N].

    Texts are equal if they are so after the tokenizer's normalization; None: BERT's.
    """
    if len(items) and not isinstance(items[0], str):
        items = list(map(texts_of, items))
    return first_equals(items, _settings(tokenizer))


def text_hashes(
    items: Iterable[Any], tokenizer: "WordPieceTokenizer | None"
) -> np.ndarray:
    """Return a hash of the normalized texts of each item, uint64 [N]."""
    texts = normalized(map(texts_of, items), _settings(tokenizer))
    parts = ("\0".join(text).encode("utf-8", "surrogatepass") for text in texts)
    digests = [hashlib.blake2b(part, digest_size=8).digest() for part in parts]
    return np.frombuffer(b"".join(digests), np.uint64)


def _settings(tokenizer: "WordPieceTokenizer | None") -> TokenizationConfig:
    return tokenizer.settings if tokenizer else TokenizationConfig()
