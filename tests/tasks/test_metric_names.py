"""Metrics of `compile` that have names here: equal to other libraries', with modes."""

import keras
import numpy as np
import pytest
import scipy.stats
import sklearn.metrics as sk
import tiny

from electra_tf.tasks.answerer import QuestionAnswerer
from electra_tf.tasks.classifier import TextClassifier
from electra_tf.tasks.compiled_metrics import set_modes
from electra_tf.tasks.data.schemes import to_scheme
from electra_tf.tasks.keras_metrics import named_metric
from electra_tf.tasks.metrics import score_spans
from electra_tf.tasks.tagger import TokenClassifier
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
    fresh,
    make_model,
    probabilities,
)


@pytest.mark.parametrize("classes", [2, 3])
def test_names_of_class_metrics_equal_scikit_learn(classes):
    model, y = make_model("classes", classes), IDS[classes]
    best = probabilities(model, TEXTS).argmax(1)
    average = "binary" if classes == 2 else "macro"
    averages = {"f1": average, "macro_f1": "macro"}
    averages |= {f"f1_{name}": name for name in ("macro", "micro", "weighted")}
    for kind, w in (("metrics", None), ("weighted_metrics", WEIGHTS)):
        w = {"sample_weight": w}
        expected = {
            name: sk.f1_score(y, best, average=average, **w)
            for name, average in averages.items()
        }
        mcc = sk.matthews_corrcoef(y, best, **w)
        expected |= {"mcc": mcc, "matthews_corrcoef": mcc}
        model.compile("sgd", **{kind: list(expected)})
        logs = model.evaluate(TEXTS, y, WEIGHTS, return_dict=True, verbose=0)
        assert {name: logs[name] for name in expected} == pytest.approx(expected)


def test_names_of_correlations_equal_scipy():
    model, counts = make_model("scores"), RNG.integers(1, 4, ROWS)
    scores = SCORES.round()  # with ties
    predicted = model.predict(TEXTS)
    names = ["pearson", "pearsonr", "spearman", "spearmanr"]
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
        model.compile("sgd", **{kind: names})
        for _ in range(2):  # the second evaluation starts anew
            logs = model.evaluate(TEXTS, scores, counts, return_dict=True, verbose=0)
            values = [logs[name] for name in names]
            expected = [pearson, pearson, spearman, spearman]
            assert values == pytest.approx(expected, rel=1e-4, abs=3e-5)
    constant = model.evaluate(TEXTS, [2] * ROWS, return_dict=True, verbose=0)
    assert [constant[name] for name in names] == [0, 0, 0, 0]


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


@pytest.mark.parametrize("scheme", TAGS)
def test_a_tagger_reports_the_f1_of_entities(scheme):
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
    model.compile("sgd", metrics=["f1"])  # it is the same
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


def assert_directions(model, names):
    """Assert that callbacks without `mode` keep the better value of each metric."""
    for name, kind in names.items():
        callback = keras.callbacks.EarlyStopping(monitor=f"val_{name}")
        set_modes([callback], model.metrics)
        callback.set_model(model)
        callback.on_train_begin()
        for epoch, value in enumerate([0.5, 0.6, 0.4]):
            callback.on_epoch_end(epoch, {f"val_{name}": value})
        best = 0.4 if kind in LOWER_IS_BETTER else 0.6
        assert callback.best == best, name


def test_class_metrics_state_which_direction_is_better():
    model, metrics = make_model("classes", 3), []
    for metric in (m for row in class_metrics().values() for m in row):
        metric = fresh(metric)
        metric.name += f"_{len(metrics)}"
        metrics.append(metric)
    own = ["f1", "f1_macro", "f1_micro", "f1_weighted", "mcc"]
    model.compile("sgd", metrics=[*metrics, *own])
    kinds = {m.name: type(m).__name__ for m in metrics}
    unknown = [n for n, kind in kinds.items() if kind == "MeanMetricWrapper"]
    kinds = {n: kind for n, kind in kinds.items() if n not in unknown}
    names = ["loss", "accuracy", *own]
    assert_directions(model, kinds | dict(zip(names, names, strict=True)))
    with pytest.raises(ValueError, match=unknown[0]):  # of a user, as in Keras
        assert_directions(model, {unknown[0]: ""})


def test_fit_knows_the_direction_of_a_monitored_metric():
    model = make_model("classes")
    model.compile(metrics=["f1"])
    callback = keras.callbacks.EarlyStopping("val_f1")
    data = TEXTS[:BATCH], IDS[2][:BATCH]
    model.fit(*data, epochs=2, validation_data=data, callbacks=[callback], verbose=0)
    assert callback.mode == "max"


OTHERS = {  # kind of the model, metrics of `compile`, names
    "scores": (
        [kind() for kind in SCORE_METRICS] + ["pearson", "spearman"], "mse pearson"
    ),
    "tags": (["mcc"], "accuracy mcc"),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_other_metrics_state_which_direction_is_better(name):
    metrics, names = OTHERS[name]
    model = make_model(name, 3)
    model.compile("sgd", metrics=metrics)
    kinds = {metric.name: type(metric).__name__ for metric in metrics[:-2]}
    assert_directions(model, kinds | {name: name for name in names.split()})


def test_own_metrics_of_models_state_which_direction_is_better():
    sets = TextClassifier(tiny.start(), "ab", tiny.settings(), multi_label=True)
    spans = TokenClassifier(tiny.start(), TAGS["BIOES"], tiny.settings())
    answers = QuestionAnswerer(tiny.start(), settings=tiny.settings())
    for model, name in (
        (sets, "subset_accuracy"), (spans, "f1"), (answers, "accuracy")
    ):  # fmt: skip
        model.compile("sgd")
        assert_directions(model, {"loss": "loss", name: name})
