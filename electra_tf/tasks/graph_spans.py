"""Spans of tags in a graph.

Axes: W words of all texts, N entities of all texts, E entities of the text with the
most.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from electra_tf.serving.text_graph import WordTags
from electra_tf.tasks.data import schemes
from electra_tf.text.graph_tokenizer import WordOffsets, repeat_rows, substrings

_WRITTEN = "IBE"


class _SpanWords(NamedTuple):
    """Words of all texts, W, in relation to spans; all but `kind_W` are bool."""

    inside_W: tf.Tensor
    first_W: tf.Tensor
    last_W: tf.Tensor
    follows_W: tf.Tensor  # first words directly after a span of the same type
    kind_W: tf.Tensor  # int32, indices of types


class GraphSpans:
    """Spans of the tags of a model, by the rules of `schemes.conlleval_spans`."""

    def __init__(self, tags: Sequence[str], scheme: str = schemes.BIOES):
        self._tags, self._scheme = list(tags), scheme
        marks, kinds = zip(
            *map(schemes.split_tag, schemes.as_span_tags(tags)), strict=True
        )
        self._outside_C, self._begins_C, self._ends_C = (
            np.array([mark in some for mark in marks])
            for some in (schemes.OUTSIDE_MARKS, schemes.BEGIN_MARKS, schemes.END_MARKS)
        )
        self._kinds = sorted(set(kinds))
        self._kind_C = np.array([self._kinds.index(kind) for kind in kinds], np.int32)

    def labels(self, words: WordTags) -> tf.Tensor:
        """Return the tag of each word in the scheme, strings [W]."""
        if self._scheme == schemes.BIOES:  # as `TokenClassifier.decode`
            return tf.gather(tf.constant(self._tags), words.tag_W)
        spans = self._find(words)
        is_b_W, is_e_W = {
            "IOB2": (spans.first_W, False),
            "IOB1": (spans.follows_W, False),
            "IOE2": (False, spans.last_W),
            "IOE1": (False, _shifted(spans.follows_W, -1)),
        }[self._scheme]
        mark_W = tf.where(is_b_W, 1, tf.where(is_e_W, 2, 0))
        suffixes = [f"-{kind}" if kind else "" for kind in self._kinds]
        names = [schemes.OUTSIDE, *(mark + of for of in suffixes for mark in _WRITTEN)]
        index_W = 1 + spans.kind_W * len(_WRITTEN) + mark_W
        return tf.gather(tf.constant(names), tf.where(spans.inside_W, index_W, 0))

    def entities(self, words: WordTags, offsets: WordOffsets) -> dict[str, tf.Tensor]:
        """Return the entities of texts, given the characters of the words, by name:

        `count`, int32 [B]; `types` and `texts`, strings, `starts` and `ends`, int32,
        `scores`, float32, all [B, E], and empty, -1 and 0 beyond the entities of a
        text.
        """
        spans = self._find(words)
        first_W, last_W = spans.first_W, spans.last_W
        rows = tf.size(words.row_lengths_B)
        row_W = repeat_rows(tf.range(rows), words.row_lengths_B)
        count_B = tf.math.unsorted_segment_sum(tf.cast(first_W, tf.int32), row_W, rows)
        number_W = tf.cumsum(tf.cast(first_W, tf.int32)) - 1
        number_W = tf.where(spans.inside_W, number_W, -1)  # segment -1 is dropped
        scores_N = tf.math.unsorted_segment_mean(
            words.probability_W, number_W, tf.reduce_sum(count_B)
        )
        rows = tf.RaggedTensor.from_row_lengths(scores_N, count_B, validate=False)
        starts = rows.with_values(tf.boolean_mask(offsets.starts.values, first_W))
        ends = rows.with_values(tf.boolean_mask(offsets.ends.values, last_W))
        kind_N = tf.boolean_mask(spans.kind_W, first_W)
        types = rows.with_values(tf.gather(tf.constant(self._kinds), kind_N))
        return {
            "types": types.to_tensor(),
            "starts": starts.to_tensor(-1),
            "ends": ends.to_tensor(-1),
            "texts": substrings(offsets.codes, starts, ends).to_tensor(),
            "scores": rows.to_tensor(),
            "count": count_B,
        }

    def _find(self, words: WordTags) -> _SpanWords:
        """Find the spans; none extends over two texts."""
        tag_W, is_start_W = (
            words.tag_W,
            tf.ragged.range(words.row_lengths_B).values == 0,
        )
        inside_W = ~tf.gather(self._outside_C, tag_W)
        kind_W = tf.gather(self._kind_C, tag_W)
        same_W = ~is_start_W & inside_W & _shifted(inside_W, 1)
        same_W &= kind_W == _shifted(kind_W, 1)
        ended_W = _shifted(tf.gather(self._ends_C, tag_W), 1)
        continued_W = same_W & ~ended_W & ~tf.gather(self._begins_C, tag_W)
        return _SpanWords(
            inside_W,
            inside_W & ~continued_W,
            inside_W & ~_shifted(continued_W, -1),
            same_W & ~continued_W,
            kind_W,
        )


def _shifted(values_W: tf.Tensor, by: int) -> tf.Tensor:
    """Return the value of the word before (1) or after (-1) each word, else zero."""
    zero = tf.zeros([1], values_W.dtype)
    parts = [zero, values_W[:-1]] if by > 0 else [values_W[1:], zero]
    return tf.concat(parts, 0)[: tf.size(values_W)]
