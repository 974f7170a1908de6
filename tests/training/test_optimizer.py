import functools
import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config.pretraining import OptimizerConfig as Settings
from electra_tf.errors import InputError
from electra_tf.training.optimizer import Optimizer, create_optimizer
from electra_tf.training.schedule import LayerwiseMultipliers, WarmupPolynomialDecay
from tests.conftest import GOLDEN

# Schedule, clip_norm and multipliers of each case of the golden file.
CASES = {
    "c1": (WarmupPolynomialDecay(0.01, 3, power=0.0), None, None),
    "c2": (WarmupPolynomialDecay(0.05, 10, 4), 1.0, None),
    "c2p": (WarmupPolynomialDecay(0.05, 5, 2, power=2.0), 1.0, None),
    "c3": (WarmupPolynomialDecay(0.05, 25, 2.5), 1.0, LayerwiseMultipliers(12, 0.8)),
    "c0_warmup0": (WarmupPolynomialDecay(0.05, 10), 1.0, None),
}
CONSTANT = WarmupPolynomialDecay(0.05, 1, power=0.0)


def settings(**changes):
    return Settings(**{"weight_decay": 0.01, "epsilon": 1e-6, **changes})


def built_optimizer(variables, **changes):
    optimizer = Optimizer(CONSTANT, settings(**changes))
    optimizer.build(variables)
    return optimizer


def random_problem(seed=0, steps=5):
    """Return a kernel, a bias (without weight decay) and gradients of each step."""
    random = np.random.default_rng(seed)
    values = {"kernel": random.normal(size=(4, 3)), "bias": random.normal(size=3)}
    variables = [tf.Variable(v.astype("f"), name=name) for name, v in values.items()]
    gradients = [
        [random.normal(size=v.shape).astype("f") for v in variables]
        for _ in range(steps)
    ]
    return variables, gradients


def to_numpy(variables):
    return [variable.numpy() for variable in variables]


def assert_close(actual, expected, rtol=1e-6, atol=1e-6):
    for a, e in zip(actual, expected, strict=True):
        np.testing.assert_allclose(a, e, rtol=rtol, atol=atol)


@pytest.fixture(scope="module")
def golden():
    with np.load(GOLDEN / "optimizer.npz") as file:
        return dict(file)


@pytest.mark.parametrize("case", CASES)
def test_updates_equal_the_original(golden, case):
    schedule, clip_norm, multipliers = CASES[case]
    names = [key.removeprefix("init/") for key in golden if key.startswith("init/")]
    variables = [tf.Variable(golden[f"init/{name}"], name=name) for name in names]
    optimizer = Optimizer(schedule, settings(clip_norm=clip_norm), multipliers)
    optimizer.build(variables)
    slots = optimizer.slots()
    steps = len(golden[f"{case}/after/{names[0]}"])
    assert steps == {"c1": 3, "c0_warmup0": 2}.get(case, 6)
    for t in range(steps):
        rate = float(optimizer.learning_rate)
        norm = optimizer.update([golden[f"grads/{n}"][t] for n in names], variables)
        if clip_norm:
            expected_norm = golden[f"{case}/pre_clip_global_norm"][t]
            np.testing.assert_allclose(norm, expected_norm, rtol=1e-6)
            rates = golden.get(f"{case}/lr", golden.get(f"{case}/lr/task_specific"))
            np.testing.assert_allclose(rate, rates[t], rtol=1e-6, atol=1e-9)
        for i, name in enumerate(names):
            for actual, key in (
                (variables[i], f"after/{name}"),
                (slots["m"][i], f"slot/{name}/adam_m"),
                (slots["v"][i], f"slot/{name}/adam_v"),
            ):
                expected = golden[f"{case}/{key}"][t]
                if key.endswith("_v"):  # ResourceApplyAdam computes 1 - beta in float32
                    expected = expected * (1 - np.float32(0.999)) / 0.001
                assert_close([actual], [expected], atol=1e-6 * np.abs(expected).max())
    assert int(optimizer.iterations) == steps


def test_duplicate_indices_are_summed_before_clipping(golden):
    # The released code clips by the norm of the slices before duplicates are summed.
    table, kernel = (
        tf.Variable(golden[key], name=key)
        for key in ("init/electra/embeddings/word_embeddings", "c5/K")
    )
    slices = tf.IndexedSlices(golden["c5/values"], golden["c5/indices"])
    assert len(set(golden["c5/indices"])) < len(golden["c5/indices"])
    optimizer = built_optimizer([table, kernel], beta_1=0.0)
    norm = optimizer.update([slices, golden["c5/gk"]], [table, kernel])
    np.testing.assert_allclose(norm, golden["c5/dense_norm"], rtol=1e-6)
    # With beta_1 = 0, m is the clipped gradient.
    clipped = [golden["c5/dense"] / norm, golden["c5/gk"] / norm]
    assert_close(optimizer.slots()["m"], clipped)


def numpy_updates(name, variables, gradients, epsilon, decay):
    """Compute Adam of ELECTRA, AdamW or LAMB as the papers define them, in float64."""
    weights = [v.numpy().astype("d") for v in variables]
    m, v = ([np.zeros_like(w) for w in weights] for _ in range(2))
    for t, step_gradients in enumerate(gradients, 1):
        for i, gradient in enumerate(step_gradients):
            m[i] = 0.9 * m[i] + 0.1 * gradient
            v[i] = 0.999 * v[i] + 0.001 * np.square(gradient, dtype=np.float64)
            c1, c2 = (1.0, 1.0) if name == "adam" else (1 - 0.9**t, 1 - 0.999**t)
            step = m[i] / c1 / (np.sqrt(v[i] / c2) + epsilon)
            trust = 1.0
            if i == 0:  # the bias does not decay; the old weight does, once
                step = step + decay * weights[i]
                if name == "lamb":
                    norms = np.linalg.norm(weights[i]), np.linalg.norm(step)
                    trust = norms[0] / norms[1] if all(norms) else 1.0
            weights[i] = weights[i] - 0.05 * trust * step
    return weights


@pytest.mark.parametrize(
    ("name", "decay"), [("adam", 0.1), ("adamw", 0.1), ("lamb", 0.1), ("lamb", 0.0)]
)
def test_updates_equal_the_papers(name, decay):
    variables, gradients = random_problem(steps=12)
    # A large epsilon, so that its place in the formula matters.
    expected = numpy_updates(name, variables, gradients, 0.5, decay)
    optimizer = built_optimizer(
        variables, name=name, epsilon=0.5, weight_decay=decay, clip_norm=None
    )
    for step_gradients in gradients:
        optimizer.update(step_gradients, variables)
    assert_close(variables, expected)


def test_a_variable_without_gradient_is_not_updated():
    variables, gradients = random_problem()
    optimizer = built_optimizer(variables)
    before = to_numpy([*variables, *optimizer.slots()["m"]])
    norm = optimizer.update([None, gradients[0][1]], variables)
    np.testing.assert_allclose(norm, np.linalg.norm(gradients[0][1]), rtol=1e-6)
    after = to_numpy([*variables, *optimizer.slots()["m"]])
    unchanged = [np.array_equal(a, b) for a, b in zip(before, after, strict=True)]
    assert unchanged == [True, False, True, False]


def test_no_decay_patterns_match_paths():
    class Block(keras.layers.Layer):
        def build(self, shape):
            self.dense = keras.layers.Dense(3, name="dense", kernel_initializer="ones")
            self.norm = keras.layers.LayerNormalization(name="layer_norm")
            self.dense.build(shape)
            self.norm.build((None, 3))

    block = Block(name="block")
    block.build((None, 2))
    before = to_numpy(block.trainable_variables)
    optimizer = built_optimizer(block.trainable_variables)
    zeros = [tf.zeros(v.shape) for v in block.trainable_variables]
    optimizer.update(zeros, block.trainable_variables)
    factors = {
        v.path: np.unique(np.divide(v, b, where=b != 0, out=np.ones_like(b))).tolist()
        for v, b in zip(block.trainable_variables, before, strict=True)
    }
    assert factors == {
        "block/dense/kernel": [np.float32(1 - 0.05 * 0.01)],
        "block/dense/bias": [1.0],
        "block/layer_norm/gamma": [1.0],
        "block/layer_norm/beta": [1.0],
    }
    assert optimizer.slots()["v"][0].path == "adam/block_dense_kernel_v"


@pytest.mark.parametrize(
    ("clip_norm", "bad", "compiled"),
    [(1.0, math.nan, False), (1.0, math.inf, True), (None, math.inf, False)],
)
def test_a_non_finite_gradient_makes_the_norm_non_finite(clip_norm, bad, compiled):
    variables, gradients = random_problem(steps=1)
    gradients[0][0][1, 1] = bad
    optimizer = built_optimizer(variables, clip_norm=clip_norm)
    step = tf.function(lambda *g: optimizer.update(g, variables), jit_compile=compiled)
    assert not np.isfinite(step(*gradients[0]))
    nan_counts = [np.isnan(v).sum() for v in to_numpy(variables)]
    assert nan_counts == ([12, 3] if clip_norm else [1, 0])


@pytest.mark.parametrize("name", ["adam", "adamw", "lamb", "muon"])
def test_graph_and_xla_equal_eager(name):
    results = []
    for wrap in (
        lambda step: step,
        tf.function,
        functools.partial(tf.function, jit_compile=True),
    ):
        variables, gradients = random_problem()
        optimizer = create_optimizer(settings(name=name, warmup_steps=2), steps=9)
        optimizer.build(variables)
        step = wrap(lambda *g: optimizer.update(g, variables))  # noqa: B023
        norms = [step(*step_gradients) for step_gradients in gradients]
        assert int(optimizer.iterations) == 5
        slots = [s for slot in optimizer.slots().values() for s in slot]
        slots = [s for s in slots if s is not None]
        results.append(to_numpy([*norms, *variables, *slots]))
    assert_close(results[1], results[0])
    assert_close(results[2], results[0])


@pytest.mark.parametrize("compiled", [False, True], ids=["graph", "xla"])
def test_keras_fits_and_saves_with_the_optimizer(compiled, tmp_path):
    keras.utils.set_random_seed(5)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    optimizer = create_optimizer(settings(learning_rate=0.05, warmup_steps=1), 40)
    model.compile(optimizer, "mse", jit_compile=compiled)
    x = np.random.default_rng(3).normal(size=(32, 4)).astype("f")
    y = x.sum(1, keepdims=True)
    losses = model.fit(x, y, batch_size=4, epochs=5, verbose=0).history["loss"]
    assert losses[-1] < 0.5 * losses[0]
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras").optimizer
    assert loaded.get_config() == model.optimizer.get_config()
    assert int(loaded.iterations) == 40
    for name, slots in model.optimizer.slots().items():
        assert np.abs(slots[0]).max() > 0
        assert_close(loaded.slots()[name], slots, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ([], "not none"),
        ([tf.Variable([1.0], dtype=tf.float16, name="half")], r"half\S* \(.*float16"),
    ],
)
def test_an_optimizer_needs_float32_variables(variables, words):
    with pytest.raises(InputError, match=words):
        built_optimizer(variables)


@pytest.mark.parametrize("arguments", [(1.0, 0), (1.0, 5, -1)])
def test_an_invalid_schedule_is_an_error(arguments):
    with pytest.raises(InputError, match=f"steps={arguments[1]}, warmup="):
        WarmupPolynomialDecay(*arguments)


def muon_problem():
    random = np.random.default_rng(3)
    # A vector of the shape [D, 1] and tables are AdamW's.
    shapes = {
        **{"tall": (6, 3), "wide": (3, 6), "other": (3, 5)},
        **{"word_embeddings": (7, 4), "scale": (4,)},
    }
    values = {n: random.normal(size=s).astype("f") for n, s in shapes.items()}
    gradients = [
        [random.normal(size=v.shape).astype("f") for v in values.values()]
        for _ in range(8)
    ]
    make = lambda: [keras.Variable(v, name=n) for n, v in values.items()]  # noqa: E731
    return make(), make(), gradients


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_muon_equals_keras(decay):
    variables, copies, gradients = muon_problem()
    ours = built_optimizer(
        variables,
        name="muon",
        epsilon=1e-12,
        weight_decay=decay,
        no_decay=("scale",),
        clip_norm=None,
    )
    theirs = keras.optimizers.Muon(
        0.05, epsilon=1e-12, weight_decay=decay, adam_weight_decay=decay
    )
    theirs.exclude_from_weight_decay(var_names=["scale"])
    theirs.build(copies)
    for step_gradients in gradients:
        ours.update(step_gradients, variables)
        theirs.apply([tf.constant(g) for g in step_gradients], copies)
    assert_close(variables, copies, atol=1e-5)
    has_square = [slot is not None for slot in ours.slots()["v"]]
    assert has_square == [False, False, False, True, True]


def test_muon_in_bfloat16_is_near_float32():
    after = {}
    for precision in ("float32", "bfloat16"):
        variables, _, gradients = muon_problem()
        optimizer = built_optimizer(variables, name="muon", muon_precision=precision)
        optimizer.update(gradients[0], variables)
        after[precision] = [variable.numpy() for variable in variables]
    before, _, _ = muon_problem()
    for start, exact, near in zip(before, *after.values(), strict=True):
        step = np.linalg.norm(exact - start.numpy())
        difference = np.linalg.norm(exact - near)
        assert difference <= 0.2 * step
        assert (difference > 0) == (start.name in ("tall", "wide", "other"))
