"""Remedies of errors about inputs to predict and predictions to score."""

import json

from electra_tf.tasks import predictions
from electra_tf.tasks.prediction_inputs import check_output
from electra_tf.tasks.score_files import score_predictions
from remedies.bench import (
    evaluate,
    read_inputs,
    remedy_test,
    saved_model,
    squad,
)


def _inputs(model, name, *contents):
    return lambda b: b.reading(lambda path: read_inputs(model, path), name, *contents)


def _predict(b, model, *calls):
    """Return calls that predict for (path, format, nbest)."""
    return [
        lambda path=path, form=form, nbest=nbest: list(
            predictions.predict_items(
                saved_model(model),
                read_inputs(model, str(path)),
                form,
                nbest,
            )
        )
        for path, form, nbest in calls
    ]


TWO = '{"text": "a", "id": 1}\n{"text": "b"%s}\n'
QUESTION = {"question": "which?", "context": "the first"}
INPUTS = {
    "a column that is not there": lambda b: [
        lambda: read_inputs("classifier", str(b.file("a.csv", "review\nthe\n"))),
        lambda: read_inputs("classifier", str(b.path("a.csv")), ["review"]),
        lambda: read_inputs("classifier", str(b.file("a.txt", "review\nthe\n"))),
    ],
    "a column too many": lambda b: [
        lambda columns=columns: read_inputs(
            "classifier", str(b.file("a.csv", "text,b\nthe,of\n")), columns
        )
        for columns in (["text", "b"], ["text"])
    ],
    "a key that is not there": lambda b: [
        lambda: read_inputs("classifier", str(b.file("a.jsonl", {"body": "the"}))),
        lambda: read_inputs("classifier", str(b.file("b.jsonl", {"text": "the"}))),
        lambda: read_inputs("classifier", str(b.path("a.jsonl")), ["body"]),
    ],
    "a text that looks like JSON": _inputs(
        "classifier", "a.txt", '{"the', json.dumps({"text": '{"the'})
    ),
    "JSON lines of text": lambda b: [
        lambda: read_inputs("classifier", str(b.file("a.jsonl", "the first\n"))),
        lambda: read_inputs("classifier", str(b.file("a.txt", "the first\n"))),
        lambda: read_inputs("classifier", str(b.file("b.jsonl", {"text": "the"}))),
    ],
    "a question alone": lambda b: [
        *b.reading(
            lambda path: read_inputs("answerer", path),
            "a.txt",
            "which?\n",
            json.dumps(QUESTION),
        ),
        *b.reading(lambda path: read_inputs("answerer", path), "a.json", squad()),
    ],
    "candidates as text": lambda b: _predict(
        b,
        "answerer",
        (b.file("a.jsonl", QUESTION), "text", 2),
        (b.path("a.jsonl"), "text", None),
        (b.path("a.jsonl"), "jsonl", 2),
    ),
    "some records with an id": lambda b: _predict(
        b,
        "classifier",
        (b.file("a.jsonl", TWO % ""), "tsv", None),
        (b.path("a.jsonl"), "jsonl", None),
        (
            b.file("b.jsonl", TWO % ', "id": 2'),
            "tsv",
            None,
        ),
    ),
    "an output that exists": lambda b: [
        lambda: check_output(None, str(b.file("a", "")), False),
        lambda: check_output(None, str(b.path("a")), True),
        lambda: check_output(None, str(b.path("b")), False),
    ],
    "an output that is the input": lambda b: [
        lambda: check_output(str(b.file("a", "")), str(b.path("a")), True),
        lambda: check_output(str(b.path("a")), str(b.path("b")), True),
    ],
    "an output in no folder": lambda b: [
        lambda: check_output(None, str(b.path("c/a")), False),
        lambda: (b.path("c").mkdir(), check_output(None, str(b.path("c/a")), False)),
    ],
}

LABELLED = "text,label\nthe,bad\nfirst,good\n"
PREDICTED = {"0": "first", "1": "first"}
RTE = (
    "index\tsentence1\tsentence2\tlabel\n0\ta\tb\tentailment\n1\ta\tb\tnot_entailment\n"
)


def _scores(task, data, *predictions, **options):
    """Return calls that score each file of predictions."""
    return lambda b: [
        lambda p=p: score_predictions(
            task,
            str(b.file("data" + _SUFFIXES[task], data)),
            str(b.file("p.tsv", p)),
            None,
            print,
        )
        for p in predictions
    ]


_SUFFIXES = {"rte": ".tsv", "tagging": ".txt", "squad1": ".json", "squad2": ".json"}
SCORED = {
    "a column that is not there": lambda b: [
        lambda: evaluate("classifier", b.file("a.csv", LABELLED.replace("text", "t"))),
        lambda: evaluate("classifier", b.path("a.csv"), ("t",)),
    ],
    "a column too many": lambda b: [
        lambda: evaluate("classifier", b.file("a.csv", LABELLED), ("text", "label")),
        lambda: evaluate("classifier", b.path("a.csv"), ("text",)),
    ],
    "a folder without dev": lambda b: [
        lambda: evaluate("classifier", b.file("d/a.csv", LABELLED).parent),
        lambda: evaluate("classifier", b.path("d/a.csv")),
    ],
    "predictions under another name": _scores(
        "rte",
        RTE,
        "index\tlabel\n0\tentailment\n1\tentailment\n",
        "index\tprediction\n0\tentailment\n1\tentailment\n",
    ),
    "odds for another task": lambda b: [
        lambda odds=odds: score_predictions(
            "squad1",
            str(b.file("a.json", squad())),
            str(b.file("p.json", PREDICTED)),
            odds,
            print,
        )
        for odds in (str(b.file("odds.json", {"0": 0.0})), None)
    ],
    "a folder of other files": lambda b: [
        lambda: score_predictions(
            "squad1",
            str(b.file("d/a.json", squad()).parent),
            str(b.file("p.json", PREDICTED)),
            None,
            print,
        ),
        lambda: score_predictions(
            "squad1", str(b.path("d/a.json")), str(b.path("p.json")), None, print
        ),
    ],
}

test_a_remedy_works = remedy_test(inputs=INPUTS, scored=SCORED)
