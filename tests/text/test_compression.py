"""Plain and compressed files are read; truncated archives raise `BROKEN`."""

import gzip
import lzma

import pytest

from electra_tf.text.compression import BROKEN, SUFFIXES, inner_suffix, open_compressed

PACKERS = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress, ".GZ": gzip.compress}


@pytest.mark.parametrize("suffix", PACKERS)
def test_the_suffix_determines_the_compression(tmp_path, suffix):
    assert suffix.lower() in SUFFIXES
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(PACKERS[suffix](b"some words"))
    with open_compressed(path) as file:
        assert file.read() == b"some words"
    with open(path, "rb") as raw:
        assert open_compressed(path, raw).read() == b"some words"
        assert raw.tell() == path.stat().st_size, "the open file is read"
    if suffix:
        path.write_bytes(path.read_bytes()[:-9])
        with pytest.raises(BROKEN), open_compressed(path) as file:
            file.read()
        path.write_bytes(b"some words")
        with pytest.raises(BROKEN), open_compressed(path) as file:
            file.read()


@pytest.mark.parametrize("suffix", PACKERS)
@pytest.mark.parametrize("block", [1, 7, 1 << 20])
def test_carriage_returns_alone_end_lines(tmp_path, suffix, block):
    # The pair of a carriage return and a line feed is on a border of blocks.
    text = b"a line\r\r" + b"x" * 8181 + b"\r" * 2 + b"\r\nlast\r"
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(PACKERS[suffix](text))
    with open_compressed(path) as file:
        lines = b"".join(iter(lambda: file.read(block), b"")).split(b"\n")
    assert lines == [b"a line", b"", b"x" * 8181, b"", b"", b"last", b""]


def test_a_carriage_return_within_lines_stays(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"a\rb\nc\r\nd")
    with open_compressed(path) as file:
        assert file.read() == b"a\rb\nc\r\nd"


def test_inner_suffix():
    names = ("a.csv", "a.csv.gz", "b/A.TSV.XZ", "a.gz", "a", "a.gz.csv")
    assert [*map(inner_suffix, names)] == [".csv", ".csv", ".tsv", "", "", ".csv"]
