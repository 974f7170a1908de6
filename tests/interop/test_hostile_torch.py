"""Torch files that were made to run code, to fill memory, or to crash."""

import pickle
import struct
import zipfile

import pytest
from hostile_files import refused

from electra_tf.interop.torch_file import read_torch_file

BOMB = 256 * 2**20


def global_(module, name):
    return f"c{module}\n{name}\n".encode()


def string(value):
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def number(value):
    if value < 2**31:
        return b"J" + struct.pack("<i", value)
    data = pickle.encode_long(value)
    return b"\x8a" + bytes([len(data)]) + data


def numbers(values):
    return b"(" + b"".join(map(number, values)) + b"t"


def tensor(shape, strides, size, key="0", offset=0, kind="FloatStorage"):
    """Return the pickle of a tensor, as `torch.save` writes it."""
    storage = string("storage") + global_("torch", kind) + string(key) + string("cpu")
    return (
        global_("torch._utils", "_rebuild_tensor_v2")
        + b"((" + storage + number(size) + b"tQ" + number(offset)
        + numbers(shape) + numbers(strides) + b"\x89"
        + global_("collections", "OrderedDict") + b")Rt" + b"R"
    )  # fmt: skip


def state_dict(**tensors):
    items = (string(name) + value for name, value in tensors.items())
    return b"\x80\x02}(" + b"".join(items) + b"u."


def write_zip(path, pickled, storages, kind=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", kind) as archive:
        archive.writestr("archive/data.pkl", pickled)
        for key, size in storages.items():
            with archive.open(f"archive/data/{key}", "w") as file:
                for start in range(0, size, 1 << 20):
                    file.write(bytes(min(1 << 20, size - start)))
    return path


def test_torch_tensors_of_this_file_are_read(tmp_path):
    """The hostile files below differ from this good one in one way each."""
    pickled = state_dict(weight=tensor((2, 2), (1, 2), 4), tied=tensor((4,), (1,), 4))
    path = write_zip(tmp_path / "pytorch_model.bin", pickled, {"0": 16})
    arrays = read_torch_file(str(path))
    assert {n: a.shape for n, a in arrays.items()} == {"weight": (2, 2), "tied": (4,)}


@pytest.mark.parametrize(
    ("shape", "strides", "offset"),
    [
        ((100_000, 100_000), (0, 0), 0),
        ((1 << 40,), (1,), 0),
        ((4,), (1,), 1),
        ((2, 2), (2**62, 1), 0),
        ((2,) * 80, (0,) * 80, 0),
    ],
)
def test_torch_tensors_are_not_larger_than_their_storage(
    shape, strides, offset, tmp_path
):
    pickled = state_dict(weight=tensor(shape, strides, 4, offset=offset))
    path = write_zip(tmp_path / "pytorch_model.bin", pickled, {"0": 16})
    refused(read_torch_file, path, "'weight'", "4 values")


def test_torch_tensors_with_too_many_axes_are_refused(tmp_path):
    pickled = state_dict(weight=tensor((1,) * 80, (1,) * 80, 4))
    path = write_zip(tmp_path / "pytorch_model.bin", pickled, {"0": 16})
    refused(read_torch_file, path)


def test_many_views_of_one_torch_storage_are_refused(tmp_path):
    tensors = {f"w{n}": tensor((1 << 18,), (1,), 1 << 18) for n in range(100)}
    path = tmp_path / "pytorch_model.bin"
    write_zip(path, state_dict(**tensors), {"0": 4 << 18})
    refused(read_torch_file, path)


@pytest.mark.parametrize("kind", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2])
def test_compressed_torch_archives_are_refused(kind, tmp_path):
    pickled = state_dict(weight=tensor((BOMB // 4,), (1,), BOMB // 4))
    path = write_zip(tmp_path / "pytorch_model.bin", pickled, {"0": BOMB}, kind)
    assert path.stat().st_size < BOMB // 100
    refused(read_torch_file, path, "data.pkl")


def test_a_torch_archive_with_one_compressed_storage_is_refused(tmp_path):
    path = tmp_path / "pytorch_model.bin"
    write_zip(path, state_dict(weight=tensor((4,), (1,), 4)), {})
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data/0", bytes(16))
    refused(read_torch_file, path, "archive/data/0")


def test_torch_storages_are_of_the_size_that_the_pickle_says(tmp_path):
    pickled = state_dict(weight=tensor((4,), (1,), 4))
    for size in (8, 32 << 20):
        path = write_zip(tmp_path / "pytorch_model.bin", pickled, {"0": size})
        refused(read_torch_file, path, "0")


def test_a_torch_pickle_of_zeros_is_refused(tmp_path):
    path = write_zip(tmp_path / "pytorch_model.bin", bytes(64 << 20), {})
    refused(read_torch_file, path, "data.pkl")


ATTACKS = {
    # The C unpickler allocates its memo up to the largest index.
    "memo": (b"\x80\x02Nr" + struct.pack("<I", 2**31) + b".", None),
    "bytearray": (b"\x80\x05\x96" + struct.pack("<Q", 2**40) + b".", None),
    "long string": (b"\x80\x04\x8d" + struct.pack("<Q", 2**40) + b"x.", None),
    "frame": (b"\x80\x04\x95" + struct.pack("<Q", 2**40) + b"N.", None),
    "persistent id": (b"\x80\x02" + b"(" * 3 + b"tQ.", None),
    "storage of tuples": (
        b"\x80\x02" + b"N" + b"\x85q\x00h\x00\x86" * 60 + b"Q.", None
    ),
    "tuple as a key": (b"\x80\x02}N\x85Ns.", None),
    "instance": (b"\x80\x02(ios\nsystem\n.", "INST"),
    "eval": (b"\x80\x02" + global_("builtins", "eval") + b")R.", "builtins.eval"),
    "getattr": (
        b"\x80\x02" + global_("collections", "OrderedDict.fromkeys") + b")R.",
        "OrderedDict.fromkeys",
    ),
    "extension": (b"\x80\x02\x82\x01.", "EXT1"),
    "new": (b"\x80\x02" + global_("collections", "OrderedDict") + b")\x81.", "NEWOBJ"),
    "dict from an iterable": (
        b"\x80\x02" + global_("collections", "OrderedDict") + b"]\x85R.", None
    ),
    "called storage": (b"\x80\x02" + global_("torch", "FloatStorage") + b")R.", None),
    "no mark": (b"\x80\x02tt.", None),
    "empty": (b"\x80\x02.", None),
    "list": (b"\x80\x02].", None),
    "number as a name": (b"\x80\x02}K\x01Ns.", None),
    "no end": (b"\x80\x02}", None),
    "nested": (b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b".", None),
    "negative shape": (state_dict(w=tensor((-4,), (1,), 4)), None),
    "float shape": (state_dict(w=tensor((4,), (1,), 4)).replace(
        numbers((4,)), b"(G" + struct.pack(">d", 4.0) + b"t"), None),
    "two sizes": (state_dict(a=tensor((4,), (1,), 4), b=tensor((2,), (1,), 2)), None),
    "path": (state_dict(w=tensor((4,), (1,), 4, key="../../x")), None),
}  # fmt: skip


@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.parametrize("legacy", [False, True])
def test_torch_pickles_build_tensors_and_nothing_else(name, legacy, tmp_path):
    pickled, asked = ATTACKS[name]
    path = tmp_path / "pytorch_model.bin"
    if legacy:
        magic = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."
        path.write_bytes(magic + b"\x80\x02M\xe9\x03." + b"\x80\x02}." + pickled)
    else:
        write_zip(path, pickled, {"0": 16})
    refused(read_torch_file, path, *([asked] if asked else []))
