"""Spans and schemes of tags in the graph equal those of `tasks.data.schemes`."""

import random

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.serving.text_graph import WordTags
from electra_tf.tasks.data.schemes import SCHEMES, as_span_tags, to_scheme
from electra_tf.tasks.graph_spans import GraphSpans
from electra_tf.tasks.token_classifier import find_entities, split_text
from electra_tf.text.graph_tokenizer import WordOffsets
from electra_tf.text.tokenizer import WordPieceTokenizer
from tests import tiny

TAGS = ("O", *(f"{mark}-{kind}" for kind in ("B", "x-y", "é") for mark in "BIES"))


def rows(names=TAGS):
    rng = random.Random(0)
    few = rng.choices(names, k=4)
    return [
        rng.choices(few if rng.random() < 0.5 else names, k=rng.randint(0, 9))
        for _ in range(300)
    ]


def word_tags(sentences, names=TAGS):
    ids = [names.index(tag) for tags in sentences for tag in tags]
    scores = np.random.default_rng(0).uniform(0.1, 1, len(ids)).astype(np.float32)
    lengths = tf.constant(list(map(len, sentences)), tf.int64)
    return WordTags(tf.constant(ids, tf.int64), tf.constant(scores), lengths)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_labels_are_in_the_scheme(scheme):
    sentences = rows()
    words = word_tags(sentences)
    labels = [x.decode() for x in GraphSpans(TAGS, scheme).labels(words).numpy()]
    expected = (
        sentences if scheme == "BIOES" else (to_scheme(t, scheme) for t in sentences)
    )
    assert labels == [tag for tags in expected for tag in tags]


@pytest.mark.parametrize("names", [TAGS, ("O", "A", "B"), ("A", "B")])
def test_entities_are_the_spans_of_conlleval(names):
    sentences = rows(names)
    words = word_tags(sentences, names)
    # Words of one or two letters between spaces.
    splits = [" ".join("ab"[: 1 + n % 2] for n in range(len(row))) for row in sentences]
    splits = [
        split_text(text, WordPieceTokenizer(tiny.vocabulary())) for text in splits
    ]
    texts, offsets = ([getattr(s, of) for s in splits] for of in ("text", "offsets"))
    starts, ends = (
        tf.ragged.constant([[o[i] for o in row] for row in offsets], tf.int32, 1)
        for i in range(2)
    )
    codes = tf.strings.unicode_decode(texts, "UTF-8")
    outputs = GraphSpans(names).entities(words, WordOffsets(codes, starts, ends))
    outputs = {name: tensor.numpy() for name, tensor in outputs.items()}
    first = 0
    for row, tags in enumerate(sentences):
        scores = words.probability_W.numpy()[first : first + len(tags)]
        first += len(tags)
        spans = dict(zip(names, as_span_tags(names), strict=True))
        found = find_entities(splits[row], [spans[tag] for tag in tags], scores)
        assert outputs["count"][row] == len(found)
        for index, one in enumerate(found):
            name, start, end, text, score = (
                outputs[f"{field}s"][row, index] for field in one._fields
            )
            assert (name.decode(), start, end, text.decode()) == one[:4]
            assert score == pytest.approx(one.score, abs=1e-6)
        assert set(outputs["starts"][row, len(found) :]) <= {-1}
        assert set(outputs["types"][row, len(found) :]) <= {b""}
    assert first == len(words.tag_W)
