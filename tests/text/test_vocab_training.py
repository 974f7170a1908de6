import collections
import itertools
import random

import pytest

from electra_tf.config.data import TokenizationConfig, VocabularyConfig
from electra_tf.config.pretraining import PretrainingConfig
from electra_tf.text import vocab_training
from electra_tf.text.data_errors import DataErrorLog
from electra_tf.text.tokenizer import WordPieceTokenizer
from electra_tf.text.vocab import SPECIAL_TOKENS
from electra_tf.text.vocab_training import VocabStats, WordCounter, train_wordpieces
from tests.process_memory import PeakMemory


def count(lines, **settings):
    counter = WordCounter(TokenizationConfig(**settings))
    counter.add(lines)
    return counter.words()


def test_words_are_those_of_the_tokenizer():
    lines = ["Café, the\tCAFE\u200b!", "中文 ok", "a" * 201, "ab/" * 100]
    expected = {"cafe": 2, ",": 1, "the": 1, "!": 1, "中": 1, "文": 1, "ok": 1}
    expected |= {"ab": 100, "/": 100}  # units of many words
    assert count(lines) == expected
    cased = count(lines, lower_case=False)
    assert cased["Café"] == cased["CAFE"] == 1


def test_rare_words_are_dropped_beyond_a_bound():
    counter = WordCounter(TokenizationConfig(), most=100)
    for i in range(1000):
        counter.add([f"often rare{i} rare{i}"])
    words = counter.words()
    assert words["often"] == 1000
    assert len(words) <= 100
    assert counter.dropped == 1001 - len(words)


def test_of_equally_frequent_words_the_same_ones_stay():
    counter = WordCounter(TokenizationConfig(), most=100)
    words = [f"word{i}" for i in range(400)]
    for _ in range(50):
        for start in range(0, 400, 40):
            counter.add([" ".join(words[start : start + 40])])
    assert sum(n == 50 for n in counter.words().values()) >= 20


def test_memory_does_not_grow_with_the_text(tmp_path):
    """The text has twenty times as many words, twice, as may be in memory."""
    path, settings = tmp_path / "a.txt", PretrainingConfig()
    lines = (f"w{n:x} v{n:x}\nv{n:x} w{n:x}\n\n" for n in range(200_000))
    path.write_text("".join(lines))
    memory = PeakMemory()
    log = DataErrorLog("stop", "")
    words, dropped = vocab_training.count_words([str(path)], settings, log, most=20_000)
    assert memory.taken < 30e6
    assert len(words) <= 20_000
    assert dropped == 400_000 - len(words)


@pytest.mark.parametrize(
    ("coverage", "characters"), [(1.0, "abcd"), (60 / 61, "abc"), (40 / 61, "a")]
)
def test_characters_cover_a_share_of_the_text(coverage, characters):
    words = collections.Counter({"aaab": 10, "ac": 10, "d": 1})  # a 40, b 10, c 10, d 1
    settings = VocabularyConfig(size=60, character_coverage=coverage)
    tokens = train_wordpieces(words, settings).tokens[5:]
    assert "".join(t for t in tokens if len(t) == 1) == characters


TEXT = "low lower lowest newer newest wider widest lowly new wide"


def test_order_of_special_tokens_characters_and_wordpieces():
    vocabulary = train_wordpieces(count([TEXT] * 5), VocabularyConfig(size=60))
    assert vocabulary.tokens[:5] == SPECIAL_TOKENS
    assert vocabulary.tokens[5] == "e"  # the most frequent character
    # The first merge is of one of the most frequent pairs.
    pairs = collections.Counter()
    for word in TEXT.split():
        pieces = [word[0], *(f"##{c}" for c in word[1:])]
        pairs.update(itertools.pairwise(pieces))
    (first, second), _ = pairs.most_common(1)[0]
    best = {
        a + b.removeprefix("##")
        for (a, b), n in pairs.items()
        if n == pairs[first, second]
    }
    characters = [t for t in vocabulary.tokens[5:] if len(t.removeprefix("##")) == 1]
    assert vocabulary.tokens[5 + len(characters)] in best
    tokenizer = WordPieceTokenizer(vocabulary)
    assert all(len(tokenizer.encode(word)) < len(word) for word in TEXT.split())


def test_training_is_deterministic():
    rng = random.Random(0)
    # Many words of equal frequency: every merge is a tie.
    words = ["".join(rng.choices("abcdefgh", k=6)) for _ in range(3000)]
    lines = [" ".join(words)] * 2
    first = train_wordpieces(count(lines), VocabularyConfig(size=500))
    for _ in range(3):
        rng.shuffle(words)
        again = train_wordpieces(
            count([" ".join(words)] * 2), VocabularyConfig(size=500)
        )
        assert again.tokens == first.tokens


def test_rare_pairs_are_not_merged():
    words = count(["abcabc"] * 3)
    many = train_wordpieces(words, VocabularyConfig(size=100, min_frequency=3))
    few = train_wordpieces(words, VocabularyConfig(size=100, min_frequency=7))
    assert "abcabc" in many.tokens
    assert len(few) == 5 + 3 + 3


def test_a_word_with_a_rare_character_is_unknown():
    words = count(["ab ab ab " * 50, "aéb"], strip_accents="never")
    vocabulary = train_wordpieces(
        words, VocabularyConfig(size=30, character_coverage=0.99)
    )
    tokenizer = WordPieceTokenizer(
        vocabulary, TokenizationConfig(strip_accents="never")
    )
    assert tokenizer.encode("aéb ab") == [1, vocabulary.ids["ab"]]


def test_stats_count_words_wordpieces_and_unknown(vocabulary):
    stats = VocabStats(WordPieceTokenizer(vocabulary))
    stats.add_lines(["The user's 中 name, the", "QUICK"])
    ids = WordPieceTokenizer(vocabulary).encode("The user's 中 name, the QUICK")
    assert stats.words == 9
    assert stats.wordpieces == len(ids)
    assert stats.unknown == ids.count(1)
    assert f"{len(ids) / 9:.3f} wordpieces per word" in str(stats)
