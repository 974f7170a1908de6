"""The format of records, byte for byte, and their manifest."""

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
)
from electra_tf.text.vocab import SPECIAL_TOKENS, Vocabulary

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


def payload_of(vocabulary, length, first, second=()):
    example = Example("".join(map(chr, first)), "".join(map(chr, second)))
    (payload,) = RecordEncoder(vocabulary, length).encode([example])
    return payload


def features(payload):
    values = tf.train.Example.FromString(payload).features.feature
    return {name: list(values[name].int64_list.value) for name in values}


@pytest.mark.parametrize(
    ("first", "second", "ids", "segments"),
    [
        ([50, 51], [60, 61], [2, 50, 51, 3, 60, 61, 3, 0], [0] * 4 + [1] * 3 + [0]),
        ([50] * 6, [], [2, *[50] * 6, 3], [0] * 8),
    ],
)
def test_records_have_the_layout_of_the_original(
    vocabulary, first, second, ids, segments
):
    mask = [int(number > 0) for number in ids]
    expected = dict(zip(FEATURES, (ids, mask, segments), strict=True))
    assert features(payload_of(vocabulary, 8, first, second)) == expected


def test_payloads_equal_those_of_protobuf():
    # Ids of one, two and three bytes, surrogates among them, and long lengths.
    tokens = (*SPECIAL_TOKENS, *(f"t{i}" for i in range(60_000)))
    ids = [127, 128, 16_383, 16_384, 0xD800, 0xDFFF] * 50
    payload = payload_of(Vocabulary(tokens), 512, ids, ids[:100])
    message = tf.train.Example()
    for name, values in features(payload).items():
        message.features.feature[name].int64_list.value.extend(values)
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


def test_a_manifest_is_read_also_with_other_fields_of_earlier_versions():
    assert Manifest.parse(MANIFEST.text, "m") == MANIFEST
    assert MANIFEST.max_length == 64
    tree = json.loads(MANIFEST.text)
    del tree["duplicates"]
    tree |= {"too_long_words": 3, "stripped_share": 0.5}
    assert Manifest.parse(json.dumps(tree), "m") == MANIFEST


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "{}", b"\xff", '{"format": 2}'),
        *(
            json.dumps({**dataclasses.asdict(MANIFEST), **change})
            for change in ({"settings": {}}, {"tokenizer": None}, {"shards": [1]})
        ),
    ],
)
def test_a_damaged_manifest_is_named(text):
    with pytest.raises(InputError, match=r"folder/manifest\.json is damaged"):
        Manifest.parse(text, "folder/manifest.json")
