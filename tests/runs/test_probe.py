"""Linear probes on a toy grammar, and the command."""

import gzip
import json
import random

import numpy as np
import pytest
from conftest import failure

from electra_tf.runs import probe
from electra_tf.runs.probe import evaluate_probe

WORDS = {"the": ("DT", "B-NP"), "cat": ("NN", "I-NP"), "ran": ("VB", "B-VP")}


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
def test_words_that_have_one_tag_are_always_right(pretrained, grammar, untrained):
    report = evaluate_probe(str(pretrained), str(grammar), untrained)
    for kind in ("pos", "chunk"):
        assert len(report[kind]["layers"]) == 3  # depth 2
        best = report[kind]["best_layer"]
        assert report[kind]["best"] == report[kind]["layers"][best] == 100
        assert report[kind]["last"] == report[kind]["layers"][-1]
    assert report["long_sentences"] == 0
    again = evaluate_probe(str(pretrained), str(grammar), untrained)
    assert again == report


def test_the_best_layer_is_chosen_on_training_words():
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


def test_the_command(pretrained, grammar, tmp_path, here):
    flags = "--task=probe", f"--checkpoint={pretrained}"
    result = here("evaluate", *flags, f"--data={grammar}")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["chunk"]["best"] == 100
    assert "best" in result.stderr
    for split in ("train", "test"):
        (tmp_path / f"{split}.txt").write_text("word tag\n")
    (tmp_path / "empty").mkdir()
    for given, words in (
        ([f"--data={tmp_path}"], "train.txt:1"),
        ([f"--data={tmp_path / 'empty'}"], "must be a folder with train.txt"),
        ([f"--data={grammar}", "--batches=1"], "--batches"),
    ):
        assert words in failure(here("evaluate", *flags, *given))
