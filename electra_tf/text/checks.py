"""Check texts, vocabularies and records for mistakes of script, case and language.

Texts that are equal after the tokenizer's normalization are found by a hash of each
text's bag of normalized characters. Only texts of equal hashes are normalized: NumPy
adds a number for each character, while normalization takes several times as long as
reading the texts.
"""

import collections
import dataclasses
import unicodedata
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from electra_tf.config.data import TokenizationConfig
from electra_tf.errors import InputError, format_list
from electra_tf.text.encoding import RaggedRows
from electra_tf.text.normalization import CharacterTable, WholeEntries, split_units
from electra_tf.text.records import Manifest
from electra_tf.text.tokenizer import WordPieceTokenizer
from electra_tf.text.vocab import CLS, CONTINUATION, SEP, UNKNOWN

ACCENT_LIMIT = 0.01
"""Maximum share of changed letters and marks without an explicit setting."""
UNKNOWN_LIMIT = ENTRIES_LIMIT = 0.05
PADDING_LIMIT = 0.6
DISCARDED_LIMIT = 0.2
LINES_LIMIT = 10_000
"""Lines of a document on average; a book has fewer."""
_ACCENTED_SCRIPTS = ("LATIN ", "GREEK ", "CYRILLIC ", "COMBINING ")
# Marks of Hiragana and Katakana; their names, too, begin with COMBINING.
_VOICING = "\u3099\u309a"


def check_accents(texts: Sequence[str], settings: TokenizationConfig) -> None:
    """Raise an InputError if accent stripping changes letters of other scripts.

    Outside Latin, Greek and Cyrillic script it removes parts of letters, such as
    Japanese voicing marks, Indic vowel signs and Thai tones. Over 1% of the letters and
    marks (Unicode L* and M*) of the texts are an error.
    """
    if not settings.strips_accents:
        return
    is_changed = _ChangedCharacters(settings)
    counts = collections.Counter("".join(texts))
    letters = sum(n for c, n in counts.items() if unicodedata.category(c)[0] in "LM")
    changed = sum(n for c, n in counts.items() if is_changed[c])
    if changed <= ACCENT_LIMIT * letters:
        return
    example = next(filter(None, map(is_changed.example, texts)))
    raise InputError(
        f"Stripping accents changes {changed:,} of {letters:,} letters and marks at "
        f"the beginning of the text ({changed / letters:.1%}, over "
        f"{ACCENT_LIMIT:.0%}) outside Latin, Greek and Cyrillic script, such as "
        f"{example}; pass --strip_accents=never to keep them, or "
        "--strip_accents=lowered for the rule of the original"
    )


class _ChangedCharacters(dict):
    """Table from character to whether stripping changes it, in another script."""

    def __init__(self, settings: TokenizationConfig):
        super().__init__()
        self._stripped = CharacterTable(settings)
        self._unstripped = CharacterTable(
            dataclasses.replace(settings, strip_accents="never")
        )

    def __missing__(self, character: str) -> bool:
        first = unicodedata.normalize("NFD", character)[0]
        is_accented = unicodedata.name(first, "").startswith(_ACCENTED_SCRIPTS)
        self[character] = is_changed = (
            unicodedata.category(character)[0] in "LM"
            and self._stripped[ord(character)] != self._unstripped[ord(character)]
            and (character in _VOICING or not is_accented)
        )
        return is_changed

    def example(self, text: str) -> str:
        """Return a changed word of a text, or a part of it, before and after."""
        for word in self._unstripped.words(text):
            for i, character in enumerate(word):
                if self[character]:
                    word = word[max(0, i - 8) : i + 9]
                    after = " ".join(self._stripped.words(word))
                    return (
                        f"{word!r} ({len(word)} characters) -> {after!r} ({len(after)})"
                    )
        return ""


def record_warnings(manifest: Manifest, tokenizer: WordPieceTokenizer) -> list[str]:
    """Return a warning for each statistic of a record folder that is out of range."""
    lines = unknown_warnings(manifest.unknown_share, tokenizer)
    lines = lines or entry_warnings(tokenizer)
    documents = max(1, manifest.documents)
    if manifest.padding_share > PADDING_LIMIT:
        lines.append(
            f"{manifest.padding_share:.1%} of the positions are padding (over "
            f"{PADDING_LIMIT:.0%}): documents have {manifest.tokens / documents:.0f} "
            f"tokens on average, records {manifest.max_length} positions. Set a "
            "smaller --max_length, or --documents=file if blank lines do not end "
            "documents"
        )
    discarded = manifest.discarded_tokens / manifest.tokens
    if discarded > DISCARDED_LIMIT:
        lines.append(
            f"{discarded:.1%} of the tokens are discarded (over "
            f"{DISCARDED_LIMIT:.0%}) by the original's packing, as they do not fit "
            f"into {manifest.max_length} positions. Set --order=document to keep them"
        )
    average = manifest.sentences / documents
    is_single = manifest.documents == 1 and manifest.sentences > 1
    is_default = manifest.settings["corpus"]["documents"] == "blank_line"
    if is_default and (is_single or average > LINES_LIMIT):
        count = "1 document has" if is_single else "documents have"
        lines.append(
            f"{count} {average:,.0f} lines, which records join. Set --documents=line "
            "if each line is a text of its own, or end documents with a blank line"
        )
    return lines


def entry_warnings(tokenizer: WordPieceTokenizer) -> list[str]:
    """Return a warning if the settings change many entries, which then never occur."""
    settings, vocabulary = tokenizer.settings, tokenizer.vocabulary
    table = CharacterTable(settings)
    whole = settings.keep_whole
    words = {
        entry: entry.removeprefix(CONTINUATION)
        for entry in vocabulary.tokens
        if not entry.startswith("[") and entry not in whole
    }
    changed = [e for e, word in words.items() if "".join(table.words(word)) != word]
    share = len(changed) / len(vocabulary)
    if share <= ENTRIES_LIMIT:
        return []
    return [
        f"{share:.1%} of the entries of {vocabulary.source} can never occur (over "
        f"{ENTRIES_LIMIT:.0%}), because texts are {settings}: "
        f"{format_list(changed, 3)}. Use a vocabulary of these settings, or set "
        "--nolower_case or --strip_accents=never in build_records, or write "
        '{"do_lower_case": false} or {"strip_accents": false} to tokenizer_config.json '
        "beside vocab.txt"
    ]


def unknown_warnings(share: float, tokenizer: WordPieceTokenizer) -> list[str]:
    """Return a warning with its likely cause if the share of [UNK] is out of range."""
    if share <= UNKNOWN_LIMIT:
        return []
    settings, cause = tokenizer.settings, entry_warnings(tokenizer)
    if not cause:
        cause = [
            f"the vocabulary is of another language or script, or texts are {settings} "
            "and it is not. Pass another --vocab, or train one with electra-tf "
            "build_vocab"
        ]
        if settings.split_unspaced == "none":
            cause[0] += (
                f". Words of more than {settings.max_word_characters} characters are "
                "[UNK] too: set --split_unspaced=characters for scripts without spaces"
            )
    line = f"{share:.1%} of the tokens are [UNK] (over {UNKNOWN_LIMIT:.0%})"
    return [f"{line}: {cause[0]}"]


class UnknownCounter:
    """Count the [UNK] of the texts of a trained model, whose vocabulary is fixed."""

    def __init__(self, tokenizer: WordPieceTokenizer):
        self._tokenizer = tokenizer
        self.wordpieces = self.unknown = 0

    def add(self, texts: Sequence[Sequence[int]]) -> None:
        """Count the wordpieces of texts, [CLS] and [SEP] left out."""
        ids, values = self._tokenizer.vocabulary.ids, RaggedRows.of(texts).values
        frame, unknown = [ids[CLS], ids[SEP]], ids[UNKNOWN]
        self.wordpieces += len(values) - np.isin(values, frame).sum()
        self.unknown += np.count_nonzero(values == unknown)

    def lines(self, name: str) -> list[str]:
        """Return a line about the share of [UNK], above 5% with its cause."""
        if not self.unknown:
            return []
        share = self.unknown / self.wordpieces
        line = (
            f"{name}: {self.unknown:,} of {self.wordpieces:,} wordpieces are [UNK] "
            f"({share:.2%})"
        )
        if share <= UNKNOWN_LIMIT:
            return [line]
        long = self._tokenizer.settings.max_word_characters
        cause = "words or characters of these texts, or their script or case"
        if 2 * self._tokenizer.too_long > self.unknown:
            cause = f"words of more than {long} characters: write spaces between parts"
        return [f"warning: {line}: the vocabulary of the model lacks {cause}"]


Texts = str | tuple[str, ...]

_CACHED_UNITS = 200_000
_CODES = 0x110000
_COMMON = 0x2070  # alphabets, and the punctuation of texts in them
_ROWS = 512  # texts that are hashed together, which fit in a cache
_SEPARATOR = "\0"  # a character that normalization drops


def first_equals(texts: Sequence[Texts], settings: TokenizationConfig) -> np.ndarray:
    """Return the index of the first of all texts that equal each one, int64 [N].

    Args:
        texts: All single texts, or all tuples, which are equal if their texts are.
        settings: Options of normalization.
    """
    first_N, hashes_N = np.arange(len(texts)), _hashes(texts, settings)
    seen: dict[Texts, int] = {}
    for index in np.flatnonzero(_is_repeated(hashes_N)).tolist():
        first_N[index] = seen.setdefault(texts[index], index)
    different = np.fromiter(seen.values(), np.int64, len(seen))
    different = different[_is_repeated(hashes_N[different])].tolist()
    keys = normalized((texts[index] for index in different), settings)
    first: dict[tuple[str, ...], int] = {}
    for index, key in zip(different, keys, strict=True):
        first_N[index] = first.setdefault(key, index)
    return first_N[first_N]


def _is_repeated(hashes_N: np.ndarray) -> np.ndarray:
    """Return whether each hash is that of another text, too."""
    ordered_N = np.sort(hashes_N)
    return np.isin(hashes_N, ordered_N[1:][ordered_N[1:] == ordered_N[:-1]])


def _hashes(texts: Sequence[Texts], settings: TokenizationConfig) -> np.ndarray:
    """Return the sum of the numbers of each text's normalized characters, uint64 [N].

    Equal texts have equal sums, as normalization decides by single characters; a final
    sigma, which it does not, has the number of a sigma.
    """
    characters = CharacterTable(settings)
    number_of = np.random.default_rng(0).integers(2**64, size=_CODES, dtype=np.uint64)
    number_of[ord("ς")] = number_of[ord("σ")]
    sums = np.zeros(_CODES, np.uint64)
    is_known = np.zeros(_CODES, bool)

    def add(codes: Iterable[int]) -> None:
        for code in codes:
            normal = list(map(ord, characters[code].replace(" ", "")))
            sums[code] = number_of[normal].sum() if normal else 0
            is_known[code] = True

    add(range(_COMMON))
    hashes_N = np.empty(len(texts), np.uint64)
    for start in range(0, len(texts), _ROWS):
        rows = texts[start : start + _ROWS]
        if not isinstance(rows[0], str):
            rows = list(map(_SEPARATOR.join, rows))
        joined = _SEPARATOR.join([*rows, ""])  # so that no row is empty
        encoded = joined.encode("utf-32-le", "surrogatepass")
        codes = np.frombuffer(encoded, np.uint32).astype(np.intp)  # as indices are
        if codes.max() >= _COMMON and not is_known.take(codes).all():
            add(np.unique(codes[~is_known[codes]]).tolist())
        lengths = np.fromiter(map(len, rows), np.int64, len(rows)) + 1
        starts = np.cumsum(lengths) - lengths
        hashes_N[start : start + _ROWS] = np.add.reduceat(sums.take(codes), starts)
    return hashes_N


def normalized(
    texts: Iterable[Texts], settings: TokenizationConfig
) -> Iterator[tuple[str, ...]]:
    """Yield each text, or the texts of each tuple, after normalization."""
    whole, units = WholeEntries(settings), _NormalUnits(settings)

    def normalize(text: str) -> str:
        """Return the words of a text with spaces between them."""
        words: list[str] = []
        for part in whole.split(text):
            if part.is_entry:
                words.append(part.text)
            else:
                words += map(units.__getitem__, split_units(part.text, settings))
        return " ".join(filter(None, words))

    for one in texts:
        yield tuple(map(normalize, one if isinstance(one, tuple) else (one,)))


class _NormalUnits(dict):
    """Cache from unit (see `normalization.UNIT`) to its words with spaces between."""

    def __init__(self, settings: TokenizationConfig):
        super().__init__()
        self._characters = CharacterTable(settings)

    def __missing__(self, unit: str) -> str:
        if len(self) >= _CACHED_UNITS:
            self.clear()
        self[unit] = words = " ".join(self._characters.words(unit))
        return words
