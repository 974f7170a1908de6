"""Linear probe: how much of a sentence's grammar a frozen encoder's states show.

A logistic regression predicts the part of speech and the chunk tag of each word from
the state of its first wordpiece. It needs seconds and has a small spread, so it
compares short pre-training runs, whose fine-tuned scores are too noisy.
"""

import argparse
import json
import os
import random
import sys
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from electra_tf import sources
from electra_tf.errors import InputError
from electra_tf.model.encoder import TransformerEncoder
from electra_tf.sources import PretrainedEncoder
from electra_tf.tasks.data.conll import Sentence, read_conll
from electra_tf.tasks.data.splits import find_splits
from electra_tf.tasks.token_classifier import encode_words
from electra_tf.text.data_errors import DataErrorLog
from electra_tf.text.warnings import UnknownCounter

SENTENCES = {"train": 1000, "test": 500}
"""Sentences of each split, drawn with a fixed seed."""
_TAGS = ("pos", "chunk")
_BATCH, _ITERATIONS = 50, 200


class _Words(NamedTuple):
    """Words, with their tags and the states of their first wordpieces in all layers."""

    states_XLD: np.ndarray
    tags: dict[str, np.ndarray]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", required=True, help="A pre-trained model.")
    parser.add_argument("--data", required=True, help="Folder of CoNLL-2000.")
    parser.add_argument("--untrained", action="store_true", help="Random weights.")
    options = parser.parse_args()
    try:
        report = evaluate_probe(options.checkpoint, options.data, options.untrained)
    except InputError as error:
        sys.exit(f"error: {error}")
    print(json.dumps(report))


def evaluate_probe(path: str, data: str, untrained: bool = False) -> dict[str, Any]:
    """Train probes on every layer of an encoder with CoNLL-2000.

    Return the accuracy in percent of each kind of tag on the test words: by layer (0:
    below the first one), of the best layer, and of the last one. The best layer is
    chosen on a fifth of the training words, which trains no probe.
    """
    pretrained = sources.open_pretrained(path).encoder
    if untrained:
        pretrained = pretrained.untrained()
    encoder = pretrained.build_encoder()
    splits, left_out = {}, 0
    for split, sentences in read_splits(data).items():
        count = min(SENTENCES[split], len(sentences))
        sentences = random.Random(0).sample(sentences, count)
        splits[split], missing = _encode(encoder, pretrained, sentences, split)
        left_out += missing
    return {
        "checkpoint": path,
        "untrained": untrained,
        "words": {name: len(words.states_XLD) for name, words in splits.items()},
        "long_sentences": left_out,
        **{kind: _evaluate(splits["train"], splits["test"], kind) for kind in _TAGS},
    }


def _evaluate(train: _Words, test: _Words, kind: str) -> dict[str, Any]:
    end = len(train.states_XLD) - max(1, len(train.states_XLD) // 5)
    fitted, choosing = (
        _Words(train.states_XLD[part], {kind: train.tags[kind][part]})
        for part in (slice(end), slice(end, None))
    )
    scores = [
        _accuracies(fitted, (test, choosing), layer, kind)
        for layer in range(train.states_XLD.shape[1])
    ]
    layers = [score for score, _ in scores]
    best = max(range(len(scores)), key=lambda layer: scores[layer][1])
    found = {"best_layer": best, "best": layers[best], "last": layers[-1]}
    return {"layers": layers, **found}


def _accuracies(
    train: _Words, others: Sequence[_Words], layer: int, kind: str
) -> list[float]:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from threadpoolctl import threadpool_limits

    probe = make_pipeline(StandardScaler(), LogisticRegression(max_iter=_ITERATIONS))
    # Threads that wait for a core that others use make a fit ten times slower.
    with threadpool_limits(1), warnings.catch_warnings():
        # The number of iterations is fixed, so that a probe has a bounded time.
        warnings.filterwarnings("ignore", message="lbfgs failed to converge")
        probe.fit(train.states_XLD[:, layer], train.tags[kind])
    pairs = ((words.states_XLD[:, layer], words.tags[kind]) for words in others)
    return [100 * float(probe.score(*pair)) for pair in pairs]


def _encode(
    encoder: TransformerEncoder,
    pretrained: PretrainedEncoder,
    sentences: Sequence[tuple[Sentence, Sentence]],
    name: str,
) -> tuple[_Words, int]:
    limit = pretrained.shape.max_positions
    rows, firsts, tags, left_out = [], [], [], 0
    for pos, chunks in sentences:
        part, *others = encode_words(pos.words, pretrained.tokenizer, limit)
        if others or part.cut:
            left_out += 1
            continue
        rows.append(part.ids)
        firsts.append(part.starts)
        tags += zip(pos.tags, chunks.tags, strict=True)
    unknown = UnknownCounter(pretrained.tokenizer)
    unknown.add(rows)
    for line in unknown.lines(name):
        print(line, file=sys.stderr)
    states = []
    for start in range(0, len(rows), _BATCH):
        part = tf.ragged.constant(rows[start : start + _BATCH], tf.int32)
        ids_BL, mask_BL = part.to_tensor(), tf.ones_like(part).to_tensor()
        layers = encoder.states(ids_BL, tf.zeros_like(ids_BL), mask_BL, False)
        states_BLXD = np.stack([x.numpy() for x in layers], 2).astype(np.float32)
        for row, first in enumerate(firsts[start : start + _BATCH]):
            states.append(states_BLXD[row, first])
    columns = np.array(tags)
    named = {kind: columns[:, i] for i, kind in enumerate(_TAGS)}
    return _Words(np.concatenate(states), named), left_out


def read_splits(data: str) -> dict[str, list[tuple[Sentence, Sentence]]]:
    paths = find_splits(data, tuple(SENTENCES), (".txt",))
    if os.path.isfile(data) or len(paths) < len(SENTENCES):
        raise InputError(
            f"--data must be a folder with train.txt and test.txt of CoNLL-2000, "
            f"perhaps compressed, not {data!r}"
        )
    log = DataErrorLog("stop")
    return {
        split: list(zip(*(read_conll(path, 0, n, log) for n in (1, 2)), strict=True))
        for split, path in paths.items()
    }


if __name__ == "__main__":
    main()
