"""Tests of tagging tasks: column files, scores, written predictions."""

import keras
import numpy as np
import pytest
import tiny

from electra_tf.config.finetuning import DataConfig
from electra_tf.errors import InputError
from electra_tf.tasks.datasets import read_task as tagging_task
from electra_tf.tasks.schemes import SCHEMES, Span, write_spans
from electra_tf.tasks.splits import Split
from electra_tf.text.data_errors import DataErrorLog

TAGS = {"the": "B-X", "of": "I-X", "in": "B-Y"}


def column_file(path, count, seed=0, extra=""):
    """Words, a column of nothing, and tags: `the of` is an X, `in` a Y."""
    draw, lines = np.random.default_rng(seed), []
    for _ in range(count):
        for _ in range(draw.integers(1, 6)):
            words = [["the", "of"], ["in"], ["and"], ["to"]][draw.integers(4)]
            lines += [f"{word} _ {TAGS.get(word, 'O')}" for word in words]
        lines.append("")
    path.write_text("\n".join(lines) + "\n" + extra)


@pytest.fixture
def log(tmp_path):
    return DataErrorLog("stop", tmp_path / "problems.txt", "rule")


def read(folder, log, **changes):
    return tagging_task("chunking", str(folder), tiny.settings(**changes).data, log)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("columns")
    column_file(folder / "train.txt", 30)
    column_file(folder / "dev.txt", 10, 1)
    return folder


def test_training_from_files_and_span_scores(folder, log, tmp_path):
    task = read(folder, log)
    assert task.monitor == "dev_f1"
    expected = {"O"} | {f"{mark}-{kind}" for mark in "BIES" for kind in "XY"}
    assert set(task.model.keywords["tags"]) == expected
    settings = tiny.settings(data_max_length=8, **tiny.NO_DROPOUT)
    model = task.model(tiny.start(), settings=settings, seed=0)
    examples = task.training_examples(model)
    assert len(examples) > 30  # long sentences in several parts
    model.compile(keras.optimizers.Adam(5e-3))
    model.fit(examples, epochs=25, verbose=0)
    dev = task.splits["dev"]
    predicted = task.scorer.predict(model, dev.items)
    scores = task.scorer.score(dev, predicted)
    assert list(scores) == ["f1", "precision", "recall", "accuracy"]
    assert scores["f1"] > 95
    assert task.scorer.degenerate(dev, predicted) is None
    task.scorer.write(dev, predicted, str(tmp_path / "dev"))
    blocks = (tmp_path / "dev.txt").read_text().split("\n\n")[:-1]
    rows = [line.split() for block in blocks for line in block.splitlines()]
    assert [row[0] for row in rows] == [w for s in dev.items for w in s.words]
    assert [row[1] for row in rows] == [t for s in dev.items for t in s.tags]
    assert [row[2] for row in rows] == [tag for tags in predicted for tag in tags]
    assert len(blocks) == 10


def test_scores_by_hand(folder, log):
    task = read(folder, log)
    gold = Split([], [("B-X", "I-X", "O"), ("B-Y",)])
    scores = task.scorer.score(gold, [["B-X", "E-X", "O"], ["O"]])
    assert scores["precision"] == 100
    assert scores["recall"] == 50
    assert scores["f1"] == pytest.approx(200 / 3)
    assert scores["accuracy"] == 75
    assert task.scorer.degenerate(gold, [["O", "O"], ["O"]]) == "predicts no span"
    assert task.scorer.degenerate(gold, [["S-X"]]) == "always predicts S-X"


def test_accuracy_of_tags_without_spans(tmp_path, log):
    (tmp_path / "train.txt").write_text("the DT\nin IN\n\nof IN\n")
    (tmp_path / "dev.conll").write_text("of IN\nthe DT\n")
    task = read(tmp_path, log)
    assert task.monitor == "dev_accuracy"
    assert task.scorer.score(task.splits["dev"], [["IN", "IN"]]) == {"accuracy": 50.0}


def test_dev_is_held_out_without_a_dev_file(tmp_path, log):
    column_file(tmp_path / "all.txt", 20)
    for data_split_seed, name in ((0, "a"), (0, "b"), (1, "c")):
        task = read(tmp_path / "all.txt", log, data_split_seed=data_split_seed)
        train, dev = task.splits["train"].items, task.splits["dev"].items
        assert (len(train), len(dev)) == (18, 2)
        assert sorted(s.line for s in (*train, *dev)) == sorted(
            {s.line for s in (*train, *dev)}
        )
        (tmp_path / name).write_text(repr([s.line for s in dev]))
    assert (tmp_path / "a").read_text() == (tmp_path / "b").read_text()
    assert (tmp_path / "a").read_text() != (tmp_path / "c").read_text()


def test_missing_files_and_tags_raise(tmp_path, log):
    with pytest.raises(InputError, match="without train"):
        read(tmp_path, log)
    (tmp_path / "train.txt").write_text("the DT\n")
    with pytest.raises(InputError, match=r"dev file.*Received: 1 in"):
        read(tmp_path, log)
    (tmp_path / "dev.txt").write_text("the\n")
    with pytest.raises(InputError, match=r"dev\.txt:1"):
        read(tmp_path, log)
    reporting = DataErrorLog("report", tmp_path / "problems.txt", "rule")
    with pytest.raises(InputError, match=r"dev\.txt with none"):
        read(tmp_path, reporting)
    reporting.close()


def test_tags_missing_from_train_are_reported(tmp_path, log, report):
    (tmp_path / "train.txt").write_text("a B-X\nb O\n\nc O\n\nd O\n")
    for tags, message in (
        ("a O\nb B-Y\n", "dev.txt:2: .*'B-Y'"),
        ("a N\n", "dev.txt:1"),
    ):
        (tmp_path / "dev.txt").write_text(tags)
        with pytest.raises(InputError, match=message):
            read(tmp_path, log)
        with pytest.raises(
            InputError, match="dev with known tags only; known: 'B-X', 'E-X', "
        ):
            read(tmp_path, report)
    (tmp_path / "dev.txt").write_text("a O\nb B-Y\n\nc O\n\nc I-Y\n")
    known = report.counts.total()
    assert [s.words for s in read(tmp_path, report).splits["dev"].items] == [("c",)]
    assert report.counts["a tag training does not have"] == known + 2
    report.close()


SPANS = "The B-NP\ncat I-NP\nsat B-VP\n. O\n\n"


def test_header_lines_are_removed(tmp_path, log, report):
    lines = []
    (tmp_path / "a").write_text("token tag\n" + SPANS * 5)
    task = tagging_task("tagging", str(tmp_path / "a"), DataConfig(), log, lines.append)
    assert task.scorer.metric == "f1"
    sentences = [*task.splits["train"].items, *task.splits["dev"].items]
    assert {s.words[0] for s in sentences} == {"The"}
    assert f"{tmp_path}/a:1: 'token' with the tag 'tag' is read as a h" in lines[0]
    # One of no usual names is refused, as it would end the scoring by spans.
    (tmp_path / "a").write_text("Wort Marke\n" + SPANS * 5)
    with pytest.raises(InputError, match=r"a:1: a tag that marks no span: 'Marke'"):
        tagging_task("tagging", str(tmp_path / "a"), DataConfig(), log, lines.append)
    task = tagging_task(
        "tagging", str(tmp_path / "a"), DataConfig(), report, lines.append
    )
    assert report.counts == {"a tag that marks no span": 1}
    assert len(task.splits["train"]) + len(task.splits["dev"]) == 4
    report.close()


def test_notes_on_the_tags(tmp_path, log):
    lines = []

    def read_text(text, **settings):
        lines.clear()
        (tmp_path / "a").write_text(text)
        return tagging_task(
            "tagging", str(tmp_path / "a"), DataConfig(**settings), log, lines.append
        )

    task = read_text(SPANS * 5)
    assert "held out as dev: 1 of 5 sentences" in lines[0]
    assert "IOB2" in lines[1]
    assert "F1" in lines[1]
    tags = "4 of tag B-NP, 4 of tag I-NP, 4 of tag B-VP, 4 of tag O"
    assert task.label_counts == tags
    read_text(SPANS * 5 + "he I-NP\n")
    assert f"first at {tmp_path}/a:26" in lines[2]
    read_text("The D\ncat N\n\n" * 3)
    assert "2 tags, scored by accuracy" in lines[-1]
    read_text("The B-N\ncat L-N\n\n" * 3)
    assert "'L-N' have another mark than B, I, E and S" in lines[-1]
    task = read_text("".join(f"w T{n}\n" for n in range(1000)) + "\nw T0\n" * 2)
    assert task.label_counts.endswith(", and 980 more")
    numbered = "1\tThe\tD\n2\tcat\tN\n\n" * 3
    with pytest.raises(InputError, match=r"data\.word_column=1"):
        read_text(numbered)
    read_text(numbered, word_column=1)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_predictions_have_the_scheme_of_the_files(scheme, tmp_path, log):
    spans = [Span(0, 1, "X"), Span(2, 2, "X"), Span(3, 4, "Y"), Span(6, 6, "Y")]
    words = ["the", "of", "in", "and", "to", "the", "of"]
    rows = zip(words, write_spans(spans, 7, scheme), strict=True)
    sentence = "".join(f"{word} {tag}\n" for word, tag in rows)
    for name in ("train.txt", "dev.txt"):
        (tmp_path / name).write_text(f"{sentence}\n" * 3)
    task = read(tmp_path, log)
    model = task.model(tiny.start(), settings=tiny.settings(), seed=0)
    assert model.scheme == scheme
    dev = task.splits["dev"]
    examples = model.examples(dev.items, dev.targets)
    # One-hot outputs: every prediction is correct.
    outputs = [
        np.eye(len(task.model.keywords["tags"]))[row] for row in examples.targets
    ]
    predicted = model.decode(dev.items, examples, outputs)
    assert [tuple(tags) for tags in predicted] == dev.targets
    scores = task.scorer.score(dev, predicted)
    assert (scores["f1"], scores["accuracy"]) == (100, 100)
    task.scorer.write(dev, predicted, str(tmp_path / "predicted"))
    for line in (tmp_path / "predicted.txt").read_text().split("\n"):
        assert not line or line.split()[1] == line.split()[2]


def test_one_span_for_each_sentence_is_degenerate(folder, log):
    task, gold = read(folder, log), Split([], [])
    assert "one span of X" in task.scorer.degenerate(gold, [["B-X", "I-X"], ["B-X"]])
    for predicted in (
        [["B-X", "I-X"], ["B-Y"]],
        [["B-X", "I-X"], ["O"]],
        [["B-X", "B-X"]],
    ):
        reason = task.scorer.degenerate(gold, predicted)
        assert reason is None or reason == "always predicts B-X"
