"""Train step: the trajectory of the released code, and invariances."""

import dataclasses
import functools
import re

import keras
import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config.data import InputConfig
from electra_tf.config.pretraining import OptimizerConfig, TrainingConfig
from electra_tf.errors import InputError
from electra_tf.pretraining import metrics
from electra_tf.pretraining import pretrainer as pretrainer_lib
from electra_tf.pretraining.metrics import compute_metrics
from electra_tf.pretraining.pretrainer import Pretrainer
from electra_tf.training.loop import train_runner
from electra_tf.training.optimizer import create_optimizer
from electra_tf.training.strategy import iterate
from tests.pretraining.original import Fixture
from tests.tiny import MASK, TOKENS, batch, config, objective_settings

FILES = (
    ("pretraining.npz", 5),
    ("pretraining_tied.npz", 3),
    ("pretraining_untied_embeddings.npz", 3),
)


@pytest.mark.parametrize(("file", "steps"), FILES)
def test_the_trajectory_equals_the_original(file, steps, monkeypatch):
    fixture = Fixture(file)
    settings = OptimizerConfig(
        learning_rate=fixture.settings["learning_rate"],
        warmup_steps=fixture.settings["num_warmup_steps"],
        decay_power=fixture.settings["lr_decay_power"],
        weight_decay=fixture.settings["weight_decay_rate"],
    )
    trained = fixture.pretrainer
    trained.compile(create_optimizer(settings, fixture.settings["num_train_steps"]))
    masked, rng = fixture.masked(), fixture.rng()
    monkeypatch.setattr(trained.objective, "mask", lambda batch, rng: masked)
    monkeypatch.setattr(pretrainer_lib, "make_rng", lambda *_: rng)
    step = tf.function(lambda: trained.train_step(fixture.batch()), autograph=False)
    metrics_by_step = [step() for _ in range(steps)]
    after = [n for n in fixture.arrays if n.startswith("var_after/")]
    assert len(after) == (len(fixture.variables) if file == "pretraining.npz" else 0)
    for name in after:
        ours = fixture.variables[name.removeprefix("var_after/")].numpy()
        np.testing.assert_allclose(ours, fixture[name], rtol=1e-5, atol=2e-6)
    metrics_by_step.append(step())
    for name, original_name in (
        ("loss", "total_loss"),
        ("masked_lm_loss", "gen_loss"),
        ("disc_loss", "disc_loss"),
        ("gradient_norm", "dense_norm"),
        ("learning_rate", "lr"),
    ):
        ours = [float(values[name]) for values in metrics_by_step[:steps]]
        np.testing.assert_allclose(ours, fixture[f"traj/{original_name}"], rtol=1e-5)
    np.testing.assert_allclose(
        metrics_by_step[steps]["loss"], fixture["traj/final_total_loss"], rtol=1e-5
    )


CONFIG = dataclasses.replace(
    config(dropout=0.1, attention_dropout=0.1, max_positions=16),
    input=InputConfig(batch_size=8),
    optimizer=OptimizerConfig(learning_rate=1e-2, warmup_steps=2),
    training=TrainingConfig(steps=100),
)


def make_pretrainer(**changes):
    """Return a compiled pretrainer; `changes` are settings by section."""
    objective = objective_settings(**changes.pop("objective", {}))
    new = dataclasses.replace(CONFIG, objective=objective)
    for section, settings in changes.items():
        settings = dataclasses.replace(getattr(new, section), **settings)
        new = dataclasses.replace(new, **{section: settings})
    pretrainer = Pretrainer(new, TOKENS)
    pretrainer.compile(create_optimizer(new.optimizer, new.training.steps))
    return pretrainer


def rows(seed=0, words=45):
    """Return rows of different lengths with `words` tokens; the last one is empty."""
    lengths = np.random.default_rng(seed).integers(4, 17, 7)
    text = batch([*lengths, 0], seed=seed)
    is_word_BL = text.input_ids_BL > MASK
    ids_BL = tf.where(is_word_BL, text.input_ids_BL % words + 5, text.input_ids_BL)
    return text._replace(input_ids_BL=ids_BL)


def train(pretrainer, steps=3, words=45):
    step = tf.function(pretrainer.train_step, autograph=False)
    batches = (rows(seed=seed, words=words) for seed in range(steps))
    return [{k: float(v) for k, v in step(batch).items()} for batch in batches]


def weights(pretrainer):
    return {v.path: v.numpy() for v in pretrainer.trainable_variables}


def assert_equal_weights(one, other, **tolerance):
    one, other = weights(one), weights(other)
    assert one.keys() == other.keys()
    for path, values in one.items():
        np.testing.assert_allclose(values, other[path], err_msg=path, **tolerance)


@pytest.fixture(scope="module")
def trained():
    """Return a pretrainer after three steps with dropout, and their metrics."""
    pretrainer = make_pretrainer()
    return pretrainer, train(pretrainer)


@pytest.mark.runs
def test_several_compiled_steps_in_one_call_give_equal_results(trained):
    strategy = tf.distribute.OneDeviceStrategy("/device:CPU:0")
    with strategy.scope():
        compiled = make_pretrainer(training={"xla": "on"})
    run_steps = train_runner(strategy, compiled)
    assert run_steps.jit_compile
    iterator = iterate(strategy, lambda *_: three_batches())
    first, others = (compute_metrics(run_steps(iterator, n)[0]) for n in (1, 2))
    expected_first, *expected_others = trained[1]
    assert expected_first.keys() - {"learning_rate"} <= first.keys()  # and the AUC
    for name in expected_first.keys() & first.keys():
        value = expected_first[name]
        np.testing.assert_allclose(first[name], value, rtol=1e-6, err_msg=name)
    for name in ("loss", "gradient_norm", "tokens"):
        mean = np.mean([metrics[name] for metrics in expected_others])
        np.testing.assert_allclose(others[name], mean, rtol=1e-5, err_msg=name)
    assert_equal_weights(compiled, trained[0], atol=1e-5)


def three_batches():
    datasets = (tf.data.Dataset.from_tensors(rows(seed=seed)) for seed in range(3))
    return functools.reduce(tf.data.Dataset.concatenate, datasets)


def test_accumulation_gives_equal_results(trained):
    accumulated = make_pretrainer(training={"accumulation": 4})
    for step_metrics, expected in zip(train(accumulated), trained[1], strict=True):
        for name, value in expected.items():
            np.testing.assert_allclose(
                step_metrics[name], value, rtol=1e-4, err_msg=name
            )
    # Adam amplifies rounding errors of nearly zero gradients.
    assert_equal_weights(accumulated, trained[0], atol=2e-4)


def test_remat_gives_the_same_bits(trained):
    """Also with dropout, whose random numbers are drawn once."""
    remat = make_pretrainer(training={"remat": True})
    assert train(remat) == trained[1]
    assert_equal_weights(remat, trained[0], rtol=0)


def test_metrics_of_the_update(trained):
    values = trained[1][0]
    assert {"loss", "tokens", "learning_rate", "gradient_norm"} <= set(values)
    expected = values["masked_lm_loss"] + 50 * values["disc_loss"]
    np.testing.assert_allclose(values["loss"], expected, rtol=1e-5)
    assert values["tokens"] == rows().input_mask_BL.numpy().sum()
    assert [v["learning_rate"] for v in trained[1]][:2] == [0, pytest.approx(4.95e-3)]


def test_the_batch_number_determines_the_evaluation(trained):
    pretrainer, _ = trained
    one, same, other = (
        metrics.compute_metrics(pretrainer.test_step(rows(), number, as_ratios=False))
        for number in (0, 0, 1)
    )
    # Compared as text, because NaN != NaN.
    assert str(one) == str(same)
    assert str(one) != str(other)
    assert 0 <= one["disc_auc"] <= 1


def operations(graph):
    """Return the types of all operations, including those of called functions."""
    types = {op.type for op in graph.get_operations()}
    for function in graph.as_graph_def().library.function:
        types |= {node.op for node in function.node_def}
    return types


KINDS = {
    "original": {"masking": {"scheme": "original"}},
    "mlm": {"objective": {"name": "mlm"}, "masking": {"replacement": "bert"}},
    "whole_word, remat, bfloat16": {
        "masking": {"scheme": "whole_word"},
        "training": {"remat": True, "accumulation": 2, "precision": "mixed_bfloat16"},
    },
}


def test_evaluation_has_a_seed_of_its_own(trained):
    def values(**seeds):
        pretrainer = make_pretrainer(**{k: {"seed": n} for k, n in seeds.items()})
        pretrainer.set_weights(trained[0].get_weights())
        step = pretrainer.test_step(rows(), as_ratios=False)
        return str(metrics.compute_metrics(step))

    assert values(training=1) == values(training=2)
    assert values(evaluation=1) != values(evaluation=2)


@pytest.mark.parametrize("kind", KINDS)
def test_the_step_does_not_call_python_and_has_static_shapes(kind):
    pretrainer = make_pretrainer(**KINDS[kind])
    step = tf.function(
        lambda b: pretrainer.train_step(b, as_ratios=False), autograph=False
    )
    graph = step.get_concrete_function(rows()).graph
    types = operations(graph)
    # The last one adds to the gradient of the vocabulary in place.
    assert {"MatMul", "BatchMatMulV2", "Erf", "ScatterNdNonAliasingAdd"} <= types
    assert not {name for name in types if re.search("PyFunc|Print|HostCall", name)}
    for op in graph.get_operations():
        for output in op.outputs:
            if output.dtype not in (tf.resource, tf.variant):
                assert output.shape.is_fully_defined(), op.name


def test_the_compiled_step_stays_on_the_device():
    pretrainer = make_pretrainer(
        training={"remat": True, "accumulation": 2, "xla": "on"}
    )
    step = tf.function(
        lambda b: pretrainer.train_step(b, as_ratios=False),
        autograph=False,
        jit_compile=True,
    )
    hlo = step.experimental_get_compiler_ir(rows())(stage="hlo")
    assert " dot(" in hlo
    for word in ("infeed", "outfeed", "send(", "recv(", "callback", "<="):
        assert word not in hlo, word


def test_keras_fit_trains_and_evaluates():
    pretrainer = make_pretrainer()
    batches = tf.data.Dataset.from_tensors(rows(words=3)).repeat()
    history = pretrainer.fit(batches, steps_per_epoch=30, epochs=2, verbose=0).history
    assert history["masked_lm_loss"][-1] < np.log(3) + 0.5  # log 50 at first
    assert int(pretrainer.optimizer.iterations) == 60
    evaluated = pretrainer.evaluate(batches, steps=2, verbose=0, return_dict=True)
    assert 0 < evaluated["masked_lm_loss"] < 5
    logits_BL = pretrainer.predict(
        {"token_ids": rows()[0], "padding_mask": rows()[1], "segment_ids": rows()[2]},
        verbose=0,
    )
    assert logits_BL.shape == (8, 16)


def test_keras_save_is_an_error(trained, tmp_path):
    with pytest.raises(InputError, match=r"save\('.*model.keras'\).*save_checkpoint"):
        trained[0].save(tmp_path / "model.keras")
    assert not list(tmp_path.iterdir())


def test_the_global_dtype_policy_is_ignored():
    try:
        keras.config.set_dtype_policy("float16")
        pretrainer = make_pretrainer()
    finally:
        keras.config.set_dtype_policy("float32")
    assert {y.compute_dtype for y in pretrainer._flatten_layers()} == {"float32"}
