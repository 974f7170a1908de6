"""Weights for a vocabulary that extends the one they were trained with."""

from collections.abc import Mapping

import numpy as np

from electra_tf.errors import InputError
from electra_tf.interop.pretrained import BIAS, TABLE
from electra_tf.text.tokenizer import Tokenizer


def check_vocabulary(old: Tokenizer | None, new: Tokenizer, source: str) -> None:
    """Reject a vocabulary that neither equals nor extends that of a source.

    Args:
        old: The source's tokenizer; None where it has none.
        new: The tokenizer of the records.
        source: Path of the source, for the message.

    Raises:
        InputError: No vocabulary, other settings, or an entry that differs; the message
            names the first one.
    """
    required = (
        "The records must have the vocabulary of the initial checkpoint, or one that "
        "appends entries to it"
    )
    if old is None:
        raise InputError(
            required,
            f"{source} without a vocabulary",
            "Copy the model's vocab.txt beside its weights, or pass --vocab to "
            "`electra-tf convert` and begin from the result",
        )
    if old.settings != new.settings:
        raise InputError(
            "The tokenizer's settings must be those of the initial checkpoint",
            f"{old.settings} in {source}, {new.settings} in the records",
            "Build the records with the checkpoint's vocabulary and settings",
        )
    before, now = old.vocabulary.tokens, new.vocabulary.tokens
    if now[: len(before)] == before:
        return
    here = next(
        (i for i, (a, b) in enumerate(zip(before, now, strict=False)) if a != b),
        len(now),
    )
    other = repr(now[here]) if here < len(now) else "the end of the vocabulary"
    raise InputError(
        required,
        f"{source}: entry {here} is {before[here]!r}, in the records {other}",
        "Build the records with the checkpoint's vocab.txt, or with a copy that has "
        "new entries at its end",
    )


def extend_rows(
    arrays: Mapping[str, np.ndarray], old: Tokenizer, new: Tokenizer, spare_rows: int
) -> dict[str, np.ndarray]:
    """Return weights with rows for the entries that a vocabulary appends.

    An appended entry was spelt with several wordpieces before. Its embedding, and its
    bias in a masked-LM head, start as the mean of theirs, so its logit starts as the
    mean of their logits.

    Args:
        arrays: Weights by path: token tables [V, E], output biases [V], others.
        old: The tokenizer of the weights.
        new: The tokenizer that extends it.
        spare_rows: Rows of the new tables without an entry, the last ones of the old
            tables and zeros.

    Returns:
        The weights by path.
    """
    appended = new.vocabulary.tokens[len(old.vocabulary) :]
    pieces = [old.spell(entry) for entry in appended]
    extended = dict(arrays)
    for path, array in arrays.items():
        if path.endswith((TABLE, BIAS)):
            entries, spare = np.split(array, [len(old.vocabulary)])
            rows = len(new.vocabulary) + spare_rows
            extended[path] = np.zeros((rows, *array.shape[1:]), array.dtype)
            if kept := min(spare_rows, len(spare)):
                extended[path][-kept:] = spare[-kept:]
            extended[path][: len(entries)] = entries
            for row, ids in enumerate(pieces, len(entries)):
                extended[path][row] = array[ids].mean(axis=0)
    return extended
