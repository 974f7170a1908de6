"""Metrics of Keras in `compile`: right targets and predictions, or a named error."""

import inspect

import keras
import numpy as np
import pytest
from keras import metrics as km

from electra_tf.errors import InputError
from electra_tf.tasks.choice_classifier import ChoiceClassifier
from electra_tf.tasks.classifier import TextClassifier, TextRegressor
from electra_tf.tasks.question_answerer import QuestionAnswerer
from electra_tf.tasks.token_classifier import TokenClassifier
from tests import tiny

ROWS, BATCH = 40, 12  # the last batch has padding rows
TEXTS, _ = tiny.texts(ROWS, longest=6, shortest=6)  # one shape to compile
RNG = np.random.default_rng(5)
WEIGHTS = RNG.uniform(0, 3, ROWS).astype(np.float32)
IDS = RNG.integers(0, 3, ROWS)
INPUTS = {
    "classes": (TEXTS, IDS),
    "label_sets": (TEXTS, RNG.integers(0, 2, (ROWS, 3))),
    "scores": (TEXTS, RNG.uniform(1, 5, ROWS).astype(np.float32)),
    "tags": ([t.split() for t in TEXTS], RNG.integers(0, 3, (ROWS, 7))),
    "choices": ([(text, ["of", "the user", "a"]) for text in TEXTS], IDS),
}
MODELS = {
    "classes": (TextClassifier, {"labels": [*"abc"]}),
    "label_sets": (TextClassifier, {"labels": [*"abc"], "multi_label": True}),
    "scores": (TextRegressor, {"low": 1, "high": 5}),
    "tags": (TokenClassifier, {"tags": [*"ABC"]}),
    "choices": (ChoiceClassifier, {"num_choices": 3}),
    "answers": (QuestionAnswerer, {}),
}


@keras.saving.register_keras_serializable("tests")
def error_of_ids(y_true, y_pred):
    """Metric of a user: class ids [N] and probabilities [N, C]."""
    predicted = keras.ops.cast(keras.ops.argmax(y_pred, -1), "int32")
    return keras.ops.cast(predicted != keras.ops.cast(y_true, "int32"), "float32")


class OneHotPrecision(km.Precision):
    """Metric of a user, which converts the targets itself."""

    def update_state(self, y_true, y_pred, sample_weight=None):
        super().update_state(keras.ops.one_hot(y_true, 3), y_pred, sample_weight)


CLASS_METRICS = [
    km.SparseCategoricalAccuracy, km.SparseCategoricalCrossentropy,
    lambda: km.SparseTopKCategoricalAccuracy(2), OneHotPrecision,
    lambda: km.MeanMetricWrapper(error_of_ids, "wrapped"),
]  # fmt: skip
NUMBER_METRICS = [
    km.LogCoshError, km.MeanAbsoluteError, km.MeanSquaredError, km.Poisson,
    km.MeanSquaredLogarithmicError, km.R2Score, km.RootMeanSquaredError,
]  # fmt: skip
SET_METRICS = [
    km.BinaryAccuracy, *NUMBER_METRICS, km.AUC, lambda: km.AUC(multi_label=True),
    km.BinaryCrossentropy, km.FalseNegatives, km.FalsePositives, km.Precision,
    lambda: km.PrecisionAtRecall(0.5), lambda: km.Recall(class_id=1),
    lambda: km.RecallAtPrecision(0.5), lambda: km.SensitivityAtSpecificity(0.5),
    lambda: km.SpecificityAtSensitivity(0.5), km.TrueNegatives, km.TruePositives,
    lambda: km.F1Score("macro", 0.5), lambda: km.FBetaScore("micro", 2.0, 0.5),
]  # fmt: skip
# The first of each is that of the name "accuracy", but for scores.
METRICS = {
    "classes": CLASS_METRICS, "tags": CLASS_METRICS, "choices": CLASS_METRICS,
    "label_sets": SET_METRICS,
    "scores": [*NUMBER_METRICS, km.MeanAbsolutePercentageError],
}  # fmt: skip


def make_model(name):
    """Return a model whose outputs differ between texts."""
    kind, arguments = MODELS[name]
    settings = tiny.settings(**tiny.NO_DROPOUT, training_batch_size=BATCH)
    model = kind(tiny.start(depth=2), settings=settings, **arguments)
    for kernel in model.encoder.trainable_variables:
        if len(kernel.shape) == 2:
            kernel.assign(kernel * 5)
    if name == "choices":  # which differ in a few words
        model.head.dense.kernel.assign(model.head.dense.kernel * 50)
    return model


def sides(model, name):
    """Return targets, predictions and weights, a row for each text or word."""
    x, y = INPUTS[name]
    predictions, weights = model.predict(x), WEIGHTS
    if name == "tags":
        details = model.predict_details(x)
        predictions = np.concatenate([found.probabilities for found in details])
        y, weights = y.ravel(), np.repeat(weights, y.shape[1])
    if name == "scores":
        y, predictions = y[:, None], predictions[:, None]
    return y.astype(np.int32 if y.ndim == 1 else np.float32), predictions, weights


@pytest.mark.parametrize("argument", ["metrics", "weighted_metrics"])
@pytest.mark.parametrize("name", METRICS)
def test_values_are_those_of_keras(name, argument):
    model = make_model(name)
    metrics, same = ([create() for create in METRICS[name]] for _ in range(2))
    for number, metric in enumerate(metrics):
        metric.name = f"metric_{number}"
    names = ["accuracy", "acc"] if name != "scores" else []
    model.compile("sgd", **{argument: [*metrics, *names]}, run_eagerly=True)
    logs = model.evaluate(*INPUTS[name], WEIGHTS, return_dict=True, verbose=0)
    assert ("subset_accuracy" in logs) == (name == "label_sets")
    *pair, weights = sides(model, name)
    assert pair[1].std(0).max() > 0.01
    for metric, one in zip(metrics, same, strict=True):
        one.update_state(*pair, weights if argument == "weighted_metrics" else None)
        # `evaluate` uses the fused operations, `predict` of few texts the plain ones.
        # A probability at a threshold of AUC may be on its other side then.
        atol = 1e-3 if isinstance(one, km.AUC) else 3e-5
        value, expected = logs[metric.name], one.result()
        np.testing.assert_allclose(value, expected, 1e-4, atol, err_msg=repr(one))
    for accuracy in names:
        assert logs[accuracy] == pytest.approx(float(same[0].result()))


@pytest.mark.parametrize("name", ["classes", "label_sets", "scores"])
def test_every_other_metric_of_keras_is_refused_by_name(name):
    model = make_model(name)
    served = {type(create()).__name__ for create in METRICS[name]}
    every = {n for n, value in vars(km).items() if inspect.isclass(value)}
    arguments = {"IoU": (3, [0]), "MeanIoU": (3,), "OneHotIoU": (3, [0])}
    arguments |= {"OneHotMeanIoU": (3,)}
    for other in sorted(every - served - {"MeanMetricWrapper"}):
        given = arguments.get(other, (0.5,) if "At" in other else ())
        metric = getattr(km, other)(*given)
        with pytest.raises(InputError, match=rf"{type(model).__name__}.* {other} '"):
            model.compile("sgd", metrics=[metric])
    assert not model.compiled


class MyPrecision(km.Precision):
    """Metric of a user, for the targets of its base class."""


@pytest.mark.parametrize(
    ("name", "metric", "words"),
    [
        ("classes", "recal", "'recal'"),
        ("classes", "auc", "AUC 'auc'"),
        ("classes", MyPrecision(name="mine"), "Precision 'mine'"),
        ("classes", keras.losses.MeanSquaredError(), "mean_squared_error"),
        ("classes", km.categorical_accuracy, "'categorical_accuracy'"),
        ("classes", km.SparseCategoricalCrossentropy(from_logits=True), "from_logits"),
        ("label_sets", km.F1Score(), "threshold=None"),
        ("scores", "accuracy", "Accuracy 'accuracy'"),
        ("answers", "accuracy", "QuestionAnswerer.* 'accuracy'"),
    ],
)
def test_refused_metrics_are_named(name, metric, words):
    with pytest.raises(InputError, match=words):
        make_model(name).compile("sgd", metrics=[metric])


def test_names_and_order_of_results_also_after_loading(tmp_path):
    model = make_model("classes")
    metrics = ["acc", "accuracy", error_of_ids]
    model.compile("sgd", metrics=metrics, run_eagerly=True)
    data = TEXTS[:BATCH], IDS[:BATCH]
    history = model.fit(*data, epochs=1, validation_data=data, verbose=0).history
    names = ["loss", "acc", "accuracy", "error_of_ids"]
    assert sorted(history) == sorted([*names, *(f"val_{name}" for name in names)])
    values = [history[f"val_{name}"][0] for name in names]
    assert model.evaluate(*data, verbose=0) == pytest.approx(values, rel=1e-5)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    results = again.evaluate(*data, return_dict=True, verbose=0)
    assert results == pytest.approx(dict(zip(names, values, strict=True)))


@pytest.mark.parametrize(
    ("name", "monitored", "best"),
    [
        ("classes", "loss", min), ("classes", "accuracy", max),
        ("label_sets", "subset_accuracy", max), ("scores", "mse", min),
        ("scores", "mean_absolute_error", min), ("scores", "r2_score", max),
    ],
)  # fmt: skip
def test_callbacks_keep_the_better_value_of_a_metric(name, monitored, best):
    model, data = make_model(name), [side[:BATCH] for side in INPUTS[name]]
    own = monitored in ("loss", "accuracy", "subset_accuracy", "mse")
    model.compile("sgd", weighted_metrics=None if own else [monitored])
    model.evaluate(*data, verbose=0)
    callback = keras.callbacks.EarlyStopping(monitor=f"val_{monitored}")
    callback.set_model(model)
    callback.on_train_begin()
    for epoch, value in enumerate([0.5, 0.6, 0.4]):
        callback.on_epoch_end(epoch, {f"val_{monitored}": value})
    assert callback.best == best(0.4, 0.6)
