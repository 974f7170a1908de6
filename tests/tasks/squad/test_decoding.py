import itertools
import json
import math

import numpy as np
import pytest
from conftest import GOLDEN

from electra_tf.config.pretraining import TokenizationConfig
from electra_tf.errors import InputError
from electra_tf.tasks.squad.decoding import (
    Candidate,
    DecodingConfig,
    QAPrediction,
    best_threshold,
    decode_answers,
    get_final_text,
    piece_characters,
    write_predictions,
)
from electra_tf.tasks.squad.metrics import normalize
from electra_tf.tasks.squad.preprocessing import QAFeatureConfig, make_features
from electra_tf.tasks.squad.reader import Question, for_training, read_squad
from electra_tf.text.data_errors import DataErrorLog
from electra_tf.text.normalization import CharacterTable
from electra_tf.text.tokenizer import Tokenizer
from electra_tf.text.vocab import Vocabulary

CONTEXT = "The leader was  John Smith (1895-1943)."
CASES = json.loads((GOLDEN / "squad_final_text.json").read_text())


@pytest.fixture(scope="module")
def tokenizer(vocabulary):
    return Tokenizer(vocabulary)


def question(context=CONTEXT):
    return Question("q", "who?", context, (), False, "", "file.json", 1)


def beam(*rows, null=None):
    """Outputs from, for each window, {start: (log p, {end: log p})}."""
    outputs = {
        "start_top_index_BS": [list(row) for row in rows],
        "start_top_log_probs_BS": [[p for p, _ in row.values()] for row in rows],
        "end_top_index_BSK": [[list(e) for _, e in row.values()] for row in rows],
        "end_top_log_probs_BSK": [
            [list(e.values()) for _, e in row.values()] for row in rows
        ],
    }
    null = [0.0] * len(rows) if null is None else null
    outputs = {
        name: np.array(value, "int32" if "index" in name else "float32")
        for name, value in outputs.items()
    }
    return outputs | {"answerable_logit_B": np.array(null, "float32")}


def position(window, tokenizer, context, text, last=False):
    """Where a part of the context starts, or ends, in a window."""
    pieces = tokenizer.encode(context[: context.index(text)])
    own = tokenizer.encode(text)
    place = window.document_start - window.first_piece + len(pieces)
    return place + len(own) - 1 if last else place


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["pred"])
def test_the_originals_final_text(case):
    characters = CharacterTable(TokenizationConfig())
    assert get_final_text(case["pred"], case["orig"], characters) == case["out"]


def test_final_text_by_hand():
    characters = CharacterTable(TokenizationConfig())
    assert get_final_text("1943", "(1895-1943).", characters) == "1943"
    assert get_final_text("", "all of it", characters) == "all of it"
    assert get_final_text("uber", "Uber Über", characters) == "Uber"
    # One letter that becomes three characters: no longer one for one.
    assert get_final_text("a", "a \u0390\u4e00\ufb01", characters) == "a"
    assert get_final_text("a", "a\u00a0b c", characters) == "a\u00a0b c"
    cased = CharacterTable(TokenizationConfig(lower_case=False))
    assert get_final_text("steve smith", "Steve Smith's", cased) == "Steve Smith's"
    assert get_final_text("Steve Smith", "Steve Smith's", cased) == "Steve Smith"


def test_the_best_spans_by_hand(tokenizer):
    (window,) = cut = make_features(question(), tokenizer)
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
    found = decode_answers(question(), cut, beam(row, null=[1.5]), tokenizer)
    assert found.text == "John Smith"
    assert found.null_odds == 1.5
    share = 1 / (1 + math.exp(-0.75))
    expected = [("John Smith", share, -1.0, -0.5), ("1895", 1 - share, -2.0, -0.25)]
    assert [entry.text for entry in found.nbest] == [text for text, *_ in expected]
    for entry, (_, *numbers) in zip(found.nbest, expected, strict=True):
        given = [entry.probability, entry.start_logit, entry.end_logit]
        np.testing.assert_allclose(given, numbers, rtol=1e-6)


def test_white_space_becomes_single_spaces_as_in_the_original(tokenizer):
    (window,) = cut = make_features(question(), tokenizer)
    where = (window, tokenizer, CONTEXT)
    start, end = position(*where, "was"), position(*where, "Smith", last=True)
    row = {start: (-1.0, {end: -1.0})}
    assert (
        decode_answers(question(), cut, beam(row), tokenizer).text == "was John Smith"
    )


PIECES = {  # characters that each stand for one piece of the golden vocabulary
    "letters": ("a b", [(0, 1), (2, 3)]),
    "signs": ("(a).", [(0, 1), (1, 2), (2, 3), (3, 4)]),
    "a capital": ("A", [(0, 1)]),
    "accents": ("\u00e9 e\u0301.", [(0, 1), (2, 4), (4, 5)]),
    "nothing": ("a\u200bb", [(0, 3)]),
    "unknown": ("a \u4e00\u4e01 b", [(0, 1), (2, 3), (3, 4), (5, 6)]),
    "unknown word": ("a \u00df\u00df. b", [(0, 1), (2, 4), (4, 5), (6, 7)]),
    "a sigma": ("\u03a3", [(0, 1)]),
}


@pytest.mark.parametrize(("text", "expected"), PIECES.values(), ids=PIECES)
def test_the_characters_of_each_piece(tokenizer, text, expected):
    assert len(tokenizer.encode(text)) == len(expected)
    found = piece_characters(text, tokenizer, CharacterTable(tokenizer.settings))
    assert found == expected


def test_a_piece_of_unknown_letters_is_found_among_the_others(tokenizer):
    context = "x\u4e00\u4e01\u4e02\u200by"  # one word; one letter of it is dropped
    (window,) = cut = make_features(question(context), tokenizer)
    at = window.document_start + 2
    outputs = beam({at: (-1.0, {at + 1: -1.0})})
    found = [
        decode_answers(
            question(context), cut, outputs, tokenizer, DecodingConfig(text=text)
        ).text
        for text in ("exact", "original")
    ]
    assert found == ["\u4e01\u4e02", context]


@pytest.mark.parametrize(("longest", "text"), [(3, "d e f"), (2, "e f"), (1, "f")])
def test_long_spans_are_dropped(tokenizer, longest, text):
    context = "a b c d e f"
    (window,) = cut = make_features(question(context), tokenizer)
    at = window.document_start
    row = {at + i: (-1.0 - i, {at + 5: -1.0, 0: -3.0}) for i in range(6)}
    settings = DecodingConfig(max_answer_length=longest)
    found = decode_answers(question(context), cut, beam(row), tokenizer, settings)
    assert found.text == text
    assert len(found.nbest) == longest


def test_n_best_and_texts_that_come_twice(tokenizer):
    context = "no yes no maybe"
    (window,) = cut = make_features(question(context), tokenizer)
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
    settings = DecodingConfig(n_best=2)
    found = decode_answers(question(context), cut, beam(row), tokenizer, settings)
    assert [entry.text for entry in found.nbest] == ["no", "yes"]
    assert found.nbest[0].start_logit == -0.5  # the better of the two
    assert sum(entry.probability for entry in found.nbest) == pytest.approx(1)


def test_a_start_counts_only_where_its_window_shows_most_around_it(tokenizer):
    context = " ".join("abcdefghijklmnopqrstuvwxyz") + " 0 1 2 3 4 5 6 7 8 9"
    settings = QAFeatureConfig(max_length=24, max_query_length=4, doc_stride=8)
    cut = make_features(question(context), tokenizer, settings)
    assert len(cut) > 2
    for number, window in enumerate(cut):
        rows = [{0: (-9.0, {0: -9.0})} for _ in cut]
        for at in range(len(window.ids)):
            rows[number] = {at: (-1.0, {at: -1.0})}
            found = decode_answers(question(context), cut, beam(*rows), tokenizer)
            assert bool(found.text) == window.max_context[at]
            if found.text:
                assert found.text == context.split()[window.piece(at)]


def test_the_odds_are_the_least_of_the_windows(tokenizer):
    context = " ".join("abcdefghijklmnopqrstuvwxyz")
    settings = QAFeatureConfig(max_length=24, max_query_length=4, doc_stride=8)
    cut = make_features(question(context), tokenizer, settings)
    null = [3.0, -2.5, 7.0][: len(cut)]
    rows = [{0: (-9.0, {0: -9.0})} for _ in cut]
    found = decode_answers(question(context), cut, beam(*rows, null=null), tokenizer)
    assert found == QAPrediction("", -2.5, ())  # no span is possible


def spelt(window, start, end, context, tokenizer):
    """A span's text in a context of ASCII letters, full stops and commas."""
    pieces = [tokenizer.vocabulary.tokens[i] for i in window.ids[start : end + 1]]
    text = " ".join(pieces).replace(" ##", "").replace("##", "")
    text = text.replace(" .", ".").replace(" ,", ",")
    first, last = window.characters(start, end)
    at = context.lower().index(text, first, last)
    return context[at : at + len(text)]


def test_the_originals_beams_against_every_rule_at_once(tokenizer):
    golden = np.load(GOLDEN / "squad_predict.npz")
    context = json.loads(str(golden["info_json"]))["context"]
    one = Question("q", "What can the user change?", context, (), True, "", "f", 1)
    cut = make_features(one, tokenizer, QAFeatureConfig(48, 10, 16))
    np.testing.assert_array_equal(cut[0].ids, golden["feat/input_ids"][2])
    rows = slice(2, 4)  # the two windows of this question
    outputs = {
        "start_top_index_BS": golden["out/squad/start_top_index"][rows],
        "start_top_log_probs_BS": golden["out/squad/start_top_log_probs"][rows],
        "end_top_index_BSK": golden["out/squad/end_top_index"][rows],
        "end_top_log_probs_BSK": golden["out/squad/end_top_log_probs"][rows],
        "answerable_logit_B": golden["out/squad/answerable_logit"][rows],
    }
    found = decode_answers(one, cut, outputs, tokenizer)
    spans = []
    for w, s, k in itertools.product(range(2), range(5), range(5)):
        start = int(outputs["start_top_index_BS"][w, s])
        end = int(outputs["end_top_index_BSK"][w, s, k])
        first = cut[w].segments.index(1)
        if first <= start <= end < min(start + 30, len(cut[w].ids) - 1):
            if not cut[w].max_context[start]:
                continue
            score = outputs["start_top_log_probs_BS"][w, s]
            score += outputs["end_top_log_probs_BSK"][w, s, k]
            spans.append((-score, spelt(cut[w], start, end, context, tokenizer)))
    spans.sort(key=lambda span: span[0])
    expected = {}
    for score, text in spans:
        expected.setdefault(text, score)
    assert 5 < len(expected) <= len(spans)
    assert [entry.text for entry in found.nbest] == list(expected)[:20]
    scores = [-(entry.start_logit + entry.end_logit) for entry in found.nbest]
    np.testing.assert_allclose(scores, list(expected.values())[:20], rtol=1e-6)
    assert found.null_odds == outputs["answerable_logit_B"].min()
    shares = np.exp(np.negative(scores))
    shares /= shares.sum()
    np.testing.assert_allclose([e.probability for e in found.nbest], shares, rtol=1e-6)


def test_ends_that_do_not_depend_on_starts(tokenizer):
    (window,) = cut = make_features(question(), tokenizer)
    where = (window, tokenizer, CONTEXT)
    john, smith = position(*where, "John"), position(*where, "Smith", last=True)
    length = len(window.ids) + 5  # with padding
    start_L, end_L = np.full((2, length), -5.0, "float32")
    start_L[[0, john, smith]] = 2.0, 3.0, 1.0
    end_L[[0, smith]] = 0.5, 4.0
    outputs = {"start_logits_BL": start_L[None], "end_logits_BL": end_L[None]}
    found = decode_answers(question(), cut, outputs, tokenizer)
    assert found.text == "John Smith"
    assert found.null_odds == (2.0 + 0.5) - (3.0 + 4.0)
    assert (found.nbest[0].start_logit, found.nbest[0].end_logit) == (3.0, 4.0)
    one = decode_answers(question(), cut, outputs, tokenizer, DecodingConfig(n_best=1))
    assert [entry.text for entry in one.nbest] == ["John Smith"]
    start_L[0] = 9.0  # of one start and one end that are tried, the start is no word's
    none = decode_answers(question(), cut, outputs, tokenizer, DecodingConfig(n_best=1))
    assert none == QAPrediction("", 9.5, ())


def test_the_odds_without_answerability_but_with_a_beam(tokenizer):
    (window,) = cut = make_features(question(), tokenizer)
    at = position(window, tokenizer, CONTEXT, "John")
    outputs = beam({at: (-1.0, {at: -0.5})})
    del outputs["answerable_logit_B"]
    outputs["start_logits_BL"] = np.log(np.array([[0.25, 0.5, 0.25]])) + 7.0
    found = decode_answers(question(), cut, outputs, tokenizer)
    assert found.null_odds == pytest.approx(math.log(0.25) + 1.5)


def test_the_best_threshold_is_no_worse_than_any_other():
    random = np.random.default_rng(0)
    names = [f"q{i}" for i in range(60)]
    odds = dict(zip(names, random.normal(size=60).tolist(), strict=True))
    has = {name: random.random() < 0.6 - 0.1 * odds[name] for name in names}
    said = {name: "" if random.random() < 0.1 else "text" for name in names}
    scores = {
        name: random.random() if has[name] else float(not said[name]) for name in names
    }

    def score(threshold):
        return sum(
            float(not has[name]) if odds[name] > threshold else scores[name]
            for name in names
        )

    best, threshold = best_threshold(odds, scores, has, said)
    every = [score(t) for t in (-math.inf, *odds.values())]
    assert score(threshold) == pytest.approx(max(every))
    assert best == pytest.approx(100 * max(every) / 60)
    assert max(every) > max(score(-math.inf), score(math.inf))


def test_the_official_threshold_where_no_answer_is_best():
    odds = {"a": -3.0, "b": 2.0, "surplus": 9.0}
    found = best_threshold(
        odds, {"a": 0.0, "b": 0.0}, {"a": False, "b": False}, {"a": "x", "b": ""}
    )
    assert found == (100.0, 0.0)


@pytest.mark.parametrize(
    "wrong", [{"n_best": 0}, {"max_answer_length": 0}, {"text": "both"}]
)
def test_settings_that_do_not_fit_are_refused(wrong):
    with pytest.raises(InputError):
        DecodingConfig(**wrong)


def spans_at(cut, spans):
    """Outputs of a beam of one span for each window."""
    return beam(*({s: (-1.0, {e: -1.0})} for s, e in spans), null=[0.0] * len(cut))


@pytest.mark.parametrize(
    ("file", "vocabulary"),
    [
        ("squad/dev-v2.0.exact20.json.gz", "bert_uncased_en.txt"),
        ("zh/cmrc2018/cmrc2018_trial.json.gz", "bert_chinese.txt"),
    ],
)
def test_answers_of_the_public_files_come_back(data, tmp_path, file, vocabulary):
    tokenizer = Tokenizer(Vocabulary.read(data / "vocab" / vocabulary))
    log = DataErrorLog("report", tmp_path / "problems.txt")
    questions = for_training(read_squad(data / file, log), log)
    questions = [one for one in questions if not one.impossible][::20]
    settings = DecodingConfig(max_answer_length=512)
    for one in questions:
        cut = make_features(one, tokenizer, training=True)
        outputs = spans_at(cut, [(w.start, w.end) for w in cut])
        found = decode_answers(one, cut, outputs, tokenizer, settings)
        assert normalize(found.text) == normalize(one.located[0].text)
    log.close()
    assert len(questions) > 40


def test_english_spans_are_the_originals(data, tmp_path):
    tokenizer = Tokenizer(Vocabulary.read(data / "vocab" / "bert_uncased_en.txt"))
    log = DataErrorLog("stop", tmp_path / "problems.txt")
    random, same, count = np.random.default_rng(0), 0, 0
    for one in read_squad(data / "squad/dev-v2.0.exact20.json.gz", log)[::20]:
        cut = make_features(one, tokenizer)[:1]
        first, last = cut[0].document_start, len(cut[0].ids) - 2
        start = int(random.integers(first, last - 6))
        end = start + int(random.integers(0, 6))
        if not cut[0].max_context[start]:
            continue
        exact, original = (
            decode_answers(
                one, cut, spans_at(cut, [(start, end)]), tokenizer, settings
            ).text
            for settings in (DecodingConfig(), DecodingConfig(text="original"))
        )
        count += 1
        same += exact == original
        assert exact in original  # where they differ, the original is whole words
    assert count > 300
    assert same / count > 0.97


def test_files_of_predictions(tmp_path):
    nbest = (Candidate("\u4e00 b", 0.75, -1.0, -0.5), Candidate("b", 0.25, -2.0, -0.6))
    answered = {
        "x": QAPrediction("\u4e00 b", -2.75, nbest),
        "y": QAPrediction("yes", -2.7, ()),
    }
    write_predictions(tmp_path / "new" / "folder", answered, threshold=-2.75)

    def read(name):
        return json.loads((tmp_path / "new" / "folder" / f"{name}.json").read_text())

    assert read("predictions") == {"x": "\u4e00 b", "y": ""}
    assert read("null_odds") == {"x": -2.75, "y": -2.7}
    first = {
        "text": "\u4e00 b",
        "probability": 0.75,
        "start_logit": -1.0,
        "end_logit": -0.5,
    }
    assert read("nbest")["x"][0] == first
    assert read("nbest")["y"] == []
    write_predictions(tmp_path / "new" / "folder", answered)
    assert read("predictions") == {"x": "\u4e00 b", "y": "yes"}
