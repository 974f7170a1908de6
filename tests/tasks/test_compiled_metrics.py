"""Metrics of Keras in `compile`: right targets and predictions, or a named error.

Metrics that have names here are equal to other libraries'.
"""

import inspect
from typing import NamedTuple

import keras
import numpy as np
import pytest
import scipy.stats
import sklearn.metrics as sk
import tensorflow as tf
from keras import metrics as km

from electra_tf.errors import InputError
from electra_tf.tasks.classifier import TextClassifier, TextRegressor
from electra_tf.tasks.compiled_metrics import named_metric, set_modes
from electra_tf.tasks.data.schemes import to_scheme
from electra_tf.tasks.examples import IGNORE_LABEL
from electra_tf.tasks.metrics import score_spans
from electra_tf.tasks.question_answerer import QuestionAnswerer
from electra_tf.tasks.token_classifier import TokenClassifier
from tests import tiny
from tests.conftest import python

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
        model = TextRegressor(tiny.start(depth=2), 1, 5, settings)
    elif name == "tags":
        model = TokenClassifier(tiny.start(), [*"ABC"][:classes], settings)
    else:
        model = TextClassifier(tiny.start(), [*"abc"][:classes], settings)
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
        # A probability at a threshold of AUC may be on its other side then.
        atol = 2e-4 if isinstance(one, km.AUC) else 3e-5
        np.testing.assert_allclose(
            logs[name], one.result(), rtol=1e-4, atol=atol, err_msg=name
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


@pytest.mark.parametrize(("classes", "run_eagerly"), [(2, True)])
def test_metrics_of_class_ids(classes, run_eagerly):
    model, y = make_model("classes", classes), IDS[classes]
    rows = Rows(y, probabilities(model, TEXTS), WEIGHTS)
    data = TEXTS, y, WEIGHTS
    check_classes(model, rows, *data, weighted=True, run_eagerly=run_eagerly)


def test_metrics_of_one_hot_rows():
    model, y = make_model("classes", 3), IDS[3]
    rows = Rows(y, probabilities(model, TEXTS), WEIGHTS)
    padded = ROWS + 4  # rows without a token
    inputs, targets, weights = model.examples(TEXTS, y).batch(range(ROWS), padded)
    data = tf.data.Dataset.from_tensors((inputs, np.eye(3)[targets], weights))
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


@pytest.mark.parametrize("weighted", [True])
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
    metrics = ["acc", "accuracy", km.AUC(name="auc")]
    model.compile("sgd", metrics=metrics, run_eagerly=True)
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


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("run_eagerly", [True])
def test_names_of_class_metrics_equal_scikit_learn(classes, run_eagerly):
    model, y = make_model("classes", classes), IDS[classes]
    best = probabilities(model, TEXTS).argmax(1)
    average = "binary" if classes == 2 else "macro"
    averages = {"f1": average}
    averages |= {f"f1_{name}": name for name in ("macro", "micro", "weighted")}
    for kind, w in (("metrics", None), ("weighted_metrics", WEIGHTS)):
        w = {"sample_weight": w}
        expected = {
            name: sk.f1_score(y, best, average=average, **w)
            for name, average in averages.items()
        }
        expected["mcc"] = sk.matthews_corrcoef(y, best, **w)
        model.compile("sgd", **{kind: list(expected)}, run_eagerly=run_eagerly)
        logs = model.evaluate(TEXTS, y, WEIGHTS, return_dict=True, verbose=0)
        assert {name: logs[name] for name in expected} == pytest.approx(expected)


@pytest.mark.parametrize("run_eagerly", [True])
def test_names_of_correlations_equal_scipy(run_eagerly):
    model, counts = make_model("scores"), RNG.integers(1, 4, ROWS)
    scores = SCORES.round()  # with ties
    predicted = model.predict(TEXTS)
    names = ["pearson", "spearman"]
    sides = {
        "metrics": (scores, predicted),
        # A weight is a number of copies.
        "weighted_metrics": (scores.repeat(counts), predicted.repeat(counts)),
    }
    for kind, (gold, values) in sides.items():
        pearson, spearman = (
            measure(gold, values).statistic
            for measure in (scipy.stats.pearsonr, scipy.stats.spearmanr)
        )
        model.compile("sgd", **{kind: names}, run_eagerly=run_eagerly)
        for _ in range(2):  # the second evaluation starts anew
            logs = model.evaluate(TEXTS, scores, counts, return_dict=True, verbose=0)
            values = [logs[name] for name in names]
            assert values == pytest.approx([pearson, spearman], rel=1e-4, abs=3e-5)
    constant = model.evaluate(TEXTS, [2] * ROWS, return_dict=True, verbose=0)
    assert [constant[name] for name in names] == [0, 0]


def test_constant_predictions_have_no_correlation():
    for name in ("f1", "mcc"):
        metric = named_metric(name, 3)
        metric.update_state(np.eye(3)[[0, 1, 1]], [[0.1, 0.2, 0.7]] * 3)
        assert metric.result() == 0
    for name in ("pearson", "spearman"):
        metric = named_metric(name, 1)
        metric.update_state([[5.0], [1.0], [1.0]], [[9.0], [0.1], [0.1]], [0, 1, 1])
        assert metric.result() == 0


TAGS = {
    "BIOES": ("O", *(f"{mark}-{kind}" for mark in "BIES" for kind in ("PER", "LOC"))),
    "IOB2": ("O", *(f"{mark}-{kind}" for mark in "BI" for kind in ("PER", "LOC"))),
}


@pytest.mark.parametrize(("scheme", "run_eagerly"), [("IOB2", True)])
def test_a_tagger_reports_the_f1_of_entities(scheme, run_eagerly):
    seqeval = pytest.importorskip("seqeval.metrics")
    settings = tiny.settings(**tiny.NO_DROPOUT, training_batch_size=BATCH)
    model = TokenClassifier(tiny.start(), TAGS[scheme], settings)
    model.head.trainable_variables[0].assign(RNG.normal(size=(16, len(TAGS[scheme]))))
    x = [text.split()[: 1 + n % 6] for n, text in enumerate(TEXTS)]
    likely = [tags for tags in model.predict(x)]
    gold = [
        to_scheme([t if RNG.random() < 0.7 else "O" for t in tags], scheme)
        for tags in likely
    ]
    predicted = [to_scheme(tags, scheme) for tags in likely]
    f1 = seqeval.f1_score(gold, predicted)
    assert 0.2 < f1 < 0.95
    assert 100 * f1 == pytest.approx(score_spans(gold, likely)["f1"])
    names = ["loss", "accuracy", "f1"]
    assert model.evaluate(x, gold, verbose=0, return_dict=True).keys() == set(names)
    model.compile("sgd", metrics=["f1"], run_eagerly=run_eagerly)  # it is the same
    assert model.metrics_names == names
    assert model.evaluate(x, gold, verbose=0)[2] == pytest.approx(f1)
    counts = RNG.integers(0, 3, ROWS)
    copies = np.repeat(np.arange(ROWS), counts)
    weighted = model.evaluate(x, gold, counts, verbose=0)[2]
    sides = [[side[row] for row in copies] for side in (gold, predicted)]
    assert weighted == pytest.approx(seqeval.f1_score(*sides))


def test_tags_of_single_words_have_no_f1_of_entities():
    model = make_model("tags")
    model.compile("sgd", metrics=["f1"])  # of the two tags of words
    assert [type(metric).__name__ for metric in model.metrics][1] == "BinaryF1"
    model.compile("sgd")
    assert model.metrics_names == ["loss", "accuracy"]


LOWER_IS_BETTER = [
    "loss", "mse", "BinaryCrossentropy", "CategoricalCrossentropy", "CategoricalHinge",
    "FalseNegatives", "FalsePositives", "KLDivergence", "LogCoshError",
    "MeanAbsoluteError", "MeanAbsolutePercentageError", "MeanSquaredError",
    "MeanSquaredLogarithmicError", "Poisson", "RootMeanSquaredError",
    "SparseCategoricalCrossentropy",
]  # fmt: skip
CLASS_METRICS = [fresh(m) for row in class_metrics().values() for m in row]
CLASS_METRICS = [m for m in CLASS_METRICS if type(m) is not km.MeanMetricWrapper]
COMPILED = {  # model, metrics of `compile`, names that the model has beside them
    "classes": (
        lambda: make_model("classes", 3),
        [*CLASS_METRICS, "f1", "f1_macro", "f1_micro", "f1_weighted", "mcc"],
        "accuracy f1 f1_macro f1_micro f1_weighted mcc",
    ),
    "scores": (
        lambda: make_model("scores"),
        [*(kind() for kind in SCORE_METRICS), "pearson", "spearman"],
        "mse pearson spearman",
    ),
    "label sets": (
        lambda: TextClassifier(
            tiny.start(), ["a", "b"], tiny.settings(), multi_label=True
        ),
        [], "subset_accuracy",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", COMPILED)
def test_callbacks_keep_the_better_value_of_each_metric(name):
    make, metrics, names = COMPILED[name]
    model, kinds = make(), {name: name for name in ["loss", *names.split()]}
    for number, metric in enumerate(metrics):
        if isinstance(metric, km.Metric):
            metric.name += f"_{number}"
            kinds[metric.name] = type(metric).__name__
    model.compile("sgd", metrics=metrics)
    for monitored, kind in kinds.items():
        callback = keras.callbacks.EarlyStopping(monitor=f"val_{monitored}")
        set_modes([callback], model.metrics)
        callback.set_model(model)
        callback.on_train_begin()
        for epoch, value in enumerate([0.5, 0.6, 0.4]):
            callback.on_epoch_end(epoch, {f"val_{monitored}": value})
        best = 0.4 if kind in LOWER_IS_BETTER else 0.6
        assert callback.best == best, monitored


def test_fit_sets_the_mode_of_its_metrics_alone():
    model = make_model("classes")
    model.compile(metrics=["f1", error_of_ids], run_eagerly=True)
    callback = keras.callbacks.EarlyStopping("val_f1")
    data = TEXTS[:BATCH], IDS[2][:BATCH]
    model.fit(*data, epochs=2, validation_data=data, callbacks=[callback], verbose=0)
    assert callback.mode == "max"
    callback = keras.callbacks.EarlyStopping("val_error_of_ids")  # of a user
    set_modes([callback], model.metrics)
    assert callback.mode == "auto"


TWO_REPLICAS = """
from electra_tf.training import strategy
devices = strategy.choose("mirrored", cpu_replicas=2)
from tests.tasks import test_compiled_metrics as tests
with devices.scope():
    tests.test_metrics_of_class_ids(2, run_eagerly=False)
    tests.test_metrics_of_scores(weighted=False)
    tests.test_names_of_class_metrics_equal_scikit_learn(3, run_eagerly=False)
    tests.test_names_of_correlations_equal_scipy(run_eagerly=False)
    tests.test_a_tagger_reports_the_f1_of_entities("IOB2", run_eagerly=False)
print(devices.num_replicas_in_sync)
"""


@pytest.mark.slow
def test_metrics_on_two_replicas():
    done = python("-c", TWO_REPLICAS)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split() == ["2"]
