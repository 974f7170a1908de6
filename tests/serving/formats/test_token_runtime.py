"""What is asked of other formats, whatever the format."""

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.errors import InputError
from electra_tf.serving.export_spec import IDS
from electra_tf.serving.formats.token_runtime import TokenRuntime, drop_string_outputs
from electra_tf.tasks.batching import EncodedExamples
from serving import heads


def summing(**more):
    """Says of each row the sum of its ids, and of each position its id."""

    def ask(ids):
        ids_BL = ids["token_ids"]
        if (ids_BL < 0).any():
            raise RuntimeError("an id below 0")
        return {"sum": ids_BL.sum(-1), "each": ids_BL, **more}

    return TokenRuntime(ask, "a.file", (RuntimeError,))


def test_outputs_come_in_the_order_of_the_examples():
    ids = [[1, 2], [3], [4, 5, 6, 7, 8, 9], [10]]
    examples = EncodedExamples(ids, [[0] * len(row) for row in ids], 16)
    found = summing().outputs_of(examples, 3)
    assert [int(one["sum"]) for one in found] == [3, 3, 39, 10]
    for one, row in zip(found, ids, strict=True):
        assert one["each"][: len(row)].tolist() == row
    assert summing().outputs_of(EncodedExamples([], [], 16)) == []


def test_logits_stand_alone():
    model = TokenRuntime(lambda ids: {"logits": ids["token_ids"], "sum": [0]}, "f", ())
    (found,) = model.outputs_of(EncodedExamples([[7, 8]], [[0, 0]], 16))
    assert found[:2].tolist() == [7, 8]


@pytest.mark.parametrize(
    "change",
    [
        {"token_ids": np.zeros((1, 3), np.int64)},
        {"padding_mask": np.zeros((1, 2), np.int32)},
        {"more": np.zeros((1, 3), np.int32)},
        dict.fromkeys(IDS, np.zeros(3, np.int32)),
    ],
)
def test_other_inputs_are_told(change):
    ids = {name: np.zeros((1, 3), np.int32) for name in IDS}
    assert summing()(ids)["sum"].tolist() == [0]
    with pytest.raises(InputError, match="each int32"):
        summing()(ids | change)
    with pytest.raises(InputError, match="each int32"):
        summing()({})


def test_a_failure_is_told_with_its_reason():
    ids = {name: np.full((1, 3), -1, np.int32) for name in IDS}
    with pytest.raises(InputError, match=r"\(1, 3\) of them: an id below 0") as found:
        summing()(ids)
    assert isinstance(found.value.__cause__, RuntimeError)


def test_strings_are_left_out():
    function = heads.function()
    names = set(function.get_concrete_function().structured_outputs)
    numbers = drop_string_outputs(function).get_concrete_function().structured_outputs
    assert names - numbers.keys() == {"label"}


def test_a_function_without_a_signature_is_told():
    with pytest.raises(InputError, match="Received: none"):
        drop_string_outputs(tf.function(lambda ids: ids))
    spec = [tf.TensorSpec([None], tf.string, name="text")]
    with pytest.raises(InputError, match="text"):
        drop_string_outputs(tf.function(lambda text: text, input_signature=spec))
