"""Predictions as lines for every model class, and errors of `load`."""

import gzip
import json
import lzma

import keras
import numpy as np
import pytest
from conftest import GOLDEN

from electra_tf.config.pretraining import EncoderConfig
from electra_tf.errors import InputError
from electra_tf.interop.tensor_bundle import write_bundle
from electra_tf.tasks.answerer import QuestionAnswerer
from electra_tf.tasks.classifier import TextClassifier, TextRegressor
from electra_tf.tasks.inference import load, predict_lines
from electra_tf.tasks.prediction_inputs import read_items
from electra_tf.tasks.pretrained import PretrainedEncoder
from electra_tf.tasks.tagger import TokenClassifier
from electra_tf.text.tokenizer import Tokenizer

SHAPE = EncoderConfig(
    depth=1, width=8, embedding=8, heads=1, feed_forward=16, vocabulary_size=1000,
    max_positions=128, segments=2, dropout=0.1, attention_dropout=0.1,
)  # fmt: skip


@pytest.fixture(scope="module")
def start(vocabulary):
    return PretrainedEncoder(SHAPE, Tokenizer(vocabulary), None, "a test")


def predict(model, lines, **options):
    return list(predict_lines(model, [f"{line}\n" for line in lines], **options))


def test_a_classifier_writes_labels_and_probabilities(start):
    model = TextClassifier(start, ["bad", "good"])
    probabilities = model.predict(["the file", "the user"])
    expected = [model.labels[n] for n in np.argmax(probabilities, -1)]
    assert predict(model, ["the file", "the user"]) == expected
    header, *rows = predict(model, ["the file", "the user"], output_format="tsv")
    assert header == "label\tbad\tgood"
    assert (
        rows[0]
        == f"{expected[0]}\t{probabilities[0, 0]:.6f}\t{probabilities[0, 1]:.6f}"
    )
    record = json.loads(predict(model, ["the user"], output_format="jsonl")[0])
    assert record["label"] == expected[1]
    assert record["probabilities"]["good"] == pytest.approx(
        probabilities[1, 1], abs=1e-6
    )


def test_pairs_are_separated_by_a_tab_or_in_json(start):
    model = TextClassifier(start, ["bad", "good"], pairs=True)
    pair = json.loads(predict(model, ["a\tb"], output_format="jsonl")[0])
    record = json.dumps({"text": "a", "text_b": "b"})
    assert json.loads(predict(model, [record], output_format="jsonl")[0]) == pair
    for line, words in (("a", "line 2, with 1"), ('{"text": "a"}', "text and text_b")):
        with pytest.raises(InputError, match=words):
            predict(model, ["a\tb", line])
    # For a model of single texts a tab is white space.
    model = TextClassifier(start, ["bad", "good"])
    both = predict(model, ["a\tb", "a b"], output_format="tsv")[1:]
    assert both[0] == both[1]


def test_lines_of_json(start):
    model = TextClassifier(start, ["bad", "good"])
    expected = predict(model, ["a", "{a}"], output_format="tsv")
    assert (
        predict(model, ['\ufeff{"text": "a"}', "{a}"], output_format="tsv") == expected
    )
    with pytest.raises(InputError, match=r"JSON object\. .*line 2: "):
        predict(model, ["a", '{"text": "a"'])


def test_compressed_files_of_lines(start, tmp_path):
    model = TextClassifier(start, ["bad", "good"])
    for suffix, compress in (
        ("", bytes),
        (".gz", gzip.compress),
        (".xz", lzma.compress),
    ):
        path = tmp_path / f"lines.txt{suffix}"
        path.write_bytes(compress("é\nb\n".encode()))
        assert [item.value for item in read_items(model, str(path))] == ["é", "b"]
        path.write_bytes(compress(b"a\nb" * 99)[:-9] + b"\xff" * bool(not suffix))
        with pytest.raises(InputError, match=r"UTF-8|readable to its end"):
            list(read_items(model, str(path)))


def test_several_chunks_keep_their_order(start):
    model = TextRegressor(start, 0, 5)
    lines = [" ".join(["file"] * (n % 7)) for n in range(1500)]
    scores = [float(line) for line in predict(model, lines)]
    assert len(scores) == 1500
    for n, score in enumerate(scores):
        assert score == pytest.approx(scores[n % 7], abs=1e-5)
    assert len(set(scores[:7])) == 7


def test_unknown_wordpieces_are_reported_once(start):
    for model, line in (
        (TextClassifier(start, ["bad", "good"]), "the كتاب"),
        (TokenClassifier(start, ["N", "V"]), "the كتاب"),
        (QuestionAnswerer(start, None), '{"question": "the", "context": "كتاب"}'),
    ):
        logged = []
        predict(model, [line] * 1100, log=logged.append)
        assert len(logged) == 1
        assert "warning" in logged[0]
        assert "1,100 of 2,200" in logged[0]
        predict(model, ["the file"] if "{" not in line else [], log=logged.append)
        assert len(logged) == 1


def test_a_tagger_writes_words_and_tags(start):
    model = TokenClassifier(start, ["N", "V"])
    words = ["the", "file", "is"]
    tags = model.predict([words])[0]
    assert predict(model, ["the file  is"]) == [
        " ".join(f"{w}/{t}" for w, t in zip(words, tags, strict=True))
    ]
    table = predict(model, ["the file is", ""], output_format="tsv")
    rows = [f"{w}\t{t}" for w, t in zip(words, tags, strict=True)]
    assert table == [*rows, "", ""]
    record = json.loads(
        predict(model, ['{"words": ["the file"]}'], output_format="jsonl")[0]
    )
    assert record["words"] == ["the file"]
    assert len(record["tags"]) == 1


def test_an_answerer_writes_a_span_of_the_context(start):
    model = QuestionAnswerer(start, None)
    line = json.dumps({"question": "who?", "context": "the user can change the file"})
    record = json.loads(predict(model, [line], output_format="jsonl")[0])
    assert record["answer"]
    assert record["answer"] in "the user can change the file"
    assert set(record) == {"answer", "null_odds"}
    model.null_threshold = -1e9
    assert predict(model, [line]) == [""]
    with pytest.raises(InputError, match=r"question and context.*line 1: 'who"):
        predict(model, ["who?"])


def test_a_model_is_loaded_from_its_folder(start, tmp_path):
    model = TextRegressor(start, 1, 3)
    model.save(tmp_path / "model.keras")
    loaded = load(str(tmp_path))
    assert isinstance(loaded, TextRegressor)
    assert (loaded.low, loaded.high) == (1, 3)
    np.testing.assert_array_equal(loaded.predict(["a b"]), model.predict(["a b"]))


def test_load_describes_a_path_without_a_model(start, tmp_path):
    def check(path, description):
        with pytest.raises(InputError, match=description) as error:
            load(str(path))
        assert repr(str(path)) in str(error.value) or "keras" in str(path)

    check(tmp_path, r"a folder without a model\.keras")
    check(tmp_path / "none", "does not exist")
    (tmp_path / "model.h5").write_bytes(b"\x89HDF")
    check(tmp_path / "model.h5", "a file of another kind")
    for name in ("served/1", "trial/trial_1", "hf", "tf1"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "served" / "1" / "saved_model.pb").write_bytes(b"")
    check(tmp_path / "served", "a SavedModel")
    check(tmp_path / "trial", "same finetune command again")
    (tmp_path / "hf" / "pytorch_model.bin").write_bytes(b"")
    check(tmp_path / "hf", r"Hugging Face.*pytorch_model\.bin.*--checkpoint")
    write_bundle(str(tmp_path / "tf1" / "model.ckpt-10"), {"x": np.zeros(2)})
    check(tmp_path / "tf1" / "model.ckpt-10", r"model\.ckpt-10\.index.*--checkpoint")
    check(GOLDEN / "saved" / "run", "a pre-trained checkpoint")
    broken = tmp_path / "broken.keras"
    broken.write_bytes(b"PK\3\4")
    check(broken, "not a .keras archive")
    other = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
    other.save(tmp_path / "other.keras")
    check(tmp_path / "other.keras", "Sequential")


def test_a_loaded_model_is_not_compiled_and_can_be_trained(start, tmp_path):
    model = TextClassifier(start, ["bad", "good"])
    model.compile(keras.optimizers.SGD())
    model.save(tmp_path / "model.keras")
    loaded = load(str(tmp_path))
    assert not loaded.compiled
    history = loaded.fit(["the file", "a user"], ["bad", "good"], epochs=2, verbose=0)
    assert np.isfinite(history.history["loss"][0])
