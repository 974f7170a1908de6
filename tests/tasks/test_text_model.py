"""TextModel: training, prediction, saving, use as a layer, errors, optimizer."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config.finetuning import TaskOptimizerConfig
from electra_tf.errors import InputError
from electra_tf.kernels.fused_layer_ops import FusedLayerOps
from electra_tf.model.layer_ops import LayerOps
from electra_tf.tasks.classifier import TextClassifier
from electra_tf.training.optimizer import create_optimizer
from tests import tiny

TEXTS, LABELS = tiny.texts()
SHORT, SHORT_LABELS = tiny.texts(longest=11, shortest=10)  # all batches of one length


def classifier(seed=0, **changes):
    return TextClassifier(tiny.start(), ["bad", "good"], tiny.settings(**changes), seed)


@pytest.fixture(scope="module")
def model():
    """Return a trained model; tests reset it before training."""
    model = tiny.compiled(classifier(), 10)
    model.fit(TEXTS, LABELS, verbose=0)
    return model


@pytest.fixture(scope="module")
def trained(model):
    return tiny.weights(model)


@pytest.fixture(scope="module")
def no_dropout():
    """Return a model without dropout."""
    return tiny.compiled(classifier(**tiny.NO_DROPOUT))


def batch(model, rows=range(8), size=8):
    return tiny.tensors(model.examples(SHORT, SHORT_LABELS).batch(rows, size))


def gradients(model, inputs, labels, layer_ops):
    with tf.GradientTape() as tape:
        logits_BC = model.head_outputs(
            model.encoder(**inputs, layer_ops=layer_ops), inputs, layer_ops
        )
        loss = tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits_BC)
        )
    variables = model.trainable_variables
    grads = tape.gradient(loss, [v.value for v in variables])
    dense = [np.array(tf.convert_to_tensor(g)) for g in grads]
    return dict(zip([v.path for v in variables], dense, strict=True))


def test_training_is_deterministic(model, trained):
    tiny.reset(model)
    tiny.assert_same_bits(model, classifier())
    assert not any(values.any() for values in tiny.slots(model))
    model.fit(TEXTS, LABELS, verbose=0)
    assert tiny.distance(trained, tiny.weights(model)) == 0


def test_dropout_depends_on_seed_and_step(model):
    def moments_after(seed, step):
        tiny.reset(model)
        model.seed.assign(seed)
        model.optimizer.iterations.assign(step)
        model.train_on_batch(*batch(model))
        return [m.numpy() for m in model.optimizer.slots()["m"]]

    first, same = moments_after(0, 1), moments_after(0, 1)
    for a, b in zip(first, same, strict=True):
        np.testing.assert_array_equal(a, b)
    for other in (moments_after(1, 1), moments_after(0, 2)):
        pairs = zip(first, other, strict=True)
        assert max(np.abs(a - b).max() for a, b in pairs) > 1e-5


@pytest.fixture(scope="module")
def sum_loss():
    """Return a model that sums the loss, without dropout and clipping."""
    changes = {"training_reduction": "sum", "optimizer_clip_norm": None}
    return tiny.compiled(classifier(**tiny.NO_DROPOUT, **changes))


def test_fused_and_plain_layer_ops_have_equal_gradients(sum_loss):
    tiny.reset(sum_loss)
    inputs, labels_B, weights_B = batch(sum_loss)
    plain = gradients(sum_loss, inputs, labels_B, LayerOps(training=False))
    fused = gradients(sum_loss, inputs, labels_B, FusedLayerOps(None))
    largest = max(np.abs(g).max() for g in plain.values())
    assert largest > 1e-2
    assert tiny.distance(plain, fused) < 1e-5 * max(1, largest)
    sum_loss.train_on_batch(inputs, labels_B, weights_B)
    for variable, mean in zip(
        sum_loss.trainable_variables, sum_loss.optimizer.slots()["m"], strict=True
    ):
        # The first step's mean is a tenth of the gradient of the sum over eight rows.
        expected = 0.1 * 8 * plain[variable.path]
        np.testing.assert_allclose(
            mean.numpy(), expected, atol=1e-5, err_msg=variable.path
        )


def test_the_loss_is_divided_by_the_sum_of_weights(no_dropout):
    tiny.reset(no_dropout)
    inputs, labels_B, weights_B = batch(no_dropout)
    plain = gradients(no_dropout, inputs, labels_B, LayerOps(training=False))
    norm = np.sqrt(sum((g.astype(np.float64) ** 2).sum() for g in plain.values()))
    no_dropout.train_on_batch(inputs, labels_B, weights_B)
    for variable, mean in zip(
        no_dropout.trainable_variables, no_dropout.optimizer.slots()["m"], strict=True
    ):
        expected = 0.1 * plain[variable.path] / max(1.0, norm)
        np.testing.assert_allclose(
            mean.numpy(), expected, atol=1e-6, err_msg=variable.path
        )


def test_lower_layers_have_lower_learning_rates():
    # A first update is sign(g) times the rate, so its size is the rate.
    changes = {"optimizer_layer_decay": 0.5, "optimizer_weight_decay": 0.0}
    changes |= {"optimizer_warmup_share": 0.0, "optimizer_epsilon": 1e-12}
    settings = tiny.settings(**tiny.NO_DROPOUT, **changes)
    model = tiny.compiled(TextClassifier(tiny.start(depth=2), ["a", "b"], settings))
    before = tiny.weights(model)
    model.train_on_batch(*batch(model))
    after = tiny.weights(model)
    step = 1e-2 * 0.1 / 0.001**0.5  # the paper's Adam has no bias correction
    # Exponents of the original: head 0, last layer 2, then one more for each layer.
    expected = {
        "head/dense/kernel": 1.0,
        "encoder/layer_1/output/kernel": 0.5**2,
        "encoder/layer_0/output/kernel": 0.5**3,
        "encoder/embeddings/position_embeddings": 0.5**4,
        "encoder/embeddings_project/kernel": 0.5**4,
    }
    for ending, factor in expected.items():
        (path,) = (path for path in after if path.endswith(ending))
        change = np.abs(after[path] - before[path]).max()
        assert change == pytest.approx(step * factor, rel=1e-3), path


def test_a_text_model_is_a_layer_of_a_keras_model(model, tmp_path):
    tiny.reset(model)
    inputs, labels_B, _ = batch(model)
    symbolic = tiny.symbolic_inputs()
    outer = keras.Model(symbolic, model(symbolic))
    np.testing.assert_allclose(
        outer.predict(inputs, verbose=0), model.predict(inputs, verbose=0), atol=1e-6
    )
    outer.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again(inputs), outer(inputs))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    outer.compile("sgd", loss)
    before = tiny.weights(model)
    outer.train_on_batch(inputs, labels_B)
    after = tiny.weights(model)
    changed = {path for path in before if np.abs(after[path] - before[path]).max() > 0}
    # Softmax is invariant to the keys' biases: their gradient is 0.
    biases = {path for path in before if path.endswith("key/bias")}
    assert before.keys() - changed <= biases
    tiny.reset(model)


def test_inputs_longer_than_the_positions_are_errors(no_dropout):
    words = r"data.max_length=65.*64 positions.*in Python max_length=64"
    with pytest.raises(InputError, match=words):
        classifier(data_max_length=65)
    longer = TextClassifier(
        tiny.start(128), ["a", "b"], tiny.settings(data_max_length=128)
    )
    many = longer.examples(["the " * 80] * 4, [0, 1, 0, 1])
    with pytest.raises(InputError, match=r"82 positions.* 64"):
        no_dropout.fit(many)
    inputs, labels_B, _ = many.batch(range(4), 4)
    for action in (no_dropout.fit, no_dropout.evaluate):
        with pytest.raises(InputError, match=r"positions.* 64"):
            action(inputs, labels_B)
    with pytest.raises(InputError, match=r"positions.* 64"):
        no_dropout.predict(inputs)
    with pytest.raises(InputError, match=r"positions.* 64"):
        no_dropout(inputs)


def test_fit_keeps_compiled_metrics(tmp_path):
    model = classifier()
    model.compile(metrics=[keras.metrics.SparseCategoricalAccuracy("mine")])
    few = SHORT[:8], SHORT_LABELS[:8]
    history = model.fit(*few, epochs=2, verbose=0).history
    assert history.keys() == {"loss", "accuracy", "mine"}
    assert model.optimizer.schedule.steps == 2
    with pytest.raises(InputError, match=r"0 after 2 updates.*1 updates after the 2"):
        model.fit(*few, epochs=2, initial_epoch=1, verbose=0)
    # A rejected call does not change the schedule.
    with pytest.raises(InputError, match="7 at index 0"):
        model.fit(*few, epochs=9, validation_data=(SHORT[:1], [7]), verbose=0)
    assert model.optimizer.schedule.steps == 2
    before = tiny.weights(model)
    model.save(tmp_path / "model.keras")
    other = keras.saving.load_model(tmp_path / "model.keras")
    logs = other.evaluate(SHORT, SHORT_LABELS, return_dict=True, verbose=0)
    assert logs.keys() == {"loss", "accuracy", "mine"}
    assert (other.labels, other.settings) == (model.labels, model.settings)
    np.testing.assert_array_equal(other.predict(SHORT), model.predict(SHORT))
    # The next training has a new schedule and another order, also after loading.
    for one in (model, other):
        history = one.fit(*few, epochs=3, verbose=0).history
        assert history.keys() == {"loss", "accuracy", "mine"}
        assert (one.optimizer.schedule.steps, int(one.seed)) == (3, 1)
        assert int(one.optimizer.iterations) == 3
    train_function = model.train_function
    model.fit(*few, epochs=3, verbose=0)
    other.fit(*few, epochs=3, verbose=0)
    assert (int(model.optimizer.iterations), int(model.seed)) == (3, 2)
    assert model.train_function is train_function
    assert tiny.distance(before, tiny.weights(model)) > 1e-4
    tiny.assert_same_bits(model, other)


# The optimizer; tests/training compares its rates with the original's.


@pytest.mark.parametrize(
    ("share", "steps", "expected"),
    [
        # 25 steps of which 2.5 are warm-up: nothing is rounded.
        (0.1, 25, {0: 0, 1: 0.96 / 2.5, 2: 0.92 * 2 / 2.5, 3: 0.88, 24: 0.04, 25: 0}),
        (1.0, 4, {0: 0, 1: 0.75 * 0.25, 3: 0.25 * 0.75}),
        (0.0, 1, {0: 1, 1: 0}),
    ],
)
def test_learning_rates_by_hand(share, steps, expected):
    settings = TaskOptimizerConfig(learning_rate=3e-4, warmup_share=share)
    schedule = create_optimizer(settings, steps, 12).schedule
    for step, factor in expected.items():
        np.testing.assert_allclose(schedule(step), 3e-4 * factor, rtol=1e-6)


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        (0, "cardinality"),
        (-2, "cardinality"),
        (-1, "cardinality"),
        (1, "warmup_share=0"),
    ],
)
def test_numbers_of_updates_that_are_rejected(steps, words):
    with pytest.raises(InputError, match=words):
        create_optimizer(TaskOptimizerConfig(), steps, 2)
