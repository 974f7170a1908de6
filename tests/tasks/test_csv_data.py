"""Tables of texts with classes or scores become tasks; bad rows and columns raise."""

import dataclasses
import functools
import json
import pathlib

import numpy as np
import pytest
import tiny

from electra_tf.config.finetuning import DataConfig
from electra_tf.errors import InputError
from electra_tf.tasks.classifier import TextRegressor
from electra_tf.tasks.datasets import read_task
from electra_tf.tasks.splits import Split

csv_task = functools.partial(read_task, "csv")
TABLE = DataConfig(text_columns=("text",), label_column="label")


@pytest.fixture
def folder(tmp_path):
    """Return a function that writes files of one folder and returns the folder."""

    def write(**files):
        for name, rows in files.items():
            stem, _, kind = name.rpartition("_")
            text = rows if isinstance(rows, str) else "\n".join(rows) + "\n"
            (tmp_path / "data").mkdir(exist_ok=True)
            (tmp_path / "data" / f"{stem}.{kind}").write_text(text, "utf-8")
        return str(tmp_path / "data")

    return write


def rows_of(counts, header="text,label"):
    """Return a header and `counts[label]` rows of each class, in this order."""
    rows = [f"{label} {i},{label}" for label, n in counts.items() for i in range(n)]
    return [header, *rows]


def test_folder_with_dev_and_unlabelled_test(folder, log):
    data = folder(
        train_csv=["text,label", "a,yes", ",no", '"b, c",yes'],
        dev_tsv=["label\ttext", 'no\t"d', "yes\t"],
        test_jsonl=[json.dumps({"text": "e"})],
    )
    task = csv_task(data, TABLE, log)
    # A row with an empty text is used.
    assert task.splits["train"] == Split(["a", "", "b, c"], ["yes", "no", "yes"])
    assert task.splits["dev"] == Split(['"d', ""], ["no", "yes"])
    assert task.splits["test"] == Split(["e"], None)
    assert task.scorer.labels == ("no", "yes")
    assert (task.scorer.metric, task.monitor) == ("accuracy", "dev_accuracy")
    assert task.scorer.metrics == ("accuracy", "mcc", "macro_f1")
    assert set(task.eval_splits) == {"dev"}


def test_labelled_test_file_is_evaluated(folder, log):
    rows = ["a,b,label", "x,y,1", "z,w,0"]
    data = folder(train_csv=rows, dev_csv=rows, test_csv=rows)
    pairs = DataConfig(text_columns=("a", "b"), label_column="label")
    task = csv_task(data, pairs, log)
    assert list(task.eval_splits) == ["dev", "test"]
    assert task.splits["test"] == Split([("x", "y"), ("z", "w")], ["1", "0"])
    assert task.scorer.metrics == ("accuracy", "mcc", "f1")
    assert not task.unordered


@pytest.mark.parametrize("name", ["dev_csv", "valid_csv", "validation_csv"])
def test_dev_split_has_three_names(folder, log, name):
    rows = ["text,label", "a,x", "b,y"]
    task = csv_task(folder(train_csv=rows, **{name: rows}), TABLE, log)
    assert len(task.splits["dev"]) == 2


@pytest.mark.parametrize("share", [0.1, 0.25])
def test_dev_has_the_share_of_each_class(folder, log, share):
    counts = {"a": 200, "b": 40, "c": 20}
    rows = rows_of(counts)
    settings = DataConfig(text_columns=("text",), label_column="label", dev_share=share)
    task = csv_task(f"{folder(all_csv=rows)}/all.csv", settings, log)
    train, dev = task.splits["train"], task.splits["dev"]
    for label, count in counts.items():
        assert list(dev.targets).count(label) == count * share
    assert sorted([*train.items, *dev.items]) == sorted(
        r.split(",")[0] for r in rows[1:]
    )
    for split in (train, dev):  # in the order of the file, with the right labels
        assert [item.split()[0] for item in split.items] == list(split.targets)
        assert list(split.targets) == sorted(split.targets)
    assert list(task.splits) == ["train", "dev"]


def test_dev_rows_depend_on_split_seed(folder, log):
    path = f"{folder(all_csv=rows_of({'a': 100, 'b': 100}))}/all.csv"
    dev_items = [
        csv_task(
            path,
            DataConfig(text_columns=("text",), label_column="label", split_seed=seed),
            log,
        ).splits["dev"].items
        for seed in (0, 0, 1)
    ]  # fmt: skip
    assert dev_items[0] == dev_items[1]
    assert 0 < len(set(dev_items[0]) & set(dev_items[2])) < 15


def test_every_class_keeps_a_training_row(folder, log):
    rows = rows_of({"a": 100, "b": 1, "c": 2})
    settings = DataConfig(text_columns=("text",), label_column="label", dev_share=0.9)
    task = csv_task(f"{folder(all_csv=rows)}/all.csv", settings, log)
    assert task.scorer.labels == ("a", "b", "c")
    targets = list(task.splits["train"].targets)
    assert [targets.count(label) for label in "abc"] == [10, 1, 1]


def test_splitting_dev_off_keeps_the_test_file(folder, log):
    data = folder(train_csv=rows_of({"a": 50, "b": 50}), test_csv=["text", "x", "y"])
    task = csv_task(data, TABLE, log)
    assert {name: len(split) for name, split in task.splits.items()} == {
        "train": 90, "dev": 10, "test": 2
    }  # fmt: skip
    assert task.splits["test"].targets is None


def test_score_column(folder, log):
    rows = ["text,stars", "a,1", "b,4.5", "c,-2"]
    data = folder(train_csv=rows, dev_csv=["text,stars", "d,9", "e,0"])
    settings = DataConfig(text_columns=("text",), score_column="stars")
    task = csv_task(data, settings, log)
    assert task.scorer.labels is None
    assert task.model.keywords == {"low": -2.0, "high": 4.5}
    assert task.splits["train"].targets == [1.0, 4.5, -2.0]
    assert task.splits["dev"].targets == [9.0, 0.0]
    assert task.scorer.metrics == ("spearman", "pearson", "mse")
    scores = task.scorer.score(task.splits["dev"], np.float32([8.0, 0.5]))
    assert scores == pytest.approx({"spearman": 100, "pearson": 100, "mse": 0.625})
    model = task.model(tiny.start(), settings=tiny.settings(), seed=0)
    assert isinstance(model, TextRegressor)


def test_dev_is_split_off_a_score_column(folder, log):
    data = folder(train_csv=["text,stars", *(f"t{i},{i}" for i in range(30))])
    settings = DataConfig(text_columns=("text",), score_column="stars")
    splits = csv_task(data, settings, log).splits
    assert (len(splits["train"]), len(splits["dev"])) == (27, 3)
    for split in splits.values():
        assert [float(item[1:]) for item in split.items] == split.targets


BAD_TARGETS = {  # kind of error by column and value
    "label": {"": "no label", "  ": "no label"},
    "stars": dict.fromkeys(["many", ""], "no number")
    | dict.fromkeys(["nan", "inf"], "no finite number"),
}


@pytest.mark.parametrize(
    ("column", "value", "kind"),
    [
        (column, value, kind)
        for column, values in BAD_TARGETS.items()
        for value, kind in values.items()
    ],
)
def test_bad_targets_raise_or_are_counted(folder, log, report, column, value, kind):
    good = [f"text,{column}", "a,0", "b,1"]
    data = folder(train_csv=[*good[:2], f"x,{value}", good[2]], dev_csv=good)
    target = {"label_column" if column == "label" else "score_column": column}
    settings = DataConfig(text_columns=("text",), **target)
    with pytest.raises(InputError, match=rf"train\.csv:3: {kind}: '{column}' is"):
        csv_task(data, settings, log)
    task = csv_task(data, settings, report)
    assert report.counts == {kind: 1}
    assert task.splits["train"].items == ["a", "b"]
    report.close()


def test_class_missing_in_train_is_an_error(folder, log, report):
    rows = rows_of({"a": 3, "b": 3})
    data = folder(train_csv=rows, dev_csv=[*rows, "x,c"])
    with pytest.raises(InputError, match=r"dev\.csv:8: .*'c'; known: 'a', 'b'"):
        csv_task(data, TABLE, log)
    assert len(csv_task(data, TABLE, report).splits["dev"]) == 6
    report.close()


def test_json_objects_without_text_or_label_are_errors(folder, log, report):
    good = [{"text": "a", "label": 1}, {"text": "b", "label": 0}]
    bad = [{"label": 1}, {"text": "c"}, {"text": None, "label": 1}]
    data = folder(
        train_jsonl=list(map(json.dumps, good + bad)),
        dev_jsonl=list(map(json.dumps, good)),
    )
    with pytest.raises(InputError, match=r"train\.jsonl:3: no text: without 'text'"):
        csv_task(data, TABLE, log)
    task = csv_task(data, TABLE, report)
    assert report.counts == {"no text": 2, "no label": 1}
    assert task.splits["train"] == Split(["a", "b"], ["1", "0"])
    report.close()


def test_places_are_stored_and_written_if_rows_are_missing(folder, report, tmp_path):
    rows = [*rows_of({"a": 3, "b": 3}), ",a,b"]
    whole = csv_task(folder(train_csv=rows, dev_csv=rows[:-1]), TABLE, report)
    assert whole.splits["dev"].places is None
    lossy = csv_task(
        folder(train_csv=rows, dev_csv=[rows[0], *rows[-2:]]), TABLE, report
    )
    assert [place.split("/")[-1] for place in lossy.splits["dev"].places] == [
        "dev.csv:2"
    ]
    split = csv_task(folder(train_csv=rows), TABLE, report)
    dev = split.splits["dev"]
    lines = (pathlib.Path(dev.places[0].split(":")[0])).read_text().splitlines()
    for item, place in zip(dev.items, dev.places, strict=True):
        assert item in lines[int(place.split(":")[1]) - 1]
    split.scorer.write(dev, ["b"] * len(dev), str(tmp_path / "dev"))
    written = (tmp_path / "dev.tsv").read_text().splitlines()
    assert written[0] == "index\tprediction\tplace"
    assert written[1:] == [f"{n}\tb\t{place}" for n, place in enumerate(dev.places)]
    report.close()


def test_bad_row_of_an_unlabelled_file_is_an_error(folder, report):
    rows = rows_of({"a": 3, "b": 3})
    data = folder(train_csv=rows, dev_csv=rows, test_csv=["text", "x", "y,z", "w"])
    with pytest.raises(InputError, match=r"test\.csv, with 1 bad rows"):
        csv_task(data, TABLE, report)
    report.close()


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"label_column": "label"}, "--text_columns=, "),
        ({"text_columns": ("text",)}, "--label_column=None"),
        ({"text_columns": ("a", "b", "c"), "label_column": "label"}, "a,b,c"),
        (
            {"text_columns": ("text",), "label_column": "label", "score_column": "x"},
            "--score_column=x",
        ),
        (
            {"text_columns": ("label",), "label_column": "label"},
            "--text_columns=label, --label_column=label",
        ),
        (
            {"text_columns": ("body",), "label_column": "label"},
            "train.csv without 'body'",
        ),
        ({"text_columns": ("text",), "label_column": "class"}, "without 'class'"),
    ],
)
def test_wrong_columns_are_an_error(folder, log, columns, words):
    data = folder(train_csv=rows_of({"a": 3, "b": 3}))
    with pytest.raises(InputError, match=words):
        csv_task(data, DataConfig(**columns), log)


def test_unusable_files_are_an_error(folder, log, tmp_path):
    with pytest.raises(InputError, match=r"--data .*train\.csv"):
        csv_task(str(tmp_path), TABLE, log)
    one_class = rows_of({"a": 30})
    with pytest.raises(InputError, match=r"'label'.*only \['a'\]"):
        csv_task(folder(train_csv=one_class), TABLE, log)
    one_score = ["text,stars", *(f"t{i},3" for i in range(30))]
    settings = DataConfig(text_columns=("text",), score_column="stars")
    with pytest.raises(InputError, match=r"'stars'.*all are 3\.0"):
        csv_task(folder(train_csv=one_score), settings, log)
    with pytest.raises(InputError, match=r"train\.tsv.*train\.csv"):
        csv_task(folder(train_tsv=one_class), TABLE, log)
    no_label = ["text,label", *("t,",) * 3]
    with pytest.raises(InputError, match="no label"):
        csv_task(f"{folder(x_csv=no_label)}/x.csv", TABLE, log)


def test_label_warnings_and_metrics_are_printed(folder, log):
    rows = rows_of({"0": 20, "1": 20, "nan": 2})
    lines = []
    csv_task(folder(train_csv=rows), TABLE, log, lines.append)
    assert any("train.csv: the label 'nan' (2 rows)" in line for line in lines)
    assert "held out as dev: 4 of 42 rows" in lines[1]
    assert "'nan'" in lines[2]
    assert "accuracy, mcc, macro_f1; " in lines[3]
    assert "3 classes" in lines[3]
    lines.clear()
    csv_task(folder(train_csv=rows[:-2]), TABLE, log, lines.append)
    assert len(lines) == 2
    assert "accuracy, mcc, f1; f1 is that of the class '1'" in lines[1]


def test_error_lists_only_some_of_a_thousand_classes(folder, log):
    rows = rows_of({f"c{n}": 3 for n in range(1000)})
    data = folder(train_csv=rows, dev_csv=["text,label", "x,other"])
    with pytest.raises(InputError, match="'c106', and 990 more") as caught:
        csv_task(data, TABLE, log)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("value", [{"en": "a"}, ["a"]])
def test_nested_json_values_are_an_error(folder, log, value):
    good = {"text": "a", "label": "x"}
    for column in good:
        rows = [json.dumps(good), json.dumps({**good, column: value})]
        with pytest.raises(InputError, match=f"jsonl:2: a nested value: '{column}'"):
            csv_task(folder(train_jsonl=rows), TABLE, log)


def test_chinese_reviews(data, log):
    path = str(data / "zh" / "ChnSentiCorp_htl_all.csv.gz")
    settings = DataConfig(text_columns=("review",), label_column="label")
    task = csv_task(path, settings, log)
    train, dev = task.splits["train"], task.splits["dev"]
    assert len(train) + len(dev) == 7766
    assert (dev.targets.count("1"), dev.targets.count("0")) == (532, 244)
    assert [*train.items, *dev.items].count("") == 1
    assert task.scorer.labels == ("0", "1")


def test_label_counts(folder, log):
    many = {f"class {number:02}": 3 for number in range(25)}
    rows = rows_of({"b": 1200, "a": 3, "NaN": 1})
    task = csv_task(folder(train_csv=rows, dev_csv=rows[:3]), TABLE, log)
    assert task.label_counts == "1 of class 'NaN', 3 of class 'a', 1,200 of class 'b'"
    task = csv_task(folder(train_csv=rows_of(many), dev_csv=rows_of(many)), TABLE, log)
    assert task.label_counts.endswith("3 of class 'class 19', and 5 more")


def table_of_splits(folder, words, name="all_csv"):
    rows = [f"{word},t{n},{'ab'[n % 2]}" for n, word in enumerate(words)]
    data = folder(**{name: ["split,text,label", *rows]})
    return f"{data}/{name.replace('_', '.')}"


@pytest.mark.parametrize("dev", ["dev", "valid", " Validation", "VAL"])
def test_a_column_of_splits_divides_one_table(folder, log, dev):
    settings = dataclasses.replace(TABLE, split_column="split")
    words = ["test", "train", dev, "train", dev, "test", "train"]
    path, lines = table_of_splits(folder, words), []
    task = csv_task(path, settings, log, lines.append)
    assert {name: split.items for name, split in task.splits.items()} == {
        "train": ["t1", "t3", "t6"], "dev": ["t2", "t4"], "test": ["t0", "t5"],
    }  # fmt: skip
    assert task.splits["test"].places == [f"{path}:2", f"{path}:7"]
    assert "train 3, dev 2, test 2" in lines[0]
    assert not any("is not used" in line for line in lines)


def test_a_column_of_splits_without_dev_and_errors(folder, log, report):
    settings = dataclasses.replace(TABLE, split_column="split")
    path = table_of_splits(folder, ["train"] * 30 + ["test"])
    task = csv_task(path, settings, log)
    assert {name: len(split) for name, split in task.splits.items()} == {
        "train": 26, "dev": 4, "test": 1,
    }  # fmt: skip
    path = table_of_splits(folder, ["train"] * 30 + ["", "eval"])
    with pytest.raises(InputError, match=r"all\.csv:32: no split: 'split' is ''"):
        csv_task(path, settings, log)
    assert len(csv_task(path, settings, report).splits["train"]) == 26
    assert report.counts == {"no split": 2}
    with pytest.raises(InputError, match="rows of train"):
        csv_task(table_of_splits(folder, ["test", "dev"]), settings, log)
    with pytest.raises(InputError, match="without 'split'"):
        csv_task(f"{folder(a_csv=rows_of({'a': 3}))}/a.csv", settings, log)
    with pytest.raises(InputError, match="--split_column=split"):
        csv_task(folder(train_csv=rows_of({"a": 3})), settings, log)


def test_an_unused_column_of_splits_is_reported(folder, log):
    for words, reported in (
        (["train", "dev", "Test "] * 5, True),
        (["train"] * 15, False),
        (["train", "dev", "other"] * 5, False),
        (["train", "", "test"] * 5, False),
    ):
        lines = []
        csv_task(table_of_splits(folder, words), TABLE, log, lines.append)
        assert any("--split_column=split" in line for line in lines) == reported


def test_labels_in_two_unicode_forms_are_reported(folder, log):
    lines, rows = [], rows_of({"caf\xe9": 20, "cafe\u0301": 20})
    csv_task(folder(train_csv=rows), TABLE, log, lines.append)
    assert r"'caf\xe9' (20 rows)" in lines[0] + lines[1]
    assert r"'cafe\u0301' (20 rows)" in lines[0] + lines[1]
    data = folder(train_csv=rows_of({"caf\xe9": 3, "a": 3}), dev_csv=rows[-2:])
    (pathlib.Path(data) / "dev.csv").write_text("text,label\nx,cafe\u0301\n", "utf-8")
    with pytest.raises(InputError, match=r"another spelling of 'caf\\xe9'"):
        csv_task(data, TABLE, log)
