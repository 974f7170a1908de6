"""Pickles from strangers: no code is run, and no memory filled."""

import os
import pickle
import struct
import zipfile

import pytest

from electra_tf.interop.torch_file import read_torch_file
from tests.conftest import GOLDEN as ALL_GOLDEN
from tests.interop.test_untrusted_models import refused

GOLDEN = ALL_GOLDEN / "interop"
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


def tensor(shape, strides, size, key="0", offset=0):
    """Return the pickle of a tensor, as `torch.save` writes it."""
    kind = global_("torch", "FloatStorage")
    storage = string("storage") + kind + string(key) + string("cpu")
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


GOOD = state_dict(weight=tensor((2, 2), (1, 2), 4), tied=tensor((4,), (1,), 4))
MANY = {f"w{n}": tensor((1 << 18,), (1,), 1 << 18) for n in range(100)}


def test_the_good_torch_file_that_the_bad_ones_differ_from(tmp_path):
    write_zip(tmp_path / "pytorch_model.bin", GOOD, {"0": 16})
    arrays = read_torch_file(str(tmp_path / "pytorch_model.bin"))
    assert {n: a.shape for n, a in arrays.items()} == {"weight": (2, 2), "tied": (4,)}


@pytest.mark.parametrize(
    ("pickled", "size", "kind"),
    [
        (state_dict(w=tensor((100_000, 100_000), (0, 0), 4)), 16, zipfile.ZIP_STORED),
        (state_dict(w=tensor((1 << 40,), (1,), 4)), 16, zipfile.ZIP_STORED),
        (state_dict(w=tensor((4,), (1,), 4, offset=1)), 16, zipfile.ZIP_STORED),
        (state_dict(w=tensor((2, 2), (2**62, 1), 4)), 16, zipfile.ZIP_STORED),
        (state_dict(w=tensor((1,) * 80, (1,) * 80, 4)), 16, zipfile.ZIP_STORED),
        (state_dict(**MANY), 4 << 18, zipfile.ZIP_STORED),
        (GOOD, 8, zipfile.ZIP_STORED),
        (GOOD, 32 << 20, zipfile.ZIP_STORED),
        (GOOD, 16, zipfile.ZIP_DEFLATED),
        (state_dict(w=tensor((BOMB // 4,), (1,), BOMB // 4)), BOMB,
         zipfile.ZIP_DEFLATED),
        (bytes(64 << 20), 16, zipfile.ZIP_STORED),
    ],
    ids=range(11),
)  # fmt: skip
def test_torch_tensors_are_not_larger_than_their_file(pickled, size, kind, tmp_path):
    path = tmp_path / "pytorch_model.bin"
    write_zip(path, pickled, {"0": size}, kind)
    refused(read_torch_file, path)


ATTACKS = {
    # The unpickler in C allocates its memo up to the largest index.
    "memo": (b"\x80\x02Nr" + struct.pack("<I", 2**31) + b".", ""),
    "bytearray": (b"\x80\x05\x96" + struct.pack("<Q", 2**40) + b".", ""),
    "persistent id": (b"\x80\x02" + b"(" * 3 + b"tQ.", ""),
    "storage of tuples": (b"\x80\x02" + b"N" + b"\x85q\x00h\x00\x86" * 60 + b"Q.", ""),
    "tuples within tuples among keys": (
        b"\x80\x02}(" + string("a") + b"N" + b"N\x85q\x00"
        + b"h\x00\x86q\x00" * 60 + b"Nu.", ""
    ),
    "unknown operation": (b"\x80\x02\xff.", "255"),
    "instance": (b"\x80\x02(ios\nsystem\n.", "INST"),
    "eval": (b"\x80\x02" + global_("builtins", "eval") + b")R.", "builtins.eval"),
    "method": (
        b"\x80\x02" + global_("collections", "OrderedDict.fromkeys") + b")R.",
        "OrderedDict.fromkeys",
    ),
    "extension": (b"\x80\x02\x82\x01.", "EXT1"),
    "new": (b"\x80\x02" + global_("collections", "OrderedDict") + b")\x81.", "NEWOBJ"),
    "dict from an iterable": (
        b"\x80\x02" + global_("collections", "OrderedDict") + b"]\x85R.", ""
    ),
    "attributes of a constructor": (
        b"\x80\x02" + global_("collections", "OrderedDict") + b"N}" + string("__code__")
        + b"Ns\x86b.", ""
    ),
    "called storage": (b"\x80\x02" + global_("torch", "FloatStorage") + b")R.", ""),
    # The hash of a tuple within tuples takes a step for each of its paths.
    "tuples within tuples as a key": (
        b"\x80\x02}N\x85q\x00" + b"h\x00\x86q\x00" * 60 + b"Ns.", ""
    ),
    "tuples below other values as a key": (
        b"\x80\x02}N\x85N" + b"b\x80\x02q\x00h\x00\x86N" * 60 + b"bNs.", ""
    ),
    # The unpickler skips the rest of a frame that ends within an operation: here it
    # takes the characters of a string for operations.
    "hidden by a frame": (
        b"\x80\x04\x95" + struct.pack("<Q", 3) + b"]J" + bytes(4) + b"\x8cN"
        + (b"r" + struct.pack("<I", 2**24)).ljust(ord("N"), b"N") + b".", ""
    ),
    "steps of a size without an end": (state_dict(w=tensor((1,), (2**80,), 4)), ""),
    "no values of a size without an end": (
        state_dict(w=tensor((0, 2**80), (1, 1), 4)), ""
    ),
    "number as a name": (b"\x80\x02}K\x01Ns.", ""),
    "no end": (b"\x80\x02}", ""),
    "nested": (b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b".", ""),
    "negative shape": (state_dict(w=tensor((-4,), (1,), 4)), ""),
    "float shape": (state_dict(w=tensor((4,), (1,), 4)).replace(
        numbers((4,)), b"(G" + struct.pack(">d", 4.0) + b"t"), ""),
    "two sizes": (state_dict(a=tensor((4,), (1,), 4), b=tensor((2,), (1,), 2)), ""),
    "path": (state_dict(w=tensor((4,), (1,), 4, key="../../x")), ""),
}  # fmt: skip

# The first three pickles of a file that `torch.save` wrote before version 1.6.
LEGACY = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.\x80\x02}."


@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.parametrize("legacy", [False, True])
def test_torch_pickles_build_tensors_and_nothing_else(name, legacy, tmp_path):
    pickled, asked = ATTACKS[name]
    path = tmp_path / "pytorch_model.bin"
    if legacy:
        path.write_bytes(LEGACY + pickled)
    else:
        write_zip(path, pickled, {"0": 16})
    refused(read_torch_file, path, asked)


def test_tuples_are_no_keys_of_the_storages_of_an_old_file(tmp_path):
    keys = b"\x80\x02]N\x85q\x00" + b"h\x00\x86q\x00" * 60 + b"a."
    path = tmp_path / "pytorch_model.bin"
    path.write_bytes(LEGACY + state_dict(w=tensor((1,), (1,), 1)) + keys)
    refused(read_torch_file, path, "tuple as a key")


class _Attack:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (os.mkdir, (self.path,))


def test_a_pickle_that_calls_a_function_is_not_run(tmp_path):
    made, path = tmp_path / "made", tmp_path / "pytorch_model.bin"
    path.write_bytes(pickle.dumps({"weight": _Attack(str(made))}))
    refused(read_torch_file, path, "mkdir")
    assert not made.exists()
    pickle.loads(path.read_bytes())  # the attack works where it is run
    assert made.exists()
