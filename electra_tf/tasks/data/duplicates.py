"""Find examples with equal texts."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from electra_tf.config.data import TokenizationConfig
from electra_tf.tasks.data.splits import texts_of
from electra_tf.text.checks import first_equals

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


def _settings(tokenizer: "WordPieceTokenizer | None") -> TokenizationConfig:
    return tokenizer.settings if tokenizer else TokenizationConfig()
