import pytest

from electra_tf.config.data import TokenizationConfig
from electra_tf.text.normalization import CharacterTable

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
    assert table.words("ที่นี่") == ["ที่", "นี่"]
