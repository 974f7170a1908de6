"""Initial token embeddings from counts of neighbouring tokens."""

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.errors import InputError
from electra_tf.runs import token_embeddings
from electra_tf.text.pipeline import count_tokens
from electra_tf.text.vocab import SPECIAL_TOKENS
from electra_tf.training.checkpoint import open_checkpoint
from tests import tiny


def test_neighbours_are_counted_in_both_directions_by_distance():
    ids_BL = np.random.default_rng(0).integers(0, 7, (4, 9), np.int32)
    expected_VV = np.zeros((7, 7))
    for row in ids_BL:
        for i, left in enumerate(row):
            for j, right in enumerate(row):
                if 0 < abs(i - j) <= 5 and left and right:  # 0 is special
                    expected_VV[left, right] += (6 - abs(i - j)) / 5
    counts_VV = token_embeddings.neighbours(ids_BL, [0], 7)
    np.testing.assert_allclose(counts_VV.toarray(), expected_VV, rtol=1e-5)
    information_VV = token_embeddings.mutual_information(counts_VV).toarray()
    share_V = expected_VV.sum(0) ** 0.75
    share_V /= share_V.sum()
    for left, right in np.ndindex(7, 7):
        count = expected_VV[left, right]
        ratio = count / (expected_VV[left].sum() * share_V[right]) if count else 1
        assert information_VV[left, right] == pytest.approx(
            max(0, np.log(ratio)), abs=1e-5
        )


def test_tokens_of_equal_neighbours_are_similar():
    """Tokens 2 and 3 occur beside 4 to 9, tokens 20 and 21 beside 10 to 19."""
    rng = np.random.default_rng(0)
    kinds = ([2, 3], range(4, 10)), ([20, 21], range(10, 20))
    rows = [
        np.ravel([[rng.choice(a), rng.choice(b)] for _ in range(8)])
        for _ in range(500)
        for a, b in [kinds[rng.integers(2)]]
    ]
    counts_VV = token_embeddings.neighbours(np.array(rows), [0, 1], 22)
    information_VV = token_embeddings.mutual_information(counts_VV)
    vectors_VE = token_embeddings.singular_vectors(information_VV, 2)
    norms_V = np.linalg.norm(vectors_VE, axis=1)
    assert not norms_V[:2].any()
    unit_VE = vectors_VE[2:] / norms_V[2:, None]
    assert unit_VE[0] @ unit_VE[1] > 0.9
    assert unit_VE[0] @ unit_VE[-1] < 0.5


def test_padding_counts_as_no_token(corpus_file, tmp_path):
    vocabulary = tiny.moved_padding()
    tiny.build_records(corpus_file, tmp_path / "r", vocabulary, max_length=32)
    experiment = tiny.resolve(tmp_path / "r")
    records, pretrainer = experiment.open(f"{tmp_path}/r"), experiment.pretrainer()
    token_embeddings.load_token_embeddings(pretrainer, records, experiment.tokenizer)
    counts_V = count_tokens(records)
    assert counts_V[0] > 0
    counts_V[[vocabulary.ids[token] for token in SPECIAL_TOKENS]] = 0
    logs_V = np.log(1 + counts_V)
    (bias_V,) = (w for w in pretrainer.weights if w.path.endswith("output_bias"))
    np.testing.assert_allclose(bias_V, logs_V - logs_V.mean(), rtol=1e-4, atol=1e-5)


@pytest.mark.runs
def test_a_run_begins_with_vectors_of_its_records(folder, tmp_path, here):
    sets = (
        *("training.token_embeddings=counts", "training.steps=1"),
        *("optimizer.learning_rate=1e-9", "optimizer.warmup_steps=0"),
        "model.sharing=none",
    )
    flags = [f"--set={value}" for value in sets]
    result = here(
        "pretrain", "--config=tiny", f"--data={folder}", f"--model_dir={tmp_path}/r",
        *flags,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "token embeddings from the neighbours in" in result.stderr
    weights = open_checkpoint(str(tmp_path / "r")).weights()
    tables = [w for name, w in weights.items() if name.endswith("word_embeddings")]
    assert len(tables) == 2
    for table_VE in tables:
        norms_V = np.linalg.norm(table_VE, axis=1)
        median = np.median(norms_V)
        share = np.mean(np.isclose(norms_V / median, [[0.5], [1], [1.5]], rtol=1e-3))
        assert share > 0.01  # clipped norms: random ones are spread
    (bias_V,) = (w for name, w in weights.items() if name.endswith("output_bias"))
    assert np.ptp(bias_V) > 1  # log counts


def test_several_workers_are_an_error():
    class Trainer:
        distribute_strategy = object.__new__(tf.distribute.MultiWorkerMirroredStrategy)

    with pytest.raises(InputError, match="in one process"):
        token_embeddings.load_token_embeddings(Trainer(), None, None)
