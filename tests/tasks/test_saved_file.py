""".keras files that are damaged or describe another model than their weights."""

import functools
import json
import operator
import pathlib
import resource
import zipfile

import keras
import numpy as np
import pytest

import electra_tf
from electra_tf.errors import InputError
from tests import tiny
from tests.conftest import full_disk


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "model.keras"
    electra_tf.TextClassifier(tiny.start(), ["a", "b"], tiny.settings()).save(path)
    return path


def test_an_interrupted_save_leaves_the_earlier_model(saved, tmp_path):
    path = tmp_path / "model.keras"
    content = saved.read_bytes()
    path.write_bytes(content)
    model = electra_tf.TextClassifier(tiny.start(), ["a", "b"], tiny.settings())
    with pytest.raises(OSError, match="File too large"), full_disk(1000):
        model.save(path)
    assert path.read_bytes() == content
    assert [file.name for file in tmp_path.iterdir()] == ["model.keras"]


def test_interrupted_weights_leave_the_earlier_file(tmp_path, monkeypatch):
    def interrupted(model, path, **_):
        pathlib.Path(path).write_bytes(b"a part")
        raise KeyboardInterrupt

    path = tmp_path / "model.weights.h5"
    path.write_bytes(b"earlier")
    model = electra_tf.TextClassifier(tiny.start(), ["a", "b"], tiny.settings())
    monkeypatch.setattr(keras.Model, "save_weights", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.save_weights(path)
    assert path.read_bytes() == b"earlier"
    assert list(tmp_path.iterdir()) == [path]


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
        (with_shape(depth=10**9), "sizes .*depth 1000000000"),
        (with_shape(vocabulary_size=10**9), "bytes for a model of"),
        (with_shape(depth=-1), "sizes .*depth -1"),
        (with_shape(heads="many"), "sizes .*heads 'many'"),
        (with_shape(surplus=1), "sizes .*surplus 1"),
        (lambda config: b"[" * 100_000, "RecursionError"),
        (lambda config: b"{", "JSONDecodeError"),
        (lambda config: [], "TypeError"),
        (lambda config: {}, "KeyError"),
        (with_config(vocabulary=[1, 2]), "AttributeError"),
        (with_config(vocabulary=3), "AttributeError"),
        (with_config(settings=[]), "AttributeError"),
        (with_config(tokenization=None), "TypeError"),
    ],
)
def test_configs_are_checked_before_the_model_is_built(read, change, message, changed):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(InputError, match=message) as caught:
        read(changed(change))
    assert "changed.keras" in str(caught.value)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 2**17  # KiB


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


@pytest.mark.parametrize(
    ("read", "layer", "message"),
    [
        (electra_tf.load_model, keras.layers.Lambda(lambda x: x), "arbitrary code"),
        (tiny.load, keras.layers.Dense(2), "a Sequential"),
    ],
)
def test_code_and_models_of_keras_alone_are_refused(read, layer, message, tmp_path):
    path = str(tmp_path / "model.keras")
    keras.Sequential([keras.Input([4]), layer]).save(path)
    with pytest.raises(InputError, match=message):
        read(path)


def test_another_class_of_the_package_is_named(changed):
    with pytest.raises(InputError, match=r"changed\.keras.*Encoder"):
        tiny.load(changed(updating(registered_name="electra_tf>Encoder")))


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
    with pytest.raises(
        InputError, match=r"own\.keras.* import its module.*Could not loc"
    ):
        load(path)


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


def test_the_optimizer_is_restored(compiled):
    model, path = compiled
    loaded = electra_tf.load_model(path)
    assert isinstance(loaded.optimizer, keras.optimizers.SGD)
    assert loaded.has_own_optimizer
    for one, other in zip(tiny.slots(model), tiny.slots(loaded), strict=True):
        np.testing.assert_array_equal(one, other)
    assert not tiny.load(str(path)).compiled  # the commands do not need it


def test_the_published_optimizer_continues(tmp_path):
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


@pytest.mark.parametrize(
    "optimizer",
    [
        {"module": "os", "class_name": "system", "config": {}},
        {"module": None, "class_name": "Own", "registered_name": "a>Own", "config": {}},
        {"class_name": "__lambda__", "config": {"value": "x"}},
        "none of these",
    ],
)
def test_other_optimizers_are_refused(optimizer, compiled, tmp_path):
    change = updating("compile_config", optimizer=optimizer)
    path = rewrite(compiled[1], tmp_path, change)
    with pytest.raises(InputError, match=r"changed\.keras"):
        electra_tf.load_model(path)
    assert not tiny.load(path).compiled  # the commands do not need it
