"""Inputs of `predict`: tables, questions and lines, with their ids."""

import gzip
import json

import pytest

from electra_tf.errors import InputError
from electra_tf.tasks.inference import predict_items
from electra_tf.tasks.prediction_inputs import (
    check_input,
    check_output,
    read_items,
    read_line_items,
)
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
    with pytest.raises(InputError, match="Parquet"):
        check_input(str(tmp_path / "x.parquet"))
