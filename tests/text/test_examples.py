import itertools
import json
import random

import pytest

from electra_tf.text.examples import document_order, original_order
from electra_tf.text.tokenizer import WordPieceTokenizer
from tests.conftest import GOLDEN

GOLDEN_BUILDER = json.loads((GOLDEN / "dataset_builder.json").read_text())


def documents_of(lines, blanks_separate):
    """Return the documents of one file, read as the original reads them."""
    if not blanks_separate:
        return [[line for line in map(str.strip, lines) if line]]
    groups = itertools.groupby(map(str.strip, lines), key=bool)
    return [list(group) for full, group in groups if full]


@pytest.mark.parametrize("case", GOLDEN_BUILDER["cases"], ids=lambda c: c["seed"])
def test_examples_equal_those_of_the_original(vocabulary, case):
    encode = WordPieceTokenizer(vocabulary).wordpieces
    documents = [
        [encode(line) for line in document]
        for document in documents_of(
            GOLDEN_BUILDER["lines"], case["blanks_separate_docs"]
        )
    ]
    length = case["max_seq_length"]
    examples = list(original_order(documents, length, random.Random(case["seed"])))
    cls, sep = vocabulary.ids["[CLS]"], vocabulary.ids["[SEP]"]
    assert len(examples) == len(case["examples"])
    for example, wanted in zip(examples, case["examples"], strict=True):
        first, second = (list(map(ord, segment)) for segment in example)
        tail = [*second, sep] if second else []
        assert [cls, *first, sep, *tail] == wanted["ids"]
        assert len(first) + 2 == wanted["n_seg0"]


def corpus(seed, documents=60):
    """Return documents of distinct wordpieces, so that each can be traced."""
    rng, ids = random.Random(seed), itertools.count()
    return [
        [
            "".join(chr(next(ids)) for _ in range(rng.choice([0, 1, 3, 10, 70, 200])))
            for _ in range(rng.randint(0, 12))
        ]
        for _ in range(documents)
    ]


@pytest.mark.parametrize("length", [8, 16, 64, 128])
def test_document_order_keeps_the_text_in_order(length):
    documents = corpus(length)
    examples = list(document_order(documents, length, random.Random(1)))
    used = [ord(i) for first, second in examples for i in first + second]
    assert used == list(range(len(used)))
    assert len(used) == sum(len(s) for d in documents for s in d)
    for first, second in examples:
        assert first
        assert len(first) + len(second) + (3 if second else 2) <= length
    # No example contains text of two documents.
    ends = itertools.accumulate(sum(map(len, d)) for d in documents)
    borders = set(ends)
    for first, second in examples:
        assert not any(ord(i) in borders for i in (first + second)[1:])


def test_original_order_keeps_the_length_and_repeats_nothing():
    for length in (8, 16, 64, 128):
        documents = corpus(length)
        used = []
        for first, second in original_order(documents, length, random.Random(2)):
            assert len(first) + len(second) + (3 if second else 2) <= length
            used += first + second
        assert len(set(used)) == len(used)


@pytest.mark.parametrize("pack", [original_order, document_order])
def test_shares_of_single_segments_and_short_examples(pack):
    # Sentences of 7 wordpieces in one document: examples differ by random draws only.
    length, sentences = 128, ["x" * 7] * 60_000
    examples = list(pack([sentences], length, random.Random(3)))
    count = len(examples)
    single = sum(not second for _, second in examples) / count
    short = sum(len(a) + len(b) < 110 for a, b in examples) / count
    # A target below about half a sentence leaves no second segment either: 0.1 to 0.11.
    assert abs(single - 0.105) < 5 * (0.1 * 0.9 / count) ** 0.5 + 0.005
    # Of the random lengths in [5, 128], five in six are below 110.
    assert abs(short - 0.05 * 0.85) < 5 * (0.05 * 0.95 / count) ** 0.5 + 0.005


def test_a_later_short_sentence_is_added_to_segment_a():
    class Fixed(random.Random):
        def random(self):
            return 0.9  # two segments, no crossing, no random length

    documents = [["a" * 4, "b" * 40, "c" * 3, "d" * 20]]
    examples = list(original_order(documents, 64, Fixed()))
    # The target of A is (64 - 3) // 2 = 30: 40 do not fit and begin B, 3 and 20 fit.
    assert examples == [("aaaaccc" + "d" * 20, "b" * 34)]
    # In document order, A ends where B begins; the rest is the next example.
    examples = list(document_order(documents, 64, Fixed()))
    assert examples == [("aaaa", "b" * 40 + "ccc" + "d" * 14), ("d" * 6, "")]
