"""LiteRT files: the Keras model's numbers, in any number of rows and positions."""

import os
import sys

import numpy as np
import pytest

from electra_tf.errors import InputError
from electra_tf.serving.formats.litert import open_litert, run_litert, write_litert
from serving import heads

pytest.importorskip("ai_edge_litert")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_litert(heads.function(), str(tmp_path_factory.mktemp("litert")))


def test_both_files_have_their_names(files):
    names = ["model.float32.tflite", "model.int8.tflite"]
    assert [os.path.basename(path) for path in files] == names


def test_float32_says_what_keras_says(files):
    model = open_litert(files[0])
    for shape in heads.SHAPES:  # one after the other, so that it has to resize
        ids = heads.request(*shape)
        heads.assert_equal(model(ids), heads.by_keras(ids))


def test_int8_is_smaller_and_nearly_says_it(files):
    sizes = [os.path.getsize(path) for path in files]
    assert sizes[1] < 0.8 * sizes[0]
    model = open_litert(files[1])
    for shape in heads.SHAPES:
        ids = heads.request(*shape)
        found, right = model(ids), heads.by_keras(ids)
        for name in ("logits", "tagger_logits", "ends_start_logits_BL", "vectors"):
            assert found[name].shape == right[name].shape
            if found[name].size:
                apart = np.abs(found[name] - right[name]).max()
                assert 1e-5 < apart < 0.1, name


def test_a_task_is_scored_as_with_keras(tmp_path):
    model = heads.models()["tagger"]
    path, _ = write_litert(heads.of_one_task(model), str(tmp_path))
    sentences = [["the", "of"], ["in"] * 9, ["and", "to", "with"]]
    examples = model.examples(sentences)
    found = open_litert(path).outputs_of(examples, 2)
    for one, other in zip(found, model.outputs_of(examples, 2), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
    assert model.decode(sentences, examples, found) == model.predict(sentences)


def test_it_answers_on_after_what_it_cannot_answer(files):
    model, ids = open_litert(files[0]), heads.request(2, 7)
    right = model(ids)["logits"]
    strange = {**ids, "token_ids": ids["token_ids"] + 10**6}
    for bad in (strange, heads.request(1, 65)):
        with pytest.raises(InputError, match="cut the rows to the max_length"):
            model(bad)
        np.testing.assert_array_equal(model(ids)["logits"], right)


def test_it_is_asked_once_by_its_path(files):
    ids = heads.request(1, 5)
    given = {name: of.tolist() for name, of in ids.items()}
    with pytest.raises(InputError, match="each int32"):
        run_litert(files[0], given)  # of Python's numbers, which are int64
    np.testing.assert_array_equal(
        run_litert(files[0], ids)["logits"], open_litert(files[0])(ids)["logits"]
    )


def test_an_operation_that_litert_lacks_is_told(tmp_path):
    with pytest.raises(InputError, match="Igamma, for which it has none"):
        write_litert(heads.out_of_reach(), str(tmp_path))
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_none_is_told(tmp_path):
    path = tmp_path / "model.tflite"
    with pytest.raises(InputError, match="Export it again"):
        open_litert(str(path))
    path.write_text("no model")
    with pytest.raises(InputError, match="Export it again"):
        open_litert(str(path))


def test_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ai_edge_litert.interpreter", None)
    with pytest.raises(InputError, match=r"tools/install litert"):
        open_litert("model.tflite")
