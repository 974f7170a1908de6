import numpy as np
import pytest
import tensorflow as tf

from electra_tf.training.schedule import LayerwiseMultipliers, WarmupPolynomialDecay
from tests.conftest import GOLDEN

FLAT = {
    "pretrain_small_1M": WarmupPolynomialDecay(5e-4, 1_000_000, 10_000),
    "pretrain_50": WarmupPolynomialDecay(5e-4, 50, 10),
    "pretrain_power2": WarmupPolynomialDecay(5e-4, 1_000_000, 10_000, power=2.0),
    "finetune_flat": WarmupPolynomialDecay(1e-4, 1051, 105.1),
    "warmup0": WarmupPolynomialDecay(0.05, 10),
}
LAYERWISE = {
    "finetune_layerwise_12_0.8": (WarmupPolynomialDecay(1e-4, 1051, 105.1), 12, 0.8),
    "finetune_layerwise_24_0.9": (WarmupPolynomialDecay(5e-5, 1051, 105.1), 24, 0.9),
}


@pytest.fixture(scope="module")
def golden():
    with np.load(GOLDEN / "optimizer.npz") as file:
        return {key: file[key] for key in file if key.startswith("sched/")}


@pytest.mark.parametrize("case", FLAT)
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "xla"])
def test_rates_equal_the_original(golden, case, compiled):
    schedule = FLAT[case]
    if compiled:
        spec = tf.TensorSpec([], tf.int64)
        schedule = tf.function(schedule, input_signature=[spec], jit_compile=True)
    rates = [schedule(tf.constant(t)) for t in golden[f"sched/{case}/steps"]]
    assert all(rate.dtype == tf.float32 and rate.shape == () for rate in rates)
    # Near the end the original has a rounding error of up to 1e-7 of the peak.
    np.testing.assert_allclose(
        rates, golden[f"sched/{case}/lr"], rtol=1e-6, atol=1e-7 * FLAT[case].peak
    )


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "xla"])
def test_the_last_rates_are_exact(compiled):
    schedule = tf.function(WarmupPolynomialDecay(5e-4, 1_000_000), jit_compile=compiled)
    rates = [float(schedule(tf.constant(t))) for t in (999_999, 1_000_000, 1_000_005)]
    np.testing.assert_allclose(rates, [5e-10, 0, 0], rtol=1e-6, atol=0)


@pytest.mark.parametrize("case", LAYERWISE)
def test_layerwise_rates_equal_the_original(golden, case):
    schedule, depth, decay = LAYERWISE[case]
    factor = LayerwiseMultipliers(depth, decay)
    keys = golden[f"sched/{case}/keys"]
    factors = [factor(f"electra/{key.strip('/')}/kernel") for key in keys]
    for step, rates in zip(
        golden[f"sched/{case}/steps"], golden[f"sched/{case}/lr"], strict=True
    ):
        np.testing.assert_allclose(
            schedule(int(step)) * factors, rates, rtol=1e-6, err_msg=str(step)
        )


@pytest.mark.parametrize(
    ("path", "distance"),
    [
        ("discriminator/embeddings/word_embeddings", 14),
        ("discriminator/embeddings_project/kernel", 14),
        ("embeddings/layer_norm/gamma", 14),
        ("discriminator/layer_0/query/kernel", 13),
        ("discriminator/layer_1/query/kernel", 12),
        ("discriminator/layer_10/query/kernel", 3),
        ("layer_11/output/bias", 2),
        ("head/kernel", 0),
        ("head/layer_norm/gamma", 0),
        ("head/embeddings_of_spans/kernel", 0),
        ("head/last_layer_1/kernel", 0),
    ],
)
def test_distances_from_the_head(path, distance):
    assert LayerwiseMultipliers(12, 0.5)(path) == 0.5**distance
