"""Questions of SQuAD's layout and of flat records; errors name article and question."""

import gzip
import json

import pytest

from electra_tf.errors import InputError
from electra_tf.tasks.data.squad_json import (
    Answer,
    Question,
    parse_unlabelled,
    read_squad,
)
from electra_tf.tasks.data.table import read

CONTEXT = "The leader was John Smith (1895-1943). John Smith left."


def answer(text="John Smith", start=15):
    return {"text": text, "answer_start": start}


def qa(**changes):
    values = {"id": "a", "question": "Who?", "answers": [answer()], **changes}
    return {key: value for key, value in values.items() if value is not None}


def squad(*qas, context=CONTEXT, **article):
    paragraphs = [{"context": context, "qas": list(qas)}]
    return {
        "version": "1.1",
        "data": [{"title": "T", "paragraphs": paragraphs, **article}],
    }


@pytest.mark.parametrize("name", ["dev.json", "dev.json.gz", "dev.json.xz"])
def test_questions_of_squad(write, name):
    two = [answer(), answer("John", 39)]
    impossible = qa(id="b", answers=[], is_impossible=True)
    content = squad(qa(answers=two), impossible, qa(id="c", answers=None))
    path = write(name, "\ufeff" + json.dumps(content))
    shared = {"question": "Who?", "context": CONTEXT, "title": "T", "source": path}
    gold = (Answer("John Smith", 15), Answer("John", 39))
    assert read_squad(path) == [
        Question(id="a", answers=gold, impossible=False, **shared),
        Question(id="b", answers=(), impossible=True, **shared),
        Question(id="c", answers=(), impossible=False, **shared),
    ]


def test_ids_and_titles_of_other_libraries(write):
    null = {**qa(id=0), "answers": None}
    content = squad(qa(id=7), null, {**qa(), "is_impossible": None}, title=None)
    del (other := squad(qa(id=8)))["data"][0]["title"]
    content["data"] += other["data"]
    questions = read_squad(write("a.json", content))
    assert [q.id for q in questions] == ["7", "0", "a", "8"]
    assert [q.title for q in questions] == [""] * 4
    assert [len(q.answers) for q in questions] == [1, 0, 1, 1]


FLAT = [
    {"id": 1, "title": "T", "context": "Omar lives in Bern.", "question": "Who?",
     "answers": {"text": ["Omar"], "answer_start": [0]}},
    {"id": "b", "title": None, "context": "Omar lives in Bern.", "question": "Why?",
     "answers": {"text": [], "answer_start": []}},
    {"id": "c", "context": "It is old.", "question": "How?"},
]  # fmt: skip


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.ndjson", "lines.json"])
@pytest.mark.parametrize("layout", ["lines", "list", "data", "indented"])
def test_flat_records_are_questions(write, name, layout):
    text = {
        "lines": "\n".join(map(json.dumps, FLAT)),
        "list": json.dumps(FLAT),
        "data": json.dumps({"version": "x", "data": FLAT}),
        "indented": json.dumps(FLAT, indent=1),
    }[layout]
    first, second, third = read_squad(write(name, text))
    assert (first.id, first.title, first.impossible) == ("1", "T", False)
    assert first.located == (Answer("Omar", 0),)
    assert (second.impossible, second.answers) == (True, ())
    assert (third.impossible, third.answers) == (False, ())


def test_a_bad_flat_record_is_named(write):
    bad = {**FLAT[0], "answers": {"text": ["Omar"]}}
    path = write("bad.jsonl", "\n".join(map(json.dumps, [FLAT[1], bad])))
    with pytest.raises(InputError, match=r"bad\.jsonl, record 2.*`answer_start`"):
        read_squad(path)


BAD_FILES = {
    "empty": (b"  \n", "dev.json", "one or more valid rows"),
    "no json": (b'{"data": [', "dev.json", "invalid JSON"),
    "latin-1": (b'{"data": ["\xe9"]}', "dev.json", "UTF-8"),
    "a list": (b"[]", "dev.json", "one or more valid rows"),
    "no data": (b'{"version": 1}', "dev.json", "'version'"),
    "no articles": (b'{"data": []}', "dev.json", "no records"),
    "a table": (b"id,question\n", "new.csv", "one or more valid rows"),
    "a packed table": (
        gzip.compress(b"id\tquestion\n"),
        "new.tsv.gz",
        "one or more valid rows",
    ),
}


@pytest.mark.parametrize(
    ("content", "name", "words"), BAD_FILES.values(), ids=BAD_FILES
)
def test_files_without_questions_raise(write, content, name, words):
    path = write(name, content)
    with pytest.raises(InputError) as caught:
        read_squad(path)
    assert path in str(caught.value)
    assert words in str(caught.value)


BAD_QUESTIONS = {
    "no id": (qa(id=None), "`id`"),
    "no question": (qa(question=None), "`question`"),
    "id is a fraction": (qa(id=7.5), "7.5"),
    "blank question": (qa(question=" "), "' '"),
    "not a record": ("what?", "what?"),
    "answers is no list": (qa(answers="a"), "'a'"),
    "answers without a list": (qa(answers={}), "`text`"),
    "lists of two lengths": (
        qa(answers={"text": ["a"], "answer_start": []}), "one length",
    ),
    "answer without text": (qa(answers=[{"answer_start": 1}]), "text`"),
    "offset is a string": (qa(answers=[answer(start="15")]), "'15'"),
    "offset is true": (qa(answers=[answer(start=True)]), "True"),
    "is_impossible is 0": (qa(is_impossible=0), "0"),
    "blank answer": (qa(answers=[answer(text=" ")]), "1 answers are"),
    "no answers": (qa(answers=[]), "is_impossible"),
    "answers of none": (
        qa(is_impossible=True), "is_impossible",
    ),
    "id twice": (qa(id="z"), "question 1 (id z)"),
}  # fmt: skip


@pytest.mark.parametrize(("bad", "words"), BAD_QUESTIONS.values(), ids=BAD_QUESTIONS)
def test_bad_questions_are_errors_with_their_place(write, bad, words):
    path = write("dev.json", squad(qa(id="z"), bad))
    with pytest.raises(InputError) as caught:
        read_squad(path)
    assert f"{path}, article 1, paragraph 1, question 2" in str(caught.value)
    assert words in str(caught.value)


BAD_GOLD = {
    **{n: q for n, (q, _) in BAD_QUESTIONS.items() if "answer" in n},
    "offset is true": qa(answers=[answer(start=True)]),
    "is_impossible is 0": qa(is_impossible=0),
    "impossible with answers": qa(is_impossible=True),
    "one blank answer": qa(answers=[answer(), answer(text="")]),
}


@pytest.mark.parametrize("bad", BAD_GOLD.values(), ids=BAD_GOLD)
def test_predictions_need_no_valid_answers(write, bad):
    path = write("dev.json", squad(qa(id="z"), bad, qa(id="y", answers=[answer("X")])))
    table = read(path)
    with pytest.raises(InputError):
        read_squad(path)
    notes = []
    found = parse_unlabelled(table, notes.append)
    assert [q.gold and len(q.gold) for q in found] == [1, None, 1]
    assert found[1].texts == ("Who?", CONTEXT)
    (note,) = notes
    assert "1 of 3 questions have no valid answers" in note
    notes.clear()
    table = read(write("a.json", squad(bad)))
    assert parse_unlabelled(table, notes.append)[0].gold is None
    assert len(notes) == (bad["answers"] != [])


@pytest.mark.parametrize(("cell", "impossible"), [("1", True), ("0", False)])
def test_numbers_of_a_csv_are_impossible_or_not(write, cell, impossible):
    answers = "[]" if impossible else json.dumps([answer()]).replace('"', '""')
    rows = f'id,question,context,answers,is_impossible\na,Who?,{CONTEXT},"{answers}",'
    (question,) = read_squad(write("dev.csv", f"{rows}{cell}\n"))
    assert question.impossible == impossible
    with pytest.raises(InputError, match="`is_impossible` is 2"):
        read_squad(write("dev.csv", f"{rows}2\n"))


@pytest.mark.parametrize(
    ("article", "place"),
    [
        ({"title": "x"}, "article 2"),
        (3, "article 2"),
        ({"title": "x", "paragraphs": [{"context": "C"}]}, "article 2, paragraph 1"),
    ],
)
def test_bad_articles_and_paragraphs_are_errors(write, article, place):
    content = squad(qa())
    content["data"].append(article)
    with pytest.raises(InputError, match=rf"dev\.json, {place}: "):
        read_squad(write("dev.json", content))


OFFSETS = {  # answer in the file, corrected offset
    "one off": (answer(start=16), 15),
    "nearer to the second": (answer(start=30), 39),
    "beyond the end": (answer(start=500), 39),
    "below -1": (answer(start=-9), 15),
    "nowhere": (answer("Jane Smith", 15), -1),
    "free form": (answer(start=-1), -1),
}


@pytest.mark.parametrize(("given", "start"), OFFSETS.values(), ids=OFFSETS)
def test_wrong_offsets_are_moved_and_counted(write, given, start):
    path, notes = write("dev.json", squad(qa(answers=[given]))), []
    (question,) = read_squad(path, notes.append)
    assert question.answers == (Answer(given["text"], start),)
    assert question.trainable == (start >= 0)
    (note,) = notes
    assert f"1 answers have a wrong offset: {int(start >= 0)} are used" in note
    assert "question 1 (id a)" in note


def test_wrong_and_missing_offsets_of_a_public_file(data):
    path, notes = data / "zh" / "cmrc2018" / "cmrc2018_dev.json.gz", []
    questions = read_squad(path, notes.append)
    assert (len(questions), sum(len(q.answers) for q in questions)) == (3219, 9657)
    assert "200 answers have a wrong offset: 7 are used" in notes[0]
    assert sum(len(q.located) for q in questions) == 9657 - 193
