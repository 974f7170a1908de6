"""Bombs, endless lines and masses of small values are refused in little memory."""

import functools
import gzip
import json
import lzma
import pathlib
import struct
import sys
import time
import zlib

import pytest
from conftest import GOLDEN, ROOT

from electra_tf.config.pretraining import CorpusConfig
from electra_tf.errors import InputError
from electra_tf.interop import huggingface
from electra_tf.interop.tensor_bundle import read_bundle
from electra_tf.runs import blimp, nbest, probe
from electra_tf.tasks import inference, score_file
from electra_tf.tasks.conll import read_conll
from electra_tf.tasks.prediction_inputs import read_items
from electra_tf.tasks.squad_json import read_squad
from electra_tf.tasks.tables import read_table
from electra_tf.text.bounded_files import MAX_LINE, read_file, read_lines
from electra_tf.text.compression import BROKEN, open_compressed
from electra_tf.text.corpus import CorpusReader
from electra_tf.text.data_errors import DataErrorLog
from electra_tf.text.json_file import read_json
from electra_tf.text.tokenizer_files import open_tokenizer
from electra_tf.text.vocab import Vocabulary
from electra_tf.training.metric_logger import read_metrics

sys.path.insert(0, str(ROOT / "tools" / "fault_checks"))
from process_memory import PeakMemory

GIGABYTE = 1 << 30


def log(on_error="stop"):
    return DataErrorLog(on_error, "")


class Scorer:
    rule = "negative_energy"

    def score(self, texts, names=str):
        return [(0.0, 1) for _ in texts]


def table_beside(path):
    """Write a table of CoLA, and return its path."""
    table = pathlib.Path(path).parent / "dev.tsv"
    table.write_text("gj04\t1\t\tThe cat sat.\n")
    return str(table)


@pytest.fixture(scope="module")
def classifier():
    return inference.load(str(GOLDEN / "saved" / "classifier"))


READERS = {
    "csv": (".csv", lambda path, _: read_table(path, log())),
    "tsv": (".tsv", lambda path, _: read_table(path, log())),
    "jsonl": (".jsonl", lambda path, _: read_table(path, log())),
    "conll": (".txt", lambda path, _: read_conll(path, 0, -1, log())),
    "blimp": (".jsonl", lambda path, _: blimp.read_pairs(path)),
    "nbest": (".txt", lambda path, _: list(nbest.rerank(Scorer(), path, 1.0))),
    "score": (".txt", lambda path, _: list(nbest.score_lines(Scorer(), path))),
    "predict": (".txt", lambda path, model: list(read_items(model, path))),
    "squad": (".json", lambda path, _: read_squad(path, log())),
    "predictions": (
        ".tsv",
        lambda path, _: score_file.score_predictions(
            "cola", table_beside(path), path, log=print
        ),
    ),
}
# Streams: bounded whatever the file expands to.
STREAMS = ("score", "predict")
# A text without line ends, lines with the values that a reader takes, blank lines.
LINES = {
    "csv": b"a,b\n", "tsv": b"a\tb\n", "jsonl": b"{}\n", "conll": b"a O\n\n",
    "blimp": json.dumps(dict.fromkeys(
        ("UID", "linguistics_term", "sentence_good", "sentence_bad"), "a")
    ).encode() + b"\n",
    "nbest": b"a\tb\n", "squad": b"[[],[]]\n,", "predictions": b"1\n",
}  # fmt: skip


def compressed(content, megabytes, suffix):
    """Return a file that expands to a repeated content, in equal members."""
    part = content * (2**24 // len(content))
    pack = {".gz": gzip.compress, ".xz": lzma.compress}[suffix]
    return pack(part) * (megabytes // 16)


def check_refused(read, path, *names):
    memory, start = PeakMemory(), time.process_time()
    with pytest.raises(InputError) as caught:
        read()
    assert memory.taken < GIGABYTE
    assert time.process_time() - start < 20
    for name in (str(path), *names):
        assert name in str(caught.value)


def some(names, quick):
    """Return parameters; those that are not quick are for slow runs."""
    return [n if n in quick else pytest.param(n, marks=pytest.mark.slow) for n in names]


@pytest.mark.parametrize("name", some(READERS, ("csv", "conll", "squad", "score")))
def test_a_small_file_that_expands_to_gigabytes(name, tmp_path, classifier):
    ending, read = READERS[name]
    contents = [(b"a", ".gz"), (b"a", ".xz")]
    if name not in STREAMS:
        contents.append((LINES[name], ".gz"))
    for content, suffix in contents:
        path = tmp_path / f"bomb{ending}{suffix}"
        path.write_bytes(compressed(content, 4096, suffix))
        assert path.stat().st_size < 20_000_000
        check_refused(functools.partial(read, str(path), classifier), path)


@pytest.mark.parametrize("name", some(LINES, ("nbest", "squad")))
def test_a_mass_of_small_values(name, tmp_path, classifier):
    ending, read = READERS[name]
    path = tmp_path / f"mass{ending}.gz"
    path.write_bytes(compressed(LINES[name], 32, ".gz"))
    if name == "blimp":  # a pair takes so many bytes that these are not too many
        memory = PeakMemory()
        assert len(read(str(path), classifier)) > 100_000
        assert memory.taken < GIGABYTE
        return
    check_refused(lambda: read(str(path), classifier), path)


@pytest.mark.parametrize("name", some(READERS, ("tsv", "squad", "predict")))
def test_a_line_of_five_gigabytes(name, tmp_path, classifier):
    ending, read = READERS[name]
    path = tmp_path / f"endless{ending}"
    with path.open("wb") as file:
        file.truncate(5 << 30)  # sparse
    check_refused(lambda: read(str(path), classifier), path)


@pytest.mark.parametrize("kind", ["vocabulary", "settings", "json", "metrics", "index"])
def test_other_files_of_five_gigabytes(kind, tmp_path):
    (tmp_path / "v").write_bytes((GOLDEN / "vocab.txt").read_bytes())
    name = {"settings": "v.settings.json", "metrics": "metrics.jsonl"}.get(kind, "v")
    name = "v.index" if kind == "index" else name
    path = tmp_path / name
    with path.open("wb") as file:
        file.truncate(5 << 30)
    read = {
        "vocabulary": lambda: Vocabulary.read(path),
        "settings": lambda: open_tokenizer(tmp_path / "v"),
        "json": lambda: read_json(path),
        "metrics": lambda: read_metrics(str(tmp_path)),
        "index": lambda: read_bundle(str(tmp_path / "v")),
    }[kind]
    check_refused(read, path)


@pytest.mark.parametrize("ending", [".txt.gz", ".txt.xz"])
def test_corpora_are_streamed(ending, tmp_path):
    path = tmp_path / f"corpus{ending}"
    path.write_bytes(compressed(b"a b ", 256, ending[-3:]))
    memory = PeakMemory()
    reader = CorpusReader([str(path)], CorpusConfig(), log("stop"))
    with pytest.raises(InputError, match="line"):
        list(reader)
    errors = DataErrorLog("report", tmp_path / "problems.txt")
    size = sum(
        len(line)
        for document in CorpusReader([str(path)], CorpusConfig(), errors)
        for line in document.lines
    )
    errors.close()
    assert size > 250_000_000
    assert memory.taken < GIGABYTE
    assert set(errors.counts) == {"long line"}


def test_a_dictionary_of_four_gigabytes(tmp_path):
    content = bytearray(lzma.compress(b"some words"))
    header = content[12 : 12 + 4 * (content[12] + 1)]  # of the block
    place = header.index(b"\x21\x01") + 2  # LZMA2 and the size of its properties
    header[place] = 40
    header[-4:] = struct.pack("<I", zlib.crc32(header[:-4]))
    content[12 : 12 + len(header)] = header
    path = tmp_path / "a.txt.xz"
    path.write_bytes(content)
    memory = PeakMemory()
    with pytest.raises(BROKEN), open_compressed(path) as file:
        file.read()
    assert memory.taken < 1 << 28
    with pytest.raises(InputError, match=r"a\.txt\.xz"):
        list(CorpusReader([str(path)], CorpusConfig(), log()))


def test_members_of_a_compressed_file_are_joined(tmp_path):
    parts = [b"some words\n", b"", b"x" * 100_000, b"\nend"]
    for suffix, pack in ((".gz", gzip.compress), (".xz", lzma.compress)):
        path = tmp_path / f"a{suffix}"
        path.write_bytes(b"".join(map(pack, parts)) + b"\0" * 8)  # with padding
        assert read_file(path) == b"".join(parts)
        lines = b"".join(parts).splitlines(keepends=True)
        assert [line for _, line in read_lines(path)] == lines
        for end in (-20, -40):
            path.write_bytes(b"".join(map(pack, parts))[:end])
            with pytest.raises(BROKEN):
                read_file(path)


def test_lines_up_to_the_limit_are_read(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"a\n" + b"x" * (MAX_LINE - 1) + b"\nb\n")
    assert len(read_file(path)) == MAX_LINE + 4
    assert [len(line) for _, line in read_lines(path)] == [2, MAX_LINE, 2]
    path.write_bytes(b"a\n" + b"x" * (MAX_LINE + 1) + b"\nb\n")
    for read in (lambda: read_file(path), lambda: list(read_lines(path))):
        check_refused(read, path, "line 2", f"{MAX_LINE:,}")


def test_texts_of_a_parquet_file_are_read_one_at_a_time(tmp_path):
    import pyarrow.parquet

    path = tmp_path / "a.parquet"
    text = "The cat sat . " * 1_000_000
    pyarrow.parquet.write_table(
        pyarrow.table({"text": pyarrow.array([text] * 90)}), path, compression="none"
    )
    memory = PeakMemory()
    reader = CorpusReader([str(path)], CorpusConfig(), log())
    assert sum(len(document.lines) for document in reader) == 90
    assert memory.taken < GIGABYTE


def test_probe_data_are_bounded(tmp_path):
    (tmp_path / "train.txt.gz").write_bytes(compressed(b"a b c\n", 8192, ".gz"))
    check_refused(lambda: probe._read(str(tmp_path), "train"), tmp_path)


def test_a_tokenizer_of_brackets(tmp_path):
    path = tmp_path / huggingface.TOKENIZER
    path.write_bytes(b"[" + b"[]," * 6_500_000 + b"[]]")
    check_refused(lambda: huggingface.read_tokenizer(str(tmp_path)), path, "values")
