"""Weights for a vocabulary that extends the one they were trained with."""

import re
from collections.abc import Mapping

import numpy as np

from electra_tf.errors import InputError
from electra_tf.interop.model import ADD_VOCABULARY, BIAS, TABLE
from electra_tf.text.tokenizer import WordPieceTokenizer
from electra_tf.text.vocab import CONTINUATION, UNKNOWN

# Rows that BERT's vocabularies reserve for one's own words.
_UNUSED = re.compile(r"\[unused\d+\]")
_FREE = ("max_word_characters", "vocabulary_sha256", "vocabulary_size")


def check_vocabulary(
    old: WordPieceTokenizer | None, new: WordPieceTokenizer, source: str
) -> None:
    """Reject a vocabulary that neither equals nor extends that of a source."""
    if old is None:
        raise InputError(f"{source} has no vocabulary; {ADD_VOCABULARY}")
    # Other limits and more entries kept whole change no weight.
    free, now = {}, new.identity()
    for name, value in old.identity().items():
        is_longer = isinstance(value, tuple) and set(value) <= set(now[name])
        free |= {name: now[name]} if name in _FREE or is_longer else {}
    new.check_identity({**old.identity(), **free}, source)
    before, now = old.vocabulary.tokens, new.vocabulary.tokens
    here = next(
        (
            i for i, (a, b) in enumerate(zip(before, now, strict=False))
            if a != b and not _UNUSED.fullmatch(a)
        ),
        len(now),
    )  # fmt: skip
    if here < len(before):
        other = repr(now[here]) if here < len(now) else "the end of the vocabulary"
        raise InputError(
            f"the records' vocabulary neither is that of {source} nor extends it: "
            f"entry {here} is {before[here]!r}, in the records {other}; build the "
            "records with the checkpoint's vocab.txt, or with a copy that has new "
            "entries at its end or in place of [unusedN]"
        )


def new_entries(old: WordPieceTokenizer, new: WordPieceTokenizer) -> dict[int, str]:
    """Return by id the entries that a vocabulary appends or writes over [unusedN]."""
    before = old.vocabulary.tokens
    return {
        number: entry
        for number, entry in enumerate(new.vocabulary.tokens)
        if number >= len(before) or before[number] != entry
    }


def extend_rows(
    arrays: Mapping[str, np.ndarray],
    old: WordPieceTokenizer,
    new: WordPieceTokenizer,
    spare_rows: int,
) -> dict[str, np.ndarray]:
    """Return weights with rows for the new entries of a vocabulary.

    An entry's embedding, and its bias in a masked-LM head, start as the mean of those
    of the wordpieces that spelt it before, and so does its logit. `spare_rows` of the
    new tables have no entry: the last ones of the old tables and zeros.
    """
    entries = new_entries(old, new)
    unknown, pieces = [old.vocabulary.ids[UNKNOWN]], {}
    for number, entry in entries.items():  # which may have signs and capitals
        ids = old.spell(entry)
        if ids == unknown and not entry.startswith(CONTINUATION):
            ids = old.encode(entry)
        pieces[number] = ids or unknown
    extended = dict(arrays)
    for path, array in arrays.items():
        if path.endswith((TABLE, BIAS)):
            entries, spare = np.split(array, [len(old.vocabulary)])
            rows = len(new.vocabulary) + spare_rows
            extended[path] = np.zeros((rows, *array.shape[1:]), array.dtype)
            if kept := min(spare_rows, len(spare)):
                extended[path][-kept:] = spare[-kept:]
            extended[path][: len(entries)] = entries
            for row, ids in pieces.items():
                extended[path][row] = array[ids].mean(axis=0)
    return extended
