"""The private interface that tools alone use; the tests of callers check the others."""

import keras
import tensorflow as tf

from electra_tf import compat


def test_a_variable_has_a_value_that_no_policy_casts():
    layer = keras.layers.Dense(2, dtype="mixed_bfloat16")

    class Reader(keras.layers.Layer):
        def call(self, x):
            dtypes.extend([layer.kernel.value.dtype, stored.dtype])
            return x

    layer.build((None, 3))
    stored, dtypes = compat.without_autocast(layer.kernel), []
    Reader(dtype="mixed_bfloat16")(tf.zeros([1]))
    assert dtypes == [tf.bfloat16, tf.float32]
