"""Tables of classes and types of spans: equal to scikit-learn's and seqeval's."""

import numpy as np
import pytest
import sklearn.metrics as sk

from electra_tf.tasks.class_report import (
    class_report,
    format_class_report,
    label_set_report,
    span_report,
    tag_report,
)
from electra_tf.tasks.data.schemes import to_scheme

RNG = np.random.default_rng(0)
LABELS = ["bad", "accuracy", "差评", "never", "only predicted"]
GOLD = [LABELS[n] for n in RNG.integers(0, 3, 300)]
PREDICTED = [
    gold if RNG.random() < 0.6 else LABELS[RNG.choice([0, 1, 2, 4])] for gold in GOLD
]
SPAN_TAGS = ["O", "O", "B-PER", "I-PER", "B-LOC", "I-LOC", "B-ORG", "I-ORG"]


def percent(row, f1="f1-score"):
    rates = [100 * row["precision"], 100 * row["recall"], 100 * row[f1]]
    return pytest.approx(
        dict(zip(["precision", "recall", "f1", "support"], [*rates, row["support"]],
                 strict=True))
    )  # fmt: skip


def test_classes_equal_scikit_learn():
    report = class_report(GOLD, PREDICTED, LABELS)
    names = [label for label in LABELS if label != "never"]
    options = {"target_names": [f"class {n}" for n in names], "labels": names}
    expected = sk.classification_report(
        GOLD, PREDICTED, **options, output_dict=True, zero_division=0
    )
    assert list(report["classes"]) == names
    for name in names:
        assert report["classes"][name] == percent(expected[f"class {name}"])
    for name in ("macro avg", "weighted avg"):
        assert report["averages"][name] == percent(expected[name])
    assert report["accuracy"] == pytest.approx(100 * expected["accuracy"])
    matrix = sk.confusion_matrix(GOLD, PREDICTED, labels=names)
    confusion = report["confusion"]
    found = [[confusion[gold].get(name, 0) for name in names] for gold in names]
    np.testing.assert_array_equal(found, matrix)


@pytest.mark.parametrize("classes", [1, 3])
def test_sets_of_classes_equal_scikit_learn(classes):
    gold, predicted = RNG.integers(0, 2, (2, 50, classes)).astype(np.float32)
    report = label_set_report(gold, predicted, LABELS[:classes])
    for number, name in enumerate(LABELS[:classes]):
        expected = sk.classification_report(
            gold[:, number], predicted[:, number], output_dict=True
        )
        assert report["classes"][name] == percent(expected["1.0"])
    assert list(report["averages"]) == ["micro avg", "macro avg", "weighted avg"]
    micro = 100 * sk.f1_score(gold.ravel(), predicted.ravel())
    assert report["averages"]["micro avg"]["f1"] == pytest.approx(micro)
    assert report["averages"]["macro avg"]["support"] == gold.sum()
    assert "accuracy" not in report


def random_tags(sentences=80):
    sides = [], []
    for length in RNG.integers(1, 12, sentences):
        gold = to_scheme(RNG.choice(SPAN_TAGS, length).tolist(), "IOB2")
        noisy = [t if RNG.random() < 0.7 else RNG.choice(SPAN_TAGS) for t in gold]
        sides[0].append(gold)
        sides[1].append(to_scheme(list(map(str, noisy)), "IOB2"))
    return sides


def test_types_of_spans_equal_seqeval():
    seqeval = pytest.importorskip("seqeval.metrics")
    gold, predicted = random_tags()
    report = span_report(gold, predicted)
    expected = seqeval.classification_report(gold, predicted, output_dict=True)
    rows = report["classes"] | report["averages"]
    assert rows.keys() == expected.keys()
    for name, row in expected.items():
        assert rows[name] == percent(row), name
    words = sum(map(len, gold))
    counts = [n for row in report["confusion"].values() for n in row.values()]
    assert sum(counts) == words


def test_tags_of_words_are_classes():
    gold, predicted = [["NN", "VB"], ["NN"]], [["NN", "NN"], ["NN"]]
    report = tag_report(gold, predicted, ["VB", "NN", "XX"])
    assert report == class_report(["NN", "VB", "NN"], ["NN"] * 3, ["NN", "VB", "XX"])
    assert report["classes"]["VB"]["support"] == 1
    assert report["confusion"] == {"NN": {"NN": 2}, "VB": {"NN": 1}}


def test_a_printed_table_and_matrix():
    report = class_report(
        ["a", "b", "b", "差评"], ["a", "a", "b", "b"], ["a", "b", "差评"]
    )
    lines = format_class_report(report).splitlines()
    cells = [line.split() for line in lines]
    assert cells[0] == ["precision", "recall", "f1", "support"]
    assert cells[1] == ["a", "50.00", "100.00", "66.67", "1"]
    assert ["accuracy", "50.00", "4"] in cells
    start = next(n for n, line in enumerate(lines) if line.startswith("confusion"))
    assert lines[-1] == "Always answering 'b' would score 50.0% accuracy."
    assert cells[start + 1 : -1] == [
        ["a", "b", "差评"],
        ["a", "1", "0", "0"],
        ["b", "1", "1", "0"],
        ["差评", "0", "1", "0"],
    ]


def test_the_most_frequent_errors_are_printed_for_many_classes():
    names = [f"c{n:02}" for n in range(30)]
    gold = names * 2 + ["c00"] * 4
    predicted = names * 2 + ["c01", "c01", "c01", "c02"]
    lines = format_class_report(class_report(gold, predicted, names)).splitlines()
    start = lines.index("most confused classes (gold -> predicted):")
    assert [line.split() for line in lines[start + 1 : -1]] == [
        ["3", "c00", "->", "c01", "(50%", "of", "c00)"],
        ["1", "c00", "->", "c02", "(17%", "of", "c00)"],
    ]
