"""Any file becomes a table with file and row; invalid rows stop or are counted."""

import gc
import io
import os
import pathlib
import tracemalloc

import pyarrow.parquet
import pytest

from electra_tf.config.data import CorpusConfig
from electra_tf.errors import InputError
from electra_tf.tasks.data.table import Table, read
from electra_tf.text.corpus import CorpusReader
from electra_tf.text.data_errors import DataErrorLog
from electra_tf.text.rows import READERS


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
    "a bad row": ("a.csv", "a,b\n1,2\n3\n", "a.csv:3: .* 1 columns, not 2"),
    "another encoding": ("a.tsv", b"a\n\xe9\n", "a.tsv:2: .*0xE9.*iconv"),
    "layouts of pandas": ("a.json", '{"a":{"0":1}}', "a.json:1: .*orient='records'"),
    "an empty text": ("a.txt", "", "a.txt"),
    "a list in a text": ("a.txt", "[\n1]", "a.txt:1.*.json"),
    "a cut archive": ("a.csv.gz", b"\x1f\x8b\x08", "a.csv.gz"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "content", "words"), NO_TABLES.values(), ids=NO_TABLES
)
def test_files_without_a_table_are_refused(write, name, content, words):
    with pytest.raises(InputError, match=words):
        read(write(name, content))


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


FAR = 2**60
ODD_COLUMNS = {  # type, values, texts
    "nanoseconds": (
        pyarrow.timestamp("ns"), [1, 2], ["1970-01-01 00:00:00.000000001"],
    ),
    "days": (pyarrow.date32(), [18263, 1], ["2020-01-02"]),
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
