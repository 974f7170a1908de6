"""The tokenizer as TensorFlow operations, for tf.data and for exported models.

Of tensorflow-text it needs `WordpieceTokenizeWithOffsets` alone, which stock TF Serving
has; all else is core TensorFlow. `tf.strings.lower` is avoided: it follows the locale
of the process (under LANG=tr_TR it turns I into a dotless i).
"""

import functools

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from electra_tf.errors import InputError
from electra_tf.settings import Tokenization
from electra_tf.text.characters import Characters, is_dropped, ranges
from electra_tf.text.tokenizer import MAX_WORD_CHARACTERS
from electra_tf.text.vocab import CONTINUATION, UNKNOWN, Vocabulary

_CODES = 0x110000
_BLOCK = 128
_SELF = 0  # in a block: the character itself; NUL is always dropped, so 0 is free


class GraphTokenizer(tf.Module):
    """Maps a tensor of strings to ragged ids, equal to `Tokenizer.encode`.

    Args:
        vocabulary: The pieces.
        settings: Whether to lower-case and to strip accents.
    """

    def __init__(self, vocabulary: Vocabulary, settings: Tokenization):
        super().__init__()
        self._lower_case = settings.lower_case
        self._final_sigma = final_sigma_pattern() if settings.lower_case else ""
        block_of, splits, values = compile_table(Characters(settings))
        self._block_of = tf.constant(block_of)
        self._table = tf.RaggedTensor.from_row_splits(values, splits, validate=False)
        self._lookup = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(
                list(vocabulary.tokens), np.arange(len(vocabulary), dtype=np.int64)
            ),
            default_value=-1,
        )
        self._wordpiece = tf_text.WordpieceTokenizer(
            self._lookup,
            suffix_indicator=CONTINUATION,
            unknown_token=UNKNOWN,
            max_bytes_per_word=4 * MAX_WORD_CHARACTERS,
        )

    def __call__(self, text_B: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of each text, int32, [B, (pieces)].

        Args:
            text_B: UTF-8 strings; invalid bytes are dropped.

        Raises:
            InputError: Not a tensor of one axis.
        """
        text_B = tf.convert_to_tensor(text_B, tf.string)
        if text_B.shape.rank != 1:
            raise InputError(
                "The tokenizer of the graph takes a batch of texts, [B]",
                f"the shape {text_B.shape}",
                "Pass [text] for a single one, or reshape",
            )
        words = tf.strings.split(self.normalize(text_B), sep=" ")
        # The kernel's limit is in bytes and lets any word of 200 characters pass. A
        # longer word is replaced by one that exceeds it, and so becomes [UNK].
        too_long = tf.strings.length(words.values, "UTF8_CHAR") > MAX_WORD_CHARACTERS
        unreadable = "x" * (4 * MAX_WORD_CHARACTERS + 1)
        words = words.with_values(tf.where(too_long, unreadable, words.values))
        ids = self._wordpiece.tokenize(words).merge_dims(1, 2)
        return tf.cast(ids, tf.int32)

    def normalize(self, text_B: tf.Tensor) -> tf.Tensor:
        """Returns each text cleaned, with its words set apart by single spaces."""
        text_B = tf.strings.unicode_transcode(text_B, "UTF-8", "UTF-8", errors="ignore")
        if self._lower_case:
            text_B = tf.strings.regex_replace(text_B, self._final_sigma, r"\1ς\2")
        codes = tf.strings.unicode_decode(text_B, "UTF-8")
        code = codes.values
        row = tf.gather(self._block_of, code // _BLOCK) * _BLOCK + code % _BLOCK
        become = tf.gather(self._table, row)
        itself = tf.repeat(code, become.row_lengths())
        flat = tf.where(become.values == _SELF, itself, become.values)
        text_B = tf.strings.unicode_encode(
            codes.with_values(become.with_values(flat)).merge_dims(1, 2), "UTF-8"
        )
        text_B = tf.strings.regex_replace(text_B, " +", " ")
        return tf.strings.strip(text_B)


def compile_table(
    characters: Characters,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Packs the table into blocks of code points, equal blocks kept once.

    Args:
        characters: From code point to string.

    Returns:
        block_of: For each block of 128 code points, which kept block it equals.
        splits, values: The kept blocks as ragged rows, one row of code points per
            character; 0 stands for the character itself.
    """
    kept: dict[tuple[tuple[int, ...], ...], int] = {}
    block_of = []
    for start in range(0, _CODES, _BLOCK):
        block = tuple(
            tuple(_SELF if ord(c) == code else ord(c) for c in characters[code])
            for code in range(start, start + _BLOCK)
        )
        block_of.append(kept.setdefault(block, len(kept)))
    rows = [row for block in kept for row in block]
    splits = np.cumsum([0, *map(len, rows)])
    values = np.array([code for row in rows for code in row], np.int32)
    return np.array(block_of, np.int32), splits.astype(np.int64), values


@functools.cache
def final_sigma_pattern() -> str:
    """An RE2 pattern of a capital sigma that lower-cases to the final form.

    That is one after a cased letter and before none, ignorable characters aside
    (Unicode, SpecialCasing). Which ones those are is asked of `str.lower`.
    """
    cased, ignorable = [], []
    for code in range(_CODES):
        character = chr(code)
        if 0xD800 <= code < 0xE000:
            continue
        if f"ΑΣ{character}Α".lower()[1] != "σ":
            continue  # neither: the sigma before it is final whatever follows
        (cased if f"ΑΣ{character}".lower()[1] == "σ" else ignorable).append(code)
    # Dropped characters are gone before the original lower-cases.
    ignorable += [code for code in range(_CODES) if is_dropped(chr(code))]
    cased, ignorable = _re2_class(cased), _re2_class(ignorable)
    return f"([{cased}][{ignorable}]*)Σ([{ignorable}]*(?:[^{cased}{ignorable}]|$))"


def _re2_class(codes: list[int]) -> str:
    return "".join(rf"\x{{{first:x}}}-\x{{{last:x}}}" for first, last in ranges(codes))
