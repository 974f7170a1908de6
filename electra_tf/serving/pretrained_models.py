"""Build the graph functions of a pre-trained checkpoint, of texts and of ids."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf.config.pretraining import (
    ModelConfig,
    ObjectiveConfig,
)
from electra_tf.errors import InputError
from electra_tf.interop.plain_weights import plain_weights
from electra_tf.model.electra import Electra, MaskedLMPair, pretraining_model
from electra_tf.model.transformer import Encoder
from electra_tf.serving.export_spec import (
    IDS,
    PROBE_TEXTS,
    ExportSpec,
    Request,
    Response,
    Signature,
    encode_texts,
)
from electra_tf.serving.inference_encoder import TARGETS, InferenceEncoder
from electra_tf.serving.mask_preprocessing_graph import GraphMasks
from electra_tf.serving.pretrained_heads import (
    FillMask,
    HiddenStates,
    InferenceHead,
    ReplacedTokenDetection,
)
from electra_tf.serving.request_limits import LIMITS, RequestLimits
from electra_tf.serving.signatures import (
    check_request_size,
    text_signature,
    token_signature,
)
from electra_tf.serving.text_graph import GraphInputs
from electra_tf.sources import PretrainedEncoder, Source
from electra_tf.text.tokenizer import Tokenizer
from electra_tf.text.vocab import CLS, MASK, SEP
from electra_tf.training.checkpoint import assign

OUTPUT_KINDS = ("encoder", "electra")
NUM_PROPOSALS = 10
"""Tokens that are proposed for a mask."""
_SPECIAL = 2  # [CLS] and [SEP]
_MASKED_TEXTS = (
    f"The {MASK} sat on the {MASK}.",
    MASK,
    "No mask.",
    f"巴黎是{MASK}国的首都",
)


def pretrained_export(
    source: Source,
    output_kind: str,
    target: str = TARGETS[0],
    max_length: int | None = None,
    limits: RequestLimits = LIMITS,
) -> ExportSpec:
    """Return the functions of a pre-trained checkpoint.

    Returns:
        Functions of strings and of ids. They compute in float32.
    """
    pretrained = source.encoder
    with source.checkpoint() as checkpoint:
        settings = checkpoint.config()
        model, weights = plain_weights(settings, checkpoint.step, checkpoint.weights())
    max_length = max_length or settings.records.max_length
    if not _SPECIAL < max_length <= pretrained.shape.max_positions:
        raise InputError(
            f"--max_length must be from {_SPECIAL + 1} to the "
            f"{pretrained.shape.max_positions} positions of the model",
            str(max_length),
            "Pass another --max_length",
        )
    if output_kind == "encoder":
        encoder = Encoder(pretrained.shape)
        encoder.build()
        pretrained.load_into(encoder)
        heads = {"": HiddenStates(encoder, target)}
    else:
        if settings.objective.facts.towers == 2:
            raise InputError(
                "--output_kind=electra must have a discriminator whose scores are "
                "probabilities",
                f"{source.path!r} of objective.name: {settings.objective.name}, whose "
                "scores are energies",
                "Pass --output_kind=encoder",
            )
        model = _model(model, settings.objective)
        assign({weight.path: weight for weight in model.weights}, weights, source.path)
        heads = _heads(model, pretrained.tokenizer.vocabulary.ids[MASK], target)
    return _export_spec(output_kind, heads, pretrained, max_length, limits)


def _model(shapes: ModelConfig, objective: ObjectiveConfig) -> Any:
    """Return the built model of a config."""
    model = pretraining_model(shapes, objective)
    model.build()
    return model


def _heads(model: Any, mask: int, target: str) -> dict[str, InferenceHead]:
    """Return the heads of a model by the names of their signatures of texts."""
    discriminator = model.discriminator if isinstance(model, Electra) else None
    generator = model.generator if discriminator else model
    if isinstance(model, MaskedLMPair):
        generator = model.main
    networks: dict[int, InferenceEncoder] = {}
    for encoder in (owner.encoder for owner in (discriminator, generator) if owner):
        if id(encoder) not in networks:  # both models have the same if all is shared
            networks[id(encoder)] = InferenceEncoder(encoder, target)
    heads: dict[str, InferenceHead] = {}
    if discriminator:
        network = networks[id(discriminator.encoder)]
        heads["replaced"] = ReplacedTokenDetection(discriminator, network)
    if generator:
        network = networks[id(generator.encoder)]
        heads["masked"] = FillMask(generator, network, mask, NUM_PROPOSALS)
    return heads


def _export_spec(
    kind: str,
    heads: dict[str, InferenceHead],
    pretrained: PretrainedEncoder,
    max_length: int,
    limits: RequestLimits,
) -> ExportSpec:
    """Return the signatures; the first head is `serving_default` and `tokens`."""
    tokenizer = pretrained.tokenizer
    texts, ids = {}, {}
    module = tf.Module()
    module.heads, module.packers = list(heads.values()), []
    for name, head in heads.items():
        first, masks = not texts, name == "masked"
        pack = (GraphMasks if masks else GraphInputs)(tokenizer, max_length, limits)
        module.packers.append(pack)
        requests, ids_by_text = _requests(tokenizer, max_length, masks)
        text = Signature(
            text_signature(
                _from_texts(head, pack.with_cut, tokenizer, limits), ("text",), limits
            ),
            requests,
            _expected_from_texts(head, ids_by_text, tokenizer),
        )
        texts["serving_default" if first else f"{name}_text"] = text
        ids["tokens" if first else f"{name}_tokens"] = Signature(
            token_signature(head, pretrained.shape, limits),
            [*ids_by_text.values()],
            head.expected,
            token_signature(head.call_unchunked, pretrained.shape, limits),
        )
    metadata = {"max_length": max_length, "limits": dataclasses.asdict(limits)}
    return ExportSpec(kind, module, texts, ids, tokenizer, metadata)


def _from_texts(
    head: InferenceHead,
    pack: Callable[[tf.Tensor], Any],
    tokenizer: Tokenizer,
    limits: RequestLimits,
) -> Callable[[tf.Tensor], dict[str, tf.Tensor]]:
    """Return the head as a function of texts, with tokens and proposals as strings."""
    vocabulary = tokenizer.vocabulary.tokens
    tokens_V = tf.constant([*vocabulary, ""])

    def to_tokens(ids: tf.Tensor, valid: tf.Tensor) -> tf.Tensor:
        return tf.gather(tokens_V, tf.where(valid, ids, len(vocabulary)))

    def from_texts(text_B: tf.Tensor) -> dict[str, tf.Tensor]:
        inputs, cut_B = pack(text_B)
        inputs = check_request_size(inputs, limits)
        outputs = head(inputs)
        outputs["pieces_cut"] = cut_B
        outputs["tokens"] = to_tokens(inputs["token_ids"], inputs["padding_mask"] > 0)
        if "ids" in outputs:
            proposals = outputs["ids"]
            outputs["proposals"] = to_tokens(proposals, proposals >= 0)
        return outputs

    return from_texts


def _requests(
    tokenizer: Tokenizer, max_length: int, masks: bool
) -> tuple[list[Request], dict[tuple[bytes, ...], Request]]:
    """Return requests of texts, and requests of the same texts' ids by these texts.

    The ids are computed without the graph.
    """
    probes = _MASKED_TEXTS if masks else PROBE_TEXTS
    requests, ids_by_text = [], {}
    for texts in (probes[:1], probes, ()):
        request = {"text": encode_texts(texts)}
        rows = [_pack(tokenizer, text, max_length, masks) for text in texts]
        width = max(map(len, rows), default=0)
        mask_BL = np.array([[1] * len(r) + [0] * (width - len(r)) for r in rows])
        ids_BL = np.array([[*row, *[0] * (width - len(row))] for row in rows])
        shape = len(rows), width
        arrays = ids_BL, np.zeros(shape), mask_BL
        arrays = (array.astype(np.int32).reshape(shape) for array in arrays)
        requests.append(request)
        ids_by_text[tuple(request["text"])] = dict(zip(IDS, arrays, strict=True))
    return requests, ids_by_text


def _pack(tokenizer: Tokenizer, text: str, max_length: int, masks: bool) -> list[int]:
    """Return a text's ids with special tokens, truncated."""
    ids, special = [], tokenizer.vocabulary.ids
    for segment in text.split(MASK) if masks else [text]:
        ids += [*tokenizer.encode(segment), special[MASK]]
    return [special[CLS], *ids[:-1][: max_length - 2], special[SEP]]


def _expected_from_texts(
    head: InferenceHead, ids_by_text: Mapping, tokenizer: Tokenizer
) -> Callable[[Request], Response]:
    """Return a function from texts to Keras's outputs and the tokens of the texts."""
    tokens_V = np.array([*map(str.encode, tokenizer.vocabulary.tokens), b""], object)

    def expected(request: Request) -> Response:
        ids = ids_by_text[tuple(request["text"])]
        if not len(ids[IDS[0]]):
            return {}
        indices = np.where(ids["padding_mask"], ids["token_ids"], -1)
        return {**head.expected(ids), "tokens": tokens_V[indices]}

    return expected
