"""Warnings about suspicious labels, and dev splits of classes with few rows."""

import collections

import numpy as np
import pytest

from electra_tf.errors import InputError
from electra_tf.tasks.labels import suspicious_labels
from electra_tf.tasks.splits import find_split, hold_out, hold_out_groups


def label_warnings(*labels):
    return suspicious_labels(labels)


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


def split(counts, share=0.1, seed=0):
    """Hold dev out; return the indices of dev, and its classes."""
    classes = [label for label, n in counts.items() for _ in range(n)]
    dev, numbers = hold_out(classes, share, seed)
    assert dev == sorted(set(dev))
    found = collections.Counter(classes[index] for index in dev)
    assert +collections.Counter(numbers) == found
    return dev, found


def test_dev_rows_of_small_classes_follow_the_largest_remainder():
    counts = {f"c{n}": 3 for n in range(1000)}
    dev, found = split(counts)
    assert len(dev) == 300
    assert set(found.values()) == {1}
    assert split(counts)[0] == dev
    assert split(counts, seed=1)[0] != dev
    # The largest remainder comes first, and a single row stays in train.
    assert split({"a": 4, "b": 2, "c": 1, "d": 3})[1] == {"a": 1}
    assert split({"a": 1, "b": 2, "c": 1, "d": 1, "e": 1, "f": 1})[1] == {"b": 1}
    assert split({"a": 30, "b": 3, "c": 14})[1] == {"a": 3, "c": 1}
    assert split({f"c{n}": 1 for n in range(300)})[0] == []


def test_dev_rows_of_a_seed_never_change():
    assert split({"a": 30, "b": 20})[0] == [2, 11, 26, 34, 48]
    # Sentences are one class; this is what release 0.1 drew for them.
    held = np.random.default_rng(3).permutation(40)[:4].tolist()
    assert split({0: 40}, seed=3)[0] == sorted(held)


def test_whole_groups_are_held_out():
    groups = [f"t{n % 20}" for n in range(100)]
    dev = hold_out_groups(groups, 0.3, 1)
    assert len(dev) == 30
    assert not {groups[n] for n in dev} & {groups[n] for n in set(range(100)) - {*dev}}
    assert hold_out_groups(groups, 0.3, 2) != dev


def test_a_published_name_comes_before_the_usual_ones(tmp_path):
    for name in ("train-v2.0.json.gz", "dev.json", "dev-v1.1.json"):
        (tmp_path / name).touch()
    folder, endings = str(tmp_path), (".jsonl", ".json")
    path = find_split(folder, "train", endings, "train-v2.0.json")
    assert path == f"{folder}/train-v2.0.json.gz"
    assert find_split(folder, "train", endings, "train-v1.1.json") is None
    path = find_split(folder, "dev", endings, "dev-v1.1.json")
    assert path == f"{folder}/dev-v1.1.json"
    assert find_split(folder, "dev", endings) == f"{folder}/dev.json"
    (tmp_path / "validation.jsonl.gz").touch()
    with pytest.raises(InputError, match=r"dev\.json, validation\.jsonl\.gz"):
        find_split(folder, "dev", endings)
