"""Checks of script, case and language: shares, messages and remedies."""

import types

import pytest

from electra_tf.config.data import TokenizationConfig
from electra_tf.errors import InputError
from electra_tf.text import warnings
from electra_tf.text.tokenizer import WordPieceTokenizer
from electra_tf.text.vocab import SPECIAL_TOKENS, Vocabulary

UNCASED = Vocabulary((*SPECIAL_TOKENS, "the", "of"))
CASED = Vocabulary((*SPECIAL_TOKENS, "The", "of"))
HINDI = Vocabulary((*SPECIAL_TOKENS, "हिन्दी", "भारत"))
KOREAN = Vocabulary((*SPECIAL_TOKENS, "한국", "서울"))


def manifest(**numbers):
    good = {
        "unknown_share": 0.01, "padding_share": 0.1, "discarded_tokens": 0,
        "tokens": 100, "documents": 10, "max_length": 128, "too_long_words": 0,
        "sentences": 100, "settings": {"corpus": {"documents": "blank_line"}},
    }  # fmt: skip
    return types.SimpleNamespace(**{**good, **numbers})


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ({}, []),
        ({"unknown_share": 0.051}, ["5.1%", "[UNK]", "electra-tf build_vocab"]),
        ({"padding_share": 0.61}, ["61.0%", "padding", "--max_length", "10 tokens"]),
        ({"discarded_tokens": 32}, ["32.0%", "discarded", "--order=document"]),
        ({"documents": 1}, ["1 document", "100 lines", "--documents=line"]),
        ({"sentences": 200_000}, ["20,000 lines", "--documents=line"]),
    ],
)
def test_each_statistic_has_its_warning(numbers, words):
    lines = warnings.record_warnings(manifest(**numbers), WordPieceTokenizer(UNCASED))
    assert len(lines) == bool(words)
    assert all(word in lines[0] for word in words)


def test_a_single_document_may_be_meant():
    for sentences, documents in ((100, "file"), (100, "line"), (1, "blank_line")):
        settings = {"corpus": {"documents": documents}}
        single = manifest(documents=1, sentences=sentences, settings=settings)
        assert warnings.record_warnings(single, WordPieceTokenizer(UNCASED)) == []


@pytest.mark.parametrize(
    ("vocabulary", "settings", "long", "words"),
    [
        (CASED, {}, 0, "--nolower_case"),
        (UNCASED, {"lower_case": False}, 0, "cased, with accents"),
        (KOREAN, {}, 0, "--strip_accents=never"),
        (HINDI, {"strip_accents": "never"}, 3, "--split_unspaced=characters"),
        (UNCASED, {}, 0, "another language"),
    ],
)
def test_the_cause_of_many_unknown_tokens_is_named(vocabulary, settings, long, words):
    tokenizer = WordPieceTokenizer(vocabulary, TokenizationConfig(**settings))
    (line,) = warnings.unknown_warnings(0.2, tokenizer, long)
    assert words in line


def unknown_lines(*texts):
    tokenizer = WordPieceTokenizer(UNCASED)
    counter = warnings.UnknownCounter(tokenizer)
    ids = UNCASED.ids
    rows = [[ids["[CLS]"], *tokenizer.encode(t), ids["[SEP]"]] for t in texts]
    counter.add(rows)
    return counter.lines("dev")


def test_unknown_wordpieces_of_texts_are_counted_without_special_tokens():
    assert unknown_lines("the of", "") == []
    (line,) = unknown_lines(*["the of"] * 20, "the cat")
    assert "dev: 1 of 42" in line
    assert "2.38%" in line
    assert "warning" not in line
    (line,) = unknown_lines("the cat", "كتاب")
    assert line.startswith("warning: dev: 2 of 3")
    assert "66.67%" in line
    (line,) = unknown_lines("M" * 300)
    assert "100.00%" in line
    assert "200 characters" in line


def test_stripped_letters_and_over_long_words_are_reported():
    tokenizer = WordPieceTokenizer(UNCASED)
    assert warnings.text_lines(0.00009, "x", 0, 0, tokenizer) == []
    stripped, long = warnings.text_lines(0.5, "'a' -> 'b'", 3, 900, tokenizer)
    for word in ("50.00%", "'a' -> 'b'", "--strip_accents=never"):
        assert word in stripped
    for word in ("3 words", "900 characters", "--split_unspaced=characters"):
        assert word in long


MIXED = Vocabulary((*SPECIAL_TOKENS, "[unused1]", "The", "##S", "é", "a", "b", "c"))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, ["25.0%", "'The', '##S', 'é'", "--nolower_case", "do_lower_case"]),
        ({"lower_case": False}, []),
        (
            {"lower_case": False, "strip_accents": "always"},
            ["8.3%", "'é'", "--strip_accents=never"],
        ),
        ({"keep_whole": ("The",), "strip_accents": "never"}, ["8.3%", "'##S'"]),
    ],
)
def test_entries_that_can_never_occur_are_counted(settings, words):
    lines = warnings.entry_warnings(
        WordPieceTokenizer(MIXED, TokenizationConfig(**settings))
    )
    assert len(lines) == bool(words)
    assert all(word in lines[0] for word in words)


def test_published_vocabularies_cause_no_warning(data):
    for name in ("bert_uncased_en", "bert_chinese"):
        vocabulary = Vocabulary.read(data / "vocab" / f"{name}.txt")
        assert warnings.entry_warnings(WordPieceTokenizer(vocabulary)) == []


def accent_loss_of(text, **settings):
    counter = warnings.AccentLossCounter(TokenizationConfig(**settings))
    counter.add(text)
    return counter.loss


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


def test_over_one_percent_is_an_error():
    accent_loss_of("a" * 99 + "が").check()
    with pytest.raises(InputError, match=r"changes 2 of 101.*--strip_accents=never"):
        accent_loss_of("a" * 99 + "がぎ").check()


def test_a_long_text_is_sampled(monkeypatch):
    monkeypatch.setattr(warnings, "_FIRST_CHARACTERS", 100)
    counter = warnings.AccentLossCounter(TokenizationConfig())
    for _ in range(1000):
        counter.add("aaaaaaaaaが")
    assert 100 + 10_000 // 50 <= counter.loss.letters < 100 + 10_000 // 50 + 10
    assert counter.loss.share == pytest.approx(0.1)
