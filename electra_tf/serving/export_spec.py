"""What is exported: functions of a graph, and requests that prove them."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf.text.tokenizer import Tokenizer

Request = Mapping[str, np.ndarray]
Answer = dict[str, np.ndarray]

IDS = ("token_ids", "segment_ids", "padding_mask")
"""Inputs of signatures that take ids, int32 [B, L]."""

MOST_ROWS = 4096
"""Rows of a request of strings: so many of 16 positions are all an encoder takes."""
MOST_BYTES = 2**21
"""Bytes of all strings of a request, of which the tokenizer takes about a hundred
times the memory: a mebibyte for each of two inputs."""

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
"""Texts of many kinds, for the exporter's own proof and for the first requests."""


@dataclasses.dataclass(frozen=True)
class Signature:
    """One function that is served."""

    function: Any
    """A `tf.function` with an input signature, which returns tensors by name."""
    requests: Sequence[Request]
    """What it is tried with; the first is of one row."""
    expected: Callable[[Request], Answer]
    """What the Keras model says to a request, or to those of its outputs that it has a
    word on."""
    whole: Any = None
    """Of ids: the function that takes all rows at once, for formats without loops."""


@dataclasses.dataclass(frozen=True)
class ExportSpec:
    """A model, ready to be written."""

    kind: str
    """What it does, in a word: `classifier`, `encoder`, ..."""
    module: tf.Module
    """Holds every variable and table that the functions use, each once."""
    text: Mapping[str, Signature]
    """Functions of strings by name."""
    tokens: Mapping[str, Signature]
    """Functions of ids by name."""
    tokenizer: Tokenizer
    details: Mapping[str, Any]
    """What a client may want to know: labels, lengths."""


def text_signature(
    function: Callable[..., dict[str, tf.Tensor]], names: Sequence[str]
) -> Any:
    """A function of strings as a signature takes it.

    Args:
        function: From tensors of strings [B] to tensors by name.
        names: Of its inputs, in order.

    Returns:
        A `tf.function` for any number of rows; `InvalidArgumentError` at run time where
        the inputs have different ones, more than `MOST_ROWS` of them, or more than
        `MOST_BYTES` in all. None of the function's operations runs before that.
    """
    spec = [tf.TensorSpec([None], tf.string, name=name) for name in names]

    def checked(*texts: tf.Tensor) -> dict[str, tf.Tensor]:
        # A server feeds what it gets; a signature's shape alone refuses nothing.
        texts = [tf.ensure_shape(text_B, [None]) for text_B in texts]
        sizes = [tf.size(text_B) for text_B in texts]
        same = [
            tf.debugging.Assert(
                tf.equal(sizes[0], size),
                [f"{' and '.join(names)} have a row for each other. Received:", *sizes],
            )
            for size in sizes[1:]
        ]
        with tf.control_dependencies([*same, *_small(texts)]):
            return function(*map(tf.identity, texts))

    return tf.function(checked, input_signature=spec)


def _small(texts: Sequence[tf.Tensor]) -> list[tf.Operation]:
    """Assert that a request of strings has few rows and few bytes."""
    rows = tf.size(texts[0])
    lengths = [tf.cast(tf.strings.length(text_B), tf.int64) for text_B in texts]
    size = tf.add_n([tf.reduce_sum(length_B) for length_B in lengths])
    # Without a branch in the graph only of int32; more bytes than that are many, too.
    told = tf.cast(tf.minimum(size, tf.int32.max), tf.int32)
    return [
        tf.debugging.Assert(
            rows <= MOST_ROWS,
            [f"A request must have at most {MOST_ROWS} rows. Received:", rows,
             "Send it in parts."],
        ),
        tf.debugging.Assert(
            size <= MOST_BYTES,
            [f"The strings of a request must have at most {MOST_BYTES} bytes together. "
             "Received:", told, "Send it in parts."],
        ),
    ]  # fmt: skip


def strings(texts: Sequence[str | bytes]) -> np.ndarray:
    """Texts as UTF-8 in an array of objects, as requests hold them.

    Args:
        texts: Any number.

    Returns:
        Bytes, [B].
    """
    found = np.empty(len(texts), object)
    found[:] = [
        text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
        for text in texts
    ]
    return found


def texts_of(array: np.ndarray) -> list[str]:
    """The other way round; bytes that are no UTF-8 are dropped, as the tokenizer does.

    Args:
        array: What `strings` returned.

    Returns:
        Texts.
    """
    return [text.decode("utf-8", "ignore") for text in array]
