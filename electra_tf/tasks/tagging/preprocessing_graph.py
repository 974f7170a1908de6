"""Sentences -> a tagger's inputs inside a graph, and its logits -> tags of words.

Equal to `str.split` followed by `tasks.tagging_features`. Axes: P parts of all
sentences, W words of all sentences or of the longest one.
"""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from electra_tf.errors import InputError
from electra_tf.tasks.request_limits import assert_max_parts
from electra_tf.text.graph_tokenizer import drop_invalid_utf8
from electra_tf.text.tokenizer import Tokenizer
from electra_tf.text.vocab import CLS, SEP, UNKNOWN

MOST_WORDS = 2**20
"""Of an answer, rows times the words of the longest."""
_SPECIAL = 2  # [CLS] and [SEP]
# What `str.split` takes for white space, as characters of an RE2 pattern.
_SPACES = (
    r"\t-\r\x1c-\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}"
    r"\x{202f}\x{205f}\x{3000}"
)


class WordAlignment(NamedTuple):
    """The way back from parts to words."""

    words: tf.RaggedTensor
    """UTF-8 strings, [B, (words)]."""
    part_W: tf.Tensor
    """int32: the part that holds the word, for the words of all sentences."""
    position_W: tf.Tensor
    """int32: the position of its first piece there."""


class GraphWords(tf.Module):
    """Splits sentences into words and packs these, and tells the words' tags.

    Args:
        tokenizer: The checkpoint's.
        max_length: Positions with special tokens, as in training; 3 or more.
        segment: The segment id of all positions, as in training.

    Raises:
        InputError: `max_length` leaves no place for a word.
    """

    def __init__(self, tokenizer: Tokenizer, max_length: int, segment: int):
        super().__init__()
        if max_length <= _SPECIAL:
            raise InputError(
                "An input has three positions or more, as [CLS] and [SEP] take two",
                f"a length of {max_length}",
                "Set a greater one",
            )
        self._tokenize = tokenizer.graph()
        self._room, self._segment = max_length - _SPECIAL, segment
        ids = tokenizer.vocabulary.ids
        self._cls, self._sep, self._unknown = ids[CLS], ids[SEP], ids[UNKNOWN]

    def __call__(self, text_B: tf.Tensor) -> tuple[dict[str, tf.Tensor], WordAlignment]:
        """Packs the words of each sentence, in several parts where it is too long.

        Args:
            text_B: UTF-8 strings; invalid bytes are dropped.

        Returns:
            inputs: `token_ids`, `segment_ids` and `padding_mask`, each int32 [P, L],
                sentence by sentence; a sentence without words has no part.
            parts: What `tags` takes.

            `InvalidArgumentError` at run time, before there are inputs, where there are
            more parts than `by_parts.MOST`, or words than `MOST_WORDS`.
        """
        words = split_words(text_B)
        with tf.control_dependencies([_few_words(words)]):
            words = words.with_values(tf.identity(words.values))
        pieces = self._pieces(words.values)
        lengths_W = tf.cast(pieces.row_lengths(), tf.int32)
        opens_W = opens_part(lengths_W, words, self._room)
        part_W = tf.cumsum(tf.cast(opens_W, tf.int32)) - 1
        before_W = tf.cumsum(lengths_W, exclusive=True)
        parts = tf.reduce_sum(tf.cast(opens_W, tf.int32))
        with tf.control_dependencies([assert_max_parts(parts)]):
            first_P = tf.boolean_mask(before_W, opens_W)
        position_W = before_W - tf.gather(first_P, part_W) + 1
        splits = tf.concat([first_P, [tf.size(pieces.values)]], 0)
        splits = tf.cast(splits, tf.int64)
        ids = tf.RaggedTensor.from_row_splits(pieces.values, splits)
        return self._packed(ids), WordAlignment(words, part_W, position_W)

    def tags(
        self, logits_PLC: tf.Tensor, parts: WordAlignment, names: Sequence[str]
    ) -> dict[str, tf.Tensor]:
        """Tells each word's tag from the logits at its first piece.

        Args:
            logits_PLC: What the tagger says of the inputs.
            parts: What came with them.
            names: Of the tags, in the logits' order.

        Returns:
            `words` and `labels`, strings [B, W], and `probabilities`, float32 [B, W],
            of the label that is told; empty and 0 beyond a sentence's words.

        Raises:
            InputError: There are not as many names as logits.
        """
        if logits_PLC.shape[-1] not in (None, len(names)):
            raise InputError(
                "There is a name for each tag",
                f"{len(names)} names and {logits_PLC.shape[-1]} logits",
                "Give the names that the tagger was trained with",
            )
        places_W2 = tf.stack([parts.part_W, parts.position_W], 1)
        logits_WC = tf.cast(tf.gather_nd(logits_PLC, places_W2), tf.float32)
        label_W = tf.gather(tf.constant(list(names)), tf.argmax(logits_WC, -1))
        probability_W = tf.reduce_max(tf.nn.softmax(logits_WC), -1)
        return {
            "words": parts.words.to_tensor(),
            "labels": parts.words.with_values(label_W).to_tensor(),
            "probabilities": parts.words.with_values(probability_W).to_tensor(),
        }

    def _pieces(self, word_W: tf.Tensor) -> tf.RaggedTensor:
        """The ids of each word by itself; [UNK] where there are none."""
        pieces = self._tokenize(word_W)
        bare_W = tf.cast(pieces.row_lengths() == 0, tf.int64)
        unknown = tf.fill([tf.reduce_sum(bare_W)], self._unknown)
        stand_in = tf.RaggedTensor.from_row_lengths(unknown, bare_W)
        return tf.concat([pieces, stand_in], axis=1)

    def _packed(self, ids: tf.RaggedTensor) -> dict[str, tf.Tensor]:
        """[CLS] and [SEP] around what fits of each part, which is all but of a part
        of a single long word."""
        lengths_P = tf.cast(ids.row_lengths(), tf.int32)
        places = tf.ragged.range(lengths_P)
        ids = tf.ragged.boolean_mask(ids, places < self._room)
        cls, sep = (
            tf.RaggedTensor.from_tensor(tf.fill([tf.size(lengths_P), 1], index))
            for index in (self._cls, self._sep)
        )
        ids = tf.concat([cls, ids, sep], axis=1)
        lengths_P = tf.cast(ids.row_lengths(), tf.int32)
        # Of no part at all, the positions of an empty one: no axis is of length 0.
        longest = tf.reduce_max(tf.concat([[_SPECIAL], lengths_P], 0))
        mask_PL = tf.sequence_mask(lengths_P, longest, tf.int32)
        return {
            "token_ids": ids.to_tensor(shape=tf.stack([-1, longest])),
            "segment_ids": mask_PL * self._segment,
            "padding_mask": mask_PL,
        }


def _few_words(words: tf.RaggedTensor) -> tf.Operation:
    """Assert that an answer with a place for each word is not too large."""
    lengths_B = tf.cast(words.row_lengths(), tf.int32)
    rows, longest = tf.size(lengths_B), tf.reduce_max(tf.concat([[0], lengths_B], 0))
    return tf.debugging.Assert(
        tf.cast(rows, tf.int64) * tf.cast(longest, tf.int64) <= MOST_WORDS,
        [f"An answer must have at most {MOST_WORDS} words, rows times those of the "
         "longest. Received:", rows, longest, "Send texts of like length together."],
    )  # fmt: skip


def split_words(text_B: tf.Tensor) -> tf.RaggedTensor:
    """Splits texts as Python's `str.split` does, at any of its white space.

    Args:
        text_B: UTF-8 strings; invalid bytes are dropped.

    Returns:
        Strings, [B, (words)].
    """
    spaced_B = tf.strings.regex_replace(drop_invalid_utf8(text_B), f"[{_SPACES}]+", " ")
    return tf.strings.split(spaced_B)


def opens_part(lengths_W: tf.Tensor, words: tf.RaggedTensor, room: int) -> tf.Tensor:
    """Tells which words open a part, where each part holds as many as fit.

    The rule is that of `tagging_features`: a part ends before the first word that does
    not fit, and a word that fits nowhere is by itself. From the word that opens a part
    follows the one that opens the next; such steps are taken from all words at once,
    one of them, then two, four and so on, until they reach no further word.

    Args:
        lengths_W: int32, 1 or more: pieces of each word of all sentences.
        words: Of which only the rows' lengths count, [B, (words)].
        room: Pieces of a part.

    Returns:
        bool [W].
    """
    count = tf.size(lengths_W)
    before = tf.concat([[0], tf.cumsum(lengths_W)], 0)
    fitting = tf.searchsorted(before, before[:-1] + room, "right") - 1
    limit_W = tf.repeat(tf.cast(words.row_limits(), tf.int32), words.row_lengths())
    next_W = tf.minimum(tf.maximum(fitting, tf.range(count) + 1), limit_W)
    first_W = tf.ragged.range(words.row_lengths()).values == 0
    # One more, beyond the last word, leads to itself.
    opens = tf.concat([tf.cast(first_W, tf.int32), [1]], 0)

    def further(
        opens: tf.Tensor, following: tf.Tensor, grew: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        reached = tf.math.unsorted_segment_max(opens, following, count + 1)
        found = tf.maximum(opens, reached)
        return found, tf.gather(following, following), tf.reduce_any(found != opens)

    state = (opens, tf.concat([next_W, [count]], 0), tf.constant(True))
    opens, _, _ = tf.while_loop(lambda *state: state[-1], further, state)
    return opens[:-1] > 0
