"""Spans of tags in a graph, and their F1 as a metric of Keras.

Axes: W words of all texts, N entities of all texts, E entities of the text with the
most.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from electra_tf.serving.text_graph import WordTags
from electra_tf.tasks.data import schemes
from electra_tf.tasks.examples import IGNORE_LABEL
from electra_tf.text.graph_tokenizer import WordOffsets, repeat_rows, substrings

_WRITTEN = "IBE"


class SpanWords(NamedTuple):
    """Words of all texts, W, in relation to spans; all but `kind_W` are bool."""

    inside_W: tf.Tensor
    first_W: tf.Tensor
    last_W: tf.Tensor
    follows_W: tf.Tensor  # first words directly after a span of the same type
    kind_W: tf.Tensor  # int32, indices of types


class SpanFinder:
    """Finder of the spans of tags, by the rules of `schemes.conlleval_spans`."""

    def __init__(self, tags: Sequence[str]):
        marks, kinds = zip(
            *map(schemes.split_tag, schemes.as_span_tags(tags)), strict=True
        )
        self._outside_C, self._begins_C, self._ends_C = (
            np.array([mark in some for mark in marks])
            for some in (schemes.OUTSIDE_MARKS, schemes.BEGIN_MARKS, schemes.END_MARKS)
        )
        self.kinds = sorted(set(kinds))
        """Types of spans, sorted."""
        self._kind_C = np.array([self.kinds.index(kind) for kind in kinds], np.int32)

    def __call__(self, tag_W: tf.Tensor, is_start_W: tf.Tensor) -> SpanWords:
        """Find the spans; none extends over a word that starts a text."""
        inside_W = ~tf.gather(self._outside_C, tag_W)
        kind_W = tf.gather(self._kind_C, tag_W)
        same_W = ~is_start_W & inside_W & shifted(inside_W, 1)
        same_W &= kind_W == shifted(kind_W, 1)
        ended_W = shifted(tf.gather(self._ends_C, tag_W), 1)
        continued_W = same_W & ~ended_W & ~tf.gather(self._begins_C, tag_W)
        return SpanWords(
            inside_W,
            inside_W & ~continued_W,
            inside_W & ~shifted(continued_W, -1),
            same_W & ~continued_W,
            kind_W,
        )


def shifted(values_W: tf.Tensor, by: int) -> tf.Tensor:
    """Return the value of the word before (1) or after (-1) each word, else zero."""
    zero = tf.zeros([1], values_W.dtype)
    parts = [zero, values_W[:-1]] if by > 0 else [values_W[1:], zero]
    return tf.concat(parts, 0)[: tf.size(values_W)]


class GraphSpans:
    """Spans of the tags of a model, by the rules of `schemes.conlleval_spans`."""

    def __init__(self, tags: Sequence[str], scheme: str = schemes.BIOES):
        self._tags, self._scheme = list(tags), scheme
        self._finder = SpanFinder(tags)

    def labels(self, words: WordTags) -> tf.Tensor:
        """Return the tag of each word in the scheme, strings [W]."""
        if self._scheme == schemes.BIOES:  # as `TokenClassifier.decode`
            return tf.gather(tf.constant(self._tags), words.tag_W)
        spans = self._find(words)
        is_b_W, is_e_W = {
            "IOB2": (spans.first_W, False),
            "IOB1": (spans.follows_W, False),
            "IOE2": (False, spans.last_W),
            "IOE1": (False, shifted(spans.follows_W, -1)),
        }[self._scheme]
        mark_W = tf.where(is_b_W, 1, tf.where(is_e_W, 2, 0))
        suffixes = [f"-{kind}" if kind else "" for kind in self._finder.kinds]
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
        types = rows.with_values(tf.gather(tf.constant(self._finder.kinds), kind_N))
        return {
            "types": types.to_tensor(),
            "starts": starts.to_tensor(-1),
            "ends": ends.to_tensor(-1),
            "texts": substrings(offsets.codes, starts, ends).to_tensor(),
            "scores": rows.to_tensor(),
            "count": count_B,
        }

    def _find(self, words: WordTags) -> SpanWords:
        """Find the spans; none extends over two texts."""
        is_start_W = tf.ragged.range(words.row_lengths_B).values == 0
        return self._finder(words.tag_W, is_start_W)


@keras.saving.register_keras_serializable("electra_tf")
class SpanF1(keras.metrics.Metric):
    """F1 of spans, by the rules of conlleval, from the tags of words.

    A span counts with the weight of its sentence. The parts of a sentence longer than
    `data.max_length` count as sentences.
    """

    def __init__(self, tags: Sequence[str], name: str = "f1", dtype: Any = "float64"):
        super().__init__(name=name, dtype=dtype)
        self.tags = tuple(tags)
        # The last id is that of positions without a word, outside of all spans.
        self._finder = SpanFinder([*self.tags, schemes.OUTSIDE])
        self._counts_3 = self.add_variable((3,), "zeros", name="counts")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any) -> None:
        """Add tag ids [B, L], `IGNORE_LABEL` at no word, and logits [B, L, C].

        `sample_weight`: float32 [B].
        """
        y_true = tf.cast(y_true, tf.int32)
        is_word_X = tf.reshape(y_true != IGNORE_LABEL, [-1])
        rows_BL = tf.ones_like(y_true) * tf.range(tf.shape(y_true)[0])[:, None]
        # Words first, in their order; shapes stay static.
        order_X = tf.argsort(tf.cast(~is_word_X, tf.int32), stable=True)
        is_word_X = tf.gather(is_word_X, order_X)
        rows_X = tf.gather(tf.reshape(rows_BL, [-1]), order_X)
        is_start_X = tf.concat([[True], rows_X[1:] != rows_X[:-1]], 0)
        sides = []
        for ids_BL in (y_true, tf.argmax(y_pred, -1, tf.int32)):
            ids_X = tf.gather(tf.reshape(ids_BL, [-1]), order_X)
            ids_X = tf.where(is_word_X, ids_X, len(self.tags))
            sides.append(self._finder(ids_X, is_start_X))
        gold, predicted = sides
        is_correct_X = gold.first_W & predicted.first_W
        is_correct_X &= gold.kind_W == predicted.kind_W
        is_correct_X &= _last_words(gold) == _last_words(predicted)
        masks = [is_correct_X, gold.first_W, predicted.first_W]
        weights_X = tf.gather(tf.cast(sample_weight, self.dtype), rows_X)
        masks_3X = tf.cast(tf.stack(masks), self.dtype)
        self._counts_3.assign_add(tf.reduce_sum(masks_3X * weights_X, 1))

    def result(self) -> tf.Tensor:
        """Return the F1."""
        correct, gold, predicted = tf.unstack(self._counts_3.value)
        return tf.math.divide_no_nan(2 * correct, gold + predicted)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return super().get_config() | {"tags": self.tags}


def _last_words(words: SpanWords) -> tf.Tensor:
    """Return the index of the last word of the span that each word is in."""
    count = tf.size(words.first_W)
    number_W = tf.cumsum(tf.cast(words.first_W, tf.int32))
    index_W = tf.where(words.inside_W, tf.range(count), -1)
    last_N = tf.math.unsorted_segment_max(index_W, number_W, count + 1)
    return tf.gather(last_N, number_W)
