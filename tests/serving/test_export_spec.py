"""Test the texts of requests."""

from electra_tf.serving.export_spec import PROBE_TEXTS, decode_texts, encode_texts


def test_texts_are_encoded_and_decoded():
    encoded = encode_texts(["café", b"\xff\xfe raw", ""])
    assert encoded.dtype == object
    assert encoded.tolist() == ["café".encode(), b"\xff\xfe raw", b""]
    assert decode_texts(encoded) == ["café", " raw", ""]
    assert decode_texts(encode_texts(PROBE_TEXTS)) == list(PROBE_TEXTS)
    assert encode_texts([]).shape == (0,)
