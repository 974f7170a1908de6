"""Test the common parts of LiteRT and ONNX models."""

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.errors import InputError
from electra_tf.serving.export_spec import IDS
from electra_tf.serving.formats.token_runtime import TokenRuntime, drop_string_outputs
from electra_tf.tasks.examples import EncodedExamples
from serving import heads


def sum_ids(inputs):
    ids_BL = inputs["token_ids"]
    if (ids_BL < 0).any():
        raise RuntimeError("an id below 0")
    return {"sum": ids_BL.sum(-1), "each": ids_BL}


MODEL = TokenRuntime(sum_ids, "a.file", (RuntimeError,))


def test_outputs_are_in_the_order_of_the_examples():
    ids = [[1, 2], [3], [4, 5, 6, 7, 8, 9], [10]]
    examples = EncodedExamples(ids, [[0] * len(row) for row in ids], 16)
    outputs = MODEL.outputs_of(examples, 3)
    assert [int(example["sum"]) for example in outputs] == [3, 3, 39, 10]
    for example, row in zip(outputs, ids, strict=True):
        assert example["each"][: len(row)].tolist() == row
    assert MODEL.outputs_of(EncodedExamples([], [], 16)) == []


def test_outputs_of_returns_logits_alone():
    model = TokenRuntime(lambda ids: {"logits": ids["token_ids"], "sum": [0]}, "f", ())
    (logits,) = model.outputs_of(EncodedExamples([[7, 8]], [[0, 0]], 16))
    assert logits[:2].tolist() == [7, 8]


@pytest.mark.parametrize(
    "change",
    [
        {"token_ids": np.zeros((1, 3), np.int64)},
        {"padding_mask": np.zeros((1, 2), np.int32)},
        {"more": np.zeros((1, 3), np.int32)},
        dict.fromkeys(IDS, np.zeros(3, np.int32)),
    ],
)
def test_invalid_inputs(change):
    ids = {name: np.zeros((1, 3), np.int32) for name in IDS}
    assert MODEL(ids)["sum"].tolist() == [0]
    with pytest.raises(InputError, match="each int32"):
        MODEL(ids | change)
    with pytest.raises(InputError, match="each int32"):
        MODEL({})


def test_failure_has_its_reason():
    ids = {name: np.full((1, 3), -1, np.int32) for name in IDS}
    with pytest.raises(InputError, match=r"\(1, 3\): an id below 0") as error:
        MODEL(ids)
    assert isinstance(error.value.__cause__, RuntimeError)


def test_drop_string_outputs():
    function = heads.function()
    names = set(function.get_concrete_function().structured_outputs)
    numbers = drop_string_outputs(function).get_concrete_function().structured_outputs
    assert names - numbers.keys() == {"label"}


def test_drop_string_outputs_requires_a_signature_of_ids():
    with pytest.raises(InputError, match="Received: none"):
        drop_string_outputs(tf.function(lambda ids: ids))
    spec = [tf.TensorSpec([None], tf.string, name="text")]
    with pytest.raises(InputError, match="text"):
        drop_string_outputs(tf.function(lambda text: text, input_signature=spec))
