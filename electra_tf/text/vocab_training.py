"""Train a WordPiece vocabulary on a corpus of any size, in bounded memory.

The text is split into words by the rules of the tokenizer. The words are counted in one
pass, then Hugging Face's `tokenizers` trains the vocabulary on the counts.
"""

import collections
import itertools
import zlib
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import tokenizers
from tokenizers import models, trainers

from electra_tf.config.data import TokenizationConfig, VocabularyConfig
from electra_tf.config.pretraining import PretrainingConfig
from electra_tf.errors import InputError
from electra_tf.text.checks import UnknownCounter
from electra_tf.text.corpus import CorpusReader, progress_bar
from electra_tf.text.data_errors import DataErrorLog
from electra_tf.text.normalization import (
    CharacterTable,
    Normalizer,
    WholeEntries,
    split_units,
)
from electra_tf.text.tokenizer import WordPieceTokenizer
from electra_tf.text.vocab import CONTINUATION, SPECIAL_TOKENS, UNKNOWN, Vocabulary

MAX_UNITS = 4_000_000
"""Different units in memory, at most, of about 150 bytes each."""
_LONG_UNIT = 64  # longer units rarely repeat; their words are counted as units
_REPEATS = 1000


class WordCounter:
    """Count the words of a stream of text in bounded memory."""

    def __init__(self, settings: TokenizationConfig, most: int = MAX_UNITS):
        self._settings, self._most = settings, most
        self._characters = CharacterTable(settings)
        self._whole = WholeEntries(settings)
        self._units: collections.Counter[str] = collections.Counter()
        self.dropped = 0
        """Number of rare units and words that were dropped to bound the memory."""

    def add(self, lines: Iterable[str]) -> None:
        """Count the words of lines."""
        parts = (part for line in lines for part in self._whole.split(line))
        for part in parts:
            if not part.is_entry:
                units = split_units(part.text, self._settings)
                if max(map(len, units), default=0) > _LONG_UNIT:
                    units = itertools.chain.from_iterable(map(self._split_long, units))
                self._units.update(units)
        self.dropped += drop_rare(self._units, self._most)

    def words(self) -> collections.Counter[str]:
        """Return the count of each word, without over-long words."""
        words: collections.Counter[str] = collections.Counter()
        for unit, count in self._units.items():
            for word in self._words(unit):
                words[word] += count
        return words

    def _split_long(self, unit: str) -> list[str]:
        return self._words(unit) if len(unit) > _LONG_UNIT else [unit]

    def _words(self, unit: str) -> list[str]:
        longest = self._settings.max_word_characters
        return [word for word in self._characters.words(unit) if len(word) <= longest]


def count_words(
    patterns: Iterable[str],
    settings: PretrainingConfig,
    error_log: DataErrorLog,
    most: int = MAX_UNITS,
) -> tuple[collections.Counter[str], int]:
    """Return the count of each word of a corpus, and the number of dropped ones.

    Memory is bounded by the `most` different units that are counted.
    """
    reader = CorpusReader(patterns, settings.corpus, error_log)
    counter = WordCounter(settings.tokenization, most)
    with progress_bar(reader) as bar:
        for document in reader:
            counter.add(document.lines)
            bar.update(reader.position_bytes - bar.n)
    return counter.words(), counter.dropped


def drop_rare(counts: collections.Counter[str], most: int = MAX_UNITS) -> int:
    """Drop the rarest texts if there are more than `most`; return how many.

    Half of `most` stay, so that the time is proportional to the number of texts. Of
    equally frequent texts those with the greatest hashes stay. So the same ones stay
    every time, and their counts add up.
    """
    if len(counts) <= most:
        return 0
    numbers = np.fromiter(counts.values(), np.int64, len(counts))
    hashes = np.fromiter(map(_hash, counts), np.int64, len(counts))
    ranks = np.minimum(numbers, 2**31 - 1) << 32 | hashes
    is_rare = ranks < np.partition(ranks, -most // 2)[-most // 2]
    rare = list(itertools.compress(counts, is_rare.tolist()))
    for text in rare:
        del counts[text]
    return len(rare)


def _hash(text: str) -> int:
    return zlib.crc32(text.encode("utf-8", "surrogatepass"))


def train_wordpieces(
    words: collections.Counter[str],
    settings: VocabularyConfig,
    whole: Iterable[str] = (),
) -> Vocabulary:
    """Train a vocabulary on word counts; the result is deterministic.

    The order is BERT's special tokens, entries kept whole, characters, and wordpieces
    in the order of training.
    """
    if not words:
        raise InputError("--input must contain text with letters or digits")
    alphabet = _covering_characters(words, settings.character_coverage)
    usable = {w: n for w, n in words.items() if not set(w).difference(alphabet)}
    continuing = {character for word in usable for character in word[1:]}
    # The library numbers characters in random order, which changes how it breaks ties.
    # As special tokens they have fixed ids.
    fixed_tokens = list(dict.fromkeys((*SPECIAL_TOKENS, *whole, *alphabet)))
    fixed_tokens += [CONTINUATION + c for c in alphabet if c in continuing]
    if len(fixed_tokens) > settings.size:
        raise InputError(
            f"--size={settings.size} must be at least {len(fixed_tokens):,} for the "
            f"special tokens and {len(alphabet):,} characters, each at the start of a "
            "word and within words; raise it or lower --character_coverage"
        )
    model = tokenizers.Tokenizer(models.WordPiece(unk_token=UNKNOWN))
    model.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    trainer = trainers.WordPieceTrainer(
        vocab_size=settings.size,
        min_frequency=settings.min_frequency,
        special_tokens=fixed_tokens,
        continuing_subword_prefix=CONTINUATION,
        show_progress=False,
    )
    model.train_from_iterator(_repeat_words(usable), trainer)
    entries = sorted(model.get_vocab().items(), key=lambda item: item[1])
    return Vocabulary(tuple(token for token, _ in entries), "the trained vocabulary")


def _covering_characters(
    words: collections.Counter[str], coverage: float
) -> dict[str, int]:
    """Return the most frequent characters that cover a share of the text."""
    counts: collections.Counter[str] = collections.Counter()
    for word, count in words.items():
        for character in word:
            counts[character] += count
    remaining = coverage * counts.total()
    covering: dict[str, int] = {}
    # Ties are broken by the character, independent of the order of the text.
    for character, count in sorted(counts.items(), key=lambda item: (-item[1], item)):
        if remaining <= 0:
            break
        covering[character] = count
        remaining -= count
    return covering


def _repeat_words(words: dict[str, int]) -> Iterator[str]:
    """Yield texts in which each word occurs as often as counted."""
    for word, count in words.items():
        repeats, rest = divmod(count, _REPEATS)
        text = f"{word} "
        for _ in range(repeats):
            yield text * _REPEATS
        yield text * rest


class VocabStats(UnknownCounter):
    """Count the words, wordpieces and [UNK] of lines."""

    def __init__(self, tokenizer: WordPieceTokenizer):
        super().__init__(tokenizer)
        self._normalizer, self.words = Normalizer(tokenizer.settings), 0

    def add_lines(self, lines: Sequence[str]) -> None:
        """Count the words, wordpieces and [UNK] of lines."""
        self.add(list(map(self.tokenizer.encode, lines)))
        self.words += sum(len(self._normalizer.words(line)) for line in lines)

    def __str__(self) -> str:
        words = max(1, self.words)
        return (
            f"{self.words:,} words, {self.wordpieces / words:.3f} wordpieces per word, "
            f"{self.share:.4%} [UNK]"
        )
