"""Ids equal those of the original, of its rules in plain Python, and of the graph."""

import gzip
import itertools
import json
import lzma
import pathlib
import random
import unicodedata

import numpy as np
import pytest
import tokenizers

from electra_tf.config.data import TokenizationConfig
from electra_tf.errors import InputError
from electra_tf.text.tokenizer import WordPieceTokenizer
from electra_tf.text.tokenizer_files import open_tokenizer
from electra_tf.text.vocab import SPECIAL_TOKENS, Vocabulary
from tests.conftest import GOLDEN
from tests.generated_texts import PARTS, random_bytes
from tests.text.plain_tokenizer import tokenize

ORIGINAL = [
    (TokenizationConfig(), (True, True)),
    (TokenizationConfig(strip_accents="never"), (True, False)),
    (TokenizationConfig(lower_case=False), (False, True)),
    (TokenizationConfig(lower_case=False, strip_accents="never"), (False, False)),
]
CASES = json.loads((GOLDEN / "tokenization.json").read_text())


CASED_WITHOUT_ACCENTS = TokenizationConfig(lower_case=False, strip_accents="always")
SPLIT = TokenizationConfig(strip_accents="never", split_unspaced="characters")
# Settings of both tokenizers, and those of the plain rules.
ALL = [*ORIGINAL, (CASED_WITHOUT_ACCENTS, None), (SPLIT, None)]


def pairs_of(vocabulary):
    """Return for each setting the Python tokenizer and the graph tokenizer."""
    tokenizers = [WordPieceTokenizer(vocabulary, settings) for settings, _ in ALL]
    return {t.settings: (t, t.graph()) for t in tokenizers}


@pytest.fixture(scope="module")
def pairs(vocabulary):
    return pairs_of(vocabulary)


@pytest.fixture(scope="module")
def wide_pairs(vocabulary):
    """Return tokenizers with all characters as entries, so that few texts are [UNK]."""
    text = "".join(PARTS)
    forms = [text, text.lower(), unicodedata.normalize("NFD", text.lower() + text)]
    characters = sorted({*"".join(forms), "ς", "σ"} - {*" \t\r\n"})
    characters = [c for c in characters if c.strip()]
    pieces = [*characters, *(f"##{c}" for c in characters)]
    tokens = dict.fromkeys([*vocabulary.tokens, *pieces])
    return pairs_of(Vocabulary(tuple(tokens)))


def assert_equal(texts, pair, original=None):
    """Assert equal ids of both tokenizers, and of the plain rules where they apply."""
    tokenizer, graph = pair
    ids = tokenizer.vocabulary.ids
    texts = list(texts)
    offline = [tokenizer.encode(text) for text in texts]
    in_graph = []
    for start in range(0, len(texts), 5000):
        in_graph += graph(texts[start : start + 5000]).to_list()
    for text, a, b in zip(texts, offline, in_graph, strict=True):
        assert a == b, text
    if original:
        for text, a in zip(texts, offline, strict=True):
            assert a == tokenize(text, ids, *original), text


def test_ids_equal_the_originals(pairs, vocabulary):
    for case in CASES:
        text, ids = case["text"], case["ids"]
        flags = case["do_lower_case"], case["strip_accents"]
        accents = "lowered" if case["strip_accents"] else "never"
        tokenizer, graph = pairs[
            TokenizationConfig(lower_case=flags[0], strip_accents=accents)
        ]
        assert tokenizer.encode(text) == ids, text
        assert graph([text]).to_list() == [ids], text
        assert tokenize(text, vocabulary.ids, *flags) == ids, text


@pytest.mark.parametrize(("settings", "original"), ALL)
def test_random_texts(wide_pairs, settings, original):
    assert_equal(random_bytes(500), wide_pairs[settings], original)


@pytest.mark.slow
@pytest.mark.parametrize(("settings", "original"), [ORIGINAL[0], ORIGINAL[3]])
def test_many_random_texts(wide_pairs, settings, original):
    assert_equal(random_bytes(100_000, 100), wide_pairs[settings], original)


def test_random_texts_of_unspaced_scripts(wide_pairs):
    rng = random.Random(2)
    letters = "กิ่เทศລາີក្ខကေိๅ๑ a1.,中"
    texts = ["".join(rng.choices(letters, k=rng.randint(0, 40))) for _ in range(500)]
    assert_equal(texts, wide_pairs[SPLIT])


def test_a_letter_of_an_unspaced_script_and_its_marks_are_a_word(vocabulary):
    pieces = ("ที่", "ก", "##ก")
    wide = Vocabulary((*vocabulary.tokens, *pieces))
    long = "ที่ก" * 300  # 1,200 characters without a space
    split, whole = WordPieceTokenizer(wide, SPLIT), WordPieceTokenizer(wide)
    assert split.encode(long) == [wide.ids[pieces[0]], wide.ids["ก"]] * 300
    assert whole.encode(f"{long} the {long}").count(wide.ids["[UNK]"]) == 2


def test_artefacts_of_versions_without_a_setting_are_accepted(vocabulary, tmp_path):
    tokenizer = WordPieceTokenizer(vocabulary)
    stored = tokenizer.identity()
    del stored["split_unspaced"]
    tokenizer.check_identity(stored, "records")
    with pytest.raises(InputError, match="split_unspaced 'none'"):
        WordPieceTokenizer(vocabulary, SPLIT).check_identity(stored, "records")
    tokenizer.save(tmp_path / "vocab.txt")
    (tmp_path / "vocab.txt.settings.json").write_text(json.dumps(stored))
    read = open_tokenizer(tmp_path / "vocab.txt")
    assert read.base["tokenization.split_unspaced"] == "none"


@pytest.mark.parametrize(
    ("letter", "length"),
    [("a", 200), ("a", 201), ("a", 100_000), ("é", 200), ("é", 201), ("ß", 201),
     ("\U0001d400", 201), ("Σ", 201)],
)  # fmt: skip
def test_words_of_over_200_characters_are_unknown(pairs, length, letter):
    pair = pairs[TokenizationConfig()]
    text = f"the {letter * length} user"
    assert_equal([text], pair, (True, True))
    if letter == "a":
        # Both `a` and `##a` are entries: only the length makes it [UNK].
        assert (pair[0].encode(text)[1:-1] == [1]) == (length > 200)


def compare_corpus(data, last, every):
    seen = 0
    files = [*(data / "corpus").iterdir(), *(data / "zh").glob("*.*")]
    for path in sorted(filter(pathlib.Path.is_file, files)):
        name = "bert_chinese" if path.parent.name == "zh" else "bert_uncased_en"
        tokenizer = WordPieceTokenizer(Vocabulary.read(data / "vocab" / f"{name}.txt"))
        pair = tokenizer, tokenizer.graph()
        opener = {".xz": lzma.open, ".gz": gzip.open}.get(path.suffix, open)
        with opener(path, "rt", encoding="utf-8", newline="\n") as file:
            lines = itertools.islice(file, 0, last, every)
            while chunk := list(itertools.islice(lines, 10_000)):
                assert_equal(chunk, pair, (True, True))
                seen += len(chunk)
    return seen


def test_lines_of_real_text(data):
    assert compare_corpus(data, last=20_000, every=25) > 3900


@pytest.mark.slow
def test_every_line_of_real_text(data):
    assert compare_corpus(data, last=None, every=1) > 780_000


def test_settings_are_stored_with_the_vocabulary(tmp_path, vocabulary):
    path = tmp_path / "vocab.txt"
    settings = TokenizationConfig(
        lower_case=False, strip_accents="always", keep_whole=("the", "of")
    )
    WordPieceTokenizer(vocabulary, settings).save(path)
    stored = open_tokenizer(path)
    stored.check(settings)
    assert stored.tokenizer().settings == settings
    with pytest.raises(InputError, match=r"'lower_case': False.*'lower_case': True"):
        stored.check(TokenizationConfig())
    assert open_tokenizer(GOLDEN / "vocab.txt").settings is None
    path.write_text(path.read_text() + "zzzz\n")
    with pytest.raises(InputError, match="1001 entries"):
        open_tokenizer(path)


def test_a_call_frames_and_pads_texts(vocabulary):
    tokenizer, ids = WordPieceTokenizer(vocabulary), vocabulary.ids
    cls, sep = ids["[CLS]"], ids["[SEP]"]
    a, b, c = ([ids[letter]] for letter in "abc")
    single = tokenizer(["a b", "c"])
    assert [*single] == ["token_ids", "segment_ids", "padding_mask"]
    expected = [[cls, *a, *b, sep], [cls, *c, sep, 0]]
    np.testing.assert_array_equal(single["token_ids"], expected)
    np.testing.assert_array_equal(single["padding_mask"], [[1, 1, 1, 1], [1, 1, 1, 0]])
    assert not single["segment_ids"].any()
    assert {array.dtype for array in single.values()} == {np.dtype(np.int32)}
    pairs = tokenizer(["a b c", "a"], ["b c", "b"], max_length=6)
    expected = [[cls, *a, *b, sep, *b, sep], [cls, *a, sep, *b, sep, 0]]
    np.testing.assert_array_equal(pairs["token_ids"], expected)
    segments = [[0, 0, 0, 0, 1, 1], [0, 0, 0, 1, 1, 0]]
    np.testing.assert_array_equal(pairs["segment_ids"], segments)
    for same in ([("a b c", "b c"), ("a", "b")], (["a b c", "a"], ["b c", "b"])):
        again = tokenizer(same, max_length=6)
        np.testing.assert_array_equal(again["token_ids"], pairs["token_ids"])
    assert tokenizer([])["token_ids"].shape == (0, 0)


@pytest.mark.parametrize(
    ("arguments", "keywords", "words"),
    [
        (["a text"], {}, "list.*'a text'"),
        ([{"text": ["a"]}], {}, "list.*{'text'"),
        ([["a", None]], {}, "None at index 1"),
        ([["a", ("a", "b")]], {}, "index 0.*index 1"),
        ([(["a"], ["a", "b"])], {}, "1 and 2"),
        ([["a"]], {"max_length": 2}, "max_length.*2"),
    ],
)
def test_calls_that_are_errors(vocabulary, arguments, keywords, words):
    with pytest.raises(InputError, match=words):
        WordPieceTokenizer(vocabulary)(*arguments, **keywords)


def test_decoded_ids_equal_those_of_the_library(vocabulary):
    text = "The list doesn't show unhappily, e.g. 1,000 files! [MASK] \u4e2d"
    theirs = tokenizers.Tokenizer(
        tokenizers.models.WordPiece(vocabulary.ids, unk_token="[UNK]")
    )
    theirs.decoder = tokenizers.decoders.WordPiece()
    theirs.add_special_tokens([*SPECIAL_TOKENS])
    ours = WordPieceTokenizer(vocabulary)
    rows = ours([text, "a"])["token_ids"]
    for skip in (False, True):
        expected = theirs.decode_batch(rows.tolist(), skip_special_tokens=skip)
        assert ours.decode(rows, skip_special_tokens=skip) == expected
        assert ours.decode(rows[0].tolist(), skip) == expected[0]
    assert ours.decode(ours.encode("A fine file.")) == "a fine file."
    assert "".join(ours.tokenize("unhappily")).replace("##", "") == "unhappily"
    for wrong in ([len(vocabulary)], [-1], [1.5]):
        with pytest.raises(InputError, match=str(wrong[0])):
            ours.decode(wrong)


@pytest.mark.parametrize("text", [5, None, ["the"], np.array("the")])
def test_only_texts_and_bytes_are_encoded(vocabulary, text):
    tokenizer = WordPieceTokenizer(vocabulary)
    assert tokenizer.encode(b"the") == tokenizer.encode("the")
    with pytest.raises(InputError, match="must be str or bytes"):
        tokenizer.encode(text)
