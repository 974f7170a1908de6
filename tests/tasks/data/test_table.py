"""Any file becomes a table with file and row; invalid rows stop or are counted."""

import contextlib
import csv
import datetime
import gc
import io
import json
import os
import pathlib
import tracemalloc

import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from electra_tf.config.data import CorpusConfig
from electra_tf.errors import InputError
from electra_tf.tasks.data.table import Table, read
from electra_tf.text.corpus import CorpusReader
from electra_tf.text.data_errors import DataErrorLog
from electra_tf.text.rows import READERS

LATIN = "café".encode("latin-1")
CSV = 'label,text\n1,"a, b"\n0,"say ""yes""\nor no"\n1,c\n'
CSV_VALUES = [("1", "a, b"), ("0", 'say "yes"\nor no'), ("1", "c")]
RECORDS = [{"text": "a, b", "label": 1}, {"text": "é", "label": None}]
JSON_VALUES = [("a, b", 1), ("é", None)]


@pytest.fixture
def rows_of(write):
    """Write a file and read it; return its rows and their numbers."""

    def of(content, name="a.tsv"):
        path = write(name, content)
        table = read(path)
        assert table.source == path
        assert {len(values) for values in table.columns.values()} == {len(table)}
        return list(zip(*table.columns.values(), strict=True)), list(table.lines)

    return of


GOOD = {  # content, name, rows, numbers
    "no quoting in .tsv": (
        'label\ttext\n1\t"open\n0\tsay ""x"" , "\n1\t\n', "a.tsv",
        [("1", '"open'), ("0", 'say ""x"" , "'), ("1", "")], [2, 3, 4],
    ),
    "quotes around texts in .tsv": (
        't\tl\n"good" film\t1\n"good"\t2\n"good film\t1\nbad"\t"2"\n', "a.tsv",
        [('"good" film', "1"), ('"good"', "2"), ('"good film', "1"), ('bad"', '"2"')],
        [2, 3, 4, 5],
    ),
    "a doubled quote beside a single one, and equal names": (
        't\tx\tx\n"say ""x"""\t1\t2\n"good" film\t3\t4\n', "a.tsv",
        [('"say ""x"""', "1", "2"), ('"good" film', "3", "4")], [2, 3],
    ),
    "quoting in .csv": (CSV, "a.csv", CSV_VALUES, [2, 3, 4]),
    "gzip": (CSV, "a.csv.gz", CSV_VALUES, [2, 3, 4]),
    "xz": (CSV, "a.csv.xz", CSV_VALUES, [2, 3, 4]),
    "empty lines in .csv": (
        "a,b\n\n1,2\r\n\r\n3,\n\n", "a.csv", [("1", "2"), ("3", "")], [3, 5],
    ),
    "quotes within a field of .csv": (
        'a,b\n5" disk,1\n', "a.csv", [('5" disk', "1")], [2],
    ),
    "empty lines in .tsv": ("a\tb\n\n1\t2\n\n\r\n\n", "a.tsv", [("1", "2")], [3]),
    "empty texts": ("a\n1\n\n\n", "a.tsv", [("1",), ("",), ("",)], [2, 3, 4]),
    "semicolons": (
        'text;label\n"a;b";1\nc, d;2\n', "a.csv", [("a;b", "1"), ("c, d", "2")], [2, 3],
    ),
    "semicolons beside a comma in quotes": (
        '"Review, full";label\n"a, b";1\n', "a.csv", [("a, b", "1")], [2],
    ),
    "commas beside semicolons in quotes": (
        'label,"a; b; c","d "";"" e"\n1,2,3\n', "a.csv", [("1", "2", "3")], [2],
    ),
    "tabs in .csv": (
        'text\t"label"\n"a, b\tc"\t1\n', "a.csv", [("a, b\tc", "1")], [2],
    ),
    "one column": ('"Review, full"\n"a, b"\n', "a.csv", [("a, b",)], [2]),
    "a column without a name": (",text\n0,a\n", "a.csv", [("0", "a")], [2]),
    "JSON lines": (
        "\n\n".join(map(json.dumps, RECORDS)), "a.json", JSON_VALUES, [1, 3],
    ),
    "a list": (json.dumps(RECORDS), "a.jsonl", JSON_VALUES, [1, 1]),
    "an indented list": (
        "\n" + json.dumps(RECORDS, indent=1), "a.json.gz", JSON_VALUES, [3, 7],
    ),
    "an indented object": (
        json.dumps({"a": {"b": [1, 2]}, "c": 1}, indent=2), "a.json",
        [({"b": [1, 2]}, 1)], [1],
    ),
    "an object": (json.dumps(RECORDS[0]), "a.ndjson", JSON_VALUES[:1], [1]),
    "strings of JSON": ('["a", "b"]', "a.json", [("a",), ("b",)], [1, 1]),
    "keys that differ": (
        '{"a": 1}\n{"b": "x"}\n{"a": [2], "b": {}}', "a.jsonl",
        [(1, None), (None, "x"), ([2], {})], [1, 2, 3],
    ),
    "lines": ("a\n\n{b\n", "a.txt", [("a",), ("",), ("{b",)], [1, 2, 3]),
    "objects on lines": (
        'a\n{"text": "b", "id": 1}\n', "noted", [("a", None), ("b", 1)], [1, 2],
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("content", "name", "rows", "numbers"), GOOD.values(), ids=GOOD
)
def test_rows_of_a_file(rows_of, content, name, rows, numbers):
    assert rows_of(content, name) == (rows, numbers)


@pytest.mark.parametrize("name", ["a.tsv", "a.csv", "a.jsonl", "a.txt"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_byte_order_marks_and_line_endings_are_removed(rows_of, name, end, mark):
    comma = {"a.tsv": "\t", "a.csv": ","}.get(name)
    lines = [f"label{comma}text", f"1{comma}é", f"0{comma}b"]
    if comma is None:
        lines = ['{"label": "1", "text": "é"}', '{"label": "0", "text": "b"}']
    for last in ("", end):
        rows, _ = rows_of(mark + end.join(lines) + last, name)
        assert rows == [("1", "é"), ("0", "b")]


def test_a_table_gives_places_parts_and_texts():
    values = ["a", None, 1, 1.0, 0.5, True, ["é", 2.0], {"b": None}]
    table = Table(
        {"x": values, "n": list(range(8))}, [2, 3, 5, 6, 7, 8, 9, 10], "f.csv"
    )
    assert len(table) == 8
    assert table.place(2) == "f.csv:5"
    texts = ["a", "", "1", "1", "0.5", "True", '["é", 2.0]', '{"b": null}']
    assert table.texts("x") == texts
    part = table.take([4, 0])
    assert part.columns == {"x": [0.5, "a"], "n": [4, 0]}
    assert (list(part.lines), part.place(1)) == ([7, 2], "f.csv:2")


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_columns_must_exist(write, name):
    content = {"a.csv": "a,b,c\n1,2,3\n", "a.jsonl": '{"a": "1", "b": "2", "c": "3"}'}
    table = read(write(name, content[name]))
    table.require(["c", "a"])
    with pytest.raises(InputError, match=f"{name} .*'x', 'y', .*'a', 'b', 'c'"):
        table.require(["a", "x", "y"])


def test_the_caller_may_name_the_columns(write):
    table = read(write("a.tsv", "a\tb\nc\td\n"), names=("x", "y"))
    assert table.columns["y"] == ["b", "d"]
    assert list(table.lines) == [1, 2]


BAD = {  # content, name, words of the error
    "encoding": (
        b"label\ttext\n1\ta\n0\t" + LATIN + b"\n1\tb\n", "a.tsv",
        r"a.tsv:3: .*0xE9.*iconv",
    ),
    "encoding in the second line of a row": (
        b'label,text\n1,a\n0,"x\n' + LATIN + b'"\n1,b\n', "a.csv", "a.csv:3",
    ),
    "encoding of an object": (
        b'{"a": "x"}\n{"a": "' + LATIN + b'"}\n{"a": "y"}', "a.jsonl",
        "a.jsonl:2",
    ),
    "encoding of an item of a list": (
        b'[\n{"a": "x"},\n{"a":\n "' + LATIN + b'"},\n{"a": "y"}]', "a.json",
        "a.json:3",
    ),
    "encoding of a line": (b"a\n" + LATIN + b"\nb", "a.txt", "a.txt:2"),
    "quoting": (
        'label,text\n1,"x\ny"\n0,"a"b"\n1,c\n', "a.csv",
        "a.csv:3: broken quoting",
    ),
    "quotes that do not end": (
        'label,text\n1,x\n0,"a\nb\n', "a.csv", "a.csv:3: broken quoting",
    ),
    "columns of a .tsv": (
        "label\ttext\n1\ta\n0\tb\tc\n1\td\n", "a.tsv",
        "a.tsv:3: .* 3 columns, not 2",
    ),
    "columns of a .csv": ("label,text\n1\n0,b\n", "a.csv", "a.csv:2"),
    "commas in a table of semicolons": ("text;label\nb;1\na,1\n", "a.csv", "a.csv:3"),
    "no JSON": ('{"a": 1}\n{"a": \n\n{"a": 2}', "a.jsonl", "a.jsonl:2"),
    "no object": ('{"a": 1}\n["a"]\n', "a.ndjson", "a.ndjson:2"),
    "an item of a list": ('[1,\n{"a": 1}]', "a.json", "a.json:1"),
    "an object on a line": ('a\n{"a": \nb', "a.txt", "a.txt:2"),
}  # fmt: skip


@pytest.mark.parametrize(("content", "name", "words"), BAD.values(), ids=BAD)
def test_invalid_rows_are_errors(rows_of, content, name, words):
    with pytest.raises(InputError, match=words):
        rows_of(content, name)


BY_COLUMNS = {  # layouts of pandas's to_json
    "columns": '{"text":{"0":"a","1":"b"},"label":{"0":1,"1":0}}',
    "index": '{"0":{"text":"a","label":1},"1":{"text":"b","label":0}}',
    "split": '{"columns":["text"],"index":[0,1],"data":[["a"],["b"]]}',
    "table": '{"schema":{"fields":[]},"data":[{"text":"a"}]}',
}


@pytest.mark.parametrize("layout", BY_COLUMNS)
def test_json_by_columns_is_an_error_with_its_remedy(rows_of, write, layout):
    content = BY_COLUMNS[layout]
    with pytest.raises(InputError, match=r"a\.json:1: .*orient='records'"):
        rows_of(content, "a.json")
    reader = CorpusReader(
        [write("b.json", content)], CorpusConfig(), DataErrorLog("stop")
    )
    with pytest.raises(InputError, match=r"b\.json:1: .*orient='records'"):
        list(reader)


NO_TABLES = {  # name and content, and words of the error
    "empty": ("a.csv", "", "a.csv"),
    "spaces": ("a.tsv", " \n\r\n", "a.tsv"),
    "a header alone": ("a.tsv", "label\ttext\n", "a.tsv must have one or more"),
    "a header of other bytes": ("a.csv", b"caf\xe9,text\n1,2\n", "a.csv:1"),
    "a header of broken quotes": ("a.csv", '"x"y,text\n1,2\n', "a.csv:1"),
    "quotes doubled in a .tsv": ("a.tsv", 't\tl\n"say ""x"""\t1\n', "a.tsv.*as .csv"),
    "an archive": ("a.csv.zip", b"PK\x03\x04", "a.csv.zip"),
    "a spreadsheet": ("a.xlsx", "x", "read_excel"),
    "no records": ("a.json", "[]", "a.json must have one"),
    "text after a list": ("a.json", '[{"a": 1}] x', "a.json"),
    "a cut object": ("a.json", '{\n "a": [1,\n', "a.json"),
    "an empty text": ("a.txt", "", "a.txt"),
    "a list in a text": ("a.txt", "[\n1]", "a.txt:1.*.json"),
    "a cut archive": ("a.csv.gz", b"\x1f\x8b\x08", "a.csv.gz"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "content", "words"), NO_TABLES.values(), ids=NO_TABLES
)
def test_files_without_a_table_are_refused(rows_of, name, content, words):
    with pytest.raises(InputError, match=words):
        rows_of(content, name)


def test_a_lost_file_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"lost\.csv"):
        read(str(tmp_path / "lost.csv"))


def test_standard_input_is_lines(monkeypatch):
    def given_input(content):
        file = io.BufferedReader(io.BytesIO(content))
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(file))

    given_input('\ufeffé\n{"text": "b"}\n'.encode())
    table = read(None)
    assert dict(table.columns) == {"text": ["é", "b"]}
    assert table.place(1) == "standard input:2"
    for content, words in (
        (b"\xff\xfea\0", "UTF-16"), (b"a\n\xe9\n", "standard input:2"), (b"[\n", ":1"),
    ):  # fmt: skip
        given_input(content)
        with pytest.raises(InputError, match=words):
            read(None)
    notes = []
    given_input(b"")
    assert len(read(None, notify=notes.append)) == 0
    assert len(notes) == 1


FIELDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


@settings(deadline=None)
@given(
    st.integers(1, 3).flatmap(
        lambda n: st.lists(st.lists(FIELDS, min_size=n, max_size=n), min_size=1)
    ),
    st.sampled_from(",;"),
)
def test_what_csv_writes_is_read(tmp_path_factory, rows, separator):
    path = tmp_path_factory.getbasetemp() / "law.csv"
    names = [f"name {n}" for n in range(len(rows[0]))]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter=separator, quoting=csv.QUOTE_ALL)
        writer.writerows([names, *rows])
    table = read(str(path))
    assert list(table.columns) == names
    assert list(zip(*table.columns.values(), strict=True)) == [*map(tuple, rows)]
    assert list(table.lines) == list(range(2, len(rows) + 2))


LINES = st.text(st.sampled_from('ab,;"\t\n\r é')) | st.just("1,2\n") | st.just("1\t2\n")


@settings(deadline=None)
@given(
    st.sampled_from(["text,label\n", "text;label\n", "text\tlabel\n", "text\n", ""]),
    st.lists(LINES, max_size=8).map("".join),
    st.sampled_from([".csv", ".tsv"]),
    st.binary(max_size=1),
)
def test_tables_of_tasks_and_of_corpora_are_read_alike(
    tmp_path_factory, header, lines, suffix, end
):
    path = tmp_path_factory.getbasetemp() / f"alike{suffix}"
    path.write_bytes((header + lines).encode() + end)
    log = DataErrorLog("report", os.devnull, prints=False)
    documents, texts, error = None, None, ""
    with contextlib.suppress(InputError):
        reader = CorpusReader([str(path)], CorpusConfig(), log)
        documents = [(document.line, document.lines) for document in reader]
    try:
        table = read(str(path))
        table.require(["text"])
        rows = zip(table.lines, table.columns["text"], strict=True)
        texts = [
            (number, [line.strip() for line in text.split("\n") if line.strip()])
            for number, text in rows
            if text.strip()
        ]
    except InputError as caught:
        error = str(caught)
    kinds = ("invalid UTF-8", "broken quoting", "another number of columns")
    if found := [kind for kind in kinds if log.counts[kind]]:
        assert any(kind in error for kind in found)
    else:
        assert (texts or []) == (documents or [])


def test_rows_take_little_memory(write):
    text = "words of a text of usual length"
    lines = [f"{n} {text},label {n % 9}" for n in range(20_000)]
    path = write("a.csv", "\n".join(["text,label", *lines]))
    size = os.path.getsize(path)
    tracemalloc.start()
    table = read(path)
    left, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert left < 3 * size
    assert peak < 9 * size  # a batch of rows beside the columns
    assert table.columns["label"][1] is table.columns["label"][10]
    assert gc.isenabled()


def test_published_cases(data):
    def first(name, column):
        (path,) = data.glob(f"cases/{name}")
        table = read(str(path))
        table.require([column])
        return table.columns[column][0]

    if not pathlib.Path(data, "cases").exists():
        pytest.skip("no cases")
    assert first("17_*/pl.json", "text") == "good soup"
    assert first("17_*/pp.json", "text") == "good soup"
    assert first("23_*/table.csv", "labels") == "['fear']"
    assert first("08_*/semi_bom.csv", "label") == "bad"
    for name in ("08_*/cp1252.csv", "08_*/sep_line.csv", "09_*/quoted.tsv"):
        with pytest.raises(InputError):
            first(name, "text")


def test_a_format_is_a_reader_of_a_suffix(write, monkeypatch):
    def read_pairs(source):
        pairs = source.file.read().decode().split()
        names, values = zip(*(pair.split("=") for pair in pairs), strict=True)
        yield [1], {name: [value] for name, value in zip(names, values, strict=True)}

    monkeypatch.setitem(READERS, ".pairs", read_pairs)
    path = write("a.pairs", "text=1 b=2")
    assert dict(read(path).columns) == {"text": ["1"], "b": ["2"]}
    reader = CorpusReader([path], CorpusConfig(), DataErrorLog("stop"))
    assert [document.lines for document in reader] == [["1"]]


# Parquet.


@pytest.fixture
def parquet(tmp_path):
    """Return the path of a Parquet file with columns of several types."""
    path = tmp_path / "a.parquet"
    rows = [
        {"text": "é", "n": 1, "x": 2.0, "words": ["a", "b"], "o": {"k": [1]}},
        {"text": None, "n": None, "x": 0.5, "words": [], "o": None},
    ] * 6000
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    return path


def test_columns_of_parquet_have_their_types(parquet):
    table = read(str(parquet))
    assert list(table.columns) == ["text", "n", "x", "words", "o"]
    first, second = [[v[i] for v in table.columns.values()] for i in (0, 11_999)]
    assert first == ["é", 1, 2.0, ["a", "b"], {"k": [1]}]
    assert second == [None, None, 0.5, [], None]
    assert table.texts("n")[:2] == ["1", ""]
    assert table.place(11_999) == f"{parquet}:12000"


def test_broken_parquet_is_an_error(parquet, write):
    with pytest.raises(InputError, match=r"b\.parquet"):
        read(write("b.parquet", b"no table" * 9))
    with pytest.raises(InputError, match=r"lost\.parquet"):
        read(str(parquet.with_name("lost.parquet")))


def test_values_that_json_has_not_are_texts(tmp_path):
    path = tmp_path / "a.parquet"
    columns = {"day": [datetime.date(2020, 1, 2)], "raw": ["é".encode()]}
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    table = read(str(path))
    assert (table.texts("day"), table.texts("raw")) == (["2020-01-02"], ["é"])


FAR = 2**60
ODD_COLUMNS = {  # type, values, texts
    "nanoseconds": (
        pyarrow.timestamp("ns"), [1, 2], ["1970-01-01 00:00:00.000000001"],
    ),
    "a far year": (pyarrow.timestamp("ms"), [2000, FAR], ["1970-01-01 00:00:02.000"]),
    "an unknown zone": (
        pyarrow.timestamp("s", "Not/Zone"), [1, 2], ["1970-01-01 00:00:01.000"],
    ),
    "a long duration": (pyarrow.duration("s"), [7, FAR], ["7"]),
    "binary": (pyarrow.binary(), ["é".encode(), b"a"], ["é"]),
    "lists of binary": (
        pyarrow.list_(pyarrow.binary()), [["é".encode()], [b"a"]], ['["é"]'],
    ),
    "bytes": (pyarrow.large_binary(), [b"\xff", b"a"], ["\\xff"]),
}  # fmt: skip


@pytest.mark.parametrize("case", ODD_COLUMNS)
def test_parquet_of_other_types_is_read(tmp_path, case):
    kind, values, texts = ODD_COLUMNS[case]
    odd, path = pyarrow.array(values, kind), tmp_path / "a.parquet"
    names = ["text", "odd", "x", "x"]
    columns = [pyarrow.array(["a", "b"], pyarrow.binary()), odd, odd, odd]
    pyarrow.parquet.write_table(pyarrow.Table.from_arrays(columns, names), path)
    table = read(str(path))
    assert list(table.columns) == ["text", "odd", "x (column 3)", "x (column 4)"]
    assert table.texts("text") == ["a", "b"]
    assert table.texts("odd")[:1] == texts
    assert table.texts("x (column 4)")[:1] == texts
