"""By hand, and the numbers google-research/electra computed on the same weights."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from conftest import GOLDEN

from electra_tf.model.heads import ClassificationHead, TokenClassificationHead
from electra_tf.tasks.batching import IGNORE_LABEL
from electra_tf.tasks.losses import class_loss, score_loss, tag_loss
from model.test_span_head import Original

TASKS = ("cola", "sts", "chunk")  # their ids are 0, 1 and 3; 4 only fills up
WIDTH = 32
X_BLD = np.random.default_rng(0).normal(size=(3, 5, 4)).astype(np.float32)


def head_of(name, units):
    head = (
        TokenClassificationHead(WIDTH, units)
        if name == "chunk"
        else ClassificationHead(WIDTH, units)
    )
    head.build()
    return head


@pytest.fixture(scope="module")
def original():
    """What the original computed, and hidden states of this project's encoder."""
    with np.load(GOLDEN / "task_heads.npz") as file:
        arrays = dict(file)
    names = ("input_ids", "segment_ids", "input_mask")
    inputs = (tf.constant(arrays[f"feat/{name}"]) for name in names)
    others = Original("squad_predict")
    # That file's table has the rows of its own tokens alone, and so has this one's.
    table = "electra/embeddings/word_embeddings"
    others.variables[table].assign(arrays[f"var/{table}"])
    arrays["states"] = others.encoder(*inputs)
    return arrays


@pytest.fixture(params=TASKS)
def task(request, original):
    """A task's name, and its head with the original's weights."""
    kernel, bias = (
        original[f"var/task_specific/{request.param}/dense/{name}"]
        for name in ("kernel", "bias")
    )
    head = head_of(request.param, len(bias))
    head.dense.kernel.assign(kernel)
    head.dense.bias.assign(bias)
    return request.param, head


def chunk_tags(original):
    """The original's labels, at the positions they are about."""
    tags_BL = np.full(original["feat/input_ids"].shape, IGNORE_LABEL, np.int32)
    for row, tags_L in enumerate(tags_BL):
        asked = original["feat/chunk_labels_mask"][row] > 0
        places = original["feat/chunk_labeled_positions"][row][asked]
        tags_L[places] = original["feat/chunk_labels"][row][asked]
    return tags_BL


def test_outputs_are_the_originals(original, task):
    name, head = task
    found = head(original["states"]).numpy()
    if name == "sts":
        expected = original["out/sts/predictions"][:, None]
    elif name == "cola":
        expected = original["out/cola/logits"]
    else:  # the original gathers first, and multiplies then
        rows = np.arange(len(found))[:, None]
        found = found[rows, original["feat/chunk_labeled_positions"]]
        expected = original["out/chunk/logits"]
    assert found.shape == expected.shape
    assert len(found) > 5
    np.testing.assert_allclose(found, expected, atol=2e-5)


def test_losses_and_gradients_are_the_originals(original, task):
    name, head = task
    # One row at a time, and then those of the task alone.
    ones_B = np.eye(len(original["feat/task_id"]), dtype=np.float32)
    number = {"cola": 0, "sts": 1, "chunk": 3}[name]
    mine_B = (original["feat/task_id"] == number).astype(np.float32)
    assert 0 < mine_B.sum() < len(mine_B)
    losses = {
        "cola": lambda x, w: class_loss(x, original["feat/cola_label_ids"], w),
        "sts": lambda x, w: score_loss(x, original["feat/sts_targets"], w),
        "chunk": lambda x, w: tag_loss(x, chunk_tags(original), w),
    }
    of = losses[name]
    with tf.GradientTape() as tape:
        outputs = head(original["states"])
        total = of(outputs, mine_B).total
    found = [of(outputs, one_B).total for one_B in ones_B]
    np.testing.assert_allclose(found, original[f"out/{name}/loss"], rtol=1e-5)
    np.testing.assert_allclose(total, np.sum(np.multiply(found, mine_B)), rtol=1e-6)
    gradients = tape.gradient(total, [v.value for v in head.trainable_variables])
    for variable, gradient in zip(head.trainable_variables, gradients, strict=True):
        path = variable.path.split("dense/")[1]
        expected = original[f"grad/task_specific/{name}/dense/{path}"]
        atol = 1e-4 * np.abs(expected).max() + 1e-5
        np.testing.assert_allclose(gradient, expected, atol=atol)


def test_a_sentence_is_its_first_vector_by_hand():
    head = ClassificationHead(4, 2, dropout=0.0)
    head.build()
    head.dense.bias.assign([1.0, -1.0])
    expected = X_BLD[:, 0] @ head.dense.kernel.numpy() + [1.0, -1.0]
    np.testing.assert_allclose(head(X_BLD), expected, atol=1e-6)
    symbolic = keras.Input((None, 4))
    model = keras.Model(symbolic, head(symbolic))
    np.testing.assert_allclose(model(X_BLD), expected, atol=1e-6)


def test_dropout_is_for_training_and_a_tenth_unless_told():
    x_BLD = np.ones((2000, 1, 4), np.float32)
    head = ClassificationHead(4, 1)
    head.build()
    head.dense.kernel.assign([[1.0], [10.0], [100.0], [1000.0]])
    np.testing.assert_allclose(head(x_BLD, training=False), 1111.0)
    np.testing.assert_allclose(head(x_BLD), 1111.0)
    found = np.round(np.array(head(x_BLD, training=True))[:, 0] * 0.9).astype(int)
    kept = np.array([[c == "1" for c in f"{n:04d}"] for n in found])
    assert set("".join(map(str, found))) <= {"0", "1"}
    assert abs(kept.mean() - 0.9) < 4 * (0.9 * 0.1 / kept.size) ** 0.5


def test_low_precision_states_make_float32_logits():
    states_BLD = tf.cast(X_BLD, tf.bfloat16)
    for head in (ClassificationHead(4, 3), TokenClassificationHead(4, 3)):
        head.build()
        assert {v.dtype for v in head.trainable_variables} == {"float32"}
        assert head(states_BLD).dtype == tf.float32
        expected = head(tf.cast(states_BLD, tf.float32))
        np.testing.assert_allclose(head(states_BLD), expected, atol=1e-6)


@pytest.mark.parametrize("make", [ClassificationHead, TokenClassificationHead])
def test_initial_values_are_the_seeds(make):
    kernels = []
    for seed in (0, 0, 1):
        head = make(256, 2, seed=seed)
        assert not head.trainable_variables  # nothing is made before build
        head.build()
        assert not head.dense.bias.numpy().any()
        kernels.append(head.dense.kernel.numpy())
    limit = (6 / 258) ** 0.5  # Glorot-uniform: sqrt(6 / (in + out))
    assert 0.9 * limit < np.abs(kernels[0]).max() <= limit
    np.testing.assert_array_equal(kernels[0], kernels[1])
    assert np.abs(kernels[0] - kernels[2]).max() > 0.1 * limit
