"""Scores of saved models on labelled files, and errors for other data."""

import dataclasses
import shutil

import numpy as np
import pytest

from electra_tf import sources
from electra_tf.errors import InputError
from electra_tf.tasks import evaluation, registry
from electra_tf.tasks.evaluation import evaluate_model
from tests import tiny
from tests.conftest import GOLDEN

SAVED = GOLDEN / "saved"
TEXTS = ["the file of the user", "with the file", "in and on", "of the", "for to"]


@pytest.fixture
def models(saved_models):
    return saved_models


@pytest.fixture
def evaluate(models):
    """Return a function that scores a golden model: report and notes."""

    def of(kind, data, **columns):
        notes, task = [], sources.open_source(SAVED / kind).task
        report, _ = evaluate_model(models[kind], task, str(data), columns, notes.append)
        return report, notes

    return of


@pytest.fixture
def best(models):
    """Return the best label of each text."""
    model = models["classifier"]
    return [model.labels[n] for n in np.argmax(model.predict(TEXTS), -1)]


def csv(targets, columns=("text", "label")):
    rows = [columns, *zip(TEXTS, targets, strict=True)]
    return "".join(",".join(row) + "\n" for row in rows)


def test_a_classifier_is_scored_with_its_labels_and_columns(
    evaluate, write, models, best
):
    labels = models["classifier"].labels
    wrong = [labels[(labels.index(label) + 1) % len(labels)] for label in best[:2]]
    report, _ = evaluate("classifier", write("new.csv", csv([*wrong, *best[2:]])))
    assert (report["task"], report["examples"]) == ("csv", {"data": 5})
    assert report["accuracy"] == pytest.approx(60)
    assert f"{'accuracy':<28}{60:>12.5f}" in evaluation.format_report(report)
    path = write("other.csv", csv(best, ("t", "kind")))
    columns = {"text_columns": ["t"], "label_column": "kind"}
    assert evaluate("classifier", path, **columns)[0]["accuracy"] == 100


def test_texts_of_training_are_counted_as_equal_texts_are(write, models, best):
    model, notes = models["classifier"], []
    rows = model.examples(["THE  File", "Of the", "other"]).hashes()
    path = write("new.csv", csv(best) + f"the file,{best[0]}\n")
    evaluate_model(model, "csv", path, {}, notes.append, rows)
    (note,) = [note for note in notes if "trained on" in note]
    assert "the texts of 2 of the 6 examples of data" in note


def test_a_regressor_of_pairs_is_scored(evaluate, write, models):
    model = models["regressor"]
    stored = registry.of(model).stored_columns(None, model)
    assert (len(stored.text_columns), stored.label_column) == (2, "score")
    scores = model.predict([(text, "the file") for text in TEXTS])
    values = [f"the file,{score + 1:.6f}" for score in scores]
    names = stored.text_columns[0], f"{stored.text_columns[1]},score"
    path = write("new.csv", csv(values, names))
    assert evaluate("regressor", path)[0]["mse"] == pytest.approx(1, abs=1e-3)
    path = write("new.csv", csv(values, names).replace("score", "stars"))
    assert evaluate("regressor", path, score_column="stars")[0]["mse"] > 0
    with pytest.raises(InputError, match="2 columns"):
        evaluate("regressor", path, text_columns=["text"])
    for flag in ("score_column", "label_separator"):
        with pytest.raises(InputError, match=f"--{flag} has no effect"):
            evaluate("classifier", path, **{flag: "stars"})


def test_a_tagger_is_scored_on_columns_and_numbers_of_tags(evaluate, write, models):
    words = [text.split() for text in TEXTS]
    tags = models["tagger"].predict(words)
    names = sorted({tag for sentence in tags for tag in sentence})
    rows = list(zip(words, tags, strict=True))
    lines = [f"{w} {t}\n" for row in rows for w, t in zip(*row, strict=True)]
    assert evaluate("tagger", write("new.txt", "".join(lines)))[0]["accuracy"] == 100
    records = [
        {"tokens": w, "x": list(map(names.index, t)), "tags": 0} for w, t in rows
    ]
    path = write("new.jsonl", records)
    columns = {"text_columns": ["tokens"], "label_column": "x"}
    report, _ = evaluate("tagger", path, **columns, tag_names=names)
    assert report["accuracy"] == 100
    with pytest.raises(InputError, match=r"new\.jsonl:1: .*'x' has .*--tag_names"):
        evaluate("tagger", path, **columns)


ANSWER = {"text": ["the user"], "answer_start": [3]}  # scores do not depend on offsets
QUESTIONS = [
    {"id": 1, "context": "the user can change it", "question": "who can?",
     "answers": ANSWER},
    {"id": 2, "context": "the user", "question": "why?",
     "answers": {"text": [], "answer_start": []}},
]  # fmt: skip


def test_an_answerer_is_scored_with_its_stored_threshold(
    evaluate, write, models, monkeypatch
):
    path = write("data/validation.jsonl", QUESTIONS)
    report, _ = evaluate("answerer", path.rpartition("/")[0])
    assert report["examples"] == {"dev": 2}
    for threshold, f1 in ((-1e9, 100), (1e9, 0)):
        monkeypatch.setattr(models["answerer"], "null_threshold", threshold)
        report, notes = evaluate("answerer", path)
        assert (report["null_threshold"], report["NoAns_f1"]) == (threshold, f1)
        assert f"{threshold:.6g}" in " ".join(notes)


def test_questions_without_answers_are_errors(evaluate, models, write, monkeypatch):
    unlabelled = QUESTIONS[0] | {"id": "c", "answers": None}
    words = r"new\.jsonl, question c: no `answers`"
    with pytest.raises(InputError, match=words):
        evaluate("answerer", write("new.jsonl", [*QUESTIONS, unlabelled]))
    monkeypatch.setattr(models["answerer"], "null_threshold", None)
    with pytest.raises(InputError, match=r"question \w+: .*is_impossible.*=squad2"):
        evaluate("answerer", write("new.jsonl", QUESTIONS))


def test_a_glue_task_is_scored_by_its_metrics(write, tmp_path):
    write("config.yaml", '# {"task": "sst2"}\n')
    shutil.copy(SAVED / "classifier" / "model.keras", tmp_path)
    task, model = sources.open_source(tmp_path).task, tiny.load(tmp_path)
    settings = model.settings
    model.settings = dataclasses.replace(settings, data=type(settings.data)())
    model.labels = model.output_names = ("0", "1", *model.labels[2:])
    rows = zip(TEXTS, np.argmax(model.predict(TEXTS), -1), strict=True)
    lines = [f"{text}\t{model.labels[n]}\n" for text, n in rows]
    write("dev.tsv", "sentence\tlabel\n" + "".join(lines))
    report, _ = evaluate_model(model, task, str(tmp_path))
    assert (report["task"], report["examples"]) == ("sst2", {"dev": 5})
    assert report["accuracy"] == 100
    stored = registry.of(model).stored_columns(task, model)
    assert (stored.text_columns, stored.label_column) == (("sentence",), "label")


def test_dev_and_a_labelled_test_of_a_folder_are_scored(evaluate, write, best):
    folder = write("data/dev.csv", csv(best)).rpartition("/")[0]
    write("data/test.csv", "text\nthe file\n")
    report, notes = evaluate("classifier", folder)
    assert report["accuracy"] == 100
    assert "test.csv has no labels" in notes[0]
    write("data/test.csv", csv(best))
    report, _ = evaluate("classifier", folder)
    assert (report["dev_accuracy"], report["test_accuracy"]) == (100, 100)


def test_dev_and_test_of_a_split_column_are_scored(evaluate, write, models, best):
    labels = models["classifier"].labels
    wrong = [labels[(labels.index(label) + 1) % 2] for label in best]
    words = ("train", "Dev", "validation", "test", "train")
    targets = [wrong[0], *best[1:4], wrong[4]]
    targets = [f"{label},{word}" for label, word in zip(targets, words, strict=True)]
    path = write("all.csv", csv(targets, ("text", "label,split")))
    report, notes = evaluate("classifier", path)
    assert (report["examples"], report["accuracy"]) == ({"data": 5}, 60)
    assert "--split_column=split" in notes[0]
    report, _ = evaluate("classifier", path, split_column="split")
    assert report["examples"] == {"dev": 2, "test": 1}
    assert (report["dev_accuracy"], report["test_accuracy"]) == (100, 100)


TAGS = "the the\n"
# Model, name and content of the file, columns, words.
ERRORS = {
    "no file": ("classifier", None, "", {}, "nowhere' has none"),
    "other columns": ("classifier", "a.csv", csv("ababa", ("t", "l")), {}, "'text'"),
    "another label": ("classifier", "a.csv", csv(["x"] * 5), {}, r"csv:2: .*'x'"),
    "no split": (
        "classifier", "a.csv", csv("ababa"), {"split_column": "text"}, "no split",
    ),
    "no column of splits": (
        "classifier", "a.csv", csv("ababa"), {"split_column": "x"}, "columns 'x'",
    ),
    "splits of a folder": (
        "classifier", None, "", {"split_column": "split"}, "one table",
    ),
    "another tag": ("tagger", "a.txt", "the B-ODD\n", {}, r"a\.txt:1: .*'B-ODD'"),
    "a table of tags": ("tagger", "a.csv", csv("ababa"), {}, r"a\.csv must have a sen"),
    "keys of columns": (
        "tagger", "a.txt", TAGS, {"text_columns": ["a"]}, r"--text_columns.*a\.txt",
    ),
    "splits of tags": (
        "tagger", "a.txt", TAGS, {"split_column": "a"}, "a TokenClassifier",
    ),
    "missing texts of tags": (
        "tagger", "a.txt", TAGS, {"missing_text": "skip"}, "a TokenClassifier",
    ),
    "a missing text": (
        "classifier", "a.csv", "text,label\na,a\nNaN,b\n", {}, r"csv:3: .*1 of 'NaN'",
    ),
    "no answers": (
        "answerer", "a.json", [{k: v for k, v in q.items() if k != "answers"}
                               for q in QUESTIONS], {}, "gold answers",
    ),
    "a table of answers": (
        "answerer", "a.csv", csv("ababa"), {}, r"a\.csv must .* context and answers",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ERRORS)
def test_data_that_is_an_error(evaluate, write, tmp_path, case):
    kind, name, content, columns, words = ERRORS[case]
    path = write(name, content) if name else str(tmp_path / "nowhere")
    with pytest.raises(InputError, match=words):
        evaluate(kind, path, **columns)
