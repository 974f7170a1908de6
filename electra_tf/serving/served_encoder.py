"""Served functions of a pre-trained encoder."""

from collections.abc import Sequence

import tensorflow as tf

from electra_tf.errors import InputError
from electra_tf.serving.export_options import LIMITS, TARGETS, RequestLimits
from electra_tf.serving.inference_encoder import IdTensors, InferenceEncoder
from electra_tf.serving.signatures import Outputs, Request, ServedModel
from electra_tf.sources import Source
from electra_tf.text.encoding import encode_rows, pad_rows

_SPECIAL = 2  # [CLS] and [SEP]


class ServedEncoder(ServedModel):
    """Hidden states of each token of a text, and vectors of the whole text.

    They are computed in float32. `max_length` is by default that of the run's records.
    """

    kind = "encoder"

    def __init__(
        self,
        source: Source,
        target: str = TARGETS[0],
        max_length: int | None = None,
        limits: RequestLimits = LIMITS,
    ):
        pretrained = source.encoder
        length = max_length or source.run.config.records.max_length
        positions = pretrained.shape.max_positions
        if not _SPECIAL < length <= positions:
            raise InputError(
                f"--max_length must be from {_SPECIAL + 1} to the {positions} "
                f"positions of the model, not {length}"
            )
        self.model = pretrained.build_encoder()
        network = InferenceEncoder(self.model, target)
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
        inputs, cut_B = self.encoder.texts(self.max_length, *texts)
        entries = tf.constant([*self.tokenizer.vocabulary.tokens, ""])
        is_real_BL = inputs["padding_mask"] > 0
        ids_BL = tf.where(is_real_BL, inputs["token_ids"], tf.size(entries) - 1)
        tokens_BL = tf.gather(entries, ids_BL)
        return {**self.outputs(inputs), "pieces_cut": cut_B, "tokens": tokens_BL}

    def ids(self, rows: Sequence[str]) -> Request:
        """Encode texts without a graph."""
        tokenizer = self.tokenizer
        encode = tokenizer.wordpieces, tokenizer.vocabulary, rows, self.max_length
        encoded = encode_rows(*encode)
        shape = len(rows), encoded.ids.lengths.max()
        return pad_rows(encoded.ids, encoded.segments, slice(None), shape)
