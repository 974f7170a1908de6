"""A SavedModel is proved before anybody gets it, and a bad one is refused."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.errors import InputError
from electra_tf.serving.formats.saved_model import ABOUT, EXTRA, write_saved_model
from electra_tf.serving.validate import TEXT_OPERATIONS
from electra_tf.text.tokenizer import Tokenizer
from electra_tf.text.vocab import Vocabulary
from serving.exports import LABELS, exported


def signatures(found):
    return {**found.text, **found.tokens}


def test_a_good_one_travels_with_all_that_a_client_needs(tmp_path):
    found = exported("pairs")
    told = write_saved_model(found, signatures(found), str(tmp_path / "m"))
    assert told["unknown_operations"] == []
    compared = {name for name in told["differences"] if "rows" not in name}
    outputs = {"probabilities", "logits", "label"}
    names = ("serving_default", "tokens")
    expected = {f"{name}: {output}" for name in names for output in outputs}
    assert compared == expected | {"serving_default: pieces_cut"}
    extra = tmp_path / "m" / EXTRA
    about = json.loads((extra / ABOUT).read_text())
    assert (about["kind"], about["labels"]) == ("classifier", list(LABELS))
    assert (extra / "labels.txt").read_text().split() == list(LABELS)
    vocabulary = Vocabulary.read(extra / "vocab.txt")
    tokenizer = Tokenizer(vocabulary, found.tokenizer.settings)
    tokenizer.check_identity(about["tokenization"], "the export")
    loaded = tf.saved_model.load(str(tmp_path / "m"))
    graph = loaded.signatures["serving_default"].graph.as_graph_def()
    operations = {node.op for f in graph.library.function for node in f.node_def}
    assert operations & TEXT_OPERATIONS == {"WordpieceTokenizeWithOffsets"}


def wrong(found, **changes):
    text = found.text["serving_default"]
    return {"serving_default": dataclasses.replace(text, **changes)}


def test_other_numbers_than_keras_says_are_refused(tmp_path):
    found = exported("classifier")
    right = found.text["serving_default"].expected

    def off(request):
        return {
            name: of + 1e-3 for name, of in right(request).items() if name != "label"
        }

    with pytest.raises(InputError, match=r"logits differs by 0\.001"):
        write_saved_model(found, wrong(found, expected=off), str(tmp_path / "m"))


def test_a_variable_that_is_stored_twice_is_refused(tmp_path):
    found = exported("classifier")

    class Fewer(tf.Module):
        """Tells fewer variables than are stored, as a wrapper with copies would."""

        @property
        def variables(self):
            return found.module.variables

    fewer = Fewer()
    fewer.inner, fewer.copy = found.module, tf.Variable(np.zeros(5, np.float32))
    twice = dataclasses.replace(found, module=fewer)
    with pytest.raises(InputError, match="once"):
        write_saved_model(twice, wrong(found), str(tmp_path / "m"))


def test_one_that_cannot_answer_is_refused(tmp_path):
    found = exported("classifier")

    def dies(text_B):
        stop = tf.debugging.Assert(tf.size(text_B) < 0, ["it never answers"])
        with tf.control_dependencies([stop]):
            return {"logits": tf.zeros([tf.size(text_B), 3])}

    spec = [tf.TensorSpec([None], tf.string, name="text")]
    function = tf.function(dies, input_signature=spec)
    with pytest.raises(InputError, match="fresh process"):
        write_saved_model(found, wrong(found, function=function), str(tmp_path / "m"))
