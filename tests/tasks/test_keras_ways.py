"""Keras's API on texts: weights, splits, single batches, callbacks, policies."""

import warnings

import keras
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

from electra_tf.errors import InputError
from electra_tf.tasks.batching import IGNORE_LABEL
from electra_tf.tasks.classification.model import TextClassifier, TextRegressor
from electra_tf.tasks.squad.model import QuestionAnswerer
from electra_tf.tasks.tagging.model import TokenClassifier
from tasks import tiny

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


def made(name, seed=0, **changes):
    """A model without dropout; sentences and questions take several inputs."""
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
    """One of each task, with an optimizer whose updates show the gradients."""
    found = {name: made(name) for name in TASKS}
    for model in found.values():
        model.compile(keras.optimizers.SGD(0.5))
    return found


@pytest.fixture
def model(models):
    model = models["classes"]
    model.reinitialize(tiny.start(), 0)
    model.pairs = None
    return model


def rows(values, places):
    return [values[place] for place in places]


def shares(logits):
    raised = np.exp(logits - logits.max(-1, keepdims=True))
    return raised / raised.sum(-1, keepdims=True)


def by_hand(name, model):
    """Loss, and what is right, of each item, and the words of each."""
    x, y = TASKS[name]
    examples = model.examples(x, y)
    outputs = model.outputs_of(examples)
    found = np.zeros((len(x), 3))
    for place, output in enumerate(outputs):
        if name == "classes":
            gold = y[place]
            loss = -np.log(shares(output.astype(np.float64))[gold])
            found[place] = loss, output.argmax() == gold, 1
        elif name == "scores":
            error = (float(output[0]) - (y[place] - 1) / 4) ** 2
            found[place] = error, error * 16, 1
        else:
            target = np.array(examples.targets[place])
            asked = target != IGNORE_LABEL
            logits = output[: len(target)].astype(np.float64)[asked]
            gold = target[asked]
            losses = -np.log(shares(logits)[range(len(gold)), gold])
            right = (logits.argmax(-1) == gold).sum()
            found[examples.items[place]] += losses.sum(), right, len(gold)
    return found


@pytest.mark.parametrize("name", ["classes", "scores", "tags"])
def test_weighted_loss_and_metric_by_hand(name, models):
    model, (x, y) = models[name], TASKS[name]
    losses, right, words = by_hand(name, model).T
    for weights in (np.ones(24), WEIGHTS):
        told = model.evaluate(x, y, sample_weight=weights, return_dict=True, verbose=0)
        whole = (weights * words).sum()
        assert told["loss"] == pytest.approx((weights * losses).sum() / whole, rel=1e-4)
        quality = (weights * right).sum() / whole
        assert told[model.metric_name] == pytest.approx(quality, rel=1e-4)
    plain = model.evaluate(x, y, return_dict=True, verbose=0)
    ones = model.evaluate(x, y, sample_weight=np.ones(24), return_dict=True, verbose=0)
    assert plain == ones
    assert plain["loss"] != pytest.approx(told["loss"], rel=1e-4)


@pytest.mark.parametrize("name", TASKS)
def test_weight_2_repeats_a_row_and_weight_0_removes_it(name, models):
    model, (x, y) = models[name], TASKS[name]
    places = list(range(8))
    weights = np.array([2, 1, 1, 0, 1, 3, 1, 1], np.float32)
    again = np.repeat(places, weights.astype(int))
    assert len(model.examples(x[:8], y[:8])) >= 8
    found = []
    for chosen, each in ((places, weights), (again, None)):
        model.reinitialize(tiny.start(), 0)
        told = model.train_on_batch(rows(x, chosen), rows(y, chosen), each)
        found.append((told, tiny.weights(model)))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-5)
    moved = tiny.distance(found[0][1], tiny.weights(made(name)))
    assert moved > 1e-3
    assert tiny.distance(found[0][1], found[1][1]) < max(1e-6, 1e-4 * moved)


@pytest.mark.parametrize("name", TASKS)
def test_fit_with_weights_and_validation_split(name, models):
    model, (x, y) = models[name], TASKS[name]
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
        model.reinitialize(tiny.start(), 0)
        told = model.fit(**arguments, epochs=1, verbose=0).history
        histories.append((told, tiny.weights(model)))
    assert histories[0][0] == histories[1][0]
    assert tiny.distance(histories[0][1], histories[1][1]) == 0
    held_out = model.evaluate(x[16:], y[16:], WEIGHTS[16:], return_dict=True, verbose=0)
    assert told["val_loss"][0] == pytest.approx(held_out["loss"], rel=1e-6)
    model.reinitialize(tiny.start(), 0)
    model.fit(x[:16], y[:16], epochs=1, verbose=0)
    assert tiny.distance(histories[0][1], tiny.weights(model)) > 1e-4


def test_class_weight_equals_sample_weight(model):
    found = []
    each = [3.0 if label else 0.5 for label in LABELS]
    names = [("bad", "good")[label] for label in LABELS]
    batches = tf.data.Dataset.from_tensor_slices((TEXTS, LABELS)).batch(8)
    weighted = tf.data.Dataset.from_tensor_slices((TEXTS, LABELS, each)).batch(8)
    for x, arguments in (
        (TEXTS, {"y": LABELS, "sample_weight": each}),
        (TEXTS, {"y": LABELS, "class_weight": {0: 0.5, 1: 3.0}}),
        (TEXTS, {"y": names, "class_weight": {"good": 3.0, "bad": 0.5}}),
        (batches, {"class_weight": {0: 0.5, 1: 3}}),
        (weighted, {}),
    ):
        model.reinitialize(tiny.start(), 0)
        model.fit(x, **arguments, epochs=1, shuffle=False, verbose=0)
        found.append(tiny.weights(model))
    assert all(tiny.distance(found[0], other) == 0 for other in found[1:])
    model.reinitialize(tiny.start(), 0)
    model.fit(TEXTS, LABELS, class_weight={1: 3.0}, epochs=1, shuffle=False, verbose=0)
    assert tiny.distance(found[0], tiny.weights(model)) > 1e-4
    assert model.class_weights([0, 1, "good"], {1: 3.0}) == [1.0, 3.0, 3.0]


@pytest.mark.parametrize("kind", [np.int32, np.float32])
def test_labels_as_one_hot_rows_and_columns(model, kind):
    found = []
    one_hot = np.eye(2, dtype=kind)[LABELS]
    for y in (LABELS, one_hot, one_hot.tolist(), np.array(LABELS)[:, None],
              pd.Series(LABELS), pd.DataFrame({"y": LABELS})):  # fmt: skip
        found.append(model.evaluate(TEXTS, y, return_dict=True, verbose=0))
    examples = model.examples(TEXTS, LABELS)
    ids, _, _ = examples.batch(range(24), 24)
    found.append(model.evaluate(ids, one_hot, return_dict=True, verbose=0))
    batches = tf.data.Dataset.from_tensor_slices((TEXTS, one_hot)).batch(8)
    found.append(model.evaluate(batches, return_dict=True, verbose=0))
    assert all(other == pytest.approx(found[0], rel=1e-5) for other in found[1:])


def test_ids_with_weights_and_validation_split(model):
    examples = model.examples(TEXTS, LABELS)
    ids, labels_B, _ = examples.batch(range(24), 24)
    told = model.evaluate(ids, labels_B, sample_weight=WEIGHTS, verbose=0)
    assert told == pytest.approx(
        model.evaluate(TEXTS, LABELS, sample_weight=WEIGHTS, verbose=0), rel=1e-5
    )
    told = model.fit(
        ids, labels_B, validation_split=0.25, class_weight={1: 2.0}, epochs=1,
        shuffle=False, verbose=0,
    ).history  # fmt: skip
    by_ids = tiny.weights(model)
    assert int(model.optimizer.iterations) == 3
    model.reinitialize(tiny.start(), 0)
    other = model.fit(
        TEXTS, LABELS, validation_split=0.25, class_weight={1: 2.0}, epochs=1,
        shuffle=False, verbose=0,
    ).history  # fmt: skip
    assert tiny.distance(by_ids, tiny.weights(model)) < 1e-6
    assert told["val_loss"] == pytest.approx(other["val_loss"], rel=1e-4)


def test_the_schedule_has_the_steps_of_the_training_split():
    model = made("classes")
    model.fit(TEXTS, LABELS, validation_split=0.5, epochs=2, verbose=0)
    assert model.optimizer.schedule.steps == 4
    ids, labels_B, _ = model.examples(TEXTS, LABELS).batch(range(24), 24)
    model.fit(ids, labels_B, validation_split=1 / 3, epochs=2, verbose=0)
    assert model.optimizer.schedule.steps == 4
    endless = tf.data.Dataset.from_tensor_slices((TEXTS, LABELS)).batch(8).repeat()
    model.fit(endless, steps_per_epoch=2, epochs=3, verbose=0)
    assert model.optimizer.schedule.steps == int(model.optimizer.iterations) == 6
    with pytest.raises(InputError, match="to 0 after 6 updates"):
        model.train_on_batch(TEXTS, LABELS)


def test_train_test_and_predict_on_batch(model):
    batch = tiny.tensors(model.examples(TEXTS, LABELS).batch(range(24), 24))
    told = model.test_on_batch(TEXTS, LABELS, return_dict=True)
    assert told == model.test_on_batch(*batch, return_dict=True)
    whole = model.evaluate(TEXTS, LABELS, return_dict=True, verbose=0)
    assert told == pytest.approx(whole, rel=1e-4)
    weighted = model.test_on_batch(TEXTS, LABELS, WEIGHTS)
    whole = model.evaluate(TEXTS, LABELS, WEIGHTS, verbose=0)
    assert weighted == pytest.approx(whole, rel=1e-4)
    model.train_on_batch(TEXTS, LABELS, class_weight={1: 2.0})
    by_text = tiny.weights(model)
    model.reinitialize(tiny.start(), 0)
    each = np.array([1.0 + label for label in LABELS], np.float32)
    model.train_on_batch(*batch[:2], sample_weight=each)
    assert tiny.distance(by_text, tiny.weights(model)) < 1e-6
    found = model.predict_on_batch(TEXTS)
    np.testing.assert_allclose(found, model.predict(TEXTS), atol=1e-6)
    assert model.predict_on_batch([]).shape == (0, 2)
    logits = model.predict_on_batch(batch[0])
    np.testing.assert_allclose(shares(logits), found, atol=1e-5)


def test_columns_of_a_data_frame(model):
    frame = pd.DataFrame({"text": TEXTS, "label": LABELS, "w": WEIGHTS})
    wanted = model.evaluate(TEXTS, LABELS, WEIGHTS, verbose=0)
    for x in (frame["text"], frame[["text"]]):
        assert model.evaluate(x, frame["label"], frame["w"], verbose=0) == wanted
    np.testing.assert_array_equal(model.predict(frame["text"]), model.predict(TEXTS))
    model.pairs = None  # or it would refuse what it was not trained with
    pairs = pd.DataFrame({"a": TEXTS, "b": TEXTS[::-1]})
    found = model.predict(pairs)
    np.testing.assert_array_equal(found, model.predict((TEXTS, TEXTS[::-1])))


def test_unweighted_metrics_ignore_padding_rows():
    model = made("classes")
    metrics = [keras.metrics.SparseCategoricalAccuracy("unweighted")]
    weighted = [keras.metrics.SparseCategoricalAccuracy("weighted")]
    model.compile("sgd", metrics=metrics, weighted_metrics=weighted)
    few, labels, weights = TEXTS[:10], LABELS[:10], WEIGHTS[:10]
    told = model.evaluate(few, labels, weights, return_dict=True, verbose=0)
    right = model.predict(few).argmax(-1) == labels
    assert told["unweighted"] == pytest.approx(right.mean())
    of_weights = (right * weights).sum() / weights.sum()
    assert told["weighted"] == pytest.approx(of_weights, rel=1e-5)
    assert told["accuracy"] == pytest.approx(of_weights, rel=1e-5)


@pytest.mark.parametrize(
    ("name", "policy"),
    [
        ("classes", "mixed_bfloat16"),
        ("scores", "bfloat16"),
        ("tags", "float16"),
        ("answers", "mixed_bfloat16"),
    ],
)
def test_the_global_policy_has_no_effect(name, policy, tmp_path):
    x, y = TASKS[name]
    try:
        keras.mixed_precision.set_global_policy(policy)
        model = made(name)
        model.fit(x[:16], y[:16], epochs=1, verbose=0)
        model.save(tmp_path / "model.keras")
        keras.config.set_dtype_policy("float32")
        again = keras.saving.load_model(tmp_path / "model.keras")
        keras.config.set_dtype_policy(policy)
        third = keras.saving.load_model(tmp_path / "model.keras")
    finally:
        keras.config.set_dtype_policy("float32")
    other = made(name)
    other.fit(x[:16], y[:16], epochs=1, verbose=0)
    tiny.assert_same_bits(model, other)
    for one in (model, again, third):
        layers = list(one._flatten_layers())
        assert {layer.compute_dtype for layer in layers} == {"float32"}
        tiny.assert_same_bits(one, other)
        assert repr(one.predict(x[:3])) == repr(other.predict(x[:3]))


def test_mixed_precision_is_a_setting_and_is_saved(tmp_path):
    model = made("classes", training_precision="mixed_bfloat16")
    model.fit(TEXTS, LABELS, epochs=1, verbose=0)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    for one in (model, again):
        assert one.encoder.dtype_policy.name == "mixed_bfloat16"
        assert {one.dtype_policy.name, one.head.dtype_policy.name} == {"float32"}
    np.testing.assert_array_equal(again.predict(TEXTS), model.predict(TEXTS))


def test_an_unused_global_policy_gives_a_warning(pretrained):
    try:
        keras.config.set_dtype_policy("mixed_bfloat16")
        with pytest.warns(UserWarning, match="'mixed_bfloat16' is not used"):
            TextClassifier.from_preset(str(pretrained), num_classes=2)
        settings = tiny.settings(training_precision="mixed_bfloat16")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            TextClassifier.from_preset(str(pretrained), 2, settings=settings)
    finally:
        keras.config.set_dtype_policy("float32")


def test_a_functional_model_with_two_text_models_is_saved(tmp_path):
    first, second = made("classes"), made("scores", 1)
    names = ("token_ids", "segment_ids", "padding_mask")
    given = {name: keras.Input([None], dtype="int32", name=name) for name in names}
    whole = keras.Model(given, [first(given), second(given)])
    whole.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    ids, _, _ = first.examples(TEXTS).batch(range(24), 24)
    for one, other in zip(whole(ids), again(ids), strict=True):
        np.testing.assert_array_equal(one, other)


def test_name_and_trainable_are_saved(tmp_path):
    model = made("classes")
    model.name, model.encoder.trainable = "mine", False
    config = model.get_config()
    assert config["name"] == "mine"
    model.trainable = False
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert (again.name, again.trainable_variables) == ("mine", [])


def test_keras_callbacks(tmp_path):
    model = made("classes")
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
    told = model.fit(
        TEXTS, LABELS, validation_split=0.25, epochs=5, callbacks=callbacks, verbose=0
    ).history
    assert len(told["loss"]) == 2  # no epoch is better by 10
    assert list((tmp_path / "board" / "train").glob("events*"))
    assert list((tmp_path / "board" / "validation").glob("events*"))
    loss = keras.saving.load_model(best).evaluate(TEXTS[18:], LABELS[18:], verbose=0)[0]
    assert loss == pytest.approx(min(told["val_loss"]), rel=1e-4)
    restored = model.evaluate(TEXTS[18:], LABELS[18:], verbose=0)[0]
    assert restored == pytest.approx(told["val_loss"][0], rel=1e-4)


class _Dies(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        if epoch == 1:
            raise KeyboardInterrupt


def test_a_killed_training_resumes_from_its_backup(tmp_path):
    def trained(model, **arguments):
        return model.fit(TEXTS, LABELS, epochs=4, verbose=0, **arguments)

    def backup():
        return keras.callbacks.BackupAndRestore(str(tmp_path / "backup"))

    whole = made("classes", model_dropout=0.1)
    trained(whole)
    with pytest.raises(KeyboardInterrupt):
        trained(made("classes", model_dropout=0.1), callbacks=[backup(), _Dies()])
    again = made("classes", model_dropout=0.1)
    told = trained(again, callbacks=[backup()])
    assert told.epoch == [2, 3]
    tiny.assert_same_bits(whole, again)


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (lambda m: m(["good"]), r"'good'.*Call predict\(texts\)"),
        (lambda m: m("good"), r"'good'.*Call predict\(texts\)"),
        (lambda m: m(tf.constant(["good"])), r"Call predict\(texts\)"),
        (lambda m: m(keras.Input([], dtype="string")), r"Call predict\(texts\)"),
        (lambda m: m.predict([None]), "None at index 0"),
        (lambda m: m.predict(["a", None]), "None at index 1"),
        (lambda m: m.predict(pd.Series(["a", None])), "at index 1"),
        (lambda m: m.predict("one string"), "'one string' alone.*Pass"),
        (lambda m: m.predict({"text": ["a"]}), "token_ids"),
        (lambda m: m.predict(t for t in TEXTS), "generator.*Pass a list of texts"),
        (lambda m: m.predict(tf.data.Dataset.from_tensors(TEXTS)), "list of its texts"),
        (lambda m: m.predict(TEXTS, batch_size=0), "batch_size=0"),
        (lambda m: m.fit((TEXTS, LABELS) for _ in "a"), "Pass a list of texts"),
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
            "both sample_weight and class_weight",
        ),
        (lambda m: m.evaluate(TEXTS, LABELS, [-1] * 24), "-1.0 at index 0"),
        (lambda m: m.train_on_batch([], []), "Received: no text"),
        (
            lambda m: m.fit(
                tf.data.Dataset.from_tensors((TEXTS, LABELS)), sample_weight=WEIGHTS
            ),
            r"\(texts, targets, weights\)",
        ),
        (
            lambda m: m.fit(
                tf.data.Dataset.from_tensors((TEXTS, LABELS)), validation_split=0.5
            ),
            "validation_split=0.5 with a",
        ),
        (lambda m: m.fit(TEXTS, [[0.5, 0.5]] * 24), r"\[0.5, 0.5\] at index 0"),
        (lambda m: m.export("served"), "electra_tf.export --model=model.keras"),
        (lambda m: m.train_on_batch(tf.data.Dataset.range(3)), "a data set"),
    ],
)  # fmt: skip
def test_unsupported_calls_raise_errors(model, action, words):
    with pytest.raises(InputError, match=words):
        action(model)


def test_train_on_batch_needs_an_optimizer():
    with pytest.raises(InputError, match="Received: no optimizer"):
        made("classes").train_on_batch(TEXTS, LABELS)
    assert len(made("classes").test_on_batch(TEXTS, LABELS)) == 2


@pytest.mark.parametrize("name", ["scores", "tags", "answers"])
def test_class_weight_needs_classes(name, models):
    with pytest.raises(InputError, match=r"class_weight=\{0: 2.0\}.*sample_weight"):
        models[name].fit(*TASKS[name], class_weight={0: 2.0}, verbose=0)


def test_predict_of_no_texts(models):
    found = {name: model.predict([]) for name, model in models.items()}
    assert found["classes"].shape == (0, 2)
    assert found["scores"].shape == (0,)
    assert found["tags"] == found["answers"] == []
