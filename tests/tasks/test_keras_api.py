"""Keras's API on texts: weights, splits, single batches, policies, callbacks."""

import functools
import pathlib
import sys
import warnings

import keras
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

from electra_tf.errors import InputError
from electra_tf.tasks.classifier import TextClassifier, TextRegressor
from electra_tf.tasks.data.splits import Split
from electra_tf.tasks.examples import IGNORE_LABEL
from electra_tf.tasks.question_answerer import QuestionAnswerer
from electra_tf.tasks.task_data import TaskData
from electra_tf.tasks.token_classifier import TokenClassifier
from tests import tiny
from tests.conftest import RUN

TEXTS, LABELS = tiny.texts(24, longest=11, shortest=10)
WEIGHTS = np.random.default_rng(1).uniform(0, 3, 24).astype(np.float32)
SCORES = np.random.default_rng(2).uniform(1, 5, 24).astype(np.float32)
SENTENCES = [text.split() for text in TEXTS]
TAGS = [["AB"[word == tiny.GOOD] for word in words] for words in SENTENCES]
QUESTIONS = [("of", text) for text in TEXTS]
ANSWERS = [("and", t.index("and")) if n % 2 and "and" in t else None
           for n, t in enumerate(TEXTS)]  # fmt: skip

TASKS = {
    "classes": (TEXTS, LABELS),
    "scores": (TEXTS, SCORES),
    "tags": (SENTENCES, TAGS),
    "answers": (QUESTIONS, ANSWERS),
}


def make_model(name, seed=0, **changes):
    """Return a model without dropout; sentences and questions need several inputs."""
    changes = {**tiny.NO_DROPOUT, **changes}
    settings = tiny.settings(**changes)
    if name == "classes":
        return TextClassifier(tiny.start(), ["bad", "good"], settings, seed)
    if name == "scores":
        return TextRegressor(tiny.start(), 1, 5, settings, seed)
    short = tiny.settings(**changes, data_max_length=12, data_doc_stride=4)
    if name == "tags":
        return TokenClassifier(tiny.start(), ["A", "B"], short, seed)
    return QuestionAnswerer(tiny.start(), 0.0, short, seed)


@pytest.fixture(scope="module")
def models():
    """Return a model of each task, trained by SGD, whose updates are gradients."""
    models = {name: make_model(name) for name in TASKS}
    for model in models.values():
        model.compile(keras.optimizers.SGD(0.5))
    return models


@pytest.fixture
def model(models):
    model = models["classes"]
    tiny.reset(model)
    model.pairs = None
    return model


def rows(values, indices):
    return [values[index] for index in indices]


def softmax(logits):
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def expected_sums(name, model):
    """Return sums of loss and metric, and the number of words, of each item."""
    x, y = TASKS[name]
    examples = model.examples(x, y)
    outputs = model.outputs_of(examples)
    sums = np.zeros((len(x), 3))
    for index, output in enumerate(outputs):
        if name == "classes":
            gold = y[index]
            loss = -np.log(softmax(output.astype(np.float64))[gold])
            sums[index] = loss, output.argmax() == gold, 1
        elif name == "scores":
            error = (float(output[0]) - (y[index] - 1) / 4) ** 2
            sums[index] = error, error * 16, 1
        else:
            target = np.array(examples.targets[index])
            labelled = target != IGNORE_LABEL
            logits = output[: len(target)].astype(np.float64)[labelled]
            gold = target[labelled]
            losses = -np.log(softmax(logits)[range(len(gold)), gold])
            correct = (logits.argmax(-1) == gold).sum()
            sums[examples.items[index]] += losses.sum(), correct, len(gold)
    return sums


@pytest.mark.parametrize("name", ["classes", "scores", "tags"])
def test_weighted_loss_and_metric_equal_numpy(name, models):
    model, (x, y) = models[name], TASKS[name]
    losses, correct, words = expected_sums(name, model).T
    for weights in (np.ones(24), WEIGHTS):
        logs = model.evaluate(x, y, sample_weight=weights, return_dict=True, verbose=0)
        total = (weights * words).sum()
        assert logs["loss"] == pytest.approx((weights * losses).sum() / total, rel=1e-4)
        metric = (weights * correct).sum() / total
        metric_name = "mse" if name == "scores" else "accuracy"
        assert logs[metric_name] == pytest.approx(metric, rel=1e-4)
    plain = model.evaluate(x, y, return_dict=True, verbose=0)
    ones = model.evaluate(x, y, sample_weight=np.ones(24), return_dict=True, verbose=0)
    assert plain == ones
    assert plain["loss"] != pytest.approx(logs["loss"], rel=1e-4)


@pytest.mark.parametrize("name", ["tags", "answers"])
def test_weight_2_repeats_a_row_and_weight_0_removes_it(name, models):
    model, (x, y) = models[name], TASKS[name]
    indices = list(range(8))
    weights = np.array([2, 1, 1, 0, 1, 3, 1, 1], np.float32)
    repeated = np.repeat(indices, weights.astype(int))
    results = []
    for chosen, sample_weight in ((indices, weights), (repeated, None)):
        tiny.reset(model)
        logs = model.train_on_batch(rows(x, chosen), rows(y, chosen), sample_weight)
        results.append((logs, tiny.weights(model)))
    assert results[0][0] == pytest.approx(results[1][0], rel=1e-5)
    distance = tiny.distance(results[0][1], tiny.weights(make_model(name)))
    assert distance > 1e-3
    error = tiny.distance(results[0][1], results[1][1])
    assert error < max(1e-6, 1e-4 * distance)


def test_fit_with_weights_and_validation_split(models):
    model, (x, y) = models["answers"], TASKS["answers"]
    histories = []
    for arguments in (
        {"x": x, "y": y, "sample_weight": WEIGHTS, "validation_split": 1 / 3},
        {
            "x": x[:16],
            "y": y[:16],
            "sample_weight": pd.Series(WEIGHTS[:16]),
            "validation_data": (x[16:], y[16:], WEIGHTS[16:]),
        },
    ):
        tiny.reset(model)
        history = model.fit(**arguments, epochs=1, verbose=0).history
        histories.append((history, tiny.weights(model)))
    assert histories[0][0] == histories[1][0]
    assert tiny.distance(histories[0][1], histories[1][1]) == 0
    held_out = model.evaluate(x[16:], y[16:], WEIGHTS[16:], return_dict=True, verbose=0)
    assert history["val_loss"][0] == pytest.approx(held_out["loss"], rel=1e-6)
    tiny.reset(model)
    model.fit(x[:16], y[:16], epochs=1, verbose=0)
    assert tiny.distance(histories[0][1], tiny.weights(model)) > 1e-4


def test_class_weight_equals_sample_weight(model):
    results = []
    sample_weight = [3.0 if label else 0.5 for label in LABELS]
    names = [("bad", "good")[label] for label in LABELS]
    slices = tf.data.Dataset.from_tensor_slices
    for x, arguments in (
        (TEXTS, {"y": LABELS, "sample_weight": sample_weight}),
        (TEXTS, {"y": names, "class_weight": {"good": 3.0, "bad": 0.5}}),
        (slices((TEXTS, LABELS)).batch(8), {"class_weight": {0: 0.5, 1: 3}}),
        (slices((TEXTS, LABELS, sample_weight)).batch(8), {}),
    ):
        tiny.reset(model)
        model.fit(x, **arguments, epochs=1, shuffle=False, verbose=0)
        results.append(tiny.weights(model))
    assert all(tiny.distance(results[0], other) == 0 for other in results[1:])
    tiny.reset(model)
    model.fit(TEXTS, LABELS, class_weight={1: 3.0}, epochs=1, shuffle=False, verbose=0)
    assert tiny.distance(results[0], tiny.weights(model)) > 1e-4
    assert model.class_weights([0, 1, "good"], {1: 3.0}) == [1.0, 3.0, 3.0]


UNEVEN = TEXTS + TEXTS[:6] * 2, [*LABELS, *LABELS[:6] * 2]


def test_balanced_weights_are_the_inverse_of_the_classes_shares(model):
    texts, labels = UNEVEN
    counts = {label: list(labels).count(label) for label in set(labels)}
    weights = {label: len(labels) / 2 / count for label, count in counts.items()}
    assert len(set(weights.values())) == 2
    trained = []
    balanced = tiny.settings(**tiny.NO_DROPOUT, training_class_weight="balanced")
    for settings, weight in (
        (model.settings, weights),
        (model.settings, "balanced"),
        (balanced, None),
    ):
        other = TextClassifier(tiny.start(), ["bad", "good"], settings)
        other.compile(keras.optimizers.SGD(0.5))
        other.fit(texts, labels, class_weight=weight, epochs=2, verbose=0)
        trained.append(other.get_weights())
    task = TaskData("csv", dict.fromkeys(["train", "dev"], Split(*UNEVEN)), None, None)
    other = TextClassifier(tiny.start(), ["bad", "good"], balanced)
    other.compile(keras.optimizers.SGD(0.5))
    other.fit(task.training_examples(other), epochs=2, verbose=0)  # as the command does
    trained.append(other.get_weights())
    for values in trained[1:]:
        for expected, value in zip(trained[0], values, strict=True):
            np.testing.assert_array_equal(value, expected)


@pytest.mark.parametrize("name", TASKS)
def test_fit_warns_of_texts_on_both_sides_of_validation_split(models, name):
    x, y = TASKS[name]
    weights = models[name].get_weights()
    fit = functools.partial(models[name].fit, epochs=1, verbose=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        fit(x, y, validation_split=0.25)
    with pytest.warns(
        UserWarning, match="2 of the 8 texts of validation_split"
    ) as all_:
        fit([*x, *x[:2]], [*y, *y[:2]], validation_split=0.3)
    assert {pathlib.Path(w.filename).name for w in all_} == {"test_keras_api.py"}
    models[name].set_weights(weights)  # the rate is too high for scores


def test_ids_with_weights_and_validation_split(model):
    examples = model.examples(TEXTS, LABELS)
    ids, labels_B, _ = examples.batch(range(24), 24)
    logs = model.evaluate(ids, labels_B, sample_weight=WEIGHTS, verbose=0)
    assert logs == pytest.approx(
        model.evaluate(TEXTS, LABELS, sample_weight=WEIGHTS, verbose=0), rel=1e-5
    )
    history = model.fit(
        ids, labels_B, validation_split=0.25, class_weight={1: 2.0}, epochs=1,
        shuffle=False, verbose=0,
    ).history  # fmt: skip
    by_ids = tiny.weights(model)
    assert int(model.optimizer.iterations) == 3
    tiny.reset(model)
    other = model.fit(
        TEXTS, LABELS, validation_split=0.25, class_weight={1: 2.0}, epochs=1,
        shuffle=False, verbose=0,
    ).history  # fmt: skip
    assert tiny.distance(by_ids, tiny.weights(model)) < 1e-6
    assert history["val_loss"] == pytest.approx(other["val_loss"], rel=1e-4)
    held_out = ids, labels_B, WEIGHTS
    history = model.fit(ids, labels_B, epochs=1, validation_data=held_out, verbose=0)
    loss = model.evaluate(*held_out, verbose=0)[0]
    assert history.history["val_loss"] == pytest.approx([loss], rel=1e-5)


def test_the_schedule_has_the_steps_of_the_training_split():
    model = make_model("classes")
    model.compile(run_eagerly=True)
    model.fit(TEXTS[:16], LABELS[:16], validation_split=0.5, epochs=2, verbose=0)
    assert model.optimizer.schedule.steps == 2
    ids, labels_B, _ = model.examples(TEXTS, LABELS).batch(range(24), 24)
    model.fit(ids, labels_B, validation_split=1 / 3, epochs=2, verbose=0)
    assert model.optimizer.schedule.steps == 4
    repeated = tf.data.Dataset.from_tensor_slices((TEXTS, LABELS)).batch(8).repeat()
    model.fit(repeated, steps_per_epoch=1, epochs=3, verbose=0)
    assert model.optimizer.schedule.steps == int(model.optimizer.iterations) == 3
    with pytest.raises(InputError, match="to 0 after 3 updates"):
        model.train_on_batch(TEXTS, LABELS)


def test_train_test_and_predict_on_batch(model):
    batch = tiny.tensors(model.examples(TEXTS, LABELS).batch(range(24), 24))
    logs = model.test_on_batch(TEXTS, LABELS, return_dict=True)
    assert logs == model.test_on_batch(*batch, return_dict=True)
    expected = model.evaluate(TEXTS, LABELS, return_dict=True, verbose=0)
    assert logs == pytest.approx(expected, rel=1e-4)
    weighted = model.test_on_batch(TEXTS, LABELS, WEIGHTS)
    expected = model.evaluate(TEXTS, LABELS, WEIGHTS, verbose=0)
    assert weighted == pytest.approx(expected, rel=1e-4)
    model.train_on_batch(TEXTS, LABELS, class_weight={1: 2.0})
    by_text = tiny.weights(model)
    tiny.reset(model)
    sample_weight = np.array([1.0 + label for label in LABELS], np.float32)
    model.train_on_batch(*batch[:2], sample_weight=sample_weight)
    assert tiny.distance(by_text, tiny.weights(model)) < 1e-6
    probabilities = model.predict_on_batch(TEXTS)
    np.testing.assert_allclose(probabilities, model.predict(TEXTS), atol=1e-6)
    assert model.predict_on_batch([]).shape == (0, 2)
    logits = model.predict_on_batch(batch[0])
    np.testing.assert_allclose(softmax(logits), probabilities, atol=1e-5)


@pytest.mark.parametrize("name", ["classes", "scores"])
def test_columns_of_targets_and_weights_of_ids(models, name):
    x, y = TASKS[name]
    inputs, targets, _ = models[name].examples(x, y).batch(range(24), 24)
    evaluate = models[name].evaluate
    expected = evaluate(inputs, targets, WEIGHTS, verbose=0)
    columns = targets[:, None], WEIGHTS[:, None]
    assert evaluate(inputs, *columns, verbose=0) == pytest.approx(expected)
    assert evaluate(inputs, targets, WEIGHTS.tolist(), verbose=0) == expected
    models[name].compile(models[name].optimizer)
    batches = tf.data.Dataset.from_tensors((inputs, *columns))
    assert evaluate(batches, verbose=0) == pytest.approx(expected, rel=1e-5)


def test_targets_and_weights_of_ids_are_validated(models):
    model = models["tags"]
    inputs, tags_BL, _ = model.examples(SENTENCES, TAGS).batch(range(24), 24)
    weights_BL = np.ones(tags_BL.shape)
    for data in (
        (inputs, tags_BL, weights_BL),
        (tf.data.Dataset.from_tensors((inputs, tags_BL, weights_BL)),),
    ):
        with pytest.raises(InputError, match=rf"\[24, {tags_BL.shape[1]}\]"):
            model.evaluate(*data, verbose=0)
    with pytest.raises(InputError, match="ids without targets"):
        model.evaluate(inputs, verbose=0)
    with pytest.raises(InputError, match=r"sample_weight.*-1"):
        model.evaluate(inputs, tags_BL, -np.ones(24), verbose=0)


def test_the_global_policy_has_no_effect(tmp_path):
    x, y = TASKS["answers"]
    try:
        keras.mixed_precision.set_global_policy("mixed_bfloat16")
        model = make_model("answers")
        model.compile(run_eagerly=True)
        model.fit(x[:4], y[:4], epochs=2, verbose=0)
        model.save(tmp_path / "model.keras")
        keras.config.set_dtype_policy("float32")
        again = keras.saving.load_model(tmp_path / "model.keras")
        keras.config.set_dtype_policy("bfloat16")
        third = keras.saving.load_model(tmp_path / "model.keras")
    finally:
        keras.config.set_dtype_policy("float32")
    other = make_model("answers")
    other.compile(run_eagerly=True)
    other.fit(x[:4], y[:4], epochs=2, verbose=0)
    tiny.assert_same_bits(model, other)
    for one in (model, again, third):
        layers = list(one._flatten_layers())
        assert {layer.compute_dtype for layer in layers} == {"float32"}
        tiny.assert_same_bits(one, other)
    assert repr(third.predict(x[:3])) == repr(other.predict(x[:3]))


def test_an_unused_global_policy_gives_a_warning():
    try:
        keras.config.set_dtype_policy("mixed_bfloat16")
        with pytest.warns(UserWarning, match="'mixed_bfloat16' is not used"):
            TextClassifier.from_preset(RUN, num_classes=2)
        settings = tiny.settings(training_precision="mixed_bfloat16")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            TextClassifier.from_preset(RUN, 2, settings=settings)
    finally:
        keras.config.set_dtype_policy("float32")


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (lambda m: m(["good"]), r"'good'.*call predict\(texts\)"),
        (lambda m: m(tf.constant(["good"])), r"call predict\(texts\)"),
        (lambda m: m(keras.Input([], dtype="string")), r"call predict\(texts\)"),
        (lambda m: m.predict(pd.Series(["a", None])), "at index 1"),
        (lambda m: m.predict("one string"), "not 'one string'"),
        (lambda m: m.predict({"text": ["a"]}), "token_ids"),
        (lambda m: m.predict(t for t in TEXTS), "generator: pass a list of texts"),
        (lambda m: m.predict(tf.data.Dataset.from_tensor_slices(TEXTS)), r"batch\(\)"),
        (lambda m: m.predict(tf.data.Dataset.from_tensors(TEXTS).repeat()), "steps="),
        (lambda m: m.compile("adam", "mse", ["accuracy"]), "metrics="),
        (lambda m: m.compile(loss="mse"), r"compile\(loss='mse'\)"),
        (lambda m: m.compile(jit_compile=True), r"compile\(jit_compile=True\)"),
        (lambda m: m.fit(TEXTS), "24 examples without targets"),
        (lambda m: m.fit((TEXTS, TEXTS[:3]), LABELS), "24 and 3"),
        (lambda m: m.fit([], []), "one or more examples"),
        (lambda m: m.fit("good", 1), "not 'good'"),
        (lambda m: m.fit(["good"], {"good": 1}), "not {'good': 1}"),
        (lambda m: m.fit(TEXTS, ["good"] * 23 + ["ugly"]), "'ugly' at index 23"),
        (lambda m: m.fit(TEXTS, [0] * 23 + [2]), "2 at index 23"),
        (lambda m: m.fit(TEXTS, [[1, 1]] * 24), r"\[1, 1\] at index 0"),
        (lambda m: m.predict(TEXTS, batch_size=0), "batch_size=0"),
        (lambda m: m.fit(TEXTS, LABELS, epochs=0), "epochs=0"),
        (lambda m: m.fit(TEXTS, LABELS, batch_size=0), "batch_size=0"),
        (lambda m: m.fit(TEXTS, LABELS, steps_per_epoch=3), "steps_per_epoch=3"),
        (lambda m: m.fit(TEXTS, LABELS, validation_split=1.0), "validation_split=1.0"),
        (lambda m: m.fit(TEXTS, LABELS, sample_weight=[1]), r"shape \[1\] for 24"),
        (lambda m: m.fit(TEXTS, LABELS, class_weight={7: 1}), "7 at index 0"),
        (lambda m: m.fit(TEXTS, LABELS, class_weight=[1, 2]), r"\[1, 2\]"),
        (lambda m: m.fit(TEXTS, LABELS, class_weight={1: 2, "good": 3}), "class once"),
        (
            lambda m: m.fit(TEXTS, LABELS, sample_weight=WEIGHTS, class_weight={1: 2}),
            "not both sample_weight and class_weight",
        ),
        (lambda m: m.evaluate(TEXTS, LABELS, [-1] * 24), "-1.0 at index 0"),
        (lambda m: m.train_on_batch([], []), "one or more texts"),
        (
            lambda m: m.fit(
                tf.data.Dataset.from_tensors((TEXTS, LABELS)), validation_split=0.5
            ),
            "validation_split=0.5 with a",
        ),
        (
            lambda m: m.fit(
                tf.data.Dataset.from_tensors((TEXTS, LABELS)), class_weight="balanced"
            ),
            "'balanced' must be used with a list",
        ),
        (lambda m: m.fit(TEXTS, [[0.5, 0.5]] * 24), r"\[0.5, 0.5\] at index 0"),
        (lambda m: m.train_on_batch(tf.data.Dataset.range(3)), "a data set"),
    ],
)  # fmt: skip
def test_unsupported_calls_raise_errors(models, action, words):
    with pytest.raises(InputError, match=words):
        action(models["classes"])


def test_an_update_alone_needs_an_optimizer():
    model = make_model("classes")
    for _ in range(2):
        with pytest.raises(InputError, match=r"call compile\(optimizer=...\) first"):
            model.train_on_batch(TEXTS, LABELS)
        model.compile(metrics=["accuracy"])  # `fit` would choose the optimizer


def test_progress_bars_are_for_terminals(model, capsys, monkeypatch):
    def printed():
        model.fit(TEXTS, LABELS, epochs=1)
        return capsys.readouterr().out

    assert "loss" in printed()
    assert "\u2501" not in printed()
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert "\u2501" in printed()


@pytest.mark.parametrize(
    ("name", "class_weight", "words"),
    [
        ("scores", "balanced", "'balanced' does not apply to a TextRegressor"),
        *(
            (name, {0: 2.0}, r"class_weight=\{0: 2.0\}.*sample_weight")
            for name in ("scores", "tags", "answers")
        ),
    ],
)
def test_class_weight_needs_classes(name, class_weight, words, models):
    with pytest.raises(InputError, match=words):
        models[name].fit(*TASKS[name], class_weight=class_weight, verbose=0)


def test_predict_of_no_texts(models):
    predictions = {name: model.predict([]) for name, model in models.items()}
    assert predictions["classes"].shape == (0, 2)
    assert predictions["scores"].shape == (0,)
    assert predictions["tags"] == predictions["answers"] == []


class _Batches(keras.utils.PyDataset):
    """Batches of eight."""

    def __init__(self, columns, wrap):
        super().__init__()
        self._columns, self._wrap = columns, wrap

    def __len__(self):
        return 3

    def __getitem__(self, index):
        span = slice(8 * index, 8 * index + 8)
        return self._wrap(*(column[span] for column in self._columns))


def _columns(name):
    """Return the columns of the texts of a task."""
    x = TASKS[name][0]
    if name == "tags":
        return [tf.ragged.constant(x)]
    columns = zip(*x, strict=True) if name == "answers" else [x]
    return [np.array(column) for column in columns]


@pytest.mark.parametrize(
    ("name", "form"),
    [("classes", "alone"), ("classes", "tuple"), ("scores", "targets"),
     ("tags", "tuple"), ("answers", "targets")],
)  # fmt: skip
def test_predict_of_data_sets(name, form, models):
    columns = _columns(name)

    def wrap(*columns):
        x = columns[0] if len(columns) == 1 else tuple(columns)
        if form == "alone":
            return x
        return (x,) if form == "tuple" else (x, tf.zeros(8))

    model = models[name]
    expected = model.predict(TASKS[name][0])
    slices = tf.data.Dataset.from_tensor_slices(tuple(columns)).batch(8)
    for batches in (slices.map(wrap), _Batches(columns, wrap)):
        predictions = model.predict(batches)
        for one, other in zip(predictions, expected, strict=True):
            np.testing.assert_equal(np.asarray(one, object), np.asarray(other, object))
        assert len(model.predict(batches, steps=2)) == 16


def test_two_columns_are_a_pair_after_training_on_pairs(model):
    model.pairs = True
    columns = (TEXTS, TEXTS[::-1])
    batches = tf.data.Dataset.from_tensor_slices(columns).batch(8)
    np.testing.assert_array_equal(model.predict(batches), model.predict(columns))
    with pytest.raises(InputError, match=r"must be pairs of texts.*single texts"):
        model.predict(TEXTS)


# Callbacks.


def test_keras_callbacks(tmp_path):
    model = make_model("classes")
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


class _InterruptCallback(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        if epoch == 1:
            raise KeyboardInterrupt


@pytest.mark.runs
def test_an_interrupted_training_resumes_from_its_backup(tmp_path):
    def train(model, **arguments):
        return model.fit(TEXTS, LABELS, epochs=4, verbose=0, **arguments)

    path = str(tmp_path / "backup")
    backup = functools.partial(keras.callbacks.BackupAndRestore, path)
    uninterrupted = make_model("classes", model_dropout=0.1)
    train(uninterrupted)
    killed = make_model("classes", model_dropout=0.1)
    with pytest.raises(KeyboardInterrupt):
        train(killed, callbacks=[backup(), _InterruptCallback()])
    resumed = make_model("classes", model_dropout=0.1)
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
    model = make_model("classes")
    with pytest.raises(InputError, match=r"compile\(optimizer=keras"):
        model.fit(TEXTS, LABELS, verbose=0, callbacks=[callback])
    model.compile(keras.optimizers.SGD(0.5), run_eagerly=True)
    model.fit(TEXTS, LABELS, epochs=1, verbose=0, callbacks=[callback])
