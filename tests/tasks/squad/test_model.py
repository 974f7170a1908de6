"""Questions and texts in, words of the text out."""

import warnings

import keras
import numpy as np
import pytest

from electra_tf.errors import InputError
from electra_tf.tasks.squad.decoding import QAPrediction
from electra_tf.tasks.squad.model import QuestionAnswerer, _stacked
from electra_tf.tasks.squad.reader import Answer, Question
from tasks import tiny


def asked(count=24, seed=0):
    """The answer is the word `the`; where there is none, there is none."""
    draw = np.random.default_rng(seed)
    pairs, gold = [], []
    for number in range(count):
        words = draw.choice(tiny.FILLERS, draw.integers(3, 20)).tolist()
        if number % 2:
            words[draw.integers(len(words))] = "the"
        context = " ".join(words)
        pairs.append(("of", context))
        gold.append(("the", context.index("the")) if number % 2 else None)
    return pairs, gold


PAIRS, GOLD = asked()


@pytest.fixture(scope="module")
def model():
    """Its windows have room for twelve words of the text."""
    changes = {"data_max_length": 16, "data_doc_stride": 6, "model_beam": 4}
    settings = tiny.settings(training_epochs=25, **changes, **tiny.NO_DROPOUT)
    model = QuestionAnswerer(tiny.start(), 0.0, settings)
    model.compile(keras.optimizers.Adam(5e-3))
    model.fit(PAIRS, GOLD, verbose=0)
    return model


def test_it_finds_answers_in_long_texts_and_knows_when_there_is_none(model):
    examples = model.examples(PAIRS, GOLD)
    assert len(examples) > len(PAIRS)  # windows
    wanted = ["the" if gold else "" for gold in GOLD]
    assert model.predict(PAIRS) == wanted
    assert model.predict(PAIRS[::-1], batch_size=3) == wanted[::-1]
    found = model.evaluate(PAIRS, GOLD, return_dict=True, verbose=0)
    assert found["accuracy"] == 1


def test_the_threshold_decides_what_is_left_unanswered(model):
    found = model.answered(PAIRS)
    assert all(isinstance(one, QAPrediction) for one in found)
    texts = [one.text for one in found]
    assert texts[1::2] == ["the"] * 12
    for threshold, wanted in ((-1e9, [""] * 24), (1e9, texts), (None, texts)):
        model.null_threshold = threshold
        assert model.predict(PAIRS) == wanted
    model.null_threshold = 0.0


def test_it_can_be_saved_with_its_threshold(model, tmp_path):
    model.null_threshold = 0.25
    model.save(tmp_path / "model.keras")
    other = keras.saving.load_model(tmp_path / "model.keras")
    assert other.null_threshold == 0.25
    assert other.answered(PAIRS) == model.answered(PAIRS)
    model.null_threshold = 0.0


def test_reset_forgets_a_tuned_threshold():
    model = QuestionAnswerer(tiny.start(), 0.0, tiny.settings())
    model.null_threshold = 3.0
    assert model.clone_with_seed(tiny.start(), 1).null_threshold == 3.0
    model.reinitialize(tiny.start(), 1)
    assert model.null_threshold == 0.0


def test_an_answer_gives_start_end_and_possible(model):
    examples = model.examples([("of", "in the and"), ("of", "in")], [("the", 3), None])
    names = {"start": [4, 0], "end": [4, 0], "impossible": [0, 1]}  # [CLS] of [SEP] in
    assert {n: list(v) for n, v in examples.targets.items()} == names


def test_questions_of_files_are_taken_with_their_answers(model):
    question = Question("1", "of", "in the", (), False, "", "file", 1)
    examples = model.examples([question], [(Answer("the", 3), Answer("in", 0))])
    assert list(examples.targets["start"]) == [4]
    assert model.examples([question], [()]).targets["impossible"] == [1]


def test_windows_of_unlike_length_stand_in_one_array():
    short = {"logit": np.float32(1), "at": np.int32([3]), "logits": np.float32([1, 2])}
    long = {"logit": np.float32(2), "at": np.int32([1, 2]), "logits": np.ones(3, "f")}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        whole = _stacked([short, long])
    np.testing.assert_array_equal(whole["logit"], [1, 2])
    np.testing.assert_array_equal(whole["at"], [[3, 0], [1, 2]])
    np.testing.assert_array_equal(whole["logits"][1], [1, 1, 1])
    assert whole["logits"][0].tolist()[:2] == [1, 2]
    assert whole["logits"][0, 2] < -1e29
    assert whole["at"].dtype == np.int32


@pytest.mark.parametrize(
    ("x", "y", "told"),
    [
        (["of"], [None], "'of' at place 0"),
        ([("of", "in", "the")], [None], "at place 0"),
        (PAIRS[:1], ["the"], "'the' at place 0"),
        (PAIRS[:1], [("the",)], r"\('the',\) at place 0"),
        (PAIRS[:1], [("the", 0.0)], r"\('the', 0.0\),\) at place 0"),
        (PAIRS[:2], [None], "2 questions and 1 answers"),
        ([("of", "in the")], [("the", 0)], "none of which stands there"),
    ],
)
def test_what_does_not_fit_is_told(model, x, y, told):
    with pytest.raises(InputError, match=told):
        model.examples(x, y)
