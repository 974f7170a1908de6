"""Methods of pre-trained networks that take texts.

`electra_tf/__init__.py` attaches them to the classes of `electra_tf.model`, which is a
layer below the tokenizer.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np
import tensorflow as tf

from electra_tf.errors import InputError
from electra_tf.model.transformer import Encoder
from electra_tf.tasks.classifier import encode_texts
from electra_tf.tasks.examples import prediction_batch_indices
from electra_tf.tasks.text_inputs import check_input, to_rows
from electra_tf.text.tokenizer import Tokenizer

Pooling = Literal["mean", "cls"]


def embed(
    encoder: Encoder,
    texts: Sequence[Any],
    pooling: Pooling = "mean",
    layer: int = -1,
    batch_size: int = 32,
    max_length: int | None = None,
) -> np.ndarray:
    """Return a vector for each text, for search and clustering.

    Texts of similar lengths are computed together. A text's vector does not depend on
    the others, except for rounding.

    Args:
        encoder: An encoder of `from_preset`.
        texts: Strings, or pairs of strings: a list, an array or a column.
        pooling: `mean` of the states of all tokens, [CLS] and [SEP] included; or `cls`,
            the state of [CLS].
        layer: Index of the states: 0 below the first layer, 1 after it, -1 after the
            last one.
        batch_size: Texts that are computed together.
        max_length: Positions of a text, at most; None: those of the encoder. Longer
            texts are truncated, with a warning.

    Returns:
        float32 [N, D], in the order of the texts.

    Raises:
        InputError: An argument is not valid, or the encoder has no tokenizer.
    """
    tokenizer = _tokenizer(encoder)
    states = encoder.shape.depth + 1
    limit = encoder.shape.max_positions if max_length is None else max_length
    _check("pooling", pooling, get_args(Pooling))
    _check("layer", layer, range(-states, states))
    _check("batch_size", batch_size, range(1, 2**31))
    _check("max_length", limit, range(5, encoder.shape.max_positions + 1))
    examples = encode_texts(tokenizer, to_rows(check_input(texts)), limit)
    if examples.truncated:
        warnings.warn(
            f"{examples.truncated:,} of {len(examples):,} texts were truncated to "
            f"{limit} positions",
            stacklevel=2,
        )
    pool = _pooled(encoder, pooling, layer % states)
    vectors_ND = np.zeros((len(examples), encoder.shape.width), np.float32)
    for rows in prediction_batch_indices(examples.lengths, batch_size):
        inputs, _, _ = examples.batch(rows, len(rows))
        vectors_ND[rows] = pool(inputs).numpy()
    return vectors_ND


def _tokenizer(encoder: Encoder) -> Tokenizer:
    if encoder.tokenizer is None:
        raise InputError(
            "An encoder must have a tokenizer to take texts",
            f"{encoder.name!r} without one",
            "Create it with Encoder.from_preset, or set encoder.tokenizer = "
            "Tokenizer.read(PATH)",
        )
    return encoder.tokenizer


def _check(name: str, value: Any, allowed: Sequence[Any]) -> None:
    if isinstance(value, bool) or value not in allowed:
        is_range = isinstance(allowed, range)
        choices = f"{allowed[0]} to {allowed[-1]}" if is_range else " or ".join(allowed)
        raise InputError(f"{name} must be {choices}", f"{value!r}", "Pass one of these")


def _pooled(encoder: Encoder, pooling: Pooling, layer: int) -> Callable[..., tf.Tensor]:
    """Return the compiled function of inputs to vectors, float32 [B, D]."""
    # Not an attribute that Keras tracks. New weights (LoRA) need another trace.
    functions = vars(encoder).setdefault("_pooled", {})
    key = pooling, layer, len(encoder.weights)
    if key not in functions:

        def pool(inputs: Mapping[str, tf.Tensor]) -> tf.Tensor:
            states = encoder.states(**inputs, training=False)
            for _, x_BLD in zip(range(layer + 1), states, strict=False):  # noqa: B007
                pass
            x_BLD = tf.cast(x_BLD, tf.float32)
            if pooling == "cls":
                return x_BLD[:, 0]
            real_BL1 = tf.cast(inputs["padding_mask"], tf.float32)[..., None]
            return tf.reduce_sum(x_BLD * real_BL1, 1) / tf.reduce_sum(real_BL1, 1)

        ids = tf.TensorSpec([None, None], tf.int32)
        names = "token_ids", "segment_ids", "padding_mask"
        signature = [dict.fromkeys(names, ids)]
        functions[key] = tf.function(pool, signature, autograph=False)
    return functions[key]
