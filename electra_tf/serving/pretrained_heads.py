"""What a pre-trained model says of ids: vectors, judgements, proposals.

Each is a module that holds its variables and, beside it, the word of the Keras layers
it was made from, which are not part of it.
"""

import abc
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from electra_tf.model.electra import Discriminator, MaskedLanguageModel
from electra_tf.model.transformer import Encoder
from electra_tf.serving.chunked import chunked_encoder
from electra_tf.serving.inference_encoder import InferenceEncoder

MAX_MASKS = 1024
"""Of a request: each one has a logit for every entry of the vocabulary."""

Inputs = dict[str, tf.Tensor]
Outputs = dict[str, tf.Tensor]


class InferenceHead(tf.Module, abc.ABC):
    """Something a model says, in a graph and by Keras.

    Args:
        network: Of the encoder that it is said from.
    """

    by_keras: Callable[[Any], Outputs]
    """What the Keras model says of the same ids."""

    def __init__(self, network: InferenceEncoder):
        super().__init__()
        self.network = network
        self._in_turns = chunked_encoder(network)

    def __call__(self, inputs: Inputs) -> Outputs:
        """Tensors by name from `token_ids`, `segment_ids`, `padding_mask` [B, L]."""
        return self.of_vectors(self._in_turns(**inputs), inputs)

    def whole(self, inputs: Inputs) -> Outputs:
        """The same, all rows at once."""
        return self.of_vectors(self.network(**inputs), inputs)

    @abc.abstractmethod
    def of_vectors(self, hidden_BLD: tf.Tensor, inputs: Inputs) -> Outputs:
        """What is said of the network's vectors."""


class HiddenStates(InferenceHead):
    """The encoder's vectors, of each token and of the whole text.

    Args:
        encoder: Of the discriminator, or BERT's.
    """

    def __init__(self, encoder: Encoder):
        super().__init__(InferenceEncoder(encoder))
        self.by_keras = lambda ids: _vectors(encoder(**ids), ids)

    def of_vectors(self, hidden_BLD: tf.Tensor, inputs: Inputs) -> Outputs:
        """`token_vectors` [B, L, D], 0 at padding; `sentence_vector`, that of [CLS],
        and `mean_vector`, of all real tokens, [B, D]."""
        return _vectors(hidden_BLD, inputs)


class ReplacedTokenDetection(InferenceHead):
    """How likely each token was replaced.

    Args:
        discriminator: Encoder and head.
        network: Of that encoder.
    """

    def __init__(self, discriminator: Discriminator, network: InferenceEncoder):
        super().__init__(network)
        head = discriminator.head
        self.weights = [weight.value for weight in head.weights]
        self._judge = lambda hidden_BLD: head(hidden_BLD)
        self.by_keras = lambda ids: _judged(discriminator(**ids), ids)

    def of_vectors(self, hidden_BLD: tf.Tensor, inputs: Inputs) -> Outputs:
        """`replaced_logits` and `replaced_probability`, [B, L], 0 at padding."""
        return _judged(self._judge(hidden_BLD), inputs)


class FillMask(InferenceHead):
    """The most likely tokens for each mask.

    Args:
        guesser: The generator, or BERT.
        network: Of its encoder.
        mask: The id of [MASK].
        count: Tokens for each mask.
    """

    def __init__(
        self,
        guesser: MaskedLanguageModel,
        network: InferenceEncoder,
        mask: int,
        count: int,
    ):
        super().__init__(network)
        head, encoder = guesser.head, guesser.encoder
        table = encoder.embeddings.word_embeddings
        self.weights = [weight.value for weight in (*head.weights, table)]

        def guess(vectors_XD: tf.Tensor) -> tf.Tensor:
            return head(vectors_XD[:, None, :], table)[:, 0]

        def proposed(ids: Any, hidden_BLD: tf.Tensor) -> Outputs:
            return top_proposals(ids["token_ids"], hidden_BLD, mask, guess, count)

        self._proposed = proposed
        self.by_keras = lambda ids: proposed(ids, encoder(**ids))

    def of_vectors(self, hidden_BLD: tf.Tensor, inputs: Inputs) -> Outputs:
        """As `proposals`."""
        return self._proposed(inputs, hidden_BLD)


def top_proposals(
    ids_BL: tf.Tensor,
    hidden_BLD: tf.Tensor,
    mask: int,
    guess: Callable[[tf.Tensor], tf.Tensor],
    count: int,
) -> Outputs:
    """The most likely tokens for each mask.

    Args:
        ids_BL: int32.
        hidden_BLD: The encoder's vectors.
        mask: The id of [MASK].
        guess: From vectors [X, D] to logits [X, V].
        count: Tokens for each mask.

    Returns:
        `positions` int32 [B, M] of the masks, filled up with -1; `ids` int32
        [B, M, count], best first, filled up with -1, and `probabilities` float32
        [B, M, count], filled up with 0. `InvalidArgumentError` at run time where there
        are more than `MOST_MASKS`.
    """
    is_mask_BL = tf.equal(ids_BL, mask)
    masks = tf.reduce_sum(tf.cast(is_mask_BL, tf.int32))
    few = tf.debugging.Assert(
        masks <= MAX_MASKS,
        [f"A request has {MAX_MASKS} masks at most. Received:", masks,
         "Send it in parts."],
    )  # fmt: skip
    with tf.control_dependencies([few]):
        is_mask_BL = tf.identity(is_mask_BL)
    logits_XV = guess(tf.boolean_mask(hidden_BLD, is_mask_BL))
    best_XK, index_XK = tf.math.top_k(tf.nn.softmax(logits_XV), count)
    places_X = tf.cast(tf.where(is_mask_BL)[:, 1], tf.int32)
    masks_B = tf.reduce_sum(tf.cast(is_mask_BL, tf.int32), axis=1)

    def by_row(values: tf.Tensor, filler: float) -> tf.Tensor:
        return tf.RaggedTensor.from_row_lengths(values, masks_B).to_tensor(filler)

    return {
        "positions": by_row(places_X, -1),
        "ids": by_row(index_XK, -1),
        "probabilities": by_row(best_XK, 0.0),
    }


def _vectors(hidden_BLD: tf.Tensor, ids: Any) -> Outputs:
    real_BL = tf.cast(ids["padding_mask"], tf.float32)
    token_BLD = hidden_BLD * tf.expand_dims(real_BL, -1)
    count_B = tf.reduce_sum(real_BL, axis=1)
    mean_BD = tf.math.divide_no_nan(tf.reduce_sum(token_BLD, axis=1), count_B[:, None])
    return {
        "token_vectors": token_BLD,
        "sentence_vector": hidden_BLD[:, 0],
        "mean_vector": mean_BD,
    }


def _judged(logits_BL: tf.Tensor, ids: Any) -> Outputs:
    real_BL = tf.cast(ids["padding_mask"], tf.float32)
    return {
        "replaced_logits": logits_BL * real_BL,
        "replaced_probability": tf.sigmoid(logits_BL) * real_BL,
    }
