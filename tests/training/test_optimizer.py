import functools
import json
import math

import keras
import numpy as np
import pytest
import tensorflow as tf
from conftest import GOLDEN

from electra_tf.config.pretraining import OptimizerConfig as Settings
from electra_tf.errors import InputError
from electra_tf.training.optimizer import Optimizer, build_optimizer
from electra_tf.training.schedule import WarmupPolynomialDecay, layerwise_multipliers

# What the golden file does not tell of its cases: schedule, clipping, multipliers.
CASES = {
    "c1": (WarmupPolynomialDecay(0.01, 3, power=0.0), None, None),
    "c2": (WarmupPolynomialDecay(0.05, 10, 4), 1.0, None),
    "c2p": (WarmupPolynomialDecay(0.05, 5, 2, power=2.0), 1.0, None),
    "c3": (WarmupPolynomialDecay(0.05, 25, 2.5), 1.0, layerwise_multipliers(12, 0.8)),
    "c0_warmup0": (WarmupPolynomialDecay(0.05, 10), 1.0, None),
}
CONSTANT = WarmupPolynomialDecay(0.05, 1, power=0.0)


def settings(**changes):
    return Settings(**{"weight_decay": 0.01, "epsilon": 1e-6, **changes})


def built(variables, **changes):
    optimizer = Optimizer(CONSTANT, settings(**changes))
    optimizer.build(variables)
    return optimizer


def drawn(seed=0, steps=5):
    """Two variables, of which the second does not decay, and their gradients."""
    random = np.random.default_rng(seed)
    start = {"kernel": random.normal(size=(4, 3)), "bias": random.normal(size=3)}
    variables = [tf.Variable(start[k].astype("f"), name=k) for k in start]
    gradients = [
        [random.normal(size=v.shape).astype("f") for v in variables]
        for _ in range(steps)
    ]
    return variables, gradients


def numbers(variables):
    return [variable.numpy() for variable in variables]


def assert_close(found, wanted, rtol=1e-6, atol=1e-6):
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=rtol, atol=atol)


@pytest.fixture(scope="module")
def golden():
    with np.load(GOLDEN / "optimizer.npz") as file:
        return dict(file)


@pytest.mark.parametrize("case", CASES)
def test_updates_are_the_originals(golden, case):
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
            wanted = golden[f"{case}/pre_clip_global_norm"][t]
            np.testing.assert_allclose(norm, wanted, rtol=1e-6)
            wanted = golden.get(f"{case}/lr", golden.get(f"{case}/lr/task_specific"))[t]
            np.testing.assert_allclose(rate, wanted, rtol=1e-6, atol=1e-9)
        for i, name in enumerate(names):
            for found, key in (
                (variables[i], f"after/{name}"),
                (slots["m"][i], f"slot/{name}/adam_m"),
                (slots["v"][i], f"slot/{name}/adam_v"),
            ):
                wanted = golden[f"{case}/{key}"][t]
                if key.endswith("_v"):  # TensorFlow's 1 - beta is float32's
                    wanted = wanted * (1 - np.float32(0.999)) / 0.001
                assert_close([found], [wanted], atol=1e-6 * np.abs(wanted).max())
    assert int(optimizer.iterations) == steps


def test_repeated_rows_of_slices_are_summed_before_the_norm(golden):
    # The released code clips by the norm of the unsummed slices, 5.18.
    table, kernel = (
        tf.Variable(golden[key], name=key)
        for key in ("init/electra/embeddings/word_embeddings", "c5/K")
    )
    slices = tf.IndexedSlices(golden["c5/values"], golden["c5/indices"])
    assert len(set(golden["c5/indices"])) < len(golden["c5/indices"])
    optimizer = built([table, kernel], beta_1=0.0)
    norm = optimizer.update([slices, golden["c5/gk"]], [table, kernel])
    np.testing.assert_allclose(norm, golden["c5/dense_norm"], rtol=1e-6)
    # Without memory, m is the clipped gradient.
    clipped = [golden["c5/dense"] / norm, golden["c5/gk"] / norm]
    assert_close(optimizer.slots()["m"], clipped)


def by_hand(name, variables, gradients, epsilon, decay):
    """Adam with bias correction, or LAMB, as the papers write them, in float64."""
    weights = [v.numpy().astype("d") for v in variables]
    m, v = ([np.zeros_like(w) for w in weights] for _ in range(2))
    for t, now in enumerate(gradients, 1):
        for i, gradient in enumerate(now):
            m[i] = 0.9 * m[i] + 0.1 * gradient
            v[i] = 0.999 * v[i] + 0.001 * np.square(gradient, dtype=np.float64)
            root = np.sqrt(v[i] / (1 - 0.999**t))
            step = m[i] / (1 - 0.9**t) / (root + epsilon)
            trust = 1.0
            if i == 0:  # the bias does not decay
                step = step + decay * weights[i]
                if name == "lamb":
                    norms = np.linalg.norm(weights[i]), np.linalg.norm(step)
                    trust = norms[0] / norms[1] if all(norms) else 1.0
            weights[i] = weights[i] - 0.05 * trust * step
    return weights


@pytest.mark.parametrize("name", ["adamw", "lamb"])
@pytest.mark.parametrize("decay", [0.1, 0.0])
def test_corrected_rules_are_the_papers(name, decay):
    variables, gradients = drawn(steps=12)
    # An epsilon this large tells where it stands.
    wanted = by_hand(name, variables, gradients, 0.5, decay)
    optimizer = built(
        variables, name=name, epsilon=0.5, weight_decay=decay, clip_norm=None
    )
    for now in gradients:
        optimizer.update(now, variables)
    assert_close(variables, wanted)


@pytest.mark.parametrize("zero", ["weights", "gradient"])
def test_lamb_trusts_a_zero_norm_with_1(zero):
    variables, gradients = drawn(steps=1)
    gradients = gradients[0]
    if zero == "weights":
        variables[0].assign(tf.zeros([4, 3]))
    else:
        gradients[0] *= 0
    wanted = by_hand("lamb", variables, [gradients], 1e-6, 0.0)
    optimizer = built(variables, name="lamb", weight_decay=0.0, clip_norm=None)
    optimizer.update(gradients, variables)
    assert_close(variables, wanted)


def test_adamw_is_that_of_keras_where_epsilon_is_small():
    # Keras divides by sqrt(v) + epsilon before it corrects v, which makes its epsilon
    # 30 times larger at the first update.
    variables, gradients = drawn(steps=12)
    others = [tf.Variable(v, name=v.name.split(":")[0]) for v in variables]
    ours = built(variables, name="adamw", epsilon=1e-12, clip_norm=2.0)
    keras_own = keras.optimizers.AdamW(
        0.05, weight_decay=0.01, epsilon=1e-12, global_clipnorm=2.0
    )
    keras_own.exclude_from_weight_decay(var_names=["bias"])
    keras_own.build(others)
    for now in gradients:
        ours.update(now, variables)
        keras_own.apply([tf.constant(g) for g in now], others)
    assert_close(variables, others, atol=1e-5)


def test_weights_change_once_all_gradients_are_there_the_most_last():
    # TensorFlow copies a variable that changes while somebody still reads it; an update
    # needs memory, which other variables' gradients have left by then.
    many, few = (
        keras.Variable(np.ones((n, 2), np.float32), name=f"v{n}") for n in (3, 2)
    )
    optimizer = build_optimizer(Settings(), 10)
    optimizer.build([many, few])

    @tf.function
    def update():
        late = tf.matmul(many.value, few.value, name="late")
        optimizer.update([tf.ones([3, 2]), late[:2]], [many, few])

    graph = update.get_concrete_function().graph
    captured = {inner.name: outer for outer, inner in graph.captures}

    def before(operation, seen):
        for other in (*operation.control_inputs, *(t.op for t in operation.inputs)):
            if other not in seen:
                seen.add(other)
                before(other, seen)
        return seen

    changed = {
        operation: captured[operation.inputs[0].name] is many.value.handle
        for operation in graph.get_operations()
        if operation.type in ("AssignSubVariableOp", "ResourceApplyAdam")
    }
    assert sorted(changed.values()) == [False, False, True, True]
    for change, is_many in changed.items():
        needed = before(change, set())
        assert "late" in {operation.name for operation in needed}
        if is_many:
            assert {other for other, late in changed.items() if not late} <= needed


def test_a_variable_without_gradient_is_left_alone():
    variables, gradients = drawn()
    optimizer = built(variables)
    before = numbers([*variables, *optimizer.slots()["m"]])
    norm = optimizer.update([None, gradients[0][1]], variables)
    np.testing.assert_allclose(norm, np.linalg.norm(gradients[0][1]), rtol=1e-6)
    after = numbers([*variables, *optimizer.slots()["m"]])
    same = [np.array_equal(a, b) for a, b in zip(before, after, strict=True)]
    assert same == [True, False, True, False]


def test_a_path_decides_on_decay():
    class Block(keras.layers.Layer):
        def build(self, shape):
            self.dense = keras.layers.Dense(3, name="dense", kernel_initializer="ones")
            self.norm = keras.layers.LayerNormalization(name="layer_norm")
            self.dense.build(shape)
            self.norm.build((None, 3))

    block = Block(name="block")
    block.build((None, 2))
    before = numbers(block.trainable_variables)
    optimizer = built(block.trainable_variables)
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


@pytest.mark.parametrize("clip_norm", [1.0, None])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("compiled", [False, True], ids=["graph", "xla"])
def test_a_gradient_that_is_not_finite_shows(clip_norm, bad, compiled):
    variables, gradients = drawn(steps=1)
    gradients[0][0][1, 1] = bad
    optimizer = built(variables, clip_norm=clip_norm)
    step = tf.function(lambda *g: optimizer.update(g, variables), jit_compile=compiled)
    assert not np.isfinite(step(*gradients[0]))
    lost = [np.isnan(v).sum() for v in numbers(variables)]
    assert lost == ([12, 3] if clip_norm else [1, 0])


@pytest.mark.parametrize("name", ["adam", "adamw", "lamb"])
def test_graph_and_xla_update_as_eager_does(name):
    ends = []
    for wrap in (
        lambda step: step,
        tf.function,
        functools.partial(tf.function, jit_compile=True),
    ):
        variables, gradients = drawn()
        optimizer = build_optimizer(settings(name=name, warmup_steps=2), steps=9)
        optimizer.build(variables)
        step = wrap(lambda *g: optimizer.update(g, variables))  # noqa: B023
        norms = [step(*now) for now in gradients]
        assert int(optimizer.iterations) == 5
        slots = optimizer.slots()
        ends.append(numbers([*norms, *variables, *slots["m"], *slots["v"]]))
    assert_close(ends[1], ends[0])
    assert_close(ends[2], ends[0])


@pytest.mark.parametrize("compiled", [False, True], ids=["graph", "xla"])
def test_keras_fit_learns_with_it_and_saves_it(compiled, tmp_path):
    keras.utils.set_random_seed(5)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    optimizer = build_optimizer(settings(learning_rate=0.05, warmup_steps=1), 40)
    model.compile(optimizer, "mse", jit_compile=compiled)
    x = np.random.default_rng(3).normal(size=(32, 4)).astype("f")
    y = x.sum(1, keepdims=True)
    losses = model.fit(x, y, batch_size=16, epochs=20, verbose=0).history["loss"]
    assert losses[-1] < 0.5 * losses[0]
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras").optimizer
    assert again.get_config() == model.optimizer.get_config()
    assert int(again.iterations) == 40
    for name, slots in model.optimizer.slots().items():
        assert np.abs(slots[0]).max() > 0
        assert_close(again.slots()[name], slots, rtol=0, atol=0)


def test_its_state_goes_through_a_checkpoint(tmp_path):
    variables, gradients = drawn()
    optimizer = built(variables)
    optimizer.update(gradients[0], variables)
    path = tf.train.Checkpoint(optimizer=optimizer).write(str(tmp_path / "c"))
    other = built(drawn()[0])
    status = tf.train.Checkpoint(optimizer=other).read(path)
    status.assert_existing_objects_matched()
    assert_close(other.variables, optimizer.variables, rtol=0, atol=0)
    assert int(other.iterations) == 1


def test_its_config_goes_through_json():
    optimizer = Optimizer(
        WarmupPolynomialDecay(0.1, 7, 2.5),
        settings(name="lamb", no_decay=("a", "b"), clip_norm=None),
        layerwise_multipliers(3, 0.9, "exact"),
        name="mine",
    )
    text = json.dumps(keras.saving.serialize_keras_object(optimizer))
    again = keras.saving.deserialize_keras_object(json.loads(text))
    assert again.settings == optimizer.settings
    assert again.name == "mine"
    assert again.schedule.get_config() == optimizer.schedule.get_config()
    assert again.multipliers == optimizer.multipliers


def test_the_rate_comes_from_the_settings():
    optimizer = build_optimizer(
        settings(learning_rate=0.5, warmup_steps=4, decay_power=2.0), steps=8
    )
    optimizer.iterations.assign(2)
    assert float(optimizer.learning_rate) == 0.5 * 0.75**2 * 2 / 4


def test_mistakes_are_told():
    variables, gradients = drawn()
    optimizer = Optimizer(CONSTANT, settings())
    for use in (
        optimizer.slots,
        lambda: optimizer.update(gradients[0], variables),
        lambda: optimizer.apply(gradients[0]),
    ):
        with pytest.raises(InputError, match="built before it is used"):
            use()
    with pytest.raises(InputError, match="Received: no variables"):
        optimizer.build([])
    with pytest.raises(InputError, match="Received: half"):
        optimizer.build([tf.Variable([1.0], dtype=tf.float16, name="half")])
    optimizer.build(variables[:1])
    with pytest.raises(InputError, match=r"built with\. Received: bias"):
        optimizer.update(gradients[0], variables)
    with pytest.raises(InputError, match="1 variables without one"):
        optimizer.update([None], variables[:1])
    with pytest.raises(ValueError, match="zip"):
        optimizer.update(gradients[0], variables[:1])
    assert int(optimizer.iterations) == 0
