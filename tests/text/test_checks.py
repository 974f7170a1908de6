"""Checks of script, case and language: shares, messages and remedies."""

import types

import pytest

from electra_tf.config.data import TokenizationConfig
from electra_tf.errors import InputError
from electra_tf.text import checks
from electra_tf.text.tokenizer import WordPieceTokenizer
from electra_tf.text.vocab import SPECIAL_TOKENS, Vocabulary

UNCASED = Vocabulary((*SPECIAL_TOKENS, "the", "of"))
CASED = Vocabulary((*SPECIAL_TOKENS, "The", "of"))
HINDI = Vocabulary((*SPECIAL_TOKENS, "हिन्दी", "भारत"))
KOREAN = Vocabulary((*SPECIAL_TOKENS, "한국", "서울"))


def manifest(**numbers):
    good = {
        "unknown_share": 0.01, "padding_share": 0.1, "discarded_tokens": 0,
        "tokens": 100, "documents": 10, "max_length": 128,
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
    lines = checks.record_warnings(manifest(**numbers), WordPieceTokenizer(UNCASED))
    assert len(lines) == bool(words)
    assert all(word in lines[0] for word in words)


def test_a_single_document_may_be_meant():
    for sentences, documents in ((100, "file"), (100, "line"), (1, "blank_line")):
        settings = {"corpus": {"documents": documents}}
        single = manifest(documents=1, sentences=sentences, settings=settings)
        assert checks.record_warnings(single, WordPieceTokenizer(UNCASED)) == []


@pytest.mark.parametrize(
    ("vocabulary", "settings", "words"),
    [
        (CASED, {}, "--nolower_case"),
        (UNCASED, {"lower_case": False}, "cased, with accents"),
        (KOREAN, {}, "--strip_accents=never"),
        (HINDI, {"strip_accents": "never"}, "--split_unspaced=characters"),
        (UNCASED, {}, "another language"),
    ],
)
def test_the_cause_of_many_unknown_tokens_is_named(vocabulary, settings, words):
    tokenizer = WordPieceTokenizer(vocabulary, TokenizationConfig(**settings))
    (line,) = checks.unknown_warnings(0.2, tokenizer)
    assert words in line


def unknown_lines(*texts):
    tokenizer = WordPieceTokenizer(UNCASED)
    counter = checks.UnknownCounter(tokenizer)
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
    lines = checks.entry_warnings(
        WordPieceTokenizer(MIXED, TokenizationConfig(**settings))
    )
    assert len(lines) == bool(words)
    assert all(word in lines[0] for word in words)


def test_published_vocabularies_cause_no_warning(data):
    for name in ("bert_uncased_en", "bert_chinese"):
        vocabulary = Vocabulary.read(data / "vocab" / f"{name}.txt")
        assert checks.entry_warnings(WordPieceTokenizer(vocabulary)) == []


def check(*texts, **settings):
    checks.check_accents(texts, TokenizationConfig(**settings))


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("がき。", "1 of 2"),
        ("か\u3099", "1 of 2"),  # the voicing mark by itself
        ("हिन्दी", "1 of 6"),
        ("ที่", "2 of 3"),
        ("한 글", "2 of 2"),
        ("أب", "1 of 2"),
    ],
)
def test_stripping_of_other_scripts_is_an_error(text, changed):
    words = rf"changes {changed} letters.*--strip_accents=never"
    with pytest.raises(InputError, match=words):
        check(text)
    check(text, strip_accents="never")


@pytest.mark.parametrize(
    "text",
    [
        "שלום",
        "中文",
        "Éé e\u0301 ñ, 12",
        "Ελλάδα",
        "й Ё е\u0308",
        "\u212b\u2126",  # signs that decompose to Latin and Greek letters
        "... 123",
    ],
)
def test_stripping_of_these_scripts_is_not(text):
    check(text)


def test_over_one_percent_is_an_error():
    check("a" * 90, "a" * 9 + "が")
    with pytest.raises(InputError, match=r"changes 2 of 101.*'が' \(1 char"):
        check("a" * 90, "a" * 9 + " が ぎ")
