"""Initial token embeddings from counts of neighbouring tokens.

The singular vectors of the tokens' positive pointwise mutual information (Levy and
Goldberg, 2014). A network begins with similar vectors for words of similar use, instead
of learning them first.
"""

from collections.abc import Sequence

import numpy as np
import scipy.sparse
import sklearn.utils.extmath
import tensorflow as tf

from electra_tf.errors import InputError
from electra_tf.pretraining.pretrainer import Pretrainer
from electra_tf.text.pipeline import evaluation_batches
from electra_tf.text.record_set import RecordSet
from electra_tf.text.tokenizer import WordPieceTokenizer
from electra_tf.text.vocab import PAD, SPECIAL_TOKENS
from electra_tf.training.checkpoint import assign, training_state

_WINDOW = 5  # distance of neighbours, in tokens
_SMOOTHING = 0.75  # exponent of the neighbours' counts: rare ones are not overrated
_ROWS = 2**20  # records that are read, at most
_CHUNK = 2**14  # records that are in memory at a time


def load_token_embeddings(
    pretrainer: Pretrainer, records: RecordSet, tokenizer: WordPieceTokenizer
) -> str:
    """Replace the token tables and the biases of the vocabulary; return a summary.

    A bias becomes the log of the token's count, minus the mean. Rows of tokens without
    neighbours, and of special tokens, stay random.
    """
    if isinstance(
        pretrainer.distribute_strategy, tf.distribute.MultiWorkerMirroredStrategy
    ):  # whose rounding would differ
        raise InputError(
            "training.token_embeddings=counts must run in one process; train one step "
            "there, and pass that run as --init_checkpoint"
        )
    size = pretrainer.config.model.vocabulary_size
    special = [tokenizer.vocabulary.ids[token] for token in SPECIAL_TOKENS]
    padding = tokenizer.vocabulary.ids[PAD]
    counts_V = np.zeros(size, np.int64)
    counts_VV = scipy.sparse.csr_array((size, size), dtype=np.float32)
    for batch in evaluation_batches(records, _CHUNK).take(_ROWS // _CHUNK):
        ids_BL = np.where(batch.input_mask_BL, batch.input_ids_BL, padding)
        counts_V += np.bincount(ids_BL.ravel(), minlength=size)
        counts_VV += neighbours(ids_BL, special, size)
    counts_V[special] = 0
    information_VV = mutual_information(counts_VV)
    new = {}
    for path, weight in training_state(pretrainer)[0].items():
        if path.endswith("word_embeddings"):
            random_VE = np.asarray(weight)
            vectors_VE = singular_vectors(information_VV, random_VE.shape[1])
            vectors_VE *= np.median(np.linalg.norm(random_VE, axis=1))
            known = vectors_VE.any(1, keepdims=True)
            new[path] = np.where(known, vectors_VE, random_VE)
        elif path.endswith("output_bias"):
            logs_V = np.log(1 + counts_V[: len(np.asarray(weight))])
            new[path] = logs_V - logs_V.mean()
    variables = {v.path: v for v in pretrainer.trainable_variables if v.path in new}
    assign(variables, new, "the counts")
    count = min(records.total, _ROWS)
    return f"token embeddings from the neighbours in {count:,} records"


def neighbours(
    ids_BL: np.ndarray, special: Sequence[int], size: int
) -> scipy.sparse.csr_array:
    """Return how often two tokens are neighbours; near ones count more: [V, V]."""
    ids_BL = np.where(np.isin(ids_BL, special), -1, ids_BL)
    counts_VV = scipy.sparse.csr_array((size, size), dtype=np.float32)
    for distance in range(1, _WINDOW + 1):
        left, right = ids_BL[:, :-distance].ravel(), ids_BL[:, distance:].ravel()
        real = (left >= 0) & (right >= 0)
        weights = np.full(real.sum(), 1 - (distance - 1) / _WINDOW, np.float32)
        pairs = left[real], right[real]
        counts_VV += scipy.sparse.coo_array((weights, pairs), (size, size)).tocsr()
    return (counts_VV + counts_VV.T).tocsr()


def mutual_information(counts_VV: scipy.sparse.csr_array) -> scipy.sparse.csr_array:
    """Return the positive pointwise mutual information of neighbours."""
    counts_V = counts_VV.sum(1)
    share_V = counts_V**_SMOOTHING / (counts_V**_SMOOTHING).sum()
    pairs = counts_VV.tocoo()
    expected = counts_V[pairs.row] * share_V[pairs.col]
    values = np.log(np.maximum(pairs.data / expected, 1))
    return scipy.sparse.csr_array((values, (pairs.row, pairs.col)), pairs.shape)


def singular_vectors(information_VV: scipy.sparse.csr_array, width: int) -> np.ndarray:
    """Return a vector for each token, of median norm 1; zeros without neighbours."""
    left_VE, values_E, _ = sklearn.utils.extmath.randomized_svd(
        information_VV, width, n_iter=4, random_state=0
    )
    vectors_VE = left_VE * np.sqrt(values_E)
    norms_V = np.linalg.norm(vectors_VE, axis=1)
    known = norms_V > 1e-6
    wanted_V = norms_V[known] / np.median(norms_V[known])
    # Rare tokens would have the longest vectors, and much of the softmax.
    wanted_V = np.clip(wanted_V, 0.5, 1.5)
    vectors_VE[known] *= (wanted_V / norms_V[known])[:, None]
    vectors_VE[~known] = 0
    return vectors_VE
