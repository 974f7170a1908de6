"""Logs of bad rows: one that stops at the first, one that counts them."""

import pytest

from electra_tf.text.problems import ProblemLog


@pytest.fixture
def log(tmp_path):
    return ProblemLog("stop", tmp_path / "problems.txt", "Data is good")


@pytest.fixture
def report(tmp_path):
    return ProblemLog("report", tmp_path / "problems.txt", "Data is good")
