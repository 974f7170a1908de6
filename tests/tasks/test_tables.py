"""Tables become rows with file and line; errors name the place and the remedy."""

import contextlib
import gc
import json
import os
import tracemalloc

import pytest

from electra_tf.errors import InputError
from electra_tf.tasks.tables import Row, read_table, require_columns
from electra_tf.text.data_errors import DataErrorLog

LATIN = "café".encode("latin-1")
CSV = 'label,text\n1,"a, b"\n0,"say ""yes""\nor no"\n1,c\n'
CSV_VALUES = [("1", "a, b"), ("0", 'say "yes"\nor no'), ("1", "c")]
RECORDS = [{"text": "a, b", "label": 1}, {"text": "é", "label": 2}]
JSON_VALUES = [("a, b", "1"), ("é", "2")]


@pytest.fixture
def read(write, log, report):
    """Write a file and read it; return values and lines."""

    def of(content, name="a.tsv", names=None, errors=log, notify=None):
        path = write(name, content)
        rows = read_table(path, errors, names, notify)
        assert {row.source for row in rows} == {path}
        return [tuple(row.values.values()) for row in rows], [r.line for r in rows]

    return of


GOOD = {  # content, name, values, lines
    "no quoting in .tsv": (
        'label\ttext\n1\t"open\n0\tsay ""x"" , "\n1\t\n', "a.tsv",
        [("1", '"open'), ("0", 'say ""x"" , "'), ("1", "")], [2, 3, 4],
    ),
    "quoting in .csv": (CSV, "a.csv", CSV_VALUES, [2, 3, 5]),
    "gzip": (CSV, "a.csv.gz", CSV_VALUES, [2, 3, 5]),
    "xz": (CSV, "a.csv.xz", CSV_VALUES, [2, 3, 5]),
    "columns without a name": (",text,\n0,a,\n", "a.csv", [("", "a")], [2]),
    "empty lines at the end": ("a\tb\n1\t2\n\n\r\n\n", "a.tsv", [("1", "2")], [2]),
    "empty texts": ("a\n1\n\n\n", "a.tsv", [("1",), ("",), ("",)], [2, 3, 4]),
    "semicolons beside a comma in quotes": (
        '"Review, full";label\n"a, b";1\n', "a.csv", [("a, b", "1")], [2],
    ),
    "commas beside semicolons in quotes": (
        'label,"a; b; c","d "";"" e"\n1,2,3\n', "a.csv", [("1", "2", "3")], [2],
    ),
    "one column with a comma in its name": (
        '"Review, full"\n"a, b"\n', "a.csv", [("a, b",)], [2],
    ),
    "two columns of one name": (
        "x,text,x\n1,2,3\n", "a.csv", [("1", "2", "3")], [2],
    ),
    "semicolons": (
        'text;label\n"a;b";1\nc, d;2\n', "a.csv", [("a;b", "1"), ("c, d", "2")], [2, 3],
    ),
    "JSON lines": (
        "\n".join(map(json.dumps, RECORDS)), "a.json", JSON_VALUES, [1, 2],
    ),
    "a list": (json.dumps(RECORDS), "a.jsonl", JSON_VALUES, [1, 1]),
    "an indented list": (
        json.dumps(RECORDS, indent=1), "a.json.gz", JSON_VALUES, [2, 6],
    ),
    "ndjson": (json.dumps(RECORDS[0]), "a.ndjson", JSON_VALUES[:1], [1]),
    "values of JSON": (
        {"s": "é", "i": 1, "w": 2.0, "f": 0.5, "b": True, "null": None, "l": ["é"]},
        "a.jsonl", [("é", "1", "2", "0.5", "true", '["é"]')], [1],
    ),
}  # fmt: skip
# Quotes around the fields of a .tsv, as pandas and Excel write them.
GOOD |= {
    f"quotes around {name}": (content, "a.tsv", values, None)
    for name, content, values in [
        ("a quote", 't\tl\n"say ""x"""\t1\nb\t2\n', [('say "x"', "1"), ("b", "2")]),
        ("all fields", '"t"\t"l"\n"a"\t"1"\n"b"\t"2"\n', [("a", "1"), ("b", "2")]),
        ("a column", 't\tl\n"a"\t1\n"b"\t2\n', [("a", "1"), ("b", "2")]),
        ("a tab", 't\tl\n"a\tb"\t1\nc\t2\n', [("a\tb", "1"), ("c", "2")]),
        ("a line feed", 't\tl\n"a\nb"\t1\nc\t2\n', [("a\nb", "1"), ("c", "2")]),
    ]
}
# Quotes that are characters of the texts.
GOOD |= {
    f"quotes in {content}": (
        f"t\tl\n{content}\n", "a.tsv",
        [tuple(line.split("\t")) for line in content.split("\n")], None,
    )
    for content in (
        '"good" film\t1\nbad\t2',
        '"good film\t1\nbad"\t2',
        '"good"\t1\nbad\t2',
        '"good"\t1\n"bad" film\t2\n"say ""x"""\t2',
        '"\t1\n"\t2',
    )
}  # fmt: skip


@pytest.mark.parametrize(
    ("content", "name", "values", "lines"), GOOD.values(), ids=GOOD
)
def test_rows_of_a_table(read, content, name, values, lines):
    found = read(content, name, notify=[].append)
    assert found[0] == values
    assert lines is None or found[1] == lines


@pytest.mark.parametrize("name", ["a.tsv", "a.csv", "a.jsonl"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_byte_order_marks_and_line_endings_are_removed(read, name, end, mark):
    comma = {"a.tsv": "\t", "a.csv": ","}.get(name)
    lines = [f"label{comma}text", f"1{comma}é", f"0{comma}b"]
    if comma is None:
        lines = ['{"label": "1", "text": "é"}', '{"label": "0", "text": "b"}']
    for last in ("", end):
        assert read(mark + end.join(lines) + last, name)[0] == [("1", "é"), ("0", "b")]


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
@pytest.mark.parametrize(
    "first", ["sep=;", '"sep=;"', "\ufeffsep=|", "sep=\t", "sep=,"]
)
def test_the_separator_line_of_excel_is_read(read, name, first):
    separator = first.strip('"')[-1]
    lines = [first, f"text{separator}label", f'"a{separator}b"{separator}1']
    for end in ("\n", "\r\n"):
        content = end.join([*lines, f"c{separator}2", ""])
        assert read(content, name) == ([(f"a{separator}b", "1"), ("c", "2")], [3, 4])
    with pytest.raises(InputError, match=rf"{name}:4: another number of columns"):
        read("\n".join([*lines, "c"]), name)


def test_the_caller_may_name_the_columns(write, log):
    path = write("a.tsv", "a\tb\nc\td\n")
    rows = read_table(path, log, ("x", "y"))
    assert [row.values for row in rows] == [{"x": "a", "y": "b"}, {"x": "c", "y": "d"}]
    assert [str(row) for row in rows] == [f"{path}:1", f"{path}:2"]
    path = write("a.jsonl", {"a": "x", "b": [1], "c": {"d": 1}, "e": None})
    (row,) = read_table(path, log)
    assert (set(row.values), row.nested) == ({"a", "b", "c"}, {"b", "c"})


def test_notes_on_quotes(read):
    notes = []
    read('t\tl\n"a"\t1\n"b"\t2\n', notify=notes.append)
    assert notes[0].endswith(
        'a.tsv: fields in quotes are read without them, and "" within as "'
    )
    read('t\tl\n"a"\t1\n"b"\t2\n"c"x\t2\n"d"\t2\n', notify=notes.append)
    assert notes[1].startswith("warning: ")
    assert "line 4" in notes[1]
    assert len(notes) == 2


def test_the_files_of_glue_have_no_quoting(data):
    for path in sorted(data.glob("glue/**/*.tsv*"))[:20]:
        notes, errors = [], DataErrorLog("report", os.devnull)
        with contextlib.suppress(InputError):  # files without a header line
            read_table(str(path), errors, None, notes.append)
        assert not any("read without" in note for note in notes), path


BAD = {  # content, name, words of the error, lines of the rows that are left
    "encoding": (
        b"label\ttext\n1\ta\n0\t" + LATIN + b"\n1\tb\n", "a.tsv",
        "a.tsv:3: another encoding than UTF-8: byte 0xE9 at character 6", [2, 4],
    ),
    "encoding in the second line of a row": (
        b'label,text\n1,a\n0,"x\n' + LATIN + b'"\n1,b\n', "a.csv",
        "a.csv:4: another encoding", [2, 5],
    ),
    "encoding of an object": (
        b'{"a": "x"}\n{"a": "' + LATIN + b'"}\n{"a": "y"}', "a.jsonl",
        "a.jsonl:2: another encoding", [1, 3],
    ),
    "encoding of an item of a list": (
        b'[\n{"a": "x"},\n{"a":\n "' + LATIN + b'"},\n{"a": "y"}]', "a.json",
        "a.json:4: another encoding", [2, 5],
    ),
    "quoting": (
        'label,text\n1,"x\ny"\n0,"a"b"\n1,c\n', "a.csv",
        "a.csv:4: broken quoting", [2, 5],
    ),
    "quotes that do not end": (
        'label,text\n1,x\n0,"a\nb\n', "a.csv",
        "a.csv:3: broken quoting.*in the row to line 4", [2],
    ),
    "columns of a tsv": (
        "label\ttext\n1\ta\n0\tb\tc\n1\td\n", "a.tsv",
        "a.tsv:3: another number of columns: 3 columns, not 2", [2, 4],
    ),
    "columns of a csv": (
        "label,text\n1\n0,b\n", "a.csv", "a.csv:2: another number of columns", [3],
    ),
    "commas in a table of semicolons": (
        "text;label\nb;1\na,1\n", "a.csv", "a.csv:3: another number of columns", [2],
    ),
    "an empty line": (
        "a\tb\n\n1\t2\n", "a.tsv",
        "a.tsv:2: another number of columns: an empty line", [3],
    ),
    "no JSON": (
        '{"a": 1}\n{"a": \n\n{"a": 2}', "a.jsonl", "a.jsonl:2: invalid JSON", [1, 4],
    ),
    "no object": (
        '{"a": 1}\n["a"]\n', "a.ndjson",
        "a.ndjson:2: invalid JSON: list .*not an object", [1],
    ),
    "an item of a list": (
        '[1,\n{"a": 1}]', "a.json", "a.json:1: invalid JSON: int 1", [2],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("content", "name", "words", "left"), BAD.values(), ids=BAD)
def test_bad_rows_stop_or_are_counted(
    read, report, tmp_path, content, name, words, left
):
    with pytest.raises(InputError, match=words) as caught:
        read(content, name)
    assert caught.value.required == "Data must be valid"
    assert read(content, name, errors=report)[1] == left
    assert report.counts.total() == 1
    report.close()
    (problem,) = (tmp_path / "problems.txt").read_text().splitlines()
    assert problem in caught.value.received


def test_columns_of_one_name_are_numbered(read, write, log):
    notes = []
    read("x,text,x\n1,2,3\n", "a.csv", notify=notes.append)
    (row,) = read_table(write("a.csv", "x,text,x\n1,2,3\n"), log, notify=None)
    assert list(row.values) == ["x (column 1)", "text", "x (column 3)"]
    require_columns([row], ["text"])
    with pytest.raises(InputError, match=r"without 'x'; it has 'x \(column 1\)'"):
        require_columns([row], ["x"])
    (note,) = notes
    assert "a.csv:1" in note
    assert "'x (column 1)', 'x (column 3)'" in note


def test_rows_take_little_memory(write, log):
    text = "words of a text of usual length"
    lines = [f"{n} {text},label {n % 9}" for n in range(20_000)]
    path = write("a.csv", "\n".join(["text,label", *lines]))
    size = os.path.getsize(path)
    tracemalloc.start()
    rows = read_table(path, log)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 11 * size  # with a dictionary for each row it is 15
    assert dict(rows[-1].values) == {
        "text": f"19999 {text}", "label": "label 1",
    }  # fmt: skip
    assert gc.isenabled()


NO_TABLES = {  # content by name of the file, and words of the error
    "empty": ("", "a.csv", "a.csv must contain text"),
    "spaces": (" \n\r\n", "a.tsv", "a.tsv must contain text"),
    "a byte order mark": ("\ufeff\n", "a.tsv", "empty file"),
    "a header alone": ("label\ttext\n", "a.tsv", "a.tsv with none"),
    "bad rows alone": ("label,text\n1\n", "a.csv", "a.csv:2: .*1 columns, not 2"),
    "a header of other bytes": (b"caf\xe9,text\n1,2\n", "a.csv", "a.csv:1: another"),
    "a header of broken quotes": ('"x"y,text\n1,2\n', "a.csv", "a.csv:1: broken quot"),
    "a text": ("a", "a.txt", ".tsv, .csv, .jsonl.*a.txt"),
    "an archive": ("a", "a.csv.zip", "a.csv.zip"),
    "a spreadsheet": ("x", "a.xlsx", "read_excel"),
    "a Parquet file": ("x", "a.parquet", "read_parquet"),
    "no records": ("[]", "a.json", "a.json with none"),
    "text after a list": ('[{"a": 1}] x', "a.json", "a.json, invalid JSON"),
    "a cut object": ('{\n "a": [1,\n', "a.json", "a.json, invalid JSON"),
    "bars": ("id|text|x\n", "a.csv", "a.csv:1 with 2 vertical bars and no comma"),
    "quoted names and bars": ('"text"|"l"', "a.csv", "1 vertical bar and no comma"),
    "bars in .tsv": ("text|l", "a.tsv", "a.tsv:1 with 1 vertical bar and no tab"),
    "semicolons in .tsv": ("\ufefft;l", "a.tsv", "a.tsv:1 with 1 semicolon and no tab"),
    "tabs in .csv": ("text\tl", "a.csv", "a.csv:1 with 1 tab and no comma.* .tsv"),
    "commas in .tsv": ("text,l", "a.tsv", "a.tsv:1 with 1 comma and no tab.* .csv"),
    "full-width commas": ("t，l", "a.csv", "1 full-width comma and no comma.*','"),
    "JSON in .csv": ('{"a": 1}\n', "a.csv", "a.csv:1: JSON.* .json"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("content", "name", "words"), NO_TABLES.values(), ids=NO_TABLES
)
def test_files_without_a_table_raise(read, content, name, words):
    with pytest.raises(InputError, match=words):
        read(content, name)


def test_errors_that_reporting_cannot_pass(read, report, tmp_path):
    for content, words in (
        (b"caf\xe9,text\n1,2\n", "a.csv:1, unreadable"),
        ('"x"y,text\n1,2\n', "a.csv:1, unreadable"),
        ("label,text\n1\n", "a.csv with none"),
    ):
        with pytest.raises(InputError, match=words):
            read(content, "a.csv", errors=report)
    with pytest.raises(InputError, match=r"lost\.csv"):
        read_table(str(tmp_path / "lost.csv"), report)


COLUMNS = {  # columns of the table, columns that are needed, words of the error
    "missing": (["a", "b"], ["c", "a", "d"], "without 'c', 'd'; it has 'a', 'b'"),
    "one column": (["everything"], ["text"], "it has 'everything'.*commas between"),
    "a space before": (["text", " label"], ["label"], "did you mean ' label'"),
    "a space after": (["text", "label "], ["label"], "did you mean 'label '"),
    "case": (["text", "Label"], ["label"], "'label' did you mean 'Label'"),
    "letters": (["text", "lable"], ["label"], "'label' did you mean 'lable'"),
    "quotes": (["text", '"label"'], ["label"], "did you mean '\"label\"'"),
    "full-width": (["text", "label，b"], ["label"], "did you mean 'label，b'"),
    "a comma": (["A, the b"], ["A", "the b"], "--text_columns='\"A, the b\"'"),
    "Unicode": (["cafe\u0301"], ["caf\xe9"], r"'caf\\xe9' did you mean 'cafe\\u0301'"),
}  # fmt: skip


@pytest.mark.parametrize(("known", "needed", "words"), COLUMNS.values(), ids=COLUMNS)
def test_missing_columns_are_named_with_similar_ones(known, needed, words):
    rows = [Row(dict.fromkeys(known, "1"), "f.csv", 2)]
    require_columns(rows, known)
    with pytest.raises(InputError, match=words):
        require_columns(rows, needed)
    with pytest.raises(InputError) as caught:
        require_columns(rows, ["stars"])
    assert "did you mean" not in str(caught.value)


def test_keys_within_an_object_are_no_columns():
    row = Row({"review": '{"text": "a"}'}, "f.jsonl", 1, frozenset(["review"]))
    with pytest.raises(InputError, match=r"f\.jsonl without 'review.text'.*json_norm"):
        require_columns([row], ["review.text"])
