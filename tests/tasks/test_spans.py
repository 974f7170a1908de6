import dataclasses
import gzip
import itertools
import json
import math
import types

import numpy as np
import pytest

from electra_tf.config.finetuning import TaskModelConfig
from electra_tf.tasks.data.splits import Split
from electra_tf.tasks.data.squad_json import Question, read_squad
from electra_tf.tasks.question_task import QuestionTask
from electra_tf.tasks.score import ScoredSplit
from electra_tf.tasks.spans import Candidate, QAPrediction, decode_answers
from electra_tf.tasks.squad_metrics import normalize
from electra_tf.tasks.windows import make_features
from electra_tf.text.tokenizer import WordPieceTokenizer
from electra_tf.text.vocab import Vocabulary
from tests import tiny
from tests.conftest import GOLDEN

LONG = tiny.windows(512, 64, 128)
CONTEXT = "The leader was  John Smith (1895-1943)."


def question(context=CONTEXT):
    return Question("q", "who?", context)


def joint_outputs(*rows, null=None):
    """Return outputs of joint prediction.

    Each window has a row {start: (log-probability, {end: log-probability})}.
    """
    outputs = {
        "start_top_index_BS": [list(row) for row in rows],
        "start_top_log_probs_BS": [[p for p, _ in row.values()] for row in rows],
        "end_top_index_BSK": [[list(e) for _, e in row.values()] for row in rows],
        "end_top_log_probs_BSK": [
            [list(e.values()) for _, e in row.values()] for row in rows
        ],
    }
    outputs = {
        name: np.array(value, "int32" if "index" in name else "float32")
        for name, value in outputs.items()
    }
    null = np.array(null or [0.0] * len(rows), "float32")
    return outputs | {"answerable_logit_B": null}


def by_window(outputs):
    """Return the outputs of a batch of windows as one dictionary for each."""
    return [
        dict(zip(outputs, row, strict=True))
        for row in zip(*outputs.values(), strict=True)
    ]


def decode(tokenizer, row, context=CONTEXT, null=None, **settings):
    """Decode the spans of one window."""
    windows = make_features(question(context), tokenizer, LONG)
    outputs = by_window(joint_outputs(row, null=null))
    chosen = TaskModelConfig(**settings)
    return decode_answers(question(context), windows, outputs, tokenizer, chosen)


def position(window, tokenizer, context, text, last=False):
    """Return the position of the first or last wordpiece of a text in the context."""
    before = tokenizer.encode(context[: context.index(text)])
    start = window.document_start - window.first_piece + len(before)
    return start + len(tokenizer.encode(text)) - 1 if last else start


def test_best_spans_by_hand(tokenizer):
    (window,) = make_features(question(), tokenizer, LONG)
    where = (window, tokenizer, CONTEXT)
    john, smith = position(*where, "John"), position(*where, "Smith", last=True)
    first = position(*where, "1895")
    last = position(*where, "1895", last=True)
    row = {
        0: (-0.1, {0: -0.1, smith: -0.1}),  # no start
        john: (-1.0, {smith: -0.5, john - 1: -0.1}),  # the second ends too early
        first: (-2.0, {last: -0.25, 1: -0.1}),
        1: (-0.2, {smith: -0.2, last: -0.2}),  # within the question
        len(window.ids) - 1: (-0.3, {len(window.ids) - 1: -0.3, 90: -0.4}),  # [SEP]
    }
    decoded = decode(tokenizer, row, null=[1.5])
    assert decoded.text == "John Smith"
    assert decoded.null_odds == 1.5
    probability = 1 / (1 + math.exp(-0.75))
    expected = [
        ("John Smith", probability, -1.0, -0.5),
        ("1895", 1 - probability, -2.0, -0.25),
    ]
    assert [entry.text for entry in decoded.nbest] == [text for text, *_ in expected]
    for entry, (_, *numbers) in zip(decoded.nbest, expected, strict=True):
        actual = [entry.probability, entry.start_logit, entry.end_logit]
        np.testing.assert_allclose(actual, numbers, rtol=1e-6)


@pytest.mark.parametrize(
    ("context", "answer", "expected"),
    [
        (CONTEXT, "was  John Smith", "was John Smith"),  # single spaces
        (CONTEXT, "1895", "1895"),  # part of a word
        ("Steve Smith's", "Steve Smith", "Steve Smith"),
        ("the Caf\u00e9 (old)", "Caf\u00e9", "Caf\u00e9"),
    ],
)
def test_answer_keeps_the_spelling_of_the_context(tokenizer, context, answer, expected):
    (window,) = make_features(question(context), tokenizer, LONG)
    start = position(window, tokenizer, context, answer)
    end = position(window, tokenizer, context, answer, last=True)
    assert decode(tokenizer, {start: (-1.0, {end: -1.0})}, context).text == expected


PIECES = {  # each expected range is one wordpiece of the golden vocabulary
    "letters": ("a b", [(0, 1), (2, 3)]),
    "signs": ("(a).", [(0, 1), (1, 2), (2, 3), (3, 4)]),
    "capital": ("A", [(0, 1)]),
    "accents": ("\u00e9 e\u0301.", [(0, 1), (2, 4), (4, 5)]),
    "dropped character": ("a\u200bb", [(0, 3)]),
    "unknown ideographs": ("a \u4e00\u4e01 b", [(0, 1), (2, 3), (3, 4), (5, 6)]),
    "unknown word": ("a \u00df\u00df. b", [(0, 1), (2, 4), (4, 5), (6, 7)]),
    "sigma": ("\u03a3", [(0, 1)]),
}


@pytest.mark.parametrize(("text", "expected"), PIECES.values(), ids=PIECES)
def test_characters_of_each_wordpiece(tokenizer, text, expected):
    assert len(tokenizer.encode(text)) == len(expected)
    assert tokenizer.piece_offsets(text) == expected


def test_span_of_unknown_characters_keeps_their_exact_text(tokenizer):
    context = "x\u4e00\u4e01\u4e02\u200by"  # one word; U+200B is dropped
    (window,) = make_features(question(context), tokenizer, LONG)
    start = window.document_start + 2
    row = {start: (-1.0, {start + 1: -1.0})}
    assert decode(tokenizer, row, context).text == "\u4e01\u4e02"


@pytest.mark.parametrize(("longest", "text"), [(3, "d e f"), (2, "e f"), (1, "f")])
def test_max_answer_length(tokenizer, longest, text):
    context = "a b c d e f"
    (window,) = make_features(question(context), tokenizer, LONG)
    start = window.document_start
    row = {start + i: (-1.0 - i, {start + 5: -1.0, 0: -3.0}) for i in range(6)}
    decoded = decode(tokenizer, row, context, max_answer_length=longest)
    assert decoded.text == text
    assert len(decoded.nbest) == longest


def test_n_best_counts_each_text_once(tokenizer):
    context = "no yes no maybe"
    (window,) = make_features(question(context), tokenizer, LONG)
    spans = {}
    for text in ("no", "yes", "maybe"):
        start = position(window, tokenizer, context, text)
        spans[text] = start, start + len(tokenizer.encode(text)) - 1
    second = position(window, tokenizer, context, "no maybe")
    row = {
        spans["no"][0]: (-1.0, {spans["no"][1]: -1.0}),
        second: (-0.5, {second + len(tokenizer.encode("no")) - 1: -1.0}),
        spans["yes"][0]: (-2.0, {spans["yes"][1]: -1.0}),
        spans["maybe"][0]: (-3.0, {spans["maybe"][1]: -1.0}),
    }
    decoded = decode(tokenizer, row, context, n_best=2)
    assert [entry.text for entry in decoded.nbest] == ["no", "yes"]
    assert decoded.nbest[0].start_logit == -0.5  # the better of the two
    assert sum(entry.probability for entry in decoded.nbest) == pytest.approx(1)


def test_start_is_valid_only_in_its_max_context_window(tokenizer):
    context = " ".join("abcdefghijklmnopqrstuvwxyz") + " 0 1 2 3 4 5 6 7 8 9"
    settings = tiny.windows(24, 4, 8)
    windows = make_features(question(context), tokenizer, settings)
    assert len(windows) > 2
    for number, window in enumerate(windows):
        rows = [{0: (-9.0, {0: -9.0})} for _ in windows]
        for start in range(len(window.ids)):
            rows[number] = {start: (-1.0, {start: -1.0})}
            outputs = by_window(joint_outputs(*rows))
            decoded = decode_answers(question(context), windows, outputs, tokenizer)
            assert bool(decoded.text) == window.max_context[start]
            if decoded.text:
                assert decoded.text == context.split()[window.piece(start)]


def test_null_odds_are_the_minimum_over_windows(tokenizer):
    context = " ".join("abcdefghijklmnopqrstuvwxyz")
    settings = tiny.windows(24, 4, 8)
    windows = make_features(question(context), tokenizer, settings)
    null = [3.0, -2.5, 7.0][: len(windows)]
    rows = [{0: (-9.0, {0: -9.0})} for _ in windows]
    outputs = by_window(joint_outputs(*rows, null=null))
    decoded = decode_answers(question(context), windows, outputs, tokenizer)
    assert decoded == QAPrediction("", -2.5, ())  # no span is possible


def span_text(window, start, end, context, tokenizer):
    """Return a span's text in a context of ASCII letters, full stops and commas."""
    pieces = [tokenizer.vocabulary.tokens[i] for i in window.ids[start : end + 1]]
    text = " ".join(pieces).replace(" ##", "").replace("##", "")
    text = text.replace(" .", ".").replace(" ,", ",")
    offsets = tokenizer.piece_offsets(context)
    index = context.lower().index(text, offsets[window.piece(start)][0])
    return context[index : index + len(text)]


def test_decoding_of_the_originals_outputs(tokenizer):
    golden = np.load(GOLDEN / "squad_predict.npz")
    context = json.loads(str(golden["info_json"]))["context"]
    one = Question("q", "What can the user change?", context, (), True)
    windows = make_features(one, tokenizer, tiny.windows(48, 10, 16))
    np.testing.assert_array_equal(windows[0].ids, golden["feat/input_ids"][2])
    rows = slice(2, 4)  # the two windows of this question
    outputs = {
        "start_top_index_BS": golden["out/squad/start_top_index"][rows],
        "start_top_log_probs_BS": golden["out/squad/start_top_log_probs"][rows],
        "end_top_index_BSK": golden["out/squad/end_top_index"][rows],
        "end_top_log_probs_BSK": golden["out/squad/end_top_log_probs"][rows],
        "answerable_logit_B": golden["out/squad/answerable_logit"][rows],
    }
    decoded = decode_answers(one, windows, by_window(outputs), tokenizer)
    spans = []
    for w, s, k in itertools.product(range(2), range(5), range(5)):
        start = int(outputs["start_top_index_BS"][w, s])
        end = int(outputs["end_top_index_BSK"][w, s, k])
        first = windows[w].segments.index(1)
        if first <= start <= end < min(start + 30, len(windows[w].ids) - 1):
            if not windows[w].max_context[start]:
                continue
            score = outputs["start_top_log_probs_BS"][w, s]
            score += outputs["end_top_log_probs_BSK"][w, s, k]
            spans.append(
                (-score, span_text(windows[w], start, end, context, tokenizer))
            )
    spans.sort(key=lambda span: span[0])
    expected = {}
    for score, text in spans:
        expected.setdefault(text, score)
    assert 5 < len(expected) <= len(spans)
    assert [entry.text for entry in decoded.nbest] == list(expected)[:20]
    scores = [-(entry.start_logit + entry.end_logit) for entry in decoded.nbest]
    np.testing.assert_allclose(scores, list(expected.values())[:20], rtol=1e-6)
    assert decoded.null_odds == outputs["answerable_logit_B"].min()
    probabilities = np.exp(np.negative(scores))
    probabilities /= probabilities.sum()
    np.testing.assert_allclose(
        [e.probability for e in decoded.nbest], probabilities, rtol=1e-6
    )


def test_decoding_without_joint_prediction(tokenizer):
    (window,) = windows = make_features(question(), tokenizer, LONG)
    where = (window, tokenizer, CONTEXT)
    john, smith = position(*where, "John"), position(*where, "Smith", last=True)
    length = len(window.ids) + 5  # with padding
    start_L, end_L = np.full((2, length), -5.0, "float32")
    start_L[[0, john, smith]] = 2.0, 3.0, 1.0
    end_L[[0, smith]] = 0.5, 4.0
    outputs = [{"start_logits_BL": start_L, "end_logits_BL": end_L}]
    decoded = decode_answers(question(), windows, outputs, tokenizer)
    assert decoded.text == "John Smith"
    assert decoded.null_odds == (2.0 + 0.5) - (3.0 + 4.0)
    assert (decoded.nbest[0].start_logit, decoded.nbest[0].end_logit) == (3.0, 4.0)
    single = TaskModelConfig(n_best=1)
    one = decode_answers(question(), windows, outputs, tokenizer, single)
    assert [entry.text for entry in one.nbest] == ["John Smith"]
    start_L[0] = 9.0  # of one start and one end that are tried, the start is no word's
    none = decode_answers(question(), windows, outputs, tokenizer, single)
    assert none == QAPrediction("", 9.5, ())


def test_null_odds_of_joint_prediction_without_answerability(tokenizer):
    (window,) = windows = make_features(question(), tokenizer, LONG)
    start = position(window, tokenizer, CONTEXT, "John")
    (output,) = by_window(joint_outputs({start: (-1.0, {start: -0.5})}))
    del output["answerable_logit_B"]
    output["start_logits_BL"] = np.log(np.array([0.25, 0.5, 0.25])) + 7.0
    decoded = decode_answers(question(), windows, [output], tokenizer)
    assert decoded.null_odds == pytest.approx(math.log(0.25) + 1.5)


@pytest.mark.parametrize(
    ("file", "vocabulary"),
    [
        ("squad/dev-v2.0.exact20.json.gz", "bert_uncased_en.txt"),
        ("zh/cmrc2018/cmrc2018_trial.json.gz", "bert_chinese.txt"),
    ],
)
def test_gold_spans_of_public_files_decode_to_gold_answers(
    data, tmp_path, file, vocabulary
):
    tokenizer = WordPieceTokenizer(Vocabulary.read(data / "vocab" / vocabulary))
    tree = json.loads(gzip.decompress((data / file).read_bytes()))
    for article in tree["data"]:
        for part in article["paragraphs"]:  # a question of CMRC 2018 is blank
            part["qas"] = [qa for qa in part["qas"] if qa["question"]]
    (tmp_path / "squad.json").write_text(json.dumps(tree))
    questions = [q for q in read_squad(tmp_path / "squad.json") if q.trainable]
    questions = [item for item in questions if not item.impossible][::20]
    settings = TaskModelConfig(max_answer_length=512)
    for item in questions:
        windows = make_features(item, tokenizer, LONG, training=True)
        outputs = joint_outputs(*({w.start: (-1.0, {w.end: -1.0})} for w in windows))
        found = by_window(outputs)
        decoded = decode_answers(item, windows, found, tokenizer, settings)
        assert normalize(decoded.text) == normalize(item.located[0].text)
    assert len(questions) > 40


def test_predictions_are_written_to_a_folder(tmp_path):
    nbest = (Candidate("\u4e00 b", 0.75, -1.0, -0.5), Candidate("b", 0.25, -2.0, -0.6))
    best = QAPrediction("\u4e00 b", -2.75, nbest), QAPrediction("yes", -2.7, ())
    split = Split([dataclasses.replace(question(), id=name) for name in "xy"], None)
    model, folder = types.SimpleNamespace(null_threshold=-2.75), tmp_path / "a" / "b"
    scored = ScoredSplit(QuestionTask(), model, split, best, ())
    scored.task.write(scored, str(folder))

    def read(name):
        return json.loads((folder / f"{name}.json").read_text())

    assert read("predictions") == {"x": "\u4e00 b", "y": ""}
    assert read("null_odds") == {"x": -2.75, "y": -2.7}
    keys = ("text", "probability", "start_logit", "end_logit")
    rows = (("\u4e00 b", 0.75, -1.0, -0.5), ("b", 0.25, -2.0, -0.6))
    expected = [dict(zip(keys, row, strict=True)) for row in rows]
    assert read("nbest") == {"x": expected, "y": []}
    model.null_threshold = None
    scored.task.write(scored, str(folder))
    assert read("predictions") == {"x": "\u4e00 b", "y": "yes"}
