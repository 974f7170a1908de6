"""Globs, compressed files, and files that are not UTF-8 text."""

import bz2
import gzip
import io
import lzma
import os
import tarfile
import zipfile
from unittest import mock

import pytest

from electra_tf.config.data import CorpusConfig
from electra_tf.errors import InputError
from electra_tf.runs.scoring import score_lines
from electra_tf.tasks.data.conll import read_conll
from electra_tf.tasks.data.squad_json import read_squad
from electra_tf.tasks.data.table import read
from electra_tf.text.corpus import CorpusReader
from electra_tf.text.data_errors import DataErrorLog
from electra_tf.text.files import BROKEN, COMPRESSION_SUFFIXES, decompressed, expand
from electra_tf.text.vocab import Vocabulary

TEXT = "Größe — café\n\nzweite Zeile\n"


def tar(data=TEXT.encode()):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        member = tarfile.TarInfo("a.txt")
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def zipped(data=TEXT.encode()):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a.txt", data)
    return buffer.getvalue()


def corpus_lines(paths):
    log = DataErrorLog("stop", "")
    reader = CorpusReader(map(str, paths), CorpusConfig(), log)
    return [line for document in reader for line in document.lines]


# Content by name of the file, and the format that is named.
FORMATS = {
    "a.tar": (tar(), "tar"),
    "a b{}.txt": (tar(), "tar"),
    "owt.xz": (lzma.compress(tar()), "tar"),
    "a.zip": (zipped(), "zip"),
    "a.gz": (bz2.compress(TEXT.encode()), "bzip2"),
    "a.txt": (gzip.compress(TEXT.encode()), "gzip"),
    "b.txt": (lzma.compress(TEXT.encode()), "xz"),
    "c.txt": (TEXT.encode("utf-16"), "UTF-16"),
    "d.txt.gz": (gzip.compress(TEXT.encode("utf-16")), "UTF-16"),
    "i.txt": (TEXT.encode("utf-16-le"), "UTF-16"),
    "j.txt.xz": (lzma.compress(TEXT.encode("utf-16-be")), "UTF-16"),
    "a.docx": (zipped(), "office document"),
    "a.zst": (b"\x28\xb5\x2f\xfd\x04", "zstd"),
    "a.html": (b"a fragment", "HTML"),
    "b": (b"\n<!DOCTYPE html>", "HTML"),
    "a.xml": (b"<r/>", "XML"),
    "e.txt": (b"\xef\xbb\xbf<?xml version='1.0'?>", "XML"),
    "dump": (b'<mediawiki xmlns="">', "MediaWiki"),
    "wiki_00": (b'<doc id="1" title="A">\nA', "WikiExtractor"),
    "a.conllu": (b"1\tthe\t_", "tags"),
    "g.txt": (b"-DOCSTART- -X- O O\n", "tags"),
    "a.srt": (b"1\n00:00", "times"),
    "a.ipynb": (b'{"cells": []}', "notebook"),
}


@pytest.mark.parametrize("name", FORMATS)
def test_other_formats_are_named_and_can_be_skipped(tmp_path, name):
    content, kind = FORMATS[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=kind):
        corpus_lines([tmp_path / name])
    log = DataErrorLog("report", tmp_path / "problems.txt")
    assert not list(CorpusReader([str(tmp_path / name)], CorpusConfig(), log))
    assert log.counts.total() == 1


@pytest.mark.parametrize(
    "text",
    [
        "BZh9 is the beginning of a file",
        "PK and PKK",
        "{a} brace, {\n",
        "<document> & <d> <htm",
        "[1] A note\n[{",
        "ustar " * 50,
        "7zip, Rar!",
    ],
)
def test_text_that_looks_similar_is_text(tmp_path, text):
    (tmp_path / "a.txt").write_text(text)
    assert corpus_lines([tmp_path / "a.txt"]) == text.strip().split("\n")


READERS = {
    "a.csv": lambda path: read(path),
    "a.tsv": lambda path: read(path),
    "a.jsonl": lambda path: read(path),
    "train-v1.1.json": lambda path: read_squad(path),
    "train.txt": lambda path: read_conll(path, 0, -1),
    "lines.txt": lambda path: list(score_lines(mock.Mock(window=9), path)),
    "vocab.txt": Vocabulary.read,
}


@pytest.mark.parametrize("name", READERS)
def test_readers_name_archives_and_encodings(tmp_path, name):
    path = tmp_path / name
    utf16 = [TEXT.encode(name) for name in ("utf-16", "utf-16-le", "utf-16-be")]
    for content, kind in (
        (tar(), "tar"),
        (gzip.compress(TEXT.encode()), "gzip"),
        *((text, "UTF-16") for text in utf16),
    ):
        path.write_bytes(content)
        with pytest.raises(InputError, match=rf"{name}.*{kind}"):
            READERS[name](str(path))


PACKERS = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress, ".GZ": gzip.compress}


@pytest.mark.parametrize("packed", ["", ".gz"])
def test_text_of_another_encoding_is_named(tmp_path, packed):
    path = tmp_path / f"a.txt{packed}"
    path.write_bytes(PACKERS[packed](TEXT.replace("—", "-").encode("cp1252")))
    with pytest.raises(InputError, match=r"a\.txt.*:1: invalid UTF-8.*iconv.*GB18030"):
        corpus_lines([path])


@pytest.mark.parametrize("suffix", PACKERS)
def test_the_suffix_determines_the_compression(tmp_path, suffix):
    assert suffix.lower() in COMPRESSION_SUFFIXES
    path = tmp_path / f"a.txt{suffix}"
    parts = b"some words", b"", b"x" * 100_000, b" end"
    path.write_bytes(b"".join(map(PACKERS[suffix], parts)))
    with open(path, "rb") as file:
        assert decompressed(str(path), file).read() == b"".join(parts)
        assert file.tell() == path.stat().st_size, "the open file is read"
    if suffix:
        for broken in (path.read_bytes()[:-9], b"some words"):
            path.write_bytes(broken)
            with open(path, "rb") as file, pytest.raises(BROKEN):
                decompressed(str(path), file).read()


def test_patterns_are_expanded_in_a_fixed_order(tmp_path):
    for name in ("b.txt", "a.txt", "sub/c.txt", "x[1].txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / "link.txt").symlink_to(tmp_path / "a.txt")
    patterns = ["x[1].txt", "b*", "./a.txt", "a.txt", "link.txt", "**/*.txt", "sub/**"]
    sources = expand([*(f"{tmp_path}/{p}" for p in patterns), "tfds:some/thing"])
    names = [os.path.relpath(path, tmp_path) for path in sources[:-1]]
    assert names == ["x[1].txt", "b.txt", "a.txt", "sub/c.txt"]
    assert sources[-1] == "tfds:some/thing"


def test_a_pattern_that_matches_no_file_is_an_error(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "lost.txt").symlink_to(tmp_path / "nowhere")
    for pattern, words in {
        "nothing*": r"nothing\*'.*no file",
        "folder": r"folder', which.*FOLDER/\*\.txt",
        "*": "/folder', which",
        "*.txt": r"lost\.txt', which",
        "**": r"lost\.txt', which",
    }.items():
        with pytest.raises(InputError, match=words):
            expand([f"{tmp_path}/{pattern}"])
    with pytest.raises(InputError, match=r"write '/a \[\[\]1\]/x'"):
        expand(["/a [1]/x"])
    with pytest.raises(InputError, match="""quotes: '"no, file"'"""):
        expand(["no", "file"])
    with pytest.raises(InputError, match="--input='corpus"):
        expand([])
