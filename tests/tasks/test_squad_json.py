import gzip
import json
import lzma

import pytest

from electra_tf.errors import InputError
from electra_tf.tasks.squad_json import (
    Answer,
    Question,
    read_squad,
    read_squad_ignoring_offsets,
)
from electra_tf.text.data_errors import DataErrorLog

CONTEXT = "The leader was John Smith (1895-1943). John Smith left."


def qa(**changes):
    changes = {"id": "a", "question": "Who?", "answers": [answer()], **changes}
    return {key: value for key, value in changes.items() if value is not None}


def answer(text="John Smith", start=15):
    return {"text": text, "answer_start": start}


def squad(*qas, context=CONTEXT, title="Smith"):
    article = {"title": title, "paragraphs": [{"context": context, "qas": list(qas)}]}
    return {"version": "1.1", "data": [article]}


def write(path, content):
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


@pytest.fixture
def log(tmp_path):
    log = DataErrorLog("report", tmp_path / "problems.txt")
    yield log
    log.close()


@pytest.fixture
def stop(tmp_path):
    return DataErrorLog("stop", tmp_path / "never.txt")


def test_read_squad_returns_questions(tmp_path, stop):
    two = [answer(), answer("John", 39)]
    path = write(
        tmp_path / "dev.json",
        squad(
            qa(answers=two),
            qa(id="b", answers=[], is_impossible=True),
            qa(id="c", answers=None),  # test data
        ),
    )
    shared = {"question": "Who?", "context": CONTEXT, "title": "Smith"}
    shared["source"] = str(path)
    gold = (Answer("John Smith", 15), Answer("John", 39))
    assert read_squad(path, stop) == [
        Question(id="a", answers=gold, impossible=False, record=1, **shared),
        Question(id="b", answers=(), impossible=True, record=2, **shared),
        Question(id="c", answers=(), impossible=False, record=3, **shared),
    ]


@pytest.mark.parametrize("suffix", [".json", ".json.gz", ".json.xz"])
def test_read_squad_accepts_compression_and_byte_order_mark(tmp_path, stop, suffix):
    opener = {".gz": gzip.open, ".xz": lzma.open}.get(suffix[5:], open)
    path = tmp_path / f"dev{suffix}"
    with opener(path, "wb") as file:
        file.write(b"\xef\xbb\xbf" + json.dumps(squad(qa())).encode())
    assert [question.id for question in read_squad(path, stop)] == ["a"]


BAD_FILES = {
    "empty": (b"  \n", "empty"),
    "no json": (b'{"data": [', "invalid JSON"),
    "a cut document": (b'{\n "data": [\n', "invalid JSON"),
    "latin-1": ('{"data": ["\xe9"]}'.encode("latin-1"), "UTF-8"),
    "utf-16": ('{"data": []}'.encode("utf-16"), "UTF-16"),
    "a list": (b"[]", "no records"),
    "no data": (b'{"version": 1}', "'version'"),
    "no articles": (b'{"data": []}', "no records"),
}


@pytest.mark.parametrize(("content", "expected"), BAD_FILES.values(), ids=BAD_FILES)
def test_unreadable_content_raises(tmp_path, stop, content, expected):
    path = tmp_path / "dev.json"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_squad(path, stop)
    assert str(path) in str(caught.value)
    assert expected in str(caught.value)


@pytest.mark.parametrize("name", ["missing.json", "cut.json.gz", "plain.json.xz", "."])
def test_unreadable_files_raise(tmp_path, log, name):
    whole = gzip.compress(json.dumps(squad(qa())).encode() * 50)
    (tmp_path / "cut.json.gz").write_bytes(whole[: len(whole) // 2])
    write(tmp_path / "plain.json.xz", squad(qa()))
    with pytest.raises(InputError, match="tmp"):
        read_squad(tmp_path / name, log)


BAD_QUESTIONS = {
    "no id": (qa(id=None), "missing_key", "`id`"),
    "no question": (qa(question=None), "missing_key", "`question`"),
    "id is a fraction": (qa(id=7.5), "wrong_value", "7.5"),
    "blank question": (qa(question=" "), "blank", "' '"),
    "not a record": ("what?", "wrong_value", "what?"),
    "answers is no list": (qa(answers="a"), "wrong_value", "'a'"),
    "answers without a list": (qa(answers={}), "wrong_value", "`text`"),
    "lists of two lengths": (
        qa(answers={"text": ["a"], "answer_start": []}),
        "wrong_value",
        "of one length",
    ),
    "answer without text": (qa(answers=[{"answer_start": 1}]), "missing_key", "text`"),
    "offset is a string": (qa(answers=[answer(start="15")]), "wrong_value", "'15'"),
    "offset is true": (qa(answers=[answer(start=True)]), "wrong_value", "True"),
    "is_impossible is 0": (qa(is_impossible=0), "wrong_value", "0"),
    "no answers": (qa(answers=[]), "no_answers", "is_impossible"),
    "id twice": (qa(id="z"), "duplicate_id", "question 1 (id z)"),
}


@pytest.mark.parametrize(
    ("bad", "kind", "expected"), BAD_QUESTIONS.values(), ids=BAD_QUESTIONS
)
def test_bad_questions_are_reported_with_their_place(
    tmp_path, log, stop, bad, kind, expected
):
    path = write(tmp_path / "dev.json", squad(qa(id="z"), bad, qa(id="y")))
    assert [(q.id, q.record) for q in read_squad(path, log)] == [("z", 1), ("y", 3)]
    assert log.counts == {kind: 1}
    with pytest.raises(InputError) as caught:
        read_squad(path, stop)
    assert f"{path}, article 1, paragraph 1, question 2" in caught.value.received
    assert f": {kind}: " in caught.value.received
    assert expected in caught.value.received


def test_bad_articles_and_paragraphs_are_reported_with_their_place(tmp_path, log, stop):
    content = squad(qa())
    content["data"] += [{"title": "x"}, 3, {"title": 5, "paragraphs": []}]
    content["data"][0]["paragraphs"] += [{"context": "C"}, {"context": "", "qas": []}]
    path = write(tmp_path / "dev.json", content)
    assert len(read_squad(path, log)) == 1
    assert log.counts == {"missing_key": 2, "wrong_value": 2, "blank": 1}
    log.close()
    lines = (tmp_path / "problems.txt").read_text().splitlines()
    places = [line.removeprefix(f"{path}, article ").split(":")[0] for line in lines]
    assert places == ["1, paragraph 2", "1, paragraph 3", "2", "3", "4"]
    with pytest.raises(InputError, match="article 1, paragraph 2: missing_key"):
        read_squad(path, stop)


OFFSETS = {  # answer in the file, kind of error, corrected offset
    "one off": (answer(start=16), "offset", 15),
    "nearer to the second": (answer(start=30), "offset", 39),
    "beyond the end": (answer(start=500), "offset", 39),
    "below -1": (answer(start=-9), "offset", 15),
    "nowhere": (answer("Jane Smith", 15), "offset", -1),
    "free form": (answer(start=-1), "no_offset", -1),
    "blank": (answer(" ", 3), "blank_answer", -1),
}


@pytest.mark.parametrize(("given", "kind", "start"), OFFSETS.values(), ids=OFFSETS)
def test_wrong_offsets(tmp_path, log, stop, given, kind, start):
    path = write(tmp_path / "dev.json", squad(qa(answers=[given])))
    (question,) = read_squad(path, log)
    assert question.answers == (Answer(given["text"], start),)
    assert question.trainable == (start >= 0)
    assert log.counts == {kind: 1}
    with pytest.raises(InputError, match=rf"\(id a\): {kind}: "):
        read_squad(path, stop)


def test_read_squad_ignoring_offsets(tmp_path):
    qas = [qa(answers=[answer(start=16)]), qa(id="b", answers=[answer(start=-1)])]
    path = write(tmp_path / "dev.json", squad(*qas))
    assert [q.id for q in read_squad_ignoring_offsets(path)] == ["a", "b"]
    write(path, squad(*qas, qa(id="c", question=" ")))
    with pytest.raises(InputError, match=r"question 3: blank: "):
        read_squad_ignoring_offsets(path)


def test_impossible_questions_have_no_answers(tmp_path, log):
    path = write(tmp_path / "dev.json", squad(qa(is_impossible=True)))
    (question,) = read_squad(path, log)
    assert question.impossible
    assert not question.answers
    assert log.counts == {"impossible_with_answers": 1}


def test_public_files(data, stop, log):
    sizes = {
        "dev-v1.1.rebuilt": (10570, 0, 48),
        "dev-v2.0.rebuilt": (11873, 5945, 35),
        "dev-v2.0.exact20": (7357, 3745, 20),
    }
    for name, (count, impossible, articles) in sizes.items():
        questions = read_squad(data / "squad" / f"{name}.json.gz", stop)
        assert len(questions) == count
        assert sum(q.impossible for q in questions) == impossible
        assert len({q.title for q in questions}) == articles
        assert all(q.trainable for q in questions)
    path = data / "zh" / "cmrc2018" / "cmrc2018_dev.json.gz"
    with pytest.raises(InputError, match="no_offset"):
        read_squad(path, stop)
    questions = read_squad(path, log)
    assert (len(questions), sum(len(q.answers) for q in questions)) == (3219, 9657)
    assert log.counts == {"no_offset": 193, "offset": 7}
    assert sum(len(q.located) for q in questions) == 9657 - 193


def test_other_libraries_ids_and_titles_keep_all_questions(tmp_path, stop):
    content = squad(qa(id=7), qa(id=0, answers=None), qa(id="a", is_impossible=None))
    content["data"][0]["title"] = None
    content["data"].append({"paragraphs": [{"context": "C", "qas": [qa(id=8)]}]})
    content["data"][1]["paragraphs"][0]["context"] = content["data"][0]["paragraphs"][
        0
    ]["context"]
    content["data"][0]["paragraphs"][0]["qas"][1]["answers"] = None
    content["data"][0]["paragraphs"][0]["qas"][2]["is_impossible"] = None
    questions = read_squad(write(tmp_path / "a.json", content), stop)
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
def test_flat_records_are_questions(tmp_path, stop, log, name, layout):
    text = {
        "lines": "\n".join(map(json.dumps, FLAT)),
        "list": json.dumps(FLAT),
        "data": json.dumps({"version": "x", "data": FLAT}),
        "indented": json.dumps(FLAT, indent=1),
    }[layout]
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if "gz" in name else text.encode())
    first, second, third = read_squad(path, stop)
    assert (first.id, first.title, first.impossible) == ("1", "T", False)
    assert first.located == (Answer("Omar", 0),)
    assert (second.impossible, second.answers) == (True, ())
    assert (third.impossible, third.answers) == (False, ())
    assert [q.record for q in (first, second, third)] == [1, 2, 3]
    path = tmp_path / "bad.jsonl"
    bad = {**FLAT[0], "answers": {"text": ["Omar"]}}
    path.write_text("\n".join(map(json.dumps, [FLAT[1], bad])))
    with pytest.raises(InputError, match=r"bad\.jsonl, record 2.*`answer_start`"):
        read_squad(path, stop)
    assert [q.id for q in read_squad(path, log)] == ["b"]


def test_a_column_of_splits_is_reported(tmp_path, stop):
    path, lines = tmp_path / "a.jsonl", []
    records = [{**FLAT[0], "id": n, "split": n} for n in ("train", "dev")]
    path.write_text("\n".join(map(json.dumps, records)))
    read_squad(path, stop, lines.append)
    assert "'split'" in lines[0]


@pytest.mark.parametrize("name", ["new.csv", "new.tsv.gz"])
def test_a_table_is_no_file_of_questions(tmp_path, stop, name):
    with pytest.raises(InputError, match=rf"{name}, a \.[ct]sv"):
        read_squad(tmp_path / name, stop)
