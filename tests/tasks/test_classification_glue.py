"""The files of GLUE as classification tasks."""

import gzip

import numpy as np
import pytest
import tiny

from electra_tf.config.finetuning import DataConfig
from electra_tf.errors import InputError
from electra_tf.tasks.classifier import TextClassifier
from electra_tf.tasks.datasets import read_task
from electra_tf.tasks.splits import Split


def glue_task(name, data, log):
    return read_task(name, data, DataConfig(), log)


def write_glue(folder, **files):
    for name, rows in files.items():
        (folder / f"{name}.tsv").write_text("".join(f"{row}\n" for row in rows))
    return str(folder)


MRPC = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"
MRPC_ROWS = [MRPC, "1\t2\t3\tthe user\ta file", "0\t4\t5\tthe list\tof values"]


def test_unordered_pairs_are_trained_in_both_orders(tmp_path, log):
    test = ["index" + MRPC[7:], "0\t1\t2\tA\tB"]
    data = write_glue(tmp_path, train=MRPC_ROWS, dev=MRPC_ROWS, test=test)
    task = glue_task("mrpc", data, log)
    pairs = [("the user", "a file"), ("the list", "of values")]
    assert task.splits["train"] == task.splits["dev"] == Split(pairs, ["1", "0"])
    assert task.splits["test"] == Split([("A", "B")], None)
    assert (task.scorer.labels, task.monitor) == (("0", "1"), "dev_accuracy")
    model = task.model(tiny.start(), settings=tiny.settings(), seed=0)
    assert isinstance(model, TextClassifier)
    examples = task.training_examples(model)
    expected = model.examples([*pairs, *((b, a) for a, b in pairs)])
    assert list(examples.ids) == list(expected.ids)
    assert examples.targets == [1, 0, 1, 0]
    assert examples.ids[0] != examples.ids[2]
    settings = tiny.settings(data_double_unordered=False)
    model = task.model(tiny.start(), settings=settings, seed=0)
    assert len(task.training_examples(model)) == 2


def test_unknown_labels_and_scores_out_of_range_are_errors(tmp_path, log, report):
    bad = [*MRPC_ROWS[:2], "2\t4\t5\tC\tD", *MRPC_ROWS[2:]]
    data = write_glue(tmp_path, train=bad, dev=MRPC_ROWS)
    with pytest.raises(InputError, match=r"train\.tsv:3: an unk.*'2'; known: '0', '1'"):
        glue_task("mrpc", data, log)
    assert len(glue_task("mrpc", data, report).splits["train"]) == 2
    assert report.counts == {"an unknown label": 1}
    rows = ["sentence1\tsentence2\tscore", "a\tb\t5.000", "c\td\t5.1"]
    data = write_glue(tmp_path, train=rows, dev=rows)
    with pytest.raises(InputError, match=r"tsv:3: a score out.*from 0 to 5"):
        glue_task("stsb", data, log)
    report.close()


def test_mnli_has_two_dev_sets_and_the_diagnostic_set(tmp_path, log):
    dev = ["sentence1\tsentence2\tgold_label", "a\tb\tneutral", "c\td\tentailment"]
    test = ["index\tsentence1\tsentence2", "0\ta\tb"]
    files = {"train": dev, "dev_matched": dev, "test_matched": test}
    data = write_glue(tmp_path, **files)
    with pytest.raises(InputError, match=r"ax's diagnostic\.tsv"):
        glue_task("ax", data, log)
    files = {"dev_mismatched": dev, "test_mismatched": test, "diagnostic": test}
    write_glue(tmp_path, **files)
    for name in ("mnli", "ax"):
        task = glue_task(name, data, log)
        assert list(task.eval_splits) == ["dev_matched", "dev_mismatched"]
        assert {n for n, split in task.splits.items() if split.targets is None} == {
            "test_matched", "test_mismatched", "diagnostic"
        }  # fmt: skip
        assert task.monitor == "dev_matched_accuracy"


def test_missing_files_and_columns_are_errors(tmp_path, log):
    with pytest.raises(InputError, match=r"mrpc's train\.tsv"):
        glue_task("mrpc", str(tmp_path), log)
    data = write_glue(tmp_path, train=MRPC_ROWS)
    with pytest.raises(InputError, match=r"mrpc's dev\.tsv"):
        glue_task("mrpc", data, log)
    write_glue(tmp_path, dev=["#1 String\tQuality", "a\t1"])
    with pytest.raises(InputError, match=r"dev\.tsv without '#2 String'"):
        glue_task("mrpc", data, log)
    packed = gzip.compress("\n".join(MRPC_ROWS).encode())
    (tmp_path / "dev.tsv").unlink()
    (tmp_path / "dev.tsv.gz").write_bytes(packed)
    assert len(glue_task("mrpc", data, log).splits["dev"]) == 2


@pytest.mark.parametrize("name", ["cola", "rte", "stsb", "sst2", "wnli"])
def test_published_files_are_complete(data, log, name):
    task = glue_task(name, str(data / "glue"), log)
    assert list(task.splits) == ["train", "dev", "test"]
    if name == "stsb":
        assert task.unordered
        targets = task.splits["train"].targets
        assert (min(targets), max(targets)) == (0.0, 5.0)
        assert np.mean(targets) == pytest.approx(2.70, abs=0.01)
