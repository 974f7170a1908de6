"""What `evaluate` measures; that it is what training measured: `test_evaluate.py`."""

import pytest
import tensorflow as tf

from electra_tf.errors import InputError
from electra_tf.measuring import measure


def test_what_is_no_checkpoint_is_told_before_anything_is_read(tmp_path):
    with pytest.raises(InputError, match=r"A checkpoint is a folder"):
        measure(str(tmp_path), "nowhere", None, tf.distribute.get_strategy())
