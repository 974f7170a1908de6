import numpy as np
import pytest
import tensorflow as tf

from electra_tf.kernels.rng import SAMPLES, TRAINING, make_rng
from electra_tf.pretraining.masking import apply_mask
from electra_tf.pretraining.sampling import corrupt, sample_gumbel, sample_inverse_cdf
from tests.tiny import MASK, batch, chi_square, in_every_mode, log_softmax

DRAWS = 20_000
LOGITS = np.array([0.0, 1.0, -1.0, 2.0, 0.5, -4.0], np.float32)


SAMPLERS = pytest.mark.parametrize("sampler", ["gumbel", "inverse_cdf"])


def sampled(sampler, logits_BMV, labels_BM, uniform, **settings):
    if sampler == "gumbel":
        return sample_gumbel(logits_BMV, uniform, labels_BM, **settings)
    probabilities_BMV = tf.nn.softmax(logits_BMV)
    return sample_inverse_cdf(
        logits_BMV, probabilities_BMV, uniform, labels_BM, **settings
    )


def sample_counts(sampler, logits_V, labels=0, draws=DRAWS, step=0, **settings):
    """Return how often each token is sampled from the same logits."""
    logits_BMV = tf.tile(tf.constant(logits_V)[None, None], [draws, 1, 1])
    numbers = len(logits_V) if sampler == "gumbel" else 2
    uniform = make_rng(0, TRAINING, step).uniform(SAMPLES, draws, (1, numbers))
    labels_BM = tf.fill([draws, 1], labels)
    sampled_BM = sampled(sampler, logits_BMV, labels_BM, uniform, **settings)
    assert sampled_BM.dtype == tf.int32
    return np.bincount(np.ravel(sampled_BM), minlength=len(logits_V))


@SAMPLERS
@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_samples_follow_the_softmax(sampler, temperature):
    expected = DRAWS * np.exp(log_softmax(LOGITS / temperature))
    counts = sample_counts(sampler, LOGITS, temperature=temperature)
    assert chi_square(counts, expected) < 5


@SAMPLERS
def test_samples_of_a_large_vocabulary_follow_the_softmax(sampler):
    # Tokens of 1 in 100 and 1 in 100,000, spread over all blocks, in groups.
    logits_V = np.random.default_rng(0).normal(0, 2.5, 3000).astype(np.float32)
    counts = sum(
        sample_counts(sampler, logits_V, draws=DRAWS // 10, step=step)
        for step in range(30)
    )
    order = np.argsort(logits_V)
    expected = 3 * DRAWS * np.exp(log_softmax(logits_V))[order]
    hundred = np.floor(np.cumsum(expected) / 100)  # of draws, in rising likelihood
    group = np.unique(hundred, return_inverse=True)[1]
    group_counts = np.bincount(group, counts[order])
    assert chi_square(group_counts, np.bincount(group, expected)) < 5


@SAMPLERS
def test_disallow_correct_excludes_the_original_token(sampler):
    expected = np.exp(log_softmax(np.delete(LOGITS, 3))) * DRAWS
    counts = sample_counts(sampler, LOGITS, labels=3, disallow_correct=True)
    assert counts[3] == 0
    assert chi_square(np.delete(counts, 3), expected) < 5
    certain = np.where(np.arange(6) == 3, np.float32(40), LOGITS)
    assert sample_counts(sampler, certain, labels=3, draws=100)[3] == 100
    for temperature in (1.0, 0.01, 1e-6):
        rules = {"temperature": temperature, "disallow_correct": True}
        assert sample_counts(sampler, certain, labels=3, draws=50, **rules)[3] == 0


def test_inverse_cdf_equals_two_cumulative_sums():
    probabilities_BMV = np.random.default_rng(0).dirichlet(np.ones(10), (50, 3))
    probabilities_BMV = probabilities_BMV.astype(np.float32)
    uniform_BM2 = np.random.default_rng(1).random((50, 3, 2), np.float32)
    labels_BM = np.zeros((50, 3), np.int32)
    expected_BM = np.empty((50, 3), int)
    for position in np.ndindex(50, 3):  # blocks of 4, the last one of 2
        blocks = [probabilities_BMV[position][start : start + 4] for start in (0, 4, 8)]
        sums = np.cumsum([block.sum() for block in blocks])
        block = int((sums < uniform_BM2[position][0] * sums[-1]).sum())
        sums = np.cumsum(blocks[block])
        within = int((sums < uniform_BM2[position][1] * sums[-1]).sum())
        expected_BM[position] = 4 * block + within

    def sample(probabilities_BMV):
        return sample_inverse_cdf(
            tf.math.log(probabilities_BMV), probabilities_BMV, uniform_BM2, labels_BM
        )

    for mode in in_every_mode(sample, tf.constant(probabilities_BMV)):
        np.testing.assert_array_equal(mode, expected_BM)


@pytest.mark.parametrize("end", [2.0**-24, 1 - 2.0**-24])
def test_zero_probabilities_are_never_sampled(end):
    ends_BM2 = np.full((4, 1, 2), end, np.float32)
    probabilities_BMV = np.zeros((4, 1, 30), np.float32)
    for row, tokens in enumerate(([0], [29], [7, 13], [5, 6])):
        probabilities_BMV[row, 0, tokens] = 1.0000001 / len(tokens)
    logits_BMV, labels_BM = (
        np.log(probabilities_BMV + 1e-30),
        np.zeros((4, 1), np.int32),
    )
    sampled_BM = sample_inverse_cdf(
        logits_BMV, probabilities_BMV, ends_BM2, labels_BM
    ).numpy()
    first = end < 0.5
    assert sampled_BM[:, 0].tolist() == [0, 29, 7 if first else 13, 5 if first else 6]


def test_gumbel_samples_are_the_argmax_of_logits_plus_noise():
    random = np.random.default_rng(0)
    logits_BMV = random.normal(size=(3, 4, 30)).astype(np.float32)
    uniform_BMV = random.random((3, 4, 30), np.float32)
    labels_BM = random.integers(0, 30, (3, 4)).astype(np.int32)
    gumbel_BMV = -np.log(-np.log(uniform_BMV.astype(np.float64) + 1e-9) + 1e-9)
    allowed_BMV = np.arange(30) != labels_BM[..., None]
    expected = (
        (logits_BMV / 0.7 + gumbel_BMV).argmax(-1),
        np.where(allowed_BMV, logits_BMV / 0.7 + gumbel_BMV, -np.inf).argmax(-1),
    )
    assert (expected[0] == labels_BM).any() or (expected[0] != expected[1]).any()
    for disallow, expected_BM in zip((False, True), expected, strict=True):

        def draw(logits_BMV, disallow=disallow):
            return sample_gumbel(
                logits_BMV,
                uniform_BMV,
                labels_BM,
                temperature=0.7,
                disallow_correct=disallow,
            )

        for sampled_BM in in_every_mode(draw, tf.constant(logits_BMV)):
            np.testing.assert_array_equal(sampled_BM, expected_BM)


@pytest.mark.parametrize(("last", "expected"), [(1 - 2.0**-24, 2), (0.0, 1)])
def test_uniform_numbers_at_the_ends_give_finite_noise(last, expected):
    ends_BMV = np.array([[[2.0**-24, 0.5, last]]], np.float32)
    labels_BM = tf.zeros([1, 1], tf.int32)
    assert sample_gumbel(tf.zeros([1, 1, 3]), ends_BMV, labels_BM).numpy() == [
        [expected]
    ]


def test_correct_samples_are_labelled_real():
    text = batch([8, 6], length=8)
    ids_BL = text.input_ids_BL.numpy()
    positions_BM = tf.constant([[1, 5, 6], [2, 0, 0]])
    weights_BM = tf.constant([[1.0, 1, 1], [1, 0, 0]])
    masked = apply_mask(text, positions_BM, weights_BM, tf.fill([2, 3], MASK))
    wrong = (ids_BL[0, 5] + 1, ids_BL[1, 2] + 1)
    sampled_BM = tf.constant([[ids_BL[0, 1], wrong[0], ids_BL[0, 6]], [wrong[1], 9, 9]])
    corrupted = corrupt(masked, sampled_BM)
    expected_BL, fake_BL = ids_BL.copy(), np.zeros((2, 8), np.int32)
    expected_BL[0, 5], expected_BL[1, 2] = wrong
    fake_BL[0, 5] = fake_BL[1, 2] = 1
    np.testing.assert_array_equal(corrupted.corrupted_ids_BL, expected_BL)
    np.testing.assert_array_equal(corrupted.is_fake_BL, fake_BL)
