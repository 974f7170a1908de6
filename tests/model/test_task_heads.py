"""Task heads: comparison with NumPy and with outputs of google-research/electra."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from conftest import GOLDEN

from electra_tf.model.heads import ClassificationHead, TokenClassificationHead
from electra_tf.tasks.examples import IGNORE_LABEL
from electra_tf.tasks.losses import class_loss, score_loss, tag_loss
from model.test_span_head import Original

TASKS = ("cola", "sts", "chunk")  # their ids are 0, 1 and 3; 4 is padding
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
    """Return outputs of the original, and hidden states of our encoder."""
    with np.load(GOLDEN / "task_heads.npz") as file:
        arrays = dict(file)
    names = ("input_ids", "segment_ids", "input_mask")
    inputs = (tf.constant(arrays[f"feat/{name}"]) for name in names)
    others = Original("squad_predict")
    # Each file holds only the rows of its own tokens.
    table = "electra/embeddings/word_embeddings"
    others.variables[table].assign(arrays[f"var/{table}"])
    arrays["states"] = others.encoder(*inputs)
    return arrays


@pytest.fixture(params=TASKS)
def task(request, original):
    """Return a task's name and its head with the original's weights."""
    kernel, bias = (
        original[f"var/task_specific/{request.param}/dense/{name}"]
        for name in ("kernel", "bias")
    )
    head = head_of(request.param, len(bias))
    head.dense.kernel.assign(kernel)
    head.dense.bias.assign(bias)
    return request.param, head


def chunk_tags(original):
    """Return the original's labels at the labelled positions."""
    tags_BL = np.full(original["feat/input_ids"].shape, IGNORE_LABEL, np.int32)
    for row, tags_L in enumerate(tags_BL):
        labelled = original["feat/chunk_labels_mask"][row] > 0
        positions = original["feat/chunk_labeled_positions"][row][labelled]
        tags_L[positions] = original["feat/chunk_labels"][row][labelled]
    return tags_BL


def test_outputs_equal_the_original(original, task):
    name, head = task
    outputs = head(original["states"]).numpy()
    if name == "sts":
        expected = original["out/sts/predictions"][:, None]
    elif name == "cola":
        expected = original["out/cola/logits"]
    else:  # the original gathers before the matmul
        rows = np.arange(len(outputs))[:, None]
        outputs = outputs[rows, original["feat/chunk_labeled_positions"]]
        expected = original["out/chunk/logits"]
    assert outputs.shape == expected.shape
    assert len(outputs) > 5
    np.testing.assert_allclose(outputs, expected, atol=2e-5)


def test_losses_and_gradients_equal_the_original(original, task):
    name, head = task
    # Compare the losses of single rows, then the sum over the task's rows.
    ones_B = np.eye(len(original["feat/task_id"]), dtype=np.float32)
    number = {"cola": 0, "sts": 1, "chunk": 3}[name]
    task_B = (original["feat/task_id"] == number).astype(np.float32)
    assert 0 < task_B.sum() < len(task_B)
    losses = {
        "cola": lambda x, w: class_loss(x, original["feat/cola_label_ids"], w),
        "sts": lambda x, w: score_loss(x, original["feat/sts_targets"], w),
        "chunk": lambda x, w: tag_loss(x, chunk_tags(original), w),
    }
    loss = losses[name]
    with tf.GradientTape() as tape:
        outputs = head(original["states"])
        total = loss(outputs, task_B).total
    row_losses = [loss(outputs, one_B).total for one_B in ones_B]
    np.testing.assert_allclose(row_losses, original[f"out/{name}/loss"], rtol=1e-5)
    np.testing.assert_allclose(
        total, np.sum(np.multiply(row_losses, task_B)), rtol=1e-6
    )
    gradients = tape.gradient(total, [v.value for v in head.trainable_variables])
    for variable, gradient in zip(head.trainable_variables, gradients, strict=True):
        path = variable.path.split("dense/")[1]
        expected = original[f"grad/task_specific/{name}/dense/{path}"]
        atol = 1e-4 * np.abs(expected).max() + 1e-5
        np.testing.assert_allclose(gradient, expected, atol=atol)


def test_classification_head_uses_the_first_vector():
    head = ClassificationHead(4, 2, dropout=0.0)
    head.build()
    head.dense.bias.assign([1.0, -1.0])
    expected = X_BLD[:, 0] @ head.dense.kernel.numpy() + [1.0, -1.0]
    np.testing.assert_allclose(head(X_BLD), expected, atol=1e-6)
    symbolic = keras.Input((None, 4))
    model = keras.Model(symbolic, head(symbolic))
    np.testing.assert_allclose(model(X_BLD), expected, atol=1e-6)


def test_dropout_is_0_1_by_default_and_in_training_only():
    x_BLD = np.ones((2000, 1, 4), np.float32)
    head = ClassificationHead(4, 1)
    head.build()
    head.dense.kernel.assign([[1.0], [10.0], [100.0], [1000.0]])
    np.testing.assert_allclose(head(x_BLD, training=False), 1111.0)
    np.testing.assert_allclose(head(x_BLD), 1111.0)
    sums = np.round(np.array(head(x_BLD, training=True))[:, 0] * 0.9).astype(int)
    kept = np.array([[c == "1" for c in f"{n:04d}"] for n in sums])
    assert set("".join(map(str, sums))) <= {"0", "1"}
    assert abs(kept.mean() - 0.9) < 4 * (0.9 * 0.1 / kept.size) ** 0.5


def test_bfloat16_states_give_float32_logits():
    states_BLD = tf.cast(X_BLD, tf.bfloat16)
    for head in (ClassificationHead(4, 3), TokenClassificationHead(4, 3)):
        head.build()
        assert {v.dtype for v in head.trainable_variables} == {"float32"}
        assert head(states_BLD).dtype == tf.float32
        expected = head(tf.cast(states_BLD, tf.float32))
        np.testing.assert_allclose(head(states_BLD), expected, atol=1e-6)


@pytest.mark.parametrize("make", [ClassificationHead, TokenClassificationHead])
def test_initial_values_depend_only_on_the_seed(make):
    kernels = []
    for seed in (0, 0, 1):
        head = make(256, 2, seed=seed)
        assert not head.trainable_variables  # `build` creates them
        head.build()
        assert not head.dense.bias.numpy().any()
        kernels.append(head.dense.kernel.numpy())
    limit = (6 / 258) ** 0.5  # Glorot-uniform: sqrt(6 / (in + out))
    assert 0.9 * limit < np.abs(kernels[0]).max() <= limit
    np.testing.assert_array_equal(kernels[0], kernels[1])
    assert np.abs(kernels[0] - kernels[2]).max() > 0.1 * limit
