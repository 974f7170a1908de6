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
        with open_compressed(path) as file, pytest.raises(BROKEN):
            file.read()
        path.write_bytes(b"some words")
        with open_compressed(path) as file, pytest.raises(BROKEN):
            file.read()


def test_inner_suffix():
    names = ("a.csv", "a.csv.gz", "b/A.TSV.XZ", "a.gz", "a", "a.gz.csv")
    assert [*map(inner_suffix, names)] == [".csv", ".csv", ".tsv", "", "", ".csv"]
