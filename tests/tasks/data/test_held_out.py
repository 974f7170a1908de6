"""Equal texts are on one side of every split, and are counted."""

import collections
import csv

import pytest

from electra_tf.config.finetuning import DataConfig
from electra_tf.errors import InputError
from electra_tf.tasks.data.splits import texts_of
from tests import tiny

TABLE = DataConfig(text_columns=("text",), label_column="label")


@pytest.fixture
def read(tmp_path):
    """Return a function that reads a task and returns it with what it printed."""

    def of(name, settings, **files):
        for stem, rows in files.items():
            with open(tmp_path / f"{stem}.csv", "w", newline="") as file:
                writer = csv.DictWriter(file, list(rows[0]))
                writer.writeheader()
                writer.writerows(rows)
        data = tmp_path if len(files) > 1 else tmp_path / f"{stem}.csv"
        lines = []
        return tiny.read_task(name, str(data), settings, lines.append), lines

    return of


def rows_of(count, **more):
    return [{"text": f"Text {n}.", "label": "xy"[n % 2], **more} for n in range(count)]


def normal(item):
    return tuple("".join(text.lower().split()) for text in texts_of(item))


def sides(task):
    return [set(map(normal, task.splits[name].items)) for name in ("train", "dev")]


def test_a_table_that_is_written_twice_has_each_text_on_one_side(read):
    again = [row | {"text": row["text"].upper() + " "} for row in rows_of(200)]
    for seed in range(3):
        settings = DataConfig(**vars(TABLE) | {"split_seed": seed})
        task, lines = read("csv", settings, all=rows_of(200) + again)
        train, dev = sides(task)
        assert not train & dev
        assert collections.Counter(task.splits["dev"].targets) == {"x": 20, "y": 20}
        assert lines[1] == (
            "csv: 200 of 400 rows repeat the texts of others, and are on the same side "
            "of train and dev"
        )


def test_a_text_of_many_rows_does_not_fill_dev(read):
    many = [{"text": "ok", "label": "x"}] * 100
    for seed in range(5):
        settings = DataConfig(**vars(TABLE) | {"split_seed": seed})
        task, _ = read("csv", settings, all=rows_of(100) + many)
        assert 0 < len(task.splits["dev"]) < 40
        assert not set.intersection(*sides(task))


def test_without_different_texts_there_is_no_dev(read):
    with pytest.raises(InputError, match=r"two different rows or more.* 2 rows of 2"):
        read("csv", TABLE, all=rows_of(2) * 10)


def test_equal_texts_with_different_labels_are_counted_with_an_example(read):
    other = [{"text": "text  0 .", "label": "y"}, {"text": "TEXT 2.", "label": "y"}]
    _, lines = read("csv", TABLE, all=rows_of(40) + other)
    [line] = (line for line in lines if "different labels" in line)
    assert "2 texts have different labels" in line
    assert "'Text 0.': 'x' at " in line
    assert "all.csv:2, 'y' at " in line
    assert line.endswith("all.csv:42")


def test_texts_of_given_files_that_train_has_are_counted(read):
    rows = rows_of(40)
    files = {"train": rows[:30], "dev": rows[28:], "test": rows[:2] + rows[35:]}
    _, lines = read("csv", TABLE, **files)
    assert any("2 of 12 rows of dev have texts of train" in line for line in lines)
    assert any("2 of 7 rows of test have texts of train" in line for line in lines)
    _, lines = read("csv", TABLE, train=rows[:30], dev=rows[30:], test=rows[30:])
    assert not any("texts of" in line for line in lines)
    column = DataConfig(**vars(TABLE) | {"split_column": "split"})
    split = [row | {"split": ("train", "dev")[n > 20]} for n, row in enumerate(rows)]
    _, lines = read("csv", column, all=[*split, rows[0] | {"split": "dev"}])
    assert any("1 of 20 rows of dev have texts of train" in line for line in lines)


def test_choices_and_sentences_are_on_one_side(read):
    choice = DataConfig(text_columns=("text", "question", "a", "b"))
    more = {"question": "?", "a": "yes", "b": "no"}
    rows = [row | {"label": "0"} for row in rows_of(60, **more)]
    task, lines = read("choice", choice, all=rows * 2)
    assert not set.intersection(*sides(task))
    assert any("60 of 120 rows repeat" in line for line in lines)
    rows = [{"tokens": f'["a", "b{n}"]', "tags": '["O", "B-X"]'} for n in range(60)]
    tagging = DataConfig(text_columns=("tokens",), label_column="tags")
    task, lines = read("tagging", tagging, all=rows * 2)
    assert not set.intersection(*sides(task))
    assert any("60 of 120 sentences repeat" in line for line in lines)
