"""Predictions as lines of text, of a table and of JSON, for every kind of model."""

import json

import numpy as np
import pytest
import tiny

from electra_tf.errors import InputError
from electra_tf.tasks.answerer import QuestionAnswerer
from electra_tf.tasks.classifier import TextClassifier, TextRegressor
from electra_tf.tasks.entities import Entity
from electra_tf.tasks.prediction_inputs import Item, read_items
from electra_tf.tasks.predictions import predict_items
from electra_tf.tasks.tagger import TokenClassifier

QUESTION = {"question": "who?", "context": "the user can change the file"}


@pytest.fixture(scope="module")
def models():
    start = tiny.start(128)
    return {
        "classifier": TextClassifier(start, ["bad", "good"]),
        "regressor": TextRegressor(start, 0, 5),
        "tagger": TokenClassifier(start, ["N", "V"]),
        "answerer": QuestionAnswerer(start, None),
    }


@pytest.fixture
def predict(write):
    """Return a function that predicts for lines of a file."""

    def predict(model, lines, form="text", nbest=None, **options):
        items = read_items(model, write("a.txt", "".join(f"{x}\n" for x in lines)))
        return list(predict_items(model, items, form, nbest, **options))

    return predict


@pytest.fixture
def records(predict):
    """Return a function that predicts JSON for lines of a file."""

    def records(model, lines, **options):
        return list(map(json.loads, predict(model, lines, "jsonl", **options)))

    return records


def test_a_classifier_writes_labels_and_probabilities(models, predict, records):
    model, lines = models["classifier"], ["the file", "the user"]
    probabilities = model.predict(["the file", "the user"])
    expected = [model.labels[n] for n in np.argmax(probabilities, -1)]
    assert predict(model, lines) == expected
    header, row, _ = predict(model, lines, "tsv")
    assert header == "label\tbad\tgood"
    assert row == "\t".join([expected[0], *(f"{p:.6f}" for p in probabilities[0])])
    record = records(model, lines)[1]
    assert record["label"] == expected[1]
    assert record["probabilities"]["good"] == pytest.approx(probabilities[1, 1])


def test_a_regressor_writes_scores_in_order(models, predict):
    lines = [" ".join(["file"] * (n % 7)) for n in range(1500)]  # two chunks
    scores = [float(line) for line in predict(models["regressor"], lines)]
    for n, score in enumerate(scores):
        assert score == pytest.approx(scores[n % 7], abs=1e-5)
    assert (len(scores), len(set(scores[:7]))) == (1500, 7)


def test_a_tagger_writes_words_and_tags(models, predict, records):
    model, words = models["tagger"], ["the", "file", "is"]
    tags = model.predict([words])[0]
    rows = list(zip(words, tags, strict=True))
    assert predict(model, ["the file  is"]) == [" ".join(map("/".join, rows))]
    table = predict(model, ["the file is", ""], "tsv")
    assert table == [*map("\t".join, rows), "", ""]
    (record,) = records(model, ['{"words": ["the file"]}'])
    assert record["words"] == ["the file"]
    assert len(record["tags"]) == 1
    table = list(predict_items(model, [Item(["the", "file"], "x")], "tsv"))
    assert [line.split("\t")[:2] for line in table] == [
        ["x", "the"],
        ["x", "file"],
        [""],
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
    assert predict(model, ["the file's"], "tsv")[2] == f"'\t{tags[2]}"
    spans = TokenClassifier(tiny.start(128), ["O", "B-X", "I-X"])
    item = spans.parse_record((text,), "")
    found = [Entity("X", 0, 10, text[:10], 0.987), Entity("X", 9, 15, text[9:], 0.5)]
    tags = ["B-X", "I-X", "O", "B-X", "I-X"]
    line, table, _ = spans.format(item, (tags, found), None)
    assert line == "the file's (X 0:10, 0.99)\ts user (X 9:15, 0.50)"
    assert table == [*map("\t".join, zip(words, tags, strict=True)), ""]
    line, _, record = spans.format(words, (tags, None), None)
    assert line == "the/B-X file/I-X '/O s/B-X user/I-X"
    assert record == {"words": words, "tags": tags}


def test_an_answerer_writes_spans_of_the_context(models, predict, records):
    model, line = models["answerer"], json.dumps(QUESTION)
    (record,) = records(model, [line])
    assert record["answer"]
    assert record["answer"] in QUESTION["context"]
    assert set(record) == {"answer", "null_odds"}
    (record,) = records(model, [line], nbest=2)
    assert len(record["nbest"]) == 2
    header, row = predict(model, [line], "tsv")
    assert header == "answer\tnull_odds"
    assert row.split("\t")[0] == record["answer"]
    model.null_threshold = -1e9
    assert predict(model, [line]) == [""]
    model.null_threshold = None


def test_pairs_are_separated_by_a_tab_or_in_json(models, predict):
    model = TextClassifier(tiny.start(128), ["bad", "good"], pairs=True)
    pair, record = "a\tb", json.dumps({"text": "a", "text_b": "b"})
    assert predict(model, [pair], "tsv") == predict(model, [record], "tsv")
    # For a model of single texts a tab is white space.
    assert len(set(predict(models["classifier"], ["a\tb", "a b"], "tsv")[1:])) == 1


def test_lines_may_be_json_objects(models, predict):
    lines = ["a", "{a}"], ['\ufeff{"text": "a"}', "{a}"]
    expected, table = (predict(models["classifier"], part, "tsv") for part in lines)
    assert table == expected


def test_ids_are_kept(models, predict, records):
    model, lines = models["classifier"], ['{"id": 3, "text": "a"}', '{"text": "b"}']
    first, second = records(model, lines)
    assert (first["id"], "id" in second) == (3, False)
    header, row = predict(model, lines[:1], "tsv")
    assert (header.split("\t")[:2], row.split("\t")[0]) == (["id", "label"], "3")
    assert predict(model, lines[:1])[0].split("\t")[0] == "3"


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
    ("name", "lines", "options", "words"),
    [
        ("classifier", ["a", '{"text": "a"'], (), r"JSON object\. .*line 2: "),
        ("classifier", ['{"id": [1], "text": "a"}'], (), r"line 1: \[1\]"),
        (
            "classifier",
            ['{"id": 1, "text": "a"}', "b"],
            ("tsv",),
            "record 2 without an id",
        ),
        ("answerer", ["who?"], (), "question and context.*line 1: 'who"),
        ("answerer", [json.dumps(QUESTION)], ("jsonl", 1000), "n_best"),
        ("answerer", [json.dumps(QUESTION)], ("text", 2), "pass --format=jsonl"),
        ("tagger", [], ("jsonl", 2), "--nbest=2 with a TokenClassifier"),
        (
            "tagger",
            ['{"text": 3}'],
            (),
            "with words or tokens or text, a list of words",
        ),
        ("tagger", ['{"text": "a\\ud83d"}'], (), r"line 1: 'a\\ud83d', with half of"),
    ],
)
def test_invalid_lines_and_options_are_errors(
    models, predict, name, lines, options, words
):
    with pytest.raises(InputError, match=words):
        predict(models[name], lines, *options)


@pytest.mark.parametrize(
    ("line", "words"), [("a", "line 2, with 1"), ('{"text": "a"}', "text and text_b")]
)
def test_a_text_alone_is_no_pair(predict, line, words):
    model = TextClassifier(tiny.start(128), ["bad", "good"], pairs=True)
    with pytest.raises(InputError, match=words):
        predict(model, ["a\tb", line])
