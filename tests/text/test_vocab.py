import pytest

from electra_tf.errors import InputError
from electra_tf.text.vocab import SPECIAL_TOKENS, Vocabulary

GOOD = [*SPECIAL_TOKENS, "a", "##a"]


def read(tmp_path, lines, newline="\n"):
    path = tmp_path / "vocab.txt"
    path.write_bytes("".join(line + newline for line in lines).encode())
    return Vocabulary.read(path)


def test_a_line_number_is_the_id(vocabulary):
    assert len(vocabulary) == 1000
    assert [vocabulary.ids[t] for t in SPECIAL_TOKENS] == [0, 1, 2, 3, 4]
    assert vocabulary.tokens[vocabulary.ids["the"]] == "the"


def test_the_hash_is_of_the_entries_not_of_the_bytes(tmp_path):
    plain = read(tmp_path, GOOD)
    assert read(tmp_path, GOOD, "\r\n").sha256 == plain.sha256
    assert read(tmp_path, ["\ufeff[PAD]", *GOOD[1:]]).sha256 == plain.sha256
    assert read(tmp_path, [*GOOD, "b"]).sha256 != plain.sha256


def test_what_is_written_is_read_again(tmp_path):
    first = Vocabulary((*GOOD, "ümläut", "##中"))
    (tmp_path / "again.txt").write_text(first.text, encoding="utf-8")
    assert Vocabulary.read(tmp_path / "again.txt") == first


def test_continuation_pieces_are_known():
    assert Vocabulary(tuple(GOOD)).is_continuation == (False,) * 6 + (True,)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([], r"0 lines and without \[PAD\]"),
        (["a", "b"], r"without \[PAD\] \[UNK\] \[CLS\] \[SEP\] \[MASK\]"),
        ([t for t in GOOD if t != "[MASK]"], r"6 lines and without \[MASK\]"),
        ([*GOOD, "a"], "'a' on lines 6 and 8"),
        ([*GOOD, "", "b"], "line 8 blank"),
        (["a", *SPECIAL_TOKENS], r"\[PAD\] on line 2"),
    ],
)
def test_a_vocabulary_that_cannot_work_is_refused(tmp_path, lines, words):
    with pytest.raises(InputError, match=words):
        read(tmp_path, lines)


def test_a_file_that_is_no_text_is_refused(tmp_path):
    (tmp_path / "v.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="UTF-8"):
        Vocabulary.read(tmp_path / "v.txt")
    with pytest.raises(InputError, match=r"missing\.txt"):
        Vocabulary.read(tmp_path / "missing.txt")


@pytest.mark.parametrize("name", ["bert_uncased_en.txt", "bert_chinese.txt"])
def test_published_vocabularies_are_read_with_every_id(data, name):
    lines = (data / "vocab" / name).read_bytes().count(b"\n")
    assert len(Vocabulary.read(data / "vocab" / name)) == lines
