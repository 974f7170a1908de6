"""Which rate a training has; what else is done with strings: `test_text_model`."""

import keras
import pytest

from electra_tf.errors import InputError
from electra_tf.tasks.classification.model import TextClassifier, TextRegressor
from electra_tf.tasks.string_model import too_long, whole_number
from tasks import tiny

SHORT, THEIRS = tiny.texts(longest=11, shortest=10)  # all batches of one length


def classifier():
    return TextClassifier(tiny.start(), ["bad", "good"], tiny.settings())


def test_a_whole_number_is_read_from_a_variable():
    assert whole_number(keras.Variable(2**40, dtype="int64")) == 2**40


def test_an_input_too_long_tells_both_lengths():
    assert "at most the 64 positions" in str(too_long(65, 64))
    assert "Received: 65." in str(too_long(65, 64))


def test_texts_without_targets_are_no_training_data():
    model = TextRegressor(tiny.start(), settings=tiny.settings())
    for asked in (model.fit, model.evaluate):
        with pytest.raises(InputError, match="2 examples without targets"):
            asked(["a", "b"])


def test_metrics_stay_where_fit_chooses_the_optimizer(tmp_path):
    model = classifier()
    model.compile(metrics=[keras.metrics.SparseCategoricalAccuracy("mine")])
    few = SHORT[:8], THEIRS[:8]
    told = model.fit(*few, epochs=2, verbose=0).history
    assert told.keys() == {"loss", "accuracy", "mine"}
    assert model.optimizer.schedule.steps == 2
    with pytest.raises(InputError, match=r"0 after 2 updates.*1 updates after the 2"):
        model.fit(*few, epochs=2, initial_epoch=1, verbose=0)
    # What was refused has left nothing behind.
    with pytest.raises(InputError, match="7 at place 0"):
        model.fit(*few, epochs=9, validation_data=(SHORT[:1], [7]), verbose=0)
    assert model.optimizer.schedule.steps == 2
    before = tiny.weights(model)
    model.save(tmp_path / "model.keras")
    other = keras.saving.load_model(tmp_path / "model.keras")
    found = other.evaluate(SHORT, THEIRS, return_dict=True, verbose=0)
    assert found.keys() == {"loss", "accuracy", "mine"}
    # The next training has a rate of its own, and another order, loaded or not.
    for one in (model, other):
        told = one.fit(*few, epochs=3, verbose=0).history
        assert told.keys() == {"loss", "accuracy", "mine"}
        assert (one.optimizer.schedule.steps, int(one.seed)) == (3, 1)
        assert int(one.optimizer.iterations) == 3
    compiled = model.train_function
    model.fit(*few, epochs=3, verbose=0)
    other.fit(*few, epochs=3, verbose=0)
    assert (int(model.optimizer.iterations), int(model.seed)) == (3, 2)
    assert model.train_function is compiled
    assert tiny.distance(before, tiny.weights(model)) > 1e-4
    tiny.assert_same_bits(model, other)


def test_an_optimizer_that_is_given_goes_on_as_long_as_it_lasts():
    model = tiny.compiled(classifier())
    for done in (5, 10):
        model.fit(SHORT, THEIRS, epochs=1, verbose=0)
        assert int(model.optimizer.iterations) == done
    with pytest.raises(InputError, match=r"0 after 10 updates.*5 updates after the 10"):
        model.fit(SHORT, THEIRS, epochs=1, verbose=0)
    assert int(model.seed) == 0
