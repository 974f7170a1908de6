"""The tokenizer as TensorFlow operations, for tf.data and for exported models.

`WordpieceTokenizeWithOffsets` is the only operation of tensorflow-text, so that stock
TF Serving can run the graph. `tf.strings.lower` is not used, because its result depends
on the locale of the process (under LANG=tr_TR, I becomes a dotless i).
"""

import dataclasses
import functools
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from electra_tf.config.data import TokenizationConfig
from electra_tf.errors import InputError
from electra_tf.text.normalization import (
    CharacterTable,
    WholeEntries,
    is_dropped,
    ranges,
)
from electra_tf.text.vocab import CONTINUATION, UNKNOWN, Vocabulary

_CODES = 0x110000
_BLOCK = 128
_SELF = 0  # in a block: the character itself; NUL is always dropped, so 0 is unused
_SPACE, _LETTER = ord(" "), ord("a")
# Private characters, which are dropped from all texts, enclose entries that are kept
# whole; the last one replaces those that a text has.
_BEGIN, _END, _DROPPED = 0x10FFF0, 0x10FFF1, 0x10FFF2
_MARKS = rf"[\x{{{_BEGIN:x}}}-\x{{{_END:x}}}]"


class TokenOffsets(NamedTuple):
    """Wordpieces and the range of characters that each of them covers.

    Characters are code points of the text without invalid bytes. All three tensors
    are int32, [B, (wordpieces)].
    """

    ids: tf.RaggedTensor
    starts: tf.RaggedTensor
    """Index of the first character of each wordpiece."""
    ends: tf.RaggedTensor
    """Index after its last character, combining marks included."""


class WordOffsets(NamedTuple):
    """Words of texts and the characters, without invalid bytes, that they cover."""

    codes: tf.RaggedTensor
    """Code points of the texts, int32 [B, (characters)]."""
    starts: tf.RaggedTensor
    """Index of the first character of each word, int32 [B, (words)]."""
    ends: tf.RaggedTensor
    """Index after the last one, likewise."""


class GraphTokenizer(tf.Module):
    """Map a tensor of strings to ragged ids, equal to `Tokenizer.encode`.

    Invalid bytes of UTF-8 are dropped.
    """

    def __init__(self, vocabulary: Vocabulary, settings: TokenizationConfig):
        super().__init__()
        self._lower_case = settings.lower_case
        self._whole = WholeEntries(settings)
        marks = range(_BEGIN, _DROPPED) if self._whole else ()
        self._final_sigma = final_sigma_pattern(marks) if settings.lower_case else ""
        block_of, splits, values = compile_table(
            dataclasses.replace(settings, keep_whole=())
        )
        self._block_of = tf.constant(block_of)
        self._starts = tf.constant(splits[:-1], tf.int32)
        self._lengths = tf.constant(np.diff(splits), tf.int32)
        self._values = tf.constant(values)
        self._longest = int(np.diff(splits).max())
        ids = np.arange(len(vocabulary), dtype=np.int64)
        self._lookup = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(list(vocabulary.tokens), ids),
            default_value=-1,
        )
        self._max_characters = settings.max_word_characters
        self._wordpiece = tf_text.WordpieceTokenizer(
            self._lookup,
            suffix_indicator=CONTINUATION,
            unknown_token=UNKNOWN,
            max_bytes_per_word=4 * self._max_characters,
        )
        self._unknown = vocabulary.ids[UNKNOWN]
        lengths = [len(token.removeprefix(CONTINUATION)) for token in vocabulary.tokens]
        self._piece_lengths = tf.constant(lengths, tf.int32)
        self._mark_bounds = tf.constant(mark_bounds(), tf.int32)

    def __call__(self, text_B: tf.Tensor) -> tf.RaggedTensor:
        """Return the ids of each text, int32, [B, (wordpieces)]."""
        words = tf.strings.split(self.normalize(_text_batch(text_B)), sep=" ")
        return self._wordpieces(words).merge_dims(1, 2)

    def encode_with_offsets(self, text_B: tf.Tensor) -> TokenOffsets:
        """Return the ids of each text and the characters that they cover.

        The offsets equal those of `Tokenizer.piece_offsets`.
        """
        codes = self._decode(_text_batch(text_B))
        normalized = self._normalize(codes)
        words = tf.strings.split(_encode(normalized), sep=" ")
        wordpieces = self._wordpieces(words)
        lengths = tf.gather(self._piece_lengths, wordpieces.flat_values)
        # Each wordpiece covers as many characters as it has, [UNK] those of its word.
        word_lengths = tf.strings.length(words.values, "UTF8_CHAR")
        word_lengths = repeat_rows(word_lengths, wordpieces.values.row_lengths())
        ids = wordpieces.merge_dims(1, 2)
        lengths = tf.where(ids.values == self._unknown, word_lengths, lengths)
        starts, ends = self._covered(codes, normalized, lengths)
        base = tf.gather(self._text_index(codes.flat_values), codes.row_starts())
        base = repeat_rows(base, ids.row_lengths())
        return TokenOffsets(
            ids, ids.with_values(starts - base), ids.with_values(ends - base)
        )

    def word_offsets(self, text_B: tf.Tensor) -> WordOffsets:
        """Return the words of each text, equal to those of `Tokenizer.word_offsets`."""
        text_B = drop_invalid_utf8(_text_batch(text_B))
        codes = self._decode(text_B)
        normalized = self._normalize(codes)
        words = tf.strings.split(_encode(normalized))
        lengths = tf.strings.length(words.values, "UTF8_CHAR")
        starts, ends = self._covered(codes, normalized, lengths)
        # Without stripped accents, a mark after punctuation begins a word.
        ends = tf.minimum(ends, tf.concat([starts[1:], [tf.int32.max]], 0))
        text = tf.strings.unicode_decode(text_B, "UTF-8")
        base = repeat_rows(tf.cast(text.row_starts(), tf.int32), words.row_lengths())
        return WordOffsets(
            text, words.with_values(starts - base), words.with_values(ends - base)
        )

    def _covered(
        self, codes: tf.RaggedTensor, normalized: tf.RaggedTensor, lengths: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the characters, in all texts, of consecutive parts.

        Args:
            codes: Characters, with the marks of entries that are kept whole.
            normalized: Their results, which WordPiece reads without spaces.
            lengths: How many of these each part has.
        """
        is_visible = normalized.flat_values != _SPACE
        origin = repeat_rows(
            tf.range(tf.size(codes.flat_values)), normalized.values.row_lengths()
        )
        origin = tf.boolean_mask(origin, is_visible)
        visible_ends = tf.cumsum(lengths)
        index = self._text_index(codes.flat_values)
        starts = tf.gather(index, tf.gather(origin, visible_ends - lengths))
        ends = tf.gather(
            self._ends_of_marks(codes), tf.gather(origin, visible_ends - 1)
        )
        return starts, tf.gather(index, ends)

    def normalize(self, text_B: tf.Tensor) -> tf.Tensor:
        """Return the normalized texts, with single spaces between words."""
        return _encode(self._normalize(self._decode(text_B)))

    def _decode(self, text_B: tf.Tensor) -> tf.RaggedTensor:
        """Return code points, with final capital sigmas replaced by the small one.

        Entries that are kept whole are enclosed in `_BEGIN` and `_END`.
        """
        text_B = drop_invalid_utf8(text_B)
        if self._whole:
            text_B = tf.strings.regex_replace(text_B, _MARKS, chr(_DROPPED))
            rewrite = rf"{chr(_BEGIN)}\1{chr(_END)}"
            text_B = tf.strings.regex_replace(text_B, self._whole.pattern, rewrite)
        if self._lower_case:
            text_B = tf.strings.regex_replace(text_B, self._final_sigma, r"\1ς\2")
        return tf.strings.unicode_decode(text_B, "UTF-8")

    def _normalize(self, codes: tf.RaggedTensor) -> tf.RaggedTensor:
        """Return the result of each code point, [B, (characters), (code points)]."""
        code = codes.values
        visible = code
        if self._whole:
            visible = tf.where(self._is_mark(code), _SPACE, code)
            steps = tf.cast(code == _BEGIN, tf.int32) - tf.cast(code == _END, tf.int32)
            # A letter remains itself.
            code = tf.where(tf.cumsum(steps) > 0, _LETTER, visible)
        row = tf.gather(self._block_of, code // _BLOCK) * _BLOCK + code % _BLOCK
        # tf.gather of a ragged table reads the whole table on every call.
        lengths = tf.gather(self._lengths, row)
        used = tf.where(tf.range(self._longest) < lengths[:, None])
        origin, offset = tf.unstack(tf.cast(used, tf.int32), axis=1)
        values = tf.gather(
            self._values, tf.gather(self._starts, tf.gather(row, origin)) + offset
        )
        values = tf.where(values == _SELF, tf.gather(visible, origin), values)
        return codes.with_values(
            tf.RaggedTensor.from_row_lengths(
                values, tf.cast(lengths, tf.int64), validate=False
            )
        )

    def _wordpieces(self, words: tf.RaggedTensor) -> tf.RaggedTensor:
        """Map words, [B, (words)], to ids, int32 [B, (words), (wordpieces)]."""
        # The limit of the kernel is in bytes and accepts all words of at most
        # `max_word_characters`. A longer word is replaced by one over the limit, so
        # that it becomes [UNK].
        lengths = tf.strings.length(words.values, "UTF8_CHAR")
        too_long = lengths > self._max_characters
        rejected = "x" * (4 * self._max_characters + 1)
        words = words.with_values(tf.where(too_long, rejected, words.values))
        return tf.cast(self._wordpiece.tokenize(words), tf.int32)

    def _is_mark(self, code: tf.Tensor) -> tf.Tensor:
        """Return whether each code point encloses an entry that is kept whole."""
        return bool(self._whole) & (code >= _BEGIN) & (code <= _END)

    def _text_index(self, code: tf.Tensor) -> tf.Tensor:
        """Return for each code point, and the end, how many of the text precede it."""
        is_text = tf.cast(~self._is_mark(code), tf.int32)
        return tf.concat([[0], tf.cumsum(is_text)], 0)

    def _ends_of_marks(self, codes: tf.RaggedTensor) -> tf.Tensor:
        """Return for each character the index after it and its marks."""
        code = codes.flat_values
        bounds = tf.searchsorted(self._mark_bounds, code, "right")
        is_first = tf.ragged.range(codes.row_lengths()).values == 0
        is_base = is_first | (bounds % 2 == 0) & ~self._is_mark(code)
        starts = tf.boolean_mask(tf.range(tf.size(code)), is_base)
        ends = tf.concat([starts[1:], [tf.size(code)]], 0)
        return tf.gather(ends, tf.cumsum(tf.cast(is_base, tf.int32)) - 1)


def drop_invalid_utf8(text_B: tf.Tensor) -> tf.Tensor:
    """Return texts without invalid bytes, as `bytes.decode(errors="ignore")`."""
    return tf.strings.unicode_transcode(text_B, "UTF-8", "UTF-8", errors="ignore")


def substrings(
    codes: tf.RaggedTensor, starts: tf.RaggedTensor, ends: tf.RaggedTensor
) -> tf.RaggedTensor:
    """Return parts of texts, given their characters, as strings [B, (parts)]."""
    base = repeat_rows(tf.cast(codes.row_starts(), tf.int32), starts.row_lengths())
    index = tf.ragged.range(base + starts.values, base + ends.values)
    parts = index.with_values(tf.gather(codes.values, index.values))
    return starts.with_values(tf.strings.unicode_encode(parts, "UTF-8"))


def _text_batch(text_B: tf.Tensor) -> tf.Tensor:
    text_B = tf.convert_to_tensor(text_B, tf.string)
    if text_B.shape.rank != 1:
        raise InputError(
            f"Texts in a graph must have the shape [B], not {text_B.shape}"
        )
    return text_B


def _encode(codes: tf.RaggedTensor) -> tf.Tensor:
    """Return the texts of normalized code points, with single spaces."""
    text_B = tf.strings.unicode_encode(codes.merge_dims(1, 2), "UTF-8")
    return tf.strings.strip(tf.strings.regex_replace(text_B, " +", " "))


def repeat_rows(values_B: tf.Tensor, lengths_B: tf.Tensor) -> tf.Tensor:
    """Return each value as many times as its length, in order.

    `tf.repeat` allocates a matrix of all values times the greatest length. One long
    text among many short ones would fill the memory of a server.
    """
    ends_B = tf.cumsum(lengths_B)
    total = tf.reduce_sum(lengths_B)
    return tf.gather(values_B, tf.searchsorted(ends_B, tf.range(total), "right"))


@functools.cache  # it takes seconds, and an exported model has several tokenizers
def compile_table(
    settings: TokenizationConfig,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pack the `CharacterTable` into blocks of code points, without duplicates.

    Returns:
        block_of: For each block of 128 code points, the number of its unique block.
        splits, values: The unique blocks as ragged rows, one row of code points per
            character; 0 means the character itself.
    """
    characters, block_of = CharacterTable(settings), []
    unique: dict[tuple[tuple[int, ...], ...], int] = {}
    empty = _dropped_codes().reshape(-1, _BLOCK).all(axis=1)  # three of four blocks
    for start, is_empty in zip(range(0, _CODES, _BLOCK), empty, strict=True):
        block = (
            ((),) * _BLOCK
            if is_empty
            else tuple(
                tuple(_SELF if ord(c) == code else ord(c) for c in characters[code])
                for code in range(start, start + _BLOCK)
            )
        )
        block_of.append(unique.setdefault(block, len(unique)))
    rows = [row for block in unique for row in block]
    splits = np.cumsum([0, *map(len, rows)])
    values = np.array([code for row in rows for code in row], np.int32)
    return np.array(block_of, np.int32), splits.astype(np.int64), values


@functools.cache
def final_sigma_pattern(ends: Sequence[int] = ()) -> str:
    """Return an RE2 pattern of a capital sigma that lower-cases to the final form.

    Such a sigma follows a cased letter and precedes none, ignorable characters
    aside (Unicode, SpecialCasing). `str.lower` determines both character classes.
    """
    cased, ignorable = [], []
    for code in np.flatnonzero(~_dropped_codes()).tolist():
        character = chr(code)
        if f"ΑΣ{character}Α".lower()[1] != "σ":
            continue  # neither cased nor ignorable: the sigma before it is final
        (cased if f"ΑΣ{character}".lower()[1] == "σ" else ignorable).append(code)
    # The original drops characters before it lower-cases.
    dropped = np.flatnonzero(_dropped_codes()).tolist()
    ignorable += [code for code in dropped if code not in ends]
    cased, ignorable = _re2_class(cased), _re2_class(ignorable)
    return f"([{cased}][{ignorable}]*)Σ([{ignorable}]*(?:[^{cased}{ignorable}]|$))"


@functools.cache
def _dropped_codes() -> np.ndarray:
    """Return for each code point whether it is dropped; most are unassigned."""
    codes = map(chr, range(_CODES))
    return np.fromiter(map(is_dropped, codes), bool, _CODES)


@functools.cache
def mark_bounds() -> tuple[int, ...]:
    """Return the first code point of each run of marks (M*) and the one after it."""
    marks = (c for c in range(_CODES) if unicodedata.category(chr(c))[0] == "M")
    return tuple(bound for a, b in ranges(marks) for bound in (a, b + 1))


def _re2_class(codes: list[int]) -> str:
    return "".join(rf"\x{{{first:x}}}-\x{{{last:x}}}" for first, last in ranges(codes))
