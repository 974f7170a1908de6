"""Metrics of Keras in `compile`: right targets and predictions, or a named error."""

import inspect
from typing import NamedTuple

import keras
import numpy as np
import pytest
import tensorflow as tf
import tiny
from conftest import python
from keras import metrics as km

from electra_tf.errors import InputError
from electra_tf.tasks.answerer import QuestionAnswerer
from electra_tf.tasks.examples import IGNORE_LABEL
from tasks.metric_models import (
    BATCH,
    IDS,
    RNG,
    ROWS,
    SCORE_METRICS,
    SCORES,
    TEXTS,
    WEIGHTS,
    class_metrics,
    error_of_ids,
    fresh,
    make_model,
    probabilities,
    to_x,
)

# Required arguments of constructors.
ARGUMENTS = {
    "IoU": (3, [0]), "MeanIoU": (3,), "OneHotIoU": (3, [0]), "OneHotMeanIoU": (3,),
    "MeanMetricWrapper": (error_of_ids,), "PrecisionAtRecall": (0.5,),
    "RecallAtPrecision": (0.5,), "SensitivityAtSpecificity": (0.5,),
    "SpecificityAtSensitivity": (0.5,),
}  # fmt: skip
UNSUPPORTED = {"Mean", "Sum", "Metric", "PearsonCorrelation", "ConcordanceCorrelation",
               "Hinge", "SquaredHinge", "MeanAbsolutePercentageError", "Accuracy",
               "IoU", "MeanIoU", "OneHotIoU", "OneHotMeanIoU", "BinaryIoU"}  # fmt: skip


class Rows(NamedTuple):
    """Class ids, probabilities and weights of rows."""

    y: np.ndarray
    p: np.ndarray
    w: np.ndarray | None

    def values(self, kind):
        """Return the targets and predictions that a kind of metrics compares."""
        one_hot = np.eye(self.p.shape[1], dtype=np.float32)[self.y]
        binary = slice(1, None) if self.p.shape[1] == 2 else slice(None)
        return {
            "ids": (self.y, self.p),
            "one-hot": (one_hot, self.p),
            # Class 1 of two, else each class against the others.
            "binary": (one_hot[:, binary], self.p[:, binary]),
        }[kind]


def check(model, expected, *data, weighted, **arguments):
    """Evaluate with (metric, targets, predictions, weights), and compare."""
    metrics = [metric for metric, *_ in expected]
    for index, metric in enumerate(metrics):
        if isinstance(metric, km.Metric):
            metric.name += f"_{index}"
    kind = "weighted_metrics" if weighted else "metrics"
    model.compile("sgd", **{kind: metrics}, **arguments)
    logs = model.evaluate(*data, return_dict=True, verbose=0)
    for metric, targets, predictions, weights in expected:
        one, name = fresh(metric), getattr(metric, "name", None) or metric.__name__
        one.update_state(targets, predictions, weights if weighted else None)
        # `evaluate` uses the fused operations, `predict` of few texts the plain ones.
        np.testing.assert_allclose(
            logs[name], one.result(), rtol=1e-4, atol=3e-5, err_msg=name
        )
    return logs


def check_classes(model, rows, *data, weighted, without_own=False, **arguments):
    expected = [
        (metric, *rows.values(kind), rows.w)
        for kind, metrics in class_metrics().items()
        for metric in metrics
        if not (without_own and fresh(metric).name in ("error_of_ids", "wrapped"))
    ]
    check(model, expected, *data, weighted=weighted, **arguments)


@pytest.mark.parametrize(("classes", "run_eagerly"), [(2, False), (3, True)])
def test_metrics_of_class_ids(classes, run_eagerly):
    model, y = make_model("classes", classes), IDS[classes]
    rows = Rows(y, probabilities(model, TEXTS), WEIGHTS)
    data = TEXTS, y, WEIGHTS
    check_classes(model, rows, *data, weighted=True, run_eagerly=run_eagerly)


@pytest.mark.parametrize("classes", [2, 3])
def test_metrics_of_one_hot_rows(classes):
    model, y = make_model("classes", classes), IDS[classes]
    rows = Rows(y, probabilities(model, TEXTS), WEIGHTS)
    padded = ROWS + 4  # rows without a token
    inputs, targets, weights = model.examples(TEXTS, y).batch(range(ROWS), padded)
    data = tf.data.Dataset.from_tensors((inputs, np.eye(classes)[targets], weights))
    check_classes(model, rows, data, weighted=False, without_own=True, run_eagerly=True)


def test_metrics_of_tags():
    model, x = make_model("tags", 3), to_x("tags")
    tags = RNG.integers(0, 3, (ROWS, len(x[0])))
    examples = model.examples(x, [["ABC"[tag] for tag in row] for row in tags])
    is_word = np.array(examples.targets) != IGNORE_LABEL
    p = probabilities(model, x).reshape(ROWS, -1, 3)[:, : is_word.shape[1]][is_word]
    rows = Rows(tags.ravel(), p, np.repeat(WEIGHTS, len(x[0])))
    data = examples.weighted(WEIGHTS)
    check_classes(model, rows, data, weighted=True, run_eagerly=True)


def score_error(y_true, y_pred):
    return keras.ops.abs(y_true - y_pred)


@pytest.mark.parametrize("weighted", [False, True])
def test_metrics_of_scores(weighted):
    model = make_model("scores")
    values = SCORES[:, None], model.predict(TEXTS)[:, None], WEIGHTS
    assert values[1].min() > 0
    metrics = [*(create() for create in SCORE_METRICS), score_error]
    expected = [(metric, *values) for metric in metrics]
    check(model, expected, TEXTS, SCORES, WEIGHTS, weighted=weighted)


def create(name):
    return getattr(km, name)(*ARGUMENTS.get(name, ()))


def test_every_metric_of_keras_is_served_or_refused():
    every = {name for name, value in vars(km).items() if inspect.isclass(value)}
    metrics = [m for one in class_metrics().values() for m in one]
    served = {type(metric).__name__ for metric in metrics}
    assert every - UNSUPPORTED == every & served
    model, scores = make_model("classes"), make_model("scores")
    for name in sorted(every):
        if name in UNSUPPORTED:
            with pytest.raises(InputError, match=rf"TextClassifier.*{name} '"):
                model.compile("sgd", metrics=[create(name)])
        if getattr(km, name) not in [*SCORE_METRICS, km.MeanMetricWrapper]:
            with pytest.raises(InputError, match=f"TextRegressor.*{name} '"):
                scores.compile("sgd", metrics=[create(name)])


@pytest.fixture(scope="module")
def classifier():
    return make_model("classes", 3)


@pytest.mark.parametrize(
    ("metrics", "words"),
    [
        ({"metrics": [km.AUC(name="x"), km.Recall(name="x")]}, "'x'"),
        ({"metrics": ["accuracy"], "weighted_metrics": ["accuracy"]}, "'accuracy'"),
        ({"metrics": [km.Mean(name="loss")]}, "Mean 'loss'"),
        ({"metrics": [km.MeanSquaredError(name="loss")]}, "'loss'"),
        ({"metrics": ["recal"]}, "'recal'"),
        ({"metrics": ["pearson"]}, "Pearson 'pearson'"),
        ({"metrics": [keras.losses.MeanSquaredError()]}, "mean_squared_error"),
        ({"metrics": [km.Precision(class_id=5)]}, "Precision 'precision.*5"),
        ({"metrics": [km.Recall(top_k=5)]}, "Recall 'recall.*5"),
        ({"metrics": [km.BinaryCrossentropy(from_logits=True)]}, "from_logits=True"),
        ({"metrics": [km.SparseTopKCategoricalAccuracy(from_sorted_ids=True)]},
         "from_sorted_ids"),
        ({"metrics": [keras.losses.hinge]}, "Hinge 'hinge'"),
        ({"metrics": [keras.losses.dice]}, "dice"),
        ({"metrics": [lambda a, b: b @ a]}, "'lambda', which fails"),
    ],
)  # fmt: skip
def test_refused_metrics_are_named(classifier, metrics, words):
    with pytest.raises(InputError, match=words):
        classifier.compile("sgd", **metrics)
    assert not classifier.compiled


def test_question_answering_has_no_metrics_of_keras():
    model = QuestionAnswerer(tiny.start(), settings=tiny.settings())
    with pytest.raises(InputError, match=r"QuestionAnswerer.*'accuracy'"):
        model.compile("sgd", metrics=["accuracy"])


def test_names_and_order_of_results():
    model = make_model("classes")
    model.compile("sgd", metrics=["acc", "accuracy", km.AUC(name="auc")])
    data = TEXTS[:BATCH], IDS[2][:BATCH]
    history = model.fit(*data, epochs=1, validation_data=data, verbose=0).history
    names = ["loss", "acc", "accuracy", "auc"]
    assert sorted(history) == sorted([*names, *(f"val_{name}" for name in names)])
    values = [history[f"val_{name}"][0] for name in names]
    assert model.evaluate(*data, verbose=0) == pytest.approx(values, rel=1e-5)
    assert model.metrics_names == names


def test_metrics_are_restored(tmp_path):
    model = make_model("classes")
    metrics = ["auc", "mcc", km.Precision(class_id=1, name="mine")]
    model.compile("sgd", metrics=metrics, weighted_metrics=[km.F1Score(name="f1")])
    data = TEXTS, IDS[2], WEIGHTS
    expected = model.evaluate(*data, return_dict=True, verbose=0)
    assert expected.keys() == {"loss", "auc", "mcc", "mine", "f1", "accuracy"}
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    results = again.evaluate(*data, return_dict=True, verbose=0)
    assert results.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(results[name], value, name)


TWO_REPLICAS = """
from electra_tf.training import strategy
devices = strategy.choose("mirrored", cpu_replicas=2)
from tasks import test_compiled_metrics as tests, test_metric_names as names
with devices.scope():
    tests.test_metrics_of_class_ids(2, run_eagerly=False)
    tests.test_metrics_of_scores(weighted=False)
    names.test_names_of_class_metrics_equal_scikit_learn(3)
    names.test_names_of_correlations_equal_scipy()
    names.test_a_tagger_reports_the_f1_of_entities("IOB2")
print(devices.num_replicas_in_sync)
"""


@pytest.mark.slow
def test_metrics_on_two_replicas():
    done = python("-c", TWO_REPLICAS)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split() == ["2"]
