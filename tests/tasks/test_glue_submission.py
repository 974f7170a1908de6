"""The submission has the names, headers and rows that the leaderboard requires."""

import zipfile

import pytest

from electra_tf.errors import InputError
from electra_tf.tasks.glue import (
    submission_files,
    write_submission,
)

# Rows of the published test sets.
ROWS = {
    "CoLA": 1063, "SST-2": 1821, "MRPC": 1725, "STS-B": 1379, "QQP": 390965,
    "MNLI-m": 9796, "MNLI-mm": 9847, "QNLI": 5463, "RTE": 3000, "WNLI": 146,
    "AX": 1104,
}  # fmt: skip


def test_every_file_belongs_to_a_test_set():
    assert {name: rows for name, (_, _, rows) in submission_files().items()} == ROWS
    assert submission_files()["MNLI-mm"][:2] == ("mnli", "test_mismatched")
    assert submission_files()["AX"][:2] == ("ax", "diagnostic")


def test_zip_holds_predictions_and_constants(tmp_path):
    words = ["entailment", "not_entailment"] * 1500
    path = tmp_path / "submission.zip"
    filled = write_submission(path, {"RTE": words})
    assert set(filled) == set(ROWS) - {"RTE"}
    with zipfile.ZipFile(path) as archive:
        assert {entry.filename for entry in archive.infolist()} == {
            f"{name}.tsv" for name in ROWS
        }
        for name, rows in ROWS.items():
            lines = archive.read(f"{name}.tsv").decode().splitlines()
            assert lines[0] == "index\tprediction"
            assert len(lines) == rows + 1
            assert lines[-1].startswith(f"{rows - 1}\t")
        lines = archive.read("RTE.tsv").decode().splitlines()
        assert lines[1:3] == ["0\tentailment", "1\tnot_entailment"]
        assert archive.read("MNLI-m.tsv").decode().splitlines()[1] == "0\tcontradiction"
        assert archive.read("STS-B.tsv").decode().splitlines()[1] == "0\t0.000"


def test_equal_predictions_give_equal_bytes(tmp_path):
    for name in "ab":
        write_submission(tmp_path / name, {})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_incomplete_predictions_are_an_error(tmp_path):
    with pytest.raises(InputError, match=r"WNLI.*146 rows.*145 predictions"):
        write_submission(tmp_path / "zip", {"WNLI": ["0"] * 145})
    assert not (tmp_path / "zip").exists()
