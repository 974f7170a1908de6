"""Heads of pre-trained models in the local server: replaced tokens, and fill-mask."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from electra_tf.errors import InputError
from electra_tf.serving.export_options import LIMITS
from electra_tf.serving.http_servable import Servable, ServableSignature
from electra_tf.text.tokenizer import WordPieceTokenizer
from electra_tf.text.vocab import MASK

NUM_PROPOSALS = 10  # tokens that are proposed for a mask
MAX_MASKS = 1024  # of a request, and whose logits are in memory at the same time
_MAX_CHARACTERS = 2**22  # a proposal has a copy of the text
_BATCH_SIZE = 8
Rows = Sequence[Sequence[Any]]


def pretrained_servable(name: str, electra: Any, masked_lm: Any) -> Servable:
    """Return an `Electra` and a `MaskedLanguageModel` as signatures of texts.

    Either may be None.
    """
    signatures = {}
    if electra:
        signatures["serving_default"] = _signature(
            electra.encoder.tokenizer,
            lambda texts: _replaced(electra, texts),
            {"tokens": [tf.string, None], "replaced_probability": [tf.float32, None]},
        )
    if masked_lm:
        axes = None, NUM_PROPOSALS
        signatures["masked_text" if electra else "serving_default"] = _signature(
            masked_lm.encoder.tokenizer,
            lambda texts: _proposals(masked_lm, texts),
            {"proposals": [tf.string, *axes], "probabilities": [tf.float32, *axes]},
        )
    return Servable(name, 1, signatures, {"kind": "electra"})


def _replaced(electra: Any, texts: Sequence[str]) -> dict[str, Rows]:
    rows = electra.replaced_tokens(texts, _BATCH_SIZE)
    return {
        "tokens": [[one.token for one in row] for row in rows],
        "replaced_probability": [[one.probability for one in row] for row in rows],
    }


def _proposals(masked_lm: Any, texts: Sequence[str]) -> dict[str, Rows]:
    counts = [text.count(MASK) for text in texts]
    _check_size("masks", sum(counts), MAX_MASKS)
    size = sum(len(text) * count for text, count in zip(texts, counts, strict=True))
    _check_size("characters, times the masks of their text", size, _MAX_CHARACTERS)
    batch_size = min(_BATCH_SIZE, MAX_MASKS // max([1, *counts]))
    found = masked_lm.fill_mask(texts, NUM_PROPOSALS, batch_size)
    # A text with one mask has a list of proposals, others a list for each mask.
    pairs = zip(found, counts, strict=True)
    rows = [[row] if count == 1 else row for row, count in pairs]
    return {
        "proposals": [[[p.token for p in mask] for mask in row] for row in rows],
        "probabilities": [
            [[p.probability for p in mask] for mask in row] for row in rows
        ],
    }


def _check_size(name: str, size: int, limit: int) -> None:
    """Raise an error for a request that is too large, before it is computed."""
    if size > limit:
        raise InputError(
            f"A request must have at most {limit} {name}. Received: {size}. Send it in "
            "parts"
        )


def _signature(
    tokenizer: WordPieceTokenizer,
    function: Callable[[Sequence[str]], dict[str, Rows]],
    outputs: Mapping[str, Sequence[Any]],
) -> ServableSignature:
    """Return a signature of a function of texts, given types and axes of its outputs.

    A request has the limits of exports. Rows of different lengths are padded.
    """
    specs = {
        name: tf.TensorSpec([None, *axes], dtype, name)
        for name, (dtype, *axes) in outputs.items()
    }

    def call(text: tf.Tensor) -> dict[str, tf.Tensor]:
        rows = text.numpy()
        _check_size("rows", len(rows), LIMITS.rows)
        _check_size("bytes", sum(map(len, rows)), LIMITS.bytes)
        texts = [row.decode(errors="ignore") for row in rows]
        longest = max((len(tokenizer.encode(one)) + 2 for one in texts), default=0)
        positions = "positions, rows times the longest"
        _check_size(positions, len(texts) * longest, LIMITS.positions)
        found = function(texts)
        ragged = {
            name: tf.ragged.constant(found[name], spec.dtype, len(spec.shape) - 1)
            for name, spec in specs.items()
        }
        return {name: rows.to_tensor() for name, rows in ragged.items()}

    inputs = {"text": tf.TensorSpec([None], tf.string, "text")}
    return ServableSignature(inputs, specs, call)
