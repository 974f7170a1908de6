import os

import pytest

from electra_tf.config.data import TokenizationConfig
from electra_tf.errors import InputError
from electra_tf.text.tokenizer import WordPieceTokenizer
from electra_tf.text.vocab import SPECIAL_TOKENS, Vocabulary

GOOD = [*SPECIAL_TOKENS, "a", "##a"]


def read(tmp_path, lines, newline="\n"):
    path = tmp_path / "vocab.txt"
    path.write_bytes("".join(line + newline for line in lines).encode())
    return Vocabulary.read(path)


def test_the_checksum_depends_on_the_entries_alone(tmp_path):
    plain = read(tmp_path, GOOD)
    assert read(tmp_path, GOOD, "\r\n").sha256 == plain.sha256
    assert read(tmp_path, ["\ufeff[PAD]", *GOOD[1:]]).sha256 == plain.sha256
    assert read(tmp_path, [*GOOD, "b"]).sha256 != plain.sha256
    # Earlier versions stored this checksum for BERT's Chinese vocabulary.
    odd = Vocabulary.parse("\n".join([*GOOD, "\u2028", "b"]))
    assert odd.sha256 == Vocabulary((*GOOD, "", "b")).sha256


ODD = {
    "white_space": "{}\n\u2028\n\x85\n\xa0\n\u2029\nb\n",
    "windows": "{}\r\nb\r\n",
    "byte_order_mark": "\ufeff{}\nb\n",
    "no_final_newline": "{}\nb",
    "blanks": "{} \n b\t\n",
}


@pytest.mark.parametrize("name", ODD)
def test_a_file_is_saved_byte_for_byte(tmp_path, name):
    text = ODD[name].format("\n".join(GOOD))
    first, second = tmp_path / "v.txt", tmp_path / "again" / "v.txt"
    first.write_bytes(text.encode())
    vocabulary = Vocabulary.read(first)
    second.parent.mkdir()
    WordPieceTokenizer(vocabulary).save(second)
    assert second.read_bytes() == first.read_bytes()
    again = Vocabulary.read(second)
    assert again == vocabulary
    assert again.sha256 == vocabulary.sha256
    assert Vocabulary.parse(vocabulary.text).text == text
    assert again.ids["b"] == text.removesuffix("\n").count("\n")


def test_no_text_is_tokenized_to_an_entry_of_white_space():
    spaces = ["\u2028", "\x85", "\xa0", "\u3000"]
    vocabulary = Vocabulary.parse("\n".join([*GOOD, *spaces, "b", "##b"]))
    plain = [*GOOD, *(f"[unused{i}]" for i in range(4)), "b", "##b"]
    plain = Vocabulary(tuple(plain))
    texts = [f"a{space}b ab {space}" for space in spaces] + spaces
    for settings in (TokenizationConfig(), TokenizationConfig(lower_case=False)):
        odd, even = (
            WordPieceTokenizer(vocabulary, settings),
            WordPieceTokenizer(plain, settings),
        )
        assert [odd.encode(t) for t in texts] == [even.encode(t) for t in texts]
        assert odd.graph()(texts).to_list() == [even.encode(t) for t in texts]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([], r"0 lines.*\[PAD\]"),
        (["a", "b"], r"2 lines.*\[PAD\] \[UNK\] \[CLS\] \[SEP\] \[MASK\]"),
        ([t for t in GOOD if t != "[MASK]"], r"6 lines lack \[MASK\]"),
        ([*GOOD, "a"], "'a' is on lines 6 and 8"),
        ([*GOOD, "", "b"], "line 8 is blank"),
    ],
)
def test_an_invalid_vocabulary_is_rejected(tmp_path, lines, words):
    with pytest.raises(InputError, match=words):
        read(tmp_path, lines)


def test_what_is_no_vocabulary_is_rejected(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "v.txt").write_bytes(b"\xff\xfe\x00")
    for path, words in {
        "v.txt": r"v\.txt.*UTF-8",
        "missing.txt": r"missing\.txt",
        ".": "regular file",
        "pipe": "regular file",
    }.items():
        with pytest.raises(InputError, match=words):
            Vocabulary.read(tmp_path / path)
    for tokens, words in (((1,), "text"), (map(str, range(10**6)), "1,000,000")):
        with pytest.raises(InputError, match=words):
            Vocabulary((*SPECIAL_TOKENS, *tokens))


@pytest.mark.parametrize(
    ("mark", "kind"), [("\u2581", "SentencePiece"), ("\u0120", "BPE")]
)
def test_vocabularies_of_other_kinds_are_named(mark, kind):
    for special in ((), SPECIAL_TOKENS):
        tokens = (*special, "<unk>", f"{mark}the", f"{mark}a", "s", "ing")
        with pytest.raises(InputError, match=f"{kind}.*2 of {len(tokens)}"):
            Vocabulary(tokens)
