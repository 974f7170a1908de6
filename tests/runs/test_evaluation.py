"""What `evaluate` measures; that it is what training measured: `test_evaluate.py`."""

import pytest
import tensorflow as tf

from electra_tf.errors import InputError
from electra_tf.runs.evaluation import evaluate_checkpoint


def test_what_is_no_checkpoint_is_told_before_anything_is_read(tmp_path):
    with pytest.raises(InputError, match=f"Received: '{tmp_path}'"):
        evaluate_checkpoint(
            str(tmp_path), "nowhere", None, tf.distribute.get_strategy()
        )
