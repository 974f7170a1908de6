"""Inputs of `predict`: tables, questions and lines, with their ids."""

import json

import pyarrow.parquet
import pytest

from electra_tf.errors import InputError
from electra_tf.tasks.data.files import check_input_file
from tests import tiny

QUESTION = {"question": "who?", "context": "the user", "answers": {"text": ["x"]}}


@pytest.fixture
def read(saved_models, write):
    """Return a function that writes a file, and reads it for a model of a kind."""

    def items(kind, name, content, *columns, **settings):
        path = write(name, content)
        check_input_file(path)
        found = tiny.read_items(saved_models[kind], path, *columns, **settings)
        ids = found.table.columns.get("id") if found.table else None
        return list(zip(ids or [None] * len(found), found.items, strict=True))

    return items


def texts(items):
    return [text for _, text in items]


def test_columns_of_a_table(read):
    table = "new.csv.gz", 'id,review,title\n7,"a, b",t\n8,,u\n'
    with pytest.raises(InputError, match=r"gz:3: no text: 'review': 1 of 2 .*skip"):
        read("classifier", *table, None, ("review",))
    found = read("classifier", *table, None, ("review",), missing_text="skip")
    assert found == [("7", "a, b")]
    found = read("classifier", *table, None, ("review",), missing_text="keep")
    assert found == [("7", "a, b"), ("8", "")]
    found = read("classifier", *table, ("title",), ("review",))
    assert found == [("7", "t"), ("8", "u")]
    with pytest.raises(InputError, match="--text_columns"):
        read("classifier", *table)
    with pytest.raises(InputError, match="review,title"):
        read("classifier", *table, ("review", "title"))
    found = read("classifier", "plain.tsv", "text\nfirst\n", None, ("review",))
    assert found == [(None, "first")]
    found = read("classifier", "a.jsonl", {"review": "a"}, ("review",))
    assert found == [(None, "a")]
    with pytest.raises(InputError, match=r"lines\.txt .*review"):
        read("classifier", "lines.txt", "the file\n", ("review",))
    ((item_id, text),) = read("tagger", "new.csv", "id,words\nx,the file\n")
    assert (item_id, text.words) == ("x", ("the", "file"))


def test_lines_of_text(read):
    for name in ("a.txt", "a.txt.gz", "a.txt.xz"):
        assert texts(read("classifier", name, "é\n\nb\n")) == ["é", "", "b"]
    lines = ["[laughs] good", "[1] a note", "{x} y", "[", "{"]
    assert texts(read("classifier", "a.txt", "\n".join(lines))) == lines
    assert texts(read("classifier", "b.txt", '{"text": "["}\nmore\n')) == ["[", "more"]


@pytest.mark.parametrize(
    ("kind", "name", "content", "words"),
    [
        ("classifier", "a.json", {"data": [{"text": "a"}]}, "'data'"),
        ("classifier", "a.json", [{"text": {"en": "a"}}], "1: "),
        ("classifier", "a.jsonl", '{"text": "a"}\n{"t": 1}\n', "jsonl:2: .*'text'"),
        ("classifier", "a.jsonl", {"txt": "b"}, "--text_columns"),
        ("classifier", "a.conll", "a O\n", "a.conll .* for a TextClassifier"),
        ("answerer", "a.txt", "a\n\n", "question"),
    ],
)
def test_other_formats_are_named(read, kind, name, content, words):
    with pytest.raises(InputError, match=words):
        read(kind, name, content)


def test_an_input_must_be_a_file(tmp_path):
    for path in (tmp_path, tmp_path / "x"):
        with pytest.raises(InputError, match=str(path)):
            check_input_file(str(path))


COLUMNS = "-DOCSTART- -X- O\n\nthe DT O\nfile NN B-NP\n\nof IN O\n"


@pytest.mark.parametrize("name", ["a.txt", "a.conll", "a.tsv", "a.bio.gz", "a"])
@pytest.mark.parametrize("document", [True, False])
def test_a_column_file_is_tagged_word_by_word(read, capsys, name, document):
    text = COLUMNS if document else COLUMNS.partition("\n\n")[2]
    found = read("tagger", name, text.replace(" ", "\t") if "tsv" in name else text)
    assert [item.words for item in texts(found)] == [("the", "file"), ("of",)]
    assert f"{name}: read as columns, word 0" in capsys.readouterr().out


def test_columns_without_tags_and_sentences_of_one_length(read):
    found = read("tagger", "a.conll", "the\nfile\n\nof\n")
    assert [item.words for item in texts(found)] == [("the", "file"), ("of",)]
    assert len(read("tagger", "a.txt", "the file .\nof and .\n\nto in .\n")) == 4
    found = read("tagger", "a.tsv", "words\tid\nthe file\t3\n")
    assert [(item_id, text.text) for item_id, text in found] == [("3", "the file")]


@pytest.mark.parametrize("key", ["words", "tokens", "text"])
def test_a_string_is_a_text_and_a_list_is_words_for_a_tagger(read, key):
    ((_, sentence),) = read("tagger", "a.jsonl", {key: ["the", "file."]})
    assert (sentence.words, sentence.text) == (("the", "file."), None)
    for name, content in (
        ("a.txt", "the file.\nof\n"),
        ("a.json", ["the file.", "of"]),
        ("b.json", [{key: "the file."}, {key: "of"}]),
        ("a.csv", f"{key}\nthe file.\nof\n"),
    ):
        found = texts(read("tagger", name, content))
        assert [item.text for item in found] == ["the file.", "of"]
        assert [item.words for item in found] == [("the", "file", "."), ("of",)]
        assert found[0].offsets == [(0, 3), (4, 8), (8, 9)]


def test_a_tagger_reads_parquet_and_refuses_broken_objects(read, tmp_path):
    table = pyarrow.table({"text": ["the file"], "id": ["7"]})
    pyarrow.parquet.write_table(table, tmp_path / "b.parquet")
    content = (tmp_path / "b.parquet").read_bytes()
    ((item_id, text),) = read("tagger", "a.parquet", content)
    assert (item_id, text.words) == ("7", ("the", "file"))
    with pytest.raises(InputError, match=r"a\.txt:2"):
        read("tagger", "a.txt", 'the file\n{"text": "a"\n')


@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a.json.gz"])
def test_flat_questions_keep_their_ids(read, name):
    records = [{"id": 5, **QUESTION}, {"id": "b", **QUESTION}]
    for content in (records, "\n".join(map(json.dumps, records))):
        found = read("answerer", name, content)
        assert found == [(n, ("who?", "the user")) for n in (5, "b")]
