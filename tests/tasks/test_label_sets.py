"""Texts with any number of classes: targets, loss, metrics, files, tables, formats."""

import dataclasses
import json

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from sklearn import metrics

import electra_tf
from electra_tf import TextClassifier
from electra_tf.errors import InputError
from electra_tf.runs.conversion import convert_checkpoint
from electra_tf.runs.exporting import load_exportable
from electra_tf.tasks import registry
from electra_tf.tasks.class_report import format_class_report
from electra_tf.tasks.data.splits import Split
from electra_tf.tasks.metrics import LABEL_SET_METRICS
from electra_tf.tasks.score import ScoredSplit
from tests import tiny

LABELS = ("good", "in", "long")
TEXTS, _ = tiny.texts(30, seed=3)
SETS = [
    [name for name, applies in zip(LABELS, row, strict=True) if applies]
    for row in ((tiny.GOOD in t, "in" in t.split(), len(t) > 40) for t in TEXTS)
]
ROWS = np.array([[label in names for label in LABELS] for names in SETS], np.int64)


def new(seed=1, **settings):
    settings = tiny.settings(**tiny.NO_DROPOUT, **settings)
    start = tiny.start(depth=2)
    return TextClassifier(start, LABELS, settings, seed, multi_label=True)


@pytest.fixture(scope="module")
def model():
    model = new()
    model.fit(TEXTS, SETS, epochs=2)
    for kernel in model.encoder.trainable_variables:  # texts differ in probabilities
        if len(kernel.shape) == 2:
            kernel.assign(kernel * 10)
    bias, odds = (
        model.head.dense.bias,
        model.predict(TEXTS) / (1 - model.predict(TEXTS)),
    )
    bias.assign(bias - np.log(odds).mean(0))
    return model


@pytest.fixture(scope="module")
def probabilities(model):
    return model.predict(TEXTS)


@pytest.fixture(scope="module")
def expected(model):
    return model.evaluate(TEXTS, SETS)


def test_loss_and_accuracy_are_those_of_independent_classes(model, probabilities):
    result = model.evaluate(TEXTS, SETS, return_dict=True)
    flat = ROWS.ravel(), probabilities.ravel().astype(np.float64)
    np.testing.assert_allclose(result["loss"], metrics.log_loss(*flat), rtol=1e-5)
    predicted = probabilities > 0.5
    exact = metrics.accuracy_score(ROWS, predicted)
    np.testing.assert_allclose(result["subset_accuracy"], exact, rtol=1e-6)
    names = [tuple(np.array(LABELS)[row]) for row in predicted]
    assert model.labels_of(probabilities) == names
    assert len(set(names)) > 2


@pytest.mark.parametrize(
    "y",
    [
        ROWS, ROWS.astype(bool), ROWS.tolist(), pd.DataFrame(ROWS), pd.Series(SETS),
        [set(names) for names in SETS], [np.array(names) for names in SETS],
        [[name.encode() for name in names] for names in SETS],
    ],
)  # fmt: skip
def test_targets_in_any_container(y, model, expected):
    assert model.evaluate(TEXTS, y) == expected


def test_columns_of_a_frame_are_classes_by_name(model, expected):
    frame = pd.DataFrame(ROWS, columns=model.labels)
    assert model.evaluate(TEXTS, frame[sorted(model.labels, reverse=True)]) == expected
    assert list(frame) != sorted(model.labels, reverse=True)


def test_ids_take_rows(model, expected):
    ids = model.examples(TEXTS).batch(range(30), 30)[0]
    np.testing.assert_allclose(model.evaluate(ids, ROWS), expected, rtol=1e-5)
    for y in (ROWS[:, :2], ROWS[:, 0]):
        with pytest.raises(InputError, match="row of 3"):
            model.evaluate(ids, y)


@pytest.mark.parametrize(
    ("target", "named"),
    [
        (["Good"], "'Good'; known: 'good'"),
        (["good", 1], "not names"),
        ("good", "not a list"),
        ({"good": 0, "in": 1, "the": 0}, "not a list"),
        (None, "not a list"),
        ([0, 2, 1], "zeros and ones"),
        ([1, 0], "zeros and ones"),
        ([["good"]], "not names"),
    ],
)
def test_other_targets_are_named_with_their_index(target, named, model):
    with pytest.raises(InputError, match=f"at index 1: .*{named}"):
        model.evaluate(TEXTS[:3], [[], target, ["in"]])


def test_class_weights_are_refused(model):
    with pytest.raises(InputError, match="sample_weight"):
        model.fit(TEXTS, SETS, class_weight={"good": 2.0})


def test_saved_and_converted_models_keep_their_classes(model, probabilities, tmp_path):
    model.save(tmp_path / "model.keras")
    for same in (
        electra_tf.load_model(tmp_path / "model.keras"),
        TextClassifier.from_preset(tmp_path / "model.keras"),
    ):
        np.testing.assert_array_equal(same.predict(TEXTS), probabilities)
    with pytest.raises(InputError, match="leave out multi_label=False"):
        TextClassifier.from_preset(tmp_path / "model.keras", multi_label=False)
    pooled = new(model_pooler="gelu")
    pooled.save(tmp_path / "pooled.keras")
    convert_checkpoint(tmp_path / "pooled.keras", tmp_path / "theirs", "huggingface")
    path = tmp_path / "theirs" / "config.json"
    config = json.loads(path.read_text())
    assert config["problem_type"] == "multi_label_classification"
    config.pop("electra_tf")
    path.write_text(json.dumps(config))
    back = TextClassifier.from_preset(tmp_path / "theirs")
    assert (back.multi_label, back.labels) == (True, LABELS)
    np.testing.assert_array_equal(back.predict(TEXTS), pooled.predict(TEXTS))


def test_exports_name_the_classes_that_apply(model, probabilities, tmp_path):
    model.save(tmp_path / "model.keras")
    spec = load_exportable(str(tmp_path / "model.keras"))
    outputs = spec.text["serving_default"](tf.constant(TEXTS))
    np.testing.assert_allclose(outputs["probabilities"], probabilities, atol=1e-6)
    served = [[label.decode() for label in row if label] for row in
              outputs["labels"].numpy()]  # fmt: skip
    assert served == [list(names) for names in model.labels_of(probabilities)]
    assert "label" not in outputs


def test_scores_of_files_and_reports(tmp_path):
    gold = [("a",), (), ("b", "a"), ("c",)]
    predicted = [("a",), ("b",), ("a", "b"), ()]
    probabilities = [[0.9, 0.1, 0.1], [0.1, 0.6, 0.2], [0.8, 0.7, 0.1], [0.2, 0.1, 0.3]]
    model = TextClassifier(tiny.start(), list("abc"), multi_label=True)
    task, split = registry.of(model), Split(list("wxyz"), gold)
    scored = ScoredSplit(task, model, split, probabilities, LABEL_SET_METRICS)
    scores = scored.scores
    assert scores["micro_f1"] == pytest.approx(100 * 2 * 3 / (4 + 4))
    assert scores["macro_f1"] == pytest.approx(100 * (1 + 2 / 3 + 0) / 3)
    assert scores["subset_accuracy"] == 50
    report = scored.classes
    assert report["classes"]["b"] == {
        "precision": 50, "recall": 100, "f1": pytest.approx(200 / 3), "support": 1,
    }  # fmt: skip
    assert "confusion matrix" not in format_class_report(report)
    assert scored.predictions == [tuple(sorted(p)) for p in predicted]
    mistakes = scored.mistakes
    assert [m[:3] for m in mistakes] == [("z", "c", ""), ("x", "", "b")]
    assert [m.size for m in mistakes] == pytest.approx([0.7, 0.6])
    task.write(scored, str(tmp_path / "dev"))
    lines = (tmp_path / "dev.tsv").read_text().splitlines()
    assert lines[1:] == ["0\ta", "1\tb", "2\ta;b", "3\t"]
    assert scored.degenerate is None
    for details, words in (([0, 0, 0], "no class"), ([1, 1, 0], "'a', 'b'")):
        constant = dataclasses.replace(scored, details=[details] * 4)
        assert words in constant.degenerate


# Tables.


def read(tmp_path, text, suffix="csv", **settings):
    """Read a table of a command, with what it printed."""
    (tmp_path / f"data.{suffix}").write_text(text, encoding="utf-8")
    columns = {"data_text_columns": ("text",), "data_label_column": "labels"}
    config = tiny.settings(**columns, **settings).data
    lines = []
    path = str(tmp_path / f"data.{suffix}")
    return tiny.read_task("csv", path, config, lines.append), "\n".join(lines)


TABLE = "text,labels,split\n" + "".join(
    f"text {n},{cell},{'dev' if n % 4 == 0 else 'train'}\n"
    for n, cell in enumerate(["b; a", "", "a", " c ;b;;b", "a;b"] * 4)
)


def test_cells_are_sets_of_classes(tmp_path):
    data, printed = read(
        tmp_path, TABLE, data_label_separator=";", data_split_column="split"
    )
    model = data.model(tiny.start(), settings=tiny.settings())
    assert (model.labels, model.multi_label) == (("a", "b", "c"), True)
    assert data.splits["dev"].targets[:2] == [("b", "a"), ("a", "b")]
    assert data.splits["train"].targets[:3] == [(), ("a",), ("c", "b")]
    assert "micro_f1" in printed
    assert "3 of class 'c'" in data.label_counts
    assert "3 of no class" in data.label_counts
    assert data.monitor == "dev_micro_f1"


def test_lists_of_json_are_sets_of_classes(tmp_path):
    rows = [["b", "a"], [], None, ["a"], ["b", 1]] * 4
    lines = [json.dumps({"text": f"t {n}", "labels": r}) for n, r in enumerate(rows)]
    for options in ({}, {"data_label_separator": ";"}):
        data, _ = read(tmp_path, "\n".join(lines), "jsonl", **options)
        targets = [t for split in data.splits.values() for t in split.targets]
        assert sorted(set(targets)) == [(), ("a",), ("b", "1"), ("b", "a")]
    lines.append(json.dumps({"text": "t", "labels": "a"}))
    data, _ = read(tmp_path, "\n".join(lines), "jsonl")
    assert ("a",) in data.splits["train"].targets


LISTS = {  # the cells of ["b", "a"], [] and ["it's; c"]
    "Python": ["['b', 'a']", "[]", '["it\'s; c"]'],
    "JSON": ['["b", "a"]', " [] ", '["it\\u0027s; c"]'],
    "tuples": ["('b', 'a')", "()", '("it\'s; c",)'],
    "sets": ["{'b', 'a'}", "set()", '{"it\'s; c"}'],
    "empty cells": ["['b','a']", "", "['it\\'s; c']"],
}


def list_table(cells):
    quoted = ['"' + cell.replace('"', '""') + '"' for cell in cells]
    return "text,labels\n" + "".join(f"t{n},{c}\n" for n, c in enumerate(quoted))


@pytest.mark.parametrize(
    ("form", "options"),
    [*((form, {}) for form in LISTS), ("JSON", {"data_label_separator": ","})],
)
def test_a_cell_with_a_list_is_a_set_of_classes(tmp_path, form, options):
    data, printed = read(tmp_path, list_table(LISTS[form] * 5), **options)
    targets = {t for split in data.splits.values() for t in split.targets}
    assert set(map(frozenset, targets)) == {
        frozenset("ab"),
        frozenset(),
        frozenset(["it's; c"]),
    }
    model = data.model(tiny.start(), settings=tiny.settings())
    assert (model.labels, model.multi_label) == (("a", "b", "it's; c"), True)
    assert ("'labels' are lists" in printed) == (not options)


def test_lists_of_numbers_are_names(tmp_path):
    data, _ = read(tmp_path, list_table(["[2, 27]", "[ 2]", "[0]"] * 5))
    assert data.model.keywords["labels"] == ["0", "2", "27"]


def test_cells_that_are_no_lists_are_names_of_classes(tmp_path):
    cells = ["['a", "(a)", "('a')", "(1)", "{}", "[a]", "['a' b]", "['a'],['b']"]
    data, printed = read(tmp_path, list_table(cells * 3))
    assert data.model.keywords["labels"] == sorted(cells)
    assert "lists" not in printed


def test_a_plain_cell_beside_lists_is_a_list_of_one_class(tmp_path):
    table = list_table(["['a', 'b']", "c", ""] * 9)
    data, printed = read(tmp_path, table)
    assert "1 of 2 different ones, such as 'c', lists of one class" in printed
    assert data.model.keywords["labels"] == ["a", "b", "c"]
    targets = {t for split in data.splits.values() for t in split.targets}
    assert targets == {("a", "b"), ("c",), ()}
    separated = read(tmp_path, table, data_label_separator=",")[0]
    assert separated.splits == data.splits
    with pytest.raises(InputError, match=r"data.csv:29.* 'c;d'.*--label_separator"):
        read(tmp_path, table + "t,c;d\n")


@pytest.mark.parametrize("cell", ["['a', b]", "['a'", "(a)", "{a}"])
@pytest.mark.parametrize("options", [{}, {"data_label_separator": ","}])
def test_a_broken_list_beside_lists_is_named_with_its_row(tmp_path, cell, options):
    table = list_table(["['a', 'b']", "a", cell])
    with pytest.raises(InputError) as error:
        read(tmp_path, table, **options)
    assert "data.csv:4: a broken list" in str(error.value)
    assert repr(cell) in str(error.value)


def test_a_part_of_each_rarest_class_is_held_out(tmp_path):
    cells = ["a"] * 40 + ["a;b"] * 20 + [""] * 20
    table = "text,labels\n" + "".join(f"t{n},{c}\n" for n, c in enumerate(cells))
    data, _ = read(tmp_path, table, data_label_separator=";")
    held = data.splits["dev"].targets
    assert [held.count(t) for t in (("a",), ("a", "b"), ())] == [4, 2, 2]


def test_unknown_classes_are_named_with_their_row(tmp_path):
    table = TABLE + "text,a;A,dev\n"
    options = {"data_label_separator": ";", "data_split_column": "split"}
    with pytest.raises(InputError, match=r":22: .*'labels' is 'A'; known"):
        read(tmp_path, table, **options)


@pytest.mark.runs
def test_the_commands_train_score_and_predict(pretrained, tmp_path, here):
    (tmp_path / "data.csv").write_text(TABLE)
    flags = [
        "--task=csv", f"--data={tmp_path / 'data.csv'}", f"--checkpoint={pretrained}",
        f"--output={tmp_path / 'out'}", "--text_columns=text", "--label_column=labels",
        "--set=training.epochs=2", "--set=data.max_length=16",
    ]  # fmt: skip
    result = here("finetune", *flags, "--label_separator=;", "--split_column=split")
    assert result.returncode == 0, result.stderr
    assert "dev_subset_accuracy" in result.stdout
    data = f"--data={tmp_path / 'data.csv'}"
    scored = here("evaluate", f"--model={tmp_path / 'out'}", data)
    assert scored.returncode == 0, scored.stderr
    report = json.loads(scored.stdout.splitlines()[-1])
    assert list(report["classes"]["dev"]["classes"]) == ["a", "b", "c"]
    (tmp_path / "in.txt").write_text("text 1\n")
    inputs = f"--model={tmp_path / 'out'}", f"--input={tmp_path / 'in.txt'}"
    record = json.loads(here("predict", *inputs, "--format=jsonl").stdout)
    above = [name for name, p in record["probabilities"].items() if p > 0.5]
    assert record["labels"] == above
    line = here("predict", *inputs).stdout.removesuffix("\n")
    assert line == ";".join(above)
