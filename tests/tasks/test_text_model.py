"""TextModel: training, prediction, saving, use as a layer, errors."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from electra_tf.errors import InputError
from electra_tf.kernels.fused_layer_ops import FusedLayerOps
from electra_tf.model.layer_ops import LayerOps
from electra_tf.tasks.batching import prediction_batch_indices, training_batch_indices
from electra_tf.tasks.classification.model import TextClassifier, TextRegressor
from electra_tf.tasks.model_inputs import batch_indices
from tasks import tiny

TEXTS, LABELS = tiny.texts()
SHORT, THEIRS = tiny.texts(longest=11, shortest=10)  # all batches of one length


def classifier(seed=0, **changes):
    return TextClassifier(tiny.start(), ["bad", "good"], tiny.settings(**changes), seed)


@pytest.fixture(scope="module")
def model():
    """Trained for two epochs; tests reset it before they train it again."""
    model = tiny.compiled(classifier(), 10)
    model.fit(TEXTS, LABELS, verbose=0)
    return model


@pytest.fixture(scope="module")
def trained(model):
    return tiny.weights(model)


@pytest.fixture(scope="module")
def calm():
    """Without dropout."""
    return tiny.compiled(classifier(**tiny.NO_DROPOUT))


def again(model, seed=0):
    model.reinitialize(tiny.start(), seed)
    return model


def batch(model, rows=range(8), size=8):
    return tiny.tensors(model.examples(SHORT, THEIRS).batch(rows, size))


def gradients(model, inputs, labels, layer_ops):
    with tf.GradientTape() as tape:
        logits_BC = model.head_outputs(
            model.encoder(**inputs, layer_ops=layer_ops), inputs, layer_ops
        )
        loss = tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits_BC)
        )
    variables = model.trainable_variables
    found = tape.gradient(loss, [v.value for v in variables])
    dense = [np.array(tf.convert_to_tensor(g)) for g in found]
    return dict(zip([v.path for v in variables], dense, strict=True))


def test_training_is_deterministic_and_reinitialize_gives_a_new_model(model, trained):
    again(model)
    tiny.assert_same_bits(model, classifier())
    assert not any(values.any() for values in tiny.slots(model))
    model.fit(TEXTS, LABELS, verbose=0)
    assert tiny.distance(trained, tiny.weights(model)) == 0


def test_another_seed_gives_other_weights(model, trained):
    again(model, 1)
    assert int(model.seed) == 1
    assert tiny.distance(tiny.weights(model), tiny.weights(classifier())) > 1e-2
    model.fit(TEXTS, LABELS, verbose=0)
    assert tiny.distance(trained, tiny.weights(model)) > 1e-2


def test_dropout_depends_on_seed_and_step(model):
    def after(seed, step):
        again(model)
        model.seed.assign(seed)
        model.optimizer.iterations.assign(step)
        model.train_on_batch(*batch(model))
        return [m.numpy() for m in model.optimizer.slots()["m"]]

    first, same = after(0, 1), after(0, 1)
    for mine, its in zip(first, same, strict=True):
        np.testing.assert_array_equal(mine, its)
    for other in (after(1, 1), after(0, 2)):
        pairs = zip(first, other, strict=True)
        assert max(np.abs(a - b).max() for a, b in pairs) > 1e-5


def test_the_loss_of_a_batch_by_hand(calm):
    again(calm)
    inputs, labels_B, weights_B = batch(calm, range(5))
    logits_BC = np.array(calm(inputs, training=False), np.float64)[:5]
    shares = np.exp(logits_BC) / np.exp(logits_BC).sum(1, keepdims=True)
    right = np.array(THEIRS[:5])
    wanted = -np.log(shares[range(5), right]).mean()
    assert weights_B.numpy().tolist() == [1.0] * 5 + [0.0] * 3
    told = calm.test_on_batch(inputs, labels_B, weights_B, return_dict=True)
    assert told["loss"] == pytest.approx(wanted, rel=1e-5)
    assert told["accuracy"] == pytest.approx((logits_BC.argmax(1) == right).mean())
    told = calm.train_on_batch(inputs, labels_B, weights_B, return_dict=True)
    assert told["loss"] == pytest.approx(wanted, rel=1e-5)


def test_rows_of_weight_0_have_no_effect(calm):
    again(calm)
    calm.train_on_batch(*batch(calm, range(5), 5))
    alone = [m.numpy() for m in calm.optimizer.slots()["m"]]
    again(calm)
    inputs, labels_B, weights_B = batch(calm, [0, 1, 2, 3, 4, 9, 8, 7])
    mask_B = tf.constant([1.0] * 5 + [0.0] * 3)
    calm.train_on_batch(inputs, labels_B, weights_B * mask_B)
    for mine, its in zip(alone, calm.optimizer.slots()["m"], strict=True):
        np.testing.assert_allclose(mine, its.numpy(), atol=1e-7)


@pytest.fixture(scope="module")
def summed():
    """Without dropout and clipping; the loss is the sum."""
    changes = {"training_reduction": "sum", "optimizer_clip_norm": None}
    return tiny.compiled(classifier(**tiny.NO_DROPOUT, **changes))


def test_fused_and_plain_layer_ops_have_equal_gradients(summed):
    again(summed)
    inputs, labels_B, weights_B = batch(summed)
    plain = gradients(summed, inputs, labels_B, LayerOps(training=False))
    fused = gradients(summed, inputs, labels_B, FusedLayerOps(None))
    largest = max(np.abs(g).max() for g in plain.values())
    assert largest > 1e-2
    assert tiny.distance(plain, fused) < 1e-5 * max(1, largest)
    summed.train_on_batch(inputs, labels_B, weights_B)
    for variable, mean in zip(
        summed.trainable_variables, summed.optimizer.slots()["m"], strict=True
    ):
        # The first step's mean is a tenth of the gradient of the sum over eight rows.
        wanted = 0.1 * 8 * plain[variable.path]
        np.testing.assert_allclose(
            mean.numpy(), wanted, atol=1e-5, err_msg=variable.path
        )


def test_the_loss_is_divided_by_the_sum_of_weights(calm):
    again(calm)
    inputs, labels_B, weights_B = batch(calm)
    plain = gradients(calm, inputs, labels_B, LayerOps(training=False))
    norm = np.sqrt(sum((g.astype(np.float64) ** 2).sum() for g in plain.values()))
    calm.train_on_batch(inputs, labels_B, weights_B)
    for variable, mean in zip(
        calm.trainable_variables, calm.optimizer.slots()["m"], strict=True
    ):
        wanted = 0.1 * plain[variable.path] / max(1.0, norm)
        np.testing.assert_allclose(
            mean.numpy(), wanted, atol=1e-6, err_msg=variable.path
        )


def test_lower_layers_have_lower_learning_rates():
    """A first update is sign(g) times the rate, so its size tells the rate."""
    changes = {"optimizer_layer_decay": 0.5, "optimizer_weight_decay": 0.0}
    changes |= {"optimizer_warmup_share": 0.0, "optimizer_epsilon": 1e-12}
    model = tiny.compiled(classifier(**tiny.NO_DROPOUT, **changes))
    before = tiny.weights(model)
    model.train_on_batch(*batch(model))
    after = tiny.weights(model)
    step = 1e-2 * 0.1 / 0.001**0.5  # the paper's Adam does not correct its means
    # The original's distances: head 0, last layer 2, then one more for each.
    wanted = {
        "head/dense/kernel": 1.0,
        "encoder/layer_1/output/kernel": 0.5**2,
        "encoder/layer_0/output/kernel": 0.5**3,
        "encoder/embeddings/position_embeddings": 0.5**4,
        "encoder/embeddings_project/kernel": 0.5**4,
    }
    for ending, factor in wanted.items():
        (path,) = (path for path in after if path.endswith(ending))
        moved = np.abs(after[path] - before[path]).max()
        assert moved == pytest.approx(step * factor, rel=1e-3), path


def test_outputs_are_independent_of_other_texts(model, trained):
    whole = model.predict(TEXTS, batch_size=40)
    for size in (1, 7):
        np.testing.assert_allclose(
            model.predict(TEXTS, batch_size=size), whole, atol=1e-5
        )
    backwards = model.predict(TEXTS[::-1], batch_size=8)[::-1]
    np.testing.assert_allclose(backwards, whole, atol=1e-5)
    assert np.abs(whole - whole[0]).max() > 1e-4  # or the order would not show
    np.testing.assert_allclose(whole.sum(1), 1, atol=1e-6)
    assert model.predict([]).shape == (0, 2)


def test_ids_and_texts_have_equal_predictions(model):
    inputs, labels_B, _ = model.examples(TEXTS, LABELS).batch(range(40), 40)
    logits_BC = model.predict(inputs, verbose=0)
    wanted = np.exp(logits_BC) / np.exp(logits_BC).sum(1, keepdims=True)
    np.testing.assert_allclose(model.predict(TEXTS), wanted, atol=1e-5)
    by_ids = model.evaluate(inputs, labels_B, verbose=0, return_dict=True)
    by_text = model.evaluate(TEXTS, LABELS, verbose=0, return_dict=True)
    right = (wanted.argmax(1) == LABELS).mean()
    assert by_text["accuracy"] == by_ids["accuracy"] == pytest.approx(right)
    assert by_text["loss"] == pytest.approx(by_ids["loss"], rel=1e-5)
    assert by_text.keys() == {"loss", "accuracy"}
    assert len(model.evaluate(TEXTS, LABELS, verbose=0)) == 2


def test_fit_takes_ids(calm):
    again(calm)
    examples = calm.examples(SHORT, THEIRS)
    inputs, labels_B, _ = examples.batch(range(40), 40)
    held_out = (inputs, labels_B)
    told = calm.fit(
        inputs, labels_B, epochs=1, validation_data=held_out, shuffle=False, verbose=0
    ).history
    assert int(calm.optimizer.iterations) == 5  # batches of eight, as in the settings
    assert told["val_loss"] == [calm.evaluate(inputs, labels_B, verbose=0)[0]]
    by_ids = tiny.weights(calm)
    again(calm)
    calm.fit(SHORT, THEIRS, epochs=1, shuffle=False, verbose=0)
    assert tiny.distance(by_ids, tiny.weights(calm)) == 0


def test_fit_takes_a_data_set_of_texts(calm, recwarn):
    again(calm)
    batches = tf.data.Dataset.from_tensor_slices((SHORT, THEIRS)).batch(8)
    told = calm.fit(batches, epochs=1, validation_data=batches, verbose=0).history
    assert not [w for w in recwarn if "shuffle" in str(w.message)]
    by_dataset = tiny.weights(calm)
    again(calm)
    calm.fit(SHORT, THEIRS, epochs=1, shuffle=False, verbose=0)
    assert tiny.distance(by_dataset, tiny.weights(calm)) == 0
    by_text = calm.evaluate(SHORT, THEIRS, verbose=0)
    assert calm.evaluate(batches, verbose=0) == pytest.approx(by_text, rel=1e-4)
    assert told["val_loss"][0] == pytest.approx(by_text[0], rel=1e-3)
    with pytest.raises(InputError, match="a data set of texts"):
        calm.predict(batches)


def test_fit_takes_pairs_as_columns_and_as_rows(calm):
    firsts, seconds = SHORT[:20], SHORT[20:]
    found = []
    for pairs in (
        (firsts, seconds),
        list(zip(firsts, seconds, strict=True)),
        np.array(list(zip(firsts, seconds, strict=True))),
    ):
        again(calm)
        calm.fit(pairs, THEIRS[:20], epochs=1, verbose=0)
        found.append(tiny.weights(calm))
        assert calm.predict(pairs).shape == (20, 2)
    assert tiny.distance(found[0], found[1]) == tiny.distance(found[0], found[2]) == 0
    together = calm.predict((firsts, seconds))
    with pytest.raises(InputError, match=r"must be pairs of texts.*single texts"):
        calm.predict(firsts)
    calm.pairs = None  # as other tests of this model begin
    alone = calm.predict(firsts)
    assert np.abs(together - alone).max() > 1e-4


def test_each_epoch_has_another_order(model):
    examples = model.examples(TEXTS, LABELS)
    again(model)
    epochs = batch_indices(model, examples, 8, True)
    for epoch in range(3):
        model.optimizer.iterations.assign(epoch * 5)
        expected = training_batch_indices(examples.lengths, 8, 0, epoch)
        for batch, indices in zip(next(epochs), expected, strict=True):
            np.testing.assert_array_equal(batch, indices)
    assert len(prediction_batch_indices(examples.lengths, 8)) == 5


def test_a_saved_model_predicts_and_trains_the_same(model, tmp_path):
    again(model, 3)
    model.fit(SHORT, THEIRS, epochs=1, verbose=0)
    model.save(tmp_path / "model.keras")
    other = keras.saving.load_model(tmp_path / "model.keras")
    assert (other.labels, other.settings) == (model.labels, model.settings)
    assert int(other.seed) == 3
    np.testing.assert_array_equal(other.predict(SHORT), model.predict(SHORT))
    for one in (model, other):
        one.fit(SHORT, THEIRS, epochs=2, initial_epoch=1, verbose=0)
    assert int(other.optimizer.iterations) == 10
    tiny.assert_same_bits(model, other)


def test_a_text_model_is_a_layer_of_a_keras_model(model):
    again(model)
    inputs, labels_B, _ = batch(model)
    names = ("token_ids", "segment_ids", "padding_mask")
    given = {name: keras.Input([None], dtype="int32", name=name) for name in names}
    whole = keras.Model(given, model(given))
    np.testing.assert_allclose(
        whole.predict(inputs, verbose=0), model.predict(inputs, verbose=0), atol=1e-6
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    whole.compile("sgd", loss)
    before = tiny.weights(model)
    whole.train_on_batch(inputs, labels_B)
    after = tiny.weights(model)
    moved = {path for path in before if np.abs(after[path] - before[path]).max() > 0}
    still = {path for path in before if path.endswith("key/bias")}  # softmax's nature
    assert before.keys() - moved <= still
    again(model)


def test_fit_learns_a_simple_task():
    """With an optimizer and a metric of Keras's."""
    model = classifier(**tiny.NO_DROPOUT)
    accuracy = keras.metrics.SparseCategoricalAccuracy("keras_accuracy")
    model.compile(optimizer=keras.optimizers.Adam(5e-3), metrics=[accuracy])
    told = model.fit(SHORT, THEIRS, epochs=20, verbose=0).history
    assert told["keras_accuracy"] == pytest.approx(told["accuracy"])
    assert told["loss"][-1] < told["loss"][0] / 5
    names = np.argmax(model.predict(SHORT), -1)
    np.testing.assert_array_equal(names, THEIRS)
    model.reinitialize(tiny.start(), 1)
    tiny.assert_same_bits(model, classifier(seed=1))
    assert int(model.optimizer.iterations) == 0
    assert float(model.optimizer.learning_rate) == pytest.approx(5e-3)


def test_evaluate_without_compile():
    loss, accuracy = classifier().evaluate(SHORT, THEIRS, verbose=0)
    assert 0.5 < loss < 1
    assert 0 <= accuracy <= 1


def test_inputs_beyond_the_positions_are_rejected(calm):
    with pytest.raises(InputError, match=r"64 positions.*data.max_length=65"):
        classifier(data_max_length=65)
    longer = TextClassifier(tiny.start(128), "ab", tiny.settings(data_max_length=128))
    many = longer.examples(["the " * 80] * 4, [0, 1, 0, 1])
    with pytest.raises(InputError, match=r"64 positions. Rec.*82"):
        calm.fit(many)
    inputs, labels_B, _ = many.batch(range(4), 4)
    for action in (calm.fit, calm.evaluate):
        with pytest.raises(InputError, match="64 positions"):
            action(inputs, labels_B)
    with pytest.raises(InputError, match="64 positions"):
        calm.predict(inputs)
    with pytest.raises(RuntimeError, match="64 positions"):  # Keras makes it one
        calm(inputs)


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (lambda m: m.fit(TEXTS), "40 examples without targets"),
        (lambda m: m.evaluate(TEXTS), "40 examples without targets"),
        (lambda m: m.fit(TEXTS, LABELS[:3]), "40 texts and 3 targets"),
        (lambda m: m.fit((TEXTS, TEXTS[:3]), LABELS), "40 and 3"),
        (lambda m: m.fit([], []), "Received: no example"),
        (lambda m: m.fit("good", 1), "the text 'good' alone"),
        (lambda m: m.predict("good"), "the text 'good' alone"),
        (lambda m: m.fit([("a", "b"), *TEXTS[1:]], LABELS), "at index 1"),
        (lambda m: m.compile(loss="mse"), r"compile\(loss='mse'\)"),
        (lambda m: m.compile(jit_compile=True), r"compile\(jit_compile=True\)"),
        (lambda m: m.fit(TEXTS, ["good"] * 39 + ["ugly"]), "'ugly' at index 39"),
        (lambda m: m.fit(TEXTS, [0] * 39 + [2]), "2 at index 39"),
        (lambda m: m.fit(TEXTS, [[1, 1]] * 40), r"\[1, 1\] at index 0"),
    ],
)
def test_unsupported_calls_raise_errors(calm, action, words):
    with pytest.raises(InputError, match=words):
        action(calm)


def test_fit_requires_targets():
    model = TextRegressor(tiny.start(), settings=tiny.settings())
    for asked in (model.fit, model.evaluate):
        with pytest.raises(InputError, match="2 examples without targets"):
            asked(["a", "b"])


def test_fit_keeps_compiled_metrics(tmp_path):
    model = classifier()
    model.compile(metrics=[keras.metrics.SparseCategoricalAccuracy("mine")])
    few = SHORT[:8], THEIRS[:8]
    history = model.fit(*few, epochs=2, verbose=0).history
    assert history.keys() == {"loss", "accuracy", "mine"}
    assert model.optimizer.schedule.steps == 2
    with pytest.raises(InputError, match=r"0 after 2 updates.*1 updates after the 2"):
        model.fit(*few, epochs=2, initial_epoch=1, verbose=0)
    # What was refused has left nothing behind.
    with pytest.raises(InputError, match="7 at index 0"):
        model.fit(*few, epochs=9, validation_data=(SHORT[:1], [7]), verbose=0)
    assert model.optimizer.schedule.steps == 2
    before = tiny.weights(model)
    model.save(tmp_path / "model.keras")
    other = keras.saving.load_model(tmp_path / "model.keras")
    found = other.evaluate(SHORT, THEIRS, return_dict=True, verbose=0)
    assert found.keys() == {"loss", "accuracy", "mine"}
    # The next training has a rate of its own, and another order, loaded or not.
    for one in (model, other):
        history = one.fit(*few, epochs=3, verbose=0).history
        assert history.keys() == {"loss", "accuracy", "mine"}
        assert (one.optimizer.schedule.steps, int(one.seed)) == (3, 1)
        assert int(one.optimizer.iterations) == 3
    compiled = model.train_function
    model.fit(*few, epochs=3, verbose=0)
    other.fit(*few, epochs=3, verbose=0)
    assert (int(model.optimizer.iterations), int(model.seed)) == (3, 2)
    assert model.train_function is compiled
    assert tiny.distance(before, tiny.weights(model)) > 1e-4
    tiny.assert_same_bits(model, other)


def test_a_compiled_optimizer_continues_until_its_schedule_ends():
    model = tiny.compiled(classifier())
    for done in (5, 10):
        model.fit(SHORT, THEIRS, epochs=1, verbose=0)
        assert int(model.optimizer.iterations) == done
    with pytest.raises(InputError, match=r"0 after 10 updates.*5 updates after the 10"):
        model.fit(SHORT, THEIRS, epochs=1, verbose=0)
    assert int(model.seed) == 0
