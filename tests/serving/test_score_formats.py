"""Test the scores of a model's LiteRT and ONNX files on labelled data."""

import json
import sys

import pytest
import tiny
from conftest import ROOT

from electra_tf.serving.formats import litert, onnx
from electra_tf.tasks.classifier import TextClassifier
from serving.exports import LABELS, model, settings

sys.path.insert(0, str(ROOT / "tools"))
import score_formats

pytestmark = pytest.mark.tools


def classifier(folder):
    """Return a classifier, and a table of its labels."""
    columns = {"data_text_columns": ("text",), "data_label_column": "label"}
    made = TextClassifier(tiny.start(), LABELS, settings(**columns))
    lines = ["text\tlabel", *(f"{t}\t{LABELS[n % 3]}" for n, t in enumerate(TEXTS))]
    path = folder / "dev.tsv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return made, path


def answerer(folder):
    """Return a question answerer, and questions whose answers are their words."""
    questions = []
    for number, context in enumerate(TEXTS):
        word = context.split()[number % 3]
        answers = [{"text": word, "answer_start": context.index(word)}]
        qas = [{"id": str(number), "question": word, "answers": answers}]
        questions.append({"context": context, "qas": qas})
    path = folder / "dev.json"
    content = {"version": "2.0", "data": [{"title": "", "paragraphs": questions}]}
    path.write_text(json.dumps(content), encoding="utf-8")
    return model("answerer"), path


TEXTS, _ = tiny.texts(12, shortest=3)


@pytest.mark.parametrize("make", [classifier, answerer])
def test_float32_files_have_the_scores_of_keras(make, tmp_path):
    pytest.importorskip("ai_edge_litert")
    pytest.importorskip("tf2onnx")
    made, data = make(tmp_path)
    path = tmp_path / "model.keras"
    made.save(path)
    found = score_formats.score(str(path), str(data))
    assert found.keys() == {"keras", *litert.LITERT_FILES, *onnx.ONNX_FILES}
    assert len({tuple(scores) for scores in found.values()}) == 1  # the same metrics
    for name in (litert.LITERT_FILES[0], onnx.ONNX_FILES[0]):
        assert found[name] == pytest.approx(found["keras"])
