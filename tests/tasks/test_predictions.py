"""Inputs of `predict`, and its lines of text, of a table and of JSON, by kind."""

import csv
import io
import json

import numpy as np
import pyarrow.parquet
import pytest

from electra_tf.config.finetuning import DataConfig
from electra_tf.errors import InputError
from electra_tf.tasks import registry
from electra_tf.tasks.classifier import TextClassifier, TextRegressor
from electra_tf.tasks.data.files import check_input_file
from electra_tf.tasks.data.splits import Split
from electra_tf.tasks.data.table import Table
from electra_tf.tasks.evaluation import evaluate_model
from electra_tf.tasks.predictions import csv_lines, predict_items
from electra_tf.tasks.question_answerer import QuestionAnswerer
from electra_tf.tasks.token_classifier import (
    Entity,
    TaggedWords,
    TokenClassifier,
    split_text,
)
from tests import tiny

QUESTION = {"question": "who?", "context": "the user can change the file"}


@pytest.fixture(scope="module")
def models():
    start = tiny.start(128)
    return {
        "classifier": TextClassifier(start, ["bad", "good"]),
        "pairs": TextClassifier(start, ["bad", "good"], pairs=True),
        "regressor": TextRegressor(start, 0, 5, tiny.settings()),  # not all equal
        "tagger": TokenClassifier(start, ["N", "V"]),
        "answerer": QuestionAnswerer(start, None),
    }


@pytest.fixture
def predict(write):
    """Return a function that predicts for lines of a file."""

    def predict(model, lines, form="text", nbest=None, **options):
        items = tiny.read_items(model, write("a.txt", "".join(f"{x}\n" for x in lines)))
        return list(predict_items(model, items, form, nbest, **options))

    return predict


@pytest.fixture
def records(predict):
    """Return a function that predicts JSON for lines of a file."""

    def records(model, lines, **options):
        return list(map(json.loads, predict(model, lines, "jsonl", **options)))

    return records


def test_a_classifier_writes_labels(models, predict):
    probabilities = models["classifier"].predict(["the file", "the user"])
    expected = [("bad", "good")[n] for n in np.argmax(probabilities, -1)]
    assert predict(models["classifier"], ["the file", "the user"]) == expected


def test_a_regressor_writes_scores_in_order(models, predict):
    lines = [" ".join(["file"] * (n % 7)) for n in range(1500)]  # two chunks
    scores = [float(line) for line in predict(models["regressor"], lines)]
    for n, score in enumerate(scores):
        assert score == pytest.approx(scores[n % 7], abs=1e-5)
    assert (len(scores), len(set(scores[:7]))) == (1500, 7)


def test_no_nan_is_written_as_json(models, records, monkeypatch):
    found = [np.float32("nan"), np.float32(2)]
    monkeypatch.setattr(models["regressor"], "decode_details", lambda *_: found)
    scores = [one["score"] for one in records(models["regressor"], ["a", "b"])]
    assert scores == [None, 2.0]


def test_a_tagger_writes_words_and_tags(models, predict, records):
    model, words = models["tagger"], ["the", "file", "is"]
    tags = model.predict([words])[0]
    rows = list(zip(words, tags, strict=True))
    assert predict(model, ["the file  is"]) == [" ".join(map("/".join, rows))]
    table = [line.split("\t") for line in predict(model, ["the file is", ""], "tsv")]
    assert [(row[1], row[4]) for row in table] == [("word", "prediction"), *rows]
    (record,) = records(model, ['{"words": ["the file"]}'])
    assert record["words"] == ["the file"]
    assert len(record["tags"]) == 1
    split = Split([["the", "file"]], None, Table({"id": ["x"]}, [1], "a.csv"))
    header, *table = predict_items(model, split, "tsv")
    assert header.split("\t")[:3] == ["id", "sentence", "word"]
    assert [line.split("\t")[::2][:2] for line in table] == [
        ["x", "the"],
        ["x", "file"],
    ]


def test_a_tagger_finds_entities_in_texts(models, predict, records):
    model, text = models["tagger"], "the file's\nuser"
    words = ["the", "file", "'", "s", "user"]
    (tags,), (entities,) = model.predict([words]), model.entities([text])
    # Each word is an entity, as the tags N and V mark no spans.
    assert [(one.type, one.text) for one in entities] == list(
        zip(tags, words, strict=True)
    )
    (record,) = records(model, [json.dumps({"id": 3, "text": text})])
    assert record == {
        "id": 3,
        "text": text,
        "entities": [one._asdict() for one in entities],
        "words": words,
        "tags": tags,
    }
    spans = TokenClassifier(tiny.start(128), ["O", "B-X", "I-X"])
    task, item = registry.of(spans), split_text(text, spans.tokenizer)
    found = [Entity("X", 0, 10, text[:10], 0.987), Entity("X", 9, 15, text[9:], 0.5)]
    tags = ["B-X", "I-X", "O", "B-X", "I-X"]
    line = task.line(spans, item, TaggedWords(tags, found, None))
    assert line == "the file's (X 0:10, 0.99)\ts user (X 9:15, 0.50)"
    without = TaggedWords(tags, None, None)
    assert task.line(spans, words, without) == "the/B-X file/I-X '/O s/B-X user/I-X"
    assert task.record(spans, words, without) == {"words": words, "tags": tags}


ODD = 'the "file",\nthe 🙂'  # quotes, a comma, a line break
HALF = "\ud83d file"  # half of a surrogate pair


def table_of(lines):
    return list(csv.DictReader(io.StringIO("\n".join(lines), newline="")))


def test_a_csv_has_texts_labels_and_all_probabilities(models, write):
    model, rows = models["classifier"], [["a", ODD, "good"], ["b", "a\r\nuser", ""]]
    with open(write("new.csv", ""), "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([["id", "text", "kind"], *rows])
    items = tiny.read_items(model, file.name, label_column="kind")
    probabilities = model.predict([ODD, "a\r\nuser"])
    best = [model.labels[n] for n in np.argmax(probabilities, -1)]
    table = table_of(predict_items(model, items, "csv"))
    assert len(list(predict_items(model, items, "tsv"))) == 3
    for n, row in enumerate(table):
        assert list(row)[:4] == ["id", "text", "kind", "prediction"]
        assert list(row.values())[:4] == [*rows[n], best[n]]
        values = [float(row[f"probability_{name}"]) for name in model.labels]
        assert values == pytest.approx(probabilities[n], abs=1e-6)
    assert len(table) == 2
    record = json.loads(next(predict_items(model, items, "jsonl")))
    assert list(record) == ["id", "text", "kind", "gold", "label", "probabilities"]
    assert (record["text"], record["gold"], record["label"]) == (ODD, "good", best[0])
    found = record["probabilities"]["good"]
    assert found == pytest.approx(probabilities[0, 1], abs=1e-6)
    for form, written in (("csv", r"\ud83d file"), ("jsonl", HALF)):
        *_, line = predict_items(model, Split([HALF], ["bad"]), form)
        line.encode()
        read = json.loads if form == "jsonl" else lambda x: {"text": x.split(",")[0]}
        assert read(line)["text"] == written
    unlabelled = predict_items(model, Split(["user"], None), "csv")
    assert table_of(unlabelled)[0].keys() == table[0].keys() - {"id", "kind"}


@pytest.mark.parametrize("values", [[True, False], [1.0, 2.0], [0.5, 7]])
def test_copied_labels_are_written_as_they_are_learnt(values, write):
    """A table with predictions can be scored against the labels in it."""
    rows = [{"text": "user " * n, "kind": values[n % 2]} for n in range(1, 21)]
    path = write("all.jsonl", "\n".join(map(json.dumps, rows)))
    columns = {"text_columns": ("text",), "label_column": "kind"}
    task = tiny.read_task("csv", path, DataConfig(**columns))
    model = task.model(tiny.start(), settings=tiny.settings())
    items = tiny.read_items(model, path, label_column="kind")
    for form in ("csv", "tsv"):
        lines = list(predict_items(model, items, form))
        table = write(f"found.{form}", "".join(f"{line}\n" for line in lines))
        read = csv.DictReader(lines, delimiter="," if form == "csv" else "\t")
        assert {row["kind"] for row in read} == set(model.labels)
        report, _ = evaluate_model(model, "csv", table, columns)
        assert report["examples"] == {"data": 20}


def test_a_csv_of_words_has_their_tags(models, predict, write):
    model, words = models["tagger"], ["the", "file's", "user"]
    gold = ["N", "V", "N"]
    (tags,) = model.predict([words])
    conll = "".join(f"{w} {t}\n" for w, t in zip(words, gold, strict=True))
    records = [
        {"id": 7, "words": words, "doc": "a", "ner_tags": gold},
        {"id": 8, "words": ["user"], "doc": "b", "ner_tags": ["N"]},
    ]
    for path in (write("a.conll", conll), write("a.json", records)):
        table = table_of(predict_items(model, tiny.read_items(model, path), "csv"))
        columns = ("sentence", "word", "gold", "prediction")
        found = [tuple(row[name] for name in columns) for row in table[:3]]
        assert found == list(zip("000", words, gold, tags, strict=True))
        for row in table:
            values = [float(row[f"probability_{tag}"]) for tag in model.tags]
            assert sum(values) == pytest.approx(1, abs=1e-5)
            assert model.tags[np.argmax(values)] == row["prediction"]
    assert (len(table), table[3]["sentence"]) == (4, "1")
    (record, _) = map(
        json.loads, predict_items(model, tiny.read_items(model, path), "jsonl")
    )
    columns = {"id": 7, "doc": "a"}
    assert record == columns | {"words": words, "tags": tags, "gold": gold}
    _, splits = evaluate_model(model, "tagging", path)
    rows = table_of(csv_lines(model, splits))
    assert [row["id"] + row["doc"] for row in rows] == ["7a", "7a", "7a", "8b"]
    text = "the  file's user"
    row = table_of(predict(model, [text], "csv"))[2]
    assert (text[int(row["start"]) : int(row["end"])], row["word"]) == ("'", "'")
    assert "gold" not in row


BILOU, BIOES = ["B-X", "L-X", "U-X"], ["B-X", "E-X", "S-X"]


@pytest.mark.parametrize("known", [BIOES, BILOU])
def test_gold_tags_have_the_spelling_of_the_model(known, write):
    model = TokenClassifier(tiny.start(), ["O", *known], tiny.settings())
    words = ["the", "file", "user"]
    rows = "".join(f"{w} {t}\n" for w, t in zip(words, BILOU, strict=True))
    record = {"words": words, "tags": BILOU}
    for path in (write("a.conll", rows), write("a.txt", rows), write("a.json", record)):
        (tags,) = tiny.read_items(model, path).targets
        assert list(tags) == known


def test_a_csv_of_answers(models, predict, write, capsys):
    model = models["answerer"]
    (record,) = map(json.loads, predict(model, [json.dumps(QUESTION)], "jsonl", 1))
    (row,) = table_of(predict(model, [json.dumps(QUESTION)], "csv"))
    assert (row["question"], row["prediction"]) == ("who?", record["answer"])
    assert float(row["probability"]) == pytest.approx(
        record["nbest"][0]["probability"], abs=1e-6
    )
    gold = [
        {"text": "the user", "answer_start": 0},
        {"text": "user", "answer_start": 4},
    ]
    question = {"id": "q1", "question": "who?", "answers": gold, "is_impossible": False}
    wrong = question | {"id": "q2", "answers": [{"text": "the user"}]}
    paragraph = {"context": QUESTION["context"], "qas": [question, wrong]}
    document = {"data": [{"title": "t", "paragraphs": [paragraph]}]}
    items = tiny.read_items(model, write("squad.json", document))
    first, second = table_of(predict_items(model, items, "csv"))
    assert (first["id"], second["id"]) == ("q1", "q2")
    assert first["prediction"] == second["prediction"]
    assert "1 of 2 questions have no valid answers" in capsys.readouterr().out
    found = list(map(json.loads, predict_items(model, items, "jsonl")))
    assert [one.get("gold") for one in found] == [["the user", "user"], None]
    assert [one["id"] for one in found] == ["q1", "q2"]


@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
def test_articles_on_lines_or_in_a_list_are_questions(models, write, name):
    articles = [
        {"title": key, "paragraphs": [{"context": QUESTION["context"], "qas": [
            {"id": key, "question": "who?"}]}]}
        for key in "ab"
    ]  # fmt: skip
    lines = "\n".join(map(json.dumps, articles))
    path = write(name, lines if name == "a.jsonl" else articles)
    items = tiny.read_items(models["answerer"], path)
    assert items.table.columns["id"] == ["a", "b"]
    assert {item.texts for item in items.items} == {("who?", QUESTION["context"])}


def test_an_answerer_writes_spans_of_the_context(models, predict, records):
    model, line = models["answerer"], json.dumps(QUESTION)
    (record,) = records(model, [line])
    assert record["answer"]
    assert record["answer"] in QUESTION["context"]
    assert set(record) == {"question", "context", "answer", "null_odds"}
    (record,) = records(model, [line], nbest=2)
    assert len(record["nbest"]) == 2
    model.null_threshold = -1e9
    assert predict(model, [line]) == [""]
    model.null_threshold = None


def test_pairs_are_separated_by_a_tab_or_in_json(models, records):
    pair, record = "a\tb", json.dumps({"text": "a", "text_b": "b"})
    model = models["pairs"]
    first, second = records(model, [pair]) + records(model, [record])
    assert (first.pop("text"), second.pop("text"), second.pop("text_b")) == (
        pair,
        *"ab",
    )
    assert first == second
    # One that was not trained takes both, and for single texts a tab is white space.
    model = models["classifier"]
    first, second = records(model, [pair]) + records(model, [record])
    assert first["probabilities"] == second["probabilities"]
    single = TextClassifier(tiny.start(128), ["bad", "good"], pairs=False)
    first, second = records(single, ["a\tb", "a b"])
    assert first["probabilities"] == second["probabilities"]


def test_unknown_wordpieces_are_reported_once(models, predict):
    for name, line in (
        ("classifier", "the كتاب"),
        ("tagger", "the كتاب"),
        ("answerer", '{"question": "the", "context": "كتاب"}'),
    ):
        logged = []
        predict(models[name], [line] * 1100, log=logged.append)
        assert len(logged) == 1
        assert "1,100 of 2,200" in logged[0]


@pytest.mark.parametrize(
    ("settings", "limit"),
    [
        ({"data_max_query_length": 2}, "data.max_query_length=2"),
        ({"data_max_length": 8}, "half of data.max_length=8"),
    ],
)
def test_questions_are_cut_at_the_limit_of_questions(predict, settings, limit):
    model, logged = QuestionAnswerer(tiny.start(), None, tiny.settings(**settings)), []
    lines = [json.dumps(QUESTION | {"question": "of " * n}) for n in (2, 9)] * 600
    predict(model, lines, log=logged.append)
    assert logged == [f"input: 600 of 1,200 inputs were truncated to {limit}"]


@pytest.mark.parametrize(
    ("name", "lines", "options", "words"),
    [
        ("classifier", ["a", '{"text": "a"'], (), r"a\.txt:2: "),
        ("pairs", ["a\tb", "a"], (), "a.txt:2: .* not 1"),
        ("pairs", ["a\tb", '{"text": "a"}'], (), "text and text_b"),
        ("answerer", ["who?"], (), "a.txt.*question"),
        ("answerer", [json.dumps(QUESTION)], ("jsonl", 1000), "n_best"),
        ("answerer", [json.dumps(QUESTION)], ("text", 2), "and --format=jsonl, not"),
        ("tagger", ["a"], ("jsonl", 2), "--nbest .*not with a TokenClassifier"),
        ("tagger", ['{"text": 3}'], (), "words or tokens or text, a list of words"),
        ("tagger", ['{"text": "a\\ud83d"}'], (), r"1: 'a\\ud83d', with half of"),
    ],
)
def test_invalid_lines_and_options_are_errors(
    models, predict, name, lines, options, words
):
    with pytest.raises(InputError, match=words):
        predict(models[name], lines, *options)


# Inputs: tables, questions and lines, with their ids.

WHO = {"question": "who?", "context": "the user", "answers": {"text": ["x"]}}


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
    records = [{"id": 5, **WHO}, {"id": "b", **WHO}]
    for content in (records, "\n".join(map(json.dumps, records))):
        found = read("answerer", name, content)
        assert found == [(n, ("who?", "the user")) for n in (5, "b")]
