"""Remedies of errors about the arguments of models of texts."""

import pytest

from electra_tf.serving.export import load_exportable
from remedies.bench import SAVED, Bench, cases, follow, saved_model


def _predict(name, *inputs, **more):
    return lambda b: [lambda x=x: saved_model(name).predict(x) for x in inputs]


def _examples(name, *pairs):
    return lambda b: [lambda p=p: saved_model(name).examples(*p) for p in pairs]


def _weights(name, *weights):
    return lambda b: [
        lambda one=one: saved_model(name).class_weights(one, ["bad", "good"])
        for one in weights
    ]


WORDS = ["the", "first"]
PAIR = ("which?", "the first")
ARGUMENTS = {
    "a text alone": _predict("classifier", "the first", ["the first"]),
    "pairs for single texts": _predict("classifier", [PAIR], ["the first"]),
    "single texts for pairs": _predict("regressor", ["the first"], [PAIR]),
    "texts and pairs": _predict("regressor", ["the", PAIR], [PAIR]),
    "numbers": _predict("classifier", ["the", 3], ["the", "3"]),
    "lists of pairs of two lengths": _predict(
        "regressor", (["the"], ["of", "to"]), (["the"], ["of"]), [("the", "of")]
    ),
    "a sentence as a text": _predict("tagger", ["the first"], [WORDS]),
    "a question alone": _predict("answerer", ["which?"], [PAIR]),
    "no text": _predict("classifier", iter(["the"]), ["the"]),
    "a batch size of 0": lambda b: [
        lambda: saved_model("classifier").predict(["the"], batch_size=0),
        lambda: saved_model("classifier").predict(["the"]),
    ],
    "a model that is called with texts": lambda b: [
        lambda: saved_model("classifier")(["the"]),
        lambda: saved_model("classifier").predict(["the"]),
    ],
    "an unknown label": _examples("classifier", (["a"], ["ugly"]), (["a"], ["good"])),
    "a target too few": _examples(
        "classifier", (["a", "b"], ["good"]), (["a", "b"], ["good", "bad"])
    ),
    "a score that is not finite": _examples(
        "regressor", ([PAIR], [float("nan")]), ([PAIR], [0.5])
    ),
    "a tag too few": _examples("tagger", ([WORDS], [["O"]]), ([WORDS], [["O", "O"]])),
    "an unknown tag": _examples(
        "tagger", ([WORDS], [["O", "Q"]]), ([WORDS], [["O", "O"]])
    ),
    "an answer without its place": _examples(
        "answerer", ([PAIR], ["first"]), ([PAIR], [("first", 4)]), ([PAIR], [None])
    ),
    "fit without targets": lambda b: [
        lambda: saved_model("classifier").evaluate(["the"]),
        lambda: saved_model("classifier").evaluate(["the"], ["good"]),
    ],
    "a .keras file for serving": lambda b: [
        lambda: saved_model("classifier").export(str(b.path("out"))),
        lambda: load_exportable(str(SAVED / "classifier" / "model.keras")),
    ],
}

CASES = cases(arguments=ARGUMENTS)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_remedy_works(case, here, tmp_path):
    assert follow(case, Bench(tmp_path, here)) > 0
