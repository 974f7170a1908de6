"""Warnings about suspicious labels, and dev splits of classes with few rows."""

import collections

import pytest

from electra_tf.config.finetuning import DataConfig
from electra_tf.errors import InputError
from electra_tf.tasks.splits import (
    empty_texts,
    split_dev,
    suspicious_labels,
)
from electra_tf.tasks.tables import Row
from electra_tf.tasks.task import Split


def label_warnings(*labels):
    rows = [Row({"label": label}, "f.csv", n) for n, label in enumerate(labels, 2)]
    return suspicious_labels(rows, "label")


def test_usual_labels_are_not_suspicious():
    for labels in (("0", "1", "-1"), ("yes", "no", ""), ("1", "10", "2"), ("c1", "1")):
        assert label_warnings(*labels) == []


@pytest.mark.parametrize("empty", ["nan", "NaN", "None", "NULL", "n/a", "<NA>"])
def test_labels_of_empty_cells_are_suspicious(empty):
    (line,) = label_warnings("0", "1", empty, empty)
    assert f"{empty!r} (2 rows)" in line


def test_several_spellings_of_a_label_are_suspicious():
    (line,) = label_warnings("1", "1", "1.0", "01", "0", "2")
    assert "'01' (1 rows), '1' (2 rows), '1.0' (1 rows)" in line
    (line,) = label_warnings("Very  good", "very good", "bad")
    assert "'Very  good' (1 rows), 'very good' (1 rows)" in line
    (line,) = label_warnings("yes ", "yes", " no")
    assert line.startswith("2 labels")
    assert "such as 'yes '" in line
    (line,) = label_warnings('"a"', '"b"')
    assert "'\"a\"', '\"b\"'" in line


def test_empty_texts_are_counted_with_the_first_row():
    places = ["f:2", "f:3", "f:4"]
    assert empty_texts(Split(["a", "b", "c"], None, places)) == []
    (line,) = empty_texts(Split(["a", " \t", ""], None, places))
    assert "2 of 3" in line
    assert line.endswith(" f:3")
    (line,) = empty_texts(Split([("a", "b"), ("a", ""), ("c", "d")], None, places))
    assert "1 of 3" in line


def split(counts, share=0.1, seed=0, has_scores=False):
    """Split dev off; return the splits, the classes in dev and the printed lines."""
    targets = [label for label, n in counts.items() for _ in range(n)]
    items = [f"text {n}" for n in range(len(targets))]
    train = Split(items, targets, [f"f.csv:{n}" for n in range(2, len(items) + 2)])
    settings, lines = DataConfig(dev_share=share, split_seed=seed), []
    splits = split_dev(train, settings, has_scores, lines.append)
    train_items, dev = splits["train"].items, splits["dev"]
    assert sorted([*train_items, *dev.items]) == sorted(train.items)
    for part in splits.values():
        for item, target in zip(part.items, part.targets, strict=True):
            assert targets[int(item.split()[1])] == target
    return splits, collections.Counter(dev.targets), lines


def test_dev_rows_of_small_classes_follow_the_largest_remainder():
    counts = {f"c{n}": 3 for n in range(1000)}
    splits, dev, lines = split(counts)
    assert (len(splits["train"]), len(splits["dev"])) == (2700, 300)
    assert set(dev.values()) == {1}
    assert "300 of 3,000 rows" in lines[0]
    assert "700 of 1,000 classes" in lines[1]
    assert lines[1].endswith(", and 690 more")
    assert split(counts)[1] == dev
    assert split(counts, seed=1)[1] != dev
    # The largest remainder comes first, and a single row stays in train.
    _, dev, _ = split({"a": 4, "b": 2, "c": 1, "d": 3})
    assert dev == {"a": 1}
    _, dev, _ = split({"a": 1, "b": 2, "c": 1, "d": 1, "e": 1, "f": 1})
    assert dev == {"b": 1}


def test_each_class_has_its_rounded_share_if_any_is_a_row():
    _, dev, lines = split({"a": 30, "b": 3, "c": 14})
    assert dev == {"a": 3, "c": 1}
    assert "1 of 3 classes" in lines[1]
    assert lines[1].endswith("'b'")
    assert len(split({"a": 30, "b": 30})[2]) == 1


def test_dev_rows_of_a_seed_never_change():
    splits, _, _ = split({"a": 30, "b": 20})
    assert splits["dev"].items == ROWS_OF_SEED_0


ROWS_OF_SEED_0 = ["text 2", "text 11", "text 26", "text 34", "text 48"]


def test_scores_are_split_as_one_class():
    splits, _, lines = split({1.0: 2, 2.0: 1, 3.0: 1}, has_scores=True)
    assert (len(splits["train"]), len(splits["dev"])) == (3, 1)
    assert len(lines) == 1


def test_splitting_single_rows_is_an_error():
    with pytest.raises(InputError, match="300 rows of 300 classes"):
        split({f"c{n}": 1 for n in range(300)})
    with pytest.raises(InputError, match="1 rows"):
        split({1.0: 1}, has_scores=True)
