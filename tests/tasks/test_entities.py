"""Entities of raw texts: words, offsets, types and scores; by law on random texts."""

import itertools
import re

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config.data import TokenizationConfig
from electra_tf.errors import InputError
from electra_tf.tasks.data.conll import Sentence
from electra_tf.tasks.data.schemes import as_span_tags
from electra_tf.tasks.examples import IGNORE_LABEL
from electra_tf.tasks.token_classifier import (
    TokenClassifier,
    find_entities,
    split_sentence,
    split_text,
)
from electra_tf.text.normalization import SPACES, UNIT, CharacterTable
from electra_tf.text.tokenizer import WordPieceTokenizer
from electra_tf.text.vocab import Vocabulary
from tests import tiny
from tests.generated_texts import random_texts

SETTINGS = {
    "uncased": TokenizationConfig(),
    "cased": TokenizationConfig(lower_case=False),
    "accents": TokenizationConfig(strip_accents="never"),
    "characters": TokenizationConfig(split_unspaced="characters"),
    "whole": TokenizationConfig(keep_whole=("№5", "don't")),
}
NUMBERS = [300, pytest.param(10_000, marks=pytest.mark.slow)]
TAGS = ("O", *(f"{mark}-{kind}" for kind in ("PER", "LOC") for mark in "BIES"))


def tokenizer(name):
    tokens = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "don't", "№5")
    return WordPieceTokenizer(Vocabulary(tokens), SETTINGS[name])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Anna lives  in Bern.", ["Anna", "lives", "in", "Bern", "."]),
        ("don't\r\ne.g.\x00", ["don", "'", "t", "e", ".", "g", "."]),
        ("na\u0308ive caf\u00e9", ["na\u0308ive", "caf\u00e9"]),
        ("👩\u200d👧 1\ufe0f\u20e3!", ["👩\u200d👧", "1\ufe0f\u20e3", "!"]),
        ("\u200fدبي\u200e، a\u200bb \u200b", ["دبي", "،", "a\u200bb"]),
        ("我在Bern。", ["我", "在", "Bern", "。"]),
        ("\u0301 İÅ", ["İÅ"]),
        ("", []),
        (" \u3000\u200b", []),
    ],
)  # fmt: skip
def test_words_are_split_by_the_rule_of_the_tokenizer(text, words):
    split = split_text(text, tokenizer("uncased"))
    assert split.words == tuple(words)
    graph = tokenizer("uncased").graph().word_offsets(tf.constant([text]))
    assert list(zip(graph.starts[0].numpy(), graph.ends[0].numpy(), strict=True)) == (
        split.offsets
    )


def test_a_mark_that_is_kept_begins_a_word_after_punctuation():
    assert split_text(".\u0301a", tokenizer("accents")).words == (".", "\u0301a")
    assert split_text(".\u0301a", tokenizer("uncased")).words == (".\u0301", "a")
    whole = split_text("don't№5\u0301a", tokenizer("whole"))
    assert whole.words == ("don't", "№5\u0301", "a")


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("name", SETTINGS)
def test_words_of_random_texts(name, number):
    one, table = tokenizer(name), CharacterTable(SETTINGS[name])
    texts = random_texts(number)
    for text in texts:
        offsets = one.word_offsets(text)
        assert all(start < end for start, end in offsets)
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(offsets))
        words = [text[slice(*word)] for word in offsets]
        # Every letter is in a word, and the words are those of the tokenizer.
        if name != "whole":
            read = [w for unit in UNIT.findall(text) for w in table.words(unit)]
            if "Σ" not in text:  # its small form depends on its neighbours
                assert ["".join(table.words(word)) for word in words] == read
            assert len(words) == len(read)
        assert not any(re.search(f"[{SPACES}]", word) for word in words)
    graph = one.graph().word_offsets(tf.constant(texts))
    found = zip(graph.starts.to_list(), graph.ends.to_list(), strict=True)
    pairs = [list(zip(*row, strict=True)) for row in found]
    assert pairs == [one.word_offsets(text) for text in texts]


@pytest.mark.parametrize(
    ("words", "tags", "split", "expected"),
    [
        # Any scheme, to BIOES.
        (["U.S.", "a"], "I-X O", "U . S . a", "B-X I-X I-X E-X O"),
        (["of", "A-b", "c", "d!"], "O B-X I-X B-X", None, "O B-X I-X I-X E-X B-X E-X"),
        (["\u200b", "(a"], "S-X O", "\u200b ( a", "S-X O O"),
        (["a.", "b"], "NN DT", "a . b", "NN NN DT"),  # no spans
    ],
)
def test_sentences_are_split_for_training(words, tags, split, expected):
    given = Sentence(tuple(words), tuple(tags.split()), "file", 7)
    found = split_sentence(given, tokenizer("uncased"))
    assert found.words == tuple((split or "of A - b c d !").split(" "))
    assert " ".join(found.tags) == expected
    assert found.line_of(3) == 7


def test_split_words_adds_targets_to_training_only():
    settings = tiny.settings(data_split_words=True)
    model = TokenClassifier(tiny.start(), TAGS, settings)
    words = ["the", "e.g."]
    examples = model.examples([words], [["O", "B-PER"]])
    (targets,) = examples.targets
    names = [TAGS[index] for index in targets if index != IGNORE_LABEL]
    assert names == ["O", "B-PER", "I-PER", "I-PER", "E-PER"]
    assert model.examples([words]).ids.tolist() == examples.ids.tolist()
    assert [len(tags) for tags in model.predict([words])] == [2]
    with pytest.raises(InputError, match="sentences:1: the tag 'B-OTHER'"):
        model.examples([words], [["O", "B-OTHER"]])


@pytest.fixture(scope="module")
def model():
    """Return a tagger with all kinds of tags, whose inputs have room for 14 pieces."""
    settings = tiny.settings(data_max_length=16, **tiny.NO_DROPOUT)
    model = TokenClassifier(tiny.start(), TAGS, settings, scheme="IOB2")
    rng = np.random.default_rng(0)
    for weight in model.head.weights:
        weight.assign(rng.normal(0, 3, weight.shape))
    return model


@pytest.mark.parametrize("number", NUMBERS)
def test_offsets_are_characters_of_the_given_text(model, number):
    texts, kinds = random_texts(number, seed=1), set()
    for text, entities in zip(texts, model.entities(texts), strict=True):
        for one in entities:
            assert text[one.start : one.end] == one.text != ""
            kinds.add(one.type)
    assert kinds == {"PER", "LOC"}
    words = [split_text(text, model.tokenizer).words for text in texts]
    windows = len(model.examples(words)) - len(words)
    assert windows > number / 4  # many texts are longer than an input


def test_entities_are_those_of_the_words(model):
    text = "Anna lives in New  York, \r\nnot in 北京."
    (entities,) = model.entities([text])
    split = split_text(text, model.tokenizer)
    (tags,) = model.predict([split.words])
    spans = [(one.type, one.text) for one in entities]
    expected = []
    for tag, (start, end) in zip(tags, split.offsets, strict=True):
        if tag.startswith("B-"):
            expected.append([tag[2:], start, end])
        elif tag != "O":
            expected[-1][2] = end
    assert spans == [(kind, text[start:end]) for kind, start, end in expected]
    assert expected
    assert model.entities([]) == []
    assert model.entities(np.array(["", text])) == [[], entities]
    assert model.entities(tf.constant([text]), batch_size=1) == [entities]


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ("a text", "list.*'a text'"),
        ([["a", "text"]], r"\['a', 'text'\] at index 0; call predict"),
        (["a", None], "None at index 1"),
        ({"a"}, "a set"),
    ],
)
def test_other_arguments_are_errors(model, texts, words):
    with pytest.raises(InputError, match=words):
        model.entities(texts)
    with pytest.raises(InputError, match=r"entities\(texts\) takes raw texts"):
        model.predict(["a raw text"])


@pytest.mark.parametrize(
    ("tags", "spans"),
    [
        ("O PER PER LOC O", [("PER", 2, 5), ("LOC", 6, 7)]),  # O is outside
        ("B I B O I", [("", 0, 3), ("", 4, 5), ("", 8, 9)]),  # a single type
        (
            "A A B A A",
            [("A", 0, 1), ("A", 2, 3), ("B", 4, 5), ("A", 6, 7), ("A", 8, 9)],
        ),
    ],
)
def test_tags_that_mark_no_spans(tags, spans):
    split = split_text("a b c d e", tokenizer("uncased"))
    found = find_entities(split, as_span_tags(tags.split()), [1.0] * 5)
    assert [one[:3] for one in found] == spans
