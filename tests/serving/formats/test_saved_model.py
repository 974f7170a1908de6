"""Test that SavedModels are validated."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.errors import InputError
from electra_tf.serving.formats.saved_model import (
    ABOUT,
    ASSETS_EXTRA,
    write_saved_model,
)
from electra_tf.serving.validate import TEXT_OPERATIONS
from electra_tf.text.tokenizer import Tokenizer
from electra_tf.text.vocab import Vocabulary
from serving.exports import LABELS, exported


def test_saved_model_contains_files_for_clients(tmp_path):
    spec = exported("pairs")
    signatures = {**spec.text, **spec.tokens}
    report = write_saved_model(spec, signatures, str(tmp_path / "m"))
    assert report["unknown_operations"] == []
    compared = {name for name in report["differences"] if "rows" not in name}
    outputs = {"probabilities", "logits", "label"}
    names = ("serving_default", "tokens")
    expected = {f"{name}: {output}" for name in names for output in outputs}
    assert compared == expected | {"serving_default: pieces_cut"}
    extra = tmp_path / "m" / ASSETS_EXTRA
    about = json.loads((extra / ABOUT).read_text())
    assert (about["kind"], about["labels"]) == ("classifier", list(LABELS))
    assert (extra / "labels.txt").read_text().split() == list(LABELS)
    vocabulary = Vocabulary.read(extra / "vocab.txt")
    tokenizer = Tokenizer(vocabulary, spec.tokenizer.settings)
    tokenizer.check_identity(about["tokenization"], "the export")
    loaded = tf.saved_model.load(str(tmp_path / "m"))
    graph = loaded.signatures["serving_default"].graph.as_graph_def()
    operations = {node.op for f in graph.library.function for node in f.node_def}
    assert operations & TEXT_OPERATIONS == {"WordpieceTokenizeWithOffsets"}


def changed_signatures(spec, **changes):
    text = spec.text["serving_default"]
    return {"serving_default": dataclasses.replace(text, **changes)}


def test_different_outputs_are_rejected(tmp_path):
    spec = exported("classifier")
    expected = spec.text["serving_default"].expected

    def shifted(request):
        outputs = expected(request)
        return {name: outputs[name] + 1e-3 for name in outputs if name != "label"}

    signatures = changed_signatures(spec, expected=shifted)
    with pytest.raises(InputError, match=r"logits differs by 0\.001"):
        write_saved_model(spec, signatures, str(tmp_path / "m"))


def test_additional_variables_are_rejected(tmp_path):
    spec = exported("classifier")

    class Incomplete(tf.Module):
        """Module that lists fewer variables than it stores."""

        @property
        def variables(self):
            return spec.module.variables

    module = Incomplete()
    module.inner, module.copy = spec.module, tf.Variable(np.zeros(5, np.float32))
    incomplete = dataclasses.replace(spec, module=module)
    with pytest.raises(InputError, match="once"):
        write_saved_model(incomplete, changed_signatures(spec), str(tmp_path / "m"))


def test_failing_function_is_rejected(tmp_path):
    spec = exported("classifier")

    def fail(text_B):
        stop = tf.debugging.Assert(tf.size(text_B) < 0, ["it always fails"])
        with tf.control_dependencies([stop]):
            return {"logits": tf.zeros([tf.size(text_B), 3])}

    inputs = [tf.TensorSpec([None], tf.string, name="text")]
    function = tf.function(fail, input_signature=inputs)
    signatures = changed_signatures(spec, function=function)
    with pytest.raises(InputError, match="fresh process"):
        write_saved_model(spec, signatures, str(tmp_path / "m"))
