"""A model of several texts for each item, which declares how it is served."""

import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf
import tiny

from electra_tf.model.heads import ClassificationHead
from electra_tf.serving.export import export
from electra_tf.serving.export_options import RequestLimits
from electra_tf.serving.formats.saved_model import ABOUT, ASSETS_EXTRA, warmup_requests
from electra_tf.serving.http_servable import servable_of
from electra_tf.serving.signatures import encode_texts
from electra_tf.serving.task_models import task_export
from electra_tf.tasks.classifier import encode_texts as encode_pairs
from electra_tf.tasks.text_model import TextModel
from serving.exports import assert_equals_keras, call, graph_operations


class Chooser(TextModel):
    """Gives a probability to each of some options after a sentence and its start."""

    kind = "chooser"
    served_inputs = {"before": 1, "start": 1, "options": 2}  # noqa: RUF012
    decode = task_loss = None

    def make_head(self, seed):
        return ClassificationHead(self.shape.width, 1, seed=seed)

    def examples(self, x, y=None):
        pairs = [(before, f"{start} {o}") for before, start, all in x for o in all]
        return encode_pairs(self.tokenizer, pairs, self.settings.data.max_length, y)

    def row_texts(self, *texts_R):
        before_R, start_R, options_R = texts_R
        return before_R, tf.strings.join([start_R, options_R], " ")

    def named_outputs(self, outputs):
        return {"logits": outputs[..., 0]}

    def text_outputs(self, outputs):
        return {
            "probabilities": tf.nn.softmax(outputs[..., 0]),
            "best": tf.argmax(outputs[..., 0], -1, tf.int32),
        }

    def served_metadata(self):
        return {"order": "as given"}


ITEMS = [
    ("the file", "of", ["the", "user", "is"]),
    ("a", "b c", ["d", "", "the file of"]),
]


@pytest.fixture(scope="module")
def model():
    return Chooser(tiny.start(), tiny.settings(data_max_length=16))


@pytest.fixture(scope="module")
def spec(model):
    return task_export(model, limits=RequestLimits(rows=60, bytes=50_000))


def request(items):
    before, start, options = zip(*items, strict=True)
    return {
        "before": encode_texts(before),
        "start": encode_texts(start),
        "options": encode_texts(options, 2),
    }


def rejection(spec, arrays):
    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        call(spec.text["serving_default"], arrays)
    return " ".join(str(error.value).split())


def test_outputs_have_the_axes_of_the_options(model, spec):
    outputs = call(spec.text["serving_default"], request(ITEMS))
    logits_BN = np.reshape(model.outputs_of(model.examples(ITEMS)), [2, 3])
    expected_BN = tf.nn.softmax(logits_BN).numpy()
    np.testing.assert_allclose(outputs["probabilities"], expected_BN, atol=1e-5)
    np.testing.assert_array_equal(outputs["best"], expected_BN.argmax(-1))
    assert outputs["pieces_cut"].shape == (2, 3)
    operations = graph_operations(spec.text["serving_default"].function)
    assert not [name for name, _ in operations if "Repeat/" in name]


def test_texts_and_ids_equal_keras(spec):
    assert_equals_keras(spec)


def test_limits_count_each_option_with_the_strings_that_are_repeated(spec):
    many = ("a", "b", ["c"] * 61)
    assert "at most 60 rows. Received:] [61]" in rejection(spec, request([many]))
    long = ("a" * 2000, "b", ["c"] * 30)
    assert "at most 50000 bytes together" in rejection(spec, request([long]))
    none = {**request(ITEMS), "options": np.empty([2, 0], object)}
    assert "one or more" in rejection(spec, none)
    uneven = {**request(ITEMS), "start": encode_texts(["a"])}
    assert "the same number of rows" in rejection(spec, uneven)


def test_it_is_exported_and_served_without_an_entry_anywhere(spec, tmp_path):
    folder = export(spec, str(tmp_path / "served"), log=lambda line: None)
    about = json.loads(pathlib.Path(folder, ASSETS_EXTRA, ABOUT).read_text())
    assert (about["kind"], about["order"]) == ("chooser", "as given")
    loaded = tf.saved_model.load(folder).signatures["serving_default"]
    outputs = loaded(**{n: tf.constant(a) for n, a in request(ITEMS).items()})
    assert outputs["probabilities"].shape == (2, 3)
    signature = servable_of(spec, "chooser").signatures["serving_default"]
    axes = {name: of.shape.rank for name, of in signature.inputs.items()}
    assert axes == Chooser.served_inputs
    for arrays in warmup_requests(axes, [1, 9]):
        assert signature(arrays)["probabilities"].shape == (1, 2)
