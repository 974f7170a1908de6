"""Metrics of Keras in `compile`: equal to scikit-learn, or an error with the name."""

import dataclasses
import inspect
import os
import subprocess
import sys

import keras
import numpy as np
import pytest
import sklearn.metrics as sk
import tensorflow as tf
import tiny
from conftest import ROOT
from keras import metrics as km

from electra_tf.errors import InputError
from electra_tf.tasks.answerer import QuestionAnswerer
from electra_tf.tasks.classifier import TextClassifier, TextRegressor
from electra_tf.tasks.examples import IGNORE_LABEL
from electra_tf.tasks.tagger import TokenClassifier

ROWS, BATCH = 96, 28  # the last batch has padding rows: all of those of a 2nd replica
TEXTS, _ = tiny.texts(ROWS, longest=6, shortest=6)  # one shape to compile
RNG = np.random.default_rng(5)
WEIGHTS = RNG.uniform(0, 3, ROWS).astype(np.float32)
IDS = {count: RNG.integers(0, count, ROWS) for count in (2, 3)}
SCORES = RNG.uniform(1, 5, ROWS).astype(np.float32)
THRESHOLDS = np.arange(11, dtype=np.float32) / 10


@dataclasses.dataclass
class Rows:
    """Targets, predictions and weights as arrays."""

    y: np.ndarray
    p: np.ndarray
    w: np.ndarray | None

    @property
    def one_hot(self):
        return np.eye(self.p.shape[1])[self.y]

    def binary(self, class_id=None):
        """Class 1 of two, or each class against the others."""
        if class_id is None and self.p.shape[1] > 2:
            weights = None if self.w is None else np.repeat(self.w, self.p.shape[1])
            return Rows(self.one_hot.ravel(), self.p.ravel(), weights)
        class_id = 1 if class_id is None else class_id
        return Rows(self.one_hot[:, class_id], self.p[:, class_id], self.w)

    def call(self, function, targets, predictions, **arguments):
        return function(targets, predictions, sample_weight=self.w, **arguments)


def of_ids(function, **arguments):
    return lambda r: r.call(function, r.y, r.p.argmax(1), **arguments)


def of_probabilities(function, **arguments):
    return lambda r: r.call(function, r.y, r.p, **arguments)


def of_one_hot(function, **arguments):
    return lambda r: r.call(function, r.one_hot, r.p, **arguments)


def at(function, threshold=0.5, class_id=None, **arguments):
    def expected(r):
        b = r.binary(class_id)
        return b.call(function, b.y, b.p > threshold, **arguments)

    return expected


def count(true, predicted):
    def expected(r):
        b = r.binary()
        return b.call(sk.confusion_matrix, b.y, b.p > 0.5)[true, predicted]

    return expected


def best(dependent, constrained, class_id=None):
    """Largest value of a rate where another is 0.5 or more."""

    def expected(r):
        b, found = r.binary(class_id), [0.0]
        for threshold in (-1e-7, *THRESHOLDS[1:-1], 1 + 1e-7):
            values = [
                b.call(f, b.y, b.p > threshold, zero_division=0, pos_label=positive)
                for f, positive in (dependent, constrained)
            ]
            found += [values[0]] * (values[1] >= 0.5)
        return max(found)

    return expected


def auc(class_wise=False):
    def expected(r):
        if not class_wise:
            b = r.binary()
            ranks = np.searchsorted(THRESHOLDS, b.p)
            return b.call(sk.roc_auc_score, b.y, ranks)
        ranks = np.searchsorted(THRESHOLDS, r.p)
        return r.call(sk.roc_auc_score, r.one_hot, ranks, average="macro")

    return expected


def mean(values):
    return lambda r: np.average(values(r), weights=r.w)


def top(k, function):
    """Each class of the k largest probabilities is predicted."""

    def expected(r):
        hits = np.argsort(np.argsort(-r.p)) < k
        weights = None if r.w is None else np.repeat(r.w, r.p.shape[1])
        return function(r.one_hot.ravel(), hits.ravel(), sample_weight=weights)

    return expected


PRECISION, RECALL = (sk.precision_score, 1), (sk.recall_score, 1)
SPECIFICITY = (sk.recall_score, 0)
F2 = {"average": None, "beta": 2.0}


def divergence(r):
    """Keras takes targets of 0 as 1e-7."""
    rest = (1 - r.one_hot) * 1e-7 * np.log(1e-7 / r.p)
    return of_probabilities(sk.log_loss)(r) + mean(lambda r: rest.sum(1))(r)


def iou_of_binary(r):
    return np.mean(at(sk.jaccard_score, average=None)(r))


def binary_log_loss(r):
    b = r.binary()
    return b.call(sk.log_loss, b.y, b.p)


def categorical_hinge(r):
    decisions = r.p if r.p.shape[1] > 2 else r.p[:, 1] - r.p[:, 0]
    return r.call(sk.hinge_loss, r.y, decisions)


def log_cosh(r):
    return np.log(np.cosh(r.p - r.one_hot)).mean(1)


def cosine(r):
    return (r.p * r.one_hot).sum(1) / np.linalg.norm(r.p, axis=1)


def poisson_loss(r):
    weights = None if r.w is None else np.repeat(r.w, r.p.shape[1])
    deviance = sk.mean_poisson_deviance(
        r.one_hot.ravel(), r.p.ravel(), sample_weight=weights
    )
    return deviance / 2 + 1 / r.p.shape[1]  # they differ by the mean target


def class_metrics(classes):
    """Return a list of (metric, expected value of rows)."""
    float_dtype = {"dtype": "float32"}  # by default, metrics of IoU round weights
    many = {"num_thresholds": len(THRESHOLDS)}
    log_loss = of_probabilities(sk.log_loss)
    accuracy = of_ids(sk.accuracy_score)

    def iou(ids):
        return lambda r: np.mean(of_ids(sk.jaccard_score, average=None)(r)[ids])

    everything = list(range(classes))
    served = [
        (km.AUC(**many), auc()),
        (km.AUC(multi_label=True, **many), auc(class_wise=True)),
        (km.Accuracy(), accuracy),
        (km.BinaryAccuracy(), at(sk.accuracy_score)),
        (km.BinaryAccuracy(threshold=0.3), at(sk.accuracy_score, 0.3)),
        (km.BinaryCrossentropy(), binary_log_loss),
        (km.CategoricalAccuracy(), accuracy),
        (km.CategoricalCrossentropy(), log_loss),
        (km.CategoricalCrossentropy(from_logits=True), log_loss),
        (km.CategoricalHinge(), categorical_hinge),
        (km.CosineSimilarity(), mean(cosine)),
        (km.F1Score(), of_ids(sk.f1_score, average=None)),
        (km.F1Score("macro"), of_ids(sk.f1_score, average="macro")),
        (km.F1Score("micro"), of_ids(sk.f1_score, average="micro")),
        (km.F1Score("weighted"), of_ids(sk.f1_score, average="weighted")),
        (km.FBetaScore(beta=2.0), of_ids(sk.fbeta_score, **F2)),
        (km.FalseNegatives(), count(1, 0)),
        (km.FalsePositives(), count(0, 1)),
        (km.IoU(classes, [1], **float_dtype), iou([1])),
        (
            km.IoU(classes, [0], sparse_y_true=False, sparse_y_pred=False,
                   **float_dtype),
            iou([0]),
        ),
        (km.KLDivergence(), divergence),
        (km.LogCoshError(), mean(log_cosh)),
        (km.MeanAbsoluteError(), of_one_hot(sk.mean_absolute_error)),
        (km.MeanIoU(classes, **float_dtype), iou(everything)),
        (km.MeanMetricWrapper(keras.metrics.sparse_categorical_accuracy), accuracy),
        (km.MeanSquaredError(), of_one_hot(sk.mean_squared_error)),
        (km.MeanSquaredLogarithmicError(), of_one_hot(sk.mean_squared_log_error)),
        (km.OneHotIoU(classes, [1], **float_dtype), iou([1])),
        (km.OneHotMeanIoU(classes, **float_dtype), iou(everything)),
        (km.Poisson(), poisson_loss),
        (km.Precision(), at(sk.precision_score)),
        (km.Precision(class_id=0), at(sk.precision_score, class_id=0)),
        (km.Precision(thresholds=0.3), at(sk.precision_score, 0.3)),
        (km.Precision(top_k=1), top(1, sk.precision_score)),
        (km.PrecisionAtRecall(0.5, **many), best(PRECISION, RECALL)),
        (km.R2Score(), of_one_hot(sk.r2_score)),
        (km.Recall(), at(sk.recall_score)),
        (km.Recall(class_id=1), at(sk.recall_score, class_id=1)),
        (km.RecallAtPrecision(0.5, **many), best(RECALL, PRECISION)),
        (km.RootMeanSquaredError(), lambda r: of_one_hot(sk.mean_squared_error)(r)**.5),
        (km.SensitivityAtSpecificity(0.5, **many), best(RECALL, SPECIFICITY)),
        (km.SparseCategoricalAccuracy(), accuracy),
        (km.SparseCategoricalCrossentropy(), log_loss),
        (km.SparseCategoricalCrossentropy(from_logits=True), log_loss),
        (km.SparseTopKCategoricalAccuracy(2), top_k_accuracy),
        (km.SpecificityAtSensitivity(0.5, **many), best(SPECIFICITY, RECALL)),
        (
            km.SpecificityAtSensitivity(0.5, class_id=0, **many),
            best(SPECIFICITY, RECALL, class_id=0),
        ),
        (km.TopKCategoricalAccuracy(2), top_k_accuracy),
        (km.TrueNegatives(), count(0, 0)),
        (km.TruePositives(), count(1, 1)),
        ("accuracy", accuracy),
        ("kl_divergence", divergence),
        (keras.metrics.categorical_accuracy, accuracy),
        (error_of_ids, lambda r: 1 - accuracy(r)),
        (MyPrecision(), at(sk.precision_score)),
    ]  # fmt: skip
    if classes == 2:
        served += [
            (km.AUC(from_logits=True, **many), auc()),
            (km.BinaryCrossentropy(from_logits=True), binary_log_loss),
            (km.BinaryIoU(**float_dtype), iou_of_binary),
        ]
    return served


def top_k_accuracy(r):
    if r.p.shape[1] == 2:
        return 1.0
    return of_probabilities(sk.top_k_accuracy_score, k=2)(r)


def error_of_ids(y_true, y_pred):
    """Metric of a user: class ids [N] and probabilities [N, C]."""
    predicted = keras.ops.cast(keras.ops.argmax(y_pred, -1), "int32")
    assert y_true.shape.rank == 1
    return keras.ops.cast(predicted != keras.ops.cast(y_true, "int32"), "float32")


class MyPrecision(km.Precision):
    """Metric of a user, for the values of its base class."""


def score_metrics():
    """Return a list of (metric, expected value of rows)."""

    def of(function):
        return lambda r: r.call(function, r.y, r.p)

    def poisson_score(r):
        constant = np.average(r.y - r.y * np.log(r.y), weights=r.w)
        return of(sk.mean_poisson_deviance)(r) / 2 + constant

    def log_cosh_score(r):
        return np.average(np.log(np.cosh(r.p - r.y)), weights=r.w)

    return [
        (km.LogCoshError(), log_cosh_score),
        (km.MeanAbsoluteError(), of(sk.mean_absolute_error)),
        (
            km.MeanAbsolutePercentageError(),
            lambda r: 100 * of(sk.mean_absolute_percentage_error)(r),
        ),
        (km.MeanMetricWrapper(score_error), of(sk.mean_absolute_error)),
        (km.MeanSquaredError(), of(sk.mean_squared_error)),
        (km.MeanSquaredLogarithmicError(), of(sk.mean_squared_log_error)),
        (km.Poisson(), poisson_score),
        (km.R2Score(), of(sk.r2_score)),
        (km.RootMeanSquaredError(), of(sk.root_mean_squared_error)),
        ("mse", of(sk.mean_squared_error)),
        ("mae", of(sk.mean_absolute_error)),
        (score_error, of(sk.mean_absolute_error)),
    ]


def score_error(y_true, y_pred):
    return keras.ops.abs(y_true - y_pred)


# Required arguments of constructors.
ARGUMENTS = {
    "IoU": (3, [0]), "MeanIoU": (3,), "OneHotIoU": (3, [0]), "OneHotMeanIoU": (3,),
    "MeanMetricWrapper": (error_of_ids,), "PrecisionAtRecall": (0.5,),
    "RecallAtPrecision": (0.5,), "SensitivityAtSpecificity": (0.5,),
    "SpecificityAtSensitivity": (0.5,),
}  # fmt: skip
UNSUPPORTED = {"Mean", "Sum", "Metric", "PearsonCorrelation", "ConcordanceCorrelation",
               "Hinge", "SquaredHinge", "MeanAbsolutePercentageError"}  # fmt: skip


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
    assert bias.path.endswith("bias")
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
    """Return float64 [N, C], whose rows have the sum 1."""
    examples = model.examples(x)
    logits = np.concatenate([np.atleast_2d(o) for o in model.outputs_of(examples)])
    powers = np.exp(logits.astype(np.float64))
    return powers / powers.sum(-1, keepdims=True)


def check(model, table, rows, *data, weighted, **arguments):
    """Compile with a table, evaluate, and compare."""
    metrics = [metric for metric, _ in table]
    for index, metric in enumerate(metrics):
        if isinstance(metric, km.Metric):
            metric.name += f"_{index}"
    names = [getattr(m, "name", getattr(m, "__name__", m)) for m in metrics]
    kind = "weighted_metrics" if weighted else "metrics"
    model.compile("sgd", **{kind: metrics}, **arguments)
    logs = model.evaluate(*data, return_dict=True, verbose=0)
    assert logs.keys() >= {*names, "loss"}
    rows = rows if weighted else dataclasses.replace(rows, w=None)
    for name, (_, expected) in zip(names, table, strict=True):
        np.testing.assert_allclose(
            logs[name], expected(rows), rtol=1e-6, atol=1e-6, err_msg=name
        )


@pytest.mark.parametrize(("classes", "run_eagerly"), [(2, False), (3, True)])
def test_metrics_of_class_ids_equal_scikit_learn(classes, run_eagerly):
    model, y = make_model("classes", classes), IDS[classes]
    rows = Rows(y, probabilities(model, TEXTS), WEIGHTS)
    data, table = (TEXTS, y, WEIGHTS), class_metrics(classes)
    check(model, table, rows, *data, weighted=True, run_eagerly=run_eagerly)


@pytest.mark.parametrize("classes", [2, 3])
def test_metrics_of_one_hot_rows_equal_scikit_learn(classes):
    model, y = make_model("classes", classes), IDS[classes]
    rows = Rows(y, probabilities(model, TEXTS), WEIGHTS)
    padded = ROWS + 4  # rows without a token
    inputs, targets, weights = model.examples(TEXTS, y).batch(range(ROWS), padded)
    data = tf.data.Dataset.from_tensors((inputs, np.eye(classes)[targets], weights))
    table = [row for row in class_metrics(classes) if row[0] is not error_of_ids]
    check(model, table, rows, data, weighted=False, run_eagerly=True)


def test_metrics_of_tags_equal_scikit_learn():
    model, x = make_model("tags", 3), to_x("tags")
    tags = RNG.integers(0, 3, (ROWS, len(x[0])))
    examples = model.examples(x, [["ABC"[tag] for tag in row] for row in tags])
    is_word = np.array(examples.targets) != IGNORE_LABEL
    p = probabilities(model, x).reshape(ROWS, -1, 3)[:, : is_word.shape[1]][is_word]
    rows = Rows(tags.ravel(), p, np.repeat(WEIGHTS, len(x[0])))
    table = class_metrics(3)
    data = examples.weighted(WEIGHTS)
    check(model, table, rows, data, weighted=True, run_eagerly=True)


@pytest.mark.parametrize("weighted", [False, True])
def test_metrics_of_scores_equal_scikit_learn(weighted):
    model = make_model("scores")
    rows = Rows(SCORES, model.predict(TEXTS).astype(np.float64), WEIGHTS)
    assert rows.p.min() > 0
    data = TEXTS, SCORES, WEIGHTS
    check(model, score_metrics(), rows, *data, weighted=weighted)


def create(name):
    return getattr(km, name)(*ARGUMENTS.get(name, ()))


def test_every_metric_of_keras_is_served_or_refused():
    every = {name for name, value in vars(km).items() if inspect.isclass(value)}
    tables = [class_metrics(2), class_metrics(3), score_metrics()]
    served = [{type(metric).__name__ for metric, _ in table} for table in tables]
    assert every - UNSUPPORTED == every & (served[0] | served[1])
    model, scores = make_model("classes"), make_model("scores")
    for name in sorted(every):
        if name in UNSUPPORTED:
            with pytest.raises(InputError, match=rf"2 classes.*{name} '"):
                model.compile("sgd", metrics=[create(name)])
        if name not in served[2]:
            with pytest.raises(InputError, match=f"TextRegressor.*{name} '"):
                scores.compile("sgd", metrics=[create(name)])


@pytest.mark.parametrize(
    ("metrics", "words"),
    [
        ({"metrics": [km.AUC(name="x"), km.Recall(name="x")]}, "'x'"),
        ({"metrics": ["accuracy"], "weighted_metrics": ["accuracy"]}, "'accuracy'"),
        ({"metrics": [km.Mean(name="loss")]}, "Mean 'loss'"),
        ({"metrics": [km.MeanSquaredError(name="loss")]}, "'loss'"),
        ({"metrics": ["recal"]}, "'recal'"),
        ({"metrics": [keras.losses.MeanSquaredError()]}, "loss MeanSquaredError"),
        ({"metrics": [km.Precision(class_id=5)]}, "Precision 'precision.*5"),
        ({"metrics": [km.Recall(top_k=5)]}, "Recall 'recall.*5"),
        ({"metrics": [km.MeanIoU(2)]}, r"num_classes=2. .*MeanIoU\(3\)"),
        ({"weighted_metrics": [km.MeanIoU(3)]}, "MeanIoU.*dtype, int"),
        ({"metrics": [km.BinaryCrossentropy(from_logits=True)]}, "from_logits=True"),
        ({"metrics": [km.SparseTopKCategoricalAccuracy(from_sorted_ids=True)]},
         "from_sorted_ids"),
        ({"metrics": [km.MeanMetricWrapper(keras.losses.hinge)]}, "hinge"),
        ({"metrics": [keras.losses.dice]}, "dice"),
        ({"metrics": [lambda a, b: b @ a]}, "'lambda', which fails"),
    ],
)  # fmt: skip
def test_refused_metrics_are_named(classifier, metrics, words):
    with pytest.raises(InputError, match=words):
        classifier.compile("sgd", **metrics)
    assert not classifier.compiled


@pytest.fixture(scope="module")
def classifier():
    return make_model("classes", 3)


def test_question_answering_has_no_metrics_of_keras():
    model = QuestionAnswerer(tiny.start(), settings=tiny.settings())
    with pytest.raises(InputError, match=r"QuestionAnswerer.*'accuracy'"):
        model.compile("sgd", metrics=["accuracy"])


def test_names_of_results():
    model = make_model("classes")
    model.compile("sgd", metrics=["acc", "accuracy", km.AUC(name="auc")])
    data = TEXTS[:BATCH], IDS[2][:BATCH]
    history = model.fit(*data, epochs=1, validation_data=data, verbose=0).history
    names = ["loss", "acc", "accuracy", "auc"]
    assert sorted(history) == sorted([*names, *(f"val_{name}" for name in names)])
    results = model.evaluate(*data, verbose=0)
    values = [history[f"val_{name}"][0] for name in names]
    assert results == pytest.approx(values, rel=1e-5)
    assert model.metrics_names == names


def test_metrics_are_restored(tmp_path):
    model = make_model("classes")
    metrics = ["auc", km.Precision(class_id=1, name="mine")]
    model.compile("sgd", metrics=metrics, weighted_metrics=[km.F1Score(name="f1")])
    data = TEXTS, IDS[2], WEIGHTS
    expected = model.evaluate(*data, return_dict=True, verbose=0)
    assert expected.keys() == {"loss", "auc", "mine", "f1", "accuracy"}
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    results = again.evaluate(*data, return_dict=True, verbose=0)
    assert results.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(results[name], value, name)


TWO_REPLICAS = """
from electra_tf.training import strategy
devices = strategy.choose("mirrored", cpu_replicas=2)
from tasks import test_compiled_metrics as tests
with devices.scope():
    tests.test_metrics_of_class_ids_equal_scikit_learn(2, run_eagerly=False)
    tests.test_metrics_of_scores_equal_scikit_learn(weighted=False)
print(devices.num_replicas_in_sync)
"""


def test_a_saved_metric_that_is_refused_now():
    model = make_model("scores")
    model.compile("sgd", metrics=["mse"])
    config = model.get_compile_config() | {"metrics": ["auc"]}
    with pytest.raises(InputError, match=r"AUC.*electra_tf\.load_model"):
        model.compile_from_config(config)


@pytest.mark.slow
def test_metrics_on_two_replicas_equal_scikit_learn():
    done = subprocess.run(
        [sys.executable, "-c", TWO_REPLICAS],
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"},
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split() == ["2"]
