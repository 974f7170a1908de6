"""Errors of `evaluate_checkpoint`; test_evaluate.py tests the metrics."""

import pytest
import tensorflow as tf

from electra_tf.errors import InputError
from electra_tf.runs.evaluation import evaluate_checkpoint
from tests.conftest import GOLDEN


def test_a_discriminator_alone_is_not_evaluated():
    path, data = GOLDEN / "interop" / "huggingface_discriminator", GOLDEN / "saved"
    with pytest.raises(InputError, match="a discriminator alone"):
        evaluate_checkpoint(
            str(path), str(data / "records"), 10, tf.distribute.get_strategy()
        )
