"""Tables and GLUE's files become tasks of texts; bad rows and columns are errors."""

import collections
import dataclasses
import functools
import json
import pathlib
import types

import numpy as np
import pytest

from electra_tf.config.finetuning import DataConfig
from electra_tf.errors import InputError
from electra_tf.tasks.classifier import TextRegressor
from electra_tf.tasks.data.held_out import hold_out
from electra_tf.tasks.data.splits import Split
from electra_tf.tasks.score import ScoredSplit
from electra_tf.tasks.text_task import ClassificationTask, RegressionTask
from tests import tiny

csv_task = functools.partial(tiny.read_task, "csv")
TABLE = DataConfig(text_columns=("text",), label_column="label")
SCORES = DataConfig(text_columns=("text",), score_column="stars")
SPLITS = dataclasses.replace(TABLE, split_column="split")


@pytest.fixture
def folder(write):
    """Return a function that writes files of one folder and returns the folder."""

    def of(**files):
        for name, rows in files.items():
            stem, _, suffix = name.rpartition("_")
            path = pathlib.Path(write(f"data/{stem}.{suffix}", b""))
            text = "".join(f"{row}\n" for row in rows or ())
            path.write_text(text, "utf-8")
            if rows is None:
                path.unlink()
        return str(path.parent)

    return of


def rows_of(counts, header="text,label"):
    """Return a header and `counts[label]` rows of each class, in this order."""
    rows = [f"{label} {i},{label}" for label, n in counts.items() for i in range(n)]
    return [header, *rows]


def sizes(task):
    return {name: len(split) for name, split in task.splits.items()}


def test_a_folder_with_dev_and_an_unlabelled_test(folder):
    data = folder(
        train_csv=["text,label", "a,yes", ",no", '"b, c",yes'],
        dev_tsv=["label\ttext", 'no\t"d', "yes\t"],
        test_jsonl=[json.dumps({"text": "e"})],
    )
    task = csv_task(data, dataclasses.replace(TABLE, missing_text="keep"))
    assert dict(task.splits) == {
        "train": Split(["a", "", "b, c"], ["yes", "no", "yes"]),
        "dev": Split(['"d', ""], ["no", "yes"]),
        "test": Split(["e"], None),
    }
    assert task.model.keywords["labels"] == ["no", "yes"]
    assert task.metrics == ("accuracy", "mcc", "macro_f1")
    assert (list(task.eval_splits), task.monitor) == (["dev"], "dev_accuracy")


@pytest.mark.parametrize("dev", ["dev", "valid", "validation"])
def test_pairs_with_a_labelled_test(folder, dev):
    rows = ["a,b,label", "x,y,1", "z,w,0"]
    data = folder(train_csv=rows, test_csv=rows, **{f"{dev}_csv": rows})
    columns = DataConfig(text_columns=("a", "b"), label_column="label")
    task = csv_task(data, columns)
    assert list(task.eval_splits) == ["dev", "test"]
    assert task.splits["test"] == Split([("x", "y"), ("z", "w")], ["1", "0"])
    assert task.metrics == ("accuracy", "mcc", "f1")
    assert not task.unordered


def test_scores(folder):
    data = folder(
        train_csv=["text,stars", "a,1", "b,4.5", "c,-2"],
        dev_csv=["text,stars", "d,9", "e,0"],
    )
    task = csv_task(data, SCORES)
    assert task.model.keywords == {"low": -2.0, "high": 4.5}
    assert task.splits["train"].targets == [1.0, 4.5, -2.0]
    assert task.splits["dev"].targets == [9.0, 0.0]
    dev, details = task.splits["dev"], np.float32([8.0, 0.5])
    scored = ScoredSplit(RegressionTask(), None, dev, details, task.metrics)
    assert scored.scores == pytest.approx(
        {"spearman": 100, "pearson": 100, "mse": 0.625}
    )
    model = task.model(tiny.start(), settings=tiny.settings(), seed=0)
    assert isinstance(model, TextRegressor)


def test_dev_has_the_share_of_each_class(folder):
    counts = {"a": 200, "b": 40, "c": 20}
    path = f"{folder(all_csv=rows_of(counts))}/all.csv"
    settings = dataclasses.replace(TABLE, dev_share=0.25)
    splits, again, other = (
        csv_task(path, dataclasses.replace(settings, split_seed=seed)).splits
        for seed in (0, 0, 1)
    )
    assert list(splits) == ["train", "dev"]
    for label, count in counts.items():
        assert splits["dev"].targets.count(label) == count * 0.25
    assert splits["dev"].items == again["dev"].items
    assert 0 < len({*splits["dev"].items} & {*other["dev"].items}) < 40
    rows = [row.split(",")[0] for row in rows_of(counts)[1:]]
    assert sorted(splits["train"].items + splits["dev"].items) == sorted(rows)
    for split in splits.values():  # in the order of the file, with the right labels
        assert [item.split()[0] for item in split.items] == split.targets
        assert split.targets == sorted(split.targets)


def test_dev_of_scores_and_beside_a_test_file(folder):
    rows = ["text,stars", *(f"t{i},{i}" for i in range(30))]
    task = csv_task(folder(train_csv=rows, test_csv=["text", "x", "y"]), SCORES)
    assert sizes(task) == {"train": 27, "dev": 3, "test": 2}
    for name in ("train", "dev"):
        split = task.splits[name]
        assert [float(item[1:]) for item in split.items] == split.targets
    assert task.splits["test"].targets is None


def held_out(counts, share=0.1, seed=0):
    """Hold dev out; return the indices of dev, and its classes."""
    classes = [label for label, n in counts.items() for _ in range(n)]
    dev = hold_out(classes, share, seed)
    assert dev == sorted(set(dev))
    return dev, collections.Counter(classes[index] for index in dev)


def test_dev_rows_of_small_classes_follow_the_largest_remainder():
    counts = {f"c{n}": 3 for n in range(1000)}
    dev, found = held_out(counts)
    assert (len(dev), set(found.values())) == (300, {1})
    assert held_out(counts)[0] == dev != held_out(counts, seed=1)[0]
    # The largest remainder comes first, and a single row stays in train.
    assert held_out({"a": 4, "b": 2, "c": 1, "d": 3})[1] == {"a": 1}
    assert held_out({"a": 1, "b": 2, **dict.fromkeys("cdef", 1)})[1] == {"b": 1}
    assert held_out({"a": 30, "b": 3, "c": 14})[1] == {"a": 3, "c": 1}
    assert held_out({f"c{n}": 1 for n in range(300)})[0] == []
    assert held_out({"a": 100, "b": 1, "c": 2}, 0.9)[1] == {"a": 90, "c": 1}


def test_dev_rows_of_a_seed_never_change():
    assert held_out({"a": 30, "b": 20})[0] == [2, 11, 26, 34, 48]
    held = np.random.default_rng(3).permutation(40)[:4].tolist()
    assert held_out({0: 40}, seed=3)[0] == sorted(held)


@pytest.mark.parametrize("dev", ["dev", "valid", " Validation", "VAL"])
def test_a_column_of_splits_divides_one_table(folder, dev):
    words = ["test", "train", dev, "train", dev, "test", "train"]
    rows = [f"{word},t{n},{'ab'[n % 2]}" for n, word in enumerate(words)]
    path, lines = f"{folder(all_csv=['split,text,label', *rows])}/all.csv", []
    task = csv_task(path, SPLITS, lines.append)
    assert {name: split.items for name, split in task.splits.items()} == {
        "train": ["t1", "t3", "t6"], "dev": ["t2", "t4"], "test": ["t0", "t5"],
    }  # fmt: skip
    assert list(task.splits["test"].places) == [f"{path}:2", f"{path}:7"]
    assert "train 3, dev 2, test 2" in lines[0]
    assert not any("is not used" in line for line in lines)


def table_of_splits(folder, words):
    rows = [f"{word},t{n},{'ab'[n % 2]}" for n, word in enumerate(words)]
    return f"{folder(all_csv=['split,text,label', *rows])}/all.csv"


def test_a_column_of_splits_without_dev(folder):
    path = table_of_splits(folder, ["train"] * 30 + ["test"])
    assert sizes(csv_task(path, SPLITS)) == {"train": 26, "dev": 4, "test": 1}
    path = table_of_splits(folder, ["train"] * 30 + ["", "eval"])
    with pytest.raises(InputError, match=r"all\.csv:32: no split: 'split' is ''"):
        csv_task(path, SPLITS)
    with pytest.raises(InputError, match="rows of train"):
        csv_task(table_of_splits(folder, ["test", "dev"]), SPLITS)


@pytest.mark.parametrize(
    ("words", "reported"),
    [
        (["train", "dev", "Test "], True),
        (["train"] * 3, False),
        (["train", "dev", "other"], False),
        (["train", "", "test"], False),
    ],
)
def test_an_unused_column_of_splits_is_reported(folder, words, reported):
    lines = []
    csv_task(table_of_splits(folder, words * 5), TABLE, lines.append)
    assert any("--split_column=split" in line for line in lines) == reported


GOOD = ["text,label", *(f"{n},{'xy'[n % 2]}" for n in range(18))]
STARS = ["text,stars", *["a,1", "b,2"] * 9]
ROW = {"text": "a", "label": "x"}
JSON_ROWS = [json.dumps({"text": str(n), "label": "xy"[n % 2]}) for n in range(18)]

BAD = {  # the last row, the words of the error, and a correct row
    "no label": (GOOD, "c,", "no label: 'label' is ''", "c,x"),
    "a blank label": (GOOD, "c,  ", "no label: 'label' is", "c,x"),
    "a word as score": (STARS, "c,many", "no number: 'stars' is", "c,4"),
    "no score": (STARS, "c,", "no number: 'stars' is", "c,4"),
    "not a number": (STARS, "c,nan", "no finite number", "c,4"),
    "infinity": (STARS, "c,inf", "no finite number", "c,4"),
    "no text": (JSON_ROWS, {"text": None}, "no text: 'text': 1 of .*None", {}),
    "JSON without label": (JSON_ROWS, {"label": None}, "no label", {}),
    "half a pair in a label": (JSON_ROWS, {"label": "x\ud83d"}, r".*'x\\ud83d'", {}),
    "an object": (JSON_ROWS, {"text": {"en": "a"}}, "a nested value: 'text'", {}),
    "a list of lists": (JSON_ROWS, {"label": [["a"]]}, "a nested.*list of names", {}),
}


@pytest.mark.parametrize(("rows", "bad", "words", "good"), BAD.values(), ids=BAD)
def test_bad_rows_are_errors(folder, rows, bad, words, good):
    name = "train_jsonl" if rows is JSON_ROWS else "train_csv"
    bad, good = (v if isinstance(v, str) else json.dumps(ROW | v) for v in (bad, good))
    settings = SCORES if rows is STARS else TABLE
    data = folder(**{name: [*rows, bad]})
    with pytest.raises(InputError, match=rf"train\.\w+:{len(rows) + 1}: {words}"):
        csv_task(data, settings)
    data = folder(**{name: [*rows, good]})
    assert sum(sizes(csv_task(data, settings)).values()) == 19


ERRORS = {  # files, settings, words of the error
    "no text column": ({}, {"text_columns": ()}, "--text_columns=, "),
    "no target": ({}, {"label_column": None}, "--label_column=None"),
    "three texts": ({}, {"text_columns": ("a", "b", "c")}, "a,b,c"),
    "two targets": ({}, {"score_column": "x"}, "--score_column=x"),
    "a text as target": ({}, {"text_columns": ("label",)}, "label_column=label"),
    "a missing text": ({}, {"text_columns": ("tekst",)}, "csv must.*'tekst'.*'text'"),
    "a missing label": ({}, {"label_column": "c"}, "'c'"),
    "splits of a folder": ({}, {"split_column": "split"}, "--split_column=split"),
    "no train file": (
        {"train_csv": None, "training_csv": GOOD}, {}, r"--data .*train\.csv",
    ),
    "two train files": (
        {"train_jsonl": JSON_ROWS}, {}, r"train\.csv, train\.jsonl",
    ),
    "a dictionary of lists": (
        {"train_csv": None, "train_json": ['{"text": ["a", "b"], "label": ["x"]}']}, {},
        r"train\.json:1: a nested value: 'text' .*orient='records'",
    ),
    "one class": ({"train_csv": rows_of({"a": 30})}, {}, r"'label'.*only 'a'"),
    "a class a row": (
        {"train_csv": rows_of({"a": 1, "b": 1})}, {}, "2 rows of 2 classes",
    ),
    "one score": (
        {"train_csv": ["text,stars", *(f"{n},3" for n in range(30))]},
        dict(vars(SCORES)), r"'stars'.*all are 3\.0",
    ),
    "a class that train lacks": (
        {"dev_csv": ["text,label", "c,z"]}, {},
        r"dev\.csv:2: an unknown label: .*'z'; known: 'x', 'y'",
    ),
    "another form of a class": (
        {"train_csv": rows_of({"caf\xe9": 3, "a": 3}),
         "dev_csv": ["text,label", "x,cafe\u0301"]}, {},
        r"'cafe\\u0301'; known: 'a', 'caf\\xe9'",
    ),
    "many classes": (
        {"train_csv": rows_of({f"c{n}": 3 for n in range(1000)}),
         "dev_csv": ["text,label", "x,other"]}, {}, "'c106', and 990 more",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("files", "settings", "words"), ERRORS.values(), ids=ERRORS)
def test_columns_and_files_that_are_errors(folder, files, settings, words):
    files = {"train_csv": GOOD} | files
    with pytest.raises(InputError, match=words) as caught:
        csv_task(folder(**files), dataclasses.replace(TABLE, **settings))
    assert len(str(caught.value)) < 500


def test_places_are_stored_and_written_if_dev_is_held_out(folder, tmp_path):
    rows = rows_of({"a": 3, "b": 3})
    data = folder(train_csv=rows, dev_csv=rows)
    assert csv_task(data, TABLE).splits["dev"].places is None
    pathlib.Path(data, "dev.csv").unlink()
    task = csv_task(data, TABLE)
    dev = task.splits["dev"]
    for item, place in zip(dev.items, dev.places, strict=True):
        assert item in rows[int(place.split(":")[1]) - 1]
    model = types.SimpleNamespace(output_names="ab")
    scored = ScoredSplit(ClassificationTask(), model, dev, [[0, 1]] * len(dev), ())
    scored.task.write(scored, str(tmp_path / "dev"))
    assert (tmp_path / "dev.tsv").read_text().splitlines() == [
        "index\tprediction\tplace",
        *(f"{n}\tb\t{place}" for n, place in enumerate(dev.places)),
    ]


def test_notes_on_labels_and_metrics(folder):
    rows, lines = rows_of({"0": 20, "1": 20, "nan": 2}), []
    task = csv_task(folder(train_csv=rows), TABLE, lines.append)
    assert "held out as dev: 4 of 42 rows" in lines[0]
    assert "accuracy, mcc, macro_f1; " in lines[1]
    assert task.label_counts.startswith("18 of class '0'")
    lines.clear()
    csv_task(folder(train_csv=rows[:-2]), TABLE, lines.append)
    assert "accuracy, mcc, f1; " in lines[1]
    assert len(lines) == 2


def test_a_small_dev_and_the_largest_class_are_named(folder):
    rows = [f"{label},text {n}" for n, label in enumerate("aaab" * 10)]
    lines = []
    csv_task(folder(train_csv=["label,text", *rows]), TABLE, lines.append)
    assert "held out as dev: 4 of 40 rows, too few to compare scores" in lines[0]
    assert "Always answering 'a' would score 75.0% accuracy" in lines[1]


# Files of GLUE.

MRPC = ["Quality\t#1 ID\t#2 ID\t#1 String\t#2 String",
        "1\t2\t3\tthe user\ta file", "0\t4\t5\tthe list\tof values"]  # fmt: skip
NLI = ["sentence1\tsentence2\tgold_label", "a\tb\tneutral", "c\td\tentailment"]
NLI_TEST = ["index\tsentence1\tsentence2", "0\ta\tb"]


def glue_task(name, data):
    return tiny.read_task(name, data, DataConfig())


def test_unordered_pairs_are_trained_in_both_orders(folder):
    test = ["index" + MRPC[0][7:], "0\t1\t2\tA\tB"]
    task = glue_task("mrpc", folder(train_tsv=MRPC, dev_tsv=MRPC, test_tsv=test))
    pairs = [("the user", "a file"), ("the list", "of values")]
    assert task.splits["train"] == task.splits["dev"] == Split(pairs, ["1", "0"])
    assert task.splits["test"] == Split([("A", "B")], None)
    labels = task.model.keywords["labels"]
    assert (labels, task.monitor) == (("0", "1"), "dev_accuracy")
    model = task.model(tiny.start(), settings=tiny.settings(), seed=0)
    examples = task.training_examples(model)
    expected = model.examples([*pairs, *((b, a) for a, b in pairs)])
    ids = examples.ids.tolist()
    assert ids == expected.ids.tolist()
    assert examples.targets.tolist() == [1, 0, 1, 0]
    assert ids[0] != ids[2]
    settings = tiny.settings(data_double_unordered=False)
    model = task.model(tiny.start(), settings=settings, seed=0)
    assert len(task.training_examples(model)) == 2


def test_mnli_has_two_dev_sets_and_the_diagnostic_set(folder):
    data = folder(train_tsv=NLI, dev_matched_tsv=NLI, test_matched_tsv=NLI_TEST)
    with pytest.raises(InputError, match=r"ax's diagnostic\.tsv"):
        glue_task("ax", data)
    folder(
        dev_mismatched_tsv=NLI, test_mismatched_tsv=NLI_TEST, diagnostic_tsv=NLI_TEST
    )
    for name in ("mnli", "ax"):
        task = glue_task(name, data)
        assert list(task.eval_splits) == ["dev_matched", "dev_mismatched"]
        assert {n for n, split in task.splits.items() if split.targets is None} == {
            "test_matched", "test_mismatched", "diagnostic"
        }  # fmt: skip
        assert task.monitor == "dev_matched_accuracy"


STSB = ["sentence1\tsentence2\tscore", "a\tb\t5.000", "c\td\t5.1"]
GLUE_ERRORS = {  # task, files, words of the error
    "no train": ("mrpc", {"dev_tsv": MRPC}, r"mrpc's train\.tsv"),
    "an unknown label": (
        "mrpc", {"train_tsv": [*MRPC, "2\t4\t5\tC\tD"], "dev_tsv": MRPC},
        r"train\.tsv:4: an unk.*'2'; known: '0', '1'",
    ),
    "a score out of range": (
        "stsb", {"train_tsv": STSB, "dev_tsv": STSB}, r"a score out.*from 0 to 5",
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "files", "words"), GLUE_ERRORS.values(), ids=GLUE_ERRORS
)
def test_files_of_glue_that_are_errors(folder, name, files, words):
    with pytest.raises(InputError, match=words):
        glue_task(name, folder(**files))


MARKED = ["", " ", "NaN", "nan", "None", "NULL", "N/A", "<NA>"]


def test_rows_without_a_text_are_an_error_left_out_or_kept(folder):
    rows = [*GOOD[:3], *[f"{mark},x" for mark in MARKED], *GOOD[3:]]
    data = folder(train_csv=rows)
    with pytest.raises(
        InputError, match=r"train\.csv:4: .* 8 of .*2 of ''.*missing_text"
    ):
        csv_task(data, TABLE)
    lines = []
    for rule, count in (("skip", len(GOOD) - 1), ("keep", len(rows) - 1)):
        settings = dataclasses.replace(TABLE, missing_text=rule)
        task = csv_task(data, settings, lines.append)
        assert sum(sizes(task).values()) == count
        texts = {text.strip() for split in task.splits.values() for text in split.items}
        assert texts.issuperset(map(str.strip, MARKED)) == (rule == "keep")
    assert "train.csv: 8 of" in lines[0]
