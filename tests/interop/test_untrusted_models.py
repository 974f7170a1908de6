"""Models from strangers: no code is run, no memory filled, no other file read."""

import json
import os
import pathlib
import pickle
import shutil
import struct
import tracemalloc
import zipfile
from unittest import mock

import google_crc32c
import h5py
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import tensor_bundle_pb2

from electra_tf import sources
from electra_tf.errors import InputError
from electra_tf.interop import keras_file, tensor_bundle, tf1
from electra_tf.interop.hdf5_file import read_hdf5_file
from electra_tf.interop.tensor_bundle import read_bundle
from electra_tf.interop.torch_file import read_torch_file
from electra_tf.text.tokenizer_files import find_tokenizer, open_tokenizer
from electra_tf.text.vocab import Vocabulary
from electra_tf.untrusted_files import read_json
from tests import tiny
from tests.conftest import GOLDEN as ALL_GOLDEN

GOLDEN = ALL_GOLDEN / "interop"
DISCRIMINATOR = GOLDEN / "huggingface_discriminator"
MEMORY = 64 * 2**20  # bytes that a refusal may take at most


def refused(read, path, *names):
    """Check that a file is refused by name, in little memory."""
    tracemalloc.start()
    try:
        with pytest.raises(InputError) as caught:
            read(str(path))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    for name in (str(path), *names):
        assert name in str(caught.value)
    assert peak < MEMORY, f"{peak:,} bytes"


# Configs and tables -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "changes"),
    [
        ("huggingface_discriminator", {"num_hidden_layers": 10**9}),
        ("huggingface_discriminator", {"num_hidden_layers": -1}),
        ("huggingface_discriminator", {"num_hidden_layers": True}),
        ("huggingface_discriminator", {"hidden_size": 10**6}),
        ("huggingface_discriminator", {"num_attention_heads": 7}),
        ("huggingface_discriminator", {"layer_norm_eps": -1.0}),
        ("huggingface_discriminator", {"hidden_size": None}),
        ("keras_hub", {"num_layers": 10**9}),
        ("keras_hub", {"vocab_size": None}),
    ],
)
def test_configs_that_fit_no_weights(source, changes, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(GOLDEN / source, folder)
    config = json.loads((folder / "config.json").read_text())
    config.get("config", config).update(changes)
    (folder / "config.json").write_text(json.dumps(config))
    refused(tiny.networks, folder)


@pytest.mark.parametrize(
    "text", ["[]", "{", "[" * 200_000, '{"model_type": "electra"}']
)
@pytest.mark.parametrize("source", ["huggingface_discriminator", "keras_hub"])
def test_damaged_configs(source, text, tmp_path):
    folder = tmp_path / source
    shutil.copytree(GOLDEN / source, folder)
    (folder / "config.json").write_text(text)
    refused(tiny.networks, folder)


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("electra.embeddings.word_embeddings.weight", np.zeros(5, np.float32)),
        ("electra.embeddings.word_embeddings.weight", np.zeros((0, 20), np.float32)),
        ("electra.embeddings_project.weight", np.zeros((36, 20), np.int8)),
        ("electra.embeddings_project.bias", np.full(36, np.nan, np.float32)),
    ],
)
def test_tensors_of_another_kind(name, array, tmp_path):
    tiny.huggingface(tmp_path / "model", lambda tensors: {**tensors, name: array})
    refused(tiny.networks, tmp_path / "model", name)


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("vocab.txt", Vocabulary.read),
        ("vocab.txt.settings.json", lambda path: open_tokenizer(path[:-14])),
        ("config.json", read_json),
        ("model.ckpt-0.index", lambda path: read_bundle(path[:-6])),
    ],
)
def test_files_of_five_gigabytes(name, read, tmp_path):
    (tmp_path / "vocab.txt").write_bytes((ALL_GOLDEN / "vocab.txt").read_bytes())
    with (tmp_path / name).open("wb") as file:
        file.truncate(5 << 30)
    refused(read, tmp_path / name)


def test_a_tokenizer_of_brackets(tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(b"[" + b"[]," * 6_500_000 + b"[]]")
    refused(find_tokenizer, tmp_path, str(path), "values")


# HDF5 -------------------------------------------------------------------------------


def virtual(file, folder):
    layout = h5py.VirtualLayout((4,), np.float32)
    layout[:] = h5py.VirtualSource(folder / "secret.h5", "values", (4,))
    file.create_virtual_dataset("layers/bad", layout)


def set_bad(value):
    return lambda file, folder: file.__setitem__("layers/bad", value)


def dataset(shape, **options):
    return lambda file, folder: file.create_dataset(
        "layers/bad", shape, np.float32, **options
    )


HDF5 = {
    "virtual": virtual,
    "external": lambda file, folder: dataset(
        (4,), external=[(os.fspath(folder / "secret.raw"), 0, 16)]
    )(file, folder),
    "external link": lambda file, folder: set_bad(
        h5py.ExternalLink(folder / "secret.h5", "/values")
    )(file, folder),
    "cycle": lambda file, _: set_bad(file["/"])(file, _),
    "deep": lambda file, _: file.create_group("layers" + "/bad" * 100),
    "huge": dataset((1 << 28,)),
    "huge in chunks": dataset((1 << 28,), chunks=True),
    "integers": set_bad(np.arange(4)),
    "nothing": set_bad(h5py.Empty("f4")),
    "named type": set_bad(np.dtype(np.float32)),
}


@pytest.fixture
def hdf5(tmp_path):
    """A file of one good dataset, open for writing, beside a secret."""
    with h5py.File(tmp_path / "secret.h5", "w") as secret:
        secret["values"] = np.ones(4, np.float32)
    np.ones(4, np.float32).tofile(tmp_path / "secret.raw")
    with h5py.File(tmp_path / "model.weights.h5", "w") as file:
        file["layers/good"] = np.ones(4, np.float32)
        yield file


@pytest.mark.parametrize("kind", HDF5)
def test_hdf5_files_are_read_from_themselves_alone(kind, hdf5, tmp_path):
    HDF5[kind](hdf5, tmp_path)
    hdf5.close()
    refused(read_hdf5_file, tmp_path / "model.weights.h5", "layers/")


def test_hdf5_arrays_are_not_larger_than_their_file(hdf5, tmp_path):
    """Two datasets of the same bytes; the second one's address is overwritten."""
    data = np.arange(4096, dtype=np.float32)
    for name in ("one", "two"):
        hdf5[name] = data + (name == "two")
    first, second = (hdf5[name].id.get_offset() for name in ("one", "two"))
    hdf5.close()
    path = tmp_path / "model.weights.h5"
    stored = path.read_bytes()
    old, new = (struct.pack("<QQ", at, data.nbytes) for at in (second, first))
    assert stored.count(old) == 1
    path.write_bytes(stored.replace(old, new)[: second + 100])
    refused(read_hdf5_file, path)


def test_hdf5_files_are_read_in_every_dtype_of_keras(tmp_path):
    path = tmp_path / "model.weights.h5"
    values = np.array([1.5, -2, 0.25], ml_dtypes.bfloat16)
    with h5py.File(path, "w") as file:
        file["a/float32"] = values.astype(np.float32)
        file["a/float16"] = values.astype(np.float16)
        file["b"] = values
        file["b"].attrs["dtype"] = "bfloat16"  # as Keras marks it
    arrays = read_hdf5_file(str(path))
    dtypes = {"a/float32": np.float32, "a/float16": np.float16, "b": ml_dtypes.bfloat16}
    assert {name: array.dtype for name, array in arrays.items()} == dtypes
    for array in arrays.values():
        np.testing.assert_array_equal(array.astype(np.float32), values.astype("f4"))


@pytest.mark.parametrize("name", ["config.json", "model.weights.h5"])
def test_saved_models_are_not_larger_than_their_file(name, tmp_path):
    path = tmp_path / "model.keras"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open(name, "w") as file,
    ):
        for _ in range(256):
            file.write(bytes(1 << 20))
    refused(lambda path: sources.open_source(path).encoder, path, "more bytes")


# TensorFlow checkpoints -------------------------------------------------------------


@pytest.fixture(scope="module")
def tf1_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("untrusted") / "tf1"
    tiny.tf1(folder, str(DISCRIMINATOR))
    return folder


def test_a_checkpoint_file_names_files_of_its_own_folder(tf1_folder, tmp_path):
    folder = tmp_path / "moved"
    shutil.copytree(tf1_folder, folder)
    name = tf1_folder / "model.ckpt-0"
    (folder / "checkpoint").write_text(f'model_checkpoint_path: "{name}"\n')
    assert tf1.find_prefix(str(folder)) == str(folder / "model.ckpt-0")
    for path in folder.glob("model.ckpt-0.*"):
        path.unlink()
    assert tf1.find_prefix(str(folder)) is None
    (folder / "checkpoint").write_bytes(b"\xff\x00{")
    assert tf1.find_prefix(str(folder)) is None


def test_a_folder_of_the_name_of_a_prefix_is_not_followed(tf1_folder, tmp_path):
    prefix = tmp_path / "model.ckpt-0"
    tiny.write_bundle(prefix, {"electra/x": np.ones(2, np.float32)})
    prefix.mkdir()
    name = f'model_checkpoint_path: "{tf1_folder}/model.ckpt-0"\n'
    (prefix / "checkpoint").write_text(name)
    assert list(read_bundle(str(prefix))) == ["electra/x"]


def test_a_layer_number_that_no_weights_reach(tf1_folder, tmp_path):
    tensors = dict(read_bundle(str(tf1_folder / "model.ckpt-0")))
    name = next(name for name in tensors if "encoder/layer_1/" in name)
    tensors[name.replace("layer_1/", "layer_999999999/")] = tensors[name]
    tiny.write_bundle(tmp_path / "model.ckpt-0", tensors)
    refused(tiny.networks, tmp_path / "model.ckpt-0", "layer_999999999")


def entry(shape=(2,), size=8, offset=0, dtype=1, **more):
    """Return the index entry of a tensor; 1 is float32."""
    more.setdefault("crc32c", masked(VALUES.tobytes()))
    proto = tensor_bundle_pb2.BundleEntryProto(
        dtype=dtype, size=size, offset=offset, **more
    )
    for axis in shape:
        proto.shape.dim.add(size=axis)
    return proto.SerializeToString()


def masked(data):
    crc = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def varint(value):
    parts = []
    while value >= 128:
        parts.append(value % 128 | 128)
        value //= 128
    return bytes([*parts, value])


def write_index(prefix, *entries, kind=0, names=(), order=0):
    """Write a checkpoint of two floats whose index lists other tensors.

    An entry is a value by the name `w0`, `w1`, ..., or the length of the last name that
    its name repeats before a `w`, without a value.
    """
    pathlib.Path(f"{prefix}.data-00000-of-00001").write_bytes(VALUES.tobytes())
    header = tensor_bundle_pb2.BundleHeaderProto(num_shards=1, endianness=order)
    header = header.SerializeToString()
    file = b""

    def block(items):
        nonlocal file
        body = b"".join(
            b"".join(map(varint, (shared, len(key), len(value)))) + key + value
            for shared, key, value in items
        )
        body += struct.pack("<2I", 0, 1)  # one place of a whole key, the first
        handle = varint(len(file)) + varint(len(body))
        file += body + bytes([kind]) + struct.pack("<I", masked(body + bytes([kind])))
        return handle

    names = names or [f"w{n}" for n in range(len(entries))]
    items = [
        (0, name.encode(), one) if isinstance(one, bytes) else (one, b"w", b"")
        for name, one in zip(names, entries, strict=True)
    ]
    index = block([(0, b"x", block([(0, b"", header), *items]))])
    footer = (block([]) + index).ljust(40, b"\0") + bytes.fromhex("57fb808b247547db")
    pathlib.Path(f"{prefix}.index").write_bytes(file + footer)


VALUES = np.array([1.5, -2], np.float32)


def test_the_good_index_that_the_bad_ones_differ_from(tmp_path):
    prefix = str(tmp_path / "model.ckpt-0")
    write_index(
        prefix, entry(), entry((0, 4), 0, crc32c=masked(b"")), entry((9,), 9, 0, 7)
    )
    arrays = read_bundle(prefix)
    assert {n: a.shape for n, a in arrays.items()} == {"w0": (2,), "w1": (0, 4)}
    np.testing.assert_array_equal(arrays["w0"], VALUES)
    reader = tf.train.load_checkpoint(prefix)
    np.testing.assert_array_equal(reader.get_tensor("w0"), VALUES)


@pytest.mark.parametrize(
    ("entries", "name"),
    [
        ([entry(), entry((2, 1))], "16 bytes in files of 8"),
        ([entry((1 << 40, 1 << 40))], ""),
        ([entry((-2,))], ""),
        ([entry((-2, -1))], ""),
        ([entry((2,), 8, 4)], ""),
        ([entry((2,), 8, -4)], ""),
        ([entry((2,), 4)], ""),
        ([entry((2,), 8, dtype=20)], ""),
        ([entry((2,), 8, dtype=999)], ""),
        ([entry((2,), 8, shard_id=3)], ""),
        ([entry((2,), 8, crc32c=1)], ""),
        ([entry((1,) * 99 + (2,))], ""),
        ([entry((2**62, 4, 0), 0)], ""),
        ([b"\xff\xff", entry()], ""),
        ([b""], ""),
        # A name repeats the start of the last one: a small index holds a huge table.
        (range(200_000), "bytes"),
    ],
    ids=range(16),
)
def test_indexes_list_tensors_that_their_files_hold(entries, name, tmp_path):
    write_index(tmp_path / "model.ckpt-0", *entries)
    refused(read_bundle, tmp_path / "model.ckpt-0", name)


@pytest.mark.parametrize(
    ("layout", "words"),
    [
        # The first entry is the header; TensorFlow would read this one as a tensor.
        ({"names": [""]}, "a second entry ''"),
        ({"kind": 1}, "compressed"),
        ({"order": tensor_bundle_pb2.BundleHeaderProto.BIG}, "byte order"),
    ],
)
def test_indexes_that_are_laid_out_otherwise(layout, words, tmp_path):
    write_index(tmp_path / "model.ckpt-0", entry(), **layout)
    refused(read_bundle, tmp_path / "model.ckpt-0", words)


def test_an_index_is_parsed_once(tmp_path, monkeypatch):
    parsed, header = [], tensor_bundle.BundleHeaderProto
    spy = mock.Mock(LITTLE=header.LITTLE)
    spy.FromString = lambda data: parsed.append(data) or header.FromString(data)
    tiny.tf1(tmp_path / "tf1", str(DISCRIMINATOR), other=np.zeros(7))
    monkeypatch.setattr(tensor_bundle, "BundleHeaderProto", spy)
    assert tiny.networks(tmp_path / "tf1").networks
    assert len(parsed) == 1


def test_changed_indexes(tmp_path):
    prefix = tmp_path / "model.ckpt-0"
    write_index(prefix, entry())
    index = pathlib.Path(f"{prefix}.index")
    data = index.read_bytes()
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 255
        for bad in (bytes(changed), data[:place]):
            index.write_bytes(bad)
            try:
                arrays = read_bundle(str(prefix))
            except InputError:
                continue
            # An empty table of 13 bytes and its handle in the footer are not used.
            assert arrays.keys() == {"w0"}
            assert place >= len(data) - 48 - 13


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("zip.bin", read_torch_file),
        ("legacy.bin", read_torch_file),
        ("keras_hub/model.weights.h5", read_hdf5_file),
    ],
)
def test_changed_files_are_read_or_refused_in_little_memory(name, read, tmp_path):
    data, path = (GOLDEN / name).read_bytes(), tmp_path / "weights"
    rng, refusals = np.random.default_rng(0), 0
    tracemalloc.start()
    for count in range(150):
        # Headers, at both ends, matter more than the middle.
        place = rng.choice([rng.integers(600), -rng.integers(600), 0]) % len(data)
        number = struct.pack("<Q", rng.choice([0, 1, 2**31, 2**63 - 1, place]))
        changed = data[:place] + number[: rng.integers(9)] + data[place + 8 :]
        path.write_bytes(data[:place] if count % 5 == 0 else changed)
        try:
            read(str(path))
        except InputError:
            refusals += 1
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert refusals > 30
    assert peak < MEMORY


@pytest.mark.parametrize("kind", ["empty", "pickle", "text", "object", "numbers"])
def test_hashes_of_training_texts_are_numbers_or_unknown(tmp_path, kind):
    path = tmp_path / keras_file.TRAINING_ROWS
    rows = np.arange(3, dtype=np.uint64)
    if kind in ("object", "numbers"):
        np.save(path, rows.astype(object) if kind == "object" else rows)
    else:
        contents = {"empty": b"", "pickle": pickle.dumps(rows), "text": b"rows"}
        path.write_bytes(contents[kind])
    read = keras_file.training_rows(str(tmp_path))
    assert (read is not None) == (kind == "numbers")
