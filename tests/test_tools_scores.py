"""Linear probes on a toy grammar, pairs of sentences, and their programs."""

import gzip
import json
import lzma
import random
import sys

import numpy as np
import pytest
from conftest import ROOT
from tiny import resolve

pytestmark = pytest.mark.tools

WORDS = {"the": ("DT", "B-NP"), "cat": ("NN", "I-NP"), "ran": ("VB", "B-VP")}


@pytest.fixture
def tool(monkeypatch):
    """Return a function that imports a program of tools/reproduction."""
    monkeypatch.syspath_prepend(str(ROOT / "tools" / "reproduction"))
    yield __import__
    for name in ("blimp", "probe"):
        sys.modules.pop(name, None)


@pytest.fixture
def run_tool(tool, monkeypatch, capsys):
    """Return a function that runs a program here; it returns output or message."""

    def run(name, *flags):
        monkeypatch.setattr(sys, "argv", [name, *map(str, flags)])
        try:
            tool(name).main()
        except SystemExit as error:
            return str(error.code), ""
        return capsys.readouterr()

    return run


@pytest.fixture(scope="module")
def grammar(tmp_path_factory):
    """Return a folder with sentences whose tags follow from the words."""
    folder, rng = tmp_path_factory.mktemp("conll"), random.Random(0)
    for split, count in (("train", 60), ("test", 30)):
        sentences = []
        for _ in range(count):
            words = rng.choices(list(WORDS), k=rng.randint(2, 9))
            sentences.append("".join(f"{w} {' '.join(WORDS[w])}\n" for w in words))
        with gzip.open(folder / f"{split}.txt.gz", "wt") as file:
            file.write("\n".join(sentences))
    return folder


@pytest.mark.parametrize("untrained", [False, True])
def test_words_that_have_one_tag_are_always_right(tool, pretrained, grammar, untrained):
    evaluate_probe = tool("probe").evaluate_probe
    report = evaluate_probe(str(pretrained), str(grammar), untrained)
    for kind in ("pos", "chunk"):
        assert len(report[kind]["layers"]) == 3  # depth 2
        best = report[kind]["best_layer"]
        assert report[kind]["best"] == report[kind]["layers"][best] == 100
        assert report[kind]["last"] == report[kind]["layers"][-1]
    assert report["long_sentences"] == 0
    again = evaluate_probe(str(pretrained), str(grammar), untrained)
    assert again == report


def test_the_best_layer_is_chosen_on_training_words(tool):
    probe = tool("probe")
    rng = np.random.default_rng(0)
    tags = np.array(["A", "B"] * 50)
    noise, clear = rng.normal(size=(2, 100, 1, 3))
    clear[tags == "B"] += 9
    train = np.concatenate([noise, clear], 1)
    for order, best in ((slice(None), 1), (slice(None, None, -1), 0)):
        # On the test words the other layer is better.
        train_words = probe._Words(train[:, order], {"pos": tags})
        test_words = probe._Words(train[:, order], {"pos": np.roll(tags, 1)})
        found = probe._evaluate(train_words, test_words, "pos")
        assert found["best_layer"] == best
        assert found["best"] == found["layers"][best] == min(found["layers"]) == 0


def test_blimp_compares_the_scores_of_pairs(folder, tmp_path, run_tool):
    experiment = resolve(folder)
    pretrainer = experiment.pretrainer()
    rng = np.random.default_rng(0)
    for variable in pretrainer.trainable_variables:
        variable.assign(rng.normal(0, 0.3, variable.shape))
    pretrainer.optimizer.iterations.assign(1)
    path = experiment.save_checkpoint(pretrainer, str(tmp_path / "run"))
    texts = ["the cat", "a", "the quick brown fox , and the other one", "b c d e f"]
    pairs = [(texts[i], texts[j]) for i, j in ((0, 1), (1, 0), (2, 3), (3, 2), (0, 0))]
    names = [("x", "p"), ("x", "p"), ("y", "p"), ("y", "p"), ("z", "q")]
    rows = [
        {"UID": uid, "linguistics_term": term, "sentence_good": a, "sentence_bad": b}
        for (uid, term), (a, b) in zip(names, pairs, strict=True)
    ]
    data = tmp_path / "data"
    data.mkdir()
    flags = f"--checkpoint={path}", f"--data={data}"
    message, _ = run_tool("blimp", *flags)
    assert f"{data} must be a .jsonl file" in message
    lines = "\n".join(map(json.dumps, rows)).encode()
    (data / "pairs.jsonl.xz").write_bytes(lzma.compress(lines))
    out, _ = run_tool("blimp", *flags)
    report = json.loads(out)
    # Of a pair and its reverse one is right; equal sentences count as wrong.
    assert report["paradigms"] == {"x": 50, "y": 50, "z": 0}
    assert report["phenomena"] == {"p": 50, "q": 0}
    assert report["accuracy"] == pytest.approx(100 / 3)
    (data / "bad.jsonl").write_text('{"UID": "x"}\n')
    message, _ = run_tool("blimp", *flags)
    assert "bad.jsonl" in message
    assert "linguistics_term" in message
