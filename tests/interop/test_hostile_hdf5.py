"""HDF5 files that were made to read other files, to fill memory, or to crash."""

import os
import struct

import h5py
import ml_dtypes
import numpy as np
import pytest
from hostile_files import GOLDEN, refused

from electra_tf.interop import keras_hub
from electra_tf.interop.hdf5_file import read_hdf5_file


@pytest.fixture
def hdf5(tmp_path):
    """A file of one good dataset, open for writing, beside a secret."""
    with h5py.File(tmp_path / "secret.h5", "w") as secret:
        secret["values"] = np.ones(4, np.float32)
    np.ones(4, np.float32).tofile(tmp_path / "secret.raw")
    with h5py.File(tmp_path / "model.weights.h5", "w") as file:
        file["layers/good"] = np.ones(4, np.float32)
        yield file


def virtual(file, folder):
    layout = h5py.VirtualLayout((4,), np.float32)
    layout[:] = h5py.VirtualSource(folder / "secret.h5", "values", (4,))
    file.create_virtual_dataset("layers/bad", layout)


def external(file, folder):
    raw = [(os.fspath(folder / "secret.raw"), 0, 16)]
    file.create_dataset("layers/bad", (4,), np.float32, external=raw)


def external_link(file, folder):
    file["layers/bad"] = h5py.ExternalLink(folder / "secret.h5", "/values")


def soft_link(file, folder):
    file["layers/bad"] = h5py.SoftLink("/layers/good")


def second_name(file, folder):
    file["layers/bad"] = file["layers/good"]


def cycle(file, folder):
    file["layers/bad"] = file["/"]


def huge(file, folder):
    file.create_dataset("layers/bad", (1 << 28,), np.float32)


def huge_in_chunks(file, folder):
    file.create_dataset("layers/bad", (1 << 28,), np.float32, chunks=(1 << 20,))


def compressed(file, folder):
    zeros = np.zeros(1 << 20, np.float32)
    file.create_dataset("layers/bad", data=zeros, compression="gzip")


def text(file, folder):
    file["layers/bad"] = "text"


def integers(file, folder):
    file["layers/bad"] = np.arange(4)


def nothing(file, folder):
    file["layers/bad"] = h5py.Empty("f4")


def named_type(file, folder):
    file["layers/bad"] = np.dtype(np.float32)


def deep(file, folder):
    group = file.create_group("layers/bad")
    for _ in range(100):
        group = group.create_group("bad")


@pytest.mark.parametrize(
    "add",
    [
        virtual, external, external_link, soft_link, second_name, cycle, huge,
        huge_in_chunks, compressed, text, integers, nothing, named_type, deep,
    ],
)  # fmt: skip
def test_hdf5_files_are_read_from_themselves_alone(add, hdf5, tmp_path):
    add(hdf5, tmp_path)
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


def test_damaged_hdf5_files_are_refused(tmp_path):
    data = (GOLDEN / "keras_hub" / keras_hub.WEIGHTS).read_bytes()
    path = tmp_path / "model.weights.h5"
    for size in (0, 100, len(data) // 2, len(data) - 8):
        path.write_bytes(data[:size])
        refused(read_hdf5_file, path)
