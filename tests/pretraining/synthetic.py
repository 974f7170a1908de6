"""Synthetic batches, small configs and statistics for tests."""

import numpy as np
import tensorflow as tf

from electra_tf.batch import Batch
from electra_tf.config.objectives import FACTS
from electra_tf.config.pretraining import (
    MaskingConfig,
    ModelConfig,
    ObjectiveConfig,
    PretrainingConfig,
    RecordsConfig,
)
from electra_tf.pretraining.masking import SpecialTokens

PAD, UNK, CLS, SEP, MASK = range(5)
VOCABULARY = 50
LENGTH = 16
# Every third entry is a continuation piece.
TOKENS = SpecialTokens(
    cls=CLS,
    sep=SEP,
    mask=MASK,
    vocabulary_size=VOCABULARY,
    is_continuation_V=(np.arange(VOCABULARY) > MASK) & (np.arange(VOCABULARY) % 3 == 0),
)


def batch(lengths, length=LENGTH, seed=0):
    """Return a row for each number of real tokens: [CLS] A [SEP] B [SEP], padding.

    Rows with fewer than four tokens have only special tokens; 0 is an empty row.
    """
    random = np.random.default_rng(seed)
    ids_BL, mask_BL, segments_BL = (
        np.zeros((len(lengths), length), np.int32) for _ in range(3)
    )
    for row, real in enumerate(lengths):
        ids_BL[row, :real] = random.integers(MASK + 1, VOCABULARY, real)
        mask_BL[row, :real] = 1
        middle = real // 2
        ids_BL[row, [0, middle, max(real - 1, 0)]] = CLS, SEP, SEP
        ids_BL[row, 0] = CLS
        ids_BL[row] *= mask_BL[row]
        segments_BL[row, middle + 1 : real] = 1
    return Batch(*map(tf.constant, (ids_BL, mask_BL, segments_BL)))


SAME = {"generator_heads": 2, "generator_embedding": 8}


def model_of(name):
    """Return the settings of `config` that an objective's networks need."""
    if FACTS[name].stages == 1:
        return {}
    return {"sharing": "none", "generator_width": 1.0, **SAME}


def config(*, masking=None, objective=None, length=LENGTH, **model):
    """Return the config of a small generator and discriminator without dropout."""
    shape = {
        "depth": 1,
        "width": 16,
        "embedding": 8,
        "heads": 2,
        "vocabulary_size": VOCABULARY,
        "max_positions": 32,
        "dropout": 0.0,
        "attention_dropout": 0.0,
        "generator_width": 0.5,
    }
    return PretrainingConfig(
        records=RecordsConfig(max_length=length),
        model=ModelConfig(**{**shape, **model}),
        masking=MaskingConfig(**(masking or {})),
        objective=ObjectiveConfig(**(objective or {})),
    )


def in_every_mode(function, *arguments):
    """Return the results of `function` in eager mode, in a graph and with XLA."""
    modes = (
        function,
        tf.function(function, autograph=False),
        tf.function(function, autograph=False, jit_compile=True),
    )
    return [tf.nest.map_structure(np.asarray, mode(*arguments)) for mode in modes]


def chi_square(counts, expected):
    """Return Pearson's statistic as a distance from its mean in standard deviations.

    `counts` and `expected` must have the same sum.
    """
    counts, expected = np.ravel(counts), np.ravel(expected)
    np.testing.assert_allclose(counts.sum(), expected.sum(), rtol=1e-4)
    freedom = len(counts) - 1
    statistic = ((counts - expected) ** 2 / expected).sum()
    return (statistic - freedom) / (2 * freedom) ** 0.5
