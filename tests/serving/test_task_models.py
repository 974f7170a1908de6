"""What is served of a fine-tuned model is what Keras says."""

import random
import threading

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.errors import InputError
from electra_tf.serving.export_spec import strings
from electra_tf.serving.task_models import in_float32, task_export
from electra_tf.serving.validate import TOLERANCE, difference
from electra_tf.tasks.text_model import TextModel
from serving.exports import LABELS, MODELS, exported, model

TEXT_OUTPUTS = {
    "classifier": {"probabilities", "logits", "label", "pieces_cut"},
    "pairs": {"probabilities", "logits", "label", "pieces_cut"},
    "regressor": {"score", "pieces_cut"},
    "tagger": {"words", "labels", "probabilities"},
    "answerer": {"answer", "start", "end", "score", "null_odds", "pieces_cut"},
    "apart": {"answer", "start", "end", "score", "null_odds", "pieces_cut"},
}


def asked(signature, request):
    outputs = signature.function(*map(tf.constant, request.values()))
    return {name: of.numpy() for name, of in outputs.items()}


@pytest.mark.parametrize("kind", MODELS)
def test_strings_and_ids_get_what_keras_says(kind):
    found = exported(kind)
    (text,), (tokens,) = found.text.values(), found.tokens.values()
    for signature in (text, tokens):
        assert [len(next(iter(r.values()))) for r in signature.requests][::2] == [1, 0]
        for request in signature.requests:
            outputs = asked(signature, request)
            rows = len(next(iter(request.values())))
            assert {len(of) for of in outputs.values()} == {rows}
            expected = signature.expected(request)
            assert bool(expected) == bool(rows)
            for name, right in expected.items():
                assert difference(outputs[name], right) < TOLERANCE, name
    assert asked(text, text.requests[0]).keys() == TEXT_OUTPUTS[kind]


@pytest.mark.parametrize("kind", MODELS)
def test_a_module_holds_each_number_of_the_model_once(kind):
    numbers = sum(int(np.prod(v.shape)) for v in exported(kind).module.variables)
    weights = [*model(kind).encoder.weights, *model(kind).head.weights]
    assert numbers == sum(int(np.prod(w.shape)) for w in weights)


def test_answers_of_a_classifier_by_hand():
    text = exported("classifier").text["serving_default"]
    found = asked(text, {"text": strings(["the file", "of the user"])})
    said = model("classifier").predict(["the file", "of the user"])
    np.testing.assert_allclose(found["probabilities"], said, atol=1e-6)
    powers = np.exp(found["logits"] - found["logits"].max(axis=1, keepdims=True))
    shares = powers / powers.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found["probabilities"], shares, atol=1e-6)
    names = [LABELS[best].encode() for best in said.argmax(axis=1)]
    assert found["label"].tolist() == names


def test_what_a_text_lost_is_told():
    text = exported("classifier").text["serving_default"]
    found = asked(text, {"text": strings(["the " * 30, "the " * 31, "the " * 40])})
    assert found["pieces_cut"].tolist() == [0, 1, 10]  # of 32 positions two are special
    pairs = exported("pairs").text["serving_default"]
    both = strings(["the " * 20]), strings(["the " * 15])
    found = asked(pairs, dict(zip(("text", "text_b"), both, strict=True)))
    assert found["pieces_cut"].tolist() == [6]
    questions = exported("answerer").text["serving_default"]
    both = strings(["the " * 8, "the " * 11]), strings(["of", "of"])
    found = asked(questions, dict(zip(("question", "context"), both, strict=True)))
    assert found["pieces_cut"].tolist() == [0, 3]  # of a question 8 are read


def test_scores_are_told_in_the_units_of_training():
    text = exported("regressor").text["serving_default"]
    found = asked(text, {"text": strings(["the file"])})["score"]
    np.testing.assert_allclose(found, model("regressor").predict(["the file"]), 1e-5)


def test_a_model_of_mixed_precision_is_served_in_float32():
    whole = model("classifier")
    config = whole.get_config()
    config["settings"]["training"]["precision"] = "mixed_bfloat16"
    mixed = type(whole).from_config(config)
    mixed.set_weights(whole.get_weights())
    twin = in_float32(mixed)
    np.testing.assert_array_equal(
        twin.predict(["the file"]), whole.predict(["the file"])
    )
    assert not np.array_equal(mixed.predict(["the file"]), whole.predict(["the file"]))
    assert in_float32(whole) is whole


def test_other_models_are_refused():
    class Other(TextModel):
        def __init__(self):
            pass

        make_head = head_outputs = task_loss = examples = decode = None
        clone_with_seed = from_preset = None

    with pytest.raises(InputError, match="TextClassifier, a TextRegressor"):
        task_export(Other.__new__(Other))


@pytest.mark.parametrize("kind", MODELS)
def test_hostile_texts_get_an_answer(kind):
    (text,) = exported(kind).text.values()
    hostile = ["", "x" * 1_000_000, "a " * 2_000, b"\xff\xfe\x80", "\x00", "\ufffd"]
    outputs = asked(text, {name: strings(hostile) for name in text.requests[0]})
    assert {len(of) for of in outputs.values()} == {len(hostile)}
    for of in outputs.values():
        assert of.dtype == object or np.isfinite(of).all()
    with pytest.raises((tf.errors.InvalidArgumentError, ValueError, TypeError)):
        asked(text, {name: strings([["a"]]) for name in text.requests[0]})


@pytest.mark.parametrize("kind", ["tagger", "answerer"])
def test_a_megabyte_to_read_in_parts_is_refused_in_words(kind):
    (text,) = exported(kind).text.values()
    megabyte = {name: strings(["a " * 500_000]) for name in text.requests[0]}
    with pytest.raises(tf.errors.InvalidArgumentError, match="at most 1024 parts"):
        asked(text, megabyte)


def test_requests_from_several_threads_get_their_own_answers():
    text = exported("classifier").text["serving_default"]
    draw, words = random.Random(0), ["the", "file", "ΟΔΟΣ", "中文", "x", "\x00", ""]
    texts = [" ".join(draw.choices(words, k=draw.randint(0, 40))) for _ in range(64)]
    alone = [asked(text, {"text": strings([one])})["logits"][0] for one in texts]
    wrong = []

    def ask(seed):
        draw = random.Random(seed)
        for _ in range(40):
            rows = [draw.randrange(64) for _ in range(draw.randint(1, 4))]
            found = asked(text, {"text": strings([texts[row] for row in rows])})
            right = np.stack([alone[row] for row in rows])
            if difference(found["logits"], right) > TOLERANCE:
                wrong.append(rows)

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_what_a_client_may_want_to_know_is_told():
    told = {"max_length": 32, "labels": list(LABELS), "pairs": False}
    assert exported("classifier").details == told
    assert exported("pairs").details["pairs"] is True
    assert exported("answerer").details["doc_stride"] == 8
    assert exported("tagger").details["segment"] == 0
    assert exported("regressor").details["high"] == 5
    assert exported("answerer").details["null_threshold"] == 0.0
    assert exported("tagger").details["labels"] == ["B-X", "I-X", "O"]


@pytest.mark.parametrize("kind", ["classifier", "tagger"])
def test_a_graph_for_any_device_has_the_same_outputs_without_onednn_forms(kind):
    on_cpu, on_any = exported(kind), task_export(model(kind), "any")
    for name, signature in {**on_any.text, **on_any.tokens}.items():
        other = {**on_cpu.text, **on_cpu.tokens}[name]
        for request in signature.requests:
            outputs, expected = asked(signature, request), asked(other, request)
            assert outputs.keys() == expected.keys()
            for output, array in outputs.items():
                assert difference(array, expected[output]) <= 1e-5, output
    counts = []
    for spec in (on_cpu, on_any):
        graph = spec.tokens["tokens"].function.get_concrete_function().graph
        functions = graph.as_graph_def().library.function
        nodes = [node.op for function in functions for node in function.node_def]
        counts.append(nodes.count("FusedBatchNormV3"))
    assert counts[0] > 0
    assert counts[1] == 0
