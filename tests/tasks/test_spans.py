"""Windows of a context, their targets, and the answers decoded from their spans."""

import gzip
import itertools
import json
import math
import tracemalloc

import numpy as np
import pytest

from electra_tf.config.data import TokenizationConfig
from electra_tf.config.finetuning import TaskModelConfig
from electra_tf.errors import InputError
from electra_tf.tasks.data.squad_json import Answer, Question, read_squad
from electra_tf.tasks.spans import QAPrediction, decode_answers
from electra_tf.tasks.squad_metrics import normalize
from electra_tf.tasks.windows import make_features, split_words
from electra_tf.text.tokenizer import WordPieceTokenizer
from electra_tf.text.vocab import Vocabulary
from tests import tiny
from tests.conftest import GOLDEN

SMALL, LONG = tiny.windows(48, 10, 16), tiny.windows(512, 64, 128)
CONTEXT = "The leader was  John Smith (1895-1943)."
ASKED = (  # questions and answers of tests/golden/squad_train.npz
    ("What does the program read?", "configuration file"),
    ("What can the user change?", "the default value"),
    ("Who wrote the license?", None),
)


def question(context=CONTEXT, *texts, asked="what?", at=None):
    """Return a question with answers at their first occurrence, or at index `at`."""
    answers = tuple(Answer(t, context.index(t) if at is None else at) for t in texts)
    return Question("q", asked, context, answers, not texts)


@pytest.fixture(scope="module")
def golden():
    return np.load(GOLDEN / "squad_train.npz")


def originals(golden):
    context = json.loads(str(golden["info_json"]))["context"]
    for asked, text in ASKED:
        texts = () if text is None else (text,)
        yield question(context, *texts, asked=asked)


@pytest.mark.parametrize("labels", ["exact", "original"])
def test_features_equal_the_originals(tokenizer, golden, labels):
    settings = tiny.windows(48, 10, 16, labels)
    windows = [
        window
        for one in originals(golden)
        for window in make_features(one, tokenizer, settings, training=True)
    ]
    length = golden["feat/input_ids"].shape[1]
    for name, row in (("input_ids", "ids"), ("segment_ids", "segments")):
        rows = [getattr(w, row) + [0] * (length - len(w.ids)) for w in windows]
        np.testing.assert_array_equal(rows, golden[f"feat/{name}"])
    np.testing.assert_array_equal(
        [len(w.ids) for w in windows], golden["feat/input_mask"].sum(1)
    )
    for name in ("start", "end"):
        expected = golden[f"feat/squad_{name}_positions"]
        np.testing.assert_array_equal([getattr(w, name) for w in windows], expected)
    impossible = golden["feat/squad_is_impossible"].tolist()
    assert impossible == [0, 0, 0, 0, 1, 1]
    if labels == "exact":
        impossible[1] = 1  # this window lacks the answer that the first one has
    assert [w.impossible for w in windows] == impossible
    assert [w.query_truncated for w in windows] == [False] * 4 + [True] * 2


def test_split_words_at_the_originals_five_spaces():
    text = "a\tb\rc\nd e\u202ff\u00a0g  h"
    words = [text[slice(*word)] for word in split_words(text)]
    assert words == ["a", "b", "c", "d", "e", "f\u00a0g", "h"]


def test_windows_overlap_and_align_with_the_context(tokenizer):
    context = " ".join(f"word{i}," for i in range(60))
    one = question(context, "word40")
    windows = make_features(one, tokenizer, SMALL)
    pieces = [tokenizer.encode(word) for word in context.split(" ")]
    flat = [piece for word in pieces for piece in word]
    query = tokenizer.encode("what?")
    room = 48 - len(query) - 3
    cls, sep = (tokenizer.vocabulary.ids[name] for name in ("[CLS]", "[SEP]"))
    for number, window in enumerate(windows):
        first = 16 * number
        shown = flat[first : first + room]
        assert window.ids == [cls, *query, sep, *shown, sep]
        assert window.segments == [0] * (len(query) + 2) + [1] * (len(shown) + 1)
        indices = [window.piece(position) for position in range(len(window.ids) + 1)]
        outside = [None] * (len(query) + 2)
        expected = [*outside, *range(first, first + len(shown)), None, None]
        assert indices == expected
        assert (window.start, window.end, window.impossible) == (0, 0, 0)
    assert windows[-1].piece(len(windows[-1].ids) - 2) == len(flat) - 1
    assert len(windows) == 1 + -(-(len(flat) - room) // 16)


@pytest.mark.parametrize(
    ("settings", "count"),
    [(SMALL, 100), (tiny.windows(48, 10, 15), 100), (tiny.windows(300, 10, 128), 430)],
)
def test_max_context_window_of_each_wordpiece(tokenizer, settings, count):
    context = " ".join("a" for _ in range(count))
    windows = make_features(question(context), tokenizer, settings)
    parts = [(w.first_piece, len(w.ids) - w.document_start - 1) for w in windows]
    tied = 0
    for piece in range(count):
        scores = [
            round(100 * min(piece - first, first + length - 1 - piece)) + length
            for first, length in parts
        ]
        best = scores.index(max(scores))
        tied += scores.count(max(scores)) > 1
        for number, window in enumerate(windows):
            position = piece - window.first_piece + window.document_start
            if window.piece(position) == piece:
                assert window.max_context[position] == (number == best)
    assert sum(sum(w.max_context) for w in windows) == count
    assert all(len(w.max_context) == len(w.ids) for w in windows)
    assert bool(tied) == (settings.doc_stride == 15)  # there, of equals the first


def test_windows_of_a_long_context_take_time_and_memory_of_its_length(tokenizer):
    context = "a " * 20_000
    tracemalloc.start()
    windows = make_features(question(context), tokenizer, SMALL)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert sum(sum(w.max_context) for w in windows) == 20_000
    assert peak < 20_000 * len(windows)  # bytes; a table of all scores takes more


def test_answer_is_target_of_each_window_with_it(tokenizer):
    context = " ".join("a" for _ in range(100))
    for piece in range(100):
        one = question(context, "a", at=2 * piece)
        for window in make_features(one, tokenizer, SMALL, training=True):
            place = piece - window.first_piece + window.document_start
            inside = window.piece(place) == piece
            expected = (place, place, 0) if inside else (0, 0, 1)
            assert (window.start, window.end, window.impossible) == expected


def training_target(one, tokenizer):
    """Return the only window of a question, and the text of its target."""
    (window,) = make_features(one, tokenizer, LONG, training=True)
    assert not window.impossible
    ids = window.ids[window.start : window.end + 1]
    pieces = " ".join(tokenizer.vocabulary.tokens[i] for i in ids)
    return window, pieces.replace(" ##", "")


LEADER = "The leader was John Smith (1895-1943)."


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("1895", "1895"),
        ("1943", "1943"),
        ("John Smith", "john smith"),
        (" John ", "john"),
        ("ead", "leader"),  # not a run of wordpieces of its word
    ],
)
def test_target_is_the_answers_own_wordpieces(tokenizer, text, target):
    assert training_target(question(LEADER, text), tokenizer)[1] == target


def test_target_of_repeated_wordpieces_is_at_the_offset(tokenizer):
    context = "see no-yes-no-yes-no now"
    places = [context.index("no"), context.index("no-yes-no-yes") + 7, 18]
    assert [context[p : p + 2] for p in places] == ["no"] * 3
    found = []
    for place in places:
        window, text = training_target(question(context, "no", at=place), tokenizer)
        assert text == "no"
        found.append(window.start - window.document_start)
    first = len(tokenizer.encode("see"))
    step = len(tokenizer.encode("no-yes-"))
    assert found == [first, first + step, first + 2 * step]


def test_target_is_the_first_answer_with_a_right_offset(tokenizer):
    one = question("no yes maybe", "yes")
    answers = (Answer("no", -1), Answer("yes", 7), Answer("yes", 3), Answer("no", 0))
    one = Question("q", "w", one.context, answers)
    assert training_target(one, tokenizer)[1] == "yes"


def test_answer_longer_than_a_window_is_in_none(tokenizer):
    context = " ".join("a" for _ in range(100))
    whole = question(context, "a " * 49 + "a")
    windows = make_features(whole, tokenizer, SMALL, training=True)
    assert [(w.start, w.end, w.impossible) for w in windows] == [(0, 0, 1)] * len(
        windows
    )


def test_training_requires_an_answer_in_the_context(tokenizer):
    lost = Question("q7", "w", "no", (Answer("yes", 0),), False, "", "dev.json")
    with pytest.raises(InputError, match=r"dev\.json, question q7"):
        make_features(lost, tokenizer, LONG, training=True)
    assert len(make_features(lost, tokenizer, LONG)) == 1


def test_context_without_wordpieces_is_one_window(tokenizer):
    (window,) = make_features(question("\u200b"), tokenizer, LONG, training=True)
    assert (len(window.ids), window.impossible) == (
        3 + len(tokenizer.encode("what?")),
        1,
    )
    assert not any(window.max_context)


def test_target_is_case_sensitive_with_a_cased_tokenizer(vocabulary):
    cased = WordPieceTokenizer(vocabulary, TokenizationConfig(lower_case=False))
    one = question("the File is a file", "file")
    window, text = training_target(one, cased)
    assert text == "file"
    assert window.start - window.document_start == len(cased.encode("the File is a"))


# Decoding.


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
