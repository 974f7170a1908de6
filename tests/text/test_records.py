import dataclasses
import json

import pytest
import tensorflow as tf

from electra_tf.errors import InputError
from electra_tf.text.examples import Example
from electra_tf.text.records import (
    FEATURES,
    Manifest,
    RecordEncoder,
    frame,
    shard_names,
)
from electra_tf.text.vocab import SPECIAL_TOKENS, Vocabulary


def payload_of(vocabulary, length, first, second=()):
    example = Example("".join(map(chr, first)), "".join(map(chr, second)))
    (payload,) = RecordEncoder(vocabulary, length).encode([example])
    return payload


def features(payload):
    example = tf.train.Example.FromString(payload)
    values = example.features.feature
    return {name: list(values[name].int64_list.value) for name in values}


def test_a_pair_has_the_layout_of_the_original(vocabulary):
    payload = payload_of(vocabulary, 12, [50, 51], [60, 61, 62])
    assert features(payload) == {
        "input_ids": [2, 50, 51, 3, 60, 61, 62, 3, 0, 0, 0, 0],
        "input_mask": [1] * 8 + [0] * 4,
        "segment_ids": [0] * 4 + [1] * 4 + [0] * 4,
    }


def test_a_single_segment_has_one_separator(vocabulary):
    payload = payload_of(vocabulary, 8, [50] * 6)
    assert features(payload) == {
        "input_ids": [2, *[50] * 6, 3],
        "input_mask": [1] * 8,
        "segment_ids": [0] * 8,
    }


def test_payloads_equal_those_of_protobuf():
    # Ids of one, two and three bytes, surrogates among them, and long lengths.
    tokens = (*SPECIAL_TOKENS, *(f"t{i}" for i in range(60_000)))
    ids = [127, 128, 16_383, 16_384, 0xD800, 0xDFFF] * 50
    payload = payload_of(Vocabulary(tokens), 512, ids, ids[:100])
    by_name = features(payload)
    message = tf.train.Example()
    for name in FEATURES:
        message.features.feature[name].int64_list.value.extend(by_name[name])
    assert payload == message.SerializeToString(deterministic=True)


def test_the_encoding_does_not_depend_on_other_examples(vocabulary):
    examples = [Example("a" * n, "ʰ" * (n % 3)) for n in range(1, 50)]
    encoder = RecordEncoder(vocabulary, 64)
    assert encoder.encode(examples) == [encoder.encode([e])[0] for e in examples]
    assert encoder.encode([]) == []


def test_frames_equal_those_of_tensorflow(tmp_path):
    payloads = [b"", b"x", bytes(range(256)) * 9]
    (tmp_path / "ours").write_bytes(b"".join(map(frame, payloads)))
    with tf.io.TFRecordWriter(str(tmp_path / "theirs")) as writer:
        for payload in payloads:
            writer.write(payload)
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()


MANIFEST = Manifest(
    documents=1,
    sentences=2,
    tokens=3,
    discarded_tokens=0,
    unknown_share=0.0,
    records=1,
    padding_share=0.5,
    seed=0,
    settings={"records": {"max_length": 64}},
    tokenizer={"vocabulary_size": 9},
    unicode="14.0.0",
    problems={},
    shards=[],
)


def test_a_manifest_round_trip(tmp_path):
    MANIFEST.write(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]
    text = (tmp_path / "manifest.json").read_text()
    assert Manifest.parse(text, "m") == MANIFEST
    assert MANIFEST.max_length == 64


def test_a_manifest_of_an_earlier_version_is_read(tmp_path):
    tree = dataclasses.asdict(MANIFEST)
    for name in ("too_long_words", "too_long_characters"):
        del tree[name]
    for name in ("stripped_share", "stripped_example"):
        del tree[name]
    assert Manifest.parse(json.dumps(tree), "m") == MANIFEST


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "{}", b"\xff", '{"format": 2}', '{"format": 1}'),
        *(
            json.dumps({**dataclasses.asdict(MANIFEST), **change})
            for change in ({"settings": {}}, {"tokenizer": None}, {"shards": [1]})
        ),
    ],
)
def test_an_invalid_manifest_is_rejected(text):
    with pytest.raises(InputError, match=r"folder/manifest\.json.*format 1"):
        Manifest.parse(text, "folder/manifest.json")


def test_shard_names():
    assert shard_names(2)[1] == "pretrain_data.tfrecord-00001-of-00002"
