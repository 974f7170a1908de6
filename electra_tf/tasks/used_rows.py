"""Fine-tune only those rows of the token table that the texts use.

The others get no gradient, so Adam and AdamW only decay them, all by the same factors.
A row of ones, which no text uses, measures their product. So the result is that of the
whole table up to rounding, while gradient, norm and update read only the rows in use.
"""

import dataclasses
from collections.abc import Iterable

import numpy as np

from electra_tf.sources import PretrainedEncoder
from electra_tf.tasks.examples import EncodedExamples
from electra_tf.tasks.text_model import TextModel

_TABLE = "embeddings/word_embeddings"


class UsedRows:
    """Rows of an encoder's token table that some examples use, in order of the ids."""

    def __init__(
        self, start: PretrainedEncoder, examples: Iterable[EncodedExamples] = ()
    ):
        table_VE = start.weights[_TABLE]
        ids = [np.append(np.unique(e.ids.values), e.ids.padding) for e in examples]
        self._ids = np.unique(np.concatenate([[0], *ids]))
        ones_1E = np.ones_like(table_VE[:1])
        rows_RE = np.concatenate([table_VE[self._ids], ones_1E])
        self.row_of_id = np.full(len(table_VE), len(rows_RE), np.int32)
        """Row of each id; that of an id without a row is an error of the lookup."""
        self.row_of_id[self._ids] = np.arange(len(self._ids))
        self.start = dataclasses.replace(
            start,
            shape=dataclasses.replace(start.shape, vocabulary_size=len(rows_RE)),
            weights={**start.weights, _TABLE: rows_RE},
        )
        """The encoder with these rows and the row of ones."""

    def write_to(self, whole: TextModel, model: TextModel) -> None:
        """Assign all weights of `model` to a new model with the whole table."""
        table = whole.encoder.embeddings.word_embeddings
        rows_RE = model.encoder.embeddings.word_embeddings.numpy()
        table_VE = table.numpy() * rows_RE[-1]
        table_VE[self._ids] = rows_RE[:-1]
        for target, weight in zip(whole.weights, model.weights, strict=True):
            target.assign(table_VE if target is table else weight)
