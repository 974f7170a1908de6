"""Answers in the graph are those of the answerer."""

import gzip
import json
import random
import re

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.errors import InputError
from electra_tf.tasks.squad.decoding import DecodingConfig, decode_answers
from electra_tf.tasks.squad.decoding_graph import GraphAnswers
from electra_tf.tasks.squad.model import QuestionAnswerer
from electra_tf.tasks.squad.preprocessing import QAFeatureConfig, make_features
from electra_tf.tasks.squad.preprocessing_graph import GraphWindows
from electra_tf.tasks.squad.reader import Question
from electra_tf.text.tokenizer import Tokenizer
from tasks import tiny
from tasks.squad.test_preprocessing_graph import columns, pairs

RULE = QAFeatureConfig(16, 5, 4)
DECODING = DecodingConfig(n_best=4, max_answer_length=6)


@pytest.fixture(scope="module")
def tokenizer(vocabulary):
    return Tokenizer(vocabulary)


@pytest.fixture(scope="module")
def packed(tokenizer):
    """Rows, their windows, the graph's inputs and book."""
    rows = pairs(60)
    questions = [Question("", *row, (), False, "", "test", 0) for row in rows]
    cut = [make_features(question, tokenizer, RULE) for question in questions]
    inputs, book = GraphWindows(tokenizer, RULE)(*columns(rows))
    return questions, cut, inputs, book


def said(inputs, joint, answerable, seed):
    """What a head may say, in whole numbers so that many scores are equal."""
    draw = np.random.default_rng(seed)
    inside_PL = (inputs["segment_ids"].numpy() == 1) | (np.arange(16) == 0)
    outside_PL = np.where(inside_PL, 0, -1000).astype(np.float32)
    start_PL = draw.integers(0, 4, inside_PL.shape).astype(np.float32) + outside_PL
    outputs = {"start_logits_BL": start_PL}
    if answerable:
        logits_P = draw.integers(-3, 4, len(start_PL)).astype(np.float32)
        outputs["answerable_logit_B"] = logits_P
    if not joint:
        logits_PL = draw.integers(0, 4, inside_PL.shape).astype(np.float32)
        return outputs | {"end_logits_BL": logits_PL + outside_PL}
    top_PS, index_PS = tf.math.top_k(start_PL, 5)
    shape = (len(start_PL), 5, 16)
    end_PSL = draw.integers(-3, 1, shape).astype(np.float32) + outside_PL[:, None]
    end_PSK, index_PSK = tf.math.top_k(end_PSL, 5)
    return outputs | {
        "start_top_log_probs_BS": top_PS.numpy(),
        "start_top_index_BS": index_PS.numpy(),
        "end_top_log_probs_BSK": end_PSK.numpy(),
        "end_top_index_BSK": index_PSK.numpy(),
    }


@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize("answerable", [True, False])
def test_answers_equal_those_of_the_answerer(tokenizer, packed, joint, answerable):
    questions, cut, inputs, book = packed
    row_P = book.row_P.numpy()
    graph = GraphAnswers(DECODING)
    empty = several = 0
    for seed in range(3):
        outputs = said(inputs, joint, answerable, seed)
        tensors = {name: tf.constant(array) for name, array in outputs.items()}
        found = {
            name: array.numpy() for name, array in graph(tensors, book, None).items()
        }
        threshold = float(np.median(found["null_odds"]))
        decided = graph(tensors, book, threshold)
        for n, question in enumerate(questions):
            own = {name: array[row_P == n] for name, array in outputs.items()}
            wanted = decode_answers(question, cut[n], own, tokenizer, DECODING)
            assert found["answer"][n].decode() == wanted.text
            assert found["null_odds"][n] == pytest.approx(wanted.null_odds, rel=1e-6)
            told = wanted.decided(threshold)
            if abs(wanted.null_odds - threshold) > 1e-6 or answerable:
                assert decided["answer"].numpy()[n].decode() == told
            assert (decided["start"].numpy()[n] >= 0) == bool(decided["answer"][n])
            first, beyond = (int(found[name][n]) for name in ("start", "end"))
            if not wanted.nbest:
                assert (first, beyond, found["score"][n]) == (-1, -1, np.float32(-1e30))
                empty += 1
                continue
            best = wanted.nbest[0]
            assert found["score"][n] == best.start_logit + best.end_logit
            text = re.sub("[ \t\r\n\u202f]+", " ", question.context[first:beyond])
            assert text == wanted.text
            several += len(cut[n]) > 1
    assert empty > 10
    assert several > 60


def test_by_hand(tokenizer):
    rows = [["of", "the \t of, (CAFE\u0301)\u202fin"], ["of", "and"], ["of", ""]]
    inputs, book = GraphWindows(tokenizer, QAFeatureConfig(32, 8, 16))(*columns(rows))
    start_PL, end_PL = np.full((2, 3, inputs["token_ids"].shape[1]), -9, np.float32)
    tokens = [tokenizer.vocabulary.tokens[i] for i in inputs["token_ids"].numpy()[0]]
    start_PL[0, tokens.index("the")] = 2
    end_PL[0, tokens.index(")")] = 1.5
    start_PL[:, 0], end_PL[:, 0] = 4, [-1.5, 5, 1]  # the best, but no answer
    start_PL[1, 3], end_PL[1, 3] = 1, 1
    outputs = {"start_logits_BL": start_PL, "end_logits_BL": end_PL}
    outputs = {name: tf.constant(array) for name, array in outputs.items()}
    found = GraphAnswers()(outputs, book, 0.0)
    texts = [text.decode() for text in found["answer"].numpy()]
    assert texts == ["the of, (CAFE\u0301)", "", ""]
    assert found["start"].numpy().tolist() == [0, -1, -1]
    assert found["end"].numpy().tolist() == [17, -1, -1]
    np.testing.assert_array_equal(found["score"], np.float32([3.5, 2, -1e30]))
    np.testing.assert_array_equal(found["null_odds"], [-1, 7, 5])
    short = GraphAnswers(DecodingConfig(max_answer_length=3))(outputs, book, None)
    assert short["answer"].numpy()[1] == b"and"
    assert short["score"].numpy()[0] < 0  # that answer has too many pieces


def model_of(**changes):
    changes = {"data_max_length": 24, "data_doc_stride": 7, "model_beam": 5, **changes}
    settings = tiny.settings(data_max_query_length=8, **changes, **tiny.NO_DROPOUT)
    return QuestionAnswerer(tiny.start(), None, settings)


def serving(model):
    """What a signature does: strings and a threshold in, answers out."""
    data, own = model.settings.data, model.settings.model
    rule = QAFeatureConfig(data.max_length, data.max_query_length, data.doc_stride)
    cut = GraphWindows(model.tokenizer, rule)
    decode = GraphAnswers(DecodingConfig(own.n_best, own.max_answer_length))
    texts, number = tf.TensorSpec([None], tf.string), tf.TensorSpec([], tf.float64)

    @tf.function(input_signature=[texts, texts, number])
    def serve(question_B, context_B, threshold):
        inputs, book = cut(question_B, context_B)
        return decode(model(inputs), book, threshold)

    return serve


def compare(model, serve, rows):
    """Answers at both thresholds; returns those without any threshold."""
    wanted = model.answered(rows)
    threshold = float(np.median([one.null_odds for one in wanted])) + 1e-5
    for bound in (np.inf, threshold):
        found = serve(*columns(rows), bound)["answer"].numpy()
        said = [text.decode() for text in found]
        assert said == [one.decided(bound) for one in wanted]
    assert 0 < said.count("") < len(rows)
    return [one.text for one in wanted]


@pytest.fixture(scope="module", params=[(True, True), (False, False)])
def both(request):
    joint, answerable = request.param
    model = model_of(model_joint=joint, model_answerable=answerable)
    return model, serving(model)


def test_a_served_model_says_what_predict_says(both):
    model, serve = both
    texts = compare(model, serve, pairs(40, seed=1))
    assert len(set(texts)) > 20
    empty = serve(tf.constant([], tf.string), tf.constant([], tf.string), 0.0)
    assert all(array.shape == (0,) for array in empty.values())


def test_real_questions(both, data):
    model, serve = both
    for name in ("squad/dev-v2.0.exact20.json.gz", "zh/cmrc2018/cmrc2018_dev.json.gz"):
        articles = json.loads(gzip.decompress((data / name).read_bytes()))["data"]
        paragraphs = [p for article in articles for p in article["paragraphs"]]
        rows = [
            [random.Random(0).choice(p["qas"])["question"], p["context"]]
            for p in random.Random(1).sample(paragraphs, 4)
        ]
        assert all(compare(model, serve, rows))


def test_only_what_stock_serving_has_is_in_the_graph(tokenizer):
    cut, decode = GraphWindows(tokenizer, RULE), GraphAnswers(DECODING)
    texts = tf.TensorSpec([None], tf.string)

    @tf.function(input_signature=[texts, texts])
    def serve(question_B, context_B):
        inputs, book = cut(question_B, context_B)
        logits_PL = tf.cast(inputs["token_ids"], tf.float32)
        outputs = {"start_logits_BL": logits_PL, "end_logits_BL": logits_PL}
        return decode(outputs, book, None)

    definition = serve.get_concrete_function().graph.as_graph_def()
    operations = {node.op for node in definition.node}
    operations |= {n.op for f in definition.library.function for n in f.node_def}
    known = set(tf.raw_ops.__dict__) | {"_Arg", "_Retval"}
    assert operations - known == {"WordpieceTokenizeWithOffsets"}
    assert not {"PyFunc", "EagerPyFunc", "While", "StringLower"} & operations


def test_text_as_the_original_writes_it_is_refused():
    with pytest.raises(InputError, match="text='original'"):
        GraphAnswers(DecodingConfig(text="original"))
