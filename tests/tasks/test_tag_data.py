"""Tagging tasks: column files, held-out dev, tags, scores, written predictions."""

import shutil
import types

import numpy as np
import pytest

from electra_tf.config.finetuning import DataConfig
from electra_tf.errors import InputError
from electra_tf.tasks.data.conll import Sentence
from electra_tf.tasks.data.schemes import SCHEMES, Span, write_spans
from electra_tf.tasks.data.splits import Split
from electra_tf.tasks.score import ScoredSplit
from electra_tf.tasks.tag_task import TagTask
from tests import tiny

GOOD = "the O\nfirst B-X\n\nof O\nall O\n\n" * 4
SPANS = "The B-NP\ncat I-NP\nsat B-VP\n. O\n\n"
DIFFERENT = "".join(SPANS.replace("cat", f"cat{n}") for n in range(20))


@pytest.fixture
def read(write, tmp_path):
    """Return a function that reads a task from a file, or a folder of files."""

    def of(files, notify=print, **settings):
        if isinstance(files, str):
            data = write("all", files)
        else:
            data = str(tmp_path / "data")
            shutil.rmtree(data, ignore_errors=True)
            for name, text in files.items():
                write(f"data/{name}", text)
        config = DataConfig(**settings)
        return tiny.read_task("tagging", data, config, notify)

    return of


def scored(tags, gold, predicted, name):
    """Return a split with predicted tags."""
    details = [types.SimpleNamespace(tags=tags) for tags in predicted]
    model = types.SimpleNamespace(tags=tags)
    return ScoredSplit(TagTask(), model, Split([], gold), details, (name,))


def test_scores_by_hand():
    gold, predicted = [("B-X", "I-X", "O"), ("B-Y",)], [["B-X", "E-X", "O"], ["O"]]
    assert scored(["O", "B-X"], gold, predicted, "f1").scores == pytest.approx(
        {"f1": 200 / 3, "precision": 100, "recall": 50, "accuracy": 75}
    )
    one = scored("AB", [("A", "B")], [["B", "B"]], "accuracy")
    assert one.scores == {"accuracy": 50}


@pytest.mark.parametrize(
    ("predicted", "words"),
    [
        ([["O", "O"], ["O"]], "predicts no span"),
        ([["S-X"]], "always predicts S-X"),
        ([["B-X", "I-X"], ["B-X"]], "always predicts one span of X"),
        ([["B-X", "B-X"]], "always predicts B-X"),
        ([["B-X", "I-X"], ["B-Y"]], None),
        ([["B-X", "I-X"], ["O"]], None),
    ],
)
def test_degenerate_predictions(predicted, words):
    assert scored(["O", "B-X"], [], predicted, "f1").degenerate == words


@pytest.mark.parametrize(
    ("tags", "sides"),
    [
        (("O", "B-X", "I-X"), ("the file/X", "nothing")),
        (("D", "N", "V"), ("the/N, file/V", "the/D, file/D")),
    ],
)
def test_mistakes_have_the_words_of_both_sides(tags, sides):
    sentence = Sentence(("the", "file", "of"), (*tags[1:], tags[0]), "a.txt", 1)
    sure = np.float32([[0.9, 0.1, 0], [0.4, 0.3, 0.3], [1, 0, 0]])
    details = [types.SimpleNamespace(tags=[tags[0]] * 3, probabilities=sure)]
    model, split = types.SimpleNamespace(tags=tags), Split([sentence], [sentence.tags])
    (mistake,) = ScoredSplit(TagTask(), model, split, details, ("f1",)).mistakes
    assert mistake[:4] == ("the file of", *sides, pytest.approx(0.9))


def test_tags_without_spans_are_scored_by_accuracy(read):
    task = read({"train.txt": "the DT\nin IN\n\nof IN\n", "dev.conll": "of IN\n"})
    assert task.monitor == "dev_accuracy"


def test_dev_is_held_out_without_a_dev_file(read):
    devs = []
    for seed in (0, 0, 1):
        splits = read(DIFFERENT, split_seed=seed).splits
        lines = [[s.line for s in splits[name].items] for name in ("train", "dev")]
        assert (len(lines[0]), len(lines[1])) == (18, 2)
        assert len({*lines[0], *lines[1]}) == 20
        devs.append(lines[1])
    assert devs[0] == devs[1] != devs[2]


def dev(tags):
    return {"train.txt": GOOD, "dev.txt": tags}


ERRORS = {  # files, settings, words of the error
    "no train": ({"dev.txt": GOOD}, {}, r"one of train\.txt"),
    "one sentence": ({"train.txt": "the O\n"}, {}, "1 sentences; .*dev file"),
    "a tag of no span": (
        GOOD + "of X\n", {}, "all:25: a tag that marks no span: 'X'",
    ),
    # It would end the scoring by spans.
    "an unusual header": (
        "Wort Marke\n" + GOOD, {}, "all:1: a tag that marks no span: 'Marke'",
    ),
    "a tag that train lacks": (
        dev("the O\nof B-Y\n"), {}, r"txt:2: .*'B-Y'; known: 'B-X', 'O'[;.]",
    ),
    "a tag of no span that train lacks": (
        {"train.txt": "the DT\nof IN\n\n" * 4, "dev.txt": "of IN\nall X\n"}, {},
        r"txt:2: .*'X'; known: 'DT', 'IN'[;.]",
    ),
    "other tags in dev": (dev("the DT\n"), {}, r"dev\.txt:1: .*'DT'"),
    "keys of columns": (
        {"train.txt": GOOD}, {"label_column": "ner_tags"}, "--label_column.*JSON",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("files", "settings", "words"), ERRORS.values(), ids=ERRORS)
def test_data_that_is_an_error(read, files, settings, words):
    with pytest.raises(InputError, match=words):
        read(files, **settings)


def test_notes_on_the_tags(read):
    def notes(text, **settings):
        lines = []
        return read(text, notify=lines.append, **settings), lines

    task, lines = notes(DIFFERENT[: DIFFERENT.index("The B-NP\ncat5")])
    assert "held out as dev: 1 of 5 sentences" in lines[0]
    assert "IOB2: scored by F1" in lines[1]
    assert {s.words[0] for s in task.splits["train"].items} == {"The"}
    counts = "4 of tag B-NP, 4 of tag I-NP, 4 of tag B-VP, 4 of tag O"
    assert task.label_counts == counts
    assert "first at" in notes(DIFFERENT + "he I-NP\n")[1][2]
    words = notes("The D\ncat N\n\na D\ndog N\n")[1][-1]
    assert "2 tags, scored by accuracy" in words
    task, _ = notes("".join(f"w T{n}\n" for n in range(1000)) + "\nv T0\n\nw T0\n")
    assert task.label_counts.endswith(", and 980 more")


BILOU = "New B-X\nRed I-X\nYork L-X\nis O\nof U-Y\n\n" * 6


def test_bilou_is_read_as_bioes(read):
    lines, dev = [], "a U-X\nb B-Y\nc L-Y\n"
    files = {"train.txt": BILOU, "dev.txt": dev}
    task = read(files, notify=lines.append)
    assert task.monitor == "dev_f1"
    assert task.model.keywords["scheme"] == "BIOES"
    kinds = {tag[2:] for tag in task.model.keywords["tags"]} - {""}
    assert kinds == {"X", "Y"}
    assert task.splits["dev"].targets == [("S-X", "B-Y", "E-Y")]
    (line,) = (line for line in lines if "as BIOES" in line)
    assert all(word in line for word in ("'L-X' as 'E-X'", "'U-X' as 'S-X'"))
    assert "in the scheme BIOES" in lines[-1]
    # A tag of no span, and one of a type that train lacks.
    with pytest.raises(InputError, match=r":38: a tag that marks no span: 'X'"):
        read(BILOU + "a U-X\nb X\n\n" + BILOU)
    with pytest.raises(InputError, match=r"dev\.txt:1: .*'S-Z'"):
        read(files | {"dev.txt": "a U-Z\n"})


@pytest.mark.parametrize("scheme", SCHEMES)
def test_predictions_have_the_scheme_of_the_files(scheme, read, tmp_path):
    spans = [Span(0, 1, "X"), Span(2, 2, "X"), Span(3, 4, "Y"), Span(6, 6, "Y")]
    words = ["the", "of", "in", "and", "to", "the", "of"]
    rows = zip(words, write_spans(spans, 7, scheme), strict=True)
    text = ("".join(f"{word} {tag}\n" for word, tag in rows) + "\n") * 3
    task = read({"train.txt": text, "dev.txt": text})
    assert task.monitor == "dev_f1"
    expected = {"O"} | {f"{mark}-{kind}" for mark in "BIES" for kind in "XY"}
    assert set(task.model.keywords["tags"]) == expected
    model = task.model(tiny.start(), settings=tiny.settings(), seed=0)
    assert model.scheme == scheme
    dev = task.splits["dev"]
    examples = task.training_examples(model)
    # One-hot outputs: every prediction is correct.
    count = len(task.model.keywords["tags"])
    outputs = [np.eye(count)[row] for row in examples.targets]
    details = model.decode_details(dev.items, examples, outputs)
    found = ScoredSplit(TagTask(), model, dev, details, task.metrics)
    assert [tuple(tags) for tags in found.predictions] == dev.targets
    names = ["f1", "precision", "recall", "accuracy"]
    assert list(found.scores.items()) == [(name, 100) for name in names]
    found.task.write(found, str(tmp_path / "predicted"))
    for line in (tmp_path / "predicted.txt").read_text().split("\n"):
        assert not line or line.split()[1] == line.split()[2]
