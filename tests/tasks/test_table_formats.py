"""Lists of words and tags, and SQuAD's answers, in every format of tables."""

import csv
import json

import numpy as np
import pyarrow.parquet
import pytest
import tensorflow as tf

from electra_tf.config.finetuning import DataConfig
from electra_tf.errors import InputError
from electra_tf.runs import finetuning
from electra_tf.tasks.evaluation import evaluate_model
from tests import tiny

TAGGED = [
    {"id": "0", "tokens": ["The", "file", "1999"], "ner_tags": ["B-NP", "I-NP", "O"]},
    {"id": "1", "tokens": ["of", "it's"], "ner_tags": ["O", "B-NP"]},
    {"id": "2", "tokens": ["user"], "ner_tags": ["B-NP"]},
]
NAMES = ("O", "B-NP", "I-NP")
NUMBERED = [
    row | {"ner_tags": [NAMES.index(tag) for tag in row["ner_tags"]]} for row in TAGGED
]
SPANS = [
    {"text": "The file is", "entities": [{"start": 0, "end": 8, "label": "NP"}]},
    {"text": "of it", "entities": []},
]
CONTEXT = "in the user and of to"
ASKED = [
    {"id": str(n), "title": f"t{n}", "context": CONTEXT, "question": f"who {n}?",
     "answers": {"text": ["the user", "user"], "answer_start": [3, 7]}}
    for n in range(3)
]  # fmt: skip
UNANSWERED = [
    *ASKED,
    ASKED[0] | {"id": "x", "answers": {"text": [], "answer_start": []}},
]
FORMATS = {  # suffix, and how a list or an object is written in a cell
    "Parquet": (".parquet", None),
    "JSON": (".json", None),
    "JSON lines": (".jsonl", None),
    "CSV of JSON": (".csv", json.dumps),
    "TSV of JSON": (".tsv", json.dumps),
    "CSV of pandas": (".csv", str),  # with an index, whose column has no name
}
EACH = pytest.mark.parametrize("form", FORMATS)


def write_table(folder, stem, rows, form):
    suffix, cell = FORMATS[form]
    path = str(folder / (stem + suffix))
    if suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
        return path
    with open(path, "w", encoding="utf-8", newline="") as file:
        if cell is None:
            ends = ("[", ",", "]") if suffix == ".json" else ("", "\n", "\n")
            file.write(ends[0] + ends[1].join(map(json.dumps, rows)) + ends[2])
            return path
        rows = [
            {k: v if isinstance(v, str) else cell(v) for k, v in row.items()}
            for row in rows
        ]
        if form == "CSV of pandas":
            rows = [{"": str(index), **row} for index, row in enumerate(rows)]
        if suffix == ".tsv":
            lines = [rows[0].keys(), *(row.values() for row in rows)]
            file.write("".join("\t".join(line) + "\n" for line in lines))
            return path
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return path


@pytest.fixture
def train(tmp_path):
    """Return a function that reads rows in a form, as train and as dev of a task."""

    def of(name, rows, form, **settings):
        for stem in ("train", "dev"):
            write_table(tmp_path, stem, rows, form)
        return tiny.read_task(name, str(tmp_path), DataConfig(**settings))

    return of


@EACH
def test_a_tagger_is_trained_on_lists_and_on_texts_with_spans(train, form):
    words, tags = ([row[key] for row in TAGGED] for key in ("tokens", "ner_tags"))
    in_spans = [["The", "file", "is"], ["of", "it"]], [["B-NP", "E-NP", "O"], ["O"] * 2]
    for rows, names, *expected in (
        (TAGGED, (), words, tags),
        (NUMBERED, NAMES, words, tags),
        (SPANS, (), *in_spans),
    ):
        task = train("tagging", rows, form, tag_names=names)
        assert task.monitor == "dev_f1"
        for split in task.splits.values():
            found = zip(*((s.words, s.tags) for s in split.items), strict=True)
            assert [[list(one) for one in side] for side in found] == expected


@EACH
def test_a_tagger_is_scored_on_lists_and_predicts_for_them(
    saved_models, tmp_path, form
):
    model = saved_models["tagger"]
    tags = model.predict([row["tokens"] for row in TAGGED])
    rows = [{**r, "ner_tags": list(own)} for r, own in zip(TAGGED, tags, strict=True)]
    path = write_table(tmp_path, "a", rows, form)
    report, _ = evaluate_model(model, "tagging", path)
    assert (report["examples"], report["accuracy"]) == ({"data": 3}, 100)
    items = tiny.read_items(model, path)
    assert [list(item.words) for item in items.items] == [r["tokens"] for r in TAGGED]
    assert items.table.columns["id"] == ["0", "1", "2"]
    assert list(map(list, items.targets)) == list(map(list, tags))


@EACH
def test_questions_are_read_as_squad_is_published(train, form):
    located = train("squad1", ASKED, form).splits["dev"].targets
    assert [[(a.text, a.start) for a in own] for own in located] == [
        [("the user", 3), ("user", 7)]
    ] * 3
    task = train("squad2", UNANSWERED, form)
    assert [q.impossible for q in task.splits["train"].items] == [False] * 3 + [True]
    assert {q.context for q in task.splits["train"].items} == {CONTEXT}


@EACH
def test_an_answerer_is_scored_on_tables_and_predicts_for_them(
    saved_models, tmp_path, form
):
    model = saved_models["answerer"]
    path = write_table(tmp_path, "a", UNANSWERED, form)
    report, _ = evaluate_model(model, None, path)
    assert report["examples"] == {"data": 4}
    items = tiny.read_items(model, path)
    assert items.table.columns["id"] == [row["id"] for row in UNANSWERED]
    assert items.items == [(row["question"], CONTEXT) for row in UNANSWERED]


@pytest.mark.parametrize("form", ["Parquet", "CSV of JSON", "TSV of JSON"])
def test_a_word_in_each_row_is_no_text(saved_models, tmp_path, form):
    rows = [{"sentence_id": "0", "words": "EU", "labels": "B-NP"}] * 2
    path = write_table(tmp_path, "a", rows, form)
    with pytest.raises(InputError, match=r"the word 'EU' alone; .*\.conll"):
        tiny.read_items(saved_models["tagger"], path)


def test_a_text_in_brackets_is_a_text(saved_models, tmp_path):
    rows = [{"sentence": "(9)"}, {"sentence": "(a file)"}]
    path = write_table(tmp_path, "a", rows, "CSV of JSON")
    items = tiny.read_items(saved_models["tagger"], path, ["sentence"])
    assert [item.text for item in items.items] == ["(9)", "(a file)"]


BAD = {  # task, rows, form, words of the error
    "a row of a table": (
        "squad1", [ASKED[0], ASKED[1] | {"question": " "}], "CSV of JSON",
        r"train\.csv:3: `question`",
    ),
    "a row of Parquet": (
        "squad1", [ASKED[0], ASKED[1] | {"question": None}], "Parquet",
        r"train\.parquet:2: `question`",
    ),
    "answers that are no JSON": (
        "squad1", [ASKED[0] | {"answers": "user"}], "CSV of JSON",
        r"train\.csv:2: `answers` is 'user'",
    ),
    "a table of other columns": ("squad1", TAGGED, "Parquet", "'tokens'"),
    "a word on each line": (
        "tagging", [{"words": "The", "tags": "O"}], "CSV of JSON",
        r"train\.csv must .* no list in the columns 'words', 'tags'; .*\.conll",
    ),
    "words and tags in columns of other names": (
        "tagging", [{"Word": "The", "Tag": "O"}] * 2, "Parquet",
        r"train\.parquet must .* no list in the columns 'Word', 'Tag'; .*\.conll",
    ),
    "a list that is cut": (
        "tagging", [TAGGED[0] | {"tokens": "['a', 'b"}], "CSV of pandas", "csv.*tokens",
    ),
    "lists without commas": (
        "tagging", [{"tokens": "['a' 'b']", "tags": "['O' 'O']"}],
        "CSV of JSON", r"train\.csv:2: no sentence: 'tokens' is .*, not a list",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_errors_name_file_and_row(train, case):
    name, rows, form, words = BAD[case]
    with pytest.raises(InputError, match=words):
        train(name, rows, form)


def test_data_sets_of_tfds(tmp_path, monkeypatch):
    import tensorflow_datasets as tfds

    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    text, sequence = tfds.features.Text(), tfds.features.Sequence
    sets = {
        "tagged": (NUMBERED, {
            "id": text, "tokens": sequence(text),
            "ner_tags": sequence(tfds.features.ClassLabel(names=NAMES)),
        }),
        "asked": (ASKED, {
            "id": text, "title": text, "context": text, "question": text,
            "answers": sequence({"text": text, "answer_start": np.int32}),
        }),
    }  # fmt: skip
    for name, (rows, features) in sets.items():
        tfds.dataset_builders.store_as_tfds_dataset(
            name=name, version="1.0.0", data_dir=str(tmp_path),
            features=tfds.features.FeaturesDict(features),
            split_datasets={
                split: list(enumerate(rows[:count]))
                for split, count in (("train", 3), ("validation", 1))
            },
        )  # fmt: skip
    task = tiny.read_task("tagging", "tfds:tagged", DataConfig())
    assert {name: len(split) for name, split in task.splits.items()} == {
        "train": 3, "dev": 1,
    }  # fmt: skip
    found = {s.words: list(s.tags) for s in task.splits["train"].items}
    assert found == {tuple(row["tokens"]): row["ner_tags"] for row in TAGGED}
    whole = tiny.read_task("squad1", "tfds:asked@train", DataConfig())
    assert sum(map(len, whole.splits.values())) == 3
    assert {q.answers[0].start for q in whole.splits["train"].items} == {3}
    with pytest.raises(InputError, match="tfds build nothing"):
        tiny.read_task("tagging", "tfds:nothing", DataConfig())


@pytest.mark.runs
@pytest.mark.parametrize(("name", "rows"), [("tagging", TAGGED), ("squad1", ASKED)])
def test_taggers_and_answerers_are_fine_tuned_on_parquet(tmp_path, name, rows):
    rows = [row | {"id": f"{row['id']}{n}"} for row in rows for n in range(4)]
    path = write_table(tmp_path, "train", rows, "Parquet")
    output = str(tmp_path / "out")
    settings = tiny.settings(training_epochs=1, training_batch_size=4)
    devices = tf.distribute.get_strategy()
    trials = finetuning.run_task(
        name, path, tiny.start(), output, 1, lambda _: settings, devices
    )
    assert len(trials) == 1
    assert len(tiny.read_items(tiny.load(output), path)) == 12
