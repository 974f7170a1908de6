"""Test warm-up requests."""

import sys

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.errors import InputError
from electra_tf.serving.export_spec import IDS
from electra_tf.serving.warmup import warmup_requests, write_warmup
from serving.warmup_file import read_warmup

BYTES = [b"", "Zürich".encode(), b"\xff\x00"]


def assert_same(request, other):
    assert request.keys() == other.keys()
    for name, array in request.items():
        np.testing.assert_array_equal(array, other[name])
        assert (array.dtype, array.shape) == (other[name].dtype, other[name].shape)


def test_requests_round_trip(tmp_path):
    ids = np.arange(6, dtype=np.int32).reshape(2, 3)
    requests = {
        "serving_default": [
            {"text": np.array(BYTES, object)},
            {"text": np.array([], object)},
        ],
        "tokens": [{"padding_mask": ids, "token_ids": -ids}, {"token_ids": ids[:0]}],
    }
    path = write_warmup(tmp_path, requests, "rte")
    assert path == tmp_path / "assets.extra" / "tf_serving_warmup_requests"
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    restored = read_warmup(tmp_path)
    assert list(restored) == list(requests)
    for name in requests:
        for request, other in zip(requests[name], restored[name], strict=True):
            assert_same(request, other)


def test_file_format_of_tf_serving(tmp_path):
    # A record of the file is a PredictionLog with a PredictLog.
    from tensorflow_serving.apis import prediction_log_pb2

    text = np.array([b"good"], object)
    path = write_warmup(tmp_path, {"serving_default": [{"text": text}]}, "rte")
    (record,) = tf.data.TFRecordDataset(str(path)).as_numpy_iterator()
    request = prediction_log_pb2.PredictionLog.FromString(record).predict_log.request
    assert request.model_spec.name == "rte"
    assert request.model_spec.signature_name == "serving_default"
    assert list(request.inputs) == ["text"]
    tensor = request.inputs["text"]
    assert (tensor.dtype, list(tensor.string_val)) == (7, [b"good"])
    assert [dim.size for dim in tensor.tensor_shape.dim] == [1]


def test_warmup_requests_have_one_row_of_each_length():
    short, long = warmup_requests(("text", "text_b"), (1, 3))
    assert short == {"text": [b"a"], "text_b": [b"a"]}
    assert long == {"text": [b"a a a"], "text_b": [b"a a a"]}
    (ids,) = warmup_requests(IDS[::-1], [4])
    assert sorted(ids) == sorted(IDS)
    assert ids["padding_mask"].tolist() == [[1, 1, 1, 1]]
    assert ids["token_ids"].tolist() == ids["segment_ids"].tolist() == [[0] * 4]
    assert {array.dtype for array in ids.values()} == {np.dtype(np.int32)}
    assert warmup_requests(("text",), []) == []


@pytest.mark.parametrize("count", [0, 1001])
def test_write_warmup_rejects_count(tmp_path, count):
    requests = {"serving_default": warmup_requests(("text",), [1] * count)}
    with pytest.raises(InputError, match=f"1 to 1,000 .*Received: {count:,}"):
        write_warmup(tmp_path, requests)
    assert not list(tmp_path.iterdir())


def test_write_warmup_accepts_maximum(tmp_path):
    requests = {"serving_default": warmup_requests(("text",), [1] * 1000)}
    write_warmup(tmp_path, requests)
    assert len(read_warmup(tmp_path)["serving_default"]) == 1000


def test_failed_write_keeps_the_old_file(tmp_path):
    first = {"serving_default": warmup_requests(("text",), [2])}
    path = write_warmup(tmp_path, first)
    before = path.read_bytes()
    invalid = {"serving_default": [{"text": np.zeros(1, "V1")}]}
    with pytest.raises(TypeError):
        write_warmup(tmp_path, invalid)
    assert path.read_bytes() == before
    assert len(list(path.parent.iterdir())) == 1


def test_missing_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_serving.apis", None)
    with pytest.raises(InputError, match="tools/install serving"):
        write_warmup(tmp_path, {"serving_default": warmup_requests(("text",), [1])})
