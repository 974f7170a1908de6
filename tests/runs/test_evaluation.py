"""Errors of `evaluate_checkpoint`; test_evaluate.py tests its metrics."""

import re

import pytest
import tensorflow as tf

from electra_tf.errors import InputError
from electra_tf.runs.evaluation import evaluate_checkpoint


def test_a_folder_without_a_checkpoint_is_an_error(tmp_path):
    with pytest.raises(InputError, match=re.escape(str(tmp_path))):
        evaluate_checkpoint(
            str(tmp_path), "nowhere", None, tf.distribute.get_strategy()
        )
