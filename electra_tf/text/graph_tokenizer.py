"""The tokenizer as TensorFlow operations, for tf.data and for exported models.

Of tensorflow-text it needs `WordpieceTokenizeWithOffsets` alone, which stock TF Serving
has; all else is core TensorFlow. `tf.strings.lower` is avoided: it follows the locale
of the process (under LANG=tr_TR it turns I into a dotless i).
"""

import functools
import unicodedata
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from electra_tf.config.pretraining import TokenizationConfig
from electra_tf.errors import InputError
from electra_tf.text.normalization import CharacterTable, is_dropped, ranges
from electra_tf.text.tokenizer import MAX_WORD_CHARACTERS
from electra_tf.text.vocab import CONTINUATION, UNKNOWN, Vocabulary

_CODES = 0x110000
_BLOCK = 128
_SELF = 0  # in a block: the character itself; NUL is always dropped, so 0 is free
_SPACE = ord(" ")


class TokenOffsets(NamedTuple):
    """Pieces, and which characters of their text they are made of.

    Characters are code points of the text without its invalid bytes. All three are
    int32, [B, (pieces)].
    """

    ids: tf.RaggedTensor
    first: tf.RaggedTensor
    """The first character of each piece."""
    beyond: tf.RaggedTensor
    """The one beyond its last; combining marks go with the letter before them."""


class GraphTokenizer(tf.Module):
    """Maps a tensor of strings to ragged ids, equal to `Tokenizer.encode`.

    Args:
        vocabulary: The pieces.
        settings: How text becomes words.
    """

    def __init__(self, vocabulary: Vocabulary, settings: TokenizationConfig):
        super().__init__()
        self._lower_case = settings.lower_case
        self._final_sigma = final_sigma_pattern() if settings.lower_case else ""
        block_of, splits, values = _compiled(settings)
        self._block_of = tf.constant(block_of)
        self._starts = tf.constant(splits[:-1], tf.int32)
        self._lengths = tf.constant(np.diff(splits), tf.int32)
        self._values = tf.constant(values)
        self._longest = int(np.diff(splits).max())
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
        self._unknown = vocabulary.ids[UNKNOWN]
        lengths = [len(token.removeprefix(CONTINUATION)) for token in vocabulary.tokens]
        self._piece_lengths = tf.constant(lengths, tf.int32)
        self._mark_bounds = tf.constant(mark_bounds(), tf.int32)

    def __call__(self, text_B: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of each text, int32, [B, (pieces)].

        Args:
            text_B: UTF-8 strings; invalid bytes are dropped.

        Raises:
            InputError: Not a tensor of one axis.
        """
        return self._pieces(_words(self.normalize(_texts(text_B)))).merge_dims(1, 2)

    def with_places(self, text_B: tf.Tensor) -> TokenOffsets:
        """Returns the ids of each text and where they come from.

        Equal to `tasks.squad_answers.piece_characters`, which compares the pieces and
        may find no way back; no text is known where it does not.

        Args:
            text_B: UTF-8 strings; invalid bytes are dropped.

        Raises:
            InputError: Not a tensor of one axis.
        """
        codes = self._decoded(_texts(text_B))
        made = self._made(codes)
        words = _words(_encoded(made))
        pieces = self._pieces(words)
        # The characters that WordPiece sees are all that was made but spaces. Of them
        # each piece takes as many as it has, [UNK] those of its word.
        seen = made.flat_values != _SPACE
        origin = tf.repeat(_range_of(codes.flat_values), made.values.row_lengths())
        origin = tf.boolean_mask(origin, seen)
        whole = tf.strings.length(words.values, "UTF8_CHAR")
        whole = tf.repeat(whole, pieces.values.row_lengths())
        ids = pieces.merge_dims(1, 2)
        own = tf.gather(self._piece_lengths, ids.values)
        own = tf.where(ids.values == self._unknown, whole, own)
        ends = tf.cumsum(own)
        first = tf.gather(origin, ends - own)
        beyond = tf.gather(self._beyond_marks(codes), tf.gather(origin, ends - 1))
        base = tf.cast(tf.repeat(codes.row_starts(), ids.row_lengths()), tf.int32)
        return TokenOffsets(
            ids, ids.with_values(first - base), ids.with_values(beyond - base)
        )

    def normalize(self, text_B: tf.Tensor) -> tf.Tensor:
        """Returns each text cleaned, with its words set apart by single spaces."""
        return _encoded(self._made(self._decoded(text_B)))

    def _decoded(self, text_B: tf.Tensor) -> tf.RaggedTensor:
        """Code points, with each final capital sigma written as the small one."""
        text_B = drop_invalid_utf8(text_B)
        if self._lower_case:
            text_B = tf.strings.regex_replace(text_B, self._final_sigma, r"\1ς\2")
        return tf.strings.unicode_decode(text_B, "UTF-8")

    def _made(self, codes: tf.RaggedTensor) -> tf.RaggedTensor:
        """What becomes of each code point, [B, (characters), (code points)]."""
        code = codes.values
        row = tf.gather(self._block_of, code // _BLOCK) * _BLOCK + code % _BLOCK
        # tf.gather of a ragged table looks through the whole of it, each time.
        lengths = tf.gather(self._lengths, row)
        shown = tf.where(tf.range(self._longest) < lengths[:, None])
        origin, place = tf.unstack(tf.cast(shown, tf.int32), axis=1)
        made = tf.gather(
            self._values, tf.gather(self._starts, tf.gather(row, origin)) + place
        )
        made = tf.where(made == _SELF, tf.gather(code, origin), made)
        return codes.with_values(
            tf.RaggedTensor.from_row_lengths(
                made, tf.cast(lengths, tf.int64), validate=False
            )
        )

    def _pieces(self, words: tf.RaggedTensor) -> tf.RaggedTensor:
        """From words, [B, (words)], to ids, int32 [B, (words), (pieces)]."""
        # The kernel's limit is in bytes and lets any word of 200 characters pass. A
        # longer word is replaced by one that exceeds it, and so becomes [UNK].
        too_long = tf.strings.length(words.values, "UTF8_CHAR") > MAX_WORD_CHARACTERS
        unreadable = "x" * (4 * MAX_WORD_CHARACTERS + 1)
        words = words.with_values(tf.where(too_long, unreadable, words.values))
        return tf.cast(self._wordpiece.tokenize(words), tf.int32)

    def _beyond_marks(self, codes: tf.RaggedTensor) -> tf.Tensor:
        """For each character of all texts, the place beyond it and its marks."""
        code = codes.flat_values
        bounds = tf.searchsorted(self._mark_bounds, code, "right")
        opens = (bounds % 2 == 0) | (tf.ragged.range(codes.row_lengths()).values == 0)
        places = tf.boolean_mask(_range_of(code), opens)
        ends = tf.concat([places[1:], [tf.size(code)]], 0)
        return tf.gather(ends, tf.cumsum(tf.cast(opens, tf.int32)) - 1)


def drop_invalid_utf8(text_B: tf.Tensor) -> tf.Tensor:
    """Returns texts without invalid bytes, as `bytes.decode(errors="ignore")`.

    Args:
        text_B: Strings that should be UTF-8.
    """
    return tf.strings.unicode_transcode(text_B, "UTF-8", "UTF-8", errors="ignore")


def _texts(text_B: tf.Tensor) -> tf.Tensor:
    text_B = tf.convert_to_tensor(text_B, tf.string)
    if text_B.shape.rank != 1:
        raise InputError(
            "The tokenizer of the graph takes a batch of texts, [B]",
            f"the shape {text_B.shape}",
            "Pass [text] for a single one, or reshape",
        )
    return text_B


def _encoded(made: tf.RaggedTensor) -> tf.Tensor:
    """Texts of what was made, with single spaces."""
    text_B = tf.strings.unicode_encode(made.merge_dims(1, 2), "UTF-8")
    return tf.strings.strip(tf.strings.regex_replace(text_B, " +", " "))


def _words(text_B: tf.Tensor) -> tf.RaggedTensor:
    return tf.strings.split(text_B, sep=" ")


def _range_of(values: tf.Tensor) -> tf.Tensor:
    return tf.range(tf.size(values))


@functools.cache
def _compiled(
    settings: TokenizationConfig,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    # It takes seconds, and an exported model has several tokenizers.
    return compile_table(CharacterTable(settings))


def compile_table(
    characters: CharacterTable,
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
    gone = _dropped().reshape(-1, _BLOCK).all(axis=1)  # three of four blocks are
    for start, is_gone in zip(range(0, _CODES, _BLOCK), gone, strict=True):
        block = (
            ((),) * _BLOCK
            if is_gone
            else tuple(
                tuple(_SELF if ord(c) == code else ord(c) for c in characters[code])
                for code in range(start, start + _BLOCK)
            )
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
    for code in np.flatnonzero(~_dropped()).tolist():
        character = chr(code)
        if f"ΑΣ{character}Α".lower()[1] != "σ":
            continue  # neither: the sigma before it is final whatever follows
        (cased if f"ΑΣ{character}".lower()[1] == "σ" else ignorable).append(code)
    # Dropped characters are gone before the original lower-cases.
    ignorable += np.flatnonzero(_dropped()).tolist()
    cased, ignorable = _re2_class(cased), _re2_class(ignorable)
    return f"([{cased}][{ignorable}]*)Σ([{ignorable}]*(?:[^{cased}{ignorable}]|$))"


@functools.cache
def _dropped() -> np.ndarray:
    """Whether each code point is dropped: most are unassigned."""
    codes = map(chr, range(_CODES))
    return np.fromiter(map(is_dropped, codes), bool, _CODES)


@functools.cache
def mark_bounds() -> tuple[int, ...]:
    """Returns the first code point of each run of marks (M*), and the one beyond it."""
    marks = (c for c in range(_CODES) if unicodedata.category(chr(c))[0] == "M")
    return tuple(bound for a, b in ranges(marks) for bound in (a, b + 1))


def _re2_class(codes: list[int]) -> str:
    return "".join(rf"\x{{{first:x}}}-\x{{{last:x}}}" for first, last in ranges(codes))
