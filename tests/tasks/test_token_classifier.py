"""`TokenClassifier`: inputs, training, prediction, saving and errors."""

import itertools
import random

import numpy as np
import pytest

from electra_tf.config.data import TokenizationConfig
from electra_tf.errors import InputError
from electra_tf.tasks.data.conll import Sentence, read_conll
from electra_tf.tasks.data.schemes import to_scheme
from electra_tf.tasks.examples import IGNORE_LABEL
from electra_tf.tasks.token_classifier import (
    EncodedWords,
    TokenClassifier,
    encode_words,
    tag_vocabulary,
)
from electra_tf.text.tokenizer import WordPieceTokenizer
from electra_tf.text.vocab import Vocabulary
from tests import tiny

TAGS = ("A", "B", "C")


# [PAD] 0, [UNK] 1, [CLS] 2, [SEP] 3, [MASK] 4, then:
PIECES = ("the", "cat", "sat", "un", "##want", "##ed", "-", "x", "##x")
THE, CAT, SAT, UN, WANT, ED, DASH, X, XX = range(5, 14)
CLS, SEP, UNK = 2, 3, 1


@pytest.fixture(scope="module")
def tokenizer():
    special = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    return WordPieceTokenizer(Vocabulary(special + PIECES), TokenizationConfig())


def sentence(words, tags):
    return Sentence(tuple(words), tuple(tags.split()), "a.txt", 7)


def test_each_word_is_labelled_at_its_first_wordpiece(tokenizer):
    words = ["The", "unwanted", "\u200b", "cat", "-sat"]  # the third has no wordpiece
    (part,) = encode_words(words, tokenizer, 128)
    assert part.ids == [CLS, THE, UN, WANT, ED, UNK, CAT, DASH, SAT, SEP]
    assert part == EncodedWords(part.ids, [1, 2, 5, 6, 7], range(5), 0)
    assert part.targets([3, 1, 4, 2, 0]) == [-1, 3, 1, -1, -1, 4, 2, 0, -1, -1]
    assert encode_words([], tokenizer, 8) == []


def test_a_long_sentence_is_split_between_words(tokenizer):
    words = ["the", "unwanted", "unwanted", "cat", "sat"]  # 1, 3, 3, 1, 1 pieces
    parts = encode_words(words, tokenizer, 6)
    assert [part.ids for part in parts] == [
        [CLS, THE, UN, WANT, ED, SEP],
        [CLS, UN, WANT, ED, CAT, SEP],
        [CLS, SAT, SEP],
    ]
    assert [part.words for part in parts] == [range(2), range(2, 4), range(4, 5)]
    assert parts[1].targets(range(5)) == [-1, 2, -1, -1, 3, -1]


@pytest.mark.parametrize("max_length", [3, 4, 5])
def test_a_word_longer_than_an_input_is_truncated(tokenizer, max_length):
    room = max_length - 2
    parts = encode_words(["cat", "x" * 9, "the"], tokenizer, max_length)
    assert [part.cut for part in parts] == [0, 9 - room, 0]
    assert parts[1].ids == [CLS, X, *[XX] * (room - 1), SEP]
    assert parts[1].starts == [1]


def test_every_word_of_a_split_sentence_is_in_one_part(tokenizer):
    rng = random.Random(0)
    words = ["the", "unwanted", "cat-sat", "xxxxxxx", "\u200b", "never-seen"]
    for _ in range(300):
        size, max_length = rng.randint(1, 30), rng.randint(3, 20)
        row = rng.choices(words, k=size)
        parts = encode_words(row, tokenizer, max_length)
        assert [i for part in parts for i in part.words] == list(range(size))
        for part in parts:
            assert len(part.ids) <= max_length
            assert (part.ids[0], part.ids[-1]) == (CLS, SEP)
            assert len(part.starts) == len(part.words)
            assert not part.cut or len(part.words) == 1
            for word, start in zip(part.words, part.starts, strict=True):
                assert part.ids[start] == (tokenizer.encode(row[word]) or [UNK])[0]
        # The first word of a part does not fit into the part before.
        for before, after in itertools.pairwise(parts):
            first = tokenizer.encode(row[after.words.start]) or [UNK]
            assert len(before.ids) + len(first) > max_length


def test_tags_of_spans_are_converted_before_a_sentence_is_split():
    words = sentence(["the", "cat", "sat", "-"], "I-NP I-NP I-VP O")
    tags = tag_vocabulary([words])
    assert tags == (
        *("B-NP", "B-VP", "E-NP", "E-VP", "I-NP", "I-VP"),
        *("O", "S-NP", "S-VP"),
    )
    model = TokenClassifier(tiny.start(), tags, tiny.settings(data_max_length=8))
    words = ["the", "of"] * 5
    examples = model.examples([words], [["I-NP"] * 4 + ["I-VP", "O"] + ["I-NP"] * 4])
    assert len(examples) > 1
    found = [tags[t] for row in examples.targets for t in row if t != IGNORE_LABEL]
    span = ["B-NP", "I-NP", "I-NP", "E-NP"]
    assert found == [*span, "S-VP", "O", *span]
    with pytest.raises(InputError, match=r":1: the tag 'I-X' \('S-X' in BIOES\)"):
        model.examples([["the"]], [["I-X"]])


def test_tags_of_words_are_not_converted():
    words = [sentence(["the", "cat"], "NN DT"), sentence(["-"], ".")]
    assert tag_vocabulary(words) == (".", "DT", "NN")


def test_conll_2000_is_restored_from_its_inputs(tmp_path, data):
    folder = data / "tagging/conll2000"
    train = read_conll(folder / "train.txt.gz", 0, 2)
    test = read_conll(folder / "test.txt.gz", 0, 2)
    names = tag_vocabulary(train)
    assert len(names) == 4 * 11 + 1
    # All LST spans of train are single words, but test has a longer one.
    assert "E-LST" not in {tag for one in train for tag in to_scheme(one.tags)}
    assert "E-LST" in {tag for one in test for tag in to_scheme(one.tags)}
    assert "E-LST" in names
    tokenizer = WordPieceTokenizer(Vocabulary.read(data / "vocab/bert_uncased_en.txt"))
    num_split = 0
    for one in test:
        gold = [names.index(tag) for tag in to_scheme(one.tags)]
        parts = encode_words(one.words, tokenizer, 32)
        num_split += len(parts) > 1
        assert not any(part.cut for part in parts)
        rows = [part.targets(gold) for part in parts]
        assert [tag for row in rows for tag in row if tag != IGNORE_LABEL] == gold
    assert 500 < num_split < 1500


def test_copies_have_the_configured_scheme():
    tags = ("B-A", "E-A", "I-A", "O", "S-A")
    model = TokenClassifier(tiny.start(), tags, tiny.settings(), scheme="IOB2")
    assert model.clone_with_seed(tiny.start(), 1).scheme == "IOB2"
    assert TokenClassifier.from_config(model.get_config()).scheme == "IOB2"
    with pytest.raises(InputError, match="'BILOU'"):
        TokenClassifier(tiny.start(), tags, tiny.settings(), scheme="BILOU")


@pytest.mark.parametrize(
    ("words", "tags", "message"),
    [
        (["the of"], [["A"]], "'the of' at index 0"),
        ([["the", "of"]], [["A"]], "index 0 has 2 words and 1 tags"),
        ([Sentence(("the", "of"), None, "f", 1)], [["A"]], "2 words and 1 tags"),
        ([["the"], ["of"]], [["A"]], "2 sentences and 1 targets"),
        ([["the"]], [["X"]], "'X'"),
    ],
)
def test_sentences_and_tags_of_different_lengths_are_an_error(words, tags, message):
    model = TokenClassifier(tiny.start(), TAGS, tiny.settings())
    with pytest.raises(InputError, match=message):
        model.examples(words, tags)


def test_tags_may_be_numbers():
    def targets(tags, row):
        model = TokenClassifier(tiny.start(), tags, settings=tiny.settings())
        return model.examples([["the", "cat"]], [row]).targets.tolist()

    for row in ([2, 0], np.array([2, 0]), (np.int32(2), "A"), [b"C", "A"], ["C", "A"]):
        assert targets(TAGS, row) == targets(TAGS, ["C", "A"])
    assert targets(["2", "1"], [1, 2]) == targets(["2", "1"], ["1", "2"])
    for wrong in (3, -1, 0.5, None):
        with pytest.raises(InputError, match=f"'A', 'B', 'C'.* not {wrong} at index 0"):
            targets(TAGS, ["A", wrong])
