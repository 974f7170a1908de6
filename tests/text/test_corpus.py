import csv
import gzip
import io
import json
import lzma

import pyarrow
import pytest
from pyarrow import parquet

from electra_tf.config.data import CorpusConfig
from electra_tf.errors import InputError
from electra_tf.text import corpus
from electra_tf.text.corpus import CorpusReader
from electra_tf.text.data_errors import DataErrorLog
from electra_tf.text.rows import json_values
from tests.process_memory import PeakMemory

TEXT = "first line\n  second \n\n\nnew document\r\n\n"


def read(tmp_path, *patterns, **settings):
    """Return documents as (file name, line, lines), error counts and the error file."""
    path = tmp_path / "problems.log"
    log = DataErrorLog(settings.get("on_error", "stop"), path)
    reader = CorpusReader(map(str, patterns), CorpusConfig(**settings), log)
    documents = [(d.source.rsplit("/")[-1], d.line, d.lines) for d in reader]
    log.close()
    assert reader.position_bytes == reader.total_bytes
    return documents, dict(log.counts), path.read_text() if path.exists() else ""


@pytest.mark.parametrize(
    ("documents", "expected"),
    [
        ("blank_line", [(1, ["first line", "second"]), (5, ["new document"])]),
        ("file", [(1, ["first line", "second", "new document"])]),
        ("line", [(1, ["first line"]), (2, ["second"]), (5, ["new document"])]),
    ],
)
def test_documents_end_as_the_setting_requires(tmp_path, documents, expected):
    (tmp_path / "a.txt").write_text(TEXT)
    (tmp_path / "b.txt").write_text("last")
    found, counts, _ = read(tmp_path, tmp_path / "*.txt", documents=documents)
    assert found == [*(("a.txt", *rest) for rest in expected), ("b.txt", 1, ["last"])]
    assert counts == {}


def test_rows_of_jsonl_and_parquet_are_documents(tmp_path):
    texts = ["one\n\ntwo", "3\u2028three", "中"]
    rows = [json.dumps({"id": i, "body": t}) for i, t in enumerate(texts)]
    (tmp_path / "a.jsonl").write_text("\n".join([rows[0], "", *rows[1:]]))
    for name, kind in (("b", pyarrow.string()), ("c", pyarrow.binary())):
        table = pyarrow.table({"body": pyarrow.array(texts).cast(kind)})
        parquet.write_table(table, tmp_path / f"{name}.parquet")
    documents, _, _ = read(tmp_path, tmp_path / "[abc].*", field="body")
    lines = [["one", "two"], ["3\u2028three"], ["中"]]
    assert [d[2] for d in documents] == lines * 3
    assert [d[1] for d in documents] == [1, 3, 4, 1, 2, 3, 1, 2, 3]
    with pytest.raises(InputError, match=r"b\.parquet.*'text'.* body"):
        read(tmp_path, tmp_path / "b.parquet")


ROWS = [["one", "two"], ['say "a, b"'], ["中\t;"]]
JSON_LINES = '{"text": "one\\ntwo"}\n{"text": "say \\"a, b\\""}\n{"text":"中\t;"}'
TABLES = {
    "a.csv": 'id,text\n1,"one\n\ntwo"\n\n2,"say ""a, b"""\n3,中\t;\n',
    "e.json": json.dumps(
        [{"id": 1, "text": "one\n\ntwo"}, {"text": 'say "a, b"'}, {"text": "中\t;"}]
    ),
    "wiki_00": JSON_LINES,
    "i.txt": "[\n  " + JSON_LINES.replace("\n", ",\n ") + " ]\n",
}


@pytest.mark.parametrize("name", TABLES)
def test_rows_of_tables_and_json_are_documents(tmp_path, name):
    path = tmp_path / f"{name}.xz"
    path.write_bytes(lzma.compress(TABLES[name].encode()))
    documents, _, _ = read(tmp_path, path)
    assert [d[2] for d in documents] == ROWS
    lines = {
        "a.csv": [2, 4, 5],
        "e.json": [1, 1, 1],
        "i.txt": [2, 3, 4],
    }
    assert [d[1] for d in documents] == lines.get(name, [1, 2, 3])


REFUSED = {  # content, and what the error names
    "doubled.tsv": (
        'text\tid\na\t1\n"He said ""no"" today"\t2\n',
        r"doubled\.tsv .*\.csv",
    ),
    "quoted.tsv": ('"text"\t"id"\na\t1\n', "'text'.*\"text\""),
    "sep.csv": ('"sep=;"\r\ntext;id\r\na;1\r\n', "'text'.*sep="),
    "return.csv": ("id,te\rxt\n1,a\n", ":1 "),
    "bars.csv": ("id|text\n1|a\n", r"csv must have the field 'text'.*id\|text"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_tables_of_another_layout_are_refused(tmp_path, name):
    content, words = REFUSED[name]
    (tmp_path / name).write_bytes(content.encode())
    for on_error in ("stop", "report"):
        with pytest.raises(InputError, match=words):
            read(tmp_path, tmp_path / name, on_error=on_error)


def test_a_table_without_the_field_is_an_error_with_its_columns(tmp_path):
    name = "a.csv"
    (tmp_path / name).write_text(TABLES[name].replace("text", "body"))
    with pytest.raises(InputError, match=rf"{name}.*'text'.*body.*--field"):
        read(tmp_path, tmp_path / name)
    documents, _, _ = read(tmp_path, tmp_path / name, field="body")
    assert [d[2] for d in documents] == ROWS


# Content by name of a file, counts of errors, the line of the first, and documents.
DAMAGED = {
    "utf8.txt": (
        b"good\n\nol\xe9 caf\xe9\n", {"invalid UTF-8": 1}, 3, [["good"], ["ol caf"]]
    ),
    "nul.txt": (b"good\na \0 in it\n", {"NUL": 1}, 2, [["good", "a \0 in it"]]),
    "empty.txt": (b"", {"empty file": 1}, 0, []),
    "long.txt": (b"a\n" + b" " * 2_500_000 + b"\nb", {"long line": 1}, 2, [["a", "b"]]),
    "binary.txt": (bytes(range(256)) * 40, {"binary file": 1}, 0, []),
    "fake.gz": (b"no archive", {"broken archive": 1}, 0, []),
    "UPPER.TXT.GZ": (gzip.compress(b"text"), {}, 0, [["text"]]),
    "bom.jsonl": ('\ufeff{"text": "a"}'.encode(), {}, 0, [["a"]]),
    "nul.jsonl": (
        b'{"text": "a\0b"}\n{"text": "c\\u0000"}', {"NUL": 2}, 1, [["a\0b"], ["c\0"]]
    ),
    "other.jsonl": (
        b'{"text": "a"}\n{"txet": "b"}\n', {"row without text": 1}, 2, [["a"]]
    ),
    "no.parquet": (b"this is no table" * 9, {"broken Parquet": 1}, 0, []),
    "no.csv": (b"text,id\na,1\n,2\nc,3\n", {"row without text": 1}, 3, [["a"], ["c"]]),
    "id.json": (
        b'[{"text": "a"},\n{"id": 1}, {"text": "c"}]', {"row without text": 1}, 2,
        [["a"], ["c"]],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_stops_the_run_with_file_and_line_or_is_listed(tmp_path, name, capsys):
    content, counts, line, texts = DAMAGED[name]
    path = tmp_path / name
    path.write_bytes(content)
    (tmp_path / "zz.txt").write_text("still read")
    documents, errors, log = read(
        tmp_path, path, tmp_path / "zz.txt", on_error="report"
    )
    assert errors == counts
    assert [d[2] for d in documents] == [*texts, ["still read"]]
    assert len(log.splitlines()) == sum(counts.values())
    if counts:
        place = f"{path}:{line}" if line else f"{path}"
        words = f"{place}: {next(iter(counts))}"
        assert log.startswith(words)
        assert f"problem: {words}" in capsys.readouterr().err
        with pytest.raises(InputError, match=f"{words}.*--on_error=report"):
            read(tmp_path, path)


def test_text_before_the_end_of_a_broken_archive_is_read(tmp_path):
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(b"good line\n" * 9999)[:-20])
    documents, errors, _ = read(tmp_path, path, on_error="report")
    assert errors == {"broken archive": 1}
    assert documents[0][2][0] == "good line"
    with pytest.raises(InputError, match="broken archive"):
        read(tmp_path, path)


def test_long_fields_of_tables_are_read_and_the_limit_of_csv_stays(tmp_path):
    before = csv.field_size_limit()
    long = "x" * (before + 1)
    (tmp_path / "a.csv").write_text(f"id,text\n1,{long}\n")
    documents, _, _ = read(tmp_path, tmp_path / "a.csv")
    assert [d[2] for d in documents] == [[long]]
    assert csv.field_size_limit() == before


def test_a_broken_page_of_parquet_is_reported_with_its_file(tmp_path):
    texts = [f"row {i} " + "x" * 5000 for i in range(2000)]
    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"text": texts}), path, row_group_size=500)
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 2000] = b"\xff" * 2000
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"a\.parquet.*broken Parquet"):
        read(tmp_path, path)
    documents, counts, _ = read(tmp_path, path, on_error="report")
    assert counts == {"broken Parquet": 1}
    assert 0 < len(documents) < 2000


def test_a_long_line_is_read_in_bounded_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus, "MAX_LINE_CHARACTERS", 100)
    words = [f"wört{i}" for i in range(500)]
    (tmp_path / "a.txt").write_text("\n".join(["x", " ".join(words), "中" * 500]))
    documents, counts, _ = read(tmp_path, tmp_path / "a.txt", on_error="report")
    assert counts == {"long line": 2}
    first, *parts = documents[0][2]
    assert first == "x"
    assert max(map(len, parts)) <= 200
    assert " ".join(parts).split()[: len(words)] == words
    assert "".join(parts).endswith("中" * 500)
    (tmp_path / "a.txt").write_text("ab " * 33 + "c")  # the file ends at the limit
    documents, _, _ = read(tmp_path, tmp_path / "a.txt", on_error="report")
    assert documents[0][2] == [("ab " * 33).strip(), "c"]


def test_a_long_document_is_split_at_a_line_end(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus, "_MAX_DOCUMENT_CHARACTERS", 50)
    lines = [f"line {i}" for i in range(100)]
    (tmp_path / "a.txt").write_text("\n".join(lines))
    (tmp_path / "b.jsonl").write_text(json.dumps({"text": "\n".join(lines)}))
    for name in ("a.txt", "b.jsonl"):
        documents, _, _ = read(tmp_path, tmp_path / name)
        assert [line for d in documents for line in d[2]] == lines
        assert max(sum(map(len, d[2])) for d in documents) < 60


def test_a_prepared_tfds_set_is_read(tmp_path, monkeypatch):
    import tensorflow_datasets as tfds

    class TinyText(tfds.core.GeneratorBasedBuilder):
        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            features = {"text": tfds.features.Text(), "title": tfds.features.Text()}
            return self.dataset_info_from_configs(
                features=tfds.features.FeaturesDict(features)
            )

        def _split_generators(self, dl_manager):
            return {"train": self._generate_examples()}

        def _generate_examples(self):
            for i in range(3):
                yield i, {"text": f"line {i}\nmore of {i}", "title": "t"}

    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    for name in ("wikipedia/20230601.en", "no_such_set"):
        with pytest.raises(InputError, match=f"tfds build {name}"):
            read(tmp_path, f"tfds:{name}")
    TinyText(data_dir=tmp_path).download_and_prepare()
    documents, _, _ = read(tmp_path, "tfds:tiny_text")
    assert sorted(d[2] for d in documents) == [
        [f"line {i}", f"more of {i}"] for i in range(3)
    ]
    documents, _, _ = read(tmp_path, "tfds:tiny_text@train[:1]")
    assert len(documents) == 1
    with pytest.raises(InputError, match="text, title"):
        read(tmp_path, "tfds:tiny_text", field="body")


def test_corpora_are_streamed(tmp_path):
    path = tmp_path / "corpus.txt.gz"
    path.write_bytes(gzip.compress(b"a b " * 2**22, 1) * 16)
    memory = PeakMemory()
    documents, counts, _ = read(tmp_path, path, on_error="report")
    assert sum(len(line) for d in documents for line in d[2]) > 250_000_000
    assert memory.taken < 1 << 30
    assert set(counts) == {"long line"}


def test_a_long_row_of_json_is_read_in_few_blocks():
    file, sizes = io.StringIO(json.dumps([{"text": "x" * 2_000_000}])), []
    rows = json_values(lambda size: (sizes.append(size), file.read(size))[1], print)
    assert len(list(rows)) == 1
    assert len(sizes) < 12  # each block is as long as what was read before
