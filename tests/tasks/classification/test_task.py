import json
import pathlib

import numpy as np
import pytest

from electra_tf.config.finetuning import DataConfig
from electra_tf.errors import InputError
from electra_tf.tasks.classification.model import TextRegressor
from electra_tf.tasks.classification.task import ClassificationTask, csv_task
from electra_tf.tasks.task import Split
from tasks import tiny

TABLE = DataConfig(text_columns=("text",), label_column="label")


@pytest.fixture
def folder(tmp_path):
    """Writes files of one folder and returns it."""

    def of(**files):
        for name, rows in files.items():
            stem, _, kind = name.rpartition("_")
            text = rows if isinstance(rows, str) else "\n".join(rows) + "\n"
            (tmp_path / "data").mkdir(exist_ok=True)
            (tmp_path / "data" / f"{stem}.{kind}").write_text(text, "utf-8")
        return str(tmp_path / "data")

    return of


def rows_of(counts, header="text,label"):
    """A row for each, of each class as many as told, in the order of the classes."""
    rows = [f"{label} {i},{label}" for label, n in counts.items() for i in range(n)]
    return [header, *rows]


# Any table.


def test_a_folder_with_dev_and_test(folder, log):
    data = folder(
        train_csv=["text,label", "a,yes", ",no", '"b, c",yes'],
        dev_tsv=["label\ttext", 'no\t"d', "yes\t"],
        test_jsonl=[json.dumps({"text": "e"})],
    )
    task = csv_task(data, TABLE, log)
    # An empty text is one.
    assert task.splits["train"] == Split(["a", "", "b, c"], ["yes", "no", "yes"])
    assert task.splits["dev"] == Split(['"d', ""], ["no", "yes"])
    assert task.splits["test"] == Split(["e"], None)
    assert task.labels == ("no", "yes")
    assert (task.metric, task.monitor) == ("accuracy", "dev_accuracy")
    assert task.metrics == ("accuracy", "mcc", "macro_f1")
    assert set(task.eval_splits) == {"dev"}


def test_a_labelled_test_file_is_measured_too(folder, log):
    rows = ["a,b,label", "x,y,1", "z,w,0"]
    data = folder(train_csv=rows, dev_csv=rows, test_csv=rows)
    pairs = DataConfig(text_columns=("a", "b"), label_column="label")
    task = csv_task(data, pairs, log)
    assert list(task.eval_splits) == ["dev", "test"]
    assert task.splits["test"] == Split([("x", "y"), ("z", "w")], ["1", "0"])
    assert task.metrics == ("accuracy", "mcc", "f1")
    assert not task.unordered


@pytest.mark.parametrize("share", [0.1, 0.25])
def test_each_class_gives_its_share_where_there_is_no_dev_file(folder, log, share):
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
    for part in (train, dev):  # in the file's order, with the right labels
        assert [item.split()[0] for item in part.items] == list(part.targets)
        assert list(part.targets) == sorted(part.targets)
    assert list(task.splits) == ["train", "dev"]


def test_the_split_is_its_seeds(folder, log):
    path = f"{folder(all_csv=rows_of({'a': 100, 'b': 100}))}/all.csv"
    found = [
        csv_task(
            path,
            DataConfig(text_columns=("text",), label_column="label", split_seed=seed),
            log,
        ).splits["dev"].items
        for seed in (0, 0, 1)
    ]  # fmt: skip
    assert found[0] == found[1]
    assert 0 < len(set(found[0]) & set(found[2])) < 15


def test_no_class_leaves_the_training_data(folder, log):
    rows = rows_of({"a": 100, "b": 1, "c": 2})
    settings = DataConfig(text_columns=("text",), label_column="label", dev_share=0.9)
    task = csv_task(f"{folder(all_csv=rows)}/all.csv", settings, log)
    assert task.labels == ("a", "b", "c")
    targets = list(task.splits["train"].targets)
    assert [targets.count(label) for label in "abc"] == [10, 1, 1]


def test_a_test_file_stays_where_dev_is_split_off(folder, log):
    data = folder(train_csv=rows_of({"a": 50, "b": 50}), test_csv=["text", "x", "y"])
    task = csv_task(data, TABLE, log)
    assert {name: len(part) for name, part in task.splits.items()} == {
        "train": 90, "dev": 10, "test": 2
    }  # fmt: skip
    assert task.splits["test"].targets is None


def test_scores(folder, log):
    rows = ["text,stars", "a,1", "b,4.5", "c,-2"]
    data = folder(train_csv=rows, dev_csv=["text,stars", "d,9", "e,0"])
    settings = DataConfig(text_columns=("text",), score_column="stars")
    task = csv_task(data, settings, log)
    assert task.labels is None
    assert task.bounds == (-2.0, 4.5)
    assert task.splits["train"].targets == [1.0, 4.5, -2.0]
    assert task.splits["dev"].targets == [9.0, 0.0]
    assert task.metrics == ("spearman", "pearson", "mse")
    scores = task.score(task.splits["dev"], np.float32([8.0, 0.5]))
    assert scores == pytest.approx({"spearman": 100, "pearson": 100, "mse": 0.625})
    assert task.answers(np.float32([8.0, 1e-6])) == ["0\t8", "1\t1e-06"]
    assert isinstance(task.model(tiny.start(), tiny.settings(), 0), TextRegressor)


def test_a_dev_part_of_scores_is_split_off(folder, log):
    data = folder(train_csv=["text,stars", *(f"t{i},{i}" for i in range(30))])
    settings = DataConfig(text_columns=("text",), score_column="stars")
    parts = csv_task(data, settings, log).splits
    assert (len(parts["train"]), len(parts["dev"])) == (27, 3)
    for part in parts.values():
        assert [float(item[1:]) for item in part.items] == part.targets


BAD = {  # what stands beside good rows: its kind
    "label": {"": "no label", "  ": "no label"},
    "stars": dict.fromkeys(["many", ""], "no number")
    | dict.fromkeys(["nan", "inf"], "no finite number"),
}


@pytest.mark.parametrize(
    ("column", "value", "kind"),
    [(column, value, kind) for column in BAD for value, kind in BAD[column].items()],
)
def test_bad_targets_stop_or_are_counted(folder, log, report, column, value, kind):
    good = [f"text,{column}", "a,0", "b,1"]
    data = folder(train_csv=[*good[:2], f"x,{value}", good[2]], dev_csv=good)
    named = {"label_column" if column == "label" else "score_column": column}
    settings = DataConfig(text_columns=("text",), **named)
    with pytest.raises(InputError, match=rf"train\.csv:3: {kind}: '{column}' is"):
        csv_task(data, settings, log)
    task = csv_task(data, settings, report)
    assert report.counts == {kind: 1}
    assert task.splits["train"].items == ["a", "b"]
    report.close()


def test_a_class_that_only_dev_has_is_told(folder, log, report):
    rows = rows_of({"a": 3, "b": 3})
    data = folder(train_csv=rows, dev_csv=[*rows, "x,c"])
    with pytest.raises(InputError, match=r"dev\.csv:8: .*'c'; known: 'a', 'b'"):
        csv_task(data, TABLE, log)
    assert len(csv_task(data, TABLE, report).splits["dev"]) == 6
    report.close()


def test_objects_without_a_text_or_a_label_are_told(folder, log, report):
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


def test_rows_are_found_again_where_their_numbers_are_not_the_files(
    folder, report, tmp_path
):
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
    split.write(dev, np.eye(2)[[1] * len(dev)], str(tmp_path / "dev"))
    written = (tmp_path / "dev.tsv").read_text().splitlines()
    assert written[0] == "index\tprediction\tplace"
    assert written[1:] == [f"{n}\tb\t{place}" for n, place in enumerate(dev.places)]
    report.close()


def test_no_row_of_an_unlabelled_file_is_left_out(folder, report):
    rows = rows_of({"a": 3, "b": 3})
    data = folder(train_csv=rows, dev_csv=rows, test_csv=["text", "x", "y,z", "w"])
    with pytest.raises(InputError, match=r"test\.csv, with 1 bad ones"):
        csv_task(data, TABLE, report)
    report.close()


@pytest.mark.parametrize(
    ("named", "words"),
    [
        ({"label_column": "label"}, "one or two of text"),
        ({"text_columns": ("text",)}, "--label_column=None"),
        ({"text_columns": ("a", "b", "c"), "label_column": "label"}, "a,b,c"),
        (
            {"text_columns": ("text",), "label_column": "label", "score_column": "x"},
            "--score_column=x",
        ),
        (
            {"text_columns": ("label",), "label_column": "label"},
            "another one of labels",
        ),
        (
            {"text_columns": ("body",), "label_column": "label"},
            "train.csv without 'body'",
        ),
        ({"text_columns": ("text",), "label_column": "class"}, "without 'class'"),
    ],
)
def test_columns_that_are_missing_or_too_many_are_told(folder, log, named, words):
    data = folder(train_csv=rows_of({"a": 3, "b": 3}))
    with pytest.raises(InputError, match=words):
        csv_task(data, DataConfig(**named), log)


def test_files_that_do_not_make_a_task_are_told(folder, log, tmp_path):
    with pytest.raises(InputError, match="no such file"):
        csv_task(str(tmp_path), TABLE, log)
    one = rows_of({"a": 30})
    with pytest.raises(InputError, match=r"only \['a'\]"):
        csv_task(folder(train_csv=one), TABLE, log)
    same = ["text,stars", *(f"t{i},3" for i in range(30))]
    settings = DataConfig(text_columns=("text",), score_column="stars")
    with pytest.raises(InputError, match=r"stars: all are 3\.0"):
        csv_task(folder(train_csv=same), settings, log)
    with pytest.raises(InputError, match=r"train\.tsv.*train\.csv"):
        csv_task(folder(train_tsv=one), TABLE, log)
    no_label = ["text,label", *("t,",) * 3]
    with pytest.raises(InputError, match="no label"):
        csv_task(f"{folder(x_csv=no_label)}/x.csv", TABLE, log)


def test_what_is_wrong_with_labels_and_how_they_are_scored_is_printed(folder, log):
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


def test_a_thousand_classes_are_not_listed(folder, log):
    rows = rows_of({f"c{n}": 3 for n in range(1000)})
    data = folder(train_csv=rows, dev_csv=["text,label", "x,other"])
    with pytest.raises(InputError, match="'c106', and 990 more") as caught:
        csv_task(data, TABLE, log)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("value", [{"en": "a"}, ["a"]])
def test_nested_values_are_no_texts_and_no_labels(folder, log, value):
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
    assert task.labels == ("0", "1")


# What is said of predictions.

ODDS = np.array([[0.9, 0.1], [0.2, 0.8], [0.4, 0.6], [0.7, 0.3]])
GOLD = Split(["a", "b", "c", "d"], ["no", "yes", "no", "no"])
CLASSES = ClassificationTask(
    "csv", {"train": GOLD, "dev": GOLD}, ("accuracy", "mcc", "f1"), ("no", "yes")
)
SCORED = Split("abc", [0.0, 2.0, 5.0])
SCORES = ClassificationTask(
    "stsb", {"train": SCORED, "dev": SCORED}, ("spearman", "mse"), None, (0.0, 5.0)
)


def test_scores_of_classes_by_hand():
    # One of three right "no" is missed: 3 of 4, and 1 right of 2 "yes" that were said.
    mcc = (1 * 2 - 1 * 0) / (2 * 1 * 3 * 2) ** 0.5
    expected = {"accuracy": 75, "mcc": 100 * mcc, "f1": 100 * 2 / 3}
    assert CLASSES.score(GOLD, ODDS) == pytest.approx(expected)


def test_the_classes_of_training_are_counted(folder, log):
    many = {f"class {number:02}": 3 for number in range(25)}
    rows = rows_of({"b": 1200, "a": 3, "NaN": 1})
    task = csv_task(folder(train_csv=rows, dev_csv=rows[:3]), TABLE, log)
    assert task.label_counts == "1 of class 'NaN', 3 of class 'a', 1,200 of class 'b'"
    task = csv_task(folder(train_csv=rows_of(many), dev_csv=rows_of(many)), TABLE, log)
    assert task.label_counts.endswith("3 of class 'class 19', and 5 more")
    assert SCORES.label_counts == ""


def test_what_is_written_is_glues_form(tmp_path):
    CLASSES.write(GOLD, ODDS, str(tmp_path / "dev"))
    assert (tmp_path / "dev.tsv").read_text() == (
        "index\tprediction\n0\tno\n1\tyes\n2\tyes\n3\tno\n"
    )
    assert SCORES.answers(np.float32([-0.2, 2.34567, 5.5])) == [
        "0\t0", "1\t2.34567", "2\t5"
    ]  # fmt: skip


def test_scores_beyond_their_bounds_are_measured_as_submitted():
    scores = SCORES.score(SCORED, np.float32([-1.0, 2.0, 7.0]))
    assert scores == pytest.approx({"spearman": 100, "mse": 0})


def test_a_model_that_learnt_nothing_is_told():
    assert CLASSES.degenerate(GOLD, ODDS) is None
    always = np.tile([0.4, 0.6], (4, 1))
    assert CLASSES.degenerate(GOLD, always) == "always predicts yes"
    same = Split(["a", "b"], ["yes", "yes"])
    assert CLASSES.degenerate(same, always[:2]) is None
    part = SCORES.splits["dev"]
    assert SCORES.degenerate(part, np.float32([1, 2, 3])) is None
    assert SCORES.degenerate(part, np.float32([2.5] * 3)) == "always predicts 2.5"
    broken = SCORES.degenerate(part, np.float32([1, np.nan, 3]))
    assert "no finite number for 1 of 3" in broken
