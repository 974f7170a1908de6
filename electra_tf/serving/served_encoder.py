"""Served functions of pre-trained models: vectors, replaced tokens, and fill-mask."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from electra_tf.errors import InputError
from electra_tf.serving.export_options import LIMITS, TARGETS, RequestLimits
from electra_tf.serving.inference_encoder import IdTensors, InferenceEncoder
from electra_tf.serving.signatures import Outputs, Request, ServedModel
from electra_tf.sources import Source
from electra_tf.text.encoding import encode_masked, encode_rows, pad_rows
from electra_tf.text.vocab import MASK

MAX_MASKS = 1024  # of a request; each needs logits of the whole vocabulary
NUM_PROPOSALS = 10  # tokens that are proposed for a mask
_SPECIAL = 2  # [CLS] and [SEP]


class ServedEncoder(ServedModel):
    """Hidden states of each token of a text, and vectors of the whole text.

    They are computed in float32. `max_length` is by default that of the run's records.
    `model` is a network with a head of its own on an encoder, for a subclass.
    """

    kind = "encoder"

    def __init__(
        self,
        source: Source,
        target: str = TARGETS[0],
        max_length: int | None = None,
        limits: RequestLimits = LIMITS,
        model: Any = None,
    ):
        pretrained = source.encoder
        length = max_length or source.run.config.records.max_length
        positions = pretrained.shape.max_positions
        if not _SPECIAL < length <= positions:
            raise InputError(
                f"--max_length must be from {_SPECIAL + 1} to the {positions} "
                f"positions of the model, not {length}"
            )
        self.model = model or pretrained.build_encoder()
        network = InferenceEncoder(model.encoder if model else self.model, target)
        tokenizer, shape = pretrained.tokenizer, pretrained.shape
        super().__init__(network, tokenizer, shape, length, limits)

    def head(self, hidden_BLD: tf.Tensor, inputs: IdTensors) -> Outputs:
        """Return `token_vectors` [B, L, D], 0 at padding, and two vectors [B, D]:
        `sentence_vector` of [CLS] and `mean_vector` of all real tokens."""
        real_BL = tf.cast(inputs["padding_mask"], tf.float32)
        token_BLD = hidden_BLD * tf.expand_dims(real_BL, -1)
        count_B = tf.reduce_sum(real_BL, axis=1)
        total_BD = tf.reduce_sum(token_BLD, axis=1)
        return {
            "token_vectors": token_BLD,
            "sentence_vector": hidden_BLD[:, 0],
            "mean_vector": tf.math.divide_no_nan(total_BD, count_B[:, None]),
        }

    def keras(self, ids: Request) -> Outputs:
        """Return the same outputs, computed by the Keras layers."""
        return self.head(self.model(**ids), ids)

    def from_texts(self, *texts: tf.Tensor) -> Outputs:
        """Return the head's outputs, `pieces_cut`, and `tokens` as strings."""
        inputs, cut_B = self.encode(*texts)
        is_real_BL = inputs["padding_mask"] > 0
        tokens_BL = self._entries(inputs["token_ids"], is_real_BL)
        return {**self.outputs(inputs), "pieces_cut": cut_B, "tokens": tokens_BL}

    def _entries(self, ids: tf.Tensor, is_valid: tf.Tensor) -> tf.Tensor:
        """Return entries of the vocabulary as strings, "" where they are not valid."""
        entries = tf.constant([*self.tokenizer.vocabulary.tokens, ""])
        return tf.gather(entries, tf.where(is_valid, ids, tf.size(entries) - 1))

    def encode(self, *texts: tf.Tensor) -> tuple[IdTensors, tf.Tensor]:
        """Encode texts; return the number of wordpieces cut off, too."""
        return self.encoder.texts(self.max_length, *texts)

    def ids(self, rows: Sequence[str]) -> Request:
        """Encode texts without a graph."""
        vocabulary = self.tokenizer.vocabulary
        encoded = encode_rows(self.pieces, vocabulary, rows, self.max_length)
        shape = len(rows), encoded.ids.lengths.max()
        return pad_rows(encoded.ids, encoded.segments, slice(None), shape)

    def pieces(self, text: str) -> str:
        """Return the wordpieces of a text, with spaces between them."""
        return self.tokenizer.wordpieces(text)


class ServedDetector(ServedEncoder):
    """Probabilities that tokens were replaced, from a discriminator."""

    kind = "electra"

    def head(self, hidden_BLD: tf.Tensor, inputs: IdTensors) -> Outputs:
        """Return `replaced_logits` and `replaced_probability`, [B, L], 0 at padding."""
        return self._by_name(self.model.head(hidden_BLD), inputs)

    def keras(self, ids: Request) -> Outputs:
        """Return the same outputs, computed by the Keras layers."""
        return self._by_name(self.model(**ids), ids)

    def _by_name(self, logits_BL: tf.Tensor, inputs: IdTensors) -> Outputs:
        real_BL = tf.cast(inputs["padding_mask"], tf.float32)
        return {
            "replaced_logits": logits_BL * real_BL,
            "replaced_probability": tf.sigmoid(logits_BL) * real_BL,
        }


class ServedMaskedLM(ServedEncoder):
    """Most likely tokens for each `[MASK]` of a text, from a masked language model."""

    kind = "electra"

    def head(self, hidden_BLD: tf.Tensor, inputs: IdTensors) -> Outputs:
        """Return the outputs of `top_proposals`."""
        table_VE = self.model.encoder.embeddings.word_embeddings

        def vocab_logits(vectors_XD: tf.Tensor) -> tf.Tensor:
            return self.model.head(vectors_XD[:, None, :], table_VE)[:, 0]

        ids_BL, mask = inputs["token_ids"], self.tokenizer.vocabulary.ids[MASK]
        return top_proposals(ids_BL, hidden_BLD, mask, vocab_logits, NUM_PROPOSALS)

    def keras(self, ids: Request) -> Outputs:
        """Return the same outputs, computed by the Keras layers."""
        return self.head(self.model.encoder(**ids), ids)

    def from_texts(self, *texts: tf.Tensor) -> Outputs:
        """Return the head's outputs, tokens, and `proposals` as strings."""
        outputs = super().from_texts(*texts)
        ids = outputs["ids"]
        return {**outputs, "proposals": self._entries(ids, ids >= 0)}

    def encode(self, *texts: tf.Tensor) -> tuple[IdTensors, tf.Tensor]:
        """Encode texts in which `[MASK]`, in capitals, is the special token."""
        mask = self.tokenizer.vocabulary.ids[MASK]
        return self.encoder.masked_texts(self.max_length, mask, *texts)

    def pieces(self, text: str) -> str:
        """Return the wordpieces of a text with masks."""
        return encode_masked(text, self.tokenizer)


def top_proposals(
    ids_BL: tf.Tensor,
    hidden_BLD: tf.Tensor,
    mask: int,
    vocab_logits: Callable[[tf.Tensor], tf.Tensor],
    count: int,
) -> Outputs:
    """Return the `count` most likely tokens for each position with the id `mask`.

    `vocab_logits` maps vectors [X, D] to logits [X, V]. The outputs are `positions`,
    int32 [B, M], padded with -1, `ids`, int32 [B, M, count], best first, padded with
    -1, and `probabilities`, float32 [B, M, count], padded with 0. More than `MAX_MASKS`
    raise `InvalidArgumentError` at run time.
    """
    is_mask_BL = tf.equal(ids_BL, mask)
    masks_B = tf.reduce_sum(tf.cast(is_mask_BL, tf.int32), axis=1)
    masks = tf.reduce_sum(masks_B)
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

    def by_row(values: tf.Tensor, padding: float) -> tf.Tensor:
        return tf.RaggedTensor.from_row_lengths(values, masks_B).to_tensor(padding)

    return {
        "positions": by_row(positions_X, -1),
        "ids": by_row(index_XK, -1),
        "probabilities": by_row(best_XK, 0.0),
    }
