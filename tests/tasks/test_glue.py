"""The table of GLUE tasks, and the reader of their files and TFDS copies."""

import gzip

import pytest

from electra_tf.config.finetuning import DataConfig
from electra_tf.errors import InputError
from electra_tf.tasks import glue
from electra_tf.tasks.datasets import read_task
from electra_tf.text.data_errors import DataErrorLog

# Rows of the leaderboard's test files, and epochs of the paper (appendix B).
PUBLISHED = {
    "cola": (1063, 3), "sst2": (1821, 3), "mrpc": (1725, 3), "stsb": (1379, 10),
    "qqp": (390_965, 3), "qnli": (5463, 3), "rte": (3000, 10), "wnli": (146, 3),
    "ax": (1104, 3), "mnli": (9796 + 9847, 3),
}  # fmt: skip
# Documented rows of the files in the test data.
ROWS = {
    ("cola", "train"): 8551, ("cola", "dev"): 1043, ("cola", "test"): 1063,
    ("sst2", "train"): 67_349, ("sst2", "dev"): 872, ("sst2", "test"): 1821,
    ("mrpc", "train"): 3668, ("mrpc", "dev"): 408, ("mrpc", "test"): 1725,
    ("stsb", "train"): 5749, ("stsb", "dev"): 1500, ("stsb", "test"): 1379,
    ("qnli", "dev"): 5463, ("qnli", "test"): 5463, ("rte", "train"): 2490,
    ("rte", "dev"): 277, ("rte", "test"): 3000, ("wnli", "train"): 635,
    ("wnli", "dev"): 71, ("wnli", "test"): 146, ("ax", "diagnostic"): 1104,
    ("mnli", "dev_matched"): 9815,
}  # fmt: skip
FIRST_ROWS = {  # texts and label of the first training row
    "cola": (
        "Our friends won't buy this analysis, let alone the next one we propose.", "1",
    ),
    "stsb": ("A plane is taking off.", "An air plane is taking off.", "5.000"),
}  # fmt: skip
DEV_LABELS = {  # rows of each class in dev sets
    "mnli": {"contradiction": 3213, "entailment": 3479, "neutral": 3123},
    "cola": {"0": 322, "1": 721},
    "mrpc": {"0": 129, "1": 279},
    "sst2": {"0": 428, "1": 444},
}


def make_log(tmp_path, on_error="stop"):
    return DataErrorLog(on_error, tmp_path / "problems.txt", "Data is good")


def test_table_equals_the_publication():
    assert set(glue.TASKS) == set(PUBLISHED)
    for name, (rows, epochs) in PUBLISHED.items():
        task = glue.TASKS[name]
        assert sum(task.files.values()) == rows, name
        assert len(task.files) == len(task.test)
        assert task.epochs == epochs
    assert glue.TASKS["mnli"].files == {"MNLI-m": 9796, "MNLI-mm": 9847}
    first_metrics = {name: task.metrics[0] for name, task in glue.TASKS.items()}
    others = {"cola": "mcc", "stsb": "spearman", "ax": "mcc"}
    assert first_metrics == dict.fromkeys(PUBLISHED, "accuracy") | others
    unordered = {name for name, task in glue.TASKS.items() if task.unordered}
    assert unordered == {"mrpc", "stsb"}
    assert glue.TASKS["mnli"].labels == ("contradiction", "entailment", "neutral")
    assert glue.TASKS["rte"].labels == ("entailment", "not_entailment")
    assert glue.TASKS["stsb"].labels is None
    assert glue.TASKS["stsb"].range == (0.0, 5.0)


@pytest.mark.parametrize(("name", "stem"), ROWS)
def test_published_files_are_read_completely(data, tmp_path, name, stem):
    task, log = glue.TASKS[name], make_log(tmp_path)
    path = glue.require(str(data / "glue"), name, stem)
    assert path == glue.find(str(data / "glue" / task.folder), name, stem)
    rows = glue.read(path, name, log)
    assert len(rows) == ROWS[name, stem]
    assert all(row.values[column] for row in rows for column in task.texts)
    if "test" in stem or stem == "diagnostic":
        assert task.label not in rows[0].values
        return
    labels = [row.values[task.label] for row in rows]
    if task.labels is None:
        assert {float(label) <= 5 for label in labels} == {True}
    else:
        assert set(labels) == set(task.labels)
    if stem == "train" and name in FIRST_ROWS:
        row = rows[0].values
        assert (*[row[c] for c in task.texts], row[task.label]) == FIRST_ROWS[name]
    if stem != "train" and name in DEV_LABELS:
        assert {label: labels.count(label) for label in set(labels)} == DEV_LABELS[name]


def test_only_the_test_file_of_cola_has_a_header(tmp_path):
    (tmp_path / "CoLA").mkdir()
    (tmp_path / "CoLA" / "dev.tsv").write_text('gj04\t1\t\t"A" b.\ngj04\t0\t*\tC d.\n')
    (tmp_path / "CoLA" / "test.tsv").write_text("index\tsentence\n0\tE f.\n")
    rows = glue.read(
        glue.require(str(tmp_path), "cola", "dev"), "cola", make_log(tmp_path)
    )
    assert [(r.line, r.values["label"], r.values["sentence"]) for r in rows] == [
        (1, "1", '"A" b.'),
        (2, "0", "C d."),
    ]
    path = glue.require(str(tmp_path), "cola", "test")
    (row,) = glue.read(path, "cola", make_log(tmp_path))
    assert row.values == {"index": "0", "sentence": "E f."}


def test_byte_order_mark_is_removed(tmp_path):
    text = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n1\t2\t3\tA\tB\r\n"
    (tmp_path / "dev.tsv.gz").write_bytes(gzip.compress(text.encode()))
    path = glue.require(str(tmp_path), "mrpc", "dev")
    (row,) = glue.read(path, "mrpc", make_log(tmp_path))
    assert row.values == {
        "Quality": "1", "#1 ID": "2", "#2 ID": "3", "#1 String": "A", "#2 String": "B"
    }  # fmt: skip


def test_find_accepts_the_folder_of_glue_or_of_the_task(tmp_path):
    folder = tmp_path / "RTE"
    folder.mkdir()
    assert glue.find(str(tmp_path), "rte", "train") is None
    (folder / "train.tsv.xz").write_text("x")
    assert glue.find(str(tmp_path), "rte", "train") == f"{folder}/train.tsv.xz"
    assert glue.find(str(folder), "rte", "train") == f"{folder}/train.tsv.xz"
    (folder / "train.tsv").write_text("x")
    assert glue.find(str(tmp_path), "rte", "train") == f"{folder}/train.tsv"
    with pytest.raises(InputError, match=r"rte's dev\.tsv.*RTE"):
        glue.require(str(tmp_path), "rte", "dev")


def test_find_accepts_one_file_with_some_columns(tmp_path):
    for name in ("dev_matched.tsv.bak", "dev_matched.tsv.gz.partial"):
        (tmp_path / name).write_text("x")
    assert glue.find(str(tmp_path), "mnli", "dev_matched") is None
    reduced = tmp_path / "dev_matched.reduced.tsv.gz"
    reduced.write_text("x")
    assert glue.find(str(tmp_path), "mnli", "dev_matched") == str(reduced)
    (tmp_path / "dev_matched.half.tsv").write_text("x")
    with pytest.raises(InputError, match=r"half\.tsv, dev_matched\.reduced\.tsv\.gz"):
        glue.find(str(tmp_path), "mnli", "dev_matched")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Prepare TFDS's GLUE with a few invented rows."""
    import tensorflow_datasets as tfds

    folder = tmp_path_factory.mktemp("tfds")
    rows = {
        "mrpc": ("sentence1", "sentence2", [1, 0, 1, 0]),
        "mnli": ("premise", "hypothesis", [2, 0, 1, 0]),
        "wnli": ("sentence1", "sentence2", [0, 1, 1, 1]),
        "stsb": ("sentence1", "sentence2", [0.0, 3.8, 5.0, 2.5]),
        "qqp": ("question1", "question2", [0, 1, 1, 1]),
    }
    dev = {"mnli": ("validation_matched", "test_matched")}
    with pytest.MonkeyPatch.context() as patch:
        for name, (first, second, labels) in rows.items():
            builder = tfds.builder(f"glue/{name}", data_dir=folder, try_gcs=False)

            def examples(names=(first, second), labels=labels):
                for i, label in enumerate(labels):
                    texts = {column: f"{column} {i}" for column in names}
                    yield i, texts | {"label": label, "idx": i}

            splits = ("train", *dev.get(name, ("validation", "test")))
            generators = {split: examples for split in splits}
            patch.setattr(
                type(builder),
                "_split_generators",
                lambda self, manager, generators=generators: {
                    split: generate() for split, generate in generators.items()
                },
            )
            builder.download_and_prepare()
    return str(folder)


@pytest.mark.parametrize(
    ("name", "stem", "texts", "labels"),
    [
        ("mrpc", "train", "sentence1 sentence2", ["1", "0", "1", "0"]),
        ("wnli", "dev", "sentence1 sentence2", ["0", "1", "1", "1"]),
        ("stsb", "dev", "sentence1 sentence2", ["0.0", "3.8", "5.0", "2.5"]),
        ("qqp", "test", "question1 question2", ["0", "1", "1", "1"]),
        (
            "mnli",
            "dev_matched",
            "premise hypothesis",
            ["contradiction", "entailment", "neutral", "entailment"],
        ),
    ],
)
def test_tfds_rows_have_the_published_names(
    prepared, monkeypatch, tmp_path, name, stem, texts, labels
):
    monkeypatch.setenv("TFDS_DATA_DIR", prepared)
    task = glue.TASKS[name]
    path = glue.find("tfds:glue", name, stem)
    assert path == glue.require("tfds:glue/", name, stem)
    rows = glue.read(path, name, make_log(tmp_path))
    # In the order of the published file; TFDS shuffles.
    values = [tuple(row.values[c] for c in (*task.texts, task.label)) for row in rows]
    first, second = texts.split()
    assert values == [
        (f"{first} {i}", f"{second} {i}", label) for i, label in enumerate(labels)
    ]


def test_unprepared_tfds_data_is_missing_or_an_error(prepared, monkeypatch, tmp_path):
    monkeypatch.setenv("TFDS_DATA_DIR", prepared)
    assert glue.find("tfds:glue", "mnli", "dev_mismatched") is None
    assert glue.find("tfds:glue", "ax", "diagnostic") is None
    path = glue.require("tfds:glue", "cola", "train")
    with pytest.raises(InputError, match="tfds build glue/cola"):
        glue.read(path, "cola", make_log(tmp_path))


def test_csv_task_reads_tfds(prepared, monkeypatch, tmp_path):
    monkeypatch.setenv("TFDS_DATA_DIR", prepared)
    columns = DataConfig(text_columns=("sentence1",), label_column="label")
    task = read_task("csv", "tfds:glue/wnli", columns, make_log(tmp_path))
    assert task.scorer.labels == ("entailment", "not_entailment")
    assert set(task.splits) == {"train", "dev", "test"}
    assert set(task.splits["train"].items) == {f"sentence1 {i}" for i in range(4)}
    assert len(task.splits["dev"]) == 4


def test_spaces_around_a_label_are_removed(tmp_path):
    rows = [f"{n},{'ab'[n % 2]}{' ' * (n % 3)}\n" for n in range(40)]
    (tmp_path / "TEXTS.CSV").write_text("text,kind\n" + "".join(rows))
    columns = DataConfig(text_columns=("text",), label_column="kind")
    task = read_task("csv", str(tmp_path / "TEXTS.CSV"), columns, make_log(tmp_path))
    assert task.scorer.labels == ("a", "b")
