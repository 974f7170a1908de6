"""Multiple choice: layouts, training, files of predictions, weights of transformers."""

import json

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

from electra_tf.config.finetuning import DataConfig
from electra_tf.errors import InputError
from electra_tf.runs.conversion import convert_checkpoint
from electra_tf.serving.export_options import RequestLimits
from electra_tf.serving.served_tasks import task_export
from electra_tf.serving.signatures import encode_texts as encode
from electra_tf.tasks import registry
from electra_tf.tasks.choice_classifier import ChoiceClassifier, Choices
from electra_tf.tasks.classifier import encode_texts
from electra_tf.tasks.evaluation import evaluate_model
from electra_tf.tasks.predictions import predict_items
from tests import tiny
from tests.conftest import GOLDEN
from tests.serving.exports import call
from tests.tasks.test_learning import trained

SWAG = (
    ",video-id,sent1,sent2,ending0,ending1,ending2,ending3,label\n"
    '0,v,"the file, of",and,is,can,user,the,2\n'
    "1,v,of the,in,a,b,c,d,0\n"
)
RACE = [
    {"article": "the user", "question": "of _ ?", "options": ["a", "b", "c", "d"],
     "answer": "C"},
    {"article": "the file", "question": "who", "options": ["a", "b", "c", "d"],
     "answer": "A"},
]  # fmt: skip
COMMONSENSE = [
    {"question": "the user", "choices": {"label": ["A", "B"], "text": ["is", "can"]},
     "answerKey": "B"},
    {"question": "of", "choices": {"label": ["A", "B"], "text": ["in", "a"]},
     "answerKey": "A"},
]  # fmt: skip
LAYOUTS = {
    "SWAG": (
        "train.csv", SWAG, {},
        [Choices("the file, of", ("is", "can", "user", "the"), "and"),
         Choices("of the", ("a", "b", "c", "d"), "in")], [2, 0],
    ),
    "RACE": (
        "train.jsonl", "\n".join(map(json.dumps, RACE)), {},
        [Choices("the user", ("a", "b", "c", "d"), "of _ ?"),
         Choices("the file", ("a", "b", "c", "d"), "who")], [2, 0],
    ),
    "CommonsenseQA": (
        "train.json", COMMONSENSE, {},
        [Choices("the user", ("is", "can")), Choices("of", ("in", "a"))], [1, 0],
    ),
    "numbers as labels": (
        "train.jsonl",
        json.dumps({"question": "of", "answerKey": 1,
                    "choices": {"label": [1, 2], "text": ["in", "a"]}})
        + "\n" + json.dumps({"question": "of", "answerKey": "2", "choices":
                    [{"label": "1", "text": "in"}, {"label": "2", "text": "a"}]}), {},
        [Choices("of", ("in", "a"))] * 2, [0, 1],
    ),
    "named columns": (
        "train.tsv", "c\tq\tx\ty\tright\nthe\tof\tis\tcan\tcan\n"
        "in\ta\tb\tc\tb\n",
        {"text_columns": ("c", "q", "x", "y"), "label_column": "right"},
        [Choices("the", ("is", "can"), "of"), Choices("in", ("b", "c"), "a")], [1, 0],
    ),
    "a text and its choices, as in COPA": (
        "train.csv", "premise,choice1,choice2,label\nthe,is,can,1\nin,b,c,0\n",
        {"text_columns": ("premise",), "choice_columns": ("choice1", "choice2")},
        [Choices("the", ("is", "can")), Choices("in", ("b", "c"))], [1, 0],
    ),
    "choices in any place": (
        "train.csv", "x,q,y,c,label\nis,of,can,the,1\nb,a,c,in,0\n",
        {"text_columns": ("c", "q"), "choice_columns": ("x", "y")},
        [Choices("the", ("is", "can"), "of"), Choices("in", ("b", "c"), "a")], [1, 0],
    ),
    "a text and a column of lists": (
        "train.jsonl", json.dumps({"t": "of", "list": ["in", "a"], "label": 1}),
        {"text_columns": ("t",), "choice_columns": ("list",)},
        [Choices("of", ("in", "a"))], [1],
    ),
}  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
def test_published_layouts_and_named_columns(write, layout):
    name, content, settings, items, targets = LAYOUTS[layout]
    path = write(f"data/{name}", content)
    write(f"data/dev{name.removeprefix('train')}", content)
    folder = path.rpartition("/")[0]
    task = tiny.read_task("choice", folder, DataConfig(**settings))
    split = task.splits["train"]
    assert list(split.items) == items
    assert list(map(int, split.targets)) == targets


@pytest.mark.parametrize(
    ("layout", "columns"),
    [
        ("SWAG", [["sent1"], ["sent2"], [f"ending{n}" for n in range(4)]]),
        ("RACE", [["article"], ["question"], ["options"]]),
        ("CommonsenseQA", [["question"], [], ["choices"]]),
    ],
)
def test_a_model_stores_its_columns_and_reads_files_of_other_layouts(
    write, layout, columns
):
    name, content, *_ = LAYOUTS[layout]
    data = tiny.read_task("choice", write(f"a/{name}", content), DataConfig())
    model = data.model(tiny.start(), settings=tiny.settings(), seed=0)
    metadata = task_export(model).metadata
    assert list(metadata["columns"].values()) == columns
    for file, other, settings, items, _ in LAYOUTS.values():
        if settings or len(items[0].choices) != model.num_choices:
            continue
        path = write(f"{layout}/{file}", other)
        task = registry.of(model)
        found = task.inputs(model, path, task.reading(model, "choice", {}, print))
        assert list(found.items) == items
    names = ["c", "q", *"wxyz"[: model.num_choices]]
    choices = tuple("1234"[: model.num_choices])
    table = f"{','.join(names)}\nthe,of,{','.join(choices)}\n"
    reading = task.reading(model, "choice", {"text_columns": names}, print)
    found = task.inputs(model, write("named.csv", table), reading)
    assert list(found.items) == [Choices("the", choices, "of")]


NUMBERS = '{"question": "of", "choices": ["3", "1", "0", "2"], "label": "%s"}'


@pytest.mark.parametrize(
    ("rows", "targets"),
    [
        ([NUMBERS % 2, NUMBERS.replace("3", "5") % 0], "1: .*'0' .*'2'"),
        ([NUMBERS % 1, NUMBERS % 1], [1, 1]),
        ([NUMBERS % 1, NUMBERS % "x1"], "no choice"),
        ([NUMBERS.replace('"2"', '"x"') % "x", NUMBERS % 0], [3, 2]),  # texts
        ([NUMBERS.replace('"2"', '"x"') % 2, NUMBERS % 0], [2, 0]),  # numbers
        ([NUMBERS.replace('"3", "1", "0"', '"C", "A", "D"') % "A"] * 2, "1: .*'C'"),
        (
            [NUMBERS.replace('"3", "1", "0"', '"C", "A", "D"') % "B", NUMBERS % 1],
            [1, 1],
        ),
    ],
)
def test_labels_are_texts_or_positions_in_all_rows(write, rows, targets):
    path = write("data/train.jsonl", "\n".join(rows))
    write("data/dev.jsonl", NUMBERS % 1)
    folder = path.rpartition("/")[0]
    if isinstance(targets, str):
        with pytest.raises(InputError, match=targets):
            tiny.read_task("choice", folder, DataConfig())
    else:
        split = tiny.read_task("choice", folder, DataConfig()).splits["train"]
        assert list(map(int, split.targets)) == targets


def test_a_blank_is_filled_and_a_question_stands_before_a_choice():
    assert Choices("t", ("x",), "of _ ?").pairs() == [("t", "of x ?")]
    assert Choices("t", ("x",), "q").pairs() == [("t", "q x")]


STORY = "sent,ending0,ending1,ending2,ending3,label\nthe,a,b,c,d,3\n"
ENDINGS = "--choice_columns=ending0,ending1,ending2,ending3"
BAD = [  # a table or choices of JSON, columns, words
    (
        STORY, {"text_columns": ("sent", "ending0", "ending1", "ending2", "ending3")},
        f"'ending0' .*--text_columns=sent {ENDINGS}",
    ),
    (STORY, {"text_columns": ("sent", "ending0")}, f"--text_columns=sent {ENDINGS}"),
    (STORY, {"text_columns": ("label", "sent", "ending3")}, "--choice_columns=A,B"),
    (STORY, {"choice_columns": ("ending0", "ending1")}, "one or two .*--text_columns"),
    (
        STORY, {"text_columns": ("sent", "ending0"), "choice_columns": ("ending0",)},
        "one or two other --text_columns",
    ),
    (STORY, {"text_columns": ("sent",), "choice_columns": ("x", "y")}, "'x', 'y'"),
    ("sent1,sent2,ending0,ending1,label\nt,q,a,b,5\n", {}, "csv:2.*'5', no choice"),
    ("sent1,sent2,ending0,ending1\nt,q,a,b\n", {}, "right choice"),
    ("x,y\na,b\n", {}, "SWAG"),
    *(
        ({"question": "of", "answerKey": "C",
          "choices": {"label": labels, "text": ["in", "a"]}},
         {}, "jsonl:1.*'C', no choice")
        for labels in (None, {"A": 0}, ["A", "B", "C"])
    ),
]  # fmt: skip


@pytest.mark.parametrize(("content", "columns", "words"), BAD)
def test_rows_and_columns_without_choices_are_errors(write, content, columns, words):
    path = write("a.csv" if isinstance(content, str) else "a.jsonl", content)
    with pytest.raises(InputError, match=words):
        tiny.read_task("choice", path, DataConfig(**columns))


def test_logits_are_those_of_each_choice_alone():
    model, rows, _ = trained("choices")
    rows = rows[:3]
    pairs = [(text, choice) for text, choices in rows for choice in choices]
    examples = model.examples(rows)
    inputs, _, _ = examples.batch(range(3), 3)
    rows_alone = encode_texts(model.tokenizer, pairs, model.settings.data.max_length)
    alone = [model(rows_alone.batch([n], 1)[0]).numpy()[0, 0] for n in range(9)]
    np.testing.assert_allclose(
        model(inputs).numpy(), np.reshape(alone, (3, 3)), atol=1e-5
    )
    probabilities = model.predict(rows)
    np.testing.assert_allclose(probabilities, tf.nn.softmax(model(inputs)), atol=1e-5)


def test_predictions_and_scores_of_files(write):
    model = ChoiceClassifier(tiny.start(), 4)
    path = write("a.csv", SWAG)
    found = tiny.read_items(model, path)
    header, *lines = predict_items(model, found, "csv")
    assert header.startswith(",video-id,sent1")
    assert ",prediction,prob" in header
    best = np.argmax(model.predict(found.items), -1)
    assert list(predict_items(model, found)) == list(map(str, best))
    record = json.loads(next(predict_items(model, found, "jsonl")))
    assert record["text"] == found.items[0].choices[best[0]]
    assert len(lines) == 2
    report, splits = evaluate_model(model, "choice", path)
    accuracy = 100 * np.mean(best == [2, 0])
    assert report["accuracy"] == pytest.approx(accuracy)
    assert len(splits["data"].mistakes) == np.sum(best != [2, 0])
    with pytest.raises(InputError, match="4 choices"):
        tiny.read_items(model, write("b.json", COMMONSENSE))
    # The column of the right choice that training named may be missing, or a name of
    # the predictions taken.
    new = write("new.csv", "sent1,sent2,ending0,ending1,ending2,ending3\nt,q,a,b,c,d\n")
    (item,) = tiny.read_items(model, new, label_column="right").items
    assert item.choices == ("a", "b", "c", "d")
    taken = write("old.csv", SWAG.replace("video-id", "prediction"))
    header, *_ = predict_items(model, tiny.read_items(model, taken), "csv")
    assert header.startswith(",input_prediction,sent1")


def test_a_test_file_is_labelled_or_not_as_a_whole(write):
    write("data/train.csv", SWAG)
    write("data/dev.csv", SWAG)
    test = write("data/test.csv", SWAG.replace(",2\n", ",\n").replace(",0\n", ",\n"))
    folder = test.rpartition("/")[0]
    task = tiny.read_task("choice", folder, DataConfig())
    assert task.splits["test"].targets is None
    write("data/test.csv", SWAG.replace(",2\n", ",7\n"))
    with pytest.raises(InputError, match=r"test\.csv:2.*'7', no choice"):
        tiny.read_task("choice", folder, DataConfig())


@pytest.mark.parametrize("item", [("t", ["a", None, "b"]), ("t", "ab"), "t", ("t", 3)])
def test_items_that_are_no_choices_are_named(item):
    with pytest.raises(InputError, match="index 0"):
        trained("choices")[0].predict([item])


INPUTS = {
    "token_ids": [[2, 7, 30, 12, 31, 3, 0, 0], [2, 8, 9, 10, 11, 12, 13, 3]],
    "segment_ids": [[0, 0, 0, 1, 1, 1, 0, 0], [0] * 4 + [1] * 4],
    "padding_mask": [[1] * 6 + [0] * 2, [1] * 8],
}


def test_models_of_transformers_go_both_ways(tmp_path):
    folder = GOLDEN / "interop" / "huggingface_choice"
    model = ChoiceClassifier.from_preset(folder, num_choices=2)
    expected = np.load(folder / "outputs.npz")["logits"]
    inputs = {n: np.array([ids], np.int32) for n, ids in INPUTS.items()}
    np.testing.assert_allclose(model(inputs).numpy(), expected, atol=1e-5)
    model.save(tmp_path / "model.keras")
    convert_checkpoint(tmp_path / "model.keras", tmp_path / "theirs", "huggingface")
    theirs, ours = (
        safetensors.numpy.load_file(path / "model.safetensors")
        for path in (folder, tmp_path / "theirs")
    )
    assert theirs.keys() == ours.keys()
    for key, array in theirs.items():
        np.testing.assert_array_equal(ours[key], array)
    config = json.loads((tmp_path / "theirs" / "config.json").read_text())
    assert config["architectures"] == ["ElectraForMultipleChoice"]


def test_a_blank_is_filled_in_served_strings():
    model = ChoiceClassifier(tiny.start(), 3, tiny.settings(data_max_length=16))
    items = [("the file", "of _ can", ["a", "the user", ""]), ("in", "", [*"abc"])]
    text, question, choices = zip(*items, strict=True)
    request = {"text": encode(text), "question": encode(question)}
    request["choices"] = encode(choices, 2)
    outputs = call(task_export(model).text["serving_default"], request)
    expected = model.predict(items)
    np.testing.assert_allclose(outputs["probabilities"], expected, atol=1e-5)


def test_limits_of_a_request_count_each_choice_with_the_texts_that_are_repeated():
    model = ChoiceClassifier(tiny.start(), 3, tiny.settings(data_max_length=16))
    spec = task_export(model, limits=RequestLimits(rows=60, bytes=50_000))

    def rejection(text, choices, question=("",)):
        request = {"text": encode(text), "question": encode(question)}
        request["choices"] = choices
        with pytest.raises(tf.errors.InvalidArgumentError) as error:
            call(spec.text["serving_default"], request)
        return " ".join(str(error.value).split())

    many = encode([["c"] * 3] * 21, 2)
    assert "at most 60 rows. Received:] [63]" in rejection(["a"] * 21, many, [""] * 21)
    long = rejection(["a" * 20_000], encode([["c"] * 3], 2))
    assert "at most 50000 bytes together" in long
    assert "one or more" in rejection(["a"], np.empty([1, 0], object))
    assert "the same number of rows" in rejection(["a"], encode([["c"] * 3] * 2, 2))


def test_a_target_that_is_no_choice_is_named():
    model, *_ = trained("choices")
    items = [("t", [str(n) for n in range(model.num_choices)])]
    with pytest.raises(InputError, match="'B' at index 0") as error:
        model.fit(items, ["B"], verbose=0)
    assert "num_classes" not in str(error.value)
