import itertools

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.kernels.rng import (
    DROPOUT,
    EVALUATION,
    POSITIONS,
    REPLACEMENTS,
    SAMPLES,
    TOKENS,
    TRAINING,
    apply_dropout,
    make_rng,
)
from tests.tiny import chi_square, in_every_mode


def rng(seed=0, kind=TRAINING, step=0, first_row=0):
    return make_rng(seed, kind, step, first_row)


@pytest.mark.parametrize("shape", [(7,), (5, 8)])
def test_all_modes_draw_equal_bits(shape):
    def draw(step, first_row):
        source = rng(3, TRAINING, step, first_row)
        return source.bits(SAMPLES, 6, shape), source.uniform(REPLACEMENTS, 6, shape)

    results = in_every_mode(draw, tf.constant(12), tf.constant(4))
    for drawn in results:
        assert [d.dtype for d in drawn] == [np.uint32, np.float32]
        for one, other in zip(drawn, results[0], strict=True):
            assert one.shape == (6, *shape)
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("shape", [(1,), (3,), (4,), (19,), (3, 7)])
def test_a_rows_bits_do_not_depend_on_the_batch(shape):
    whole = rng().bits(POSITIONS, 12, shape).numpy()
    for rows, first_row in ((6, 6), (5, 3), (1, 11), (1, 0)):
        part = rng(first_row=first_row).bits(POSITIONS, rows, shape)
        np.testing.assert_array_equal(part, whole[first_row : first_row + rows])
    assert len(np.unique(whole.reshape(12, -1), axis=0)) == 12


def test_different_arguments_give_different_bits():
    sources = [
        rng(*arguments)
        for arguments in itertools.product((0, 1), (TRAINING, EVALUATION), (0, 1, 2))
    ]
    purposes = (POSITIONS, REPLACEMENTS, TOKENS, SAMPLES, DROPOUT + 1, DROPOUT + 2)
    drawn = np.array(
        [source.bits(purpose, 1, (4,))[0] for source in sources for purpose in purposes]
    )
    assert len(np.unique(drawn)) == drawn.size == 12 * 6 * 4


def test_uniform_numbers_are_uniform_in_the_open_interval():
    uniform = rng().uniform(SAMPLES, 100, (1000,)).numpy()
    assert 0 < uniform.min() < 1e-4
    assert 1 - 1e-4 < uniform.max() < 1
    counts, _ = np.histogram(uniform, 50, (0, 1))
    assert chi_square(counts, np.full(50, 100_000 / 50)) < 5
    # Neighbours within a row and within a column are uncorrelated.
    for one, other in ((uniform[:, 1:], uniform[:, :-1]), (uniform[1:], uniform[:-1])):
        assert abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) < 5 / 100_000**0.5


def drop(x, rate, dropout=None, **source):
    """Apply dropout to `x` with the seeds of the next call."""
    dropout = dropout or rng(**source).dropout()
    return apply_dropout(x, dropout.seeds(x), rate)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_dropout_has_the_rate_and_preserves_the_mean(rate):
    x = tf.fill([40, 50, 25], 3.0)
    dropped = drop(x, rate).numpy()
    zeros, values = dropped == 0, dropped[dropped != 0]
    deviation = (rate * (1 - rate) / dropped.size) ** 0.5
    assert abs(zeros.mean() - rate) < 5 * deviation
    share = round(rate * 2**32) / 2**32  # probability of dropout
    np.testing.assert_allclose(values, 3 / (1 - share), rtol=1e-6)
    assert abs(dropped.mean() - 3) < 5 * deviation * 3 / (1 - rate)
    for axes in ((1, 2), (0, 2), (0, 1)):
        share, number = zeros.mean(axes), dropped.size / zeros.mean(axes).size
        assert np.abs(share - rate).max() < 5 * (rate * (1 - rate) / number) ** 0.5


def test_dropped_values_are_uncorrelated():
    """Check that heads of attention are uncorrelated; a weaker hash gives 0.003."""
    x, correlations = tf.ones([32, 2**16]), np.zeros(18)
    for step in range(4):
        dropout = rng(step=step).dropout()
        ours, others = (drop(x, 0.1, dropout).numpy() != 0 for _ in range(2))
        pairs = [(ours[:, 2**k :], ours[:, : -(2**k)]) for k in range(16)]
        pairs += [(ours[1:], ours[:-1]), (ours, others)]
        for i, (one, other) in enumerate(pairs):
            both = np.count_nonzero(one & other) / one.size - one.mean() * other.mean()
            correlations[i] += both / 0.09 * one.size**0.5 / 2
    assert np.abs(correlations).max() < 4.5


def test_dropout_calls_differ():
    x, sites = tf.ones([8, 64]), 130  # seeds are drawn for 64 at once
    dropout, again = rng().dropout(), rng().dropout()
    results = np.array([drop(x, 0.5, dropout) for _ in range(sites)])
    assert len(np.unique(results.reshape(-1, 64), axis=0)) == 8 * sites
    np.testing.assert_array_equal([drop(x, 0.5, again) for _ in range(sites)], results)
    assert apply_dropout(x, None, 0.5) is x


def test_dropout_is_equal_in_all_modes_and_for_parts_of_a_batch():
    x = tf.random.stateless_normal([6, 5, 3], [1, 2])
    results = in_every_mode(lambda step: drop(x, 0.3, step=step), 4)
    for dropped in results:
        np.testing.assert_array_equal(dropped == 0, results[0] == 0)
        np.testing.assert_allclose(dropped, results[0], rtol=1e-6)
    part = drop(x[2:5], 0.3, step=4, first_row=2)
    np.testing.assert_array_equal(part, results[0][2:5])
