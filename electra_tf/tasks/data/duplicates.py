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
    texts = ("\0".join(" ".join(words(text)) for text in texts_of(i)) for i in items)
    # Hashes of 64 bits, as the texts would take the memory of the items again.
    hashes = enumerate(map(hash, texts))
    indices = (first.setdefault(key, index) for index, key in hashes)
    return np.fromiter(indices, np.int64, len(items))
