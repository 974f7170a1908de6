"""Remedies that an error about data of a task spells out, done as they say.

Remedies that are other files or settings are in the tables of errors in tests/tasks.
"""

import json
import shlex

import pytest
import tiny
from absl import flags

from electra_tf.config.finetuning import DataConfig
from electra_tf.errors import InputError
from electra_tf.text.data_errors import DataErrorLog

LABELS = ["a", "b"] * 10
TEXTS = [f"x, {n}" for n in range(20)]
COLUMNS = {"text_columns": ("text",), "label_column": "label"}


def texts(path, **settings):
    """Read a table without a warning; return its texts in order."""
    lines, config = [], DataConfig(**COLUMNS | settings)
    log = DataErrorLog("stop", "")
    task = tiny.read_task("csv", str(path), config, log, lines.append)
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
    tiny.read_task("csv", str(path), config, log, lines.append)
    (line,) = [line for line in lines if "warning" in line]
    assert texts(path, split_column=flag_values(line, "split_column")[0]) == TEXTS
