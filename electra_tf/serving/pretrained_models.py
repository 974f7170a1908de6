"""Pre-trained checkpoints as functions of a graph: of texts and of ids."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf.config import loader
from electra_tf.config.pretraining import PretrainingConfig
from electra_tf.model.electra import Electra, bert
from electra_tf.model.transformer import Encoder
from electra_tf.serving.export_spec import (
    IDS,
    PROBE_TEXTS,
    Answer,
    ExportSpec,
    Request,
    Signature,
    strings,
    text_signature,
)
from electra_tf.serving.inference_encoder import InferenceEncoder
from electra_tf.serving.mask_preprocessing_graph import GraphMasks
from electra_tf.serving.pretrained_heads import (
    FillMask,
    HiddenStates,
    InferenceHead,
    ReplacedTokenDetection,
)
from electra_tf.serving.signatures import check_request_size, token_signature
from electra_tf.tasks.classification.preprocessing_graph import GraphInputs
from electra_tf.tasks.pretrained import PretrainedEncoder
from electra_tf.text.tokenizer import Tokenizer
from electra_tf.text.vocab import CLS, MASK, SEP
from electra_tf.training.checkpoint import CONFIG, assign, open_checkpoint

PARTS = ("encoder", "electra")
PROPOSALS = 10
"""How many tokens are proposed for a mask."""
_MASKED = (f"The {MASK} sat on the {MASK}.", MASK, "No mask.", f"巴黎是{MASK}国的首都")


def pretrained_export(path: str, part: str) -> ExportSpec:
    """A pre-trained checkpoint's functions.

    Args:
        path: A checkpoint's folder, or a run's, whose newest is taken.
        part: `encoder`: the vectors of the discriminator (or of BERT). `electra`: what
            it judges replaced, and what the generator (or BERT) proposes for masks.

    Returns:
        Functions of strings and of ids. They compute in float32.

    Raises:
        InputError: No checkpoint, or another model than its config tells.
    """
    start, checkpoint = PretrainedEncoder.open(path), open_checkpoint(path)
    settings = loader.parse_config(checkpoint.read(CONFIG).decode(), checkpoint.path)
    if part == "encoder":
        encoder = Encoder(start.shape)
        encoder.build()
        start.load_into(encoder)
        found = {"": HiddenStates(encoder)}
    else:
        model = _towers(settings)
        weights = {weight.path: weight for weight in model.weights}
        assign(weights, checkpoint.weights(), checkpoint.path)
        found = _said(model, start.tokenizer.vocabulary.ids[MASK])
    return _exportable(part, found, start, settings)


def _towers(settings: PretrainingConfig) -> Any:
    """The towers that a config tells, built."""
    if settings.objective.name == "mlm":
        model = bert(settings.model)
    else:
        model = Electra(
            settings.model, generator=not settings.objective.uniform_generator
        )
    model.build()
    return model


def _said(model: Any, mask: int) -> dict[str, InferenceHead]:
    """What the towers have a word on, by the name of its signature of texts."""
    judge = model.discriminator if isinstance(model, Electra) else None
    guesser = model.generator if judge else model
    networks: dict[int, InferenceEncoder] = {}
    for tower in filter(None, (judge, guesser)):
        if id(tower.encoder) not in networks:  # both have one if all is shared
            networks[id(tower.encoder)] = InferenceEncoder(tower.encoder)
    found: dict[str, InferenceHead] = {}
    if judge:
        found["replaced"] = ReplacedTokenDetection(judge, networks[id(judge.encoder)])
    if guesser:
        network = networks[id(guesser.encoder)]
        found["masked"] = FillMask(guesser, network, mask, PROPOSALS)
    return found


def _exportable(
    kind: str,
    found: dict[str, InferenceHead],
    start: PretrainedEncoder,
    settings: PretrainingConfig,
) -> ExportSpec:
    """The first of what is said is `serving_default` and `tokens`."""
    longest, tokenizer = settings.records.max_length, start.tokenizer
    texts, ids = {}, {}
    module = tf.Module()
    module.said, module.packers = list(found.values()), []
    for name, said in found.items():
        first, masks = not texts, name == "masked"
        pack = (GraphMasks if masks else GraphInputs)(tokenizer, longest)
        module.packers.append(pack)
        requests, given = _requests(tokenizer, longest, masks)
        by_keras = _by_keras(said)
        told = _told(said, pack.with_cut, tokenizer)
        text = Signature(
            text_signature(told, ("text",)),
            requests,
            _of_texts(by_keras, given, tokenizer),
        )
        texts["serving_default" if first else f"{name}_text"] = text
        ids["tokens" if first else f"{name}_tokens"] = Signature(
            token_signature(said, start.shape),
            [*given.values()],
            by_keras,
            token_signature(said.whole, start.shape),
        )
    details = {"max_length": longest}
    return ExportSpec(kind, module, texts, ids, tokenizer, details)


def _told(
    said: InferenceHead, pack: Callable[[tf.Tensor], Any], tokenizer: Tokenizer
) -> Callable[[tf.Tensor], dict[str, tf.Tensor]]:
    """What is said of texts, and the tokens and proposals as strings."""
    vocabulary = tokenizer.vocabulary.tokens
    named_V = tf.constant([*vocabulary, ""])

    def name(ids: tf.Tensor, known: tf.Tensor) -> tf.Tensor:
        return tf.gather(named_V, tf.where(known, ids, len(vocabulary)))

    def told(text_B: tf.Tensor) -> dict[str, tf.Tensor]:
        inputs, cut_B = pack(text_B)
        inputs = check_request_size(inputs)
        found = said(inputs)
        found["pieces_cut"] = cut_B
        found["tokens"] = name(inputs["token_ids"], inputs["padding_mask"] > 0)
        if "ids" in found:
            found["proposals"] = name(found["ids"], found["ids"] >= 0)
        return found

    return told


def _requests(
    tokenizer: Tokenizer, longest: int, masks: bool
) -> tuple[list[Request], dict[tuple[bytes, ...], Request]]:
    """Texts, and by them the ids that the tokenizer makes outside a graph."""
    texts = _MASKED if masks else PROBE_TEXTS
    requests, given = [], {}
    for part in (texts[:1], texts, ()):
        request = {"text": strings(part)}
        rows = [_packed(tokenizer, text, longest, masks) for text in part]
        width = max(map(len, rows), default=0)
        mask_BL = np.array([[1] * len(r) + [0] * (width - len(r)) for r in rows])
        ids_BL = np.array([[*row, *[0] * (width - len(row))] for row in rows])
        shape = len(rows), width
        arrays = ids_BL, np.zeros(shape), mask_BL
        arrays = (array.astype(np.int32).reshape(shape) for array in arrays)
        requests.append(request)
        given[tuple(request["text"])] = dict(zip(IDS, arrays, strict=True))
    return requests, given


def _packed(tokenizer: Tokenizer, text: str, longest: int, masks: bool) -> list[int]:
    ids, special = [], tokenizer.vocabulary.ids
    for part in text.split(MASK) if masks else [text]:
        ids += [*tokenizer.encode(part), special[MASK]]
    return [special[CLS], *ids[:-1][: longest - 2], special[SEP]]


def _of_texts(
    by_keras: Callable[[Request], Answer], given: Mapping, tokenizer: Tokenizer
) -> Callable[[Request], Answer]:
    """What Keras says of the ids of texts, and the tokens that these are."""
    named = np.array([*map(str.encode, tokenizer.vocabulary.tokens), b""], object)

    def expected(request: Request) -> Answer:
        ids = given[tuple(request["text"])]
        if not len(ids[IDS[0]]):
            return {}
        places = np.where(ids["padding_mask"], ids["token_ids"], -1)
        return {**by_keras(ids), "tokens": named[places]}

    return expected


def _by_keras(said: InferenceHead) -> Callable[[Request], Answer]:
    """What Keras says; nothing, where there are no rows."""

    def expected(ids: Request) -> Answer:
        if not len(ids[IDS[0]]):
            return {}
        return {name: of.numpy() for name, of in said.by_keras(ids).items()}

    return expected
