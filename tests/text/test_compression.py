"""Files are read as what they hold, compressed or not; broken ones are told."""

import gzip
import lzma

import pytest

from electra_tf.text.compression import BROKEN, SUFFIXES, inner_suffix, open_compressed

PACKERS = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress, ".GZ": gzip.compress}


@pytest.mark.parametrize("suffix", PACKERS)
def test_the_ending_of_a_name_tells_how_a_file_is_packed(tmp_path, suffix):
    assert suffix.lower() in SUFFIXES
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(PACKERS[suffix](b"some words"))
    with open_compressed(path) as file:
        assert file.read() == b"some words"
    with open(path, "rb") as raw:
        assert open_compressed(path, raw).read() == b"some words"
        assert raw.tell() == path.stat().st_size, "read through what was open"
    if suffix:
        path.write_bytes(path.read_bytes()[:-9])
        with open_compressed(path) as file, pytest.raises(BROKEN):
            file.read()
        path.write_bytes(b"some words")
        with open_compressed(path) as file, pytest.raises(BROKEN):
            file.read()


def test_the_ending_within():
    names = ("a.csv", "a.csv.gz", "b/A.TSV.XZ", "a.gz", "a", "a.gz.csv")
    assert [*map(inner_suffix, names)] == [".csv", ".csv", ".tsv", "", "", ".csv"]
