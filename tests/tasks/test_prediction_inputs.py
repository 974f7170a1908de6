"""Inputs of `predict`: tables, questions and lines, with their ids."""

import gzip
import io
import json
import re

import pytest

from electra_tf.errors import InputError
from electra_tf.tasks.inference import predict_items
from electra_tf.tasks.prediction_inputs import check_input, check_output, read_items
from electra_tf.tasks.prediction_records import read_line_items
from tasks.test_task_evaluation import models, squad  # noqa: F401 - a fixture


def pairs(items):
    return [(item.id, item.value) for item in items]


def test_columns_of_a_table(models, tmp_path):  # noqa: F811
    model, path = models["classifier"], tmp_path / "new.csv.gz"
    path.write_bytes(gzip.compress(b'id,review,title\n7,"a, b",t\n8,,u\n'))
    path = str(path)
    assert pairs(read_items(model, path, None, ("review",))) == [
        ("7", "a, b"),
        ("8", ""),
    ]
    assert pairs(read_items(model, path, ("title",), ("review",))) == [
        ("7", "t"),
        ("8", "u"),
    ]
    with pytest.raises(InputError, match="--text_columns"):
        list(read_items(model, path))
    with pytest.raises(InputError, match="review,title"):
        list(read_items(model, path, ("review", "title")))
    table = tmp_path / "plain.tsv"
    table.write_text("text\nfirst\n")
    assert pairs(read_items(model, str(table), None, ("review",))) == [(None, "first")]


def test_questions_keep_their_ids_and_have_one_answer(models, tmp_path):  # noqa: F811
    model, path = models["answerer"], str(squad(tmp_path / "new.json"))
    assert [item.id for item in read_items(model, path)] == ["a", "b"]

    def records(**options):
        lines = predict_items(model, read_items(model, path), "jsonl", **options)
        return [json.loads(line) for line in lines]

    assert [set(record) for record in records()] == [{"id", "answer", "null_odds"}] * 2
    assert [len(record["nbest"]) for record in records(nbest=2)] == [2, 2]
    header, *rows = predict_items(model, read_items(model, path), "tsv")
    assert header == "id\tanswer\tnull_odds"
    assert [row.split("\t")[0] for row in rows] == ["a", "b"]
    text = list(predict_items(model, read_items(model, path)))
    assert [line.split("\t")[0] for line in text] == ["a", "b"]
    with pytest.raises(InputError, match="n_best"):
        records(nbest=1000)
    with pytest.raises(InputError, match="--nbest=2 with a TokenClassifier"):
        list(predict_items(models["tagger"], [], "jsonl", nbest=2))


def test_json_lines_keep_ids(models):  # noqa: F811
    lines = ['{"id": 3, "text": "a"}', '{"text": "b"}']
    model = models["classifier"]
    items = list(read_line_items(model, lines))
    assert pairs(items) == [(3, "a"), (None, "b")]
    first, second = (json.loads(line) for line in predict_items(model, items, "jsonl"))
    assert first["id"] == 3
    assert "id" not in second
    with pytest.raises(InputError, match="record 2 without an id"):
        list(predict_items(model, items))
    with pytest.raises(InputError, match=r"standard input, line 1: \[1\]"):
        list(read_line_items(model, ['{"id": [1], "text": "a"}']))


def test_standard_input_in_utf16_without_mark_is_named(models, monkeypatch):  # noqa: F811
    data = io.BytesIO("good\nbad\n".encode("utf-16-le"))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(data))
    with pytest.raises(InputError, match="iconv -f UTF-16LE -t UTF-8 FILE"):
        list(read_items(models["classifier"], None))


def test_a_table_of_sentences_is_tagged(models, tmp_path):  # noqa: F811
    path = tmp_path / "new.csv"
    path.write_text("id,words\nx,the file\n")
    items = list(read_items(models["tagger"], str(path)))
    assert pairs(items) == [("x", ["the", "file"])]
    header_free = list(predict_items(models["tagger"], items, "tsv"))
    assert [line.split("\t")[:2] for line in header_free] == [
        ["x", "the"],
        ["x", "file"],
        [""],
    ]


def test_an_empty_file_is_an_error(models, tmp_path):  # noqa: F811
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(InputError, match=r"empty\.txt', an empty file"):
        list(read_items(models["classifier"], str(tmp_path / "empty.txt")))
    (tmp_path / "blank.txt").write_text("a\n\n")
    path = str(tmp_path / "blank.txt")
    assert pairs(read_items(models["classifier"], path)) == [(None, "a"), (None, "")]
    with pytest.raises(InputError, match=r"blank\.txt, line 1: 'a'"):
        list(read_items(models["answerer"], path))


def test_check_input_and_check_output(tmp_path):
    existing = tmp_path / "existing.txt"
    existing.write_text("a\n")
    check_output(None, None, False)
    check_output(None, str(tmp_path / "new.txt"), False)
    check_output(None, str(existing), True)
    for source, path, words in (
        (None, existing, "--overwrite"),
        (str(existing), existing, "another file than --input"),
        (None, tmp_path, "a folder"),
        (None, tmp_path / "none" / "x", "does not exist"),
    ):
        with pytest.raises(InputError, match=words):
            check_output(source, str(path), overwrite=path == existing and bool(source))
    for path, words in ((tmp_path, "a folder"), (tmp_path / "x", "no such file")):
        with pytest.raises(InputError, match=words):
            check_input(str(path))
    (tmp_path / "x.parquet").write_bytes(b"")
    with pytest.raises(InputError, match=r"x\.parquet.*pandas.read_parquet"):
        check_input(str(tmp_path / "x.parquet"))


TWO = [{"id": 1, "text": "the file"}, {"id": 2, "text": "of the"}]


def write(path, text):
    data = text.encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return str(path)


@pytest.mark.parametrize("name", ["a.json", "a.json.gz", "a.jsonl", "a.ndjson"])
@pytest.mark.parametrize("indent", [None, 1, "lines"])
def test_json_of_two_records_has_two_items(models, tmp_path, name, indent):  # noqa: F811
    text = "\n\n".join(map(json.dumps, TWO)) + "\n"
    if indent != "lines":
        text = json.dumps(TWO, indent=indent)
    path = write(tmp_path / name, text)
    items = read_items(models["classifier"], path)
    assert pairs(items) == [(1, "the file"), (2, "of the")]
    path = write(tmp_path / name, '["the file",\n "of the"]')
    items = read_items(models["classifier"], path)
    assert pairs(items) == [(None, "the file"), (None, "of the")]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.json", "[]", "a.json' with none"),
        ("a.json", '{"data": [{"text": "a"}]}', "line 1: .*keys within 'data'"),
        ("a.json", '[{"text": {"en": "a"}}]', "line 1: .*keys within 'text'"),
        ("a.json", '{\n "text": "a"\n', "invalid JSON"),
        ("a.jsonl", "a text\n", "a.jsonl, line 1: "),
        ("a.jsonl", '{"text": "a"}\n{"txt": "b"}\n', 'a.jsonl, line 2: .*"txt"'),
        ("a.jsonl", "3\n", "a.jsonl, line 1: int 3"),
        ("a.txt", "[\n]", r"a\.txt with the first line '\['.*\.json"),
        ("a.txt", "{\n}", r"a\.txt with the first line '{'"),
        ("a.txt", '[{"text": "a"}]', r"a\.txt with the first line"),
        ("a.conll", "a O\n", "a.conll for a TextClassifier"),
        ("a.txt", "-DOCSTART- O\n\nthe O\n", "a.txt for a TextClassifier"),
        ("a.xlsx", "", "read_excel"),
        ("a.csv", '{"text": "a"}\n', "a.csv:1: JSON"),
        ("a.tsv", "[\n", "a.tsv:1: JSON"),
        ("a.xml.gz", "<a>", "a .xml file"),
    ],
)
def test_other_formats_are_named(models, tmp_path, name, text, words):  # noqa: F811
    with pytest.raises(InputError, match=words):
        list(read_items(models["classifier"], write(tmp_path / name, text)))


def test_texts_may_begin_with_brackets(models, tmp_path):  # noqa: F811
    texts = ["[laughs] good", "[1] a note", "{x} y", "[", "{"]
    path = write(tmp_path / "a.txt", "\n".join(texts))
    assert [item.value for item in read_items(models["classifier"], path)] == texts
    path = write(tmp_path / "b.txt", '{"text": "["}\n')
    assert [item.value for item in read_items(models["classifier"], path)] == ["["]


COLUMNS = "-DOCSTART- -X- O\n\nthe DT O\nfile NN B-NP\n\nof IN O\n"


@pytest.mark.parametrize("name", ["a.txt", "a.conll", "a.tsv", "a.bio.gz", "a"])
@pytest.mark.parametrize("document", [True, False])
def test_a_column_file_is_tagged_word_by_word(
    models, tmp_path, capsys, name, document  # noqa: F811
):  # fmt: skip
    text = COLUMNS if document else COLUMNS.partition("\n\n")[2]
    path = write(tmp_path / name, text.replace(" ", "\t") if "tsv" in name else text)
    items = list(read_items(models["tagger"], path))
    assert [item.value for item in items] == [["the", "file"], ["of"]]
    assert f"{path}: read as columns, word 0" in capsys.readouterr().err


def test_columns_without_tags_and_sentences_of_one_length(models, tmp_path):  # noqa: F811
    model = models["tagger"]
    path = write(tmp_path / "a.conll", "the\nfile\n\nof\n")
    assert [i.value for i in read_items(model, path)] == [["the", "file"], ["of"]]
    path = write(tmp_path / "a.txt", "the file .\nof and .\n\nto in .\n")
    assert len(list(read_items(model, path))) == 4
    path = write(tmp_path / "a.tsv", "words\tid\nthe file\t3\n")
    assert pairs(read_items(model, path)) == [("3", ["the", "file"])]


@pytest.mark.parametrize("key", ["words", "tokens"])
def test_white_space_is_said_to_split_texts_of_a_tagger(
    models, tmp_path, capsys, key  # noqa: F811
):  # fmt: skip
    model = models["tagger"]
    path = write(tmp_path / "a.jsonl", json.dumps({key: ["the", "file."]}))
    assert pairs(read_items(model, path)) == [(None, ["the", "file."])]
    assert "white space" not in capsys.readouterr().err
    for name, text in (
        ("a.txt", "the file.\nof\n"),
        ("a.json", '["the file.", "of"]'),
        ("b.json", json.dumps([{key: "the file."}, {key: "of"}])),
        ("a.csv", f"{key}\nthe file.\nof\n"),
    ):
        items = list(read_items(model, write(tmp_path / name, text)))
        assert [item.value for item in items] == [["the", "file."], ["of"]]
        assert capsys.readouterr().err.count("white space only") == 1


@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a.json.gz"])
def test_flat_questions_are_answered(models, tmp_path, name):  # noqa: F811
    record = {"question": "who?", "context": "the user", "answers": {"text": ["x"]}}
    records = [{"id": 5, **record}, {"id": "b", **record}]
    for text in (json.dumps(records), "\n".join(map(json.dumps, records))):
        items = read_items(models["answerer"], write(tmp_path / name, text))
        assert pairs(items) == [(n, ("who?", "the user")) for n in (5, "b")]


def test_integer_ids_of_squad_are_kept(models, tmp_path):  # noqa: F811
    path = squad(tmp_path / "new.json")
    path.write_text(path.read_text().replace('"a"', "7").replace('"t"', "null"))
    items = list(read_items(models["answerer"], str(path)))
    assert [item.id for item in items] == ["7", "b"]


def test_remedies_for_inputs_of_other_formats(models, tmp_path):  # noqa: F811
    model = models["classifier"]
    for text in (json.dumps(TWO), json.dumps(TWO, indent=1)):
        path = tmp_path / "a.txt"
        path.write_text(text)
        with pytest.raises(InputError) as caught:
            list(read_items(model, str(path)))
        suffix = re.search(r"ends with (\.\w+)", caught.value.remedy)[1]
        items = read_items(model, str(path.rename(path.with_suffix(suffix))))
        assert pairs(items) == [(1, "the file"), (2, "of the")]
    path.write_text("[\nmore\n")
    with pytest.raises(InputError) as caught:
        list(read_items(model, str(path)))
    path.write_text(re.search(r"\{.*\}", caught.value.remedy)[0] + "\nmore\n")
    assert [item.value for item in read_items(model, str(path))] == ["[", "more"]
    path.write_text('{"review": "a"}\n')
    with pytest.raises(InputError, match="--text_columns"):
        list(read_items(model, str(path)))
    assert pairs(read_items(model, str(path), ("review",))) == [(None, "a")]
