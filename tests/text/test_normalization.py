import re
import unicodedata

import pytest

from electra_tf.config.pretraining import TokenizationConfig
from electra_tf.text.normalization import (
    IDEOGRAPHS,
    SPACES,
    UNIT,
    CharacterTable,
    is_dropped,
    is_ideograph,
    is_punctuation,
    ranges,
    starts_word,
)

UNCASED = CharacterTable(TokenizationConfig())
CASED = CharacterTable(TokenizationConfig(lower_case=False))
ACCENTED = CharacterTable(TokenizationConfig(strip_accents="never"))


@pytest.mark.parametrize(
    ("character", "uncased", "cased", "accented"),
    [
        ("a", "a", "a", "a"),
        ("É", "e", "É", "é"),
        ("İ", "i", "İ", "i\u0307"),
        ("ß", "ß", "ß", "ß"),
        ("\u0301", "", "\u0301", "\u0301"),
        ("각", "\u1100\u1161\u11a8", "각", "각"),
        ("中", " 中 ", " 中 ", " 中 "),
        ("\uf900", " 豈 ", " \uf900 ", " \uf900 "),  # a compatibility ideograph
        ("!", " ! ", " ! ", " ! "),
        ("$", " $ ", " $ ", " $ "),
        ("…", " … ", " … ", " … "),
        ("\u037e", " ; ", " \u037e ", " \u037e "),  # decomposes to a semicolon
        ("€", "€", "€", "€"),
        ("\t", " ", " ", " "),
        ("\u3000", " ", " ", " "),
        ("\u2028", " ", " ", " "),
        ("\0", "", "", ""),
        ("\x1c", "", "", ""),
        ("\u200b", "", "", ""),
        ("\ufffd", "", "", ""),
        ("\ue000", "", "", ""),
        ("\U000e0080", "", "", ""),
    ],
)
def test_characters_are_normalized(character, uncased, cased, accented):
    assert UNCASED[ord(character)] == uncased
    assert CASED[ord(character)] == cased
    assert ACCENTED[ord(character)] == accented


def test_letters_of_unspaced_scripts_begin_words():
    table = CharacterTable(
        TokenizationConfig(split_unspaced="characters", strip_accents="never")
    )
    letters = "กเລកကᥐᦀᨠ"
    assert all(table[ord(letter)] == f" {letter}" for letter in letters)
    for other in "ี្่ိ๑aक가ཀ":
        assert table[ord(other)] == other
        assert not starts_word(other)
    assert table.words("ที่นี่") == ["ที่", "นี่"]


def test_spaces_match_the_unicode_categories():
    table = {c for c in map(chr, range(0x110000)) if re.match(f"[{SPACES}]", c)}
    named = {
        c
        for c in map(chr, range(0x110000))
        if unicodedata.category(c) in ("Zs", "Zl", "Zp") or c in "\t\n\r"
    }
    assert table == named


def test_units_are_split_at_spaces_and_ideographs_only():
    text = "ab,c\x0bd\u3000e\u200bf中g 文\ufa6eh"
    assert UNIT.findall(text) == ["ab,c\x0bd", "e\u200bf", "中", "g", "文", "\ufa6eh"]


def test_a_capital_sigma_is_lowered_by_its_position():
    for word in ("ΟΔΟΣ", "ΣΑΣ", "ΑΣ.Β", "ΑΣ.", "Σ", "ΑΣΣ", "Α\u0301Σ\u0301", "aΣ'ΣΑ"):
        plain = UNCASED.words(word)
        assert "".join(plain) == "".join(
            c
            for c in unicodedata.normalize("NFD", word.lower())
            if unicodedata.category(c) != "Mn"
        )
    # A dropped character does not split a word.
    assert UNCASED.words("ΑΣ\u200bΑ") == ["ασα"]


def test_character_classes():
    assert [c for c in map(chr, range(128)) if is_punctuation(c)] == list(
        "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
    )
    assert is_dropped("\x07")
    assert not any(map(is_dropped, "a\t\n\r \u2028\u3000"))
    for first, last in IDEOGRAPHS:
        assert is_ideograph(chr(first))
        assert is_ideograph(chr(last))
    for outside in (0x33FF, 0x4DC0, 0xA000, 0xF8FF, 0xFB00, 0x1FFFF, 0x2CEB0, 0x30000):
        assert not is_ideograph(chr(outside))


def test_ranges():
    assert ranges([5, 1, 2, 3, 9, 8, 2]) == [(1, 3), (5, 5), (8, 9)]
    assert ranges([]) == []
