"""Outputs of a pre-trained model: hidden states, replaced tokens, proposals for masks.

Each head is a module with the exported variables. Its `expected` computes the same
outputs with the Keras layers, which are not part of the module.
"""

import abc
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from electra_tf.model.electra import Discriminator, MaskedLanguageModel
from electra_tf.model.transformer import Encoder
from electra_tf.serving.chunked import chunked_encoder
from electra_tf.serving.export_spec import IDS, Request, Response
from electra_tf.serving.inference_encoder import TARGETS, InferenceEncoder

MAX_MASKS = 1024
"""Masks of a request. Each needs memory for a logit of every vocabulary entry."""

Inputs = dict[str, tf.Tensor]
Outputs = dict[str, tf.Tensor]


class InferenceHead(tf.Module, abc.ABC):
    """Head of a pre-trained model on an exported encoder."""

    # Set by subclasses to lambdas: a module tracks layers that are its attributes, and
    # would export their variables a second time.
    _keras_outputs: Callable[[Any], Outputs]

    def __init__(self, network: InferenceEncoder):
        super().__init__()
        self.network = network
        self._encode = chunked_encoder(network)

    def __call__(self, inputs: Inputs) -> Outputs:
        """Return outputs by name, computed in chunks of rows.

        Args:
            inputs: `token_ids`, `segment_ids` and `padding_mask`, int32 [B, L].
        """
        return self.head_outputs(self._encode(**inputs), inputs)

    def call_unchunked(self, inputs: Inputs) -> Outputs:
        """Return the same outputs, computed for all rows at once."""
        return self.head_outputs(self.network(**inputs), inputs)

    def expected(self, inputs: Request) -> Response:
        """Return the Keras model's outputs for ids; none if there are no rows."""
        if not len(inputs[IDS[0]]):
            return {}
        outputs = self._keras_outputs(inputs)
        return {name: tensor.numpy() for name, tensor in outputs.items()}

    @abc.abstractmethod
    def head_outputs(self, hidden_BLD: tf.Tensor, inputs: Inputs) -> Outputs:
        """Return outputs by name from the encoder's hidden states."""


class HiddenStates(InferenceHead):
    """Hidden states of each token, and vectors of the whole text."""

    def __init__(self, encoder: Encoder, target: str = TARGETS[0]):
        super().__init__(InferenceEncoder(encoder, target))
        self._keras_outputs = lambda ids: _vector_outputs(encoder(**ids), ids)

    def head_outputs(self, hidden_BLD: tf.Tensor, inputs: Inputs) -> Outputs:
        """Return `token_vectors` [B, L, D], 0 at padding, and two vectors [B, D]:
        `sentence_vector` of [CLS] and `mean_vector` of all real tokens."""
        return _vector_outputs(hidden_BLD, inputs)


class ReplacedTokenDetection(InferenceHead):
    """Probabilities that tokens were replaced."""

    def __init__(self, discriminator: Discriminator, network: InferenceEncoder):
        super().__init__(network)
        head = discriminator.head
        self.weights = [weight.value for weight in head.weights]
        self._logits = lambda hidden_BLD: head(hidden_BLD)
        self._keras_outputs = lambda ids: _replaced_outputs(discriminator(**ids), ids)

    def head_outputs(self, hidden_BLD: tf.Tensor, inputs: Inputs) -> Outputs:
        """Return `replaced_logits` and `replaced_probability`, [B, L], 0 at padding."""
        return _replaced_outputs(self._logits(hidden_BLD), inputs)


class FillMask(InferenceHead):
    """Most likely tokens for each mask."""

    def __init__(
        self,
        generator: MaskedLanguageModel,
        network: InferenceEncoder,
        mask: int,
        count: int,
    ):
        super().__init__(network)
        head, encoder = generator.head, generator.encoder
        table = encoder.embeddings.word_embeddings
        self.weights = [weight.value for weight in (*head.weights, table)]

        def vocab_logits(vectors_XD: tf.Tensor) -> tf.Tensor:
            return head(vectors_XD[:, None, :], table)[:, 0]

        def propose(ids: Any, hidden_BLD: tf.Tensor) -> Outputs:
            return top_proposals(
                ids["token_ids"], hidden_BLD, mask, vocab_logits, count
            )

        self._propose = propose
        self._keras_outputs = lambda ids: propose(ids, encoder(**ids))

    def head_outputs(self, hidden_BLD: tf.Tensor, inputs: Inputs) -> Outputs:
        """Return the outputs of `top_proposals`."""
        return self._propose(inputs, hidden_BLD)


def top_proposals(
    ids_BL: tf.Tensor,
    hidden_BLD: tf.Tensor,
    mask: int,
    vocab_logits: Callable[[tf.Tensor], tf.Tensor],
    count: int,
) -> Outputs:
    """Return the most likely tokens for each mask.

    Args:
        ids_BL: int32.
        hidden_BLD: The encoder's hidden states.
        mask: The id of [MASK].
        vocab_logits: From vectors [X, D] to logits [X, V].
        count: Tokens per mask.

    Returns:
        `positions` int32 [B, M] of the masks, padded with -1; `ids` int32
        [B, M, count], best first, padded with -1; `probabilities` float32
        [B, M, count], padded with 0. `InvalidArgumentError` at run time if there are
        more than `MAX_MASKS`.
    """
    is_mask_BL = tf.equal(ids_BL, mask)
    masks = tf.reduce_sum(tf.cast(is_mask_BL, tf.int32))
    check = tf.debugging.Assert(
        masks <= MAX_MASKS,
        [f"A request must have at most {MAX_MASKS} masks. Received:", masks,
         "Send it in parts."],
    )  # fmt: skip
    with tf.control_dependencies([check]):
        is_mask_BL = tf.identity(is_mask_BL)
    logits_XV = vocab_logits(tf.boolean_mask(hidden_BLD, is_mask_BL))
    best_XK, index_XK = tf.math.top_k(tf.nn.softmax(logits_XV), count)
    positions_X = tf.cast(tf.where(is_mask_BL)[:, 1], tf.int32)
    masks_B = tf.reduce_sum(tf.cast(is_mask_BL, tf.int32), axis=1)

    def by_row(values: tf.Tensor, padding: float) -> tf.Tensor:
        return tf.RaggedTensor.from_row_lengths(values, masks_B).to_tensor(padding)

    return {
        "positions": by_row(positions_X, -1),
        "ids": by_row(index_XK, -1),
        "probabilities": by_row(best_XK, 0.0),
    }


def _vector_outputs(hidden_BLD: tf.Tensor, ids: Any) -> Outputs:
    real_BL = tf.cast(ids["padding_mask"], tf.float32)
    token_BLD = hidden_BLD * tf.expand_dims(real_BL, -1)
    count_B = tf.reduce_sum(real_BL, axis=1)
    mean_BD = tf.math.divide_no_nan(tf.reduce_sum(token_BLD, axis=1), count_B[:, None])
    return {
        "token_vectors": token_BLD,
        "sentence_vector": hidden_BLD[:, 0],
        "mean_vector": mean_BD,
    }


def _replaced_outputs(logits_BL: tf.Tensor, ids: Any) -> Outputs:
    real_BL = tf.cast(ids["padding_mask"], tf.float32)
    return {
        "replaced_logits": logits_BL * real_BL,
        "replaced_probability": tf.sigmoid(logits_BL) * real_BL,
    }
