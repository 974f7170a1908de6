import collections
import random

import pytest

from electra_tf.tasks.conll import read_conll
from electra_tf.tasks.metrics import score_spans, score_tokens
from electra_tf.tasks.schemes import to_bioes
from electra_tf.text.data_errors import DataErrorLog

# Random tags, some of them inconsistent, with the output of conlleval.pl (2004-01-26):
# numbers of gold, predicted and correct spans; number of correct tags.
CONLLEVAL = [
    (
        "B-NP B-VP B-NP I-NP I-NP O O I-VP B-NP|B-NP I-VP B-VP I-VP B-VP I-NP O|"
        "I-NP I-VP B-VP I-NP I-NP O I-NP B-VP B-NP O",
        "I-NP B-VP I-NP I-NP I-NP O O B-NP O|B-NP I-VP B-VP I-VP B-VP I-NP I-VP|"
        "I-NP I-VP B-VP O I-VP O I-NP I-VP I-VP O",
        {"all": (17, 16, 12), "NP": (9, 7, 6), "VP": (8, 9, 6)},
        17,
    ),
    (
        "I-NP O I-NP O O I-VP E-VP E-VP E-NP|I-NP I-VP I-NP O O I-NP E-VP|"
        "E-VP E-VP E-VP O I-NP E-NP E-NP E-VP E-VP O",
        "I-NP O I-NP O O I-VP E-VP O E-VP|I-NP I-VP I-NP O O I-NP E-VP|"
        "E-VP O E-VP O E-VP E-NP E-NP E-VP I-NP O",
        {"all": (17, 16, 12), "NP": (8, 8, 6), "VP": (9, 8, 6)},
        21,
    ),
]


def sentences(text):
    return [sentence.split() for sentence in text.split("|")]


@pytest.mark.parametrize(("gold", "predicted", "counts", "correct_tags"), CONLLEVAL)
def test_counts_equal_conlleval(gold, predicted, counts, correct_tags):
    score = score_spans(sentences(gold), sentences(predicted))
    assert list(score["types"]) == ["NP", "VP"]
    for kind, expected in counts.items():
        row = score if kind == "all" else score["types"][kind]
        assert (row["gold"], row["predicted"], row["correct"]) == expected
        gold_spans, predicted_spans, correct = expected
        assert row["precision"] == pytest.approx(100 * correct / predicted_spans)
        assert row["recall"] == pytest.approx(100 * correct / gold_spans)
        harmonic_mean = 2 / (predicted_spans / correct + gold_spans / correct)
        assert row["f1"] == pytest.approx(100 * harmonic_mean)
    assert score["accuracy"] == pytest.approx(100 * correct_tags / 26)


def test_conll_2000_baseline_has_its_published_scores(tmp_path, data):
    # Tjong Kim Sang and Buchholz (2000): each word gets the most frequent chunk tag of
    # its part of speech in the training data.
    log = DataErrorLog("stop", tmp_path / "log")

    def column(name, number):
        path = data / f"tagging/conll2000/{name}.txt.gz"
        return [s.tags for s in read_conll(path, 0, number, log)]

    tag_counts = collections.defaultdict(collections.Counter)
    for parts, tags in zip(column("train", 1), column("train", 2), strict=True):
        for part, tag in zip(parts, tags, strict=True):
            tag_counts[part][tag] += 1
    best = {part: counts.most_common(1)[0][0] for part, counts in tag_counts.items()}
    predicted = [[best[part] for part in parts] for parts in column("test", 1)]
    score = score_spans(column("test", 2), predicted)
    rounded = {name: round(score[name], 2) for name in ("precision", "recall", "f1")}
    assert rounded == {"precision": 72.58, "recall": 82.14, "f1": 77.07}
    assert score["gold"] == 23_852


def test_correct_and_empty_predictions():
    gold = sentences("B-A I-A O|B-B O O")
    score = score_spans(gold, gold)
    assert [score[n] for n in ("precision", "recall", "f1", "accuracy")] == [100.0] * 4
    nothing = [["O"] * 3] * 2
    score = score_spans(gold, nothing)
    assert [score[n] for n in ("precision", "recall", "f1")] == [0.0] * 3
    assert score["accuracy"] == 50.0
    assert score_spans(nothing, gold)["types"]["A"]["precision"] == 0.0
    assert score_spans(nothing, nothing) == {
        **dict.fromkeys(("precision", "recall", "f1"), 0.0),
        **dict.fromkeys(("gold", "predicted", "correct"), 0),
        "accuracy": 100.0,
        "types": {},
    }
    assert score_spans([], [])["accuracy"] == 0.0


def test_a_span_ends_with_its_sentence():
    score = score_spans([["B-A"], ["I-A"]], [["B-A"], ["B-A"]])
    assert (score["gold"], score["correct"]) == (2, 2)


def test_gold_and_predicted_schemes_may_differ():
    rng = random.Random(0)
    tags = ["O", "B-A", "I-A", "B-B", "I-B"]
    gold = [rng.choices(tags, k=8) for _ in range(50)]
    predicted = [[t if rng.random() < 0.8 else "O" for t in s] for s in gold]
    in_bioes = list(map(to_bioes, gold)), list(map(to_bioes, predicted))
    score = score_spans(*in_bioes)
    assert score_spans(gold, in_bioes[1]) == score
    assert score_spans(gold, in_bioes[0])["accuracy"] == 100.0
    assert 0 < score["f1"] < 100
    other = score_spans(gold, predicted)
    assert other.pop("accuracy") != score.pop("accuracy")
    assert other == score


def test_token_scores_count_single_words():
    gold = [["DT", "NN", "VB"], ["NN", "."]]
    predicted = [["DT", "VB", "VB"], ["NN", "NN"]]
    score = score_tokens(gold, predicted)
    assert (score["accuracy"], score["tokens"]) == (60.0, 5)
    rows = {
        tag: tuple(round(value, 3) for value in row.values())
        for tag, row in score["types"].items()
    }
    assert rows == {
        ".": (0.0, 0.0, 0.0, 1, 0, 0),
        "DT": (100.0, 100.0, 100.0, 1, 1, 1),
        "NN": (50.0, 50.0, 50.0, 2, 2, 1),
        "VB": (50.0, 100.0, 66.667, 1, 2, 1),
    }
    assert list(rows) == sorted(rows)
