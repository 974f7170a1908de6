"""Encode texts and words in a graph, and find the tags of words in logits.

They equal `text.encoding.encode_rows` and those of `tasks.token_classifier`. Axes: P
parts of all sentences, W words of all sentences or of the longest one.
"""

from typing import NamedTuple

import tensorflow as tf

from electra_tf.serving.export_options import LIMITS, RequestLimits
from electra_tf.text.graph_tokenizer import drop_invalid_utf8, repeat_rows
from electra_tf.text.tokenizer import WordPieceTokenizer
from electra_tf.text.vocab import CLS, MASK, SEP, UNKNOWN

_FILLER = 0
_SPECIAL = 2  # [CLS] and [SEP]
# The white space of `str.split`, as characters of an RE2 pattern.
_SPACES = (
    r"\t-\r\x1c-\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}"
    r"\x{202f}\x{205f}\x{3000}"
)
Part = tuple[tf.Tensor, tf.Tensor, tf.Tensor]
"""Wordpieces of all texts, and for each row the index of its first one and the number
of those to keep, int32."""


class WordTags(NamedTuple):
    """Predicted tags of the words of all texts."""

    tag_W: tf.Tensor  # ids of tags
    probability_W: tf.Tensor
    row_lengths_B: tf.Tensor  # words of each text


class WordAlignment(NamedTuple):
    """Position of each word in the parts."""

    words: tf.RaggedTensor  # UTF-8 strings, [B, (words)]
    part_W: tf.Tensor  # int32: the part of each word of all sentences
    position_W: tf.Tensor  # int32: the position of its first wordpiece in that part


class GraphEncoder(tf.Module):
    """Tokenizer that runs in a graph, and packs its wordpieces.

    Ids are int32 [B, L]: `token_ids`, `segment_ids` and `padding_mask`. More positions
    than the limit raise `InvalidArgumentError` at run time, before they are allocated.
    """

    def __init__(self, tokenizer: WordPieceTokenizer, limits: RequestLimits = LIMITS):
        super().__init__()
        self._limits, self.tokenize = limits, tokenizer.graph()
        self._cls, self._sep, self._unknown = (
            tokenizer.vocabulary.ids[name] for name in (CLS, SEP, UNKNOWN)
        )

    def packed(self, *parts: Part) -> dict[str, tf.Tensor]:
        """Join texts, each given by a part for every row, to a batch.

        All positions are looked up in one table of fillers, special tokens and
        wordpieces, because the time for a short text depends on the number of
        operations. There is at least one position, because the encoder reads the first.
        """
        lengths_B = 1 + tf.add_n([kept_B + 1 for _, _, kept_B in parts])
        longest = tf.maximum(tf.reduce_max(lengths_B), 1)
        within = assert_max_positions(tf.size(lengths_B), longest, self._limits)
        with tf.control_dependencies([within]):
            position_L = tf.range(longest)
        entries = [[_FILLER, self._cls, self._sep], *(ids for ids, _, _ in parts)]
        known, end_B1 = len(entries[0]), tf.ones_like(lengths_B)[:, None]
        source_BL = tf.where(position_L == 0, 1, 0)
        for ids, first_B, kept_B in parts:
            begin_B1, end_B1 = end_B1, end_B1 + kept_B[:, None]
            shift_B1 = known + tf.cast(first_B, tf.int32)[:, None] - begin_B1
            inside_BL = (position_L >= begin_B1) & (position_L < end_B1)
            source_BL = tf.where(inside_BL, position_L + shift_B1, source_BL)
            source_BL = tf.where(position_L == end_B1, 2, source_BL)
            known, end_B1 = known + tf.size(ids), end_B1 + 1
        mask_BL = position_L < end_B1
        second_BL = mask_BL & (position_L >= begin_B1) & (len(parts) > 1)
        return {
            "token_ids": tf.gather(tf.concat(entries, 0), source_BL),
            "segment_ids": tf.cast(second_BL, tf.int32),
            "padding_mask": tf.cast(mask_BL, tf.int32),
        }

    def texts(
        self, max_length: int, text_B: tf.Tensor, text_b_B: tf.Tensor | None = None
    ) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """Encode texts, or pairs with `text_b_B`, whose invalid bytes are dropped.

        Returns:
            The ids, and the number of wordpieces cut off, int32 [B].
        """
        first = self.tokenize(text_B)
        length_B = _lengths(first)
        if text_b_B is None:
            kept_B = tf.minimum(length_B, max_length - 2)
            inputs = self.packed((first.values, first.row_starts(), kept_B))
            return inputs, length_B - kept_B
        second = self.tokenize(text_b_B)
        length_b_B, room = _lengths(second), max_length - 3
        # As in `encoding.truncate`.
        kept_a_B = tf.minimum(length_B, tf.maximum(room - length_b_B, (room + 1) // 2))
        kept_b_B = tf.minimum(length_b_B, room - kept_a_B)
        inputs = self.packed(
            (first.values, first.row_starts(), kept_a_B),
            (second.values, second.row_starts(), kept_b_B),
        )
        return inputs, length_B + length_b_B - kept_a_B - kept_b_B

    def masked_texts(
        self, max_length: int, mask: int, text_B: tf.Tensor
    ) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """Encode texts as `texts` does, with the id `mask` for each `[MASK]`.

        The tokenizer itself never converts text to special tokens.
        """
        segments = tf.strings.split(text_B, MASK)
        pieces = self.tokenize(segments.values)
        masks = tf.fill([tf.size(segments.values), 1], mask)
        pieces = tf.concat([pieces, tf.RaggedTensor.from_tensor(masks)], axis=1)
        pieces = segments.with_values(pieces).merge_dims(1, 2)
        # Each segment got a mask, but no mask follows the last segment of a text.
        length_B = _lengths(pieces) - 1
        kept_B = tf.minimum(length_B, max_length - 2)
        inputs = self.packed((pieces.values, pieces.row_starts(), kept_B))
        return inputs, length_B - kept_B

    def words(
        self, words: tf.RaggedTensor, max_length: int, segment: int
    ) -> tuple[dict[str, tf.Tensor], WordAlignment]:
        """Encode words, [B, (words)], in several parts where a sentence is too long.

        Returns:
            The ids of the parts, of which a sentence without words has none, and their
            alignment. More words than the limit raise an error, too.
        """
        room = max_length - _SPECIAL
        with tf.control_dependencies([_assert_max_words(words, self._limits)]):
            # Splits too: what depends on the lengths alone must not run before.
            words = tf.RaggedTensor.from_row_splits(
                tf.identity(words.values), tf.identity(words.row_splits), validate=False
            )
        pieces = self.tokenize(words.values)
        # A word without wordpieces is [UNK].
        empty_W = tf.cast(pieces.row_lengths() == 0, tf.int64)
        unknown = tf.fill([tf.reduce_sum(empty_W)], self._unknown)
        replacement = tf.RaggedTensor.from_row_lengths(unknown, empty_W)
        pieces = tf.concat([pieces, replacement], axis=1)
        lengths_W = _lengths(pieces)
        opens_W = opens_part(lengths_W, words, room)
        part_W = tf.cumsum(tf.cast(opens_W, tf.int32)) - 1
        before_W = tf.cumsum(lengths_W, exclusive=True)
        first_P = tf.boolean_mask(before_W, opens_W)
        position_W = before_W - tf.gather(first_P, part_W) + 1
        splits = tf.concat([first_P, [tf.size(pieces.values)]], 0)
        # Only a part of a single long word is truncated.
        kept_P = tf.minimum(splits[1:] - first_P, room)
        inputs = self.packed((pieces.values, first_P, kept_P))
        inputs["segment_ids"] = inputs["padding_mask"] * segment
        return inputs, WordAlignment(words, part_W, position_W)


def _lengths(ids: tf.RaggedTensor) -> tf.Tensor:
    return tf.cast(ids.row_lengths(), tf.int32)


def word_tags(logits_PLC: tf.Tensor, parts: WordAlignment) -> WordTags:
    """Return the tag of each word, from the logits at its first wordpiece."""
    index_W2 = tf.stack([parts.part_W, parts.position_W], 1)
    logits_WC = tf.cast(tf.gather_nd(logits_PLC, index_W2), tf.float32)
    probability_W = tf.reduce_max(tf.nn.softmax(logits_WC), -1)
    lengths_B = parts.words.row_lengths()
    return WordTags(tf.argmax(logits_WC, -1), probability_W, lengths_B)


def assert_max_positions(
    rows: tf.Tensor, longest: tf.Tensor, limits: RequestLimits = LIMITS
) -> tf.Operation:
    """Assert in 64 bits that rows times the longest, both int32, are within limits."""
    positions = tf.cast(rows, tf.int64) * tf.cast(longest, tf.int64)
    return tf.debugging.Assert(
        positions <= limits.positions,
        [f"A request must have at most {limits.positions} positions, rows times the "
         "longest. Received:", rows, longest, "Send several smaller requests."],
    )  # fmt: skip


def _assert_max_words(words: tf.RaggedTensor, limits: RequestLimits) -> tf.Operation:
    """Assert that the padded response is not too large."""
    lengths_B = _lengths(words)
    rows, longest = tf.size(lengths_B), tf.reduce_max(tf.concat([[0], lengths_B], 0))
    return tf.debugging.Assert(
        tf.cast(rows, tf.int64) * tf.cast(longest, tf.int64) <= limits.words,
        [f"A response must have at most {limits.words} words, rows times those of the "
         "longest. Received:", rows, longest, "Send texts of similar length together."],
    )  # fmt: skip


def split_words(text_B: tf.Tensor) -> tf.RaggedTensor:
    """Split texts as Python's `str.split` does, at any white space."""
    spaced_B = tf.strings.regex_replace(drop_invalid_utf8(text_B), f"[{_SPACES}]+", " ")
    return tf.strings.split(spaced_B)


def opens_part(lengths_W: tf.Tensor, words: tf.RaggedTensor, room: int) -> tf.Tensor:
    """Mark the first word of each part, where each part has as many words as fit.

    `lengths_W` are the wordpieces of all words, `room` those of a part; of `words` only
    the lengths count. A word longer than a part is alone, as in `encode_words` of
    `tasks.token_classifier`. The first word of a part determines that of the next part.
    These links are followed from all words at once, over distances of one, two, four
    and so on.
    """
    count = tf.size(lengths_W)
    before = tf.concat([[0], tf.cumsum(lengths_W)], 0)
    fitting = tf.searchsorted(before, before[:-1] + room, "right") - 1
    limits_B = tf.cast(words.row_limits(), tf.int32)
    limit_W = repeat_rows(limits_B, words.row_lengths())
    next_W = tf.minimum(tf.maximum(fitting, tf.range(count) + 1), limit_W)
    first_W = tf.ragged.range(words.row_lengths()).values == 0
    # The index after the last word links to itself.
    opens = tf.concat([tf.cast(first_W, tf.int32), [1]], 0)

    def step(
        opens: tf.Tensor, following: tf.Tensor, changed: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        reached = tf.math.unsorted_segment_max(opens, following, count + 1)
        union = tf.maximum(opens, reached)
        return union, tf.gather(following, following), tf.reduce_any(union != opens)

    state = (opens, tf.concat([next_W, [count]], 0), tf.constant(True))
    opens, _, _ = tf.while_loop(lambda *state: state[-1], step, state)
    return opens[:-1] > 0
