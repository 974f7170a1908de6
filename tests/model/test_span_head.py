"""`SpanHead`: comparison with NumPy and with outputs of google-research/electra."""

import json
import math

import keras
import numpy as np
import pytest
import tensorflow as tf
from conftest import GOLDEN
from pretraining.original import our_name

from electra_tf.config.pretraining import EncoderConfig
from electra_tf.model.heads import SpanHead
from electra_tf.model.transformer import Encoder, InitializerFactory
from electra_tf.tasks.losses import impossible_loss, position_loss, span_loss

WIDTH, HIDDEN, LENGTH = 8, 16, 7
RANDOM = np.random.default_rng(0)
X_BLD = RANDOM.normal(size=(3, LENGTH, WIDTH)).astype(np.float32)
SEGMENTS_BL = np.array(
    [[0, 0, 1, 1, 1, 1, 0], [0, 0, 0, 1, 1, 0, 0], [0, 1, 1, 1, 1, 1, 1]]
)
STARTS_B = np.array([3, 0, 6])
LAYERS = {  # name of the original: attribute of `SpanHead`
    "dense": "start",
    "qa_hidden": "end_hidden",
    "dense_1": "end",
    "dense_2": "answerable_hidden",
    "dense_3": "answerable",
}


def head_of(dtype=None, width=WIDTH, hidden=HIDDEN, values=True, **settings):
    head = SpanHead(
        width, InitializerFactory(0), hidden=hidden, dtype=dtype, **settings
    )
    head.build()
    rng = np.random.default_rng(1)
    for variable in head.trainable_variables if values else ():
        variable.assign(rng.normal(size=variable.shape))
    return head


def paths(head):
    return {v.path.removeprefix("head/"): v for v in head.trainable_variables}


def gelu(x):
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / 2**0.5))


def log_softmax(x):
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


class SpanHeadReference:
    """Compute the head in float64, for one row and one start at a time."""

    def __init__(self, head, row):
        self.arrays = {k: v.numpy().astype(np.float64) for k, v in paths(head).items()}
        self.x_LD = X_BLD[row].astype(np.float64)
        inside = SEGMENTS_BL[row].astype(bool)
        inside[0] = True
        self.outside_L = np.where(inside, 0.0, -1000.0)

    def dense(self, name, x):
        return x @ self.arrays[f"{name}/kernel"] + self.arrays[f"{name}/bias"]

    def start(self):
        return self.dense("start", self.x_LD)[:, 0] + self.outside_L

    def end(self, start):
        first_LD = np.repeat(self.x_LD[start][None], LENGTH, 0)
        hidden = gelu(
            self.dense("end_hidden", np.concatenate([first_LD, self.x_LD], 1))
        )
        return self.dense("end", hidden)[:, 0] + self.outside_L

    def answerable(self):
        start_D = np.exp(log_softmax(self.start())) @ self.x_LD
        pair = np.concatenate([self.x_LD[0], start_D])
        return self.dense("answerable", gelu(self.dense("answerable_hidden", pair)))[0]


def test_training_outputs_equal_numpy():
    head = head_of()
    outputs = head(X_BLD, SEGMENTS_BL, STARTS_B)
    assert set(outputs) == {"start_logits_BL", "end_logits_BL", "answerable_logit_B"}
    for row in range(3):
        reference = SpanHeadReference(head, row)
        expected = {
            "start_logits_BL": reference.start(),
            "end_logits_BL": reference.end(STARTS_B[row]),
            "answerable_logit_B": reference.answerable(),
        }
        for name, value in expected.items():
            np.testing.assert_allclose(outputs[name][row], value, atol=1e-4)


@pytest.mark.parametrize(("start_n_top", "size"), [(3, 3), (20, LENGTH)])
def test_top_spans_equal_numpy(start_n_top, size):
    head = head_of(start_n_top=start_n_top)
    outputs = {k: v.numpy() for k, v in head(X_BLD, SEGMENTS_BL).items()}
    assert "end_logits_BL" not in outputs
    for row in range(3):
        reference = SpanHeadReference(head, row)
        start_L = log_softmax(reference.start())
        best_S = np.argsort(-start_L)[:size]
        np.testing.assert_array_equal(outputs["start_top_index_BS"][row], best_S)
        np.testing.assert_allclose(
            outputs["start_top_log_probs_BS"][row], start_L[best_S], atol=2e-4
        )
        for s, start in enumerate(best_S):
            end_L = log_softmax(reference.end(start))
            best_K = np.argsort(-end_L)[:size]
            np.testing.assert_array_equal(outputs["end_top_index_BSK"][row, s], best_K)
            np.testing.assert_allclose(
                outputs["end_top_log_probs_BSK"][row, s], end_L[best_K], atol=2e-4
            )


def test_outputs_without_joint_prediction_equal_numpy():
    head = head_of(joint_prediction=False)
    assert set(paths(head)) == {
        f"{layer}/{weight}"
        for layer in ("start", "end", "answerable_hidden", "answerable")
        for weight in ("kernel", "bias")
    }
    outputs = head(X_BLD, SEGMENTS_BL)
    assert set(outputs) == {"start_logits_BL", "end_logits_BL", "answerable_logit_B"}
    reference = SpanHeadReference(head, 1)
    end_L = reference.dense("end", reference.x_LD)[:, 0] + reference.outside_L
    np.testing.assert_allclose(outputs["end_logits_BL"][1], end_L, atol=1e-4)
    np.testing.assert_allclose(
        outputs["answerable_logit_B"][1], reference.answerable(), atol=1e-4
    )
    assert "answerable_logit_B" not in head_of(answerable=False)(X_BLD, SEGMENTS_BL)


def test_symbolic_and_dynamic_lengths_equal_eager():
    head = head_of(start_n_top=10)
    x = keras.Input((None, WIDTH))
    segments = keras.Input((None,), dtype="int32")
    model = keras.Model([x, segments], head(x, segments))

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, None, WIDTH]),
            tf.TensorSpec([None, None], tf.int32),
        ]
    )
    def traced(x_BLD, segment_ids_BL):
        return head(x_BLD, segment_ids_BL)

    for length in (LENGTH, 4):
        x_BLD, segments_BL = X_BLD[:, :length], SEGMENTS_BL[:, :length].astype("int32")
        expected = head(x_BLD, segments_BL)
        assert expected["end_top_index_BSK"].shape == (3, length, length)
        for outputs in (model([x_BLD, segments_BL]), traced(x_BLD, segments_BL)):
            assert set(outputs) == set(expected)
            for name, value in expected.items():
                np.testing.assert_allclose(outputs[name], value, atol=1e-5)


def test_initial_values():
    head = head_of(width=256, hidden=512, values=False)
    limits = {  # Glorot-uniform: sqrt(6 / (in + out))
        "start": (6 / 257) ** 0.5,
        "end_hidden": (6 / 1024) ** 0.5,
        "end": (6 / 513) ** 0.5,
        "answerable_hidden": (6 / 1024) ** 0.5,
        "answerable": (6 / 513) ** 0.5,
    }
    weights = paths(head)
    for name, limit in limits.items():
        kernel = np.abs(weights[f"{name}/kernel"].numpy())
        assert 0.95 * limit < kernel.max() <= limit
        assert abs(kernel.mean() / limit - 0.5) < 5 * 12**-0.5 / 16
        assert not weights[f"{name}/bias"].numpy().any()
    other = paths(SpanHead(256, InitializerFactory(1)))
    assert not other  # `build` creates the weights


def test_mixed_precision_applies_to_hidden_layers_only():
    exact, mixed = head_of(start_n_top=3), head_of("mixed_bfloat16", start_n_top=3)
    assert {v.dtype for v in mixed.trainable_variables} == {"float32"}
    x_BLD = tf.cast(X_BLD, tf.bfloat16)
    outputs = mixed(x_BLD, SEGMENTS_BL)
    assert {v.dtype for k, v in outputs.items() if "index" not in k} == {tf.float32}
    expected = exact(tf.cast(x_BLD, tf.float32), SEGMENTS_BL)
    np.testing.assert_allclose(
        outputs["start_logits_BL"], expected["start_logits_BL"], atol=1e-5
    )
    ends = [
        head(x, SEGMENTS_BL, STARTS_B)["end_logits_BL"].numpy()
        for head, x in ((mixed, x_BLD), (exact, tf.cast(x_BLD, tf.float32)))
    ]
    assert 1e-3 < np.abs(ends[0] - ends[1]).max() < 0.5


class Original:
    """Encoder and head with the weights of a golden file."""

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
        self.encoder = Encoder(shape)
        self.encoder.build()
        self.head = SpanHead(shape.width, InitializerFactory(0), start_n_top=5)
        self.head.build()
        self.variables = {}
        ours = {v.path: v for v in self.encoder.trainable_variables} | {
            v.path: v for v in self.head.trainable_variables
        }
        for name in self.arrays:
            if name.startswith("var/"):
                variable = ours.pop(self.ours(name.removeprefix("var/")))
                variable.assign(self.arrays[name])
                self.variables[name.removeprefix("var/")] = variable
        assert not ours

    @staticmethod
    def ours(name):
        if name.startswith("task_specific/squad/"):
            layer, weight = name.split("/")[2:]
            return f"head/{LAYERS[layer]}/{weight}"
        return our_name(name).removeprefix("discriminator/")

    def __getitem__(self, name):
        return self.arrays[name]

    def states(self):
        names = ("input_ids", "segment_ids", "input_mask")
        return self.encoder(*(tf.constant(self[f"feat/{name}"]) for name in names))

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
        for name, gradient in gradients.items():
            gradient = tf.convert_to_tensor(gradient).numpy()
            expected = self[f"grad/{name}"]
            if gradient.shape != expected.shape:  # the file has every fifth column
                gradient = gradient[:, ::5]
            atol = 1e-4 * np.abs(expected).max() + 1e-5
            np.testing.assert_allclose(gradient, expected, atol=atol, err_msg=name)
        return set(gradients)

    def assert_close(self, outputs, name):
        expected = self[f"out/squad/{name}"]
        masked = np.abs(expected) > 500
        outputs = np.asarray(outputs)
        np.testing.assert_allclose(outputs[~masked], expected[~masked], atol=2e-5)
        np.testing.assert_allclose(outputs[masked], expected[masked], atol=1e-4)


def test_training_equals_the_original():
    original = Original("squad_train")
    starts_B, ends_B, impossible_B = original.targets()
    with tf.GradientTape() as tape:
        outputs = original.head(
            original.states(), original["feat/segment_ids"], starts_B
        )
        loss_B = span_loss(
            outputs["start_logits_BL"],
            outputs["end_logits_BL"],
            outputs["answerable_logit_B"],
            starts_B,
            ends_B,
            impossible_B,
        )
        loss = tf.reduce_sum(loss_B)
    original.assert_close(outputs["start_logits_BL"], "start_logits")
    original.assert_close(outputs["end_logits_BL"], "end_logits")
    original.assert_close(outputs["answerable_logit_B"], "answerable_logit")
    np.testing.assert_allclose(loss_B, original["out/squad/loss"], rtol=1e-5)
    np.testing.assert_allclose(loss, original["loss"], rtol=1e-5)
    assert original.check_gradients(tape, loss) == set(original.variables)


def test_prediction_equals_the_original():
    original = Original("squad_predict")
    starts_B, _, impossible_B = original.targets()
    length = original["feat/input_ids"].shape[1]
    with tf.GradientTape() as tape:
        outputs = original.head(original.states(), original["feat/segment_ids"])
        # In prediction the original's end loss is log(length).
        loss_B = (
            position_loss(outputs["start_logits_BL"], starts_B) + math.log(length)
        ) / 2 + 0.5 * impossible_loss(outputs["answerable_logit_B"], impossible_B)
        loss = tf.reduce_sum(loss_B)
    original.assert_close(outputs["start_logits_BL"], "start_logits")
    original.assert_close(outputs["answerable_logit_B"], "answerable_logit")
    original.assert_close(outputs["start_top_log_probs_BS"], "start_top_log_probs")
    original.assert_close(outputs["end_top_log_probs_BSK"], "end_top_log_probs")
    for name in ("start_top_index_BS", "end_top_index_BSK"):
        expected = original["out/squad/" + name.rpartition("_")[0]]
        np.testing.assert_array_equal(outputs[name], expected)
    np.testing.assert_allclose(loss_B, original["out/squad/loss"], rtol=1e-5)
    checked = original.check_gradients(tape, loss)
    assert {LAYERS[name.split("/")[2]] for name in checked} == set(LAYERS.values())
