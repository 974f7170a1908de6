"""The C++ log level hides the messages of XLA."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
from electra_tf import cli
import tensorflow as tf
from electra_tf import cpp_log

if %r:
    assert cpp_log.apply_level()
double = tf.function(lambda x: x * 2, jit_compile=True)
double(tf.ones(2))
"""


@pytest.mark.parametrize("level", ["3", "0"])
def test_apply_level_sets_the_level_of_absl(level):
    def errors(applied):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM % applied],
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": level},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        return done.stderr

    assert ("Compiled cluster using XLA" in errors(True)) is (level == "0")
    if level == "3":
        assert "Compiled cluster using XLA" in errors(False)


def test_apply_level_without_tensorflow():
    program = "from electra_tf import cpp_log; assert not cpp_log.apply_level()"
    subprocess.run([sys.executable, "-c", program], check=True)
