import gzip
import lzma

import pytest

from electra_tf.errors import InputError
from electra_tf.tasks.conll import (
    Sentence,
    read_conll,
    without_headers,
)
from electra_tf.text.data_errors import DataErrorLog

TEXT = "-DOCSTART- -X- O\n\nThe DT B-NP\ncat NN I-NP\n\n \t\nsat  VBD\tB-VP\n"


def read(tmp_path, content, *columns, name="a.txt", on_error="stop", **kwargs):
    """Return sentences without their source, and the counts of errors."""
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    log = DataErrorLog(on_error, tmp_path / "problems.log")
    sentences = read_conll(path, *columns, log, **kwargs)
    log.close()
    assert all(sentence.source == str(path) for sentence in sentences)
    return [(s.words, s.tags, s.line) for s in sentences], dict(log.counts)


def test_blank_lines_and_docstart_end_a_sentence(tmp_path):
    expected = [(("The", "cat"), ("B-NP", "I-NP"), 3), (("sat",), ("B-VP",), 7)]
    assert read(tmp_path, TEXT, 0, 2) == (expected, {})
    assert read(tmp_path, TEXT, -3, -1) == (expected, {})
    assert read(tmp_path, TEXT, 0, 1)[0][0][1] == ("DT", "NN")
    together = "a O\n-DOCSTART- -X- -X- O\nb O"
    assert [s[0] for s in read(tmp_path, together, 0, 1)[0]] == [("a",), ("b",)]


def test_without_a_tag_column_there_are_no_tags(tmp_path):
    expected = [(("The", "cat"), None, 3), (("sat",), None, 7)]
    assert read(tmp_path, TEXT, 0, None) == (expected, {})


@pytest.mark.parametrize(
    ("name", "pack"),
    [("a.gz", gzip.compress), ("a.XZ", lzma.compress), ("a", bytes)],
)
def test_compressed_files_and_line_endings(tmp_path, name, pack):
    plain, _ = read(tmp_path, TEXT, 0, 2)
    content = pack(("\ufeff" + TEXT).replace("\n", "\r\n").encode())
    assert read(tmp_path, content, 0, 2, name=name) == (plain, {})


def test_default_separators_are_space_tab_and_newline(tmp_path):
    words = ("1\u00a0000", "a\u2028b", "c\x0bd", "\u3000", "e\x85", "#")
    text = "".join(f" {word} \t O \n" for word in words)
    assert read(tmp_path, text, 0, 1) == ([(words, ("O",) * 6, 1)], {})
    assert read(tmp_path, "\n".join(words), 0, None) == ([(words, None, 1)], {})


GOOD = b"good O\n\n"
BAD = {
    "too few columns": (b"the B-NP\ncat\n", 4),
    "another number of columns": (b"New York B-LOC\n", 3),
    "invalid UTF-8": (b"the O\ncaf\xe9 O\n", 4),
    "NUL": (b"th\0e O\n", 3),
    "carriage return": (b"the O\rcat O\n", 3),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_line_raises_with_file_and_line(tmp_path, kind):
    content, line = BAD[kind]
    with pytest.raises(InputError, match=rf"a\.txt:{line}: {kind}"):
        read(tmp_path, GOOD + content, 0, 1)


@pytest.mark.parametrize("kind", BAD)
def test_sentence_with_a_bad_line_is_dropped_and_counted(tmp_path, kind):
    content = GOOD + BAD[kind][0] + b"\nlast O\n"
    sentences, counts = read(tmp_path, content, 0, 1, on_error="report")
    assert [s[0] for s in sentences] == [("good",), ("last",)]
    assert counts == {kind: 1}
    assert "sentence is dropped" in (tmp_path / "problems.log").read_text()


def test_each_bad_line_of_a_sentence_is_reported(tmp_path):
    content = b"a O\nb\nc O O\n\xff O\n"
    sentences, counts = read(tmp_path, content, 0, 1, on_error="report")
    kinds = ("too few columns", "another number of columns", "invalid UTF-8")
    assert (sentences, counts) == ([], dict.fromkeys(kinds, 1))
    log = (tmp_path / "problems.log").read_text().splitlines()
    assert sorted(row.split(":")[1] for row in log) == ["2", "3", "4"]


@pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf\n", b"-DOCSTART- O\n\n \n"])
def test_file_without_tokens_is_reported(tmp_path, content):
    with pytest.raises(InputError, match=r"a\.txt: empty file"):
        read(tmp_path, content, 0, 1)
    assert read(tmp_path, content, 0, 1, on_error="report") == ([], {"empty file": 1})


def test_damaged_archive_gives_the_sentences_before(tmp_path):
    text = "".join(f"word{i} O\nnext O\n\n" for i in range(9999))
    cut = gzip.compress(text.encode())[:-3000]
    with pytest.raises(InputError, match=r"a\.gz: broken archive"):
        read(tmp_path, cut, 0, 1, name="a.gz")
    sentences, counts = read(tmp_path, cut, 0, 1, name="a.gz", on_error="report")
    assert counts == {"broken archive": 1}
    assert 100 < len(sentences) < 9999
    assert all(s[0] == (f"word{i}", "next") for i, s in enumerate(sentences))
    assert read(tmp_path, b"no archive", 0, 1, name="b.xz", on_error="report")[0] == []


def test_word_and_tag_must_be_two_columns(tmp_path):
    for columns in ((0, 0), (-1, -1)):
        with pytest.raises(InputError, match="word column"):
            read(tmp_path, TEXT, *columns)
    # The first column must not be taken for the last one too.
    for text, columns in (("alone\n", (0, -1)), ("a b\n", (1, -1)), ("a b\n", (-2, 0))):
        with pytest.raises(InputError, match="too few columns"):
            read(tmp_path, text, *columns)


def test_unreadable_file_raises(tmp_path):
    log = DataErrorLog("stop", tmp_path / "log")
    with pytest.raises(InputError, match=r"No such file.*missing\.gz"):
        read_conll(tmp_path / "missing.gz", 0, 1, log)
    with pytest.raises(InputError, match="directory"):
        read_conll(tmp_path, 0, 1, log)


def test_conll_2000_has_its_published_sizes(tmp_path, data):
    log = DataErrorLog("stop", tmp_path / "log")
    for name, size, tokens in (("train", 8936, 211_727), ("test", 2012, 47_377)):
        path = data / f"tagging/conll2000/{name}.txt.gz"
        sentences = read_conll(path, 0, -1, log)
        assert len(sentences) == size
        assert sum(len(s.words) for s in sentences) == tokens
        if name == "train":
            words = ("Confidence", "in", "the", "pound")
            assert sentences[0].words[:4] == words
            tags = ("B-NP", "B-PP", "B-NP", "I-NP")
            assert sentences[0].tags[:4] == tags
            assert isinstance(sentences[0], Sentence)


def test_comments_of_conllu_are_skipped_and_reported(tmp_path):
    text = "# newdoc\n# sent_id = 1\nThe D\n# S\n\n# text = # a\n# #\n"
    lines = []
    sentences, _ = read(tmp_path, text, 0, 1, notify=lines.append)
    assert [s[0] for s in sentences] == [("The", "#"), ("#",)]
    assert len(lines) == 1
    assert "3 lines" in lines[0]
    assert "line 1, '# newdoc'" in lines[0]


@pytest.mark.parametrize("first", [True, False])
def test_space_within_a_column_is_reported(tmp_path, first):
    odd, usual = "New York\tB-LOC\n", "The\tO\n"
    text = odd + usual if first else usual + odd
    words = f"line {1 if first else 2} has a space within 'New York'"
    with pytest.raises(InputError, match=rf"a\.txt:2: .*{words}"):
        read(tmp_path, text, 0, 1)
    with pytest.raises(InputError) as caught:
        read(tmp_path, "a O\nb c O\n", 0, 1)
    assert "has a space" not in str(caught.value)
    assert "'a O'" in str(caught.value)


SENTENCES = [Sentence(("a", "b"), ("N", "V"), "f", 2)] * 3
HEADERS = {  # the first line's fields: whether they are a header
    ("token", "tag"): True,
    ("Wort", "Tag"): False,  # tags are rarely written so, but it is no usual name
    ("Wort", "tag"): True,
    ("word", "klasse"): True,
    ("word", "N"): False,
    ("Wort", "Klasse"): False,
    ("word", "POS"): True,
}


@pytest.mark.parametrize(("word", "tag"), HEADERS)
def test_header_lines_are_removed_and_reported(word, tag):
    lines = []
    first = Sentence((word, "a"), (tag, "N"), "f", 1)
    alone = Sentence((word,), (tag,), "f", 1)
    rest = Sentence(("a",), ("N",), "f", 2)
    files = {"train": [first, *SENTENCES], "dev": [alone, *SENTENCES]}
    result = without_headers(files, lines.append)
    if HEADERS[word, tag]:
        assert result == {"train": [rest, *SENTENCES], "dev": SENTENCES}
        assert len(lines) == 2
    else:
        assert result == files
        assert all("if it is a header" in line for line in lines)
        assert len(lines) == (0 if tag == "N" else 2)
    assert all(f"f:1: {word!r} with the tag {tag!r}" in line for line in lines)
