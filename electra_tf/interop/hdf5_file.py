"""Read the weights in an HDF5 file that comes from elsewhere.

HDF5 can place a dataset's values in other files (by links, virtual datasets and
external storage), and can declare values that no file holds. This reader takes what
Keras writes, arrays of floats that lie in the file itself, and nothing else.
"""

import os
from collections.abc import Iterator

import h5py
import ml_dtypes
import numpy as np

from electra_tf.errors import report_damage

_MAX_DEPTH = 32  # groups within groups; Keras needs six


def read_hdf5_file(path: str) -> dict[str, np.ndarray]:
    """Read all datasets of a file."""
    with report_damage(path), h5py.File(path) as file:
        datasets = dict(_datasets(file))
        if sum(d.nbytes for d in datasets.values()) > os.path.getsize(path):
            raise ValueError("arrays of more bytes than the file has")
        values = {name: np.asarray(dataset[()]) for name, dataset in datasets.items()}
        for name, dataset in datasets.items():
            if _is_bfloat16(dataset):
                values[name] = values[name].view(ml_dtypes.bfloat16)
        return values


def _datasets(file: h5py.File) -> Iterator[tuple[str, h5py.Dataset]]:
    """Yield name and dataset, in the order of the names in each group."""
    seen = {_address(file)}
    groups: list[tuple[str, h5py.Group]] = [("", file)]
    while groups:
        prefix, group = groups.pop()
        for key in group:
            name, link = prefix + key, group.get(key, getlink=True)
            if not isinstance(link, h5py.HardLink):
                raise ValueError(f"{name!r} is a {type(link).__name__}")
            item = group[key]
            if _address(item) in seen:
                raise ValueError(f"{name!r} is a second name of an object")
            seen.add(_address(item))
            if isinstance(item, h5py.Group) and name.count("/") < _MAX_DEPTH:
                groups.append((f"{name}/", item))
            elif isinstance(item, h5py.Dataset) and is_stored_in(item, file):
                yield name, item
            else:
                raise ValueError(f"{name!r} is {item!r}, not plain floats")


def _address(item: h5py.Group | h5py.Dataset | h5py.Datatype) -> int:
    return h5py.h5o.get_info(item.id).addr


def is_stored_in(dataset: h5py.Dataset, file: h5py.File) -> bool:
    """Return whether values are floats in the file, whole and uncompressed."""
    is_float = dataset.dtype.kind == "f" or _is_bfloat16(dataset)
    elsewhere = dataset.is_virtual or dataset.external or dataset.file != file
    if not is_float or elsewhere or dataset.chunks is not None or dataset.shape is None:
        return False
    return dataset.nbytes == dataset.id.get_storage_size()


def _is_bfloat16(dataset: h5py.Dataset) -> bool:
    """Return whether Keras wrote bfloat16, which HDF5 stores as two bytes."""
    return dataset.dtype == np.dtype("V2") and dataset.attrs.get("dtype") == "bfloat16"
