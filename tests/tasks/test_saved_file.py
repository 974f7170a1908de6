""".keras files that are damaged or describe another model than their weights."""

import functools
import json
import operator
import os
import resource
import zipfile

import keras
import numpy as np
import pytest
import tiny

import electra_tf
from electra_tf.errors import InputError


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "model.keras"
    electra_tf.TextClassifier(tiny.start(), ["a", "b"], tiny.settings()).save(path)
    return path


def rewrite(path, folder, change=lambda config: config, weights=None, **more):
    """Write a file with another config or other parts to a folder."""
    changed = folder / "changed.keras"
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(changed, "w") as target:
        for name in source.namelist():
            data = source.read(name)
            if name == "config.json":
                data = change(json.loads(data))
                data = data if isinstance(data, bytes) else json.dumps(data)
            if name == "model.weights.h5" and weights is not None:
                data = weights
            target.writestr(name, data)
        for name, data in more.items():
            target.writestr(name, data, zipfile.ZIP_DEFLATED)
    return str(changed)


@pytest.fixture
def changed(saved, tmp_path):
    return functools.partial(rewrite, saved, tmp_path)


def updating(*keys, **changes):
    """Return a function that updates an object within a config."""

    def change(config):
        functools.reduce(operator.getitem, keys, config).update(changes)
        return config

    return change


with_config = functools.partial(updating, "config")
with_shape = functools.partial(updating, "config", "shape")


@pytest.mark.parametrize("read", [tiny.load, electra_tf.load_model])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (with_shape(width=2**14, feed_forward=2**16), "bytes for a model of"),
        (with_shape(depth=9_999), "bytes for a model of"),
        (with_shape(depth=10**9), "depth of 1000000000"),
        (with_shape(vocabulary_size=10**9), "bytes for a model of"),
        (with_shape(depth=-1), "shape: "),
        (with_shape(heads="many"), "shape: "),
        (with_shape(surplus=1), "shape: "),
        (lambda config: b"[" * 100_000, "RecursionError"),
        (lambda config: b"{", "JSONDecodeError"),
        (lambda config: [], "TypeError"),
        (lambda config: {}, "KeyError"),
        (lambda config: b" " * (2**24 + 1), "config.json of 16,777,217 bytes"),
    ],
)
def test_configs_are_checked_before_the_model_is_built(read, change, message, changed):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(InputError, match=message):
        read(changed(change))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 2**17  # KiB


def test_files_that_expand_to_many_times_their_size_are_refused(changed):
    path = changed(bomb=b"\0" * 2**26)
    assert os.path.getsize(path) < 2**20
    with pytest.raises(InputError, match="20 times"):
        tiny.load(path)


@pytest.mark.parametrize("weights", [b"", b"HDF"])
def test_files_without_weights_are_refused(weights, changed):
    with pytest.raises(InputError, match="bytes for a model of"):
        tiny.load(changed(weights=weights))


@pytest.mark.parametrize("part", ["config.json", "model.weights.h5"])
def test_a_file_with_a_flipped_byte_is_refused(part, saved, tmp_path):
    with zipfile.ZipFile(saved) as archive:
        entry = archive.getinfo(part)
    content = bytearray(saved.read_bytes())
    header_size = 30 + len(part)
    content[entry.header_offset + header_size + entry.compress_size // 2] ^= 1
    path = tmp_path / "flipped.keras"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"flipped\.keras"):
        tiny.load(str(path))


def test_an_unchanged_file_is_loaded_and_can_be_trained(changed):
    model = tiny.load(changed())
    assert model.labels == ("a", "b")
    history = model.fit(["the file", "a user"], ["a", "b"], epochs=2, verbose=0)
    assert np.isfinite(history.history["loss"][0])


def dense(config):
    layer = {"module": "keras.layers", "class_name": "Dense", "registered_name": None}
    layer |= {"config": {"units": 2**20}, "build_config": {"input_shape": [1, 2**20]}}
    return layer


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (with_config(vocabulary=[1, 2]), "AttributeError"),
        (with_config(vocabulary=3), "AttributeError"),
        (with_config(settings=[]), "AttributeError"),
        (with_config(tokenization=None), "AttributeError"),
        (dense, "Dense"),
        (updating(registered_name="electra_tf>Encoder"), "Encoder"),
    ],
)
def test_other_damage_is_reported(change, message, changed):
    with pytest.raises(InputError, match=message) as caught:
        tiny.load(changed(change))
    assert "changed.keras" in str(caught.value)


def dense_model(folder):
    """Return the file of a model of one layer of Keras, and the model."""
    path = folder / "other.keras"
    model = keras.Sequential([keras.Input([4]), keras.layers.Dense(2)])
    model.save(path)
    return path, model


def test_commands_do_not_build_a_model_of_another_class(tmp_path):
    """Its config could describe layers of any size."""
    path, _ = dense_model(tmp_path)
    with pytest.raises(InputError, match="a Sequential"):
        tiny.load(path)


@pytest.mark.parametrize("load", [tiny.load, electra_tf.load_model])
def test_the_module_of_a_class_must_be_imported(load, tmp_path):
    path = str(tmp_path / "own.keras")

    @keras.saving.register_keras_serializable("somewhere")
    class Own(keras.layers.Layer):
        pass

    @keras.saving.register_keras_serializable("somewhere")
    class Model(keras.Sequential):
        pass

    Model([keras.Input([4]), Own()]).save(path)
    objects = keras.saving.get_custom_objects()
    for name in ("somewhere>Own", "somewhere>Model"):
        del objects[name]
    with pytest.raises(InputError, match=r"own\.keras.*somewhere>.*import its module"):
        load(path)


def test_layers_of_other_classes_are_not_larger_than_their_weights(tmp_path):
    path, model = dense_model(tmp_path)
    again = electra_tf.load_model(path)
    np.testing.assert_array_equal(again.get_weights()[0], model.get_weights()[0])
    large = updating("config", "layers", 1, "config", units=10**9)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(InputError, match="bytes for a model of 2"):
        electra_tf.load_model(rewrite(path, tmp_path, large))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 200_000  # KiB; the layer would take 16 GB


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """Return a file of a model compiled with SGD and a metric, after three updates."""
    model = electra_tf.TextClassifier(tiny.start(), ["a", "b"], tiny.settings())
    model.compile(keras.optimizers.SGD(0.5, momentum=0.9), metrics=["accuracy"])
    model.optimizer.build(model.trainable_variables)
    model.optimizer.iterations.assign(3)
    model.optimizer.variables[2].assign(np.ones(model.optimizer.variables[2].shape))
    path = tmp_path_factory.mktemp("compiled") / "model.keras"
    model.save(path)
    return model, path


def test_the_optimizer_is_restored(compiled, capsys):
    model, path = compiled
    loaded = electra_tf.load_model(path)
    assert isinstance(loaded.optimizer, keras.optimizers.SGD)
    assert loaded.has_own_optimizer
    for one, other in zip(tiny.slots(model), tiny.slots(loaded), strict=True):
        np.testing.assert_array_equal(one, other)
    assert "metrics" in capsys.readouterr().err  # they are ignored
    assert not tiny.load(str(path)).compiled  # the commands do not need it


def test_the_published_optimizer_continues(tmp_path, capsys):
    settings = tiny.settings(optimizer_layer_decay=0.8)
    model = electra_tf.TextClassifier(tiny.start(), ["a", "b"], settings)
    rule, depth = settings.optimizer, model.shape.depth
    model.compile(electra_tf.create_optimizer(rule, 30, depth))
    model.optimizer.build(model.trainable_variables)
    model.optimizer.iterations.assign(20)
    model.save(tmp_path / "model.keras")
    loaded = electra_tf.load_model(tmp_path / "model.keras")
    assert loaded.optimizer.schedule.steps == 30
    assert int(loaded.optimizer.iterations) == 20
    assert loaded.optimizer.multipliers == model.optimizer.multipliers
    assert not loaded.has_own_optimizer
    assert "ignored" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("entry", "word"),
    [
        ({"module": "os", "class_name": "system"}, "os.system"),
        ({"module": "tests", "class_name": "Own", "registered_name": "a>Own"}, "Own"),
        ({"class_name": "Own", "module": None, "registered_name": "a>Own"}, "a>Own"),
        ({"class_name": "__lambda__"}, "__lambda__"),
        ({"class_name": ["SGD"]}, "SGD"),
        ({"registered_name": "electra_tf>Optimizer"}, "SGD"),
        ({"class_name": "Adam"}, "momentum"),
        ({"class_name": "deserialize"}, "deserialize"),
        ({"class_name": "MultiOptimizer", "config": {}}, "MultiOptimizer"),
        ({"config": {"learning_rate": {"class_name": "Dense"}}}, "Dense"),
        ({"config": {"no_decay": ["(a+)+$"]}}, "(a+)+$"),
        ({"config": {"momentum": 0.0}}, "variables"),
        (b"SGD", "optimizer"),
    ],
)
def test_other_optimizers_are_ignored_with_a_line(
    entry, word, compiled, tmp_path, capsys
):
    def change(config):
        given = config["compile_config"]
        if isinstance(entry, bytes):
            given["optimizer"] = entry.decode()
        else:
            given["optimizer"] |= entry
            given["metrics"] = [{"module": "os", "class_name": "getcwd"}]
        return config

    model = electra_tf.load_model(rewrite(compiled[1], tmp_path, change))
    assert not model.compiled
    lines = capsys.readouterr().err
    assert "optimizer" in lines
    assert word in lines
    assert "metrics" in lines
    assert "model.optimizer" not in lines  # it does not exist


def test_inner_models_are_not_compiled(compiled, tmp_path):
    names = ("token_ids", "segment_ids", "padding_mask")
    inputs = {n: keras.Input([None], dtype="int32", name=n) for n in names}
    outer = keras.Model(inputs, keras.layers.Dense(3)(compiled[0](inputs)))
    outer.compile("sgd", "mse")
    outer.save(tmp_path / "model.keras")
    loaded = electra_tf.load_model(tmp_path / "model.keras")
    assert isinstance(loaded.optimizer, keras.optimizers.SGD)
    assert not loaded.get_layer(compiled[0].name).compiled


def test_models_with_our_layers_are_loaded(tmp_path):
    ids = keras.Input([None], dtype="int32")
    segments, mask = keras.ops.zeros_like(ids), keras.ops.ones_like(ids)
    states = electra_tf.Encoder(tiny.start().shape)(ids, segments, mask)
    states = keras.layers.Dropout(0.1)(states[:, 0] + keras.ops.mean(states, 1))
    model = keras.Model(ids, keras.layers.Dense(3, "gelu")(states))
    model.save(tmp_path / "model.keras")
    again = electra_tf.load_model(tmp_path / "model.keras")
    batch = np.ones([2, 5], np.int32)
    np.testing.assert_array_equal(again(batch), model(batch))


@pytest.mark.parametrize(
    ("layer", "words"),
    [
        ({"class_name": "Lambda", "module": "keras.layers"}, "Lambda"),
        ({"class_name": "system", "module": "os"}, "system"),
        ({"class_name": "Own", "module": None, "registered_name": "a>Own"}, "a>Own"),
        ({"config": {"depth": 20_000}}, "depth of 20,000"),
    ],
)
def test_unknown_classes_and_deep_models_are_refused(layer, words, tmp_path):
    path, _ = dense_model(tmp_path)
    changed = rewrite(path, tmp_path, updating("config", "layers", 1, **layer))
    with pytest.raises(InputError, match=words):
        electra_tf.load_model(changed)
