"""Served answers, tags and entities of random texts equal those of the Keras models."""

import random
import re

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.serving.export_options import RequestLimits
from electra_tf.serving.served_tasks import task_export
from electra_tf.serving.text_graph import split_words
from electra_tf.tasks.question_answerer import QuestionAnswerer
from electra_tf.tasks.token_classifier import TokenClassifier
from tests import tiny
from tests.serving.exports import call, exported, with_noise

WORDS = (
    *(
        "the",
        "file,",
        "configuration",
        "(ΟΔΟΣ)",
        "中文",
        "cafe\u0301",
        "\u0301",
        "e.g.",
    ),
    *("\xa0", "of\t", " \r\n", "\u202f", "\u3000x", "\u200b", "İß", "[UNK]", "\0"),
    *("q" * 201, "unaffable" * 3, "\x1c", "\x85", "x"),
)


def texts(count, longest, seed=0):
    """Return random texts; some repeat a few words, so that windows are equal."""
    rng = random.Random(seed)
    rows = [rng.choices(WORDS, k=rng.randint(0, longest)) for _ in range(count)]
    rows += [["the", "file,", "of"] * longest, ["\u200b"], [" \t"], []]
    return [" ".join(row) for row in rows]


@pytest.mark.filterwarnings("ignore:.*inputs were cut")
@pytest.mark.parametrize(
    ("length", "query", "stride", "joint", "answerable"),
    [
        (8, 4, 3, True, True),  # room for one wordpiece
        (24, 4, 2, True, False),  # overlap
        (20, 6, 100, False, True),  # a stride greater than the room
        (512, 64, 128, False, False),  # one window
    ],
)
def test_answers_equal_those_of_predict(length, query, stride, joint, answerable):
    settings = tiny.settings(
        data_max_length=length, data_max_query_length=query, data_doc_stride=stride,
        model_joint_prediction=joint, model_answerable=answerable,
        model_start_n_top=5, model_n_best=4, model_max_answer_length=6,
    )  # fmt: skip
    model = with_noise(QuestionAnswerer(tiny.start(length), None, settings))
    rows = list(zip(texts(20, 9), texts(20, 40, seed=1), strict=True))
    found = model.predict_nbest(rows)
    # Half of the answers are empty, those of questions without a span among them.
    model.set_decision(float(np.median([one.null_odds for one in found])) + 1e-4)
    served = task_export(model)
    outputs = call(served.text["serving_default"], served.request(rows))
    answers = model.predict(rows)
    assert [answer.decode() for answer in outputs["answer"]] == answers
    assert 5 < answers.count("") < len(answers) - 5
    odds = [one.null_odds for one in found]
    np.testing.assert_allclose(outputs["null_odds"], odds, atol=1e-5)
    for n, ((question, context), one) in enumerate(zip(rows, found, strict=True)):
        best = next((c for c in one.nbest if c.text), None)
        score = best.start_logit + best.end_logit if best else -1e30
        assert outputs["score"][n] == pytest.approx(score, abs=1e-5)
        start, end = (outputs[name][n] for name in ("start", "end"))
        text = re.sub("[ \t\r\n\u202f]+", " ", context[max(0, start) : max(0, end)])
        assert (text, start >= 0) == (answers[n], answers[n] != "")
        cut = len(model.tokenizer.encode(question)) - model.settings.data.query_limit
        assert outputs["pieces_cut"][n] == max(0, cut)


def test_equal_scores_are_decided_as_by_predict():
    model = QuestionAnswerer(tiny.start(), None, tiny.settings(data_max_length=16))
    for weight in model.head.weights:
        weight.assign(tf.zeros_like(weight))
    served, rows = task_export(model), [("of", text) for text in texts(20, 40)]
    outputs = call(served.text["serving_default"], served.request(rows))
    assert [answer.decode() for answer in outputs["answer"]] == model.predict(rows)


TAGS = ("O", *(f"{mark}-{kind}" for kind in ("B", "x-y", "é") for mark in "BIES"))


@pytest.mark.parametrize(
    ("tags", "scheme", "length", "segment"),
    [
        (TAGS, "BIOES", 8, 0),
        pytest.param(TAGS, "IOB1", 128, 1, marks=pytest.mark.runs),
        (TAGS, "IOB2", 16, 1),
        pytest.param(TAGS, "IOE1", 16, 0, marks=pytest.mark.runs),
        pytest.param(TAGS, "IOE2", 16, 0, marks=pytest.mark.runs),
        (("A", "B"), "BIOES", 128, 0),
    ],
)
@pytest.mark.filterwarnings("ignore:.*inputs were cut")
def test_tags_and_entities_equal_those_of_the_model(tags, scheme, length, segment):
    settings = tiny.settings(data_max_length=length, data_tagging_segment=segment)
    model = TokenClassifier(tiny.start(128), tags, settings, scheme=scheme)
    served, rows = task_export(with_noise(model)), texts(40, 25)
    outputs = call(served.text["serving_default"], served.request(rows))
    split = [text.split() for text in rows]
    for name, expected in (("words", split), ("labels", model.predict(split))):
        found = [[one.decode() for one in row if one] for row in outputs[name]]
        assert found == expected
    assert len({*outputs["labels"].ravel()}) > 2
    outputs = call(served.text["entities"], served.request(rows))
    for n, expected in enumerate(model.entities(rows)):
        assert outputs["count"][n] == len(expected)
        fields = (
            (outputs[f"{field}s"][n] for field in expected[0]._fields)
            if expected
            else ()
        )
        for one, *values, score in zip(expected, *fields, strict=False):
            decoded = [v.decode() if isinstance(v, bytes) else v for v in values]
            assert (*decoded, pytest.approx(score, abs=1e-5)) == tuple(one)
        assert {*outputs["starts"][n, len(expected) :]} <= {-1}
        assert {*outputs["types"][n, len(expected) :]} <= {b""}


def test_split_words_equals_str_split_at_every_code_point():
    codes = (code for code in range(0x110000) if not 0xD800 <= code < 0xE000)
    text = "a".join(chr(c) for c in codes if c < 0x3100 or c % 64 == 0 or c > 0xFFF00)
    cases = [text, "", " ", "\0a \0 b", "\u3000a\x1f"]
    split = split_words(tf.constant(cases)).to_list()
    assert [[w.decode() for w in words] for words in split] == [
        case.split() for case in cases
    ]
    assert len(split[0]) == 30  # there are 29 white space characters


@pytest.mark.parametrize("kind", ["classifier", "tagger", "answerer"])
def test_invalid_bytes_of_utf8_are_dropped(kind):
    function = exported(kind).text["serving_default"]
    clean, bad = b"a of\0 in", b"a \xe2\x80of\0 in\xf0\x9f \xc0\xaf"
    both = [
        call(function, {spec.name: [text] for spec in function.input_signature})
        for text in (clean + b" ", bad)
    ]
    for name, array in both[0].items():
        np.testing.assert_array_equal(array, both[1][name], name)


@pytest.mark.parametrize(
    ("kind", "few", "many", "received"),
    [
        ("classifier", ["the " * 40] * 25, ["the " * 40] * 26, "[26] [32]"),
        ("tagger", ["the"] * 200, ["the " * 30] * 26, "[26] [32]"),
        # A long sentence has several parts, and a long context several windows.
        ("tagger", ["the " * 30 * 25], ["the " * 30 * 26], "[26] [32]"),
        ("answerer", ["the " * (29 + 24 * 8)], ["the " * (29 + 25 * 8)], "[26] [32]"),
    ],
)
def test_positions_are_limited_before_they_are_computed(kind, few, many, received):
    served = task_export(exported(kind).model, limits=RequestLimits(positions=800))
    for texts_, is_allowed in ((few, True), (many, False)):
        rows = [("", one) for one in texts_] if kind == "answerer" else texts_
        request = served.request(rows)
        if is_allowed:
            call(served.text["serving_default"], request)
            continue
        with pytest.raises(tf.errors.InvalidArgumentError) as error:
            call(served.text["serving_default"], request)
        assert "at most 800 positions" in str(error.value)
        assert received in str(error.value)


def test_a_too_large_response_of_words_is_an_error():
    words = exported("tagger").text["serving_default"]
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"\[2001\] \[8000\]"):
        words(tf.constant([""] * 2000 + ["the " * 8000]))
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"\[4096\] \[524288\]"):
        words(tf.constant([""] * 4095 + ["x " * 2**19]))  # 2^31 words
