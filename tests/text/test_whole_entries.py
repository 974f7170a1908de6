import random

import pytest

from electra_tf.config.data import TokenizationConfig
from electra_tf.errors import InputError
from electra_tf.text.tokenizer import WordPieceTokenizer
from electra_tf.text.tokenizer_files import fast_tokenizer
from electra_tf.text.vocab import SPECIAL_TOKENS, Vocabulary

WHOLE = ("[USER]", "[URL]", "[URL]s", "<é>", "COVID-19", "中心", "MacOS")
LETTERS = "acdeiorsuvmлпσ0123456789中心éç"
VOCABULARY = Vocabulary(
    (
        *SPECIAL_TOKENS, *WHOLE, *LETTERS, *(f"##{c}" for c in LETTERS), "[", "]", "<",
        ">", "-", "user", "url", "covid", "macos", "##user", "the", "ς", "##ς", "α",
        "##α",
    )
)  # fmt: skip
TEXTS = (
    "the [USER] and [User] [URL] [URL]s at[USER]s[URL][USER]",
    "COVID-19 covid-19 COVID COVID-190 xCOVID-19",
    "MacOS macos MACOS MacOSs macoss <é> <É> <e> 中心 中 心中心心",
    "[US\u0300ER] [USER]\u0301 [\u0300USER] e\u0301[USER]\u0301x",
    "\U0010fff0[USER]\U0010fff2 \U0010fff1\U0010fff3 a\U0010fff0c",
    "\x00[USER]\x00 [MASK] [PAD]",
    "", "[USER]", "  [URL]  ",
)  # fmt: skip


SETTINGS = [
    TokenizationConfig(keep_whole=WHOLE, lower_case=lower, strip_accents=strip)
    for lower, strip in (
        (True, "lowered"), (True, "never"), (False, "lowered"), (False, "always")
    )
]  # fmt: skip


@pytest.mark.parametrize("settings", SETTINGS)
def test_ids_are_those_of_the_library_tokenizers(settings):
    tokenizer = WordPieceTokenizer(VOCABULARY, settings)
    theirs = fast_tokenizer(tokenizer)
    texts = [text for text in TEXTS if "\u0300" not in text and "[MASK]" not in text]
    expected = [theirs.encode(text, add_special_tokens=False).ids for text in texts]
    assert [tokenizer.encode(text) for text in texts] == expected


@pytest.mark.parametrize("settings", SETTINGS[::2])
def test_the_graph_finds_the_same_entries_at_the_same_places(settings):
    tokenizer = WordPieceTokenizer(VOCABULARY, settings)
    rng = random.Random(0)
    pieces = (*WHOLE, *LETTERS, " ", "\u0301", "[", "]", "USER", "Α", "Σ", "\U0010fff0")
    texts = [*TEXTS, *("".join(rng.choices(pieces, k=8)) for _ in range(300))]
    graph = tokenizer.graph()
    expected = [tokenizer.encode(text) for text in texts]
    assert graph(texts).to_list() == expected
    spans = [tokenizer.piece_offsets(text) for text in texts]
    offsets = graph.encode_with_offsets(texts)
    assert offsets.ids.to_list() == expected
    assert offsets.starts.to_list() == [[a for a, _ in row] for row in spans]
    assert offsets.ends.to_list() == [[b for _, b in row] for row in spans]


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        (("a b",), "'a b'"),
        (("a\u200b",), "keep_whole"),
        (("ΑΣ",), "sigma"),
        (("",), "''"),
        (("##a",), "'##a'"),
        (("[MASK]",), r"'\[MASK\]'"),
        (("[NEW]",), r"lacks '\[NEW\]'"),
        (tuple(f"[{number}]" for number in range(2001)), "2,001"),
    ],
)
def test_entries_that_cannot_be_kept_whole_are_refused(entries, words):
    with pytest.raises(InputError, match=words):
        WordPieceTokenizer(VOCABULARY, TokenizationConfig(keep_whole=entries))
