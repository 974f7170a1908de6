import itertools
import random

import pytest

from electra_tf.config.pretraining import TokenizationConfig
from electra_tf.errors import InputError
from electra_tf.tasks.conll import Sentence, read_conll
from electra_tf.tasks.schemes import to_bioes
from electra_tf.tasks.tagging.preprocessing import (
    TaggedInput,
    features,
    join,
    tag_vocabulary,
)
from electra_tf.text.data_errors import DataErrorLog
from electra_tf.text.tokenizer import Tokenizer
from electra_tf.text.vocab import Vocabulary

# [PAD] 0, [UNK] 1, [CLS] 2, [SEP] 3, [MASK] 4, then:
PIECES = ("the", "cat", "sat", "un", "##want", "##ed", "-", "x", "##x")
THE, CAT, SAT, UN, WANT, ED, DASH, X, XX = range(5, 14)
CLS, SEP, UNK = 2, 3, 1


@pytest.fixture(scope="module")
def tokenizer():
    special = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    return Tokenizer(Vocabulary(special + PIECES), TokenizationConfig())


def sentence(words, tags=None):
    tags = None if tags is None else tuple(tags.split())
    return Sentence(tuple(words), tags, "a.txt", 7)


def test_each_word_is_labelled_at_its_first_wordpiece(tokenizer):
    tagged_sentence = sentence(["The", "unwanted", "cat", "-sat"], "DT JJ NN VB")
    ids = {"DT": 3, "JJ": 1, "NN": 2, "VB": 0}
    assert features(tagged_sentence, tokenizer, ids, 128) == [
        TaggedInput(
            ids=[CLS, THE, UN, WANT, ED, CAT, DASH, SAT, SEP],
            segments=[0] * 9,
            tags=[0, 3, 1, 0, 0, 2, 0, 0, 0],
            tagged=[0, 1, 1, 0, 0, 1, 1, 0, 0],
            words=range(4),
            cut=0,
        )
    ]


def test_features_with_segment_1_and_without_labels(tokenizer):
    (one,) = features(sentence(["the", "cat"], "A B"), tokenizer, None, 8, segment=1)
    assert (one.segments, one.tags) == ([1] * 4, [0] * 4)
    assert one.tagged == [0, 1, 1, 0]
    assert features(sentence([]), tokenizer, None, 8) == []


def test_a_word_without_wordpieces_is_unknown(tokenizer):
    (one,) = features(sentence(["\u200b", "cat", " "]), tokenizer, None, 8)
    assert one.ids == [CLS, UNK, CAT, UNK, SEP]
    assert one.tagged == [0, 1, 1, 1, 0]


def test_span_tags_are_converted_to_bioes(tokenizer):
    words = sentence(["the", "cat", "sat", "-"], "I-NP I-NP I-VP O")
    tags = tag_vocabulary([words])
    assert tags == (
        *("B-NP", "B-VP", "E-NP", "E-VP", "I-NP", "I-VP"),
        *("O", "S-NP", "S-VP"),
    )
    ids = {tag: index for index, tag in enumerate(tags)}
    (one,) = features(words, tokenizer, ids, 8)
    assert one.tags == [0, ids["B-NP"], ids["E-NP"], ids["S-VP"], ids["O"], 0]
    # A split span keeps its tags, as they are converted before the split.
    first, second = features(words, tokenizer, ids, 3)[:2]
    assert (first.tags[1], second.tags[1]) == (ids["B-NP"], ids["E-NP"])


def test_tags_of_words_are_not_converted(tokenizer):
    words = [sentence(["the", "cat"], "NN DT"), sentence(["-"], ".")]
    assert tag_vocabulary(words) == (".", "DT", "NN")


def test_a_long_sentence_is_split_between_words(tokenizer):
    words = ["the", "unwanted", "unwanted", "cat", "sat"]  # 1, 3, 3, 1, 1 pieces
    parts = features(
        sentence(words, "A B C D E"),
        tokenizer,
        dict(zip("ABCDE", range(5), strict=True)),
        6,
    )
    assert [part.ids for part in parts] == [
        [CLS, THE, UN, WANT, ED, SEP],
        [CLS, UN, WANT, ED, CAT, SEP],
        [CLS, SAT, SEP],
    ]
    assert [part.words for part in parts] == [range(2), range(2, 4), range(4, 5)]
    assert [part.tags for part in parts] == [
        [0, 0, 1, 0, 0, 0],
        [0, 2, 0, 0, 3, 0],
        [0, 4, 0],
    ]


@pytest.mark.parametrize("max_length", [3, 4, 5])
def test_a_word_longer_than_an_input_is_truncated(tokenizer, max_length):
    room = max_length - 2
    parts = features(sentence(["cat", "x" * 9, "the"]), tokenizer, None, max_length)
    assert [part.cut for part in parts] == [0, 9 - room, 0]
    assert parts[1] == TaggedInput(
        ids=[CLS, X, *[XX] * (room - 1), SEP],
        segments=[0] * max_length,
        tags=[0] * max_length,
        tagged=[0, 1, *[0] * room],
        words=range(1, 2),
        cut=9 - room,
    )


def test_every_word_of_a_split_sentence_gets_one_tag(tokenizer):
    rng = random.Random(0)
    words = ["the", "unwanted", "cat-sat", "xxxxxxx", "\u200b", "never-seen"]
    names = tuple(f"T{i}" for i in range(50))
    ids = {name: index for index, name in enumerate(names)}
    for _ in range(300):
        size, max_length = rng.randint(1, 30), rng.randint(3, 20)
        gold = rng.choices(names, k=size)
        row = Sentence(tuple(rng.choices(words, k=size)), tuple(gold), "a", 1)
        parts = features(row, tokenizer, ids, max_length)
        assert [i for part in parts for i in part.words] == list(range(size))
        for part in parts:
            columns = (part.ids, part.segments, part.tags, part.tagged)
            assert {len(column) for column in columns} == {len(part.ids)}
            assert len(part.ids) <= max_length
            assert (part.ids[0], part.ids[-1]) == (CLS, SEP)
            assert sum(part.tagged) == len(part.words)
            assert not part.cut or len(part.words) == 1
        # The first word of a part does not fit into the part before.
        for before, after in itertools.pairwise(parts):
            first = tokenizer.encode(row.words[after.words.start]) or [UNK]
            assert len(before.ids) + len(first) > max_length
        padded = [part.tags + [0] * (20 - len(part.tags)) for part in parts]
        assert join(parts, padded, names) == gold


def test_join_requires_all_parts_of_one_sentence_in_order(tokenizer):
    parts = features(sentence(["the", "cat"]), tokenizer, None, 3)
    assert join(parts, [[9, 0, 9], [9, 1, 9]], ("A", "B")) == ["A", "B"]
    assert join([], [], ("A",)) == []
    for invalid in (parts[::-1], parts[1:], parts + parts):
        with pytest.raises(InputError, match=r"of the words \["):
            join(invalid, [[0] * 3] * len(invalid), ("A",))
    with pytest.raises(InputError, match="1 predictions"):
        join(parts, [[0] * 3], ("A",))


def test_a_tag_outside_the_vocabulary_is_an_error(tokenizer):
    ids = {"NN": 0, "DT": 1}
    with pytest.raises(InputError, match=r"'DT', 'NN'.* a\.txt:8 with 'VB'"):
        features(sentence(["the", "cat"], "DT VB"), tokenizer, ids, 8)
    ids = {"O": 0, "S-NP": 1}
    with pytest.raises(InputError, match=r"a\.txt:7 with 'I-NP' \('B-NP' in BIOES\)"):
        features(sentence(["the", "cat"], "I-NP I-NP"), tokenizer, ids, 8)
    with pytest.raises(InputError, match=r"a\.txt:8 with 'VB'"):
        features(sentence(["the", "cat"], "O VB"), tokenizer, ids, 8)


def test_missing_tags_and_too_small_lengths_are_errors(tokenizer):
    with pytest.raises(InputError, match=r"a\.txt:7 without"):
        features(sentence(["the"]), tokenizer, {"O": 0}, 8)
    with pytest.raises(InputError, match=r"a\.txt:7 without"):
        tag_vocabulary([sentence(["the"])])
    with pytest.raises(InputError, match="0 sentences"):
        tag_vocabulary([])
    with pytest.raises(InputError, match="Received: 2"):
        features(sentence(["the"]), tokenizer, None, 2)


def test_conll_2000_is_restored_from_its_features(tmp_path, data):
    log = DataErrorLog("stop", tmp_path / "log")
    folder = data / "tagging/conll2000"
    train = read_conll(folder / "train.txt.gz", 0, 2, log)
    test = read_conll(folder / "test.txt.gz", 0, 2, log)
    names = tag_vocabulary(train)
    assert len(names) == 4 * 11 + 1
    # All LST spans of train are single words, but test has a longer one.
    assert "E-LST" not in {tag for one in train for tag in to_bioes(one.tags)}
    assert "E-LST" in {tag for one in test for tag in to_bioes(one.tags)}
    assert "E-LST" in names
    ids = {name: index for index, name in enumerate(names)}
    tokenizer = Tokenizer(Vocabulary.read(data / "vocab/bert_uncased_en.txt"))
    num_split = 0
    for one in test:
        parts = features(one, tokenizer, ids, 32)
        num_split += len(parts) > 1
        assert not any(part.cut for part in parts)
        assert join(parts, [part.tags for part in parts], names) == to_bioes(one.tags)
    assert 500 < num_split < 1500
