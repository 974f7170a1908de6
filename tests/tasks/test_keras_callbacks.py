"""Keras's callbacks: checkpoints, early stopping, backups, learning rates."""

import keras
import pytest

from electra_tf.errors import InputError
from electra_tf.tasks.classifier import TextClassifier
from tests import tiny

TEXTS, LABELS = tiny.texts(24, longest=11, shortest=10)


def make_model(**changes):
    settings = tiny.settings(**{**tiny.NO_DROPOUT, **changes})
    return TextClassifier(tiny.start(), ["bad", "good"], settings, 0)


def test_keras_callbacks(tmp_path):
    model = make_model()
    best = str(tmp_path / "best.keras")
    stop = keras.callbacks.EarlyStopping(
        "val_loss", patience=1, min_delta=10, restore_best_weights=True
    )
    callbacks = [
        keras.callbacks.ModelCheckpoint(best, "val_loss", save_best_only=True),
        keras.callbacks.ModelCheckpoint(
            str(tmp_path / "last.weights.h5"), save_weights_only=True
        ),
        keras.callbacks.TensorBoard(str(tmp_path / "board"), histogram_freq=1),
        stop,
    ]
    history = model.fit(
        TEXTS, LABELS, validation_split=0.25, epochs=5, callbacks=callbacks, verbose=0
    ).history
    assert len(history["loss"]) == 2  # no epoch improves by min_delta
    assert list((tmp_path / "board" / "train").glob("events*"))
    assert list((tmp_path / "board" / "validation").glob("events*"))
    loss = keras.saving.load_model(best).evaluate(TEXTS[18:], LABELS[18:], verbose=0)[0]
    assert loss == pytest.approx(min(history["val_loss"]), rel=1e-4)
    restored = model.evaluate(TEXTS[18:], LABELS[18:], verbose=0)[0]
    assert restored == pytest.approx(history["val_loss"][0], rel=1e-4)


def test_callbacks_know_the_direction_of_the_monitored_metric(tmp_path):
    best = str(tmp_path / "best.keras")
    options = {"monitor": "val_accuracy"}
    other = keras.callbacks.Callback()
    other.mode = "auto"  # and no monitor
    stop = keras.callbacks.EarlyStopping(patience=9, **options)
    callbacks = [
        stop,
        keras.callbacks.ModelCheckpoint(best, save_best_only=True, **options),
        keras.callbacks.ReduceLROnPlateau(**options),
        other,
    ]
    model = make_model(training_batch_size=18)
    model.compile(keras.optimizers.SGD(0.5), run_eagerly=True)
    history = model.fit(
        TEXTS, LABELS, validation_split=0.25, epochs=4, callbacks=callbacks, verbose=0
    ).history
    values = history["val_accuracy"]
    assert stop.best == max(values) > min(values)
    again = keras.saving.load_model(best)
    results = again.evaluate(TEXTS[18:], LABELS[18:], verbose=0, return_dict=True)
    assert results["accuracy"] == pytest.approx(max(values))
    mean = model.metrics[0]  # of the last validation
    assert float(mean.total) / float(mean.count) == pytest.approx(
        history["val_loss"][-1], rel=1e-5
    )


class _InterruptCallback(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        if epoch == 1:
            raise KeyboardInterrupt


@pytest.mark.runs
def test_an_interrupted_training_resumes_from_its_backup(tmp_path):
    def train(model, **arguments):
        return model.fit(TEXTS, LABELS, epochs=4, verbose=0, **arguments)

    def backup():
        return keras.callbacks.BackupAndRestore(str(tmp_path / "backup"))

    uninterrupted = make_model(model_dropout=0.1)
    train(uninterrupted)
    with pytest.raises(KeyboardInterrupt):
        train(make_model(model_dropout=0.1), callbacks=[backup(), _InterruptCallback()])
    resumed = make_model(model_dropout=0.1)
    history = train(resumed, callbacks=[backup()])
    assert history.epoch == [2, 3]
    tiny.assert_same_bits(uninterrupted, resumed)


class _Assign(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        self.model.optimizer.learning_rate = 0.1


@pytest.mark.parametrize(
    "callback",
    [
        keras.callbacks.LearningRateScheduler(lambda epoch: 0.1),
        keras.callbacks.ReduceLROnPlateau(monitor="loss"),
        _Assign(),
    ],
)
def test_callbacks_that_set_the_rate_need_an_optimizer(callback):
    model = make_model()
    with pytest.raises(InputError, match=r"compile\(optimizer=keras"):
        model.fit(TEXTS, LABELS, verbose=0, callbacks=[callback])
    model.compile(keras.optimizers.SGD(0.5), run_eagerly=True)
    model.fit(TEXTS, LABELS, epochs=1, verbose=0, callbacks=[callback])
