"""Requests that would take gigabytes are refused before they take any."""

import json
import subprocess
import sys

import pytest
import tensorflow as tf
from conftest import ROOT

from serving.exports import exported

# In a process of its own, as a server is: the most memory it ever held is measured.
PROGRAM = """
import json, resource, sys
import numpy as np
import tensorflow as tf, tensorflow_text

def held():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10

serve = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
serve(text=tf.fill([32], "some words of an ordinary length"))
steady, errors = held(), []
for request in json.loads(sys.argv[2]):
    parts = [tf.fill([rows], word * words) for rows, word, words in request]
    try:
        serve(text=tf.concat(parts, 0))
    except tf.errors.InvalidArgumentError as error:
        errors.append(str(error))
print(json.dumps([steady, held(), errors]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "requests", "words"),
    [
        (
            "classifier",
            [[(20_000, "word ", 240)], [(100_000, "", 1)], [(1, "word ", 2**22)]],
            ["[20000]", "[100000]", "[20971520]"],
        ),
        ("tagger", [[(2000, "", 1), (1, "word ", 8000)]], ["[2001] [8000]"]),
    ],
)
def test_a_refused_request_takes_little_memory(kind, requests, words, tmp_path):
    # A request is rows, a word and how often each row has it; and more of the kind.
    text = exported(kind).text["serving_default"]
    tf.saved_model.save(
        exported(kind).module, str(tmp_path), {"serving_default": text.function}
    )
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path), json.dumps(requests)],
        capture_output=True, text=True, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    steady, peak, errors = json.loads(done.stdout.splitlines()[-1])
    assert len(errors) == len(words)
    for error, word in zip(errors, words, strict=True):
        assert word in error
    assert peak < 1.3 * steady + 100, (steady, peak)
