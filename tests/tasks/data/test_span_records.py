"""Texts with spans of characters are read and written in the forms of other tools."""

import json

import numpy as np
import pytest

from electra_tf.config.finetuning import DataConfig
from electra_tf.errors import InputError
from electra_tf.tasks.evaluation import evaluate_model
from electra_tf.tasks.predictions import predict_items
from electra_tf.tasks.tag_task import read_sentences
from electra_tf.tasks.task_data import Reading
from electra_tf.tasks.token_classifier import TokenClassifier
from tests import tiny

TEXTS = ("Zoë met  Ann Lee.", "no name", "In Oslo")
SPANS = ([(0, 3, "PER"), (9, 16, "PER")], [], [(3, 7, "LOC")])
WORDS = [("Zoë", "met", "Ann", "Lee", "."), ("no", "name"), ("In", "Oslo")]
TAGS = [("S-PER", "O", "B-PER", "E-PER", "O"), ("O", "O"), ("O", "S-LOC")]


def objects(spans, start="start", end="end", kind="label", **more):
    return [{start: s, end: e, kind: k, **more} for s, e, k in spans]


FORMS = {  # a function from text and spans to a record
    "doccano": lambda t, s: {"id": 5, "text": t, "label": list(map(list, s))},
    "doccano with relations": lambda t, s: {
        "text": t, "relations": [],
        "entities": objects(s, "start_offset", "end_offset"),
    },
    "Prodigy": lambda t, s: {
        "text": t, "answer": "accept", "spans": objects(s, token_start=0),
        "tokens": [{"text": "x", "start": 0, "end": 1, "id": 0}],
    },
    "spaCy": lambda t, s: {
        "text": t, "ents": objects(s), "tokens": [{"id": 0, "start": 0, "end": 1}],
    },
    "entities": lambda t, s: {"text": t, "entities": objects(s, kind="type")},
}  # fmt: skip


def records(form):
    return [FORMS[form](*pair) for pair in zip(TEXTS, SPANS, strict=True)]


@pytest.fixture
def read(write):
    """Return a function that reads records: sentences and notes."""

    def of(rows, **settings):
        path, notes = write("a.json", json.dumps(rows)), []
        reading = Reading(DataConfig(**settings), notes.append)
        return read_sentences(path, reading).items, notes

    return of


@pytest.mark.parametrize("form", FORMS)
def test_spans_become_tags_of_words(read, form):
    sentences, notes = read(records(form))
    assert [s.words for s in sentences] == WORDS
    assert [s.tags for s in sentences] == TAGS
    assert [s.text for s in sentences] == list(TEXTS)
    assert "spans of characters" in notes[0]


def test_a_key_without_a_value_is_no_type(read):
    rows = [
        {"text": t, "entities": objects(s, kind="type", label=None)}
        for t, s in zip(TEXTS, SPANS, strict=True)
    ]
    for mixed in (rows, [*records("entities")[:2], rows[2]]):
        sentences, _ = read(mixed)
        assert [s.tags for s in sentences] == TAGS


def test_a_setting_names_the_keys(read):
    both = [r | {"spans": r["label"][:1]} for r in records("doccano")]
    with pytest.raises(InputError, match="--spans_column=entities"):
        read(both)
    (first, *_), _ = read(both, spans_column="spans")
    assert first.tags == ("S-PER", "O", "O", "O", "O")
    (first, *_), _ = read(both, label_column="label")
    assert first.tags == TAGS[0]
    renamed = [{"doc": r["text"], "ner": r["label"]} for r in records("doccano")]
    (first, *_), _ = read(renamed, text_columns=("doc",), spans_column="ner")
    assert (first.tags, first.text) == (TAGS[0], TEXTS[0])
    words = [r | {"tokens": ["a"], "tags": ["O"]} for r in both]
    (first, *_), _ = read(words)
    assert first.words == ("a",)


BAD = {  # spans of the second text, words of the error
    "the start of a word": ([[4, 7, "X"]], r"'ame' \(4:7, 'X'\).*word 'name'"),
    "the end of a word": ([[0, 1, "X"]], r"'n' \(0:1, 'X'\).*word 'no'"),
    "nested": ([[0, 7, "X"], [3, 7, "Y"]], r"'name' \(3:7, 'Y'\) overlaps"),
    "only a space": ([[2, 3, "X"]], "has no word"),
    "beyond the text": ([[3, 8, "X"]], "3:8 is no span of 7 characters"),
    "reversed": ([[3, 3, "X"]], "3:3 is no span"),
    "another type": ([[0, 2, 5]], r"\[0, 2, 5\] in 'label' has no start, end and type"),
    "half a pair": ([[0, 2, "\ud83d"]], r"tag 'B-\\ud83d'|tag 'S-\\ud83d'"),
    "no list": (None, "'label' is None, not a list of spans"),
}


@pytest.mark.parametrize(("spans", "words"), BAD.values(), ids=BAD)
def test_spans_that_are_no_words_are_errors(read, spans, words):
    rows = records("doccano")
    rows[1]["label"] = spans
    with pytest.raises(InputError, match=rf"a\.json:1: no spans of words: .*{words}"):
        read(rows)


def test_the_text_of_a_span_must_be_that_of_its_offsets(read):
    spans = [{"start": 0, "end": 3, "text": "Zoë", "label": "X"}]  # in units of 16 bits
    with pytest.raises(InputError, match="0:3 is '😀Zo', not 'Zoë'"):
        read([{"text": "😀" + TEXTS[0], "spans": spans}])


def test_spaces_around_a_span_belong_to_no_word(read):
    (sentence,), _ = read([{"text": TEXTS[0], "label": [[3, 9, "X"]]}])
    assert sentence.tags == ("O", "S-X", "O", "O", "O")


class _Certain:
    """Replace the outputs of a tagger by certain ones."""

    def __init__(self, model, tags):
        self._ids = [[model.tags.index(tag) for tag in row] for row in tags]
        self._size = len(model.tags)

    def __call__(self, examples, *_):
        rows = zip(examples.origins, examples.ids, strict=True)
        outputs = [np.zeros((len(ids), self._size), np.float32) for _, ids in rows]
        for output, (item, part) in zip(outputs, examples.origins, strict=True):
            output[part.starts, self._ids[item]] = 50
        return outputs


def tagger():
    tags = ["O", *(f"{mark}-{kind}" for mark in "BIES" for kind in ("PER", "LOC"))]
    return TokenClassifier(tiny.start(), tags, tiny.settings())


def without(record, *keys):
    return {k: v for k, v in record.items() if k not in keys}


@pytest.mark.parametrize("form", FORMS)
def test_predictions_have_the_form_of_the_input(write, form, monkeypatch):
    model = tagger()
    monkeypatch.setattr(model, "outputs_of", _Certain(model, TAGS))
    path = write("a.json", json.dumps(records(form)))
    items = tiny.read_items(model, path)
    assert items.targets == TAGS
    found = list(map(json.loads, predict_items(model, items, "jsonl")))
    for record, text, spans in zip(found, TEXTS, SPANS, strict=True):
        expected = FORMS[form](text, spans)
        expected = without(expected, "tokens", "answer", "relations")
        for span in expected.get("spans", ()):
            del span["token_start"]
        assert {key: record[key] for key in expected} == expected
        assert record["words"]
    again = write("b.json", json.dumps(found))
    assert tiny.read_items(model, again).targets == TAGS


UNUSED = {  # a record, why its labels are not used; empty: it has none
    "the end of a word": ({"text": "In Oslo", "label": [[3, 6, "LOC"]]}, "a part of"),
    "beyond the text": ({"text": "In Oslo", "label": [[3, 9, "LOC"]]}, "no span of 7"),
    "overlapping": ({"text": "In Oslo", "label": [[0, 7, "X"], [3, 7, "Y"]]}, "overl"),
    "no type": ({"text": "In Oslo", "label": [[3, 7, None]]}, "no start, end and"),
    "no list": ({"text": "In Oslo", "label": 5}, "not a list of spans"),
    "not labelled": ({"text": "In Oslo"}, ""),
    "null": ({"text": "In Oslo", "label": None}, ""),
    "tokens as objects": ({"text": "In Oslo", "tokens": [{"id": 0}]}, ""),
    "fewer tags": ({"tokens": ["In", "Oslo"], "ner_tags": ["O"]}, "1 'ner_tags'"),
    "numbers": ({"tokens": ["In", "Oslo"], "ner_tags": [0, 1]}, "of 0 --tag_names"),
}


@pytest.mark.parametrize("others", [0, 1])
@pytest.mark.parametrize(("record", "reason"), UNUSED.values(), ids=UNUSED)
def test_labels_that_predictions_do_not_need_may_be_wrong(
    write, capsys, record, reason, others
):
    path = write("a.json", json.dumps([*records("doccano")[:others], record]))
    items = tiny.read_items(tagger(), path)
    assert items.items[-1].words == ("In", "Oslo")
    assert items.targets[-1] is None
    printed = capsys.readouterr().out
    if others:
        assert ("1 of 2 inputs have labels" in printed) == bool(reason)
        assert reason in printed


def test_a_task_is_scored_and_written_in_its_form(write, tmp_path, monkeypatch):
    lines = [json.dumps(row) for row in records("doccano")]
    folder = write("data/train.jsonl", "\n".join(lines * 4)).rpartition("/")[0]
    path = write("data/dev.jsonl", "\n".join(lines))
    task = tiny.read_task("tagging", folder, DataConfig())
    assert task.monitor == "dev_f1"
    model = task.model(tiny.start(), settings=tiny.settings())
    predicted = [("O",) * 5, *TAGS[1:]]
    monkeypatch.setattr(model, "outputs_of", _Certain(model, predicted))
    report, splits = evaluate_model(model, "tagging", path)
    assert (report["precision"], report["recall"]) == (100, pytest.approx(100 / 3))
    scored = splits["data"]
    scored.task.write(scored, str(tmp_path / "dev"))
    found = list(map(json.loads, (tmp_path / "dev.jsonl").read_text().splitlines()))
    expected = zip(TEXTS, [[], *SPANS[1:]], strict=True)
    assert found == [{"text": t, "label": list(map(list, s))} for t, s in expected]
