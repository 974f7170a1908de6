"""Remedies that an error about data of a task spells out, done as they say.

Remedies that are other files or settings are in the tables of errors in tests/tasks.
"""

import json
import re
import shlex

import pytest
from absl import flags

from electra_tf.config.finetuning import DataConfig
from electra_tf.errors import InputError
from electra_tf.tasks.datasets import read_task
from electra_tf.text.data_errors import DataErrorLog

LABELS = ["a", "b"] * 10
TEXTS = [f"x, {n}" for n in range(20)]
COLUMNS = {"text_columns": ("text",), "label_column": "label"}


def texts(path, **settings):
    """Read a table without a warning; return its texts in order."""
    lines, config = [], DataConfig(**COLUMNS | settings)
    log = DataErrorLog("stop", "")
    task = read_task("csv", str(path), config, log, lines.append)
    assert not any("warning" in line for line in lines)
    items = [text for split in task.splits.values() for text in split.items]
    return sorted(items, key=lambda text: int(text[3:]))


def failure(path, **settings):
    """Return the remedy of the error."""
    with pytest.raises(InputError) as caught:
        texts(path, **settings)
    return caught.value.remedy


def table(path, *names, separator=",", values=(TEXTS, LABELS)):
    rows = [separator.join(f'"{v}"' for v in row) for row in zip(*values, strict=True)]
    path.write_text("\n".join([separator.join(names), *rows]) + "\n", "utf-8")
    return path


def flag_values(text, name):
    """Return the value of a flag in a message, as a shell and absl pass it."""
    for word in shlex.split(text.replace("; ", " ")):
        if word.startswith(f"--{name}="):
            value = word.removeprefix(f"--{name}=").rstrip(".")
            return tuple(flags.ListParser().parse(value))
    raise AssertionError(f"no --{name} in {text}")


@pytest.mark.parametrize(("name", "separator"), [("a.csv", "\t"), ("a.tsv", ",")])
@pytest.mark.parametrize("quote", ["", '"'])
def test_renaming_a_table_of_another_separator(tmp_path, name, separator, quote):
    names = (f"{quote}{n}{quote}" for n in ("text", "label"))
    path = table(tmp_path / name, *names, separator=separator)
    suffix = re.search(r"\.[ct]sv", failure(path))[0]
    assert texts(path.rename(path.with_suffix(suffix))) == TEXTS


@pytest.mark.parametrize("first", ["text", "\ufefftext"])
@pytest.mark.parametrize(("name", "separator"), [("a.tsv", ";"), ("a.csv", "|")])
def test_converting_a_table_of_another_separator(tmp_path, name, separator, first):
    pandas = pytest.importorskip("pandas")
    path = table(tmp_path / name, first, "label", separator=separator)
    command = failure(path).partition(": ")[2].replace("FILE", repr(str(path)))
    new = tmp_path / "NEW.csv"
    eval(command.replace("NEW.csv", str(new)), {"pandas": pandas})
    assert texts(new) == TEXTS


def test_quoting_a_name_with_a_comma(tmp_path):
    path = table(tmp_path / "a.csv", '"Text, clean"', "label")
    remedy = failure(
        path, text_columns=flag_values("--text_columns='Text, clean'", "text_columns")
    )
    assert texts(path, text_columns=flag_values(remedy, "text_columns")) == TEXTS


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_naming_the_column_of_splits(tmp_path, name):
    words = ["train"] * 12 + ["dev"] * 4 + ["test"] * 4
    names, path, lines = ("split", "text", "label"), tmp_path / name, []
    if name == "a.csv":
        table(path, *names, values=(words, TEXTS, LABELS))
    else:
        rows = zip(words, TEXTS, LABELS, strict=True)
        path.write_text(
            json.dumps([dict(zip(names, row, strict=True)) for row in rows])
        )
    config, log = DataConfig(**COLUMNS), DataErrorLog("stop", "")
    read_task("csv", str(path), config, log, lines.append)
    (line,) = [line for line in lines if "warning" in line]
    assert texts(path, split_column=flag_values(line, "split_column")[0]) == TEXTS
