"""The table of GLUE tasks, the files and TFDS copies, and the leaderboard's zip."""

import zipfile

import pytest

from electra_tf.errors import InputError
from electra_tf.tasks.data import glue
from electra_tf.tasks.data.table import read

# Leaderboard's files with their rows, and epochs of the paper (appendix B).
PUBLISHED = {
    "cola": ({"CoLA": 1063}, 3), "sst2": ({"SST-2": 1821}, 3),
    "mrpc": ({"MRPC": 1725}, 3), "stsb": ({"STS-B": 1379}, 10),
    "qqp": ({"QQP": 390_965}, 3), "qnli": ({"QNLI": 5463}, 3),
    "rte": ({"RTE": 3000}, 10), "wnli": ({"WNLI": 146}, 3), "ax": ({"AX": 1104}, 3),
    "mnli": ({"MNLI-m": 9796, "MNLI-mm": 9847}, 3),
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


def test_the_table_equals_the_publication():
    tasks = glue.TASKS
    assert {n: (dict(t.files), t.epochs) for n, t in tasks.items()} == PUBLISHED
    assert all(len(task.files) == len(task.test) for task in tasks.values())
    first_metrics = {name: task.metrics[0] for name, task in tasks.items()}
    others = {"cola": "mcc", "stsb": "spearman", "ax": "mcc"}
    assert first_metrics == dict.fromkeys(PUBLISHED, "accuracy") | others
    assert {n for n, task in tasks.items() if task.unordered} == {"mrpc", "stsb"}
    assert tasks["mnli"].labels == ("contradiction", "entailment", "neutral")
    assert tasks["rte"].labels == ("entailment", "not_entailment")
    assert (tasks["stsb"].labels, tasks["stsb"].bounds) == (None, (0.0, 5.0))


@pytest.mark.parametrize(("name", "stem"), ROWS)
def test_published_files_are_read_completely(data, name, stem):
    task = glue.TASKS[name]
    path = glue.find(str(data / "glue"), name, stem, is_required=True)
    assert path == glue.find(str(data / "glue" / task.folder), name, stem)
    rows = glue.read(path, name)
    assert len(rows) == ROWS[name, stem]
    assert all(all(rows.texts(column)) for column in task.texts)
    if "test" in stem or stem == "diagnostic":
        assert task.target not in rows.columns
        return
    labels = rows.texts(task.target)
    if task.labels is None:
        assert {float(label) <= 5 for label in labels} == {True}
    else:
        assert set(labels) == set(task.labels)
    if stem == "train" and name in FIRST_ROWS:
        columns = (*task.texts, task.target)
        assert tuple(rows.texts(c)[0] for c in columns) == FIRST_ROWS[name]
    if stem != "train" and name in DEV_LABELS:
        assert {label: labels.count(label) for label in set(labels)} == DEV_LABELS[name]


def test_only_the_test_file_of_cola_has_a_header(write):
    path = write("dev.tsv", '\ufeffgj04\t1\t\t"A" b.\r\ngj04\t0\t*\tC d.\r\n')
    rows = glue.read(path, "cola")
    assert list(rows.lines) == [1, 2]
    assert rows.texts("label") == ["1", "0"]
    assert rows.texts("sentence") == ['"A" b.', "C d."]
    rows = glue.read(write("test.tsv", "index\tsentence\n0\tE f.\n"), "cola")
    assert {n: rows.texts(n) for n in rows.columns} == {
        "index": ["0"],
        "sentence": ["E f."],
    }


def test_find_accepts_the_folder_of_glue_or_of_the_task(write, tmp_path):
    data, folder = str(tmp_path), str(tmp_path / "RTE")
    assert glue.find(data, "rte", "train") is None
    for name in ("train.tsv.xz", "train.tsv"):  # a plain file comes first
        path = write(f"RTE/{name}", "x")
        assert glue.find(data, "rte", "train") == path
        assert glue.find(folder, "rte", "train") == path
    with pytest.raises(InputError, match=r"rte's dev\.tsv.*RTE"):
        glue.find(data, "rte", "dev", is_required=True)


def test_find_accepts_one_file_with_some_columns(write, tmp_path):
    for name in ("dev_matched.tsv.bak", "dev_matched.tsv.gz.partial"):
        write(name, "x")
    assert glue.find(str(tmp_path), "mnli", "dev_matched") is None
    reduced = write("dev_matched.reduced.tsv.gz", "x")
    assert glue.find(str(tmp_path), "mnli", "dev_matched") == reduced
    write("dev_matched.half.tsv", "x")
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
        "wnli": ("sentence1", "sentence2", [0, 1, 1, -1]),
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
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TFDS_DATA_DIR", str(folder))
        yield


@pytest.mark.parametrize(
    ("name", "stem", "texts", "labels"),
    [
        ("mrpc", "train", "sentence1 sentence2", ["1", "0", "1", "0"]),
        ("wnli", "dev", "sentence1 sentence2", ["0", "1", "1", ""]),
        ("stsb", "dev", "sentence1 sentence2", ["0", "3.8", "5", "2.5"]),
        ("qqp", "test", "question1 question2", ["0", "1", "1", "1"]),
        (
            "mnli",
            "dev_matched",
            "premise hypothesis",
            ["contradiction", "entailment", "neutral", "entailment"],
        ),
    ],
)
def test_tfds_rows_have_the_published_names(prepared, name, stem, texts, labels):
    task = glue.TASKS[name]
    path = glue.find("tfds:glue", name, stem)
    assert path == glue.find("tfds:glue/", name, stem, is_required=True)
    rows = glue.read(path, name)
    # In the order of the published file; TFDS shuffles.
    columns = (*task.texts, task.target)
    values = list(zip(*map(rows.texts, columns), strict=True))
    assert values == [
        (*(f"{text} {i}" for text in texts.split()), label)
        for i, label in enumerate(labels)
    ]


def test_unprepared_tfds_data_is_missing_or_an_error(prepared):
    assert glue.find("tfds:glue", "mnli", "dev_mismatched") is None
    assert glue.find("tfds:glue", "ax", "diagnostic") is None
    for name, split, words in (
        ("glue/mrpc", "dev", "'dev' of the data set 'glue/mrpc'"),
        ("glue/mrpc@train", "test", "'train@test' of the data set 'glue/mrpc'"),
    ):
        with pytest.raises(InputError, match=words):
            read(f"tfds:{name}@{split}")


# The leaderboard's zip.

FILES = {name: rows for files, _ in PUBLISHED.values() for name, rows in files.items()}


def test_the_zip_has_predictions_and_constants(tmp_path):
    assert glue.submission_files()["MNLI-mm"][:2] == ("mnli", "test_mismatched")
    assert glue.submission_files()["AX"][:2] == ("ax", "diagnostic")
    predictions = {"RTE": ["entailment", "not_entailment"] * 1500}
    for name in "ab":
        filled = glue.write_submission(tmp_path / name, predictions)
        assert set(filled) == set(FILES) - {"RTE"}
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    with zipfile.ZipFile(tmp_path / "a") as archive:
        names = {entry.filename for entry in archive.infolist()}
        assert names == {f"{name}.tsv" for name in FILES}
        lines = {n: archive.read(f"{n}.tsv").decode().splitlines() for n in FILES}
    for name, rows in FILES.items():
        assert lines[name][0] == "index\tprediction"
        assert len(lines[name]) == rows + 1
        assert lines[name][-1].startswith(f"{rows - 1}\t")
    assert lines["RTE"][1:3] == ["0\tentailment", "1\tnot_entailment"]
    assert lines["MNLI-m"][1] == "0\tcontradiction"
    assert lines["STS-B"][1] == "0\t0.000"
