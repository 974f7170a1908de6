"""Compare answers decoded in a graph with those of `decoding.py`."""

import re

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config.finetuning import TaskModelConfig
from electra_tf.serving.spans_graph import GraphWindows, graph_answers
from electra_tf.tasks.data.squad_json import Question
from electra_tf.tasks.spans import decode_answers
from electra_tf.tasks.windows import make_features
from electra_tf.text.tokenizer import WordPieceTokenizer
from tests import tiny
from tests.serving.test_windows_graph import columns, pairs

RULE = tiny.windows(16, 5, 4)
DECODING = TaskModelConfig(n_best=4, max_answer_length=6)


@pytest.fixture(scope="module")
def tokenizer(vocabulary):
    return WordPieceTokenizer(vocabulary)


@pytest.fixture(scope="module")
def encoded(tokenizer):
    """Return questions, their windows, and inputs and alignment of the graph."""
    rows = pairs(60)
    questions = [Question("", *row) for row in rows]
    windows = [make_features(question, tokenizer, RULE) for question in questions]
    inputs, alignment = GraphWindows(tokenizer, RULE)(*columns(rows))
    return questions, windows, inputs, alignment


def head_outputs(inputs, joint, answerable, seed):
    """Return random outputs of a head; integers, so that many scores are equal."""
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
def test_answers_equal_those_of_decode_answers(tokenizer, encoded, joint, answerable):
    questions, windows, inputs, alignment = encoded
    row_P = alignment.row_P.numpy()
    empty = several = 0
    for seed in range(3):
        outputs = head_outputs(inputs, joint, answerable, seed)
        tensors = {name: tf.constant(array) for name, array in outputs.items()}
        answers = {
            name: array.numpy()
            for name, array in graph_answers(tensors, alignment, DECODING, None).items()
        }
        threshold = float(np.median(answers["null_odds"]))
        thresholded = graph_answers(tensors, alignment, DECODING, threshold)
        for n, question in enumerate(questions):
            rows = [
                {name: array[row] for name, array in outputs.items()}
                for row in np.flatnonzero(row_P == n)
            ]
            expected = decode_answers(question, windows[n], rows, tokenizer, DECODING)
            assert answers["answer"][n].decode() == expected.text
            assert answers["null_odds"][n] == pytest.approx(
                expected.null_odds, rel=1e-6
            )
            text = expected.answer_text(threshold)
            if abs(expected.null_odds - threshold) > 1e-6 or answerable:
                assert thresholded["answer"].numpy()[n].decode() == text
            assert (thresholded["start"].numpy()[n] >= 0) == bool(
                thresholded["answer"][n]
            )
            start, end = (int(answers[name][n]) for name in ("start", "end"))
            if not expected.nbest:
                assert (start, end, answers["score"][n]) == (-1, -1, np.float32(-1e30))
                empty += 1
                continue
            best = expected.nbest[0]
            assert answers["score"][n] == best.start_logit + best.end_logit
            text = re.sub("[ \t\r\n\u202f]+", " ", question.context[start:end])
            assert text == expected.text
            several += len(windows[n]) > 1
    assert empty > 10
    assert several > 60
