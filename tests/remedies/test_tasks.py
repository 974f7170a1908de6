"""Remedies of errors about data of tasks."""

import gzip

import pytest

from electra_tf.tasks.glue import require
from remedies.bench import (
    TAGS,
    Bench,
    cases,
    follow,
    read_data,
    squad,
)

ROWS = "text,label\n" + "the,a\nfirst,b\n" * 10
ONE = "text,label\n" + "the,a\n" * 20
JSON = '{"text": "the", "label": "a"}\n{"text": "of", "label": "b"}\n' * 4
COLUMNS = {"text_columns": "[text]", "label_column": "label"}
SCORE = {"text_columns": "[text]", "score_column": "score"}


def _table(*tables, name="train.csv", **settings):
    files = [{name: table} for table in tables]
    return lambda b: b.task("csv", *files, **settings)


def _settings(*settings):
    return lambda b: b.task("csv", *(({"train.csv": ROWS}, own) for own in settings))


TABLES = {
    "no column of labels": _settings({"text_columns": "[text]"}, COLUMNS),
    "a column that is not there": _settings(
        {**COLUMNS, "text_columns": "[txt]"}, COLUMNS
    ),
    "one class": _table(ONE, ROWS, **COLUMNS),
    "one score": _table(
        "text,score\n" + "the,1\n" * 9, "text,score\n" + "the,1\nof,2\n" * 9, **SCORE
    ),
    "a row without a label": _table(ROWS + "of,\n", ROWS + "of,a\n", **COLUMNS),
    "a score that is no number": _table(
        "text,score\nthe,1\nof,x\na,2\n", "text,score\nthe,1\nof,4\na,2\n", **SCORE
    ),
    "a row too short": _table(ROWS + "of\n", ROWS + "of,a\n", **COLUMNS),
    "a quote that does not end": _table(ROWS + '"of,a\n', ROWS + '"of",a\n', **COLUMNS),
    "two columns of one name": _table(ROWS.replace("text,", "label,"), ROWS, **COLUMNS),
    "a header alone": _table("text,label\n", ROWS, **COLUMNS),
    "an empty file": _table("", ROWS, **COLUMNS),
    "classes with one row each": _table(
        "text,label\nthe,a\nof,b\n", "text,label\nthe,a\nof,b\na,a\nto,b\n", **COLUMNS
    ),
    "a folder without train": lambda b: b.task(
        "csv", {"training.csv": ROWS}, {"train.csv": ROWS}, **COLUMNS
    ),
    "two files of train": lambda b: b.task(
        "csv",
        {"train.csv": ROWS, "train.tsv": ROWS.replace(",", "\t")},
        {"train.csv": ROWS},
        {"train.tsv": ROWS.replace(",", "\t")},
        **COLUMNS,
    ),
    "a class that train lacks": lambda b: b.task(
        "csv",
        {"train.csv": ROWS, "dev.csv": ROWS + "of,c\n"},
        {"train.csv": ROWS, "dev.csv": ROWS + "of,b\n"},
        **COLUMNS,
    ),
    "JSON that is not whole": lambda b: b.task(
        "csv",
        {"train.jsonl": JSON + '{"text": "the"\n'},
        {"train.jsonl": JSON + '{"text": "the", "label": "a"}\n'},
        **COLUMNS,
    ),
    "a Latin-1 table": lambda b: b.task(
        "csv",
        {"train.csv": (ROWS + "café,a\n").encode("latin-1")},
        {"train.csv": ROWS + "café,a\n"},
        **COLUMNS,
    ),
    "a .gz that is not compressed": lambda b: b.task(
        "csv",
        {"train.csv.gz": gzip.compress(ROWS.encode())[:-20]},
        {"train.csv.gz": gzip.compress(ROWS.encode())},
        **COLUMNS,
    ),
    "GLUE without a file": lambda b: [
        lambda: require(str(b.folder), "rte", "dev"),
        lambda: require(str(b.file("RTE/dev.tsv", "").parent.parent), "rte", "dev"),
        lambda: require(str(b.path("RTE")), "rte", "dev"),
    ],
    "GLUE with two files": lambda b: [
        lambda: (
            b.file("dev.one.tsv", ""),
            b.file("dev.two.tsv", ""),
            require(str(b.folder), "rte", "dev"),
        ),
        lambda: (
            b.path("dev.one.tsv").unlink(),
            require(str(b.folder), "rte", "dev"),
        ),
    ],
}
NUMBERED = "1\tthe\tx\tDT\n2\tfirst\tx\tJJ\n\n" * 4


def _tags(*tags, name="train.txt", **settings):
    return lambda b: b.task("tagging", *({name: t} for t in tags), **settings)


TAGGING = {
    "a folder without train": lambda b: b.task(
        "tagging", {"training.txt": TAGS}, {"train.txt": TAGS}
    ),
    "an empty file": _tags("", TAGS),
    "one sentence": lambda b: b.task(
        "tagging",
        {"train.txt": "the O\n"},
        {"train.txt": TAGS},
        {"train.txt": "the O\n", "dev.txt": "of O\n"},
    ),
    "numbers of words": lambda b: b.task(
        "tagging",
        ({"train.txt": NUMBERED}, {}),
        ({"train.txt": NUMBERED}, {"word_column": 1, "tag_column": 3}),
    ),
    "a column that is not there": lambda b: b.task(
        "tagging",
        *(({"train.txt": TAGS}, {"tag_column": column}) for column in (7, 1, -1)),
    ),
    "a line with one column": _tags(TAGS + "word\n", TAGS + "word O\n"),
    "a tag that marks no span": _tags(TAGS + "to X\n", TAGS + "to O\n"),
    "a tag that train lacks": lambda b: b.task(
        "tagging",
        {"train.txt": TAGS, "dev.txt": "the O\nof B-Y\n"},
        {"train.txt": TAGS, "dev.txt": "the O\nof B-X\n"},
        {"train.txt": TAGS + "a B-Y\n", "dev.txt": "the O\nof B-Y\n"},
    ),
    "other tags in dev": lambda b: b.task(
        "tagging",
        {"train.txt": TAGS, "dev.txt": "the DT\n"},
        {"train.txt": TAGS, "dev.txt": "the O\n"},
    ),
}


def _question(bad, *good, task="squad1"):
    files = [{"train.json": squad(qa=qa), "dev.json": squad()} for qa in (bad, *good)]
    return lambda b: b.task(task, *files)


ANSWER = {"text": "first", "answer_start": 4}
SQUAD = {
    "a folder without dev": lambda b: [
        *b.task(
            "squad1",
            {"train.json": squad()},
            {"train.json": squad(), "dev.json": squad()},
        ),
        lambda: read_data("squad1", b.path("task0/train.json"), dev_share=0.5),
    ],
    "one article": lambda b: [
        lambda: read_data("squad1", b.file("a.json", squad(count=1)), dev_share=0.5),
        *b.task("squad1", {"train.json": squad(count=1), "dev.json": squad()}),
    ],
    "not JSON": lambda b: b.task(
        "squad1",
        {"train.json": "{", "dev.json": squad()},
        {"train.json": squad(), "dev.json": squad()},
    ),
    "another layout": lambda b: b.task(
        "squad1",
        {"train.json": {"rows": []}, "dev.json": squad()},
        {"train.json": squad(), "dev.json": squad()},
    ),
    "a question that is no text": _question({"question": 3}, {"question": "which?"}),
    "a blank question": _question({"question": " "}, {"question": "which?"}),
    "an id that occurs twice": lambda b: b.task(
        "squad1",
        {"train.json": squad(qa={"id": "1"}), "dev.json": squad()},
        {"train.json": squad(qa={"id": "2"}), "dev.json": squad()},
    ),
    "no answers": _question({"answers": []}, {"answers": [ANSWER]}),
    "an answer elsewhere": _question(
        {"answers": [{**ANSWER, "answer_start": 6}]}, {"answers": [ANSWER]}
    ),
    "an answer without a place": _question(
        {"answers": [{"text": "first"}]}, {"answers": [ANSWER]}
    ),
    "an answer of another text": _question(
        {"answers": [{**ANSWER, "text": "last"}]}, {"answers": [ANSWER]}
    ),
    "a blank answer": _question(
        {"answers": [{**ANSWER, "text": ""}]}, {"answers": [ANSWER]}
    ),
    "impossible with answers": _question(
        {"is_impossible": True},
        {"is_impossible": False},
        {"is_impossible": True, "answers": []},
        task="squad2",
    ),
}


CASES = cases(tables=TABLES, tagging=TAGGING, squad=SQUAD)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_remedy_works(case, here, tmp_path):
    assert follow(case, Bench(tmp_path, here)) > 0
