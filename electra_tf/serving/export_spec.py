"""Functions to export, with requests that validate them."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf.text.tokenizer import Tokenizer

Request = Mapping[str, np.ndarray]
Response = dict[str, np.ndarray]

IDS = ("token_ids", "segment_ids", "padding_mask")
"""Inputs of signatures that take ids, int32 [B, L]."""

PROBE_TEXTS = (
    "A film to remember, and one I would see again tomorrow.",
    "The service was slow; the soup cold, the waiter rude!",
    "In 1869 the transcontinental railroad was completed at Promontory Summit, Utah.",
    "Café crème à Zürich: ΟΔΥΣΣΕΥΣ, Ёлка, ﬁnancial ½ №5",
    "这家酒店的服务非常好,房间也很干净。",
    "un-be-liev-able 🙂🙃 e\u0301 \u200d \u00ad [MASK] [SEP] ##ing",
    "tab\there, new\nline, nul\x00, no\u00a0break, wide\u3000space",
    "",
    " ".join(f"word{number} of a text that is far too long" for number in range(90)),
)
"""Texts of many kinds, for validation and for warm-up requests."""


@dataclasses.dataclass(frozen=True)
class Signature:
    """Function that is served."""

    function: Any
    """A `tf.function` with an input signature, which returns tensors by name."""
    requests: Sequence[Request]
    """Requests to validate it with. The first has one row, the last has none."""
    expected: Callable[[Request], Response]
    """Function from a request to the Keras model's outputs, all or some of them."""
    unchunked: Any = None
    """For ids: the function that computes all rows at once, for formats without
    loops."""


@dataclasses.dataclass(frozen=True)
class ExportSpec:
    """Functions of a model, with the files that belong to them."""

    kind: str
    """Kind of model: `classifier`, `encoder`, ..."""
    module: tf.Module
    """Module with every variable and table of the functions, each once."""
    text: Mapping[str, Signature]
    """Functions of strings by name."""
    tokens: Mapping[str, Signature]
    """Functions of ids by name."""
    tokenizer: Tokenizer
    metadata: Mapping[str, Any]
    """Facts for clients: labels, lengths."""


def encode_texts(texts: Sequence[str | bytes]) -> np.ndarray:
    """Return texts as an array of UTF-8 bytes, the form of requests.

    Args:
        texts: Strings, or bytes, which are not changed.

    Returns:
        Objects of type bytes, [B].
    """
    array_B = np.empty(len(texts), object)
    array_B[:] = [
        text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
        for text in texts
    ]
    return array_B


def decode_texts(array_B: np.ndarray) -> list[str]:
    """Return the strings of an array of UTF-8 bytes.

    Args:
        array_B: Bytes. Invalid UTF-8 is dropped, as by the tokenizer.
    """
    return [text.decode("utf-8", "ignore") for text in array_B]
