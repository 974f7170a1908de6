"""Heads of pre-trained models in the local server: replaced tokens, and fill-mask."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from electra_tf.errors import InputError
from electra_tf.serving.export_options import LIMITS
from electra_tf.serving.http_servable import Servable, ServableSignature
from electra_tf.text.vocab import MASK

NUM_PROPOSALS = 10  # tokens that are proposed for a mask
_BATCH_SIZE = 8  # texts whose masks have logits at the same time
Rows = Sequence[Sequence[Any]]


def pretrained_servable(name: str, electra: Any, masked_lm: Any) -> Servable:
    """Return an `Electra` and a `MaskedLanguageModel` as signatures of texts.

    Either may be None.
    """
    signatures = {}
    if electra:
        signatures["serving_default"] = _signature(
            lambda texts: _replaced(electra, texts),
            {"tokens": [tf.string, None], "replaced_probability": [tf.float32, None]},
        )
    if masked_lm:
        axes = None, NUM_PROPOSALS
        signatures["masked_text" if electra else "serving_default"] = _signature(
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
    found = masked_lm.fill_mask(texts, NUM_PROPOSALS, _BATCH_SIZE)
    # A text with one mask has a list of proposals, others a list for each mask.
    pairs = zip(found, (text.count(MASK) for text in texts), strict=True)
    rows = [[row] if count == 1 else row for row, count in pairs]
    return {
        "proposals": [[[p.token for p in mask] for mask in row] for row in rows],
        "probabilities": [
            [[p.probability for p in mask] for mask in row] for row in rows
        ],
    }


def _signature(
    function: Callable[[Sequence[str]], dict[str, Rows]],
    outputs: Mapping[str, Sequence[Any]],
) -> ServableSignature:
    """Return a signature of a function of texts, given types and axes of its outputs.

    Rows of different lengths are padded.
    """
    specs = {
        name: tf.TensorSpec([None, *axes], dtype, name)
        for name, (dtype, *axes) in outputs.items()
    }

    def call(text: tf.Tensor) -> dict[str, tf.Tensor]:
        if (rows := len(text)) > LIMITS.rows:
            raise InputError(
                f"A request must have at most {LIMITS.rows} rows. Received: {rows}. "
                "Send it in parts"
            )
        found = function([one.decode(errors="ignore") for one in text.numpy()])
        ragged = {
            name: tf.ragged.constant(found[name], spec.dtype, len(spec.shape) - 1)
            for name, spec in specs.items()
        }
        return {name: rows.to_tensor() for name, rows in ragged.items()}

    inputs = {"text": tf.TensorSpec([None], tf.string, "text")}
    return ServableSignature(inputs, specs, call)
