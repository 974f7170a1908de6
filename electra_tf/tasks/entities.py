"""Entities of raw texts: spans of tagged words as characters of the text."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from electra_tf.tasks.data.conll import Sentence
from electra_tf.tasks.data.schemes import conlleval_spans, is_span_scheme, write_spans
from electra_tf.text.tokenizer import WordPieceTokenizer


class Entity(NamedTuple):
    """A span of a text with a type, such as a name."""

    type: str
    """The type in the tags of the span: PER of B-PER."""
    start: int
    """Index of the first character (code point) in the text."""
    end: int
    """Index after the last one."""
    text: str
    """The characters between them, unchanged."""
    score: float
    """Mean probability of the predicted tags of its words."""


def split_text(text: str, tokenizer: WordPieceTokenizer) -> Sentence:
    """Split a text into words, with `Tokenizer.word_offsets`."""
    offsets = tokenizer.word_offsets(text)
    words = tuple(text[slice(*word)] for word in offsets)
    return Sentence(words, None, "the given texts", 1, True, text, offsets)


def split_sentence(sentence: Sentence, tokenizer: WordPieceTokenizer) -> Sentence:
    """Split the words of a sentence as those of a text; spans cover the same text."""
    words, tags, firsts = [], [], []
    for word, tag in zip(sentence.words, sentence.tags, strict=True):
        parts = split_text(word, tokenizer).words or (word,)
        firsts.append(len(words))
        words += parts
        tags += [tag] * len(parts)
    if is_span_scheme(tags):
        firsts.append(len(words))
        spans = [
            span._replace(first=firsts[span.first], last=firsts[span.last + 1] - 1)
            for span in conlleval_spans(sentence.tags)
        ]
        tags = write_spans(spans, len(words))
    return Sentence(tuple(words), tuple(tags), sentence.source, sentence.line, True)


def find_entities(
    split: Sentence, tags: Sequence[str], probabilities: Sequence[float]
) -> list[Entity]:
    """Return the entities of a text, given the span tag of each word and its score."""
    entities = []
    for span in conlleval_spans(tags):
        start, end = split.offsets[span.first][0], split.offsets[span.last][1]
        score = float(np.mean(probabilities[span.first : span.last + 1]))
        entities.append(Entity(span.kind, start, end, split.text[start:end], score))
    return entities
