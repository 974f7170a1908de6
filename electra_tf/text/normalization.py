"""Normalize the characters of a text before WordPiece, by the rules of the original.

The basic tokenizer of BERT and ELECTRA removes control characters, separates
ideographs, lower-cases, strips accents and separates punctuation
(google-research/electra, model/tokenization.py). Except for the Greek final sigma, the
result of a character does not depend on its neighbours, so one table from character to
string contains all rules. `str.translate` applies it here; `graph_tokenizer.py`
compiles the same table to TensorFlow operations.

The character data is that of Python (`unicodedata.unidata_version`).
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from electra_tf.config.data import TokenizationConfig
from electra_tf.errors import InputError
from electra_tf.text.vocab import CONTINUATION, SPECIAL_TOKENS

# The eight ranges that the original calls Chinese; each of their characters is a word.
IDEOGRAPHS = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)

# Prefixes of the names of characters in scripts without spaces between words: class SA
# of Unicode's line breaking (UAX #14), which requires a dictionary.
UNSPACED = ("THAI ", "LAO ", "KHMER ", "MYANMAR ", "TAI ", "NEW TAI LUE ", "AHOM ")


def is_dropped(character: str) -> bool:
    """Return whether the original deletes the character: Unicode C* and U+FFFD.

    Tab, newline and carriage return are spaces.
    """
    if character in "\t\n\r":
        return False
    return character == "\ufffd" or unicodedata.category(character).startswith("C")


def is_punctuation(character: str) -> bool:
    """Return whether the original separates the character as punctuation.

    It is in Unicode P*, or printable ASCII that is neither letter nor digit.
    """
    if character.isascii():
        return character.isprintable() and not (character.isalnum() or character == " ")
    return unicodedata.category(character).startswith("P")


def end_of_marks(index: int, text: str) -> int:
    """Return the index after a character and its combining marks."""
    index += 1
    while index < len(text) and unicodedata.category(text[index]).startswith("M"):
        index += 1
    return index


def starts_word(character: str) -> bool:
    """Return whether the character is a letter of a script without spaces.

    Combining marks of these scripts belong to the letter before them.
    """
    is_letter = unicodedata.category(character).startswith("L")
    return is_letter and unicodedata.name(character, "").startswith(UNSPACED)


def ranges(codes: Iterable[int]) -> list[tuple[int, int]]:
    """Return code points as sorted (first, last) runs."""
    runs: list[tuple[int, int]] = []
    for code in sorted(set(codes)):
        if runs and code == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], code)
        else:
            runs.append((code, code))
    return runs


# Categories Zs, Zl and Zp. The cleaning step of the original handles Zs only; its
# `str.split` then splits at Zl and Zp.
SPACES = "\t\n\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"

# A unit is one ideograph, or the text between spaces and ideographs. No rule depends on
# text outside the unit, so the wordpieces of a unit can be cached.
# Unassigned characters of the ranges are dropped and separate nothing.
_IDEOGRAPH = "".join(
    f"{chr(first)}-{chr(last)}"
    for first, last in ranges(
        code
        for start, end in IDEOGRAPHS
        for code in range(start, end + 1)
        if not is_dropped(chr(code))
    )
)
UNIT = re.compile(f"[{_IDEOGRAPH}]|[^{SPACES}{_IDEOGRAPH}]+")
# Signs that most units end with.
_COMMON_SIGNS = ",.()\"-';"
_MAX_ENTRIES = 2000
_SPACE = re.compile(f"[{SPACES}]")
_SIGMA = re.compile("[Σσς]")


class CharacterTable(dict):
    """Lazily filled table from code point to normalized string, for `str.translate`.

    The value is "" for characters that are dropped, " " for a space, " x " for
    punctuation and ideographs, " x" for a letter of an unspaced script that is split,
    otherwise the letter, lower-cased and without accents as the settings require.
    """

    def __init__(self, settings: TokenizationConfig):
        super().__init__()
        self._settings = settings

    def __missing__(self, code: int) -> str:
        self[code] = result = self._normalize(chr(code))
        return result

    def _normalize(self, character: str) -> str:
        if _SPACE.match(character):
            return " "
        if is_dropped(character):
            return ""
        text = character.lower() if self._settings.lower_case else character
        if self._settings.strips_accents:
            text = unicodedata.normalize("NFD", text)
            text = "".join(c for c in text if unicodedata.category(c) != "Mn")
        text = "".join(f" {c} " if is_punctuation(c) else c for c in text)
        if self._settings.split_unspaced == "characters" and starts_word(character):
            return f" {text}"
        is_ideograph = any(
            first <= ord(character) <= last for first, last in IDEOGRAPHS
        )
        return f" {text} " if is_ideograph else text

    def words(self, unit: str) -> list[str]:
        """Split a unit into the words and punctuation marks for WordPiece."""
        if self._settings.lower_case and "Σ" in unit:
            # Dropped characters and marks (which are ignorable) are no neighbours.
            visible = "".join(c for c in unit if self[ord(c)])
            small = iter(re.findall("[σς]", visible.lower()))
            unit = _SIGMA.sub(lambda _: next(small), unit)
        return unit.translate(self).split()


class TextPart(NamedTuple):
    """A part of a text."""

    start: int
    text: str
    is_entry: bool
    """True for an entry of the vocabulary that is kept whole."""


class WholeEntries:
    """Entries that are kept whole, the longest first.

    `pattern` is valid for Python and for RE2, so that the tokenizer in TensorFlow finds
    the same ones.
    """

    def __init__(self, settings: TokenizationConfig):
        _check_whole(settings.keep_whole, settings.max_word_characters)
        entries = sorted(settings.keep_whole, key=len, reverse=True)
        self.pattern = f"({'|'.join(map(re.escape, entries))})" if entries else ""
        self._pattern = re.compile(self.pattern)

    def __bool__(self) -> bool:
        return bool(self.pattern)

    def split(self, text: str) -> Iterator[TextPart]:
        """Yield the parts of a text in order."""
        start = 0
        # Every second part is a match of the group.
        for number, part in enumerate(self._pattern.split(text) if self else [text]):
            if part:
                yield TextPart(start, part, number % 2 == 1)
            start += len(part)


def _check_whole(entries: Sequence[str], longest: int) -> None:
    if len(entries) > _MAX_ENTRIES:
        raise InputError(
            f"At most {_MAX_ENTRIES:,} entries may be kept whole, because each place "
            f"of a text is compared with all, not {len(entries):,}"
        )
    for entry in entries:
        # A capital sigma is lower-cased by its neighbours, which the graph does first.
        wrong = [c for c in entry if c.isspace() or is_dropped(c) or c == "\u03a3"]
        is_other = entry.startswith(CONTINUATION) or entry in SPECIAL_TOKENS
        if not entry or wrong or is_other or len(entry) > longest:
            raise InputError(
                f"An entry of keep_whole must have 1 to {longest} characters, no white "
                "space, control character or capital sigma, not begin with "
                f"{CONTINUATION} and be no special token, not {entry!r:.80}"
            )


def split_units(text: str, settings: TokenizationConfig) -> list[str]:
    """Split a text into units that are tokenized independently of each other.

    The rule is `normalization.UNIT`. Text without control characters and with plain
    spaces only is lower-cased and split at its most frequent punctuation first, so
    that the cache needs fewer units. The `CharacterTable.words` of the units,
    concatenated, are the words of the text.
    """
    if text.isprintable() and "\ufffd" not in text:
        if settings.lower_case:
            text = text.lower()
        for sign in _COMMON_SIGNS:
            text = text.replace(sign, f" {sign} ")
        units = text.split()
        if text.isascii() or len(text) < 16 * len(units):
            return units
    return UNIT.findall(text)


class Normalizer:
    """Split texts into normalized words."""

    def __init__(self, settings: TokenizationConfig):
        self._whole = WholeEntries(settings)
        self._characters = CharacterTable(settings)

    def words(self, text: str) -> list[str]:
        """Return the words of a text, with the entries that are kept whole."""
        words: list[str] = []
        for part in self._whole.split(text):
            if part.is_entry:
                words.append(part.text)
            else:
                words += self._characters.words(part.text)
        return words
