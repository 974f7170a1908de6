"""Logs of data errors: one that raises at the first, one that counts them."""

import pytest

from electra_tf.text.data_errors import DataErrorLog


@pytest.fixture
def log(tmp_path):
    return DataErrorLog("stop", tmp_path / "problems.txt", "Data must be valid")


@pytest.fixture
def report(tmp_path):
    return DataErrorLog("report", tmp_path / "problems.txt", "Data must be valid")
