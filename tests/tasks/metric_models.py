"""Models and metrics of Keras for the tests of `compile(metrics=...)`."""

import keras
import numpy as np
import tiny
from keras import metrics as km

from electra_tf.tasks.classifier import TextClassifier, TextRegressor
from electra_tf.tasks.tagger import TokenClassifier

ROWS, BATCH = 96, 28  # the last batch has padding rows: all of those of a 2nd replica
TEXTS, _ = tiny.texts(ROWS, longest=6, shortest=6)  # one shape to compile
RNG = np.random.default_rng(5)
WEIGHTS = RNG.uniform(0, 3, ROWS).astype(np.float32)
IDS = {count: RNG.integers(0, count, ROWS) for count in (2, 3)}
SCORES = RNG.uniform(1, 5, ROWS).astype(np.float32)


def error_of_ids(y_true, y_pred):
    """Metric of a user: class ids [N] and probabilities [N, C]."""
    predicted = keras.ops.cast(keras.ops.argmax(y_pred, -1), "int32")
    return keras.ops.cast(predicted != keras.ops.cast(y_true, "int32"), "float32")


class MyPrecision(km.Precision):
    """Metric of a user, for the values of its base class."""


def class_metrics():
    """Return metrics by the kind of targets and predictions that they compare."""
    return {
        "ids": [
            km.SparseCategoricalAccuracy(), km.SparseCategoricalCrossentropy(),
            km.SparseTopKCategoricalAccuracy(2), error_of_ids,
            km.MeanMetricWrapper(error_of_ids, "wrapped"),
        ],
        "one-hot": [
            km.AUC(multi_label=True), km.CategoricalAccuracy(), km.CategoricalHinge(),
            km.CategoricalCrossentropy(), km.CosineSimilarity(), km.F1Score(),
            km.F1Score("macro"), km.FBetaScore(beta=2.0), km.KLDivergence(),
            km.LogCoshError(), km.MeanAbsoluteError(), km.MeanSquaredError(),
            km.MeanSquaredLogarithmicError(), km.Poisson(), km.R2Score(),
            km.Precision(class_id=0), km.Precision(top_k=1), km.Recall(class_id=1),
            km.SpecificityAtSensitivity(0.5, class_id=0), km.RootMeanSquaredError(),
            km.TopKCategoricalAccuracy(2), keras.metrics.categorical_accuracy,
        ],
        "binary": [
            km.AUC(), km.BinaryAccuracy(), km.BinaryAccuracy(threshold=0.3),
            km.BinaryCrossentropy(), km.FalseNegatives(), km.FalsePositives(),
            km.Precision(), km.Precision(thresholds=0.3), km.PrecisionAtRecall(0.5),
            km.Recall(), km.RecallAtPrecision(0.5), km.SensitivityAtSpecificity(0.5),
            km.SpecificityAtSensitivity(0.5), km.TrueNegatives(), km.TruePositives(),
            MyPrecision(),
        ],
    }  # fmt: skip


SCORE_METRICS = [
    km.LogCoshError, km.MeanAbsoluteError, km.MeanAbsolutePercentageError,
    km.MeanSquaredError, km.MeanSquaredLogarithmicError, km.Poisson, km.R2Score,
    km.RootMeanSquaredError,
]  # fmt: skip


def make_model(name, classes=2):
    """Return a model whose outputs differ between texts."""
    settings = tiny.settings(**tiny.NO_DROPOUT, training_batch_size=BATCH)
    if name == "scores":
        model = TextRegressor(tiny.start(), 1, 5, settings)
    elif name == "tags":
        model = TokenClassifier(tiny.start(), "ABC"[:classes], settings)
    else:
        model = TextClassifier(tiny.start(), "abc"[:classes], settings)
    kernel, bias = model.head.trainable_variables[-2:]
    inputs, *_ = model.examples(to_x(name)).batch(range(ROWS), ROWS)
    outputs_XC = model(inputs).numpy().reshape(-1, bias.shape[-1])
    spread, center = (0.2, 0.5) if name == "scores" else (1.0, 0.0)
    scale = spread / outputs_XC.std(0)
    kernel.assign(kernel * scale)
    bias.assign(center - outputs_XC.mean(0) * scale)
    return model


def to_x(name):
    return [text.split() for text in TEXTS] if name == "tags" else TEXTS


def probabilities(model, x):
    """Return float32 [N, C], whose rows have the sum 1."""
    examples = model.examples(x)
    logits = np.concatenate([np.atleast_2d(o) for o in model.outputs_of(examples)])
    powers = np.exp(logits.astype(np.float64))
    return (powers / powers.sum(-1, keepdims=True)).astype(np.float32)


def fresh(metric):
    if not isinstance(metric, km.Metric):
        return km.MeanMetricWrapper(metric, metric.__name__)
    with keras.saving.custom_object_scope({"error_of_ids": error_of_ids}):
        return type(metric).from_config(metric.get_config())
