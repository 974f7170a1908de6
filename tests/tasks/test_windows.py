import json

import numpy as np
import pytest

from electra_tf.config.data import TokenizationConfig
from electra_tf.errors import InputError
from electra_tf.tasks.data.squad_json import Answer, Question
from electra_tf.tasks.windows import make_features, split_words
from electra_tf.text.tokenizer import WordPieceTokenizer
from tests import tiny
from tests.conftest import GOLDEN

SMALL, LONG = tiny.windows(48, 10, 16), tiny.windows(512, 64, 128)
ASKED = (  # questions and answers of tests/golden/squad_train.npz
    ("What does the program read?", "configuration file"),
    ("What can the user change?", "the default value"),
    ("Who wrote the license?", None),
)


def question(context, *texts, asked="what?", at=None):
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


def test_answer_is_target_of_each_window_with_it(tokenizer):
    context = " ".join("a" for _ in range(100))
    for piece in range(100):
        one = question(context, "a", at=2 * piece)
        for window in make_features(one, tokenizer, SMALL, training=True):
            place = piece - window.first_piece + window.document_start
            inside = window.piece(place) == piece
            expected = (place, place, 0) if inside else (0, 0, 1)
            assert (window.start, window.end, window.impossible) == expected


def target_text(window, tokenizer):
    ids = window.ids[window.start : window.end + 1]
    pieces = " ".join(tokenizer.vocabulary.tokens[i] for i in ids)
    return pieces.replace(" ##", "")


def training_target(one, tokenizer):
    (window,) = make_features(one, tokenizer, LONG, training=True)
    assert not window.impossible
    return window, target_text(window, tokenizer)


def test_target_is_the_answers_own_wordpieces(tokenizer):
    context = "The leader was John Smith (1895-1943)."
    assert training_target(question(context, "1895"), tokenizer)[1] == "1895"
    assert training_target(question(context, "1943"), tokenizer)[1] == "1943"
    assert (
        training_target(question(context, "John Smith"), tokenizer)[1] == "john smith"
    )
    assert training_target(question(context, " John "), tokenizer)[1] == "john"
    # "ead" is not a run of wordpieces of its word, so the target is the word.
    assert training_target(question(context, "ead"), tokenizer)[1] == "leader"


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
