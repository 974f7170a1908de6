"""Lines in, lines out, for every kind of model; what is no model is told."""

import gzip
import json
import lzma

import keras
import numpy as np
import pytest

from electra_tf.errors import InputError
from electra_tf.settings import Encoder
from electra_tf.tasks.answerer import QuestionAnswerer
from electra_tf.tasks.models import TextClassifier, TextRegressor
from electra_tf.tasks.predicting import lines_of, load, predict_lines
from electra_tf.tasks.start import Start
from electra_tf.tasks.tagger import TextTagger
from electra_tf.text.tokenizer import Tokenizer

SHAPE = Encoder(
    depth=1, width=8, embedding=8, heads=1, feed_forward=16, vocabulary_size=1000,
    max_positions=128, segments=2, dropout=0.1, attention_dropout=0.1,
)  # fmt: skip


@pytest.fixture(scope="module")
def start(vocabulary):
    return Start(SHAPE, Tokenizer(vocabulary), None, "a test")


def said(model, lines, **how):
    return list(predict_lines(model, [f"{line}\n" for line in lines], **how))


def test_a_classifier_says_labels_and_probabilities(start):
    model = TextClassifier(start, ["bad", "good"])
    shares = model.predict(["the file", "the user"])
    expected = [model.labels[n] for n in np.argmax(shares, -1)]
    assert said(model, ["the file", "the user"]) == expected
    header, *rows = said(model, ["the file", "the user"], form="tsv")
    assert header == "label\tbad\tgood"
    assert rows[0] == f"{expected[0]}\t{shares[0, 0]:.6f}\t{shares[0, 1]:.6f}"
    record = json.loads(said(model, ["the user"], form="jsonl")[0])
    assert record["label"] == expected[1]
    assert record["probabilities"]["good"] == pytest.approx(shares[1, 1], abs=1e-6)


def test_a_model_of_pairs_takes_them_with_a_tab_between_or_in_json(start):
    model = TextClassifier(start, ["bad", "good"], pairs=True)
    pair = json.loads(said(model, ["a\tb"], form="jsonl")[0])
    record = json.dumps({"text": "a", "text_b": "b"})
    assert json.loads(said(model, [record], form="jsonl")[0]) == pair
    for line, words in (("a", "line 2, with 1"), ('{"text": "a"}', "text and text_b")):
        with pytest.raises(InputError, match=words):
            said(model, ["a\tb", line])
    # For a model of single texts a tab is white space.
    model = TextClassifier(start, ["bad", "good"])
    both = said(model, ["a\tb", "a b"], form="tsv")[1:]
    assert both[0] == both[1]


def test_json_is_read_as_such_or_told(start):
    model = TextClassifier(start, ["bad", "good"])
    wanted = said(model, ["a", "{a}"], form="tsv")
    assert said(model, ['\ufeff{"text": "a"}', "{a}"], form="tsv") == wanted
    with pytest.raises(InputError, match=r"JSON object\. Arrived: line 2: "):
        said(model, ["a", '{"text": "a"'])


def test_files_of_lines_are_unpacked(tmp_path):
    for suffix, packed in (("", bytes), (".gz", gzip.compress), (".xz", lzma.compress)):
        path = tmp_path / f"lines.txt{suffix}"
        path.write_bytes(packed("é\nb\n".encode()))
        assert list(lines_of(str(path))) == ["é\n", "b\n"]
        path.write_bytes(packed(b"a\nb" * 99)[:-9] + b"\xff" * bool(not suffix))
        with pytest.raises(InputError, match=r"UTF-8|read to its end"):
            list(lines_of(str(path)))


def test_what_holds_no_lines_is_refused_before_a_model_is_loaded(tmp_path):
    for name, wanted in (("a.csv.xz", "a table"), ("none.txt", "Check the path")):
        with pytest.raises(InputError, match=wanted):
            lines_of(str(tmp_path / name))
    with pytest.raises(InputError, match="Check the path"):
        lines_of(str(tmp_path))


def test_more_lines_than_are_answered_at_a_time_keep_their_order(start):
    model = TextRegressor(start, 0, 5)
    lines = [" ".join(["file"] * (n % 7)) for n in range(1500)]
    scores = [float(line) for line in said(model, lines)]
    assert len(scores) == 1500
    for n, score in enumerate(scores):
        assert score == pytest.approx(scores[n % 7], abs=1e-5)
    assert len(set(scores[:7])) == 7


def test_a_tagger_tags_words(start):
    model = TextTagger(start, ["N", "V"])
    words = ["the", "file", "is"]
    tags = model.predict([words])[0]
    assert said(model, ["the file  is"]) == [
        " ".join(f"{w}/{t}" for w, t in zip(words, tags, strict=True))
    ]
    table = said(model, ["the file is", ""], form="tsv")
    assert table[0] == "".join(f"{w}\t{t}\n" for w, t in zip(words, tags, strict=True))
    record = json.loads(said(model, ['{"words": ["the file"]}'], form="jsonl")[0])
    assert record["words"] == ["the file"]
    assert len(record["tags"]) == 1


def test_an_answerer_answers_with_words_of_the_text(start):
    model = QuestionAnswerer(start, None)
    line = json.dumps({"question": "who?", "context": "the user can change the file"})
    record = json.loads(said(model, [line], form="jsonl")[0])
    assert record["answer"]
    assert record["answer"] in "the user can change the file"
    assert sum(one["probability"] for one in record["nbest"]) == pytest.approx(1)
    model.null_threshold = -1e9
    assert said(model, [line]) == [""]
    with pytest.raises(InputError, match=r"question and context.*line 1: 'who"):
        said(model, ["who?"])


def test_a_model_is_loaded_from_its_folder(start, tmp_path):
    model = TextRegressor(start, 1, 3)
    model.save(tmp_path / "model.keras")
    loaded = load(str(tmp_path))
    assert isinstance(loaded, TextRegressor)
    assert (loaded.low, loaded.high) == (1, 3)
    np.testing.assert_array_equal(loaded.predict(["a b"]), model.predict(["a b"]))


def test_what_is_no_model_is_told(tmp_path):
    with pytest.raises(InputError, match=r"a model\.keras"):
        load(str(tmp_path))
    broken = tmp_path / "broken.keras"
    broken.write_bytes(b"PK\3\4")
    with pytest.raises(InputError, match="whole model that finetune wrote"):
        load(str(broken))
    other = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
    other.save(tmp_path / "other.keras")
    with pytest.raises(InputError, match=r"wrote\. Arrived: Sequential"):
        load(str(tmp_path / "other.keras"))
