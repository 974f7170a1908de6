"""All heads: outputs of google-research/electra, precision and initial values."""

import dataclasses
import json
import math

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy import special

from electra_tf.config.model import EncoderConfig, ModelConfig
from electra_tf.model.encoder import TransformerEncoder
from electra_tf.model.heads import (
    ClassificationHead,
    MaskedLMHead,
    ReplacedTokenHead,
    SpanHead,
    TokenClassificationHead,
)
from electra_tf.model.transformer import InitializerFactory
from electra_tf.tasks.classifier import TextClassifier, TextRegressor
from electra_tf.tasks.examples import IGNORE_LABEL
from electra_tf.tasks.question_answerer import QuestionAnswerer
from electra_tf.tasks.token_classifier import TokenClassifier
from tests import tiny
from tests.conftest import GOLDEN
from tests.pretraining.original import assert_gradients_close, our_name

WIDTH, EMBEDDING, VOCABULARY, LENGTH = 16, 8, 50, 7
RANDOM = np.random.default_rng(0)
X_BLD = RANDOM.normal(size=(3, LENGTH, WIDTH)).astype(np.float32)
TABLE_VE = RANDOM.normal(size=(VOCABULARY, EMBEDDING)).astype(np.float32)
SEGMENTS_BL = np.array(
    [[0, 0, 1, 1, 1, 1, 0], [0, 0, 0, 1, 1, 0, 0], [0, 1, 1, 1, 1, 1, 1]], np.int32
)
STARTS_B = np.array([3, 0, 6])


def make(kind, dtype=None, width=WIDTH, seed=0, values=False, **settings):
    """Return a built head or encoder, with random weights if `values`."""
    seeds = InitializerFactory(seed)
    shape = ModelConfig(width=width, heads=1, vocabulary_size=VOCABULARY).encoder
    heads = {
        "masked_lm": lambda: MaskedLMHead(shape, EMBEDDING, seed, dtype, **settings),
        "replaced_token": lambda: ReplacedTokenHead(shape, seed, dtype),
        "span": lambda: SpanHead(width, seeds, dtype=dtype, **settings),
        "class": lambda: ClassificationHead(width, 3, seed=seed, **settings),
        "tag": lambda: TokenClassificationHead(width, 3, seed=seed),
        "encoder": lambda: TransformerEncoder(
            dataclasses.replace(shape, depth=1), seed
        ),
    }
    head = heads[kind]()
    assert not head.trainable_variables  # `build` creates them
    head.build()
    rng = np.random.default_rng(1)
    for variable in head.trainable_variables if values else ():
        variable.assign(rng.normal(size=variable.shape))
    return head


def outputs_of(kind, head, x_BLD):
    """Return the outputs of a head as a list."""
    more = {"masked_lm": (TABLE_VE,), "span": (SEGMENTS_BL, STARTS_B)}
    return tf.nest.flatten(head(x_BLD, *more.get(kind, ())))


HEADS = ["masked_lm", "replaced_token", "span", "class", "tag"]
KINDS = pytest.mark.parametrize("kind", HEADS)


# --- Outputs of the original ----------------------------------------------------------

LAYERS = {  # name of the original: attribute of `SpanHead`
    "dense": "start",
    "qa_hidden": "end_hidden",
    "dense_1": "end",
    "dense_2": "answerable_hidden",
    "dense_3": "answerable",
}


class Original:
    """Encoder and span head with the weights of a golden file."""

    def __init__(self, name):
        self.arrays = dict(np.load(GOLDEN / "squad_encoder.npz"))
        info = json.loads(str(self.arrays["info_json"]))
        bert = info["bert_config"]
        self.arrays |= dict(np.load(GOLDEN / f"{name}.npz"))
        shape = EncoderConfig(
            depth=bert["num_hidden_layers"],
            width=bert["hidden_size"],
            embedding=info["embedding_size"],
            heads=bert["num_attention_heads"],
            feed_forward=bert["intermediate_size"],
            vocabulary_size=bert["vocab_size"],
            max_positions=bert["max_position_embeddings"],
            segments=bert["type_vocab_size"],
            dropout=0.0,
            attention_dropout=0.0,
        )
        self.encoder = TransformerEncoder(shape)
        self.encoder.build()
        self.head = SpanHead(shape.width, InitializerFactory(0), start_n_top=5)
        self.head.build()
        layers = self.encoder, self.head
        ours = {v.path: v for layer in layers for v in layer.trainable_variables}
        self.variables = {}
        for key in self.arrays:
            name = key.removeprefix("var/")
            if name != key:
                self.variables[name] = ours.pop(self.ours(name))
                self.variables[name].assign(self.arrays[key])
        assert not ours

    @staticmethod
    def ours(name):
        if name.startswith("task_specific/squad/"):
            layer, weight = name.split("/")[2:]
            return f"head/{LAYERS[layer]}/{weight}"
        return our_name(name).removeprefix("discriminator/")

    def __getitem__(self, name):
        return self.arrays[name]

    def states(self, arrays=None):
        names = ("input_ids", "segment_ids", "input_mask")
        arrays = arrays or self.arrays
        return self.encoder(*(tf.constant(arrays[f"feat/{name}"]) for name in names))

    def targets(self):
        names = ("start_positions", "end_positions", "is_impossible")
        return (self[f"feat/squad_{name}"] for name in names)

    def check_gradients(self, tape, loss):
        values = {
            name: variable.value
            for name, variable in self.variables.items()
            if f"grad/{name}" in self.arrays
        }
        gradients = tape.gradient(loss, values, unconnected_gradients="zero")
        assert_gradients_close(
            values, gradients.values(), lambda name: self[f"grad/{name}"]
        )
        return set(gradients)

    def assert_close(self, outputs, name):
        expected, outputs = self[f"out/squad/{name}"], np.asarray(outputs)
        masked = np.abs(expected) > 500
        np.testing.assert_allclose(outputs[~masked], expected[~masked], atol=2e-5)
        np.testing.assert_allclose(outputs[masked], expected[masked], atol=1e-4)


def test_training_on_spans_equals_the_original():
    original = Original("squad_train")
    targets = dict(zip(("start", "end", "impossible"), original.targets(), strict=True))
    names = "start_logits_BL", "end_logits_BL", "answerable_logit_B"
    model = QuestionAnswerer(tiny.start())
    with tf.GradientTape() as tape:
        states_BLD, segments_BL = original.states(), original["feat/segment_ids"]
        outputs = original.head(states_BLD, segments_BL, targets["start"])
        assert set(outputs) == set(names)
        ones_B = tf.ones(len(targets["start"]))
        loss = model.task_loss(outputs, targets, ones_B).total
    for name in names:
        original.assert_close(outputs[name], name.rpartition("_")[0])
    rows = [
        model.task_loss(outputs, targets, one_B).total
        for one_B in np.eye(len(ones_B), dtype=np.float32)
    ]
    np.testing.assert_allclose(rows, original["out/squad/loss"], rtol=1e-5)
    np.testing.assert_allclose(loss, original["loss"], rtol=1e-5)
    assert original.check_gradients(tape, loss) == set(original.variables)


def test_prediction_of_spans_equals_the_original():
    original = Original("squad_predict")
    starts_B, _, impossible_B = original.targets()
    length = original["feat/input_ids"].shape[1]
    with tf.GradientTape() as tape:
        outputs = original.head(original.states(), original["feat/segment_ids"])
        # In prediction the original's end loss is log(length).
        span_B = tf.nn.sparse_softmax_cross_entropy_with_logits(
            starts_B, outputs["start_logits_BL"]
        )
        span_B += math.log(length)
        of_answerable_B = tf.nn.sigmoid_cross_entropy_with_logits(
            tf.cast(impossible_B, tf.float32), outputs["answerable_logit_B"]
        )
        loss_B = span_B / 2 + 0.5 * of_answerable_B
        loss = tf.reduce_sum(loss_B)
    assert "end_logits_BL" not in outputs
    for name, output in outputs.items():
        if "_index_" in name:
            expected = original["out/squad/" + name.rpartition("_")[0]]
            np.testing.assert_array_equal(output, expected)
        else:
            original.assert_close(output, name.rpartition("_")[0])
    np.testing.assert_allclose(loss_B, original["out/squad/loss"], rtol=1e-5)
    checked = original.check_gradients(tape, loss)
    assert {LAYERS[name.split("/")[2]] for name in checked} == set(LAYERS.values())


@pytest.fixture(scope="module")
def tasks():
    """Return outputs of the original for three tasks, and hidden states of ours."""
    with np.load(GOLDEN / "task_heads.npz") as file:
        arrays = dict(file)
    others = Original("squad_predict")
    # Each file holds only the rows of its own tokens.
    table = "electra/embeddings/word_embeddings"
    others.variables[table].assign(arrays[f"var/{table}"])
    return arrays | {"states": others.states(arrays)}


@pytest.fixture(params=["cola", "sts", "chunk"])
def task(request, tasks):
    """Return a task's name and its head with the original's weights."""
    weights = f"var/task_specific/{request.param}/dense/"
    kernel, bias = tasks[f"{weights}kernel"], tasks[f"{weights}bias"]
    is_tagging = request.param == "chunk"
    kind = TokenClassificationHead if is_tagging else ClassificationHead
    head = kind(*kernel.shape)
    head.build()
    head.dense.kernel.assign(kernel)
    head.dense.bias.assign(bias)
    return request.param, head


def chunk_tags(tasks):
    """Return the original's labels at the labelled positions."""
    tags_BL = np.full(tasks["feat/input_ids"].shape, IGNORE_LABEL, np.int32)
    for row, tags_L in enumerate(tags_BL):
        labelled = tasks["feat/chunk_labels_mask"][row] > 0
        positions = tasks["feat/chunk_labeled_positions"][row][labelled]
        tags_L[positions] = tasks["feat/chunk_labels"][row][labelled]
    return tags_BL


def test_outputs_of_tasks_equal_the_original(tasks, task):
    name, head = task
    outputs = head(tasks["states"]).numpy()
    if name == "sts":
        expected = tasks["out/sts/predictions"][:, None]
    elif name == "cola":
        expected = tasks["out/cola/logits"]
    else:  # the original gathers before the matmul
        rows = np.arange(len(outputs))[:, None]
        outputs = outputs[rows, tasks["feat/chunk_labeled_positions"]]
        expected = tasks["out/chunk/logits"]
    assert outputs.shape == expected.shape
    np.testing.assert_allclose(outputs, expected, atol=2e-5)


def test_losses_and_gradients_of_tasks_equal_the_original(tasks, task):
    name, head = task
    # Compare the losses of single rows, then the sum over the task's rows.
    ones_B = np.eye(len(tasks["feat/task_id"]), dtype=np.float32)
    number = {"cola": 0, "sts": 1, "chunk": 3}[name]
    task_B = (tasks["feat/task_id"] == number).astype(np.float32)
    model, targets = {
        "cola": (
            TextClassifier(tiny.start(), ["0", "1"]),
            tasks["feat/cola_label_ids"],
        ),
        "sts": (TextRegressor(tiny.start()), tasks["feat/sts_targets"]),
        "chunk": (TokenClassifier(tiny.start(), [*"BIO"]), chunk_tags(tasks)),
    }[name]
    loss = lambda outputs, weights_B: model.task_loss(outputs, targets, weights_B)  # noqa: E731
    with tf.GradientTape() as tape:
        outputs = head(tasks["states"])
        total = loss(outputs, task_B).total
    row_losses = [loss(outputs, one_B).total for one_B in ones_B]
    np.testing.assert_allclose(row_losses, tasks[f"out/{name}/loss"], rtol=1e-5)
    expected = np.sum(np.multiply(row_losses, task_B))
    np.testing.assert_allclose(total, expected, rtol=1e-6)
    gradients = tape.gradient(total, [v.value for v in head.trainable_variables])
    paths = [v.path.split("dense/")[1] for v in head.trainable_variables]
    prefix = f"grad/task_specific/{name}/dense/"
    assert_gradients_close(paths, gradients, lambda path: tasks[prefix + path])


# --- Other shapes and precisions ------------------------------------------------------


@pytest.mark.parametrize(("start_n_top", "size"), [(3, 3), (20, LENGTH)])
def test_best_spans_are_those_of_all_starts_and_ends(start_n_top, size):
    head = make("span", values=True, start_n_top=start_n_top)
    top = {k: v.numpy() for k, v in head(X_BLD, SEGMENTS_BL).items()}
    for row in range(3):
        x, segments = X_BLD[row : row + 1], SEGMENTS_BL[row : row + 1]
        start_L = tf.nn.log_softmax(top["start_logits_BL"][row]).numpy()
        best_S = np.argsort(-start_L)[:size]
        np.testing.assert_array_equal(top["start_top_index_BS"][row], best_S)
        for rank, start in enumerate(best_S):
            end_L = head(x, segments, np.array([start]))["end_logits_BL"][0]
            end_L = tf.nn.log_softmax(end_L).numpy()
            best_K = np.argsort(-end_L)[:size]
            np.testing.assert_array_equal(top["end_top_index_BSK"][row, rank], best_K)
            log_probs_K = top["end_top_log_probs_BSK"][row, rank]
            np.testing.assert_allclose(log_probs_K, end_L[best_K], atol=2e-4)


def test_ends_without_joint_prediction_do_not_depend_on_the_start():
    head = make("span", values=True, joint_prediction=False)
    outputs = head(X_BLD, SEGMENTS_BL)
    assert set(outputs) == {"start_logits_BL", "end_logits_BL", "answerable_logit_B"}
    assert not [v.path for v in head.weights if "end_hidden" in v.path]
    is_outside_BL = (SEGMENTS_BL == 0) & (np.arange(LENGTH) > 0)
    expected = X_BLD @ head.end.kernel.numpy()[:, 0] + head.end.bias.numpy()
    np.testing.assert_allclose(
        outputs["end_logits_BL"], expected - 1000 * is_outside_BL, rtol=1e-5, atol=1e-5
    )
    alone = make("span", answerable=False)
    assert "answerable_logit_B" not in alone(X_BLD, SEGMENTS_BL)


def test_symbolic_and_dynamic_lengths_equal_eager():
    head = make("span", values=True, start_n_top=10)
    x = keras.Input((None, WIDTH))
    segments = keras.Input((None,), dtype="int32")
    model = keras.Model([x, segments], head(x, segments))
    ids = tf.TensorSpec([None, None], tf.int32)
    signature = [tf.TensorSpec([None, None, WIDTH]), ids]
    traced = tf.function(lambda *inputs: head(*inputs), input_signature=signature)
    for length in (LENGTH, 4):
        inputs = X_BLD[:, :length], SEGMENTS_BL[:, :length]
        expected = head(*inputs)
        assert expected["end_top_index_BSK"].shape == (3, length, length)
        for outputs in (model(list(inputs)), traced(*inputs)):
            assert set(outputs) == set(expected)
            for name, value in expected.items():
                np.testing.assert_allclose(outputs[name], value, rtol=1e-4, atol=1e-4)


def pooled_by_hand(pooling, x_LD, segments_L, mask_L):
    """Return the vector of one text, with a loop over its positions."""
    if pooling == "cls":
        return x_LD[0]
    real = [n for n in range(LENGTH) if mask_L[n]]
    if pooling == "mean":
        return np.mean([x_LD[n] for n in real], 0)
    u_D = np.mean([x_LD[n] for n in real if not segments_L[n]], 0)
    second = [x_LD[n] for n in real if segments_L[n]]
    if not second:
        return np.concatenate([u_D, np.zeros(3 * WIDTH)])
    v_D = np.mean(second, 0)
    cosines_D = u_D * v_D / np.sqrt(np.mean(u_D**2) * np.mean(v_D**2))
    return np.concatenate([u_D, v_D, abs(u_D - v_D), cosines_D])


@pytest.mark.parametrize("pooling", ["cls", "mean", "pair"])
@pytest.mark.parametrize("pooler", ["none", "gelu"])
def test_classification_pools_real_positions(pooling, pooler):
    head = make("class", values=True, pooling=pooling, pooler=pooler)
    mask_BL = np.array([[1] * 6 + [0], [1] * 5 + [0] * 2, [1] * LENGTH], np.int32)
    segments_BL = SEGMENTS_BL * [[1], [1], [0]]  # the last one is a single text
    inputs = X_BLD, segments_BL.astype(np.int32), mask_BL
    x_BD = np.stack(
        [pooled_by_hand(pooling, *row) for row in zip(*inputs, strict=True)]
    )
    if pooler == "gelu":
        x_BD = x_BD @ head.pooler.kernel.numpy() + head.pooler.bias.numpy()
        x_BD = 0.5 * x_BD * (1 + special.erf(x_BD / np.sqrt(2)))
    expected_BC = x_BD @ head.dense.kernel.numpy() + head.dense.bias.numpy()
    np.testing.assert_allclose(head(*inputs), expected_BC, rtol=1e-4, atol=1e-5)


def test_head_of_scores_of_pairs_begins_as_the_cosine():
    head = ClassificationHead(WIDTH, 1, pooling="pair")
    segments_BL = (SEGMENTS_BL * [[1], [1], [0]]).astype(np.int32)
    scores_B = head(X_BLD, segments_BL, np.ones_like(segments_BL))[:, 0]
    for row in range(2):
        u_D, v_D = (X_BLD[row][segments_BL[row] == n].mean(0) for n in (0, 1))
        cosine = u_D @ v_D / np.linalg.norm(u_D) / np.linalg.norm(v_D)
        np.testing.assert_allclose(scores_B[row], cosine, atol=1e-4)
    assert scores_B[2] == 0  # a single text


def test_classification_has_dropout_in_training():
    single = ClassificationHead(4, 1)
    single.build()
    single.dense.kernel.assign([[1.0], [10.0], [100.0], [1000.0]])
    sums = np.array(single(np.ones((2000, 1, 4), np.float32), training=True))[:, 0]
    digits = "".join(f"{round(n):04d}" for n in sums * 0.9)
    assert set(digits) == {"0", "1"}
    share = digits.count("1") / len(digits)
    assert abs(share - 0.9) < 4 * (0.9 * 0.1 / len(digits)) ** 0.5


@KINDS
def test_mixed_precision_applies_to_hidden_layers_only(kind):
    exact, mixed = (make(kind, d, values=True) for d in (None, "mixed_bfloat16"))
    assert {v.dtype for v in mixed.trainable_variables} == {"float32"}
    low_BLD = tf.cast(X_BLD, tf.bfloat16)
    high_BLD = tf.cast(low_BLD, tf.float32)
    pairs = zip(
        outputs_of(kind, exact, high_BLD), outputs_of(kind, mixed, low_BLD), strict=True
    )
    for expected, logits in pairs:
        assert logits.dtype == tf.float32
        tolerance = 0.03 * np.abs(expected.numpy()[np.abs(expected) < 500]).max()
        np.testing.assert_allclose(logits, expected, atol=tolerance, rtol=0.01)


def test_mixed_precision_does_not_round_the_token_table_and_the_score():
    head = make("masked_lm", "mixed_bfloat16", values=True)
    hidden = head.layer_norm(head.dense(X_BLD))
    assert hidden.dtype == tf.bfloat16
    exact = float64(hidden) @ TABLE_VE.T.astype(np.float64) + head.output_bias.numpy()
    np.testing.assert_allclose(head(X_BLD, TABLE_VE), exact, atol=1e-5)
    head = make("replaced_token", "mixed_bfloat16", values=True)
    kernel, bias = (v.numpy().astype(np.float64) for v in head.score.weights)
    exact = float64(head.dense(X_BLD)) @ kernel + bias
    np.testing.assert_allclose(head(X_BLD), exact[..., 0], atol=1e-5)


def float64(x):
    return tf.cast(x, tf.float64).numpy()


@pytest.mark.parametrize("kind", [*HEADS, "encoder"])
def test_initial_values_have_the_originals_distributions(kind):
    first, again, other = (make(kind, width=256, seed=seed) for seed in (0, 0, 1))
    for variable, same, different in zip(
        first.weights, again.weights, other.weights, strict=True
    ):
        values, path = variable.numpy(), variable.path
        np.testing.assert_array_equal(values, same)
        if path.endswith("gamma"):
            assert (values == 1).all()
        elif path.endswith(("bias", "beta")):
            assert not values.any()
        elif kind in ("masked_lm", "replaced_token", "encoder") and not path.endswith(
            ("score/kernel", "embeddings_project/kernel")
        ):
            # Cut at two standard deviations, 0.02 becomes 0.0176.
            assert np.abs(values).max() <= 0.04
            error = 0.0176 / (2 * values.size) ** 0.5
            tolerance = 5 * error + 1e-4 if kind == "encoder" else 1e-3
            assert abs(values.std() - 0.0176) < tolerance
            assert abs(values.mean()) < 5 * 0.0176 / values.size**0.5
            assert (values != different.numpy()).mean() > 0.99
        else:  # Glorot-uniform
            limit = (6 / sum(values.shape)) ** 0.5
            assert 0.9 * limit < np.abs(values).max() <= limit
            assert np.abs(values - different.numpy()).max() > 0.1 * limit
