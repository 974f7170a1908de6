"""Served functions of pre-trained checkpoints."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf.errors import InputError
from electra_tf.interop.keras_networks import load_networks
from electra_tf.model.electra import Discriminator, ElectraPair, MaskedLMPair
from electra_tf.serving import text_graph
from electra_tf.serving.export_options import LIMITS, TARGETS, RequestLimits
from electra_tf.serving.inference_encoder import IdTensors, InferenceEncoder
from electra_tf.serving.signatures import (
    ExportSpec,
    Outputs,
    Request,
    Response,
    ServedModel,
    arrays,
)
from electra_tf.sources import PretrainedEncoder, Source
from electra_tf.text.encoding import encode_masked, encode_rows, pad_rows
from electra_tf.text.vocab import MASK

MAX_MASKS = 1024  # of a request; each needs logits of the whole vocabulary
NUM_PROPOSALS = 10  # tokens that are proposed for a mask
_SPECIAL = 2  # [CLS] and [SEP]


@dataclasses.dataclass(frozen=True)
class _Encoding:
    """Pre-trained encoder with its tokenizer, positions of a text, and limits."""

    pretrained: PretrainedEncoder
    max_length: int
    limits: RequestLimits


class _Pretrained(ServedModel):
    """Outputs for each position of a text. Subclasses add a head."""

    graph_inputs: Callable[..., tf.Module] = text_graph.GraphInputs

    def __init__(self, model: Any, network: InferenceEncoder, encoding: _Encoding):
        super().__init__(network, encoding.pretrained.shape, encoding.limits)
        self.model, self._max_length = model, encoding.max_length
        self._tokenizer = encoding.pretrained.tokenizer
        self._pack = self.module.inputs = self.graph_inputs(
            self._tokenizer, encoding.max_length, encoding.limits
        )
        self._tokens = [*self._tokenizer.vocabulary.tokens, ""]

    def from_texts(self, *texts: tf.Tensor) -> Outputs:
        """Return the head's outputs, `pieces_cut`, and tokens as strings."""
        tokens_V = tf.constant(self._tokens)

        def to_tokens(ids: tf.Tensor, valid: tf.Tensor) -> tf.Tensor:
            return tf.gather(tokens_V, tf.where(valid, ids, len(self._tokens) - 1))

        inputs, cut_B = self._pack(*texts)
        outputs = {**self.outputs(inputs), "pieces_cut": cut_B}
        outputs["tokens"] = to_tokens(inputs["token_ids"], inputs["padding_mask"] > 0)
        if "ids" in outputs:
            outputs["proposals"] = to_tokens(outputs["ids"], outputs["ids"] >= 0)
        return outputs

    def ids(self, rows: Sequence[str]) -> Request:
        vocabulary = self._tokenizer.vocabulary
        encoded = encode_rows(self.pieces, vocabulary, rows, self._max_length)
        shape = len(rows), encoded.ids.lengths.max()
        return pad_rows(encoded.ids, encoded.segments, slice(None), shape)

    def pieces(self, text: str) -> str:
        return self._tokenizer.wordpieces(text)

    def expected(self, rows: Sequence[str]) -> Response:
        ids = self.ids(rows)
        tokens_V = np.array([token.encode() for token in self._tokens], object)
        indices = np.where(ids["padding_mask"], ids["token_ids"], -1)
        return {**arrays(self.keras_head(ids)), "tokens": tokens_V[indices]}


class _HiddenStates(_Pretrained):
    """Hidden states of each token, and vectors of the whole text."""

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

    def keras_head(self, ids: Request) -> Outputs:
        return self.head(self.model(**ids), ids)


class _ReplacedTokenDetection(_Pretrained):
    """Probabilities that tokens were replaced."""

    def __init__(self, model: Discriminator, *more: Any):
        super().__init__(model, *more)
        self.module.head = [weight.value for weight in model.head.weights]

    def head(self, hidden_BLD: tf.Tensor, inputs: IdTensors) -> Outputs:
        """Return `replaced_logits` and `replaced_probability`, [B, L], 0 at padding."""
        return self._by_name(self.model.head(hidden_BLD), inputs)

    def keras_head(self, ids: Request) -> Outputs:
        return self._by_name(self.model(**ids), ids)

    def _by_name(self, logits_BL: tf.Tensor, inputs: IdTensors) -> Outputs:
        real_BL = tf.cast(inputs["padding_mask"], tf.float32)
        return {
            "replaced_logits": logits_BL * real_BL,
            "replaced_probability": tf.sigmoid(logits_BL) * real_BL,
        }


class _FillMask(_Pretrained):
    """Most likely tokens for each [MASK] of a text."""

    graph_inputs = text_graph.GraphMasks

    def __init__(self, model: Any, *more: Any):
        super().__init__(model, *more)
        self._table_VE = model.encoder.embeddings.word_embeddings
        weights = (*model.head.weights, self._table_VE)
        self.module.head = [weight.value for weight in weights]

    def head(self, hidden_BLD: tf.Tensor, inputs: IdTensors) -> Outputs:
        """Return the outputs of `top_proposals`."""

        def vocab_logits(vectors_XD: tf.Tensor) -> tf.Tensor:
            return self.model.head(vectors_XD[:, None, :], self._table_VE)[:, 0]

        ids_BL, mask = inputs["token_ids"], self._tokenizer.vocabulary.ids[MASK]
        return top_proposals(ids_BL, hidden_BLD, mask, vocab_logits, NUM_PROPOSALS)

    def keras_head(self, ids: Request) -> Outputs:
        return self.head(self.model.encoder(**ids), ids)

    def pieces(self, text: str) -> str:
        return encode_masked(text, self._tokenizer)


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


def pretrained_export(
    source: Source,
    output_kind: str,
    target: str = TARGETS[0],
    max_length: int | None = None,
    limits: RequestLimits = LIMITS,
) -> ExportSpec:
    """Return the functions of a pre-trained checkpoint, which compute in float32."""
    pretrained, config = source.encoder, source.run.config
    max_length = max_length or config.records.max_length
    positions = pretrained.shape.max_positions
    if not _SPECIAL < max_length <= positions:
        raise InputError(
            f"--max_length must be from {_SPECIAL + 1} to the {positions} positions of "
            f"the model, not {max_length}"
        )
    encoding = _Encoding(pretrained, max_length, limits)
    if output_kind == "encoder":
        encoder = pretrained.build_encoder()
        heads = [(_HiddenStates, encoder, encoder)]
    elif config.objective.towers == 2:
        raise InputError(
            f"{source.path!r} of objective.name={config.objective.name} has scores "
            "that are energies and not probabilities; pass --output_kind=encoder"
        )
    else:
        heads = _heads(source)
    networks: dict[int, InferenceEncoder] = {}
    text, ids, module = {}, {}, tf.Module()
    module.served = []
    for served_class, model, encoder in heads:
        if id(encoder) not in networks:  # the same of both models if all is shared
            networks[id(encoder)] = InferenceEncoder(encoder, target)
        one = served_class(model, networks[id(encoder)], encoding)
        module.served.append(one.module)
        text["masked_text" if text else "serving_default"] = one.text()
        ids["masked_tokens" if ids else "tokens"] = one.tokens()
    metadata = limits.metadata(max_length)
    return ExportSpec(output_kind, module, text, ids, pretrained.tokenizer, metadata)


def _heads(source: Source) -> Iterator[tuple[type[ServedModel], Any, Any]]:
    """Yield class, model and encoder of each head, that of the discriminator first."""
    try:
        model = load_networks(source.run)
    except InputError as error:
        raise InputError(
            f"{error} For its vectors pass --output_kind=encoder."
        ) from error
    discriminator = model.discriminator if isinstance(model, ElectraPair) else None
    generator = model.generator if discriminator else model
    if isinstance(model, MaskedLMPair):
        generator = model.main
    if discriminator:
        yield _ReplacedTokenDetection, discriminator, discriminator.encoder
    if generator:
        yield _FillMask, generator, generator.encoder
