"""Test exports of fine-tuned models against Keras."""

import contextlib
import os
import threading
import time

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.errors import InputError
from electra_tf.serving.export import max_difference
from electra_tf.serving.export_options import IDS
from electra_tf.serving.served_tasks import task_export, to_float32
from electra_tf.serving.signatures import encode_texts
from electra_tf.tasks.text_model import TextModel
from tests.serving.exports import (
    LABELS,
    MODELS,
    assert_equals_keras,
    call,
    exported,
    graph_operations,
    model,
)

TEXT_OUTPUTS = {
    "classifier": {"probabilities", "logits", "label", "pieces_cut"},
    "pairs": {"probabilities", "logits", "label", "pieces_cut"},
    "multi_label": {"probabilities", "logits", "labels", "pieces_cut"},
    "choices": {"probabilities", "logits", "choice", "pieces_cut"},
    "pooled_pairs": {"probabilities", "logits", "label", "pieces_cut"},
    "regressor": {"score", "pieces_cut"},
    "tagger": {"words", "labels", "probabilities"},
    "answerer": {"answer", "start", "end", "score", "null_odds", "pieces_cut"},
    "separate_spans": {"answer", "start", "end", "score", "null_odds", "pieces_cut"},
}


def names(function):
    return [spec.name for spec in function.input_signature]


@pytest.mark.parametrize("kind", MODELS)
def test_outputs_for_texts_and_ids_equal_keras(kind):
    served = exported(kind)
    assert_equals_keras(served)
    outputs = {
        name: {*call(function, served.case(function)[0])}
        for name, function in served.signatures(["text"]).items()
    }
    outputs.pop("class_names", None)
    assert outputs.pop("serving_default") == TEXT_OUTPUTS[kind]
    entities = {"types", "starts", "ends", "texts", "scores", "count"}
    others = {
        "tagger": {"entities": entities},
        "pairs": {"columns": TEXT_OUTPUTS[kind]},
    }
    assert outputs == others.get(kind, {})


@pytest.mark.parametrize("kind", MODELS)
def test_module_contains_each_weight_once(kind):
    numbers = sum(int(np.prod(v.shape)) for v in exported(kind).module.variables)
    weights = [*model(kind).encoder.weights, *model(kind).head.weights]
    assert numbers == sum(int(np.prod(w.shape)) for w in weights)


@pytest.mark.parametrize("kind", ["classifier", "answerer"])
def test_ids_of_several_chunks_of_rows_equal_keras(kind):
    served, random = exported(kind), np.random.default_rng(0)
    mask_BL = np.arange(60) < random.integers(1, 61, (40, 1))
    arrays = random.integers(5, 50, (40, 60)), random.integers(0, 2, (40, 60)), mask_BL
    ids = {n: array.astype(np.int32) for n, array in zip(IDS, arrays, strict=True)}
    expected = served.named(served.keras(ids))
    for name, array in call(served.tokens, ids).items():
        if array.dtype == np.float32:
            assert max_difference(array, expected[name].numpy()) < 1e-5, name


def test_mixed_precision_is_exported_in_float32():
    original = model("classifier")
    config = original.get_config()
    config["settings"]["training"]["precision"] = "mixed_bfloat16"
    mixed = type(original).from_config(config)
    mixed.set_weights(original.get_weights())
    expected = original.predict(["the file"])
    np.testing.assert_array_equal(to_float32(mixed).predict(["the file"]), expected)
    assert not np.array_equal(mixed.predict(["the file"]), expected)
    assert to_float32(original) is original


def test_task_export_rejects_other_models():
    class Other(TextModel):
        def __init__(self):
            pass

        make_head = task_loss = examples = decode = format = None

    with pytest.raises(InputError, match="a Other has no kind"):
        task_export(Other.__new__(Other))


@pytest.mark.parametrize("kind", MODELS)
def test_unusual_texts_have_finite_outputs(kind):
    unusual = ["", "x" * 600_000, "a " * 2_000, b"\xff\xfe\x80", "\x00", "\ufffd"]
    for text in exported(kind).text.values():
        rows = {1: unusual, 2: [[text] for text in unusual]}
        axes = {one.name: one.shape.rank for one in text.input_signature}
        request = {name: encode_texts(rows[n], n) for name, n in axes.items()}
        outputs = call(text, request)
        assert {len(array) for array in outputs.values()} == {len(unusual)}
        for array in outputs.values():
            assert array.dtype == object or np.isfinite(array).all()
        with pytest.raises((tf.errors.InvalidArgumentError, ValueError, TypeError)):
            call(text, {name: encode_texts([["a"]]) for name in names(text)})


MANY = [""] * 4095
HOSTILE = {  # texts, and the kinds that they are sent to
    "one text of many words among empty ones": (
        [*MANY, "a " * 500_000], ("classifier", "answerer")
    ),
    "one text of some words among empty ones": ([*MANY, "a " * 20_000], ("tagger",)),
    "one long word among empty ones": ([*MANY, "x" * 1_900_000], ("answerer",)),
    "words of one and of many wordpieces": (
        ["a " * 400_000 + "中" * 100_000], ("classifier", "tagger")
    ),
    "one word of many wordpieces among short ones": (
        ["a"] * 1500 + ["." * 1_900_000], ("tagger",)
    ),
}  # fmt: skip


@contextlib.contextmanager
def peak_memory():
    """Yield a function that returns the growth of this process's memory, in MiB."""
    page, stop, sizes = os.sysconf("SC_PAGE_SIZE"), threading.Event(), []

    def sample():
        while not stop.wait(0.002):
            with open("/proc/self/statm") as file:
                sizes.append(int(file.read().split()[1]) * page / 2**20)

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        while not sizes:
            time.sleep(0.002)
        yield lambda: max(sizes) - sizes[0]
    finally:
        stop.set()
        sampler.join()


@pytest.mark.parametrize(
    ("name", "kind"), [(n, kind) for n, (_, kinds) in HOSTILE.items() for kind in kinds]
)
def test_hostile_requests_take_little_memory(name, kind):
    rows, _ = HOSTILE[name]
    for text in exported(kind).text.values():
        others = {"question": ["q"] * len(rows)}
        request = {n: encode_texts(others.get(n, rows)) for n in names(text)}
        with (
            peak_memory() as growth,
            contextlib.suppress(tf.errors.InvalidArgumentError),
        ):
            call(text, request)
        assert growth() < 700  # a matrix of rows times words would take gigabytes


def test_ids_for_answers_take_little_memory():
    # The head needs memory for each pair of a position and a candidate for the start.
    tokens = exported("answerer").tokens
    ids = np.ones([1024, 64], np.int32)
    with peak_memory() as growth:
        outputs = call(tokens, dict.fromkeys(IDS, ids))
    assert outputs["end_top_index"].shape == (1024, 4, 4)
    assert growth() < 200


def test_a_large_question_takes_little_memory():
    text = exported("answerer").text["serving_default"]
    request = {
        "question": encode_texts([""] * 1500 + ["a " * 900_000]),
        "context": encode_texts(["c"] * 1501),
    }
    with peak_memory() as growth:
        outputs = call(text, request)
    assert outputs["pieces_cut"][-1] == 900_000 - 8
    assert growth() < 700


def test_metadata():
    limits = {"rows": 4096, "bytes": 2**21, "positions": 2**16}
    expected = {"max_length": 32, "limits": limits, "labels": list(LABELS)}
    expected |= {"pairs": False, "multi_label": False}
    assert exported("classifier").metadata == expected
    assert exported("pairs").metadata["pairs"] is True
    assert exported("answerer").metadata["doc_stride"] == 8
    assert exported("tagger").metadata["segment"] == 0
    assert exported("regressor").metadata["high"] == 5
    assert exported("answerer").metadata["null_threshold"] == 0.0
    assert exported("tagger").metadata["labels"] == ["B-X", "I-X", "O"]


def test_target_any_has_the_same_outputs_in_one_form():
    on_cpu, on_any = exported("tagger"), task_export(model("tagger"), "any")
    assert_equals_keras(on_any)
    in_both, in_one = (
        [of for _, of in graph_operations(spec.tokens)].count("Erf")
        for spec in (on_cpu, on_any)
    )
    assert in_both == 2 * in_one > 0
