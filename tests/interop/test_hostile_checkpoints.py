"""TensorFlow checkpoints that lead elsewhere, fill memory, or crash TensorFlow."""

import os
import pathlib
import shutil
import struct

import google_crc32c
import numpy as np
import pytest
import tensorflow as tf
from hostile_files import GOLDEN, refused
from tensorflow.core.protobuf import tensor_bundle_pb2

from electra_tf.errors import InputError
from electra_tf.interop import tensor_bundle, tf1
from electra_tf.interop.conversion import convert_checkpoint, read_model
from electra_tf.training.checkpoint import CheckpointManager, open_checkpoint


@pytest.fixture(scope="module")
def tf1_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile") / "tf1"
    convert_checkpoint(str(GOLDEN / "huggingface_discriminator"), folder, "tf1")
    return folder


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{",
        '{"heads": 3}',
        '{"heads": {"discriminator": "nine"}}',
        '{"heads": {"discriminator": 7}}',
        '{"layer_norm_epsilon": "small"}',
        '{"tokenization": []}',
        '{"tokenization": {"lower_case": "perhaps"}}',
        '{"tokenization": {"unknown": 1}}',
    ],
)
def test_damaged_settings_beside_a_checkpoint_are_refused(text, tf1_folder, tmp_path):
    folder = tmp_path / "tf1"
    shutil.copytree(tf1_folder, folder)
    (folder / tf1.SETTINGS).write_text(text)
    with pytest.raises(InputError, match="tf1"):
        read_model(str(folder))


def test_a_layer_number_that_no_weights_reach_is_refused(tf1_folder, tmp_path):
    tensors = dict(tf1.read_checkpoint(str(tf1_folder / "model.ckpt-0")))
    name = next(name for name in tensors if "encoder/layer_1/" in name)
    tensors[name.replace("layer_1/", "layer_999999999/")] = tensors[name]
    tensor_bundle.write_bundle(str(tmp_path / "model.ckpt-0"), tensors)
    refused(read_model, tmp_path / "model.ckpt-0", "depth 1000000000")


def test_a_checkpoint_whose_config_has_impossible_sizes_is_refused(tmp_path):
    source = GOLDEN.parent / "saved" / "run" / "checkpoints" / "step_00000004"
    opened = open_checkpoint(str(source))
    files = {name: opened.read(name) for name in ("vocab.txt", "config.yaml")}
    assert b"depth: 1\n" in files["config.yaml"]
    files["config.yaml"] = files["config.yaml"].replace(
        b"depth: 1\n", b"depth: 1000000000\n"
    )
    manager = CheckpointManager(str(tmp_path))
    path = manager.save(4, opened.weights(), opened.slots(), files, opened.metadata)
    refused(read_model, path, "depth 1000000000")


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


def entry(shape=(2,), size=8, offset=0, dtype=1, **more):
    """Return the index entry of a tensor; 1 is float32."""
    proto = tensor_bundle_pb2.BundleEntryProto(
        dtype=dtype, size=size, offset=offset, **more
    )
    for axis in shape:
        proto.shape.dim.add(size=axis)
    return proto


def masked(data):
    crc = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def write_bundle(prefix, *entries, kind=0):
    """Write a checkpoint of two floats, whose index says something else."""
    data = np.array([1.5, -2], np.float32).tobytes()
    pathlib.Path(f"{prefix}.data-00000-of-00001").write_bytes(data)
    header = tensor_bundle_pb2.BundleHeaderProto(num_shards=1)
    file = b""

    def block(items):
        nonlocal file
        body = b"".join(
            b"\x00" + encode(len(key)) + encode(len(value)) + key + value
            for key, value in items
        )
        body += struct.pack("<II", 0, 1)  # one restart point
        handle = encode(len(file)) + encode(len(body))
        body += bytes([kind])
        file += body + struct.pack("<I", masked(body))
        return handle

    for one in entries:
        if isinstance(one, tensor_bundle_pb2.BundleEntryProto) and not one.crc32c:
            one.crc32c = masked(data)
    names = (f"w{number}".encode() for number in range(len(entries)))
    values = (e if isinstance(e, bytes) else e.SerializeToString() for e in entries)
    items = [(b"", header.SerializeToString()), *zip(names, values, strict=True)]
    index = block([(b"x", block(items))])
    footer = (block([]) + index).ljust(40, b"\0") + bytes.fromhex("57fb808b247547db")
    pathlib.Path(f"{prefix}.index").write_bytes(file + footer)


def encode(value):
    """Return a varint."""
    return bytes([value % 128 | 128, value // 128])


def test_a_checkpoint_written_by_hand_is_read(tmp_path):
    """The hostile ones below differ from it in one way each."""
    prefix = str(tmp_path / "model.ckpt-0")
    write_bundle(prefix, entry(), entry((2, 1)), entry((0, 4), 0), entry((9,), 0, 0, 7))
    with pytest.raises(InputError, match="16 bytes in files of 8"):
        tf1.read_checkpoint(prefix)
    write_bundle(prefix, entry(), entry((0, 4), 0), entry((9,), 0, 0, 7))
    arrays = tf1.read_checkpoint(prefix)
    assert {name: array.shape for name, array in arrays.items()} == {
        "w0": (2,), "w1": (0, 4),
    }  # fmt: skip
    np.testing.assert_array_equal(arrays["w0"], [1.5, -2])
    np.testing.assert_array_equal(tf.train.load_checkpoint(prefix).get_tensor("w0"),
                                  [1.5, -2])  # fmt: skip


@pytest.mark.parametrize(
    "one",
    [
        entry((1 << 40,), 4 << 40),
        entry((1 << 40, 1 << 40)),
        entry((-2,)),
        entry((-2, -1)),
        entry((2,), 8, 4),
        entry((2,), 8, -4),
        entry((2,), 8, 2**62),
        entry((2,), 4),
        entry((2,), 8, dtype=20),
        entry((2,), 8, dtype=999),
        entry((2,), 8, shard_id=3),
        entry((2,), 8, shard_id=-1),
        entry((2,), 8, crc32c=1),
        entry((1,) * 99 + (2,)),
        b"\xff\xff",
        b"",
    ],
)
def test_hostile_indexes_of_checkpoints_are_refused(one, tmp_path):
    prefix = tmp_path / "model.ckpt-0"
    write_bundle(prefix, one)
    refused(tf1.read_checkpoint, prefix)


def test_compressed_indexes_of_checkpoints_are_refused(tmp_path):
    write_bundle(tmp_path / "model.ckpt-0", entry(), kind=1)
    refused(tf1.read_checkpoint, tmp_path / "model.ckpt-0", "compressed")


def test_damaged_indexes_of_checkpoints_are_refused(tmp_path):
    prefix = tmp_path / "model.ckpt-0"
    write_bundle(prefix, entry())
    index = pathlib.Path(f"{prefix}.index")
    data = index.read_bytes()
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 255
        for hostile in (bytes(changed), data[:place]):
            index.write_bytes(hostile)
            try:
                arrays = tf1.read_checkpoint(str(prefix))
            except InputError:
                continue
            # An empty table of 13 bytes and its handle in the footer are not used.
            assert arrays.keys() == {"w0"}
            assert place >= len(data) - 48 - 13


def test_checkpoints_that_declare_more_than_their_files_hold_are_refused(
    tf1_folder, tmp_path
):
    prefix = tmp_path / "model.ckpt-0"
    for path in pathlib.Path(tf1_folder).glob("model.ckpt-0.*"):
        shutil.copy(path, tmp_path)
    (data,) = tmp_path.glob("*.data-*")
    os.truncate(data, data.stat().st_size - 4)
    refused(tf1.read_checkpoint, prefix, "bytes")


def test_numbers_of_a_checkpoint_must_be_finite(tmp_path):
    prefix = str(tmp_path / "model.ckpt-0")
    tf.raw_ops.SaveV2(
        prefix=prefix, tensor_names=["a"], shape_and_slices=[""],
        tensors=[np.array([1, np.inf], np.float32)],
    )  # fmt: skip
    refused(tf1.read_checkpoint, prefix, "'a'")


def test_names_that_share_their_starts_are_bounded(tmp_path):
    """A name repeats the start of the last one: a small index holds a huge table."""
    prefix = tmp_path / "x"
    write_bundle(prefix, entry())
    grown, count = b"", 200_000
    for number in range(count):
        grown += encode_any(number) + encode_any(1) + encode_any(0) + b"w"
    body = grown + struct.pack("<II", 0, 1)
    file = body + b"\0" + struct.pack("<I", masked(body + b"\0"))
    handle = encode_any(0) + encode_any(len(body))
    index = b"\0" + encode_any(1) + encode_any(len(handle)) + b"x" + handle
    index += struct.pack("<II", 0, 1)
    place = len(file)
    file += index + b"\0" + struct.pack("<I", masked(index + b"\0"))
    footer = (handle + encode_any(place) + encode_any(len(index))).ljust(40, b"\0")
    file += footer + bytes.fromhex("57fb808b247547db")
    pathlib.Path(f"{prefix}.index").write_bytes(file)
    refused(tf1.read, prefix, "bytes")


def encode_any(value):
    """Return a varint of any length."""
    parts = []
    while value >= 128:
        parts.append(value % 128 | 128)
        value //= 128
    return bytes([*parts, value])
