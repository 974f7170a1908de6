"""The optimizer of fine-tuning: its settings, its end, and a reset.

tests/training compares schedules and layer-wise rates with the original.
"""

import keras
import numpy as np
import pytest

from electra_tf.config.finetuning import TaskOptimizerConfig
from electra_tf.errors import InputError
from electra_tf.tasks.optimizer import int_value, reset_optimizer
from electra_tf.training.optimizer import create_optimizer


@pytest.mark.parametrize(
    ("share", "steps", "expected"),
    [
        # 25 steps of which 2.5 are warm-up: nothing is rounded.
        (0.1, 25, {0: 0, 1: 0.96 / 2.5, 2: 0.92 * 2 / 2.5, 3: 0.88, 24: 0.04, 25: 0}),
        (1.0, 4, {0: 0, 1: 0.75 * 0.25, 3: 0.25 * 0.75}),
        (0.0, 1, {0: 1, 1: 0}),
    ],
)
def test_learning_rates_by_hand(share, steps, expected):
    settings = TaskOptimizerConfig(learning_rate=3e-4, warmup_share=share)
    schedule = create_optimizer(settings, steps, 12).schedule
    for step, factor in expected.items():
        np.testing.assert_allclose(schedule(step), 3e-4 * factor, rtol=1e-6)


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        (0, "cardinality"),
        (-2, "cardinality"),
        (-1, "cardinality"),
        (1, "warmup_share=0"),
    ],
)
def test_numbers_of_updates_that_are_rejected(steps, words):
    with pytest.raises(InputError, match=words):
        create_optimizer(TaskOptimizerConfig(), steps, 2)


@pytest.mark.parametrize("published", [True, False])
def test_a_reset_optimizer_repeats_its_first_update(published):
    settings = TaskOptimizerConfig(learning_rate=0.01, warmup_share=0.0)
    optimizer = keras.optimizers.Nadam(0.01)  # one of its variables begins with 1
    if published:
        optimizer = create_optimizer(settings, 10, 2)
    head, results = keras.Variable([1.0], name="dense"), []
    for _ in range(2):
        head.assign([1.0])
        optimizer.apply([np.float32([0.5])], [head])
        results.append((int_value(optimizer.iterations), float(head[0])))
        reset_optimizer(optimizer, [head])
    assert results[0] == results[1]
    assert results[0][1] < 1
