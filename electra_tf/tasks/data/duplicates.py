"""Find examples with equal texts."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from electra_tf.config.data import TokenizationConfig
from electra_tf.tasks.data.splits import texts_of
from electra_tf.text.normalization import Normalizer

if TYPE_CHECKING:
    from electra_tf.text.tokenizer import WordPieceTokenizer


def first_equal_items(
    items: Sequence[Any], tokenizer: "WordPieceTokenizer | None"
) -> np.ndarray:
    """Return the index of the first item with the texts of each item, int64 [N].

    Texts are equal if they have the same words after the tokenizer's normalization;
    None: BERT's.
    """
    settings = tokenizer.settings if tokenizer else TokenizationConfig()
    words, first = Normalizer(settings).words, {}

    def letters(text: str) -> str:
        """Return the words in lower case, without spaces; fast for most texts."""
        if text.isascii() and text.isprintable():
            return text.lower().replace(" ", "")
        return "".join(words(text)).lower()

    # Only texts with equal letters may have equal words. Of both the hash of 64 bits is
    # kept, as the texts would take the memory of the items again.
    keys = (hash("\0".join(map(letters, texts_of(item)))) for item in items)
    keys_N = np.fromiter(keys, np.int64, len(items))
    first_N = np.arange(len(items))
    _, inverse_N, counts = np.unique(keys_N, return_inverse=True, return_counts=True)
    for index in np.flatnonzero(counts[inverse_N] > 1).tolist():
        texts = texts_of(items[index])
        key = hash("\0".join(" ".join(words(text)) for text in texts))
        first_N[index] = first.setdefault(key, index)
    return first_N
