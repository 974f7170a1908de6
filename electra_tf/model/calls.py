"""Unpack the inputs of layers with an encoder, and apply `keras.RematScope`."""

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

import keras

from electra_tf import compat
from electra_tf.errors import InputError
from electra_tf.model.layer_ops import Tensor


def unpack_inputs(
    token_ids: Tensor | Mapping[str, Tensor],
    segment_ids: Tensor | None,
    padding_mask: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the inputs of an encoder, given one by one or as one dictionary."""
    inputs: Mapping[str, Tensor] = {
        "token_ids": token_ids,
        "segment_ids": segment_ids,
        "padding_mask": padding_mask,
    }
    names = [*inputs]
    if isinstance(token_ids, Mapping):
        others = {n: x for n, x in inputs.items() if n != "token_ids" and x is not None}
        inputs = {**token_ids, **{f"{name}=": x for name, x in others.items()}}
    if {*inputs} != {*names} or any(inputs[name] is None for name in names):
        given = [str(name) for name, value in inputs.items() if value is not None]
        raise InputError(
            f"An encoder must be called with {', '.join(names)}, or with one "
            "dictionary of these",
            ", ".join(given) or "none of them",
            "Pass these three; a tokenizer called with texts returns them",
        )
    return tuple(inputs[name] for name in names)


def call_as_it_is(
    layer: keras.layers.Layer, layer_call: Callable[..., Any], *args: Any, **kwargs: Any
) -> Callable[..., Any]:
    """Return a layer's call; a `rematerialized_call` of layers with an encoder.

    In a `keras.RematScope`, each of the encoder's blocks is recomputed on its own. All
    of them together would need the memory that the scope is to save.
    """
    return layer_call


def remat_scope_of_blocks(
    encoder: keras.layers.Layer, blocks: list[str]
) -> contextlib.AbstractContextManager:
    """Return the scope in which an encoder creates its parts.

    Keras would recompute each dense layer and each dropout, with other random numbers.
    """
    mode = compat.remat_mode(encoder)
    if mode is None or mode.mode is None:
        return contextlib.nullcontext()
    if mode.mode == "list_of_layers" and encoder.name not in mode.layer_names:
        blocks = mode.layer_names
    return keras.RematScope("list_of_layers", layer_names=blocks)
