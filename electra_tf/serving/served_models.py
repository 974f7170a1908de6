"""Served functions of fine-tuned models and of pre-trained checkpoints."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf.errors import InputError
from electra_tf.interop.keras_networks import load_networks
from electra_tf.model.electra import Discriminator, ElectraPair, MaskedLMPair
from electra_tf.model.layer_ops import LayerOps
from electra_tf.serving.export_options import LIMITS, TARGETS, RequestLimits
from electra_tf.serving.inference_encoder import InferenceEncoder, chunked
from electra_tf.serving.signatures import (
    PROBE_TEXTS,
    ExportSpec,
    Inputs,
    Outputs,
    Request,
    Response,
    ServedModel,
    Signature,
    arrays,
    encode_texts,
)
from electra_tf.serving.spans_graph import NO_SPAN, GraphWindows, graph_answers
from electra_tf.serving.text_graph import (
    GraphInputs,
    GraphMasks,
    GraphWords,
    WordTags,
    split_words,
)
from electra_tf.sources import PretrainedEncoder, Source
from electra_tf.text.encoding import encode_masked, encode_rows, pad_rows
from electra_tf.text.graph_tokenizer import substrings
from electra_tf.text.vocab import MASK

MAX_MASKS = 1024
"""Masks of a request. Each needs memory for a logit of every vocabulary entry."""
NUM_PROPOSALS = 10
"""Tokens that are proposed for a mask."""
_SPECIAL = 2  # [CLS] and [SEP]


# Fine-tuned models.


class _Task(ServedModel):
    """Head of a fine-tuned model. Subclasses turn strings into rows of ids."""

    def __init__(self, model: Any, target: str, limits: RequestLimits):
        network = InferenceEncoder(model.encoder, target)
        super().__init__(network, model.shape, limits)
        self.model, self.data = model, model.settings.data
        self.inputs = model.served_inputs
        self.module.head = [weight.value for weight in model.head.weights]

    def head(self, hidden_BLD: tf.Tensor, inputs: Inputs) -> Any:
        return self.model.head_outputs(hidden_BLD, inputs, LayerOps(training=False))

    def keras_head(self, ids: Request) -> Any:
        return self.model(dict(ids), training=False)

    def named(self, outputs: Any) -> Outputs:
        return self.model.named_outputs(outputs)

    def ids(self, rows: Sequence[Any]) -> Request:
        examples = self.examples(rows)
        return examples.batch(range(len(examples)), len(examples))[0]

    def examples(self, rows: Sequence[Any]) -> Any:
        """Return the `EncodedExamples` of texts, or of tuples of them."""
        return self.model.row_examples(rows)

    def texts(self) -> dict[str, Signature]:
        """Return the signatures of strings by name."""
        return {"serving_default": self.text()}

    def num_pieces(self, *texts: str) -> int:
        return sum(len(self.model.tokenizer.encode(text)) for text in texts)


class _Texts(_Task):
    """Outputs for each text or pair of texts, or for several of each item."""

    def __init__(self, model: Any, target: str, limits: RequestLimits):
        super().__init__(model, target, limits)
        self._pack = GraphInputs(model.tokenizer, self.data.max_length, limits)
        self.module.inputs = self._pack

    def from_texts(self, *texts: tf.Tensor) -> Outputs:
        """Return the named outputs, and `pieces_cut`."""
        rows, by_item = self._rows(texts)
        inputs, cut_R = self._pack(*rows)
        outputs = by_item(self.outputs(inputs))
        return {**self.model.text_outputs(outputs), "pieces_cut": by_item(cut_R)}

    def expected(self, rows: Sequence[Any]) -> Response:
        texts, by_item = self._rows([*map(tf.constant, self.request(rows).values())])
        examples = self.model.row_examples(rows)
        stack = lambda *arrays: np.stack(arrays)  # noqa: E731
        outputs = tf.nest.map_structure(stack, *self.model.outputs_of(examples))
        # A row has its texts' wordpieces, [CLS], and a [SEP] after each text.
        used_R = examples.lengths - 1 - len(texts)
        pairs = zip(*(text_R.numpy() for text_R in texts), strict=True)
        pieces = [self.num_pieces(*map(bytes.decode, pair)) for pair in pairs]
        named = self.model.text_outputs(by_item(outputs))
        return {**arrays(named), "pieces_cut": by_item(pieces - used_R).numpy()}

    def _rows(self, texts: Sequence[tf.Tensor]) -> tuple[Sequence[tf.Tensor], Callable]:
        """Return the texts of each row, and a function from rows to items.

        Strings [B, N] are B * N rows, for each of which the strings [B] are repeated.
        The function returns tensors [R, ...] as [B, ...], or as [B, N, ...].
        """
        widest = max(texts, key=lambda text: text.shape.rank)
        if widest.shape.rank == 1:
            as_they_are = functools.partial(tf.nest.map_structure, tf.convert_to_tensor)
            return self.model.row_texts(*texts), as_they_are
        items, count = tf.unstack(tf.shape(widest))
        some = tf.debugging.Assert(
            (count > 0) | (items == 0),
            ["An item must have one or more of each input. Received: none"],
        )
        with tf.control_dependencies([some] if some is not None else []):
            least = tf.maximum(count, 1)  # a request of no items has outputs, too

        def by_row(text: tf.Tensor) -> tf.Tensor:
            wide = text if text.shape.rank == 2 else tf.tile(text[:, None], [1, count])
            return tf.reshape(wide, [-1])

        def by_item(tensor_R: tf.Tensor) -> tf.Tensor:
            axes = tf.concat([[items, least], tf.shape(tensor_R)[1:]], 0)
            return tf.reshape(tensor_R, axes)

        texts_R = self.model.row_texts(*map(by_row, texts))
        return texts_R, functools.partial(tf.nest.map_structure, by_item)


class _Words(_Task):
    """Labels of the words of a text, and its entities."""

    def __init__(self, model: Any, target: str, limits: RequestLimits):
        super().__init__(model, target, limits)
        self.module.words = self._words = GraphWords(
            model.tokenizer, self.data.max_length, self.data.tagging_segment, limits
        )
        self._spans = model.graph_spans()
        self.compute = chunked(self.outputs)

    def from_texts(self, *texts: tf.Tensor) -> Outputs:
        """Return `words`, and `labels` and `probabilities` of each, [B, W]."""
        tags, words = self._tags(split_words(*texts))
        return {
            "words": words.to_tensor(),
            "labels": words.with_values(self._spans.labels(tags)).to_tensor(),
            "probabilities": words.with_values(tags.probability_W).to_tensor(),
        }

    def texts(self) -> dict[str, Signature]:
        entities = self.text(self._entities, self._expected_entities)
        return {**super().texts(), "entities": entities}

    def _entities(self, text_B: tf.Tensor) -> Outputs:
        offsets = self._words.split(text_B)
        words = substrings(offsets.codes, offsets.starts, offsets.ends)
        return self._spans.entities(self._tags(words)[0], offsets)

    def _expected_entities(self, rows: Sequence[str]) -> Response:
        found = self.model.entities(rows)
        padding = {"type": b"", "start": -1, "end": -1, "text": b"", "score": 0.0}
        columns = {
            f"{name}s": _padded([[getattr(e, name) for e in row] for row in found], end)
            for name, end in padding.items()
        }
        return {**columns, "count": np.array(list(map(len, found)), np.int32)}

    def _tags(self, words: tf.RaggedTensor) -> tuple[WordTags, tf.RaggedTensor]:
        """Return the tags of words, and the words after the check of their limit."""
        inputs, parts = self._words(words)
        return self._words.tags(self.compute(inputs), parts), parts.words

    def examples(self, rows: Sequence[str]) -> Any:
        return self.model.examples([text.split() for text in rows])

    def expected(self, rows: Sequence[str]) -> Response:
        words = [text.split() for text in rows]
        found = self.model.predict_details(words)
        scores = [one.probabilities.max(-1).tolist() for one in found]
        return {
            "words": _padded(words, b""),
            "labels": _padded([one.tags for one in found], b""),
            "probabilities": _padded(scores, 0.0),
        }


def _padded(rows: Sequence[Sequence[Any]], padding: Any) -> np.ndarray:
    """Return values of each row's words or entities, padded, [B, W] or [B, E]."""
    dtype = tf.constant(padding).dtype
    return tf.ragged.constant(rows, dtype, ragged_rank=1).to_tensor(padding).numpy()


class _Windows(_Task):
    """Answers to questions, extracted from contexts."""

    def __init__(self, model: Any, target: str, limits: RequestLimits):
        super().__init__(model, target, limits)
        self._windows = GraphWindows(model.tokenizer, self.data, limits)
        self.module.windows = self._windows
        self.compute = chunked(self.outputs)

    def from_texts(self, *texts: tf.Tensor) -> Outputs:
        """Return `answer`, `start`, `end`, `score`, `null_odds`, and the question's
        `pieces_cut`, each [B]."""
        inputs, windows = self._windows(*texts)
        decoding, threshold = self.model.settings.model, self.model.null_threshold
        answers = graph_answers(self.compute(inputs), windows, decoding, threshold)
        return {**answers, "pieces_cut": windows.num_truncated_B}

    def probes(self) -> Sequence[Any]:
        question = "Where was the railroad completed?"
        return [(question, text or "No text.") for text in reversed(PROBE_TEXTS)]

    def expected(self, rows: Sequence[Any]) -> Response:
        predictions = self.model.predict_nbest(rows)
        threshold = self.model.null_threshold
        best = [next((c for c in qa.nbest if c.text), None) for qa in predictions]
        scores = [c.start_logit + c.end_logit if c else NO_SPAN for c in best]
        lengths_B = np.array([self.num_pieces(question) for question, _ in rows])
        return {
            "answer": encode_texts([qa.answer_text(threshold) for qa in predictions]),
            "null_odds": np.array([qa.null_odds for qa in predictions], np.float32),
            "score": np.array(scores, np.float32),
            "pieces_cut": np.maximum(0, lengths_B - self.data.query_limit),
        }


_FORMS = {"texts": _Texts, "words": _Words, "windows": _Windows}


def task_export(
    model: Any, target: str = TARGETS[0], limits: RequestLimits = LIMITS
) -> ExportSpec:
    """Return the functions of a fine-tuned model.

    A model of mixed precision is exported in float32, the type of its weights, because
    few CPUs and neither LiteRT nor ONNX compute in bfloat16.
    """
    if not model.kind:
        raise InputError(f"a {type(model).__name__} has no kind, so it has no export")
    served = _FORMS[model.input_form](to_float32(model), target, limits)
    metadata = _sizes(served.data.max_length, limits) | model.served_metadata()
    ids = {"tokens": served.tokens()}
    tokenizer = model.tokenizer
    return ExportSpec(
        model.kind, served.module, served.texts(), ids, tokenizer, metadata
    )


def _sizes(max_length: int, limits: RequestLimits) -> dict[str, Any]:
    return {"max_length": max_length, "limits": dataclasses.asdict(limits)}


def to_float32(model: Any) -> Any:
    """Return the model, or a copy with the same weights that computes in float32."""
    if model.settings.training.precision == "float32":
        return model
    config = model.get_config()
    config["settings"]["training"]["precision"] = "float32"
    copy = type(model).from_config(config)
    copy.set_weights(model.get_weights())
    return copy


# Pre-trained checkpoints.


@dataclasses.dataclass(frozen=True)
class _Encoding:
    """Pre-trained encoder with its tokenizer, positions of a text, and limits."""

    pretrained: PretrainedEncoder
    max_length: int
    limits: RequestLimits


class _Pretrained(ServedModel):
    """Outputs for each position of a text. Subclasses add a head."""

    graph_inputs: Callable[..., tf.Module] = GraphInputs

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
        shape = len(rows), max(map(len, encoded.ids))
        return pad_rows(encoded.ids, encoded.segments, shape)

    def pieces(self, text: str) -> list[int]:
        return self._tokenizer.encode(text)

    def expected(self, rows: Sequence[str]) -> Response:
        ids = self.ids(rows)
        tokens_V = np.array([token.encode() for token in self._tokens], object)
        indices = np.where(ids["padding_mask"], ids["token_ids"], -1)
        return {**arrays(self.keras_head(ids)), "tokens": tokens_V[indices]}


class _HiddenStates(_Pretrained):
    """Hidden states of each token, and vectors of the whole text."""

    def head(self, hidden_BLD: tf.Tensor, inputs: Inputs) -> Outputs:
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

    def head(self, hidden_BLD: tf.Tensor, inputs: Inputs) -> Outputs:
        """Return `replaced_logits` and `replaced_probability`, [B, L], 0 at padding."""
        return self._by_name(self.model.head(hidden_BLD), inputs)

    def keras_head(self, ids: Request) -> Outputs:
        return self._by_name(self.model(**ids), ids)

    def _by_name(self, logits_BL: tf.Tensor, inputs: Inputs) -> Outputs:
        real_BL = tf.cast(inputs["padding_mask"], tf.float32)
        return {
            "replaced_logits": logits_BL * real_BL,
            "replaced_probability": tf.sigmoid(logits_BL) * real_BL,
        }


class _FillMask(_Pretrained):
    """Most likely tokens for each [MASK] of a text."""

    graph_inputs = GraphMasks

    def __init__(self, model: Any, *more: Any):
        super().__init__(model, *more)
        self._table_VE = model.encoder.embeddings.word_embeddings
        weights = (*model.head.weights, self._table_VE)
        self.module.head = [weight.value for weight in weights]

    def head(self, hidden_BLD: tf.Tensor, inputs: Inputs) -> Outputs:
        """Return the outputs of `top_proposals`."""

        def vocab_logits(vectors_XD: tf.Tensor) -> tf.Tensor:
            return self.model.head(vectors_XD[:, None, :], self._table_VE)[:, 0]

        ids_BL, mask = inputs["token_ids"], self._tokenizer.vocabulary.ids[MASK]
        return top_proposals(ids_BL, hidden_BLD, mask, vocab_logits, NUM_PROPOSALS)

    def keras_head(self, ids: Request) -> Outputs:
        return self.head(self.model.encoder(**ids), ids)

    def probes(self) -> Sequence[str]:
        sentence = f"The {MASK} sat on the {MASK}."
        return (sentence, MASK, "No mask.", f"巴黎是{MASK}国的首都")

    def pieces(self, text: str) -> list[int]:
        return encode_masked(text, self._tokenizer)


def top_proposals(
    ids_BL: tf.Tensor,
    hidden_BLD: tf.Tensor,
    mask: int,
    vocab_logits: Callable[[tf.Tensor], tf.Tensor],
    count: int,
) -> Outputs:
    """Return the `count` most likely tokens for each position with the id `mask`.

    `vocab_logits` maps vectors [X, D] to logits [X, V].

    Returns:
        `positions` int32 [B, M] of the masks, padded with -1; `ids` int32
        [B, M, count], best first, padded with -1; `probabilities` float32
        [B, M, count], padded with 0. `InvalidArgumentError` at run time if there are
        more than `MAX_MASKS`.
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
        served = [_HiddenStates(encoder, InferenceEncoder(encoder, target), encoding)]
        return _export_spec(output_kind, served, encoding)
    if config.objective.facts.towers == 2:
        raise InputError(
            f"{source.path!r} of objective.name={config.objective.name} has scores "
            "that are energies and not probabilities; pass --output_kind=encoder"
        )
    return _export_spec(output_kind, _served(source, target, encoding), encoding)


def _served(source: Source, target: str, encoding: _Encoding) -> list[ServedModel]:
    """Return the heads of a source, that of its discriminator first."""
    try:
        model = load_networks(source.run, source.path).model
    except InputError as error:
        raise InputError(
            f"{error} For its vectors pass --output_kind=encoder."
        ) from error
    discriminator = model.discriminator if isinstance(model, ElectraPair) else None
    generator = model.generator if discriminator else model
    if isinstance(model, MaskedLMPair):
        generator = model.main
    owners = {_ReplacedTokenDetection: discriminator, _FillMask: generator}
    networks: dict[int, InferenceEncoder] = {}
    served = []
    for served_class, owner in owners.items():
        if owner:
            encoder = owner.encoder
            if id(encoder) not in networks:  # the same of both models if all is shared
                networks[id(encoder)] = InferenceEncoder(encoder, target)
            served.append(served_class(owner, networks[id(encoder)], encoding))
    return served


def _export_spec(
    kind: str, served: Sequence[ServedModel], encoding: _Encoding
) -> ExportSpec:
    """Return the signatures; those of the first have the default names."""
    text, ids, module = {}, {}, tf.Module()
    module.served = [one.module for one in served]
    for one in served:
        text["masked_text" if text else "serving_default"] = one.text()
        ids["masked_tokens" if ids else "tokens"] = one.tokens()
    metadata = _sizes(encoding.max_length, encoding.limits)
    tokenizer = encoding.pretrained.tokenizer
    return ExportSpec(kind, module, text, ids, tokenizer, metadata)
