import pytest

from electra_tf.errors import InputError
from electra_tf.text.data_errors import DataError, DataErrorLog

BAD_LINE = DataError("a.txt", 7, "NUL", "dropped", "Remove it")
BAD_FILE = DataError("b.txt", 0, "empty file", "no text", "Remove it")


def test_an_error_is_printed_with_file_and_line():
    assert str(BAD_LINE) == "a.txt:7: NUL: dropped"
    assert str(BAD_FILE) == "b.txt: empty file: no text"


def test_the_first_error_stops_the_run(tmp_path):
    log = DataErrorLog("stop", tmp_path / "log")
    with pytest.raises(InputError, match=r"a\.txt:7.*Remove it.*--on_error=report"):
        log.add(BAD_LINE)
    log.close()
    assert not (tmp_path / "log").exists()


def test_report_counts_all_errors_and_prints_the_first_of_a_kind(tmp_path, capsys):
    log = DataErrorLog("report", tmp_path / "new" / "log")
    for error in (BAD_LINE, BAD_FILE, BAD_LINE):
        log.add(error)
    log.close()
    assert log.counts == {"NUL": 2, "empty file": 1}
    lines = (tmp_path / "new" / "log").read_text().splitlines()
    assert lines == [str(BAD_LINE), str(BAD_FILE), str(BAD_LINE)]
    assert capsys.readouterr().err.count("problem: ") == 2


def test_without_an_error_no_file_is_written(tmp_path):
    log = DataErrorLog("report", tmp_path / "log")
    log.close()
    assert not (tmp_path / "log").exists()
