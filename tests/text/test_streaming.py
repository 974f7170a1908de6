"""Corpora and compressed files are streamed: they take little memory."""

import gzip

from electra_tf.config.data import CorpusConfig
from electra_tf.text.corpus import CorpusReader
from electra_tf.text.data_errors import DataErrorLog
from tests.process_memory import PeakMemory

GIGABYTE = 1 << 30


def test_corpora_are_streamed(tmp_path):
    path = tmp_path / "corpus.txt.gz"
    path.write_bytes(gzip.compress(b"a b " * 2**22, 1) * 16)
    memory = PeakMemory()
    errors = DataErrorLog("report", tmp_path / "problems.txt")
    reader = CorpusReader([str(path)], CorpusConfig(), errors)
    size = sum(len(line) for document in reader for line in document.lines)
    errors.close()
    assert size > 250_000_000
    assert memory.taken < GIGABYTE
    assert set(errors.counts) == {"long line"}
