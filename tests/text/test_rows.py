"""Rows of each format, with their numbers; bad rows are reported and left out."""

import csv
import gzip
import io
import json
import lzma

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from electra_tf.text.files import decompressed
from electra_tf.text.lines import MAX_ROW_SIZE, OpenFile
from electra_tf.text.rows import read_rows

CSV = 'label,text\n1,"a, b"\n0,"say ""yes""\nor no"\n1,c\n'
CSV_VALUES = [("1", "a, b"), ("0", 'say "yes"\nor no'), ("1", "c")]
RECORDS = [{"text": "a, b", "label": 1}, {"text": "é", "label": None}]
JSON_VALUES = [("a, b", 1), ("é", None)]


@pytest.fixture(scope="module")
def read(tmp_path_factory):
    """Return a function that reads a file: rows, their numbers, and bad ones."""
    folder = tmp_path_factory.mktemp("rows")

    def of(content, name):
        content = content.encode() if isinstance(content, str) else content
        pack = {".gz": gzip.compress, ".xz": lzma.compress}
        path, rows, numbers, bad = folder / name, [], [], []
        path.write_bytes(pack.get(path.suffix, bytes)(content))

        def report(number, kind, detail, remedy=""):
            bad.append((number, kind))

        with open(path, "rb") as stored:
            file = decompressed(str(path), stored)
            for batch, columns in read_rows(OpenFile(str(path), file, report)):
                numbers += batch
                rows += zip(*columns.values(), strict=True)
        return rows, numbers, bad

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
    "objects over several lines": (
        '{\n"a": 1\n}\n{\n"a": 2}{"a":3}', "a.json", [(1,), (2,), (3,)], [1, 4, 5],
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
def test_rows_of_a_file(read, content, name, rows, numbers):
    assert read(content, name) == (rows, numbers, [])


@pytest.mark.parametrize("name", ["a.tsv", "a.csv", "a.jsonl", "a.txt"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_byte_order_marks_and_line_endings_are_removed(read, name, end, mark):
    comma = {"a.tsv": "\t", "a.csv": ","}.get(name)
    lines = [f"label{comma}text", f"1{comma}é", f"0{comma}b"]
    if comma is None:
        lines = ['{"label": "1", "text": "é"}', '{"label": "0", "text": "b"}']
    for last in ("", end):
        rows, _, bad = read(mark + end.join(lines) + last, name)
        assert (rows, bad) == ([("1", "é"), ("0", "b")], [])


UTF8, QUOTES, JSON = "invalid UTF-8", "broken quoting", "invalid JSON"
WIDTH = "another number of columns"
BAD = {  # content, name, valid rows, number and kind of the bad one
    "encoding": (
        b"l\tt\n1\ta\n0\t\xe9\n1\tb\n", "a.tsv", [("1", "a"), ("1", "b")], 3, UTF8,
    ),
    "encoding in the second line of a row": (
        b'l,t\n1,a\n0,"x\n\xe9"\n1,b\n', "a.csv", [("1", "a"), ("1", "b")], 3, UTF8,
    ),
    "encoding of an object": (
        b'{"a": "x"}\n{"a": "y\xe9"}\n', "a.jsonl", [("x",), ("y",)], 2, UTF8,
    ),
    "encoding of an item of a list": (
        b'[\n{"a": "x"},\n{"a":\n "\xe9y"}]', "a.json", [("x",), ("y",)], 3, UTF8,
    ),
    "quoting": (
        'l,t\n1,"x\ny"\n0,"a"b"\n1,c\n', "a.csv", [("1", "x\ny"), ("1", "c")], 3,
        QUOTES,
    ),
    "quotes that do not end": ('l,t\n1,x\n0,"a\n', "a.csv", [("1", "x")], 3, QUOTES),
    "columns of a .tsv": (
        "l\tt\n1\ta\n0\tb\tc\n1\td\n", "a.tsv", [("1", "a"), ("1", "d")], 3, WIDTH,
    ),
    "columns of a .csv": ("l,t\n1\n0,b\n", "a.csv", [("0", "b")], 2, WIDTH),
    "commas beside semicolons": ("t;l\nb;1\na,1\n", "a.csv", [("b", "1")], 3, WIDTH),
    "no JSON": ('{"a": 1}\n{"a": \n\n{"a": 2}', "a.jsonl", [(1,), (2,)], 2, JSON),
    "a cut string": ('{"a": 1}\n{"a": "cut\n', "a.jsonl", [(1,)], 2, JSON),
    "no object": ('{"a": 1}\n["a"]\n', "a.ndjson", [(1,)], 2, JSON),
    "an item of a list": ('[1,\n{"a": 1}]', "a.json", [(1,)], 1, JSON),
    "a list without end": ('[{"a": 1}\n', "a.json", [(1,)], 2, JSON),
    "text after a list": ('[{"a": 1}\n] x', "a.json", [(1,)], 2, JSON),
    "a cut object": ('{\n "a": [1,\n', "a.json", [], 1, JSON),
    "brackets": ("[" * 200_000, "a.jsonl", [], 1, JSON),
    "an object on a line": ('a\n{"a": \n', "a.txt", [("a",), ('{"a": ',)], 2, JSON),
    **{
        f"a table by {layout}": (content, "a.json", [], 1, "a table by columns")
        for layout, content in {  # of pandas's to_json
            "columns": '{"text":{"0":"a","1":"b"},"label":{"0":1,"1":0}}',
            "index": '{"0":{"text":"a","label":1},"1":{"text":"b","label":0}}',
            "split": '{"columns":["text"],"index":[0,1],"data":[["a"],["b"]]}',
            "table": '{"schema":{"fields":[]},"data":[{"text":"a"}]}',
        }.items()
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("content", "name", "rows", "number", "kind"), BAD.values(), ids=BAD
)
def test_bad_rows_are_reported_and_left_out(read, content, name, rows, number, kind):
    found, _, bad = read(content, name)
    assert (found, bad) == (rows, [(number, kind)])


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv"])
def test_rows_have_a_limit(read, name):
    before, after = {"a.csv": ("text\na", "b")}.get(
        name, ('{"text": "a"}', '{"text": "b"}')
    )
    long = '{"text": "' + "x" * 2 * MAX_ROW_SIZE + '"}'
    rows, numbers, bad = read("\n".join([before, long, after]), name)
    place = 2 + before.count("\n")
    assert (rows, numbers) == ([("a",), ("b",)], [place - 1, place + 1])
    assert bad == [(place, "long line")]


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv"])
def test_long_rows_are_not_held_in_memory_together(tmp_path, name):
    text, path = "x" * 2**21, tmp_path / name
    rows = {"a.csv": ["text", *[text] * 3], "a.jsonl": [f'{{"text": "{text}"}}'] * 3}
    path.write_text("\n".join(rows[name]))
    with open(path, "rb") as file:
        batches = list(read_rows(OpenFile(str(path), file, pytest.fail)))
    assert [len(numbers) for numbers, _ in batches] == [1, 1, 1]


FIELDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


@settings(deadline=None)
@given(
    st.integers(1, 3).flatmap(
        lambda n: st.lists(st.lists(FIELDS, min_size=n, max_size=n), min_size=1)
    ),
    st.sampled_from(",;"),
)
def test_what_csv_writes_is_read(read, rows, separator):
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=separator, quoting=csv.QUOTE_ALL)
    writer.writerows([[f"name {n}" for n in range(len(rows[0]))], *rows])
    found, numbers, bad = read(text.getvalue(), "law.csv")
    assert (found, bad) == ([*map(tuple, rows)], [])
    assert numbers == list(range(2, len(rows) + 2))
