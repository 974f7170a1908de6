import pytest

from electra_tf.config.pretraining import TokenizationConfig
from electra_tf.errors import InputError
from electra_tf.text import warnings as accent_loss
from electra_tf.text.warnings import AccentLoss, AccentLossCounter, is_other_script


def accent_loss_of(text, **settings):
    counter = AccentLossCounter(TokenizationConfig(**settings))
    counter.add(text)
    return counter.result()


@pytest.mark.parametrize(
    ("text", "letters", "changed"),
    [
        ("がき。", 2, 1),
        ("か\u3099", 2, 1),  # the voicing mark by itself
        ("हिन्दी", 6, 1),
        ("ที่", 3, 2),
        ("한 글", 2, 2),
        ("أب", 2, 1),
        ("שלום", 4, 0),
        ("中文", 2, 0),
        ("Éé e\u0301 ñ, 12", 5, 0),
        ("Ελλάδα", 6, 0),
        ("й Ё е\u0308", 4, 0),
        ("\u212b\u2126", 2, 0),  # signs that decompose to Latin and Greek letters
        ("... 123", 0, 0),
    ],
)
def test_letters_and_marks_of_other_scripts_are_counted(text, letters, changed):
    result = accent_loss_of(text)
    assert (result.letters, result.changed) == (letters, changed)


@pytest.mark.parametrize(
    "settings", [{"strip_accents": "never"}, {"lower_case": False}]
)
def test_without_accent_stripping_the_counts_are_zero(settings):
    assert accent_loss_of("がき हिन्दी", **settings) == AccentLoss()


def test_a_word_is_shown_before_and_after():
    example = accent_loss_of("the हिन्दी.").example
    assert example == "'हिन्दी' (6 characters) -> 'हिनदी' (5)"
    assert "'한국' (2 characters)" in accent_loss_of("a 한국").example


def test_over_one_percent_is_an_error():
    accent_loss_of("a" * 99 + "が").check()
    with pytest.raises(InputError, match=r"2 changed of 101.*--strip_accents=never"):
        accent_loss_of("a" * 99 + "がぎ").check()


def test_a_long_text_is_sampled(monkeypatch):
    monkeypatch.setattr(accent_loss, "_FIRST_CHARACTERS", 100)
    counter = AccentLossCounter(TokenizationConfig())
    for _ in range(1000):
        counter.add("aaaaaaaaaが")
    assert 100 + 10_000 // 50 <= counter.result().letters < 100 + 10_000 // 50 + 10
    assert counter.result().share == pytest.approx(0.1)


def test_voicing_marks_belong_to_another_script():
    assert is_other_script("\u3099")
    assert not is_other_script("\u0301")
    assert not is_other_script("é")
