import contextlib
import csv
import gzip
import json
import lzma
import os
import time

import numpy as np
import pytest

from electra_tf.errors import InputError
from electra_tf.tasks.tables import (
    Row,
    has_tfds,
    read_table,
    read_tfds,
    require_columns,
)
from electra_tf.text.data_errors import DataErrorLog

LATIN = "café".encode("latin-1")
GOOD_CSV = b'label,text\n1,"a, b"\n0,"say ""yes""\nor no"\n1,c\n'


@pytest.fixture
def read(tmp_path):
    """Write a file and read it; return values, lines, and counts of errors."""

    def of(content, name="a.tsv", on_error="stop", names=None):
        data = content if isinstance(content, bytes) else content.encode()
        (tmp_path / name).write_bytes(data)
        log = DataErrorLog(on_error, tmp_path / "problems.txt", "Data is good")
        rows = read_table(str(tmp_path / name), log, names)
        log.close()
        assert {row.source for row in rows} == {str(tmp_path / name)}
        values = [tuple(row.values.values()) for row in rows]
        return values, [row.line for row in rows], dict(log.counts)

    return of


def test_a_tsv_has_no_quoting(read):
    text = 'label\ttext\n1\t"open\n0\tsay ""x"" , "\n1\t\n'
    values, lines, problems = read(text)
    assert values == [("1", '"open'), ("0", 'say ""x"" , "'), ("1", "")]
    assert (lines, problems) == ([2, 3, 4], {})


def test_a_csv_has_quoting_and_rows_have_first_lines(read):
    values, lines, problems = read(GOOD_CSV, "a.csv")
    assert values == [("1", "a, b"), ("0", 'say "yes"\nor no'), ("1", "c")]
    assert (lines, problems) == ([2, 3, 5], {})


@pytest.mark.parametrize("name", ["a.tsv", "a.csv", "a.jsonl"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_byte_order_marks_and_line_endings_are_removed(read, name, end, mark):
    comma = {"a.tsv": "\t", "a.csv": ","}.get(name)
    lines = [f"label{comma}text", f"1{comma}é", f"0{comma}b"]
    if comma is None:
        lines = ['{"label": "1", "text": "é"}', '{"label": "0", "text": "b"}']
    for last in ("", end):
        values, _, problems = read(mark + end.join(lines) + last, name)
        assert values == [("1", "é"), ("0", "b")]
        assert not problems


def test_columns_are_named_by_the_file_or_by_the_caller(read, tmp_path):
    assert read("a\tb\nc\td\n")[0] == [("c", "d")]
    values, lines, _ = read("a\tb\nc\td\n", names=("x", "y"))
    assert (values, lines) == ([("a", "b"), ("c", "d")], [1, 2])
    log = DataErrorLog("stop", tmp_path / "problems.txt")
    (row, _) = read_table(str(tmp_path / "a.tsv"), log, ("x", "y"))
    assert row.values == {"x": "a", "y": "b"}
    assert str(row) == f"{tmp_path}/a.tsv:1"


@pytest.mark.parametrize(("suffix", "packed"), [("gz", gzip), ("xz", lzma)])
def test_compressed_files(read, suffix, packed):
    plain = read(GOOD_CSV, "a.csv")
    data = packed.compress(GOOD_CSV)
    assert read(data, f"a.csv.{suffix}") == plain
    for broken in (data[:-12], data[:20], b"no archive at all"):
        with pytest.raises(
            InputError, match=rf"a\.csv\.{suffix} must be readable to its"
        ):
            read(broken, f"a.csv.{suffix}")


BAD = {  # content, name, line of the first bad row, its kind, rows that are left
    "encoding": (
        b"label\ttext\n1\ta\n0\t" + LATIN + b"\n1\tb\n", "a.tsv", 3,
        "another encoding than UTF-8", [2, 4],
    ),
    "encoding in a quoted row of two lines": (
        b'label,text\n1,a\n0,"x\n' + LATIN + b'"\n1,b\n', "a.csv", 4,
        "another encoding than UTF-8", [2, 5],
    ),
    "encoding of an object": (
        b'{"a": "x"}\n{"a": "' + LATIN + b'"}\n{"a": "y"}', "a.jsonl", 2,
        "another encoding than UTF-8", [1, 3],
    ),
    "quoting": (
        'label,text\n1,"x\ny"\n0,"a"b"\n1,c\n', "a.csv", 4,
        "broken quoting", [2, 5],
    ),
    "quotes that do not end": (
        'label,text\n1,x\n0,"a\nb\n', "a.csv", 3, "broken quoting", [2],
    ),
    "columns of a tsv": (
        "label\ttext\n1\ta\n0\tb\tc\n1\td\n", "a.tsv", 3,
        "another number of columns", [2, 4],
    ),
    "columns of a csv": (
        "label,text\n1\n0,b\n", "a.csv", 2, "another number of columns", [3],
    ),
    "no JSON": ('{"a": 1}\n{"a": \n\n{"a": 2}', "a.jsonl", 2, "invalid JSON", [1, 4]),
    "no object": ('{"a": 1}\n["a"]\n', "a.ndjson", 2, "invalid JSON", [1]),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_rows_stop_or_are_counted(read, tmp_path, case):
    content, name, line, kind, left = BAD[case]
    with pytest.raises(InputError, match=rf"{name}:{line}: {kind}") as caught:
        read(content, name)
    assert caught.value.required == "Data is good"
    _, lines, problems = read(content, name, "report")
    assert problems == {kind: 1}
    assert lines == left
    report = (tmp_path / "problems.txt").read_text()
    assert report.startswith(f"{tmp_path}/{name}:{line}: {kind}: ")


def test_errors_have_details(read):
    for case, words in {
        "encoding": "byte 0xE9 at character 6",
        "quotes that do not end": "in the row to line 4",
        "columns of a tsv": "3 columns, not 2",
        "no object": "not an object",
    }.items():
        with pytest.raises(InputError, match=words):
            read(*BAD[case][:2])


@pytest.mark.parametrize("on_error", ["stop", "report"])
@pytest.mark.parametrize(
    ("content", "name", "words"),
    [
        ("", "a.csv", "a.csv must contain text"),
        (" \n\r\n", "a.tsv", "a.tsv must contain text"),
        ("label\ttext\n", "a.tsv", "a.tsv with none"),
        ("label,text\n", "a.csv", "a.csv with none"),
        ("label,text\n1\n", "a.csv", "(a.csv with none|1 columns, not 2)"),
        ("x,text,x\n1,2,3\n", "a.csv", "a.csv:1, with several columns 'x'"),
        (
            b"caf\xe9,text\n1,2\n1,2\n",
            "a.csv",
            "(a.csv:1, unread|a.csv:1: another enc)",
        ),
        ('"x"y,text\n1,2\n1,2\n', "a.csv", "(a.csv:1, unread|a.csv:1: broken quoting)"),
        ("a", "a.txt", ".tsv, .csv, .jsonl.*a.txt"),
        ("a", "a.csv.zip", "a.csv.zip"),
    ],
)
def test_files_without_a_table_raise(read, on_error, content, name, words):
    with pytest.raises(InputError, match=words):
        read(content, name, on_error)


def test_missing_file_raises(tmp_path):
    log = DataErrorLog("report", tmp_path / "problems.txt")
    with pytest.raises(InputError, match=r"lost\.csv"):
        read_table(str(tmp_path / "lost.csv"), log)


def test_several_columns_may_have_no_name(read):
    assert read(",text,\n0,a,\n", "a.csv")[0] == [("", "a")]


def test_values_of_json_become_text(read, tmp_path):
    given = {"s": "é", "i": 1, "w": 2.0, "f": 0.5, "b": True, "null": None, "l": ["é"]}
    values, _, _ = read(json.dumps(given), "a.jsonl")
    assert values == [("é", "1", "2", "0.5", "true", '["é"]')]
    log = DataErrorLog("stop", tmp_path / "problems.txt")
    (row,) = read_table(str(tmp_path / "a.jsonl"), log)
    assert set(row.values) == {"s", "i", "w", "f", "b", "l"}


def test_long_fields_are_read_and_the_limit_of_csv_stays(read):
    before = csv.field_size_limit()
    long = "x" * (before + 1)
    assert read(f"a,b\n1,{long}\n", "a.csv")[0] == [("1", long)]
    assert csv.field_size_limit() == before


def test_require_columns_lists_the_existing_columns():
    rows = [Row({"a": "1"}, "f.csv", 2), Row({"a": "1", "b": "2"}, "f.csv", 3)]
    require_columns(rows, ("a", "b"))
    with pytest.raises(InputError, match=r"f\.csv without 'c', 'd'; it has 'a', 'b'"):
        require_columns(rows, ("c", "a", "d"))
    rows = [Row({"everything": "1"}, "f.csv", 2)]
    with pytest.raises(InputError, match=r"it has 'everything'.*commas between"):
        require_columns(rows, ("text",))


@pytest.mark.parametrize(
    ("known", "words"),
    [
        (" label", "'label' did you mean ' label', with a space"),
        ("label ", "'label' did you mean 'label ', with a space"),
        ("Label", "'label' did you mean 'Label'\\?"),
        ("lable", "'label' did you mean 'lable'\\?"),
        ('"label"', "'label' did you mean '\"label\"', with quotes"),
        ("label，review", "'label' did you mean 'label，review', where a full-width"),
    ],
)
def test_require_columns_suggests_similar_names(known, words):
    with pytest.raises(InputError, match=words):
        require_columns([Row({"text": "a", known: "1"}, "f", 2)], ("text", "label"))
    with pytest.raises(InputError) as caught:
        require_columns([Row({"text": "a", known: "1"}, "f", 2)], ("stars",))
    assert "did you mean" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "line", "words"),
    [
        ("a.csv", "id|text|label|x", "a.csv:1 with 3 vertical bars and no comma"),
        ("a.csv", '"text"|"label"', "a.csv:1 with 1 vertical bar and no comma"),
        ("a.tsv", "text;label", "a.tsv:1 with 1 semicolon and no tab"),
        ("a.csv", "text\tlabel", "a.csv:1 with 1 tab and no comma.* .tsv"),
        ("a.tsv", "text,label", "a.tsv:1 with 1 comma and no tab.* .csv"),
        ("a.csv", "label，review", "a.csv:1 with 1 full-width comma .* ','"),
        ("a.tsv", "label；review", "a.tsv:1 with 1 full-width semicolon and no tab"),
        ("a.tsv", "text|label", "a.tsv:1 with 1 vertical bar and no tab"),
    ],
)
def test_other_separators_raise(read, name, line, words):
    with pytest.raises(InputError, match=words):
        read(f"\ufeff{line}\r\na, b;c\td|e\r\n", name)


def test_empty_lines_end_a_tsv_of_several_columns(read):
    assert read("a\tb\n1\t2\n\n\r\n\n")[:2] == ([("1", "2")], [2])
    assert read("a\n1\n\n\n")[0] == [("1",), ("",), ("",)]
    with pytest.raises(InputError, match=r"a\.tsv:2: .*an empty line"):
        read("a\tb\n\n1\t2\n")


def test_nested_values_of_json_are_marked(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"a": "x", "b": [1], "c": {"d": 1}, "e": 1}\n')
    log = DataErrorLog("stop", tmp_path / "problems.txt")
    (row,) = read_table(str(tmp_path / "a.jsonl"), log)
    assert row.nested == {"b", "c"}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Prepare a tiny data set of TFDS with classes, a number and a text."""
    import tensorflow_datasets as tfds

    class TinyTable(tfds.core.GeneratorBasedBuilder):
        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            features = {
                "text": tfds.features.Text(),
                "label": tfds.features.ClassLabel(names=["no", "yes"]),
                "idx": np.int32,
            }
            return self.dataset_info_from_configs(
                features=tfds.features.FeaturesDict(features)
            )

        def _split_generators(self, dl_manager):
            return {"train": self._generate_examples(2)}

        def _generate_examples(self, count):
            for i in range(count):
                yield i, {"text": f"é {i}", "label": i - 1, "idx": i}

    folder = tmp_path_factory.mktemp("tfds")
    TinyTable(data_dir=folder).download_and_prepare()
    return str(folder)


def test_read_tfds(prepared, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", prepared)
    rows = read_tfds("tiny_table", "train")
    assert [(row.line, row.source) for row in rows] == [
        (1, "tfds:tiny_table@train"),
        (2, "tfds:tiny_table@train"),
    ]
    fields = sorted(
        (r.values["idx"], r.values["text"], r.values["label"]) for r in rows
    )
    assert fields == [("0", "é 0", ""), ("1", "é 1", "no")]
    assert has_tfds("tiny_table", "train")
    assert not has_tfds("tiny_table", "test")
    with pytest.raises(InputError, match="'test' of the data set 'tiny_table'"):
        read_tfds("tiny_table", "test")


def test_unprepared_tfds_data_raises(tmp_path, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    for name in ("glue/cola", "no_such_set"):
        with pytest.raises(InputError, match=f"tfds build {name}"):
            read_tfds(name, "train")
        assert not has_tfds(name, "train")


def test_a_header_of_many_columns_is_checked_at_once(read):
    names = [f"c{number}" for number in range(200_000)]
    start = time.process_time()
    (values,), _, _ = read(f"{','.join(names)}\n{',' * 199_999}\n", "a.csv")
    assert time.process_time() - start < 5
    assert values == ("",) * 200_000


@pytest.mark.parametrize("content", [b"\xef\xbb\xbf", b"\xef\xbb\xbf\n", b"\t\n\t"])
def test_a_file_without_text_raises(content, tmp_path):
    path = tmp_path / "a.tsv"
    path.write_bytes(content)
    with pytest.raises(InputError, match="empty file"):
        read_table(str(path), DataErrorLog("stop", ""))


RECORDS = [{"text": "a, b", "label": 1}, {"text": "\u00e9", "label": 2}]


@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a.ndjson", "a.json.gz"])
@pytest.mark.parametrize(
    ("layout", "lines"), [("lines", [1, 2]), ("list", [1, 1]), ("indented", [2, 6])]
)
def test_json_is_lines_or_one_list(read, name, layout, lines):
    text = {
        "lines": "\n".join(map(json.dumps, RECORDS)) + "\n",
        "list": "\ufeff" + json.dumps(RECORDS),
        "indented": json.dumps(RECORDS, indent=1, ensure_ascii=False),
    }[layout]
    content = gzip.compress(text.encode()) if name.endswith("gz") else text
    assert read(content, name)[:2] == ([("a, b", "1"), ("\u00e9", "2")], lines)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[]", "a.json with none"),
        ('[{"a": 1},', "a.json, invalid JSON"),
        ('[{"a": 1}] x', "a.json, invalid JSON"),
        ('{\n "a": [1,\n', "a.json, invalid JSON"),
        ('[1, {"a": 1}]', "a.json:1: invalid JSON: int 1"),
        (b'[\n{"a": "x"},\n{"a": "' + LATIN + b'"}]', "a.json:3: another encoding"),
    ],
)
def test_json_documents_that_are_no_records_raise(read, content, words):
    with pytest.raises(InputError, match=words):
        read(content, "a.json")


def test_a_record_of_a_list_with_a_bad_line_is_dropped(read):
    content = b'[\n{"a": "x"},\n{"a":\n "' + LATIN + b'"},\n{"a": "y"}]'
    values, lines, problems = read(content, "a.json", "report")
    assert (values, lines) == ([("x",), ("y",)], [2, 5])
    assert sum(problems.values()) == 1


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
@pytest.mark.parametrize("first", ["sep=;", '"sep=;"', "sep=|", "sep=\t", "sep=,"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_the_separator_line_of_excel_is_read(read, name, first, mark):
    separator = first.strip('"')[-1]
    lines = [mark + first, f"text{separator}label", f'"a{separator}b"{separator}1']
    for end in ("\n", "\r\n"):
        content = end.join([*lines, f"c{separator}2", ""])
        expected = [(f"a{separator}b", "1"), ("c", "2")], [3, 4]
        assert read(content, name)[:2] == expected
    with pytest.raises(InputError, match=rf"{name}:4: another number of columns"):
        read("\n".join([*lines, "c"]), name)


@pytest.mark.parametrize("header", ["text;label", '"text";"label"', "\ufefftext;label"])
def test_a_csv_may_have_semicolons(read, header):
    values, lines, _ = read(f'{header}\n"a;b";1\nc, d;2\n', "a.csv")
    assert (values, lines) == ([("a;b", "1"), ("c, d", "2")], [2, 3])
    with pytest.raises(InputError, match=r"a\.csv:2: another number of columns"):
        read(f"{header}\na,1\n", "a.csv")


QUOTED = {
    "doubled": ('t\tl\n"say ""x"""\t1\nplain\t2\n', [('say "x"', "1"), ("plain", "2")]),
    "all fields": ('"t"\t"l"\n"a"\t"1"\n"b"\t"2"\n', [("a", "1"), ("b", "2")]),
    "a column": ('t\tl\n"a"\t1\n"b"\t2\n', [("a", "1"), ("b", "2")]),
    "a tab": ('t\tl\n"a\tb"\t1\nc\t2\n', [("a\tb", "1"), ("c", "2")]),
    "a line break": ('t\tl\n"a\nb"\t1\nc\t2\n', [("a\nb", "1"), ("c", "2")]),
}


@pytest.mark.parametrize(("content", "expected"), QUOTED.values(), ids=QUOTED)
def test_a_tsv_with_quotes_around_fields_is_read_without_them(
    tmp_path, content, expected
):
    path, notes = tmp_path / "a.tsv", []
    for text in (content, content.replace("\n", "\r\n").replace("a\r\n", "a\n")):
        path.write_bytes(text.encode())
        log = DataErrorLog("stop", "")
        rows = read_table(str(path), log, notify=notes.append)
        assert [tuple(row.values.values()) for row in rows] == expected
    assert all(f"{path}: " in note for note in notes)
    assert len(notes) == 2


@pytest.mark.parametrize(
    "content",
    [
        't\tl\n"good" film\t1\nbad\t2\n',
        't\tl\n"good film\t1\nbad"\t2\n',
        't\tl\n"good"\t1\nbad\t2\n',
        't\tl\n"good"\t1\n"bad" film\t2\n"say ""x"""\t2\n',
        't\tl\n"\t1\n"\t2\n',
    ],
)
def test_quotes_of_other_files_are_characters(read, content):
    expected = [tuple(line.split("\t")) for line in content.split("\n")[1:-1]]
    assert read(content)[0] == expected


def test_quotes_that_stay_in_most_rows_are_reported(tmp_path):
    path, notes = tmp_path / "a.tsv", []
    path.write_text('t\tl\n"a"\t1\n"b"\t2\n"c"x\t2\n"d"\t2\n')
    read_table(str(path), DataErrorLog("stop", ""), notify=notes.append)
    assert notes[0].startswith(f"warning: {path}: ")
    assert "line 4" in notes[0]
    read_table(str(path), DataErrorLog("stop", ""), notify=None)
    assert len(notes) == 1


def test_the_files_of_glue_have_no_quoting(data):
    for path in sorted(data.glob("glue/**/*.tsv*"))[:20]:
        notes = []
        with contextlib.suppress(InputError):  # files without a header line
            read_table(
                str(path), DataErrorLog("report", os.devnull), None, notes.append
            )
        assert not any("read without" in note for note in notes), path


def test_a_table_of_another_format_has_a_conversion(read):
    for name, words in (("a.xlsx", "read_excel"), ("a.parquet", "read_parquet")):
        with pytest.raises(InputError, match=words):
            read("x", name)


@pytest.mark.parametrize(
    ("known", "names", "words"),
    [
        ("Review, the text", ("Review", "the text"), "='\"Review, the text\"'"),
        ("cafe\u0301", ("caf\xe9",), r"'caf\\xe9' did you mean 'cafe\\u0301'"),
    ],
)
def test_names_with_commas_and_other_unicode_forms_are_suggested(known, names, words):
    with pytest.raises(InputError) as caught:
        require_columns([Row({known: "a"}, "f.csv", 2)], names)
    assert words.replace("\\\\", "\\") in str(caught.value)


def test_keys_within_an_object_are_no_columns():
    row = Row({"review": '{"text": "a"}'}, "f.jsonl", 1, frozenset(["review"]))
    with pytest.raises(InputError, match=r"f\.jsonl without 'review.text'.*json_norm"):
        require_columns([row], ["review.text"])
