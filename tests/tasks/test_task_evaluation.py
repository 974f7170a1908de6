"""Scores of saved models on labelled files, and errors for other data."""

import dataclasses
import gzip
import json

import numpy as np
import pytest
from conftest import GOLDEN

from electra_tf.errors import InputError
from electra_tf.tasks import evaluation
from electra_tf.tasks.evaluation import evaluate_model
from electra_tf.tasks.inference import load

SAVED = GOLDEN / "saved"
NAMES = ("text_columns", "label_column", "split_column", "tag_names")


def columns_of(*values, split=None):
    """Return columns by name; each value may be None."""
    given = dict(zip(NAMES, values, strict=False))
    return given | ({"split_column": split} if split else {})


TEXTS = ["the file of the user", "with the file", "in and on", "of the", "for to"]


@pytest.fixture(scope="module")
def models():
    kinds = ("classifier", "regressor", "tagger", "answerer")
    return {kind: load(str(SAVED / kind)) for kind in kinds}


def table(path, targets, columns=("text", "label")):
    rows = zip(TEXTS, targets, strict=True)
    lines = [",".join(columns), *(f"{text},{target}" for text, target in rows)]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def evaluate(models, kind, data, *columns):
    return evaluate_model(models[kind], str(SAVED / kind), str(data), *columns)


def test_a_classifier_is_scored_with_its_labels_and_stored_columns(models, tmp_path):
    model = models["classifier"]
    best = np.argmax(model.predict(TEXTS), -1)
    correct = [model.labels[n] for n in best]
    incorrect = [model.labels[(n + 1) % len(model.labels)] for n in best[:2]]
    data = table(tmp_path / "new.csv", [*incorrect, *correct[2:]])
    report = evaluate(models, "classifier", data)
    assert report["task"] == "csv"
    assert report["examples"] == {"data": 5}
    assert report["accuracy"] == pytest.approx(60)
    assert f"{'accuracy':<28}{60:>12.5f}" in evaluation.format_report(report)
    data = table(tmp_path / "other.csv", correct, ("t", "kind"))
    columns = columns_of(("t",), "kind")
    assert evaluate(models, "classifier", data, columns)["accuracy"] == 100
    with pytest.raises(InputError, match=r"other\.csv without .*text"):
        evaluate(models, "classifier", data)
    data = table(tmp_path / "odd.csv", [*correct[:3], "other", correct[4]])
    with pytest.raises(InputError, match=r"odd\.csv:5: .*'other'"):
        evaluate(models, "classifier", data)


@pytest.mark.parametrize("kind", ["classifier", "tagger", "answerer"])
def test_unknown_wordpieces_are_reported(models, tmp_path, kind):
    model, lines = models[kind], []
    if kind == "classifier":
        path = tmp_path / "a.csv"
        path.write_text(f"text,label\nكتاب,{model.labels[0]}\n")
    elif kind == "tagger":
        path = tmp_path / "a.txt"
        path.write_text(f"كتاب {model.tags[0]}\n")
    else:
        path = tmp_path / "a.json"
        squad(path)
        path.write_text(path.read_text().replace("the", "كتاب"))
    evaluate_model(model, str(SAVED / kind), str(path), log=lines.append)
    assert sum("[UNK]" in line and "data: " in line for line in lines) == 1


def test_columns_must_be_stored_or_set(models, tmp_path):
    model = models["tagger"]  # its settings have no columns
    assert evaluation.stored_columns(str(tmp_path), model).text_columns == ()
    (tmp_path / "config.yaml").write_text('# {"task": "mrpc"}\n')
    columns = evaluation.stored_columns(str(tmp_path), model)
    assert columns.text_columns == ("#1 String", "#2 String")
    assert columns.label_column == "Quality"


def test_a_glue_task_is_scored_by_its_metrics(models, tmp_path):
    (tmp_path / "config.yaml").write_text('# {"task": "sst2"}\n')
    model = models["classifier"]
    named = load(str(SAVED / "classifier"))
    named.settings = dataclasses.replace(
        named.settings, data=type(named.settings.data)()
    )
    named.labels = ("0", "1", *model.labels[2:])
    best = np.argmax(named.predict(TEXTS), -1)
    lines = [f"{t}\t{named.labels[n]}" for t, n in zip(TEXTS, best, strict=True)]
    (tmp_path / "dev.tsv").write_text("\n".join(["sentence\tlabel", *lines]) + "\n")
    report = evaluate_model(named, str(tmp_path), str(tmp_path))
    assert report["task"] == "sst2"
    assert report["examples"] == {"dev": 5}
    assert report["accuracy"] == 100


def test_a_folder_has_scores_of_dev_and_of_a_labelled_test(models, tmp_path):
    model = models["classifier"]
    best = np.argmax(model.predict(TEXTS), -1)
    correct = [model.labels[n] for n in best]
    table(tmp_path / "dev.csv", correct)
    (tmp_path / "test.csv").write_text("text\nthe file\n")
    messages = []
    data = str(tmp_path)
    report = evaluate_model(
        model, str(SAVED / "classifier"), data, columns_of(), messages.append
    )
    assert report["accuracy"] == 100
    assert "test.csv has no labels" in messages[0]
    table(tmp_path / "test.csv", correct)
    report = evaluate(models, "classifier", tmp_path)
    assert (report["dev_accuracy"], report["test_accuracy"]) == (100, 100)
    with pytest.raises(InputError, match="nowhere', which does not exist"):
        evaluate(models, "classifier", tmp_path / "nowhere")


def test_a_regressor_of_pairs_is_scored(models, tmp_path):
    model = models["regressor"]
    stored = evaluation.stored_columns(str(SAVED / "regressor"), model)
    assert (len(stored.text_columns), stored.label_column) == (2, "score")
    scores = model.predict([(text, "the file") for text in TEXTS])
    lines = [",".join((*stored.text_columns, stored.label_column))]
    for text, score in zip(TEXTS, scores, strict=True):
        lines.append(f"{text},the file,{score + 1:.6f}")
    (tmp_path / "new.csv").write_text("\n".join(lines) + "\n")
    report = evaluate(models, "regressor", tmp_path / "new.csv")
    assert report["mse"] == pytest.approx(1, abs=1e-3)
    with pytest.raises(InputError, match="2 columns"):
        evaluate(models, "regressor", tmp_path / "new.csv", columns_of(("text",)))


def test_a_tagger_is_scored_on_words(models, tmp_path):
    model = models["tagger"]
    sentence = TEXTS[0].split()
    tags = model.predict([sentence])[0]
    lines = [f"{word} {tag}" for word, tag in zip(sentence, tags, strict=True)]
    (tmp_path / "new.txt").write_text("\n".join(lines) + "\n")
    report = evaluate(models, "tagger", tmp_path / "new.txt")
    assert report["accuracy"] == 100
    lines[2] = f"{sentence[2]} B-ODD" if "O" in model.tags else f"{sentence[2]} ODD"
    (tmp_path / "odd.txt").write_text("\n".join(lines) + "\n")
    with pytest.raises(InputError, match=r"odd\.txt:3: '.*ODD'"):
        evaluate(models, "tagger", tmp_path / "odd.txt")
    data = table(tmp_path / "new.csv", ["a"] * 5)
    with pytest.raises(InputError, match=r"new\.csv', a \.csv file"):
        evaluate(models, "tagger", data)
    with pytest.raises(InputError, match=r"--text_columns.*new\.txt"):
        evaluate(models, "tagger", tmp_path / "new.txt", columns_of(("a",)))
    with pytest.raises(InputError, match=r"--split_column .*a TokenClassifier"):
        evaluate(models, "tagger", tmp_path / "new.txt", columns_of(split="a"))


@pytest.mark.parametrize("name", ["new.jsonl", "new.json", "new.jsonl.gz"])
def test_a_tagger_is_scored_on_json(models, tmp_path, name):
    model, path = models["tagger"], tmp_path / name
    tags = model.predict([text.split() for text in TEXTS])
    names = sorted({tag for sentence in tags for tag in sentence})

    def write(of):
        rows = zip(TEXTS, tags, strict=True)
        records = [{"tokens": text.split(), **of(sentence)} for text, sentence in rows]
        text = "\n".join(map(json.dumps, records))
        path.write_bytes(
            gzip.compress(text.encode()) if "gz" in name else text.encode()
        )

    write(lambda sentence: {"ner_tags": list(sentence)})
    assert evaluate(models, "tagger", path)["accuracy"] == 100
    write(lambda sentence: {"x": [names.index(t) for t in sentence], "tags": ["O"]})
    columns = columns_of(("tokens",), "x", None, tuple(names))
    assert evaluate(models, "tagger", path, columns)["accuracy"] == 100
    with pytest.raises(InputError, match=rf"{name}:1: 'x' has .*--tag_names"):
        evaluate(models, "tagger", path, columns_of(("tokens",), "x"))


def test_dev_and_test_of_a_split_column_are_scored(models, tmp_path):
    model, messages = models["classifier"], []
    best = [model.labels[n] for n in np.argmax(model.predict(TEXTS), -1)]
    wrong = [model.labels[(model.labels.index(label) + 1) % 2] for label in best]
    words = ("train", "Dev", "validation", "test", "train")
    rows = zip(words, TEXTS, [wrong[0], *best[1:4], wrong[4]], strict=True)
    path = tmp_path / "all.csv"
    path.write_text("\n".join(["split,text,label", *map(",".join, rows)]) + "\n")
    folder = str(SAVED / "classifier")
    report = evaluate_model(model, folder, str(path), columns_of(), messages.append)
    assert report["examples"] == {"data": 5}
    assert report["accuracy"] == 60
    assert "--split_column=split" in messages[0]
    columns = columns_of(split="split")
    report = evaluate_model(model, folder, str(path), columns, messages.append)
    assert report["examples"] == {"dev": 2, "test": 1}
    assert (report["dev_accuracy"], report["test_accuracy"]) == (100, 100)
    for column, words in (("text", "no split"), ("part", "without 'part'")):
        with pytest.raises(InputError, match=words):
            evaluate(models, "classifier", path, columns_of(split=column))
    with pytest.raises(InputError, match="one table"):
        evaluate(models, "classifier", tmp_path, columns)


def test_flat_questions_are_scored(models, tmp_path):
    records = [
        {"id": 1, "context": "the user can change it", "question": "who can change?",
         "answers": {"text": ["the user"], "answer_start": [0]}},
        {"id": 2, "context": "the user", "question": "why?",
         "answers": {"text": [], "answer_start": []}},
    ]  # fmt: skip
    reports = []
    for name, text in (
        ("a.jsonl", "\n".join(map(json.dumps, records))),
        ("b.json", json.dumps(records)),
    ):
        (tmp_path / name).write_text(text)
        reports.append(evaluate(models, "answerer", tmp_path / name))
        assert reports[-1].pop("examples") == {"data": 2}
        assert reports[-1].pop("data").endswith(name)
    assert reports[0] == reports[1]
    (tmp_path / "validation.jsonl").write_text(json.dumps(records[0]))
    assert evaluate(models, "answerer", tmp_path)["examples"] == {"dev": 1}


def squad(path, labelled=True):
    context = "the user can change the file"
    questions = [("a", "who can change?", [("the user", 0)]), ("b", "why?", [])]
    qas = [{"id": name, "question": text} for name, text, _ in questions]
    for qa, (*_, answers) in zip(qas if labelled else [], questions, strict=False):
        # Scores do not depend on the offsets, which are incorrect here.
        qa["answers"] = [{"text": t, "answer_start": s + 3} for t, s in answers]
        qa["is_impossible"] = not answers
    paragraphs = [{"context": context, "qas": qas}]
    articles = [{"title": "t", "paragraphs": paragraphs}]
    path.write_text(json.dumps({"version": "v2.0", "data": articles}))
    return path


def test_an_answerer_is_scored_with_its_stored_threshold(models, tmp_path):
    model, data, messages = models["answerer"], squad(tmp_path / "new.json"), []
    path, stored = str(SAVED / "answerer"), model.null_threshold
    try:
        for threshold, f1 in ((-1e9, 100), (1e9, 0)):
            model.null_threshold = threshold
            report = evaluate_model(
                model, path, str(data), columns_of(), messages.append
            )
            assert report["null_threshold"] == threshold
            assert report["NoAns_f1"] == f1
            assert f"{threshold:.6g}" in " ".join(messages)
    finally:
        model.null_threshold = stored
    with pytest.raises(InputError, match="no answers"):
        evaluate(models, "answerer", squad(tmp_path / "test.json", labelled=False))
    with pytest.raises(InputError, match=r"new\.csv' for a QuestionAnswerer"):
        evaluate(models, "answerer", table(tmp_path / "new.csv", ["a"] * 5))
