"""Remedies of errors and warnings about files, each followed to a success."""

import gzip
import json
import re
import shlex

import pytest
from absl import flags

from electra_tf.config.finetuning import DataConfig
from electra_tf.errors import InputError
from electra_tf.tasks.datasets import read_task
from electra_tf.tasks.tables import read_table
from electra_tf.text.data_errors import DataErrorLog

LABELS = ["a", "b"] * 10
COLUMNS = {"text_columns": ("text",), "label_column": "label"}


def log():
    return DataErrorLog("stop", "", "Data must be valid")


def table(path, header, separator, row='"x, {0}"{1}{2}'):
    rows = [row.format(n, separator, label) for n, label in enumerate(LABELS)]
    path.write_text("\n".join([header, *rows]) + "\n", "utf-8")
    return path


def flag_values(text, name):
    """Return the value of a flag in a message, as a shell and absl pass it."""
    for word in shlex.split(text.replace("; ", " ")):
        if word.startswith(f"--{name}="):
            value = word.removeprefix(f"--{name}=").rstrip(".")
            return tuple(flags.ListParser().parse(value))
    raise AssertionError(f"no --{name} in {text}")


def texts(path, **settings):
    lines = []
    task = read_task(
        "csv", str(path), DataConfig(**COLUMNS | settings), log(), lines.append
    )
    items = [text for split in task.splits.values() for text in split.items]
    assert not any("warning" in line for line in lines)
    return sorted(items)


EXPECTED = sorted(f"x, {n}" for n in range(20))


@pytest.mark.parametrize(
    ("name", "separator"), [("a.csv", "\t"), ("a.tsv", ","), ("b.csv", "\t")]
)
@pytest.mark.parametrize("quote", ["", '"'])
def test_renaming_a_table_of_another_separator(tmp_path, name, separator, quote):
    header = separator.join(f"{quote}{n}{quote}" for n in ("text", "label"))
    path = table(tmp_path / name, header, separator)
    with pytest.raises(InputError) as caught:
        texts(path)
    suffix = re.search(r"\.[ct]sv", caught.value.remedy)[0]
    assert texts(path.rename(path.with_suffix(suffix))) == EXPECTED


@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize(("name", "separator"), [("a.tsv", ";"), ("a.csv", "|")])
def test_converting_a_table_of_another_separator(tmp_path, name, separator, mark):
    pandas = pytest.importorskip("pandas")
    path = table(tmp_path / name, f"{mark}text{separator}label", separator)
    with pytest.raises(InputError) as caught:
        texts(path)
    command = caught.value.remedy.partition(": ")[2]
    command = command.replace("FILE", repr(str(path)))
    new = tmp_path / "NEW.csv"
    eval(command.replace("NEW.csv", str(new)), {"pandas": pandas})
    assert texts(new) == EXPECTED


def test_quoting_a_name_with_a_comma(tmp_path):
    path = table(tmp_path / "a.csv", '"Text, clean",label', ",")
    wrong = tuple(flags.ListParser().parse("Text, clean"))
    with pytest.raises(InputError) as caught:
        texts(path, text_columns=wrong)
    names = flag_values(caught.value.remedy, "text_columns")
    assert texts(path, text_columns=names) == EXPECTED


@pytest.mark.parametrize(
    ("header", "follow"),
    [
        (" text,label", lambda h: h.replace(" ", "")),
        ("te\u0301xt,label", None),
        ("text，label", lambda h: h.replace("，", ",")),
    ],
)
def test_correcting_the_first_line(tmp_path, header, follow):
    path = table(tmp_path / "a.csv", header, ",")
    wanted = {"text_columns": ("t\xe9xt",)} if follow is None else {}
    with pytest.raises(InputError) as caught:
        texts(path, **wanted)
    if follow is None:
        assert ascii("t\xe9xt") in caught.value.remedy
    content = path.read_text("utf-8")
    fixed = content.replace("te\u0301xt", "t\xe9xt") if follow is None else None
    first, _, rest = content.partition("\n")
    path.write_text(fixed or f"{follow(first)}\n{rest}", "utf-8")
    assert texts(path, **wanted) == EXPECTED


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_naming_the_column_of_splits(tmp_path, name):
    words = ["train"] * 12 + ["dev"] * 4 + ["test"] * 4
    rows = zip(words, EXPECTED, LABELS, strict=True)
    keys, path, lines = ("split", "text", "label"), tmp_path / name, []
    if name.endswith("csv"):
        text = "\n".join([",".join(keys), *(f'{s},"{t}",{n}' for s, t, n in rows)])
    else:
        text = "\n".join(json.dumps(dict(zip(keys, r, strict=True))) for r in rows)
    path.write_text(text + "\n")
    read_task("csv", str(path), DataConfig(**COLUMNS), log(), lines.append)
    (line,) = [line for line in lines if "warning" in line]
    (column,) = flag_values(line, "split_column")
    assert texts(path, split_column=column) == EXPECTED


def test_using_one_spelling_of_a_label(tmp_path):
    rows = [f"x,{label}" for label in ["caf\xe9", "cafe\u0301", '"""a"""', "b"] * 6]
    path, lines = tmp_path / "a.csv", []
    path.write_text("\n".join(["text,label", *rows]) + "\n", "utf-8")
    read_task("csv", str(path), DataConfig(**COLUMNS), log(), lines.append)
    assert sum("warning" in line for line in lines) == 2
    content = path.read_text("utf-8").replace("e\u0301", "\xe9").replace('"""', "")
    path.write_text(content, "utf-8")
    assert texts(path) == ["x"] * 24


TAGS = {"tokens": ["the", "of"], "ner_tags": [1, 0], "pos_tags": ["D", "P"]}


def test_naming_keys_and_tags_of_json(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join([json.dumps(TAGS)] * 20))
    changes, task = {}, None
    for _ in range(2):
        with pytest.raises(InputError) as caught:
            read_task("tagging", str(path), DataConfig(**changes), log())
        for name in ("text_columns", "label_column", "tag_names"):
            if f"--{name}=" in caught.value.remedy:
                values = flag_values(caught.value.remedy.replace(" (of", "; "), name)
                changes[name] = values[0] if name == "label_column" else values
    task = read_task("tagging", str(path), DataConfig(**changes), log())
    assert {tag for tags in task.splits["train"].targets for tag in tags} == {
        "O", "B-PER",
    }  # fmt: skip


def test_writing_keys_within_an_object_as_columns(tmp_path):
    pandas = pytest.importorskip("pandas")
    path = tmp_path / "a.jsonl"
    records = [{"review": {"text": t}, "label": n} for t, n in zip(EXPECTED, LABELS)]  # noqa: B905
    path.write_text("\n".join(map(json.dumps, records)))
    columns = {"text_columns": ("review.text",)}
    with pytest.raises(InputError, match="json_normalize"):
        texts(path, **columns)
    frame = pandas.json_normalize(records)
    frame.to_json(path, orient="records", lines=True)
    assert texts(path, **columns) == EXPECTED


def test_writing_records_on_lines(tmp_path):
    path = tmp_path / "a.json.gz"
    records = [{"text": t, "label": n} for t, n in zip(EXPECTED, LABELS, strict=True)]
    path.write_bytes(gzip.compress(json.dumps(records).encode()[:-1]))
    with pytest.raises(InputError, match="own line"):
        read_table(str(path), log())
    path.write_bytes(gzip.compress("\n".join(map(json.dumps, records)).encode()))
    assert texts(path) == EXPECTED
