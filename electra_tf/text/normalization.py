"""What each character of a text becomes before WordPiece: the original's rules.

BERT's and ELECTRA's basic tokenizer cleans a text, sets ideographs apart, lower-cases,
strips accents and sets punctuation apart (google-research/electra,
model/tokenization.py). But for one letter, the Greek final sigma, what becomes of a
character does not depend on its neighbours, so all of it is one table from character
to string. `str.translate` reads it here; `graph_tokenizer.py` compiles the same table
into TensorFlow operations.

The character data is Python's (`unicodedata.unidata_version`).
"""

import itertools
import re
import unicodedata
from collections.abc import Iterable

from electra_tf.config.pretraining import TokenizationConfig

# The eight ranges the original calls Chinese; a space goes on both sides of each.
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

# How the names begin of characters of scripts without spaces between words: those that
# Unicode's line breaking (UAX #14, class SA) leaves to a dictionary.
UNSPACED = ("THAI ", "LAO ", "KHMER ", "MYANMAR ", "TAI ", "NEW TAI LUE ", "AHOM ")


def is_ideograph(character: str) -> bool:
    """Whether the character lies in one of the original's eight Chinese ranges."""
    return any(first <= ord(character) <= last for first, last in IDEOGRAPHS)


def is_dropped(character: str) -> bool:
    """Whether the original deletes the character: Unicode C* and the replacement sign.

    Tab, newline and carriage return are C* too, but spaces to it.
    """
    if character in "\t\n\r":
        return False
    return character == "\ufffd" or unicodedata.category(character).startswith("C")


def is_punctuation(character: str) -> bool:
    """Whether the original sets the character apart: Unicode P*, or an ASCII sign."""
    if character.isascii():
        return character.isprintable() and not (character.isalnum() or character == " ")
    return unicodedata.category(character).startswith("P")


def starts_word(character: str) -> bool:
    """Whether it is a letter of a script that puts no space between words.

    The combining marks of such a script belong to the letter before them.
    """
    is_letter = unicodedata.category(character).startswith("L")
    return is_letter and unicodedata.name(character, "").startswith(UNSPACED)


def ranges(codes: Iterable[int]) -> list[tuple[int, int]]:
    """Code points as (first, last) runs, in order."""
    runs: list[tuple[int, int]] = []
    for code in sorted(set(codes)):
        if runs and code == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], code)
        else:
            runs.append((code, code))
    return runs


def _ideograph_class() -> str:
    # The ranges hold unassigned characters, which are dropped and part nothing.
    codes = itertools.chain.from_iterable(range(a, b + 1) for a, b in IDEOGRAPHS)
    runs = ranges(code for code in codes if not is_dropped(chr(code)))
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in runs)


# Categories Zs, Zl and Zp. The last two are not white space to the original's cleaning
# but are to the `str.split` that follows it.
SPACES = "\t\n\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"

# A unit: one ideograph, or whatever stands between spaces and ideographs. No rule looks
# across the border of a unit, so its pieces can be remembered.
_IDEOGRAPH = _ideograph_class()
UNIT = re.compile(f"[{_IDEOGRAPH}]|[^{SPACES}{_IDEOGRAPH}]+")
_SPACE = re.compile(f"[{SPACES}]")
_SIGMA = re.compile("[Σσς]")


class CharacterTable(dict):
    """The table for `str.translate`, filled as characters are met.

    A key is a code point; its value is what stands for it in the cleaned text: "" for
    control, unassigned and private characters, " " for a space, " x " for punctuation
    and ideographs, " x" for a letter of an unspaced script that is split, the
    lower-cased and unaccented letter, or the character itself.

    Args:
        settings: Whether to lower-case, to strip accents and to split unspaced
            scripts.
    """

    def __init__(self, settings: TokenizationConfig):
        super().__init__()
        self._settings = settings

    def __missing__(self, code: int) -> str:
        self[code] = result = self._become(chr(code))
        return result

    def _become(self, character: str) -> str:
        if _SPACE.match(character):
            return " "
        if is_dropped(character):
            return ""
        text = character.lower() if self._settings.lower_case else character
        if self._settings.strips:
            text = unicodedata.normalize("NFD", text)
            text = "".join(c for c in text if unicodedata.category(c) != "Mn")
        text = "".join(f" {c} " if is_punctuation(c) else c for c in text)
        if self._settings.split_unspaced == "characters" and starts_word(character):
            return f" {text}"
        return f" {text} " if is_ideograph(character) else text

    def words(self, unit: str) -> list[str]:
        """Splits a unit into the words and punctuation marks that WordPiece takes."""
        if self._settings.lower_case and "Σ" in unit:
            unit = _place_sigmas(unit, self)
        return unit.translate(self).split()


def _place_sigmas(unit: str, table: CharacterTable) -> str:
    """Writes each capital sigma as the small one that belongs at its place."""
    # Dropped characters do not count as neighbours, nor do marks (they are ignorable).
    kept = "".join(c for c in unit if table[ord(c)])
    small = iter(re.findall("[σς]", kept.lower()))
    return _SIGMA.sub(lambda _: next(small), unit)
