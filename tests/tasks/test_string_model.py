"""What is told of strings; what is done with them stands in `test_text_model`."""

import keras
import pytest

from electra_tf.errors import InputError
from electra_tf.tasks.models import TextRegressor
from electra_tf.tasks.string_model import too_long, whole_number
from tasks import tiny


def test_a_whole_number_is_read_from_a_variable():
    assert whole_number(keras.Variable(2**40, dtype="int64")) == 2**40


def test_an_input_too_long_tells_both_lengths():
    assert "at most the 64 positions" in str(too_long(65, 64))
    assert "Arrived: 65." in str(too_long(65, 64))


def test_texts_without_targets_are_no_training_data():
    model = TextRegressor(tiny.start(), settings=tiny.settings())
    for asked in (model.fit, model.evaluate):
        with pytest.raises(InputError, match="2 examples without targets"):
            asked(["a", "b"])
