"""Learns a WordPiece vocabulary from a corpus of any size.

Text is cut into words by the tokenizer's own rules and counted as it streams by; the
pieces are then learnt from the counts by Hugging Face's `tokenizers`.
"""

import collections
import dataclasses
import pathlib
import tempfile
import time
from collections.abc import Iterable, Iterator

from tokenizers import Tokenizer as HuggingFaceTokenizer
from tokenizers import models, pre_tokenizers, trainers

from electra_tf.config.pretraining import (
    PretrainingConfig,
    TokenizationConfig,
    VocabularyConfig,
)
from electra_tf.errors import InputError
from electra_tf.text.accent_loss import AccentLossCounter
from electra_tf.text.corpus import CorpusReader, progress_bar
from electra_tf.text.normalization import CharacterTable
from electra_tf.text.tokenizer import MAX_WORD_CHARACTERS, Tokenizer, split_units
from electra_tf.text.vocab import CONTINUATION, SPECIAL_TOKENS, UNKNOWN, Vocabulary

# Different units held in memory, about 150 bytes each. Beyond, those seen once so far
# are forgotten: they are far too rare to enter a vocabulary.
_MAX_UNITS = 4_000_000
_LONG_UNIT = 64  # a longer one hardly comes again; only its words are counted
_REPEATS = 1000


class WordCounter:
    """Counts the words of a stream of text in bounded memory.

    Args:
        settings: How text becomes words.
    """

    def __init__(self, settings: TokenizationConfig):
        self._settings = settings
        self._characters = CharacterTable(settings)
        self._units: collections.Counter[str] = collections.Counter()
        self._words: collections.Counter[str] = collections.Counter()
        self.stripping = AccentLossCounter(settings)
        self.too_long = collections.Counter(words=0, characters=0)
        """Words over the limit of WordPiece, and their characters."""
        self.forgotten = 0
        """Units and words that were dropped as too rare to keep."""

    def add(self, lines: Iterable[str]) -> None:
        """Counts the words of some lines."""
        for line in lines:
            self.stripping.add(line)
            units = split_units(line, self._settings)
            if max(map(len, units), default=0) > _LONG_UNIT:
                long = [unit for unit in units if len(unit) > _LONG_UNIT]
                self._add_words(collections.Counter(long), self._words)
                self._words = self._bounded(self._words)
                units = [unit for unit in units if len(unit) <= _LONG_UNIT]
            self._units.update(units)
        self._units = self._bounded(self._units)

    def words(self) -> collections.Counter[str]:
        """Returns how often each word was met, over-long ones ([UNK]) aside."""
        words = self._words.copy()
        self._add_words(self._units, words)
        return words

    def _add_words(
        self, units: collections.Counter[str], words: collections.Counter[str]
    ) -> None:
        for unit, count in units.items():
            for word in self._characters.words(unit):
                if len(word) <= MAX_WORD_CHARACTERS:
                    words[word] += count
                else:
                    self.too_long["words"] += count
                    self.too_long["characters"] += count * len(word)

    def _bounded(self, counts: collections.Counter[str]) -> collections.Counter[str]:
        if len(counts) <= _MAX_UNITS:
            return counts
        kept = {text: count for text, count in counts.items() if count > 1}
        self.forgotten += len(counts) - len(kept)
        return collections.Counter(kept)


def check_outputs(paths: Iterable[pathlib.Path], overwrite: bool) -> None:
    """Refuses to replace files, or to start where none can be written.

    Args:
        paths: What will be written, all in one folder; it is made if missing.
        overwrite: Whether files that are there may be replaced.

    Raises:
        InputError: A file is there, or the folder cannot be written to.
    """
    for path in paths:
        if path.is_dir() or (path.exists() and not overwrite):
            raise InputError(
                "An existing output is replaced only on request, a folder never",
                f"{path}, which exists",
                "Pass --overwrite to replace a file, or name another one",
            )
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=path.parent):
                pass
        except OSError as error:
            raise InputError(
                "--output names a file in a folder that can be written to",
                str(error),
                "Name another one",
            ) from error


def train_vocabulary(
    reader: CorpusReader, settings: PretrainingConfig, *, may_strip: bool = False
) -> tuple[Tokenizer, WordCounter]:
    """Reads a corpus and learns a vocabulary from it, with a progress bar.

    Args:
        reader: The corpus.
        settings: Tokenization and vocabulary training.
        may_strip: Strip accents however much of other scripts that changes; see
            `stripping.py`.

    Returns:
        A tokenizer with the new vocabulary, and what was counted.

    Raises:
        InputError: The corpus holds no word, the size is too small, or stripping
            accents changes more than 1% of the letters.
    """
    start = time.perf_counter()
    counter = WordCounter(settings.tokenization)
    with progress_bar(reader) as bar:
        for document in reader:
            counter.add(document.lines)
            if counter.stripping.is_due and not may_strip:
                counter.stripping.found().check()
            bar.update(reader.position_bytes - bar.n)
    if not may_strip:
        counter.stripping.found().check()
    words = counter.words()
    if not words:
        raise InputError(
            "The input holds text", "not a single word", "Look at the input files"
        )
    seconds = time.perf_counter() - start
    print(f"{words.total():,} words, {len(words):,} different, in {seconds:.1f} s")
    if counter.forgotten:
        print(f"{counter.forgotten:,} words met once were forgotten to save memory")
    tokenizer = Tokenizer(
        train_wordpieces(words, settings.vocabulary), settings.tokenization
    )
    return tokenizer, counter


def train_wordpieces(
    words: collections.Counter[str], settings: VocabularyConfig
) -> Vocabulary:
    """Learns the pieces.

    Args:
        words: How often each word occurs.
        settings: Size, rarest pair, character coverage.

    Returns:
        Special tokens in BERT's order, then characters, then pieces as learnt. The
        same counts give the same vocabulary.

    Raises:
        InputError: The characters alone exceed the size.
    """
    alphabet = covering_characters(words, settings.character_coverage)
    usable = {
        word: n for word, n in words.items() if not set(word).difference(alphabet)
    }
    within = {character for word in usable for character in word[1:]}
    # Given as the first entries, or the library would number them in random order and
    # with them break ties differently in each run.
    first = [*SPECIAL_TOKENS, *alphabet]
    first += [CONTINUATION + character for character in alphabet if character in within]
    if len(first) > settings.size:
        raise InputError(
            "A vocabulary has room for its special tokens and for each character at "
            "the start of a word and within one",
            f"--size={settings.size} with {len(alphabet):,} characters, which take "
            f"{len(first):,} entries",
            "Raise --size or lower --character_coverage",
        )
    model = HuggingFaceTokenizer(models.WordPiece(unk_token=UNKNOWN))
    model.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.WordPieceTrainer(
        vocab_size=settings.size,
        min_frequency=settings.min_frequency,
        special_tokens=first,
        continuing_subword_prefix=CONTINUATION,
        show_progress=False,
    )
    model.train_from_iterator(_repeated(usable), trainer)
    pieces = sorted(model.get_vocab().items(), key=lambda item: item[1])
    return Vocabulary(tuple(piece for piece, _ in pieces), "the learnt vocabulary")


def covering_characters(
    words: collections.Counter[str], coverage: float
) -> dict[str, int]:
    """Returns the most frequent characters that make up a share of the text.

    Args:
        words: How often each word occurs.
        coverage: The share, up to 1.

    Returns:
        How often each of them occurs, the most frequent first.
    """
    counts: collections.Counter[str] = collections.Counter()
    for word, count in words.items():
        for character in word:
            counts[character] += count
    wanted = coverage * counts.total()
    kept: dict[str, int] = {}
    # Ties are broken by the character itself, not by the order of reading.
    for character, count in sorted(counts.items(), key=lambda item: (-item[1], item)):
        if wanted <= 0:
            break
        kept[character] = count
        wanted -= count
    return kept


def _repeated(words: dict[str, int]) -> Iterator[str]:
    """Texts in which each word stands as often as it was counted."""
    # The library takes text, not counts.
    for word, count in words.items():
        whole, rest = divmod(count, _REPEATS)
        text = f"{word} "
        for _ in range(whole):
            yield text * _REPEATS
        yield text * rest


@dataclasses.dataclass
class VocabStats:
    """How well a tokenizer's vocabulary fits a text."""

    words: int = 0
    pieces: int = 0
    unknown: int = 0

    def add(self, tokenizer: Tokenizer, lines: Iterable[str]) -> None:
        """Counts words, pieces and [UNK] of some lines."""
        characters = CharacterTable(tokenizer.settings)
        unknown = tokenizer.vocabulary.ids[UNKNOWN]
        for line in lines:
            ids = tokenizer.encode(line)
            units = split_units(line, tokenizer.settings)
            self.words += sum(len(characters.words(unit)) for unit in units)
            self.pieces += len(ids)
            self.unknown += ids.count(unknown)

    @property
    def unknown_share(self) -> float:
        """Share of the pieces that are [UNK]."""
        return self.unknown / max(1, self.pieces)

    def __str__(self) -> str:
        words = max(1, self.words)
        return (
            f"{self.words:,} words, {self.pieces / words:.3f} pieces per word, "
            f"{self.unknown_share:.4%} [UNK]"
        )
