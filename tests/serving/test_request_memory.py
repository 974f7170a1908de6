"""Test that requests are rejected before they allocate gigabytes."""

import json
import subprocess
import sys

import pytest
import tensorflow as tf
from conftest import ROOT

from serving.exports import exported

# Measures peak memory, so it runs in a fresh process.
PROGRAM = """
import json, resource, sys
import numpy as np
import tensorflow as tf, tensorflow_text

def peak_memory():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10

serve = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
serve(text=tf.fill([32], "some words of an ordinary length"))
steady, errors = peak_memory(), []
for request in json.loads(sys.argv[2]):
    parts = [tf.fill([rows], word * words) for rows, word, words in request]
    try:
        serve(text=tf.concat(parts, 0))
    except tf.errors.InvalidArgumentError as error:
        errors.append(str(error))
print(json.dumps([steady, peak_memory(), errors]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "requests", "messages"),
    [
        (
            "classifier",
            [[(20_000, "word ", 240)], [(100_000, "", 1)], [(1, "word ", 2**22)]],
            ["[20000]", "[100000]", "[20971520]"],
        ),
        ("tagger", [[(2000, "", 1), (1, "word ", 8000)]], ["[2001] [8000]"]),
    ],
)
def test_rejected_requests_use_little_memory(kind, requests, messages, tmp_path):
    # A request is a list of (number of rows, word, repetitions of the word in a row).
    text = exported(kind).text["serving_default"]
    tf.saved_model.save(
        exported(kind).module, str(tmp_path), {"serving_default": text.function}
    )
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path), json.dumps(requests)],
        capture_output=True, text=True, cwd=ROOT,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    steady, peak, errors = json.loads(result.stdout.splitlines()[-1])
    assert len(errors) == len(messages)
    for error, message in zip(errors, messages, strict=True):
        assert message in error
    assert peak < 1.3 * steady + 100, (steady, peak)
