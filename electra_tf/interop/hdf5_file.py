"""Read the weights in an HDF5 file that comes from elsewhere.

HDF5 can place a dataset's values in other files (by links, virtual datasets and
external storage), and can declare values that no file holds. This reader takes what
Keras writes, arrays of floats that lie in the file itself, and nothing else.
"""

import math
import os
from collections.abc import Iterator

import h5py
import ml_dtypes
import numpy as np

from electra_tf.errors import InputError

_FLOAT_SIZES = (2, 4, 8)  # bytes
_MAX_DEPTH = 32  # groups within groups; Keras needs six
_REMEDY = "Save the model with Keras's save_to_preset or save_weights"


def read_hdf5_file(path: str) -> dict[str, np.ndarray]:
    """Read all datasets of a file."""
    try:
        with h5py.File(path, "r") as file:
            datasets = dict(_datasets(file, path))
            _check_sizes(datasets, path)
            return {name: _values(dataset) for name, dataset in datasets.items()}
    except InputError:
        raise
    except (OSError, RuntimeError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path!r} must be a whole HDF5 file", str(error), "Copy or save it again"
        ) from error


def _datasets(file: h5py.File, path: str) -> Iterator[tuple[str, h5py.Dataset]]:
    """Yield name and dataset, in the order of the names in each group."""
    seen = {_address(file)}
    groups: list[tuple[str, h5py.Group]] = [("", file)]
    while groups:
        prefix, group = groups.pop()
        for key in group:
            name = prefix + key
            link = group.get(key, getlink=True)
            if not isinstance(link, h5py.HardLink):
                kind = type(link).__name__
                raise _error("be an array in the file", path, name, f"an HDF5 {kind}")
            item = group[key]
            if (address := _address(item)) in seen:
                raise _error("have one name", path, name, "a second name of an object")
            seen.add(address)
            if isinstance(item, h5py.Dataset):
                _check_storage(item, path, name)
                yield name, item
            elif isinstance(item, h5py.Group) and name.count("/") < _MAX_DEPTH:
                groups.append((f"{name}/", item))
            else:
                kind = f"an HDF5 {type(item).__name__}"
                raise _error("be an array of floats", path, name, kind)


def _address(item: h5py.Group | h5py.Dataset) -> int:
    return h5py.h5o.get_info(item.id).addr


def _check_storage(dataset: h5py.Dataset, path: str, name: str) -> None:
    if dataset.is_virtual or dataset.external:
        kind = "a virtual dataset" if dataset.is_virtual else "external storage"
        raise _error("be stored in the file itself", path, name, kind)
    dtype = dataset.dtype
    is_float = dtype.kind == "f" and dtype.itemsize in _FLOAT_SIZES
    if dataset.shape is None or not (is_float or _is_bfloat16(dataset)):
        raise _error("be an array of floats", path, name, f"the type {dtype}")
    if dataset.chunks is not None:
        kind = "chunks" if dataset.compression is None else "compressed chunks"
        raise _error("be stored whole and uncompressed", path, name, kind)
    declared, stored = _size(dataset), dataset.id.get_storage_size()
    if declared != stored:
        kind = f"{declared:,} bytes declared, {stored:,} stored"
        raise _error("be stored whole", path, name, kind)


def _check_sizes(datasets: dict[str, h5py.Dataset], path: str) -> None:
    """Raise an error if the datasets declare more bytes than the file has."""
    sizes = {name: _size(dataset) for name, dataset in datasets.items()}
    available = os.path.getsize(path)
    if sum(sizes.values()) > available:
        largest = max(sizes, key=sizes.__getitem__)
        raise InputError(
            "The arrays of a file must not be larger than the file",
            f"{path}: {sum(sizes.values()):,} bytes in a file of {available:,}, "
            f"{sizes[largest]:,} of them of {largest!r}",
            _REMEDY,
        )


def _size(dataset: h5py.Dataset) -> int:
    return math.prod(dataset.shape) * dataset.dtype.itemsize


def _is_bfloat16(dataset: h5py.Dataset) -> bool:
    """Return whether Keras wrote bfloat16, which HDF5 stores as two bytes."""
    return dataset.dtype == np.dtype("V2") and dataset.attrs.get("dtype") == "bfloat16"


def _values(dataset: h5py.Dataset) -> np.ndarray:
    values = dataset[()]
    if _is_bfloat16(dataset):
        values = values.view(ml_dtypes.bfloat16)
    return np.asarray(values)


def _error(required: str, path: str, name: str, received: str) -> InputError:
    return InputError(
        f"A weight of an HDF5 file must {required}",
        f"{path}: {name!r}, {received}",
        _REMEDY,
    )
