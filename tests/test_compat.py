"""Private interfaces of libraries: each does what its callers need."""

import io
import pickle

import keras
import pytest
import tensorflow as tf

from electra_tf import compat
from electra_tf.errors import InputError


class Refusing(keras.layers.Layer):
    """Layer whose call raises an InputError."""

    def call(self, x):
        raise InputError("X must be Y, not Z")


def test_keras_raises_our_errors_as_they_are():
    with pytest.raises(InputError) as error:
        Refusing()(tf.zeros([1]))
    assert str(error.value) == "X must be Y, not Z."


def test_a_layer_has_layers_at_any_depth():
    inner = keras.layers.Dense(1)
    outer = keras.Sequential([keras.Sequential([inner])])
    assert inner in compat.sublayers(outer)
    assert outer in compat.sublayers(outer)


def test_an_optimizer_finds_its_variables():
    variables = [keras.Variable([0.0]), keras.Variable([0.0])]
    optimizer = keras.optimizers.SGD()
    optimizer.build(variables)
    assert [compat.variable_index(optimizer, v) for v in variables] == [0, 1]


def test_an_event_is_written_with_the_resource_of_a_writer(tmp_path):
    writer = tf.summary.create_file_writer(str(tmp_path))
    event = tf.compat.v1.Event(step=7, file_version="x")
    resource = compat.summary_resource(writer)
    tf.raw_ops.ImportEvent(writer=resource, event=event.SerializeToString())
    writer.close()
    (path,) = tmp_path.iterdir()
    records = tf.data.TFRecordDataset(str(path)).as_numpy_iterator()
    steps = [tf.compat.v1.Event.FromString(record).step for record in records]
    assert steps[-1] == 7


def test_a_gradient_is_replaced():
    @tf.custom_gradient
    def double(x):
        return 2 * x, lambda dy: 2 * dy

    with tf.Graph().as_default():
        x = tf.constant(1.0)
        registry = compat.gradient_registry()
        before = set(registry.list())
        y = double(x)
        (name,) = set(registry.list()) - before
        assert callable(registry.lookup(name))
        compat.replace_gradient(name, lambda op, *dy: [None, 5 * dy[0]])
        (gradient,) = tf.gradients(y, x)
        with tf.compat.v1.Session() as session:
            assert session.run(gradient) == 5


def test_the_messages_of_an_index_are_read():
    entry_type, header_type = compat.bundle_messages()
    header = header_type(num_shards=1, endianness=header_type.LITTLE)
    assert header_type.FromString(header.SerializeToString()).num_shards == 1
    entry = entry_type(dtype=tf.float32.as_datatype_enum, size=4, shard_id=0, offset=0)
    entry.shape.dim.add(size=1)
    assert entry_type.FromString(entry.SerializeToString()).shape.dim[0].size == 1


def test_types_have_names_in_messages():
    types = (tf.float32, tf.int32, tf.string)
    assert list(map(compat.dtype_name, types)) == ["DT_FLOAT", "DT_INT32", "DT_STRING"]


def test_the_unpickler_in_python_has_a_table_of_operations():
    unpickler = compat.python_unpickler()
    assert unpickler(io.BytesIO(pickle.dumps({"a": [1]}))).load() == {"a": [1]}
    assert pickle.REDUCE[0] in unpickler.dispatch
    for name in ("find_class", "persistent_load", "load_build", "load_setitems"):
        assert callable(getattr(unpickler, name))


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
